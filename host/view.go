package host

import (
	"context"
	"time"

	"github.com/patchbay-mcp/patchbay/host/internal/authorize"
	"github.com/patchbay-mcp/patchbay/host/internal/call"
	"github.com/patchbay-mcp/patchbay/host/internal/catalogue"
	"github.com/patchbay-mcp/patchbay/host/internal/limits"
	"github.com/patchbay-mcp/patchbay/host/internal/round"
	"github.com/patchbay-mcp/patchbay/host/internal/routes"
	"github.com/patchbay-mcp/patchbay/host/internal/skills"
	"github.com/patchbay-mcp/patchbay/host/internal/task"
	"github.com/patchbay-mcp/patchbay/host/internal/upstream"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/internal/forward"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcp/driver"
)

const methodToolsCall = "tools/call"

// A View is what one caller may use: the tools, prompts and resources of the servers of its profile,
// as one [mcp.Handler]. Tools and prompts have the name "server__name". It serves clients of every
// revision, is a [driver.Listener], and is safe for concurrent use.
type View struct {
	host   *Host
	caller *policy.Caller
	// principal is the caller as servers tell it from others: those without a principal are one local
	// user.
	principal string
	changes   *mcp.Broadcaster
	target    func(*mcp.Request, error) string // observedTarget
	observed  driver.Server[*mcp.Request, mcp.Result, mcp.Observer]
	used      time.Time // guarded by the lock of the host

	table     *routes.Table
	skills    *skills.Reader
	tasks     *task.Caller
	decisions authorize.Cache
}

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
	case call.MethodSkillList, call.MethodSkillGet, call.MethodDirectoryRead:
		return v.skills.Serve(ctx, req)
	}
	if kind, ok := catalogue.KindOf(req.Method); ok {
		v.noteClass(req)
		return v.table.List(ctx, req, kind)
	}
	return v.other(ctx, req)
}

// Listen registers a subscription; see [driver.Listener].
func (v *View) Listen(ctx context.Context, req *mcp.Request) (stop func(), err error) {
	return v.changes.Listen(upstream.WithCaller(ctx, v.caller), req)
}

// maxViews bounds the views that are kept.
const maxViews = 1000

// A viewCache has the views of callers by their keys. The lock of the host guards it.
type viewCache struct {
	views map[string]*View
}

func (k *viewCache) get(h *Host, c *policy.Caller) *View {
	sessions := h.servers.Current().HasSessions()
	key := viewKey(c, sessions)
	v := k.views[key]
	if v == nil {
		if k.views == nil {
			k.views = map[string]*View{}
		}
		if len(k.views) >= maxViews {
			k.evict()
		}
		own := *c
		if !sessions { // the view is that of all sessions of the caller
			own.Session = ""
		}
		v = newView(h, &own)
		k.views[key] = v
	}
	v.used = time.Now()
	return v
}

// evict removes a view of the principal with the most views, so that no caller can remove those of
// others: the one that was not used for the longest time. Its subscriptions continue.
func (k *viewCache) evict() {
	counts := map[string]int{}
	for _, v := range k.views {
		counts[v.caller.Key()]++
	}
	oldest, most := "", 0
	for key, v := range k.views {
		n := counts[v.caller.Key()]
		if n > most || n == most && v.used.Before(k.views[oldest].used) {
			oldest, most = key, n
		}
	}
	delete(k.views, oldest)
}

// UsesBroadcaster returns the view; see [mcp.Broadcaster].
func (v *View) UsesBroadcaster() mcp.Handler { return v }
