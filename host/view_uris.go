package host

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"sync"

	"github.com/patchbay-mcp/patchbay/host/internal/call"
	"github.com/patchbay-mcp/patchbay/host/internal/catalogue"
	"github.com/patchbay-mcp/patchbay/host/internal/upstream"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/mcp"
)

const (
	// maxNamed and maxNamedBytes bound the URIs of results that a view keeps of one server, so that it
	// cannot remove those of another one: there may be a thousand views.
	maxNamed      = 10_000
	maxNamedBytes = 512 << 10
	// maxNamedURI bounds a URI that is kept, in bytes.
	maxNamedURI = 2048
)

// A namedURIs has the servers that have named URIs in results to one caller: a server may return
// links to resources that it does not list. It is safe for concurrent use.
type namedURIs struct {
	mu      sync.Mutex // guards the fields below
	servers map[string]*upstream.Pool
	rings   map[*upstream.Pool]*uriRing
}

// A uriRing has the URIs that one server has named, the oldest first.
type uriRing struct {
	uris  []string
	bytes int
}

// add records that a server has named a URI. The first one keeps it, so that no other server can get
// its requests.
func (n *namedURIs) add(uri string, p *upstream.Pool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.servers == nil {
		n.servers, n.rings = map[string]*upstream.Pool{}, map[*upstream.Pool]*uriRing{}
	}
	if n.servers[uri] != nil {
		return
	}
	r := n.rings[p]
	if r == nil {
		r = &uriRing{}
		n.rings[p] = r
	}
	uri = strings.Clone(uri) // without the result
	n.servers[uri] = p
	r.uris = append(r.uris, uri)
	r.bytes += len(uri)
	for len(r.uris) > maxNamed || r.bytes > maxNamedBytes {
		r.bytes -= len(r.uris[0])
		delete(n.servers, r.uris[0])
		r.uris[0] = ""
		r.uris = r.uris[1:]
	}
}

func (n *namedURIs) get(uri string) *upstream.Pool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.servers[uri]
}

// keep removes the URIs of servers other than those of the pools.
func (n *namedURIs) keep(pools []*upstream.Pool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for p, r := range n.rings {
		if slices.Contains(pools, p) {
			continue
		}
		for _, uri := range r.uris {
			delete(n.servers, uri)
		}
		delete(n.rings, p)
	}
}

// note keeps the URIs of links and embedded resources in a result.
func (v *View) note(p *upstream.Pool, raw []byte) {
	if len(v.pools()) == 1 || !bytes.Contains(raw, []byte(`"resource`)) {
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

// routeURI returns the route of a resource: by its URI, the most specific template, or the server
// that has named it in a result.
func (v *View) routeURI(ctx context.Context, uri string) (*call.Call, error) {
	if pools := v.pools(); len(pools) == 1 {
		return &call.Call{Kind: policy.ActionRead, Pool: pools[0], Target: uri}, nil
	}
	m := v.latest()
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

func (v *View) knownURI(m *merged, uri string) *call.Call {
	if m == nil {
		return nil
	}
	if r, ok := m.catalogue.Route(uri); ok {
		return &call.Call{Kind: policy.ActionRead, Pool: m.pools[r.Server], Target: r.URI}
	}
	if p := v.named.get(uri); p != nil && m.pools[p.Name()] == p && m.catalogue.Find(catalogue.Resources, uri) == nil {
		return &call.Call{Kind: policy.ActionRead, Pool: p, Target: uri}
	}
	return nil
}
