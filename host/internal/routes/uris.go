package routes

import (
	"bytes"
	"context"
	"slices"
	"strings"

	"github.com/patchbay-mcp/patchbay/host/internal/catalogue"
	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/mcp"
)

const (
	// maxNamed and maxNamedBytes limit the URIs of results that are kept of each server, so that a server
	// cannot remove the URIs of another server: there may be a thousand callers.
	maxNamed      = 10_000
	maxNamedBytes = 512 << 10
	// MaxURI limits a URI that is kept, in bytes.
	MaxURI = 2048
)

// URIs leads from the URIs that a caller knows to servers. It holds the URIs that servers have named in
// results, because a server may return links to resources that it does not list. It is safe for
// concurrent use.
type URIs struct {
	table *Table
	// The lock of the table guards the fields below.
	servers map[string]Server
	rings   map[Server]*uriRing
}

// A uriRing contains the URIs that a server named, the oldest first.
type uriRing struct {
	uris  []string
	bytes int
}

// Add records that a server named a URI. The first server that names a URI keeps it, so that no other
// server can get its requests. A URI that is too long is not recorded.
func (n *URIs) Add(uri string, s Server) {
	if uri == "" || len(uri) > MaxURI {
		return
	}
	n.table.mu.Lock()
	defer n.table.mu.Unlock()
	if n.servers == nil {
		n.servers, n.rings = map[string]Server{}, map[Server]*uriRing{}
	}
	if n.servers[uri] != nil {
		return
	}
	r := n.rings[s]
	if r == nil {
		r = &uriRing{}
		n.rings[s] = r
	}
	uri = strings.Clone(uri) // without the result
	n.servers[uri] = s
	r.uris = append(r.uris, uri)
	r.bytes += len(uri)
	for len(r.uris) > maxNamed || r.bytes > maxNamedBytes {
		r.bytes -= len(r.uris[0])
		delete(n.servers, r.uris[0])
		r.uris[0] = ""
		r.uris = r.uris[1:]
	}
}

// Get returns the server that named a URI, nil for an unknown URI.
func (n *URIs) Get(uri string) Server {
	n.table.mu.Lock()
	defer n.table.mu.Unlock()
	return n.servers[uri]
}

// keepLocked removes the URIs of all servers but these.
func (n *URIs) keepLocked(servers []Server) {
	for s, r := range n.rings {
		if slices.Contains(servers, s) {
			continue
		}
		for _, uri := range r.uris {
			delete(n.servers, uri)
		}
		delete(n.rings, s)
	}
}

// AddResult records the URIs of links and embedded resources in a result.
func (n *URIs) AddResult(s Server, raw []byte) {
	if len(n.table.Servers().All) == 1 || !bytes.Contains(raw, []byte(`"resource`)) {
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
			if text, err := jsonscan.Unquote(uri); err == nil {
				n.Add(text, s)
			}
		}
	}
}

// Public returns the URI by which the caller knows a URI of a server.
func (n *URIs) Public(server, uri string) string {
	if m := n.table.Latest(); m != nil {
		return m.Catalogue.PublicURI(server, uri)
	}
	return uri
}

// A Route leads to a resource: a server, and the URI by which the server knows the resource. The zero value
// leads nowhere.
type Route struct {
	Server Server
	URI    string
}

// Route returns the route of a resource: by its URI in a list, by the most specific template, or to the
// server that has named it in a result.
func (n *URIs) Route(ctx context.Context, uri string) (Route, error) {
	if all := n.table.Servers().All; len(all) == 1 {
		return Route{all[0], uri}, nil
	}
	if r, ok := n.known(uri, n.table.Latest()); ok {
		return r, nil
	}
	m, err := n.table.Current(ctx)
	if err != nil {
		return Route{}, err
	}
	if r, ok := n.known(uri, m); ok {
		return r, nil
	}
	return Route{}, mcp.NotFound(uri)
}

func (n *URIs) known(uri string, m *Snapshot) (Route, bool) {
	if m == nil {
		return Route{}, false
	}
	if r, ok := m.Catalogue.Route(uri); ok {
		return Route{m.Server(r.Server), r.URI}, true
	}
	s := n.Get(uri)
	if s == nil || m.Server(s.Name()) != s || m.Catalogue.Find(catalogue.Resources, uri) != nil {
		return Route{}, false
	}
	return Route{s, uri}, true
}

// URIOf returns the URI that a request names.
func URIOf(req *mcp.Request) (string, error) {
	raw, _ := req.Param("uri")
	uri, err := jsonscan.Unquote(raw)
	if err != nil {
		return "", mcp.Errorf(mcp.CodeInvalidParams, "invalid params.uri: must be a string")
	}
	return uri, nil
}

// Watched returns the routes of the resources of a subscription. For all of them, lists are read again
// at most once.
func (n *URIs) Watched(ctx context.Context, uris []string) (routes map[string]Route) {
	routes = map[string]Route{}
	read := false
	for _, uri := range uris {
		r, ok := n.known(uri, n.table.Latest())
		if only := n.table.Servers().All; len(only) == 1 && !read {
			r, ok = Route{only[0], uri}, true
		}
		if !ok && !read {
			read = true
			r, _ = n.Route(ctx, uri)
		}
		if r.Server != nil {
			routes[uri] = r
		}
	}
	return routes
}
