package legacy

import (
	"bytes"
	"sync"

	"github.com/patchbay-mcp/patchbay/internal/wire"
)

const (
	// minPage and maxPage limit the results that are cached. Projecting a smaller result costs no
	// more than comparing it. A result of maxPage leaves room for two revisions, with the projected
	// forms.
	minPage = 1 << 10
	maxPage = maxPages / 4
	// maxPages limits the memory of all cached pages of a server, in bytes: such as the pages of a
	// list of thousands of items, for two revisions.
	maxPages = 16 << 20
	// hashedPage is the length of the part of a page that its hash covers: mostly several items.
	hashedPage = 1 << 10
)

// A pageCache holds projected pages of lists, which are long and seldom change, for a core that does
// not project them itself, such as a gateway. Pages that differ by caller are projected each time,
// and replace others. The zero pageCache is ready for use.
type pageCache struct {
	mu    sync.Mutex // guards the fields below
	pages map[pageKey]page
	bytes int // of all pages
}

type pageKey struct {
	rev    wire.Revision
	method string
	hash   uint64
}

// A page is a result, as the core returned it and as sessions send it. Its bytes are never changed.
type page struct{ modern, projected []byte }

func (p page) size() int { return len(p.modern) + len(p.projected) }

// appendKnown replaces the result at an offset of answer with its projection, if it is cached.
func (c *pageCache) appendKnown(answer []byte, from int, key pageKey) ([]byte, bool) {
	if !key.find(answer[from:]) {
		return nil, false
	}
	c.mu.Lock()
	p, ok := c.pages[key]
	c.mu.Unlock()
	if !ok || !bytes.Equal(p.modern, answer[from:]) {
		return nil, false
	}
	return append(answer[:from], p.projected...), true
}

// add caches a result, if it is a page of a list.
func (c *pageCache) add(key pageKey, modern, projected []byte) {
	if !key.find(modern) {
		return
	}
	p := page{bytes.Clone(modern), bytes.Clone(projected)}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.pages == nil {
		c.pages = map[pageKey]page{}
	}
	c.bytes += p.size() - c.pages[key].size()
	c.pages[key] = p
	for other, q := range c.pages {
		if c.bytes <= maxPages {
			break
		}
		if other != key {
			delete(c.pages, other)
			c.bytes -= q.size()
		}
	}
}

// find completes the key of a result by a hash, FNV-1a of its length and end. It reports false for a
// result that is not cached.
func (k *pageKey) find(result []byte) bool {
	switch k.method {
	case wire.MethodToolsList, wire.MethodPromptsList, wire.MethodResourcesList, wire.MethodResourcesTemplatesList:
	default:
		return false
	}
	if len(result) < minPage || len(result) > maxPage {
		return false
	}
	k.hash = uint64(len(result))
	for _, b := range result[max(0, len(result)-hashedPage):] {
		k.hash = (k.hash ^ uint64(b)) * 0x100000001b3
	}
	return true
}
