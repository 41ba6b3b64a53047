package console

import (
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/capture"
)

// A diffLine is a line of a comparison.
type diffLine struct {
	Kind string // diffSame, diffAdded or diffRemoved, which are classes
	Mark string // for people who do not see the colour
	Text string
}

// Kinds of lines.
const (
	diffSame    = "same"
	diffAdded   = "added"
	diffRemoved = "removed"
)

// maxDiffLines limits the lines of each side of a comparison, whose time grows with their product.
const maxDiffLines = 2000

// messageLines returns the lines of the messages of an exchange, indented and without ids, which differ
// between all exchanges.
func messageLines(frames []capture.Frame) (lines []string) {
	for i := range frames {
		f := &frames[i]
		if f.Kind != capture.Message {
			continue
		}
		text := jsontext.Value(f.Text)
		_ = text.Indent() // a message that is cut stays on one line
		for line := range strings.Lines(string(text)) {
			line = strings.TrimRight(line, "\n")
			if isTopID := strings.HasPrefix(line, "\t\"id\":"); !isTopID && len(lines) < maxDiffLines {
				lines = append(lines, line)
			}
		}
	}
	return lines
}

// diffLines returns the lines of both sides, with the longest common subsequence as equal lines.
func diffLines(old, now []string) (all []diffLine) {
	add := func(kind, mark string, lines ...string) {
		for _, l := range lines {
			all = append(all, diffLine{kind, mark, l})
		}
	}
	prefix := 0
	for prefix < min(len(old), len(now)) && old[prefix] == now[prefix] {
		prefix++
	}
	add(diffSame, " ", old[:prefix]...)
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
			add(diffSame, " ", old[i])
			i, j = i+1, j+1
		case length[i+1][j] >= length[i][j+1]:
			add(diffRemoved, "-", old[i])
			i++
		default:
			add(diffAdded, "+", now[j])
			j++
		}
	}
	add(diffRemoved, "-", old[i:]...)
	add(diffAdded, "+", now[j:]...)
	return all
}
