// Package diff compares texts by lines, for the web console and for edits of configuration files.
package diff

import (
	"fmt"
	"slices"
)

// A Line is a line of a comparison. Package page shows lines.
type Line struct {
	Kind string // Same, Added, Removed or Cut, which are classes
	Mark string // for people who do not see the colour
	Text string
}

// Kinds of lines.
const (
	Same    = "same"
	Added   = "added"
	Removed = "removed"
	Cut     = "cut" // the text says which part of the texts is not compared
)

const (
	// MaxLines limits the lines of each side that [Lines] compares and returns.
	MaxLines = 2000
	// maxSteps limits the time of a comparison by [Lines], which grows with the product of the lines.
	maxSteps = MaxLines * MaxLines
)

// IsEqual reports whether all lines are the same on both sides. A comparison that is cut is not equal.
func IsEqual(all []Line) bool {
	return !slices.ContainsFunc(all, func(l Line) bool { return l.Kind != Same })
}

// CutLine returns a line that says which part of the texts is not compared.
func CutLine(text string) Line { return Line{Cut, "!", text} }

// Lines compares the first [MaxLines] lines of both sides. If a side has more lines, the last line of the
// result is of the kind [Cut].
func Lines(old, now []string) []Line {
	isCut := max(len(old), len(now)) > MaxLines
	steps := maxSteps
	all, _ := Complete(old[:min(len(old), MaxLines)], now[:min(len(now), MaxLines)], &steps)
	if isCut {
		all = append(all, CutLine(fmt.Sprintf("only the first %d lines of each side are compared", MaxLines)))
	}
	return all
}

// Complete returns all lines of both sides, with the longest common subsequence as equal lines. A
// comparison takes as many steps as the product of the lines that follow the common beginning and precede
// the common end, and subtracts them from steps. If fewer steps remain, Complete returns all of these lines
// as removed, then as added, and isExact is false.
func Complete(old, now []string, steps *int) (all []Line, isExact bool) {
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
	suffix := 0
	for suffix < min(len(old), len(now)) && old[len(old)-1-suffix] == now[len(now)-1-suffix] {
		suffix++
	}
	end := old[len(old)-suffix:]
	old, now = old[:len(old)-suffix], now[:len(now)-suffix]
	if isExact = len(old)*len(now) <= *steps; isExact {
		*steps -= len(old) * len(now)
		all = append(all, changes(old, now)...)
	} else {
		add(Removed, "-", old...)
		add(Added, "+", now...)
	}
	add(Same, " ", end...)
	return all, isExact
}

// changes compares two sides completely.
func changes(old, now []string) (all []Line) {
	// length[i][j] is the length of the longest common subsequence of old[i:] and now[j:].
	length := make([][]int32, len(old)+1)
	for i := range length {
		length[i] = make([]int32, len(now)+1)
	}
	for i := range slices.Backward(old) {
		for j := range slices.Backward(now) {
			if length[i][j] = max(length[i+1][j], length[i][j+1]); old[i] == now[j] {
				length[i][j] = length[i+1][j+1] + 1
			}
		}
	}
	i, j := 0, 0
	for i < len(old) || j < len(now) {
		switch {
		case i < len(old) && j < len(now) && old[i] == now[j]:
			all = append(all, Line{Same, " ", old[i]})
			i, j = i+1, j+1
		case i < len(old) && (j == len(now) || length[i+1][j] >= length[i][j+1]):
			all = append(all, Line{Removed, "-", old[i]})
			i++
		default:
			all = append(all, Line{Added, "+", now[j]})
			j++
		}
	}
	return all
}
