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
type page struct{ modern, projected []byte }

// isList reports whether the results of a method are kept.
func isList(method string) bool {
	switch method {
	case wire.MethodToolsList, wire.MethodPromptsList, wire.MethodResourcesList, wire.MethodResourcesTemplatesList:
		return true
	}
	return false
}

// isPage reports whether a result is kept.
func isPage(key pageKey, result []byte) bool {
	return minPage <= len(result) && len(result) <= maxPage && isList(key.method)
}

// pageOf gives a copy of a result that is to be kept, nil for one that is not.
func pageOf(key pageKey, result []byte) []byte {
	if !isPage(key, result) {
		return nil
	}
	return bytes.Clone(result)
}

// find puts the projection that is kept in place of the result that dst holds from the offset on, and reports whether
// there is one.
func (c *pages) find(key pageKey, dst []byte, from int) ([]byte, bool) {
	if !isPage(key, dst[from:]) {
		return dst, false
	}
	c.mu.Lock()
	kept := c.last[key]
	c.mu.Unlock()
	if !bytes.Equal(kept.modern, dst[from:]) {
		return dst, false
	}
	return append(dst[:from], kept.projected...), true
}

// keep keeps both forms of a result: modern, which is nil for one that is not kept, and a copy of projected.
func (c *pages) keep(key pageKey, modern, projected []byte) {
	if modern == nil {
		return
	}
	p := page{modern, bytes.Clone(projected)}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.last == nil {
		c.last = map[pageKey]page{}
	}
	c.last[key] = p
}
