package host

import (
	"context"

	"github.com/patchbay-mcp/patchbay/host/internal/call"
	"github.com/patchbay-mcp/patchbay/host/internal/catalogue"
	"github.com/patchbay-mcp/patchbay/host/internal/limits"
	"github.com/patchbay-mcp/patchbay/host/internal/round"
	"github.com/patchbay-mcp/patchbay/host/internal/skills"
	"github.com/patchbay-mcp/patchbay/host/internal/task"
	"github.com/patchbay-mcp/patchbay/host/internal/upstream"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/internal/forward"
	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/internal/wire"
	"github.com/patchbay-mcp/patchbay/mcp"
)

func newView(h *Host, c *policy.Caller) *View {
	v := &View{host: h, caller: c, principal: limits.LocalPrincipal + c.Key()}
	v.table = v.newTable()
	v.skills = &skills.Reader{Table: v.table, Send: v.sendTo, Other: v.other, Logger: h.opts.Logger}
	v.tasks = v.newTasks()
	v.changes, v.target = mcp.NewBroadcaster(v.agree), v.observedTarget
	v.observed = mcp.Driver((*unobservedView)(v))
	return v
}

// ServeMCP serves a request.
func (v *View) ServeMCP(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
	if v.host.opts.Observer != nil {
		return v.observed.Observe(ctx, req, v.target)
	}
	return v.serveUnobserved(ctx, req)
}

func (v *View) serveUnobserved(ctx context.Context, req *mcp.Request) (res mcp.Result, err error) {
	ctx = upstream.WithCaller(ctx, v.caller)
	if params, invalid := forward.Params(req.Method, req.Params); invalid != nil {
		return nil, invalid
	} else if params != nil {
		inner := *req
		inner.Params, req = params, &inner
	}
	if err := v.checkMethod(req); err != nil {
		return nil, err
	}
	if req.Method == "subscriptions/listen" {
		return v.changes.ServeMCP(ctx, req)
	}
	if v.table.Servers().Forwards {
		v.noteForwarded(ctx, req)
	}
	if v.table.Servers().Logins {
		res, req, err = v.host.prompt.Serve(ctx, req, v.requester(), v.serveMethod)
	} else {
		res, err = v.serveMethod(ctx, req)
	}
	if err != nil {
		v.host.countError(ctx, err)
		if round.Continues(req) {
			err = begun(err)
		}
		return v.response(ctx, req.Method, err)
	}
	return res, nil
}

func (v *View) serveMethod(ctx context.Context, req *mcp.Request) (res mcp.Result, err error) {
	switch req.Method {
	case "server/discover":
		return v.discover(ctx, req)
	case methodToolsCall:
		return v.use(ctx, req, catalogue.Tools, "name")
	case "prompts/get":
		return v.use(ctx, req, catalogue.Prompts, "name")
	case "resources/read":
		return v.read(ctx, req)
	case "completion/complete":
		return v.complete(ctx, req)
	case task.MethodGet, task.MethodUpdate, task.MethodCancel, task.MethodResult, task.MethodList:
		return v.task(ctx, req)
	case call.MethodEventsPoll, wire.MethodEventsStream, wire.MethodEventsSubscribe, wire.MethodEventsUnsubscribe:
		return v.events(ctx, req)
	case call.MethodSkillList, call.MethodSkillGet, call.MethodDirectoryRead:
		return v.skills.Serve(ctx, req)
	}
	if kind, ok := catalogue.KindOf(req.Method); ok {
		if kind == catalogue.Events {
			if err := v.offersEvents(ctx, req); err != nil {
				return nil, err
			}
		}
		v.noteClass(req)
		return v.table.List(ctx, req, kind)
	}
	return v.other(ctx, req)
}

// Listen registers a subscription; see [driver.Listener].
func (v *View) Listen(ctx context.Context, req *mcp.Request) (stop func(), err error) {
	return v.changes.Listen(upstream.WithCaller(ctx, v.caller), req)
}

// UsesBroadcaster returns the view; see [mcp.Broadcaster].
func (v *View) UsesBroadcaster() mcp.Handler { return v }

// An unobservedView serves requests without the observer of the host.
type unobservedView View

func (v *unobservedView) ServeMCP(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
	return (*View)(v).serveUnobserved(ctx, req)
}

// Observer returns the observer of [Options].
func (v *unobservedView) Observer() mcp.Observer { return v.host.opts.Observer }

// observedTarget returns the public name of the tool or prompt that a request uses, or "" for a
// name that the view does not contain. It must not read lists: the request itself read the lists
// that it needs.
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
