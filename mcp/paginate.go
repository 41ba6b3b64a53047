package mcp

import (
	"encoding/json"
	"sort"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
)

// maxCursor bounds the cursor that a client sends back. Ours hold a name, the longest of which is a URI, and sealing it
// makes it longer by a third.
const maxCursor = maxURI + maxURI/2

// A page is one answer's share of a list.
type page[V any] struct {
	items []*V
	known *encodedPage[V] // the JSON of the items; nil where it is not known
	next  string          // cursor of the next page, empty at the end
}

// paginate returns the page of a list that params ask for, of the features that the caller may see. A cursor names the
// last feature of the page before it, so it stays right while features come and go, and it is sealed, so that it
// says nothing and cannot be made up.
//
// Spec: server/utilities/pagination.
func paginate[V, E any](s *Server, set *featureSet[V, E], req *Request,
	visible func(*V) bool) (page[V], error) {
	p := page[V]{items: []*V{}}
	after, err := s.openCursor(req, set.kind)
	if err != nil {
		return p, err
	}
	next := func(last string) string {
		return s.sealer.seal([]byte(last), "cursor", set.kind, req.Principal.Key())
	}
	if after == "" && visible == nil {
		known, last, more, err := set.firstPage(s.opts.PageSize)
		if err != nil {
			return p, err
		}
		p.known, p.items = known, append(p.items, known.items...) // the caller may change its list
		if more {
			p.next = next(last)
		}
		return p, nil
	}
	entries := set.list()
	start := sort.Search(len(entries), func(i int) bool { return entries[i].name > after })
	last := ""
	for _, e := range entries[start:] {
		if visible != nil && !visible(e.value) {
			continue
		}
		if len(p.items) == s.opts.PageSize {
			p.next = next(last)
			break
		}
		p.items = append(p.items, e.value)
		last = e.name
	}
	return p, nil
}

// openCursor returns the name after which the page begins: the empty string for the first page.
func (s *Server) openCursor(req *Request, kind string) (string, error) {
	raw, ok := jsonscan.Get(req.Params, "cursor")
	if !ok {
		return "", nil
	}
	invalid := Errorf(CodeInvalidParams, "params.cursor is not a cursor of this list; start again without one")
	cursor, err := unquoteAtMost(raw, maxCursor)
	if err != nil {
		return "", invalid
	}
	after, err := s.sealer.open(cursor, "cursor", kind, req.Principal.Key())
	if err != nil {
		return "", invalid
	}
	return string(after), nil
}

// unquoteAtMost reads a JSON string of at most n bytes.
func unquoteAtMost(raw json.RawMessage, n int) (string, error) {
	if jsonscan.Kind(raw) != '"' || len(raw) > n+2 {
		return "", Errorf(CodeInvalidParams, "want a string of at most %d bytes", n)
	}
	return jsonscan.Unquote(raw)
}

// listCache returns the caching hints of a list: what depends on the caller is never public.
func (s *Server) listCache() Cache {
	c := s.opts.Cache.orPrivate()
	if s.opts.Visible != nil {
		c.Scope = CachePrivate
	}
	return c
}
