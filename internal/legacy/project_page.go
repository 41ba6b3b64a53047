package legacy

import (
	"bytes"
	"sync"

	"github.com/patchbay-mcp/patchbay/internal/wire"
)

// Bounds of the pages that are kept: projecting a smaller one costs no more than comparing it, and a larger one is rare and
// must not pin its size.
const (
	minPage = 1 << 10
	maxPage = 1 << 20
)

// pages keeps the projections of lists, which are long and seldom change: the last one of each method and revision. A list
// that differs by caller is projected each time, and takes the place of the one that is kept. The zero pages is empty and ready.
type pages struct {
	mu   sync.Mutex // guards the field below
	last map[pageKey]page
}

type pageKey struct {
	rev    wire.Revision
	method string
}

// A page is a result as the core gave it, and as a session gets it. Its bytes are never changed.
type page struct {
	modern    []byte // without the items
	items     []byte // that the core has left out; nil for none
	at        int    // where they belong in modern
	projected []byte // with the brace behind it that ends a response
}

// pageIn returns the page, not projected, whose rest the answer holds from the offset on.
func pageIn(answer []byte, from int, left *wire.Page) page {
	p := page{modern: answer[from:]}
	if left != nil && left.Items != nil {
		p.items, p.at = left.Items, left.At-from
	}
	return p
}

// equal compares what the core gave. It keeps the items that it leaves out, and so do pages, so their memory tells them
// from others.
func (p *page) equal(q *page) bool {
	if len(p.items) != len(q.items) || len(p.items) > 0 && &p.items[0] != &q.items[0] {
		return false
	}
	return p.at == q.at && bytes.Equal(p.modern, q.modern)
}

// isKept reports whether a page is kept.
func (p *page) isKept(key pageKey) bool {
	size := len(p.modern) + len(p.items)
	return minPage <= size && size <= maxPage && wire.IsList(key.method)
}

// find returns the projection of a page if it is kept, and behind it the brace that ends a response.
func (c *pages) find(key pageKey, p *page) (projected []byte, ok bool) {
	if !p.isKept(key) {
		return nil, false
	}
	c.mu.Lock()
	kept := c.last[key]
	c.mu.Unlock()
	return kept.projected, kept.equal(p)
}

// keep keeps a page, which is nobody else's, with a copy of its projection.
func (c *pages) keep(key pageKey, p page, projected []byte) {
	p.projected = append(append(make([]byte, 0, len(projected)+1), projected...), '}')
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.last == nil {
		c.last = map[pageKey]page{}
	}
	c.last[key] = p
}
