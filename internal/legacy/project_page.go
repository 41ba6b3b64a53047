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

// A page is a result in both forms. Its bytes are never changed.
type page struct{ modern, projected []byte }

// isList reports whether the results of a method are kept.
func isList(method string) bool {
	switch method {
	case wire.MethodToolsList, wire.MethodPromptsList, wire.MethodResourcesList, wire.MethodResourcesTemplatesList:
		return true
	}
	return false
}

// replace is [projection.replace], for a result of the given method.
func (c *pages) replace(p *projection, rev wire.Revision, method string, dst []byte, from int) []byte {
	size := len(dst) - from
	if size < minPage || size > maxPage || !isList(method) {
		return p.replace(dst, from)
	}
	key := pageKey{rev, method}
	c.mu.Lock()
	kept := c.last[key]
	c.mu.Unlock()
	if bytes.Equal(kept.modern, dst[from:]) {
		return append(dst[:from], kept.projected...)
	}
	kept.modern = bytes.Clone(dst[from:])
	kept.projected = kept.modern
	if p.concerns(kept.modern) { // which is not asked each time: it takes reading the whole list
		kept.projected = p.apply(kept.modern)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.last == nil {
		c.last = map[pageKey]page{}
	}
	c.last[key] = kept
	return append(dst[:from], kept.projected...)
}
