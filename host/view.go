package host

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/catalogue"
	"github.com/patchbay-mcp/patchbay/mcp"
)

const methodToolsCall = "tools/call"

// A View is what one caller may use: the tools, prompts and resources of the servers of its profile,
// as one [mcp.Handler]. Tools and prompts have the name "server__name". It serves clients of every
// revision, is an [mcp.Listener], and is safe for concurrent use.
type View struct {
	host   *Host
	caller *Caller
	// principal is the caller as servers tell it from others: those without a principal are one local
	// user.
	principal string
	pools     []*pool // in the order of the file
	changes   *mcp.Broadcaster
	used      time.Time // guarded by the lock of the host

	merged        atomic.Pointer[merged]
	named         namedURIs
	mu            sync.Mutex // guards the fields below
	timer         *time.Timer
	subscriptions int // open
}

// A merged is a catalogue with the lists that it was made of.
type merged struct {
	lists     [][catalogue.Kinds]*catalogue.List
	catalogue *catalogue.Catalogue
	pools     map[string]*pool // by the name of the server
	pages     listPages
}

func newView(h *Host, c *Caller) *View {
	v := &View{host: h, caller: c, principal: "principal " + c.principal()}
	for _, u := range h.upstreams {
		if c.Server != "" && u.name != c.Server || !h.InProfile(c.Profile, u.name) {
			continue
		}
		v.pools = append(v.pools, u.pool(c))
	}
	v.changes = mcp.NewBroadcaster(v.agree)
	return v
}

// single reports whether names and URIs are unchanged.
func (v *View) single() bool { return v.caller.Server != "" }

// ServeMCP serves a request.
func (v *View) ServeMCP(ctx context.Context, req *mcp.Request) (res mcp.Result, err error) {
	ctx = context.WithValue(ctx, callerKey{}, v.caller)
	switch req.Method {
	case "server/discover":
		res, err = v.discover(ctx, req)
	case "subscriptions/listen":
		return v.changes.ServeMCP(ctx, req)
	case methodToolsCall:
		res, err = v.use(ctx, req, catalogue.Tools, "name")
	case "prompts/get":
		res, err = v.use(ctx, req, catalogue.Prompts, "name")
	case "resources/read":
		res, err = v.read(ctx, req)
	case "completion/complete":
		res, err = v.complete(ctx, req)
	case methodTaskGet, methodTaskUpdate, methodTaskCancel, methodTaskResult, methodTaskList:
		res, err = v.task(ctx, req)
	case methodSkillList, methodSkillGet, methodDirectoryRead:
		res, err = v.skills(ctx, req)
	default:
		if kind, ok := catalogue.KindOf(req.Method); ok {
			res, err = v.list(ctx, req, kind)
		} else {
			res, err = v.other(ctx, req)
		}
	}
	if err != nil {
		if continues(req) {
			err = begun(err)
		}
		return v.response(ctx, req.Method, err)
	}
	return res, nil
}

// Listen registers a subscription; see [mcp.Listener].
func (v *View) Listen(ctx context.Context, req *mcp.Request) (stop func(), err error) {
	return v.changes.Listen(context.WithValue(ctx, callerKey{}, v.caller), req)
}

// current returns the merged catalogue, after lists that may have changed were read.
func (v *View) current(ctx context.Context) (*merged, error) { return v.currentWithin(ctx, ctx) }

// currentWithin returns the merged catalogue, and does not wait for lists after wait has ended.
func (v *View) currentWithin(ctx, wait context.Context) (*merged, error) {
	lists := make([][catalogue.Kinds]*catalogue.List, len(v.pools))
	known := true
	for n, p := range v.pools {
		lists[n] = p.known()
		known = known && !slices.Contains(lists[n][:], nil)
	}
	if !known {
		v.readLists(wait, lists)
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	old, m := v.update(lists)
	if old != nil && old != m {
		v.notify(old, m)
	}
	return m, nil
}

// readLists sets the lists that are nil.
func (v *View) readLists(ctx context.Context, lists [][catalogue.Kinds]*catalogue.List) {
	var reading sync.WaitGroup
	for n, p := range v.pools {
		for k := range catalogue.Kinds {
			if lists[n][k] == nil {
				reading.Go(func() { lists[n][k], _ = p.list(ctx, catalogue.Kind(k)) })
			}
		}
	}
	reading.Wait()
}

// update returns the catalogue before and after an update with lists.
func (v *View) update(lists [][catalogue.Kinds]*catalogue.List) (old, now *merged) {
	v.mu.Lock()
	defer v.mu.Unlock()
	old = v.merged.Load()
	if old != nil && equal(old.lists, lists) {
		return old, old
	}
	now = v.merge(lists)
	v.merged.Store(now)
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

// schedule reads the lists again after changeDelay, and notifies subscriptions if they have changed.
func (v *View) schedule() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.timer == nil {
		v.timer = time.AfterFunc(changeDelay, v.refresh)
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

func (k *viewCache) get(h *Host, c *Caller) *View {
	key := c.viewKey(h.sessions)
	v := k.views[key]
	if v == nil {
		if k.views == nil {
			k.views = map[string]*View{}
		}
		if len(k.views) >= maxViews {
			k.evict()
		}
		own := *c
		if !h.sessions { // the view is that of all sessions of the caller
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
		counts[v.caller.principal()]++
	}
	oldest, most := "", 0
	for key, v := range k.views {
		n := counts[v.caller.principal()]
		if n > most || n == most && v.used.Before(k.views[oldest].used) {
			oldest, most = key, n
		}
	}
	delete(k.views, oldest)
}

// UsesBroadcaster returns the view; see [mcp.Broadcaster].
func (v *View) UsesBroadcaster() mcp.Handler { return v }
