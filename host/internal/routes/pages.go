package routes

import (
	"bytes"
	"encoding/json"

	"github.com/patchbay-mcp/patchbay/host/internal/catalogue"
	"github.com/patchbay-mcp/patchbay/host/internal/listing"
	"github.com/patchbay-mcp/patchbay/host/internal/round"
	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// maxPages limits the number of pages that are kept of a snapshot, and listing.LargeList their bytes.
// Clients read few pages of most lists.
const maxPages = 64

// pages holds encoded pages of a snapshot. The lock of the table guards it.
type pages struct {
	byPosition map[position]*page
	bytes      int // of their results
}

// A position identifies a page by its list and the item before it.
type position struct {
	kind  catalogue.Kind
	after string
}

// A page is a page for clients that receive all items unchanged. It never changes.
type page struct {
	items             json.RawMessage
	next              string // position
	result            mcp.RawResult
	tasks, visibility bool // some items may contain these members
}

// page returns a page of a list.
func (t *Table) page(m *Snapshot, kind catalogue.Kind, after string) (*page, error) {
	key := position{kind, after}
	t.mu.Lock()
	p := m.pages.byPosition[key]
	t.mu.Unlock()
	if p != nil {
		return p, nil
	}
	items, next, err := m.Catalogue.Page(kind, after, 0)
	if err != nil {
		return nil, round.ErrInvalidCursor
	}
	p = t.newPage(kind, items, next)
	t.mu.Lock()
	defer t.mu.Unlock()
	m.pages.put(key, p)
	return p, nil
}

func (l *pages) put(key position, p *page) {
	if l.byPosition == nil || len(l.byPosition) >= maxPages || l.bytes+len(p.result) > listing.LargeList {
		l.byPosition, l.bytes = map[position]*page{}, 0
	}
	if l.bytes += len(p.result); l.bytes <= listing.LargeList {
		l.byPosition[key] = p
	}
}

func (t *Table) newPage(kind catalogue.Kind, items json.RawMessage, next string) *page {
	result := t.listResult(kind, items, next)
	items = json.RawMessage(result[bytes.IndexByte(result, '['):][:len(items):len(items)])
	return &page{
		items: items, next: next, result: result,
		tasks:      bytes.Contains(items, []byte(`"taskSupport"`)),
		visibility: bytes.Contains(items, []byte(`"visibility"`)),
	}
}

func (t *Table) listResult(kind catalogue.Kind, items json.RawMessage, next string) mcp.RawResult {
	const room = 256 // for the members besides the items
	b := append(make([]byte, 0, len(items)+room), `{"resultType":"complete","`...)
	b = append(append(append(b, kind.Member()...), `":`...), items...)
	if next != "" {
		sealed := t.o.Ring.SealText([]byte(next), t.cursorBound(kind.Method())...)
		b = jsonscan.AppendQuote(append(b, `,"nextCursor":`...), sealed)
	}
	// The lists of a caller must not be cached for another caller, and change when a server says so.
	return append(b, `,"ttlMs":0,"cacheScope":"private"}`...)
}

// cursorBound identifies the caller and the list of a cursor.
func (t *Table) cursorBound(method string) []string {
	c := t.o.Caller
	return []string{"cursor", c.Key(), c.Profile, c.Server, method}
}

// openCursor returns the position that the cursor of a request contains, empty without a cursor.
func (t *Table) openCursor(req *mcp.Request, kind catalogue.Kind) (after string, err error) {
	raw, ok := req.Param("cursor")
	if !ok {
		return "", nil
	}
	text, err := jsonscan.Unquote(raw)
	if err == nil {
		var plain []byte
		if plain, _, err = t.o.Ring.OpenText(text, t.cursorBound(kind.Method())...); err == nil {
			return string(plain), nil
		}
	}
	return "", round.ErrInvalidCursor
}

// Cursors returns the cursors of a list whose servers are asked in turn.
func (t *Table) Cursors(req *mcp.Request) round.Cursors {
	return round.Cursors{Ring: t.o.Ring, Bound: t.cursorBound(req.Method)}
}
