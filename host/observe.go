package host

import (
	"context"

	"github.com/patchbay-mcp/patchbay/host/internal/catalogue"
	"github.com/patchbay-mcp/patchbay/host/internal/upstream"
	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/internal/wire"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// Observer returns the observer of [Options]. Transports find it by this method, for sessions and
// refused requests.
func (v *View) Observer() mcp.Observer { return v.host.opts.Observer }

// An unobservedView serves requests without the observer of the host.
type unobservedView View

func (v *unobservedView) ServeMCP(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
	return (*View)(v).serveUnobserved(ctx, req)
}

// Observer returns the observer of [Options].
func (v *unobservedView) Observer() mcp.Observer { return v.host.opts.Observer }

// observedTarget returns the public name of the tool or prompt that a request uses, or "" for one that
// the view does not have. It reads no lists: the request has read those that it needs.
func (v *View) observedTarget(req *mcp.Request, _ error) string {
	kind := catalogue.Tools
	switch req.Method {
	case wire.MethodToolsCall:
	case wire.MethodPromptsGet:
		kind = catalogue.Prompts
	default:
		return ""
	}
	raw, _ := req.Param("name")
	name, err := jsonscan.Unquote(raw)
	m := v.table.Last()
	if err != nil || m == nil {
		return ""
	}
	if item := m.Catalogue.Find(kind, name); item != nil {
		return item.Public
	}
	if kind == catalogue.Tools {
		return v.table.Tool(m, name)
	}
	return ""
}

// ServerFrom returns the name of the server of a request, in the contexts that [Options].Observer gets of
// requests to servers, of their questions and their sessions. It is empty for requests of callers.
func ServerFrom(ctx context.Context) string {
	return upstream.ServerFrom(ctx)
}
