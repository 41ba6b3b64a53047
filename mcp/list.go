package mcp

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"
	"sort"
	"sync/atomic"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/internal/legacy"
	"github.com/patchbay-mcp/patchbay/internal/schema"
	"github.com/patchbay-mcp/patchbay/internal/seal"
	"github.com/patchbay-mcp/patchbay/internal/wire"
)

// maxCursor bounds the cursor that a client sends. A cursor holds a name, of which a URI is the
// longest, and sealing makes it a third longer.
const maxCursor = maxURI + maxURI/2

// A listPage is a page of a list, with the JSON of its items. V is a pointer to an item.
type listPage[V any] struct {
	items   []V
	encoded []*encoding
	isKept  bool // for further requests
	// arrays are the JSON arrays of all items of a page that is kept, by form; nil until needed.
	arrays [wire.July2026]atomic.Pointer[[]byte]
}

func (p *listPage[V]) add(v V, encoded *encoding) {
	p.items = append(p.items, v)
	p.encoded = append(p.encoded, encoded)
}

// array returns the JSON array of all items in a form. name is the name of the list in its result.
func (p *listPage[V]) array(form wire.Revision, name string) []byte {
	if array := p.arrays[form].Load(); array != nil {
		return *array
	}
	each := listPage[V]{items: p.items, encoded: p.encoded}
	array, _ := each.appendItems(nil, name, p.items, form, nil) // every item is encoded already
	array = bytes.Clone(array)                                  // without its spare capacity
	if form != 0 && bytes.Equal(array, p.array(0, name)) {
		array = p.array(0, name)
	}
	p.arrays[form].Store(&array)
	return array
}

// itemsFor returns the items for the result of a request, as a copy if a handler may change them.
func (p *listPage[V]) itemsFor(s *Server, req *Request) []V {
	if req.plain == s && s.handler.Load().isPlain { // again, since middleware may have been added
		return p.items
	}
	return slices.Clone(p.items)
}

// appendItems appends items as a JSON array in a form. It reuses the encoding of the page for items
// that middleware did not change, and encodes the others again. The page and carrier may be nil.
func (p *listPage[V]) appendItems(
	dst []byte, name string, items []V, form wire.Revision, carrier wire.Splicer,
) ([]byte, error) {
	same := func(a, b V) bool { return any(a) == any(b) }
	if p != nil && p.isKept && len(items) == len(p.items) {
		if len(items) == 0 || &items[0] == &p.items[0] || slices.EqualFunc(items, p.items, same) {
			array := p.array(form, name)
			if carrier != nil && carrier.Splice(dst, array, true) {
				return dst, nil
			}
			return append(dst, array...), nil
		}
	}
	dst = append(dst, '[')
	for i, v := range items {
		if i > 0 {
			dst = append(dst, ',')
		}
		if p != nil && i < len(p.items) && same(p.items[i], v) {
			dst = append(dst, p.encoded[i].form(form, name)...)
			continue
		}
		encoded, err := schema.Encode(v)
		if err != nil {
			return nil, err
		}
		dst = append(dst, legacy.ProjectListed(form, name, encoded)...)
	}
	return append(dst, ']'), nil
}

// appendList appends the members of a list result: the items under the given name, and the cursor.
func (p *listPage[V]) appendList(
	dst []byte, name string, items []V, next string, form wire.Revision, carrier wire.Splicer,
) ([]byte, error) {
	dst = append(jsonscan.AppendQuote(dst, name), ':')
	dst, err := p.appendItems(dst, name, items, form, carrier)
	if err != nil {
		return nil, err
	}
	if next != "" {
		dst = jsonscan.AppendQuote(append(dst, `,"nextCursor":`...), next)
	}
	return dst, nil
}

// paginate returns the page of a list that the request asks for, and the cursor of the next page,
// which is empty on the last page. The page contains the features that the caller may see. A cursor
// names the last feature of the page before, so that it stays valid while features come and go. It
// is sealed, so that it reveals no name and cannot be forged. Spec: server/utilities/pagination.
func paginate[V, E any](
	ctx context.Context, s *Server, set *featureSet[V, E], req *Request,
) (*listPage[V], string, error) {
	after, err := openCursor(s.sealer, req, set.kind)
	if err != nil {
		return nil, "", err
	}
	next := func(last string) string {
		return s.sealer.SealText([]byte(last), "cursor", set.kind, req.Principal.Key())
	}
	if s.opts.Visible == nil {
		page, last := set.page(after, s.opts.PageSize)
		if last == "" {
			return page, "", nil
		}
		return page, next(last), nil
	}
	page := &listPage[V]{}
	entries := set.list()
	start := sort.Search(len(entries), func(i int) bool { return entries[i].name > after })
	last := ""
	for _, e := range entries[start:] {
		if !s.Visible(ctx, set.feature(e.value)) {
			continue
		}
		if len(page.items) == s.opts.PageSize {
			return page, next(last), nil
		}
		page.add(e.value, e.encoded)
		last = e.name
	}
	return page, "", nil
}

// openCursor returns the name after which the page begins, which is empty for the first page.
func openCursor(keys *seal.KeyRing, req *Request, kind string) (string, error) {
	raw, ok := jsonscan.GetNonNull(req.Params, "cursor")
	if !ok {
		return "", nil
	}
	invalid := Errorf(CodeInvalidParams, "invalid params.cursor: not a cursor of this list; start again without one")
	cursor, err := unquoteAtMost(raw, maxCursor)
	if err != nil {
		return "", invalid
	}
	after, _, err := keys.OpenText(cursor, "cursor", kind, req.Principal.Key())
	if err != nil {
		return "", invalid
	}
	return string(after), nil
}

func unquoteAtMost(raw json.RawMessage, n int) (string, error) {
	if jsonscan.Kind(raw) != '"' || len(raw) > n+2 {
		return "", Errorf(CodeInvalidParams, "want a string of at most %d bytes", n)
	}
	return jsonscan.Unquote(raw)
}
