package host

import (
	"context"
	"encoding/json"
	"maps"
	"slices"

	"github.com/patchbay-mcp/patchbay/host/config"
	"github.com/patchbay-mcp/patchbay/host/internal/call"
	"github.com/patchbay-mcp/patchbay/host/internal/task"
	"github.com/patchbay-mcp/patchbay/host/internal/upstream"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/internal/wire"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// extensionApps is the extension of pages for tools; see package ext/apps.
const extensionApps = "io.modelcontextprotocol/ui"

// mergesExtension reports whether several servers of a view may have an extension: the host routes
// its requests. Of other extensions, nothing relates a request to one of the servers.
func mergesExtension(id string, _ []string) bool {
	return id == task.Extension || id == extensionApps || id == extensionSkills
}

// extensions returns the extensions that the client of an instance declares for its own requests: it
// lists the tools for pages, and subscribes to tasks. Requests of callers have theirs.
func extensions(own map[string]json.RawMessage) map[string]json.RawMessage {
	all := map[string]json.RawMessage{
		task.Extension: json.RawMessage("{}"),
		extensionApps:  json.RawMessage(`{"mimeTypes":["text/html;profile=mcp-app"]}`),
	}
	maps.Copy(all, own)
	return all
}

// other serves a method of another extension.
func (v *View) other(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
	if isOfOlderRevisions(req.Method) {
		return nil, mcp.Errorf(mcp.CodeMethodNotFound, "method not found: %s", req.Method)
	}
	v.connect(ctx) // so that the extensions are known
	p := v.extensionPool(req.Method)
	if p == nil {
		return nil, mcp.Errorf(mcp.CodeMethodNotFound, "method not found: %s", req.Method)
	}
	return v.send(ctx, req, &call.Call{Kind: policy.ActionOther, Pool: p})
}

// isOfOlderRevisions reports whether only sessions of older revisions define a method, such as
// logging/setLevel and resources/unsubscribe. Such a method changes the notifications of its
// session, and other callers may share the session with the server. The transports of the host
// serve these methods for the sessions of callers.
func isOfOlderRevisions(method string) bool {
	return slices.ContainsFunc(wire.Revisions(), func(r wire.Revision) bool {
		_, exact := r.Method(method)
		return exact
	})
}

// extensionPool returns the pool of the only server that may have a method or a topic of another
// extension: the only one of the view, the first that the configuration maps it to, or else the only
// one with other extensions; nil if there is none.
func (v *View) extensionPool(name string) *upstream.Pool {
	pools := v.pools()
	if len(pools) == 1 {
		return pools[0]
	}
	var mapped, declared []*upstream.Pool
	for _, p := range pools {
		if config.Match(p.Settings().Methods, name) {
			mapped = append(mapped, p)
		}
		if hasOtherExtensions(p) {
			declared = append(declared, p)
		}
	}
	switch {
	case len(mapped) > 0:
		return mapped[0] // the first in the order of the file
	case len(declared) == 1:
		return declared[0]
	}
	return nil
}

// hasOtherExtensions reports whether a server has declared extensions that the host does not know.
func hasOtherExtensions(p *upstream.Pool) bool {
	capabilities := p.Lists().About().Capabilities
	if !jsonscan.HasObject(capabilities, "extensions") {
		return false
	}
	extensions, _ := jsonscan.Get(capabilities, "extensions")
	for id := range jsonscan.Members(extensions) {
		if !mergesExtension(string(id), nil) {
			return true
		}
	}
	return false
}

// noteClass notes the class of a request that needs no instance of its class.
func (v *View) noteClass(req *mcp.Request) {
	for _, p := range v.pools() {
		p.Class(req)
	}
}
