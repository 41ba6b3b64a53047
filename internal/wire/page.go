package wire

import (
	"bytes"
	"slices"
)

// A Page is the items of a list that whoever answers has kept as JSON, and which an answer leaves out: its reader may know
// them, or write them from where they are. They are never changed, and as long as somebody holds them, the same memory
// holds the same items.
type Page struct {
	Items []byte // an array; nil if nothing is left out
	At    int    // how much of the answer is before them
	Ended []byte // the items and what is behind them in most answers, to the end of the response; nil where that is not known
}

// IsList reports whether the answers to a method may leave out items.
func IsList(method string) bool {
	switch method {
	case MethodToolsList, MethodPromptsList, MethodResourcesList, MethodResourcesTemplatesList:
		return true
	}
	return false
}

// LeavesOut reports whether something is left out. A nil page leaves out nothing.
func (p *Page) LeavesOut() bool { return p != nil && p.Items != nil }

// Whole puts what is left out into the answer, in its memory if there is room.
func (p *Page) Whole(answer []byte) []byte {
	if !p.LeavesOut() {
		return answer
	}
	return slices.Insert(answer, p.At, p.Items...)
}

// Cut returns the whole answer in pieces, without a copy: what is before the items, what is kept, and what is left.
func (p *Page) Cut(answer []byte) (before, kept, behind []byte) {
	before, behind = answer[:p.At], answer[p.At:]
	if p.Ended != nil && bytes.Equal(behind, p.Ended[len(p.Items):]) {
		return before, p.Ended, nil
	}
	return before, p.Items, behind
}
