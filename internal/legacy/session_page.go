package legacy

import (
	"bytes"
	"sync"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
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

// A pageCache holds projected pages of lists, which are long and seldom change. Of a result, it
// caches the part up to the end of the array: a cursor after it may differ each time. Pages that
// differ by caller are projected each time, and replace others. The zero pageCache is ready for
// use.
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

// A page is a result up to the end of its array, as the core returned it and as sessions send it.
// Its bytes are never changed.
type page struct{ modern, projected []byte }

func (p page) size() int { return len(p.modern) + len(p.projected) }

// splitPage returns the part of a result up to the last array, and an object with the members after
// it, in new memory. The array is that of the list, unless the part is not in the cache.
func splitPage(key pageKey, result []byte) (head, rest []byte, ok bool) {
	switch key.method {
	case wire.MethodToolsList, wire.MethodPromptsList, wire.MethodResourcesList, wire.MethodResourcesTemplatesList:
		ok = minPage <= len(result) && len(result) <= maxPage
	}
	end := bytes.LastIndexByte(result, ']') + 1
	if !ok || end == 0 || end == len(result) || result[end] != ',' && result[end] != '}' {
		return nil, nil, false
	}
	rest = append([]byte{'{'}, bytes.TrimPrefix(result[end:], []byte{','})...)
	return result[:end], rest, true
}

// appendKnown replaces the result at an offset of answer with its projection, if its array is
// cached.
func (c *pageCache) appendKnown(answer []byte, from int, key pageKey, to *projection) ([]byte, bool) {
	head, rest, ok := splitPage(key, answer[from:])
	if !ok {
		return nil, false
	}
	c.mu.Lock()
	p := c.pages[key.hashed(head)]
	c.mu.Unlock()
	if !bytes.Equal(p.modern, head) {
		return nil, false
	}
	if _, ok := jsonscan.Get(rest, "resultType"); ok {
		return nil, false // it may be other than complete
	}
	answer = append(answer[:from], p.projected...)
	if after := to.appendObject(nil, rest); len(after) > len("{}") {
		return append(append(answer, ','), after[1:]...), true
	}
	return append(answer, '}'), true
}

// add projects the part of a result up to the end of the array and caches it. It reports false for
// a result that contains another array after that.
func (c *pageCache) add(key pageKey, result []byte, to *projection) bool {
	head, _, ok := splitPage(key, result)
	if !ok {
		return false
	}
	closed := append(append(make([]byte, 0, len(head)+1), head...), '}')
	if jsonscan.Valid(closed, jsonscan.Limits{}) != nil {
		return false // the last array is within another member
	}
	projected := to.apply(closed)
	p := page{closed[:len(closed)-1], bytes.Clone(projected[:len(projected)-1])}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.pages == nil {
		c.pages = map[pageKey]page{}
	}
	key = key.hashed(head)
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
	return true
}

// hashed returns the key with the hash of a page, FNV-1a of its length and end.
func (k pageKey) hashed(head []byte) pageKey {
	k.hash = uint64(len(head))
	for _, b := range head[max(0, len(head)-hashedPage):] {
		k.hash = (k.hash ^ uint64(b)) * 0x100000001b3
	}
	return k
}
