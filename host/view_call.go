package host

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/patchbay-mcp/patchbay/host/internal/call"
	"github.com/patchbay-mcp/patchbay/host/internal/catalogue"
	"github.com/patchbay-mcp/patchbay/host/internal/connection"
	"github.com/patchbay-mcp/patchbay/host/internal/listing"
	"github.com/patchbay-mcp/patchbay/host/internal/result"
	"github.com/patchbay-mcp/patchbay/host/internal/round"
	"github.com/patchbay-mcp/patchbay/host/internal/task"
	"github.com/patchbay-mcp/patchbay/host/internal/upstream"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// use serves a request that names a tool or a prompt.
func (v *View) use(ctx context.Context, req *mcp.Request, kind catalogue.Kind, param string) (mcp.Result, error) {
	raw, _ := req.Param(param)
	name, err := jsonscan.Unquote(raw)
	if err != nil {
		return nil, mcp.Errorf(mcp.CodeInvalidParams, "invalid params.%s: must be a string", param)
	}
	if kind == catalogue.Tools && slices.Contains(searchNames, name) {
		if res, ok, err := v.useSearch(ctx, req, name); ok {
			return res, err
		}
	}
	if kind == catalogue.Tools && slices.Contains(loginTools, name) {
		if res, ok, err := v.useLogin(ctx, req, name); ok {
			return res, err
		}
	}
	item, p, err := v.find(ctx, kind, name)
	if q, ok := errors.AsType[quarantinedError](err); ok {
		return v.send(ctx, req, &call.Call{Kind: actionOf(kind), Pool: q.pool, Target: q.item.Original, Item: &q.item,
			Quarantined: q.error})
	}
	if err != nil {
		return nil, v.refused(req, actionOf(kind), name, err)
	}
	if item == nil && kind == catalogue.Tools {
		item, p = v.appTool(name)
	}
	if item == nil {
		if r := v.suspendedRoute(req, kind); r != nil {
			return v.send(ctx, req, r)
		}
		return nil, v.refused(req, actionOf(kind), name, kind.Unknown(name))
	}
	return v.send(ctx, req, &call.Call{Kind: actionOf(kind), Pool: p, Target: item.Original, Item: item})
}

func actionOf(kind catalogue.Kind) policy.ActionKind {
	if kind == catalogue.Prompts {
		return policy.ActionGet
	}
	return policy.ActionCall
}

// find returns the item with a public name and the pool of its server. Lists are read again only if
// the name is unknown.
func (v *View) find(ctx context.Context, kind catalogue.Kind, name string) (*catalogue.Item, *upstream.Pool, error) {
	m := v.latest()
	if m != nil {
		if item := m.catalogue.Find(kind, name); item != nil {
			return item, m.pools[item.Server], nil
		}
	}
	deadline := time.Now().Add(listing.Wait)
	for waited := false; ; waited = true {
		m, err := v.current(ctx)
		if err != nil {
			return nil, nil, err
		}
		if item := m.catalogue.Find(kind, name); item != nil {
			return item, m.pools[item.Server], nil
		}
		if err := v.quarantined(ctx, m, kind, name); err != nil {
			return nil, nil, err
		}
		if !waited && v.awaitFirst(ctx, kind, name, deadline) {
			continue
		}
		if err := v.unread(kind, name); err != nil || !v.hasRead(m, kind) {
			return nil, nil, err
		}
	}
}

// hasRead reports whether a list that a catalogue lacks was read since: while a request waited for the
// list of another server.
func (v *View) hasRead(m *merged, kind catalogue.Kind) bool {
	for n, p := range m.servers.pools {
		if m.lists[n][kind] == nil && p.Lists().Has(kind) {
			return true
		}
	}
	return false
}

