// Package diff compares texts by lines, for the pages of the web console.
package diff

import "slices"

// A Line is a line of a comparison. The template part/diff of package page shows lines.
type Line struct {
	Kind string // Same, Added or Removed, which are classes
	Mark string // for people who do not see the colour
	Text string
}

// Kinds of lines.
const (
	Same    = "same"
	Added   = "added"
	Removed = "removed"
)

// MaxLines limits the lines of each side of a comparison, whose time grows with their product. The
// lines after the limit are ignored.
const MaxLines = 2000

// IsEqual reports whether all lines are the same on both sides.
func IsEqual(all []Line) bool {
	return !slices.ContainsFunc(all, func(l Line) bool { return l.Kind != Same })
}

// Lines returns the lines of both sides, with the longest common subsequence as equal lines.
func Lines(old, now []string) (all []Line) {
	old, now = old[:min(len(old), MaxLines)], now[:min(len(now), MaxLines)]
	add := func(kind, mark string, lines ...string) {
		for _, l := range lines {
			all = append(all, Line{kind, mark, l})
		}
	}
	prefix := 0
	for prefix < min(len(old), len(now)) && old[prefix] == now[prefix] {
		prefix++
	}
	add(Same, " ", old[:prefix]...)
	old, now = old[prefix:], now[prefix:]
	// length[i][j] is the length of the longest common subsequence of old[i:] and now[j:].
	length := make([][]int16, len(old)+1)
	for i := range length {
		length[i] = make([]int16, len(now)+1)
	}
	for i := range slices.Backward(old) {
		for j := range slices.Backward(now) {
			if length[i][j] = max(length[i+1][j], length[i][j+1]); old[i] == now[j] {
				length[i][j] = length[i+1][j+1] + 1
			}
		}
	}
	i, j := 0, 0
	for i < len(old) && j < len(now) {
		switch {
		case old[i] == now[j]:
			add(Same, " ", old[i])
			i, j = i+1, j+1
		case length[i+1][j] >= length[i][j+1]:
			add(Removed, "-", old[i])
			i++
		default:
			add(Added, "+", now[j])
			j++
		}
	}
	add(Removed, "-", old[i:]...)
	add(Added, "+", now[j:]...)
	return all
}
