package host

import (
	"bytes"
	"context"
	"sync"

	"github.com/patchbay-mcp/patchbay/internal/catalogue"
	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// maxNamed bounds the URIs of results that a view keeps.
const maxNamed = 10_000

// A namedURIs has the servers that have named URIs in results to one caller: a server may return
// links to resources that it does not list. It is safe for concurrent use.
type namedURIs struct {
	mu      sync.Mutex // guards the fields below
	servers map[string]*pool
	order   []string // the URIs, in a ring that next points into
	next    int
}

func (n *namedURIs) add(uri string, p *pool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.servers == nil {
		n.servers = map[string]*pool{}
	}
	if _, ok := n.servers[uri]; !ok {
		if len(n.order) < maxNamed {
			n.order = append(n.order, uri)
		} else {
			delete(n.servers, n.order[n.next])
			n.order[n.next] = uri
			n.next = (n.next + 1) % maxNamed
		}
	}
	n.servers[uri] = p
}

func (n *namedURIs) get(uri string) *pool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.servers[uri]
}

// note keeps the URIs of links and embedded resources in a result.
func (v *View) note(p *pool, raw []byte) {
	if len(v.pools) == 1 || !bytes.Contains(raw, []byte(`"resource`)) {
		return
	}
	for _, list := range []string{"content", "messages"} {
		blocks, _ := jsonscan.Get(raw, list)
		if jsonscan.Kind(blocks) != '[' {
			continue
		}
		for block := range jsonscan.Elements(blocks) {
			if content, ok := jsonscan.Get(block, "content"); ok && list == "messages" {
				block = content
			}
			if inner, ok := jsonscan.Get(block, "resource"); ok {
				block = inner
			}
			uri, _ := jsonscan.Get(block, "uri")
			if text, err := jsonscan.Unquote(uri); err == nil && text != "" && len(text) <= maxNamedURI {
				v.named.add(text, p)
			}
		}
	}
}

// maxNamedURI bounds a URI that is kept, in bytes.
const maxNamedURI = 2048

// routeURI returns the route of a resource: by its URI, the most specific template, or the server
// that has named it in a result.
func (v *View) routeURI(ctx context.Context, uri string) (*route, error) {
	if len(v.pools) == 1 {
		return &route{kind: ActionRead, pool: v.pools[0], target: uri}, nil
	}
	m := v.merged.Load()
	if r := v.knownURI(m, uri); r != nil {
		return r, nil
	}
	m, err := v.current(ctx)
	if err != nil {
		return nil, err
	}
	if r := v.knownURI(m, uri); r != nil {
		return r, nil
	}
	return nil, mcp.NotFound(uri)
}

func (v *View) knownURI(m *merged, uri string) *route {
	if m == nil {
		return nil
	}
	if r, ok := m.catalogue.Route(uri); ok {
		return &route{kind: ActionRead, pool: m.pools[r.Server], target: r.URI}
	}
	if p := v.named.get(uri); p != nil && m.catalogue.Find(catalogue.Resources, uri) == nil {
		return &route{kind: ActionRead, pool: p, target: uri}
	}
	return nil
}