// awaitFirst waits until the servers that an unknown name may be of have been listed for the first time:
// a call waits for a server that is starting, also if lists no longer wait for it. It reports whether a
// list may have been read.
func (v *View) awaitFirst(ctx context.Context, kind catalogue.Kind, name string, deadline time.Time) (read bool) {
	for _, p := range v.pools() {
		done := p.Lists().FirstReading(kind)
		if done == nil || !v.mayHave(p, name) {
			continue
		}
		timer := time.NewTimer(time.Until(deadline))
		select {
		case <-done:
			read = true
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
	}
	return read
}

// mayHave reports whether an unknown name is probably one of a server: the only one, or the one whose
// prefix it has.
func (v *View) mayHave(p *upstream.Pool, name string) bool {
	return len(v.pools()) == 1 || strings.HasPrefix(name, p.Entry().ID+"__")
}

// unread returns why the list of the server has never been read that an unknown name is probably one of.
// The request has not run.
func (v *View) unread(kind catalogue.Kind, name string) error {
	for _, p := range v.pools() {
		if !v.mayHave(p, name) {
			continue
		}
		if err := p.Lists().Err(kind); err != nil {
			return connection.NotRun(err)
		}
	}
	return nil
}

func (v *View) read(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
	uri, err := uriOf(req)
	if err != nil {
		return nil, err
	}
	if strings.HasPrefix(uri, result.Prefix) {
		return v.readKept(ctx, req, uri)
	}
	r, err := v.routeURI(ctx, uri)
	if err != nil {
		return nil, v.refused(req, policy.ActionRead, uri, err)
	}
	return v.send(ctx, req, r)
}

// complete serves completion/complete, whose reference names a prompt, a template or a resource.
func (v *View) complete(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
	ref, _ := req.Param("ref")
	if err := checkReference(ref); err != nil {
		return nil, err
	}
	for _, load := range []func(context.Context) (*merged, error){v.known, v.current} {
		m, err := load(ctx)
		if err != nil {
			return nil, err
		}
		if m == nil {
			continue
		}
		if server, own, ok := m.catalogue.Reference(ref); ok {
			return v.send(ctx, req, &call.Call{Kind: policy.ActionComplete, Pool: m.pools[server], Target: referenceName(own)})
		}
	}
	return nil, errUnknownReference
}

var errUnknownReference = mcp.Errorf(mcp.CodeInvalidParams, "invalid params.ref: unknown prompt or resource template")

func (v *View) known(context.Context) (*merged, error) { return v.latest(), nil }

// Members that identify the subject of a completion reference.
const refName, refURI = "name", "uri"

// checkReference refuses a completion reference that contains both a name and a URI, or the member
// that its type does not define. Otherwise the policy could decide about one item, and the server
// use another.
func checkReference(ref []byte) error {
	kind, _ := jsonscan.Get(ref, "type")
	other := refURI
	if text, err := jsonscan.Unquote(kind); err == nil && text == "ref/resource" {
		other = refName
	}
	if _, ok := jsonscan.Get(ref, other); ok {
		return mcp.Errorf(mcp.CodeInvalidParams, "invalid params.ref: must not contain %s with type %.64s",
			other, kind)
	}
	return nil
}

// referenceName returns the name or, if there is none, the URI of a completion reference.
func referenceName(ref []byte) string {
	raw, ok := jsonscan.Get(ref, refName)
	if !ok {
		raw, _ = jsonscan.Get(ref, refURI)
	}
	name, _ := jsonscan.Unquote(raw)
	return name
}

// send sends a request through the pipeline, and returns what the caller receives.
func (v *View) send(ctx context.Context, req *mcp.Request, c *call.Call) (mcp.Result, error) {
	c.View, c.Request = (*callView)(v), req
	return v.host.calls(ctx, c)
}

// subject returns what replaces the public name or URI, empty if nothing does.
func (v *View) subject(c *call.Call) string {
	if c.Item != nil && c.Item.Public == c.Target || c.Item == nil && v.single() {
		return ""
	}
	return c.Target
}

// openState returns the state of a request that continues another.
func (v *View) openState(req *mcp.Request, c *call.Call) (st round.State, ok bool, err error) {
	if raw, ok := req.Param("inputResponses"); ok && jsonscan.Kind(raw) != '{' {
		return st, false, mcp.Errorf(mcp.CodeInvalidParams, "invalid params.inputResponses: must be an object")
	}
	text, ok, err := round.StateOf(req)
	if !ok || err != nil {
		return st, ok, err
	}
	if st, err = v.host.states.Open(v.caller, req, text); err == nil && st.Server != poolOf(c).Name() {
		err = round.ErrInvalid
	}
	return st, true, err
}

// A callView is a [call.View].
type callView View

// Caller implements [call.View].
func (v *callView) Caller() *policy.Caller { return v.caller }

// Principal implements [call.View].
func (v *callView) Principal() string { return v.principal }

// OpenState implements [call.View].
func (v *callView) OpenState(req *mcp.Request, c *call.Call) (round.State, bool, error) {
	return (*View)(v).openState(req, c)
}

// IsSingle implements [result.View].
func (v *callView) IsSingle() bool { return (*View)(v).single() }

// Publish implements [result.View].
func (v *callView) Publish(p call.Pool, method string, raw mcp.RawResult) mcp.RawResult {
	return (*View)(v).publish(p.Name(), p.(*upstream.Pool), method, raw)
}

// Tasks implements [task.View].
func (v *callView) Tasks() *task.Caller { return v.tasks }

// TaskSender implements [task.View].
func (v *callView) TaskSender(p call.Pool) task.Sender {
	return taskPool{(*View)(v), p.(*upstream.Pool)}
}

// viewOf returns the view of a call.
func viewOf(c *call.Call) *View { return (*View)(c.View.(*callView)) }

// poolOf returns the pool of a call.
func poolOf(c *call.Call) *upstream.Pool { return c.Pool.(*upstream.Pool) }

// publish returns a result of a server as the caller sees it. p may be nil.
func (v *View) publish(server string, p *upstream.Pool, method string, raw []byte) []byte {
	raw = result.WithoutOwnMeta(raw)
	if m := v.latest(); m != nil {
		raw = m.catalogue.MapResult(server, method, raw)
	}
	if p != nil {
		v.note(p, raw)
	}
	return raw
}

// readKept serves a read of a page of a large result. Callers other than the principal of the result receive the
// error of a resource that does not exist. The policy has decided about the result.
func (v *View) readKept(ctx context.Context, req *mcp.Request, uri string) (mcp.Result, error) {
	page, ok := v.host.result.Page(v.principal, uri)
	var p *upstream.Pool
	if ok {
		p = v.poolNamed(page.Server)
	}
	if p == nil {
		return nil, v.refused(req, policy.ActionRead, uri, mcp.NotFound(uri))
	}
	return v.send(ctx, req, &call.Call{Kind: policy.ActionRead, Pool: p, Target: uri, Own: true,
		Local: func(context.Context) (mcp.Result, error) { return page.Contents(), nil }})
}
