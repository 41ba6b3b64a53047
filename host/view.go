package host

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/patchbay-mcp/patchbay/host/internal/authorize"
	"github.com/patchbay-mcp/patchbay/host/internal/call"
	"github.com/patchbay-mcp/patchbay/host/internal/catalogue"
	"github.com/patchbay-mcp/patchbay/host/internal/limits"
	"github.com/patchbay-mcp/patchbay/host/internal/listing"
	"github.com/patchbay-mcp/patchbay/host/internal/round"
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

	tasks         *task.Caller
	decisions     authorize.Cache
	resolved      atomic.Pointer[viewServers] // see servers
	merged        atomic.Pointer[merged]      // see latest
	named         namedURIs
	mu            sync.Mutex // guards the fields below
	timer         *time.Timer
	subscriptions int     // open
	announced     *merged // the last one that subscriptions know
}

// A merged is a catalogue with the lists that it was made of.
type merged struct {
	servers   *viewServers
	lists     [][catalogue.Kinds]*catalogue.List
	catalogue *catalogue.Catalogue
	pools     map[string]*upstream.Pool // by the name of the server
	pages     listPages
	epoch     uint64 // of the policy
}

func newView(h *Host, c *policy.Caller) *View {
	v := &View{host: h, caller: c, principal: limits.LocalPrincipal + c.Key()}
	v.resolved.Store(v.resolve(h.servers.Current()))
	v.tasks = v.newTasks()
	v.changes, v.target = mcp.NewBroadcaster(v.agree), v.observedTarget
	v.observed = mcp.Driver((*unobservedView)(v))
	return v
}

// single reports whether names and URIs are unchanged.
func (v *View) single() bool { return v.servers().single }

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
	if v.servers().forwards {
		v.noteForwarded(ctx, req)
	}
	if v.asksLogin() {
		res, req, err = v.serveWithLogin(ctx, req)
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
		return v.skills(ctx, req)
	}
	if kind, ok := catalogue.KindOf(req.Method); ok {
		return v.list(ctx, req, kind)
	}
	return v.other(ctx, req)
}

// Listen registers a subscription; see [driver.Listener].
func (v *View) Listen(ctx context.Context, req *mcp.Request) (stop func(), err error) {
	return v.changes.Listen(upstream.WithCaller(ctx, v.caller), req)
}

// current returns the merged catalogue, after lists that may have changed were read.
func (v *View) current(ctx context.Context) (*merged, error) { return v.currentWithin(ctx, ctx, 0) }

// currentWithin returns the merged catalogue. It waits for lists until wait is done. starting
// limits how long it waits for servers that are starting for the first time.
func (v *View) currentWithin(ctx, wait context.Context, starting time.Duration) (*merged, error) {
	s := v.servers()
	lists := make([][catalogue.Kinds]*catalogue.List, len(s.pools))
	known := true
	for n, p := range s.pools {
		p.Restore(ctx)
		lists[n] = p.Lists().Fresh()
		known = known && !slices.Contains(lists[n][:], nil)
	}
	if !known {
		s.readLists(wait, lists, starting)
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	old, m := v.update(s, lists)
	if old != nil && old != m {
		v.notify(old, m)
	}
	return m, nil
}

// readLists sets the lists that are nil.
func (s *viewServers) readLists(
	ctx context.Context, lists [][catalogue.Kinds]*catalogue.List, starting time.Duration,
) {
	var reading sync.WaitGroup
	for n, p := range s.pools {
		for k := range catalogue.Kinds {
			if lists[n][k] == nil {
				reading.Go(func() { lists[n][k], _ = p.Lists().List(ctx, catalogue.Kind(k), starting) })
			}
		}
	}
	reading.Wait()
}

// update returns the catalogue that subscriptions know, and the one with lists, which they will know.
func (v *View) update(s *viewServers, lists [][catalogue.Kinds]*catalogue.List) (old, now *merged) {
	v.mu.Lock()
	defer v.mu.Unlock()
	now = v.merged.Load()
	if now == nil || now.servers != s || now.epoch != v.host.authorize.Epoch() || !equal(now.lists, lists) {
		now = v.merge(s, lists)
		if s == v.resolved.Load() { // else a reload was faster
			v.merged.Store(now)
		}
	}
	if s != v.resolved.Load() {
		return now, now
	}
	old, v.announced = v.announced, now
	return old, now
}

func equal(a, b [][catalogue.Kinds]*catalogue.List) bool {
	for n := range a {
		if a[n] != b[n] {
			return false
		}
	}
	return len(a) == len(b)
}

// schedule reads the lists again after listing.ChangeDelay, and notifies subscriptions if they have changed.
func (v *View) schedule() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.timer == nil {
		v.timer = time.AfterFunc(listing.ChangeDelay, v.refresh)
	}
}

func (v *View) refresh() {
	v.mu.Lock()
	v.timer = nil
	v.mu.Unlock()
	_, _ = v.current(v.host.ctx)
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

// forget makes the view merge its catalogue again: with the next request, or soon if the view has
// subscriptions.
func (v *View) forget() {
	v.mu.Lock()
	subscribed := v.subscriptions > 0
	if !subscribed {
		v.merged.Store(nil)
		v.announced = nil
	}
	v.mu.Unlock()
	if subscribed {
		v.schedule()
	}
}
