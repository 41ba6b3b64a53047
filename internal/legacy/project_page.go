package legacy

import (
	"bytes"
	"sync"

	"github.com/patchbay-mcp/patchbay/internal/wire"
)

// Bounds of the results that are cached. Projecting a smaller one costs no more than comparing it. A larger one is rare
// and must not hold its memory.
const (
	minPage = 1 << 10
	maxPage = 1 << 20
)

// A pageCache holds projected lists, which are long and seldom change: the last one of each method and revision. A list
// that differs by caller is projected each time, and replaces the cached one. The zero pageCache is ready for use.
type pageCache struct {
	mu   sync.Mutex // guards the field below
	last map[pageKey]page
}

type pageKey struct {
	rev    wire.Revision
	method string
}

// A page is the result of a list, as the core returned it and as a session sends it. Its bytes are never changed.
type page struct{ modern, projected []byte }

// isCacheable reports whether the result of a request is a page that the cache holds.
func isCacheable(key pageKey, result []byte) bool {
	switch key.method {
	case wire.MethodToolsList, wire.MethodPromptsList, wire.MethodResourcesList, wire.MethodResourcesTemplatesList:
		return minPage <= len(result) && len(result) <= maxPage
	}
	return false
}

// find returns the projection of a result, if it is cached. The caller must not change it.
func (c *pageCache) find(key pageKey, result []byte) (projected []byte, ok bool) {
	if !isCacheable(key, result) {
		return nil, false
	}
	c.mu.Lock()
	last := c.last[key]
	c.mu.Unlock()
	return last.projected, bytes.Equal(last.modern, result)
}

// put caches a page, whose bytes the caller must not change any more.
func (c *pageCache) put(key pageKey, p page) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.last == nil {
		c.last = map[pageKey]page{}
	}
	c.last[key] = p
}
