package host

import (
	"context"
	"encoding/json"
	"maps"
	"slices"

	"github.com/patchbay-mcp/patchbay/host/internal/call"
	"github.com/patchbay-mcp/patchbay/host/internal/routes"
	"github.com/patchbay-mcp/patchbay/host/internal/task"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/internal/wire"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// extensions returns the extensions that the client of an instance declares for its own requests: it
// lists the tools for pages, and subscribes to tasks. Requests of callers have theirs.
func extensions(own map[string]json.RawMessage) map[string]json.RawMessage {
	all := map[string]json.RawMessage{
		task.Extension:       json.RawMessage("{}"),
		routes.ExtensionApps: json.RawMessage(`{"mimeTypes":["text/html;profile=mcp-app"]}`),
	}
	maps.Copy(all, own)
	return all
}

// other serves a method of another extension.
func (v *View) other(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
	if isOfOlderRevisions(req.Method) {
		return nil, mcp.Errorf(mcp.CodeMethodNotFound, "method not found: %s", req.Method)
	}
	v.table.Connect(ctx) // so that the extensions are known
	p := serverPool(v.table.Extension(req.Method))
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

// noteClass notes the class of a request that needs no instance of its class.
func (v *View) noteClass(req *mcp.Request) {
	for _, s := range v.table.Servers().All {
		serverPool(s).Class(req)
	}
}
