package host

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/catalogue"
	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/internal/mcpint"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// A route says where a request goes.
type route struct {
	kind   ActionKind
	pool   *pool
	target string          // name or URI at the server; empty for a method without one
	item   *catalogue.Item // nil if there is none
	// serve serves the request in place of [View.forward], unless it is nil.
	serve func(ctx context.Context) (mcp.Result, error)
	call  string // the id of its records
	// own: package host has the resource, about which the policy has decided.
	own bool
	// suspended: it answers a question of a server that no longer lists the item.
	suspended bool
	// task is the task that the request is about, nil for none.
	task *task
	// approval is that of the policy or a user, nil without a policy.
	approval *approval
}

// definition returns the definition as the server sent it, nil if there is none.
func (r *route) definition() json.RawMessage {
	if r.item == nil {
		return nil
	}
	return r.item.Raw
}

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
		return nil, v.refused(req, actionOf(kind), name, unknownItem(kind, name))
	}
	return v.send(ctx, req, &route{kind: actionOf(kind), pool: p, target: item.Original, item: item})
}

func actionOf(kind catalogue.Kind) ActionKind {
	if kind == catalogue.Prompts {
		return ActionGet
	}
	return ActionCall
}

// find returns the item with a public name and the pool of its server. Lists are read again only if
// the name is unknown.
func (v *View) find(ctx context.Context, kind catalogue.Kind, name string) (*catalogue.Item, *pool, error) {
	m := v.latest()
	if m != nil {
		if item := m.catalogue.Find(kind, name); item != nil {
			return item, m.pools[item.Server], nil
		}
	}
	deadline := time.Now().Add(listWait)
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
		if m.lists[n][kind] == nil && p.hasList(kind) {
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
		done := p.firstReading(kind)
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
func (v *View) mayHave(p *pool, name string) bool {
	return len(v.pools()) == 1 || strings.HasPrefix(name, p.up.entry().id+"__")
}

// unread returns why the list of the server has never been read that an unknown name is probably one of.
// The request has not run.
func (v *View) unread(kind catalogue.Kind, name string) error {
	for _, p := range v.pools() {
		if !v.mayHave(p, name) {
			continue
		}
		if err := p.listError(kind); err != nil {
			return unsent(err)
		}
	}
	return nil
}

func (v *View) read(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
	uri, err := uriOf(req)
	if err != nil {
		return nil, err
	}
	if strings.HasPrefix(uri, spillPrefix) {
		return v.readSpilled(ctx, req, uri)
	}
	r, err := v.routeURI(ctx, uri)
	if err != nil {
		return nil, v.refused(req, ActionRead, uri, err)
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
			return v.send(ctx, req, &route{kind: ActionComplete, pool: m.pools[server], target: referenceName(own)})
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

// send sends a request to its server, and returns what the caller receives.
func (v *View) send(ctx context.Context, req *mcp.Request, r *route) (res mcp.Result, err error) {
	if !r.suspended && !r.own {
		if err := v.checkPin(ctx, r); err != nil {
			return nil, err
		}
	}
	if err := r.pool.checkLogin(ctx); err != nil {
		return nil, err
	}
	if r.item != nil {
		req = withoutHidden(req, r.item)
	}
	p := v.host.currentPolicy()
	if r.own {
		p = nil
	}
	if p == nil && v.host.opts.Recorder == nil {
		if err := v.admit(ctx, req, r); err != nil {
			return nil, err
		}
		return v.serveWithin(ctx, req, r, nil, nil, nil)
	}
	a := v.action(req, r)
	rec := v.newRecording(req, r, a)
	defer func() {
		rec.end(res, err)
		err = r.approval.wrap(err)
	}()
	if p == nil {
		err = v.admit(ctx, req, r)
	} else {
		req, res, err = v.decide(ctx, p, req, r, a, rec)
	}
	if err != nil || res != nil { // refused, or a question for approval
		return res, err
	}
	return v.serveWithin(ctx, req, r, rec, p, a)
}

func (v *View) serve(ctx context.Context, req *mcp.Request, r *route) (mcp.Result, error) {
	if r.serve != nil {
		return r.serve(ctx)
	}
	return v.forward(ctx, req, r)
}

// forward sends one round of a request.
func (v *View) forward(ctx context.Context, req *mcp.Request, r *route) (mcp.Result, error) {
	state, continues, err := v.openState(req, r)
	if err != nil {
		return nil, err
	}
	class, c := r.pool.class(req), previousRound{}
	if continues {
		class, c = state.Class, previousRound{instance: state.Instance, roots: state.Roots}
		if p := v.host.suspendedPool(state.Server, state.Instance); p != nil {
			inner := *r
			inner.pool, r = p, &inner
		}
		inner := *req
		inner.Params = withState(req.Params, state.State)
		req = &inner
	}
	if !r.suspended {
		c.uses = r.uses()
	}
	if params := r.headerParams(); params != nil {
		inner := *req
		inner.HeaderParams = params
		req = &inner
	}
	o := &mcpint.ForwardOptions{Principal: v.principal, Subject: v.subject(r)}
	ctx = r.pool.withForwarded(ctx, req)
	var call *taskCall
	if r.kind == ActionCall {
		server := r.pool.taskServer()
		if call, req, err = v.tasks.begin(req, &server, r.target, r.item); err != nil {
			return nil, err
		}
		if call != nil && call.declares {
			o.Capabilities = withTasks(req, r.pool)
		}
	}
	s, res, roots, err := r.pool.forward(ctx, req, class, c, o)
	if errors.Is(err, errRemoved) && !continues {
		if p := v.poolNamed(r.pool.up.name); p != nil && p != r.pool { // the server was replaced
			inner := *r
			inner.pool, r = p, &inner
			s, res, roots, err = p.forward(ctx, req, p.class(req), c, o)
		}
	}
	if err != nil {
		return nil, err
	}
	if call != nil {
		at := taskPlace{class: class}
		if s.in.calls {
			at.instance = s.ID()
		}
		if out, ok, err := call.result(taskPool{v, r.pool}, at, res); ok {
			return out, err
		}
	}
	return v.result(req, r, s, requestState{Call: r.call, Class: class, Roots: roots}, res)
}

// subject returns what replaces the public name or URI, empty if nothing does.
func (v *View) subject(r *route) string {
	if r.item != nil && r.item.Public == r.target || r.item == nil && v.single() {
		return ""
	}
	return r.target
}

// withoutHidden returns the request without the arguments that the configuration hides.
func withoutHidden(req *mcp.Request, item *catalogue.Item) *mcp.Request {
	hidden := item.HiddenArguments()
	arguments, ok := req.Param("arguments")
	if !ok || len(hidden) == 0 {
		return req
	}
	for _, name := range hidden {
		arguments = jsonscan.Without(arguments, name)
	}
	inner := *req
	inner.Params = jsonscan.WithMember(req.Params, "arguments", arguments)
	return &inner
}

// openState returns the state of a request that continues another.
func (v *View) openState(req *mcp.Request, r *route) (st requestState, ok bool, err error) {
	if raw, ok := req.Param("inputResponses"); ok && jsonscan.Kind(raw) != '{' {
		return st, false, mcp.Errorf(mcp.CodeInvalidParams, "invalid params.inputResponses: must be an object")
	}
	text, ok, err := requestStateOf(req)
	if !ok || err != nil {
		return st, ok, err
	}
	if st, err = v.host.states.open(v.caller, req, text); err == nil && st.Server != r.pool.up.name {
		err = errInvalidState
	}
	return st, true, err
}

// withState returns params with the state of the server in place of the caller's.
func withState(params json.RawMessage, state *string) json.RawMessage {
	if state == nil {
		return jsonscan.Without(params, "requestState")
	}
	return jsonscan.WithMember(params, "requestState", jsonscan.AppendQuote(nil, *state))
}

// result returns what the caller receives for a result of a server.
func (v *View) result(req *mcp.Request, r *route, s *conn, st requestState, res mcp.Result) (mcp.Result, error) {
	raw, ok := res.(mcp.RawResult)
	if !ok {
		return res, nil
	}
	sent := raw
	raw = withoutOwnMeta(raw)
	if raw.ResultType() != mcp.ResultInputRequired {
		if m := v.latest(); m != nil {
			raw = mcp.RawResult(m.catalogue.MapResult(r.pool.up.name, req.Method, json.RawMessage(raw)))
		}
		v.note(r.pool, raw)
		v.validate(r, raw)
		if len(raw) > 0 && len(raw) == len(sent) && &raw[0] == &sent[0] { // unchanged
			return res, nil
		}
		return raw, nil
	}
	st.Server = r.pool.up.name
	if inner, ok := jsonscan.Get(raw, "requestState"); ok {
		text, err := jsonscan.Unquote(inner)
		if err != nil {
			return nil, r.pool.up.errorf(CodeInvalidResult, "invalid requestState: must be a string")
		}
		st.State = &text
	}
	if s.HasSession() || s.in.calls {
		st.Instance, st.Target = s.ID(), r.target
	}
	r.approval.mark(&st)
	sealed, err := v.host.states.seal(v.caller, req, st)
	if err != nil {
		return nil, &Error{Code: CodeTooLarge, Server: r.pool.up.name, MayHaveRun: true, Err: err}
	}
	out := jsonscan.WithMember(raw, "requestState", jsonscan.AppendQuote(nil, sealed))
	return mcp.RawResult(v.publicQuestions(out, r.pool.up.name)), nil
}
