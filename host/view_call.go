package host

import (
	"context"
	"encoding/json"
	"errors"
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
	if kind == catalogue.Tools && contains(searchNames, name) {
		if res, ok, err := v.useSearch(ctx, req, name); ok {
			return res, err
		}
	}
	item, p, err := v.find(ctx, kind, name)
	if err != nil {
		return nil, err
	}
	if item == nil && kind == catalogue.Tools {
		item, p = v.appTool(name)
	}
	if item == nil {
		return nil, mcp.Errorf(mcp.CodeInvalidParams, "unknown %s %q", strings.TrimSuffix(kind.Member(), "s"), name)
	}
	action := ActionCall
	if kind == catalogue.Prompts {
		action = ActionGet
	}
	return v.send(ctx, req, &route{kind: action, pool: p, target: item.Original, item: item})
}

// find returns the item with a public name and the pool of its server. Lists are read again only if
// the name is unknown.
func (v *View) find(ctx context.Context, kind catalogue.Kind, name string) (*catalogue.Item, *pool, error) {
	m := v.merged.Load()
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
	for n, p := range v.pools {
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
	for _, p := range v.pools {
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
	return len(v.pools) == 1 || strings.HasPrefix(name, p.up.id+"__")
}

// unread returns why the list of the server has never been read that an unknown name is probably one of.
// The request has not run.
func (v *View) unread(kind catalogue.Kind, name string) error {
	for _, p := range v.pools {
		if !v.mayHave(p, name) {
			continue
		}
		err := p.listError(kind)
		if e, ok := errors.AsType[*Error](err); ok {
			unsent := *e
			unsent.MayHaveRun = false // it is of the list
			return &unsent
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (v *View) read(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
	raw, _ := req.Param("uri")
	uri, err := jsonscan.Unquote(raw)
	if err != nil {
		return nil, mcp.Errorf(mcp.CodeInvalidParams, "invalid params.uri: must be a string")
	}
	r, err := v.routeURI(ctx, uri)
	if err != nil {
		return nil, err
	}
	return v.send(ctx, req, r)
}

// complete serves completion/complete, whose reference names a prompt, a template or a resource.
func (v *View) complete(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
	ref, _ := req.Param("ref")
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
	return nil, mcp.Errorf(mcp.CodeInvalidParams, "invalid params.ref: unknown prompt or resource template")
}

func (v *View) known(context.Context) (*merged, error) { return v.merged.Load(), nil }

// referenceName returns the name or the URI of a reference.
func referenceName(ref []byte) string {
	raw, ok := jsonscan.Get(ref, "name")
	if !ok {
		raw, _ = jsonscan.Get(ref, "uri")
	}
	name, _ := jsonscan.Unquote(raw)
	return name
}

// send sends a request to its server, and returns what the caller receives.
func (v *View) send(ctx context.Context, req *mcp.Request, r *route) (res mcp.Result, err error) {
	if r.item != nil {
		req = withoutHidden(req, r.item)
	}
	if v.host.opts.Policy == nil && v.host.opts.Recorder == nil {
		return v.serve(ctx, req, r)
	}
	a := &Action{Kind: r.kind, Caller: v.caller, Server: r.pool.up.name, Target: r.target, Definition: r.definition()}
	a.Arguments, _ = req.Param("arguments")
	begin := time.Now()
	defer func() { v.record(a, begin, err) }()
	if err := v.decide(ctx, a); err != nil {
		return nil, err
	}
	return v.serve(ctx, req, r)
}

func (v *View) serve(ctx context.Context, req *mcp.Request, r *route) (mcp.Result, error) {
	if r.serve != nil {
		return r.serve(ctx)
	}
	return v.forward(ctx, req, r)
}

func (v *View) record(a *Action, begin time.Time, err error) {
	if v.host.opts.Recorder != nil {
		v.host.opts.Recorder.Record(&Record{Action: *a, Start: begin, Duration: time.Since(begin), Err: err})
	}
}

func (v *View) decide(ctx context.Context, a *Action) error {
	if v.host.opts.Policy == nil {
		return nil
	}
	verdict, err := v.host.opts.Policy.Decide(ctx, a)
	if err == nil && verdict.Allow {
		return nil
	}
	if err == nil {
		err = statement{errors.New("denied: " + verdict.Reason)}
	}
	return &Error{Code: CodeDenied, Server: a.Server, Err: err}
}

// forward sends one round of a request.
func (v *View) forward(ctx context.Context, req *mcp.Request, r *route) (mcp.Result, error) {
	state, continues, err := v.openState(req, r)
	if err != nil {
		return nil, err
	}
	class, c := r.pool.class(req), previousRound{}
	if continues {
		class, c = state.Class, previousRound{state.Instance, state.Roots}
		inner := *req
		inner.Params = withState(req.Params, state.State)
		req = &inner
	}
	if params := r.headerParams(); params != nil {
		inner := *req
		inner.HeaderParams = params
		req = &inner
	}
	o := &mcpint.ForwardOptions{Principal: v.principal, Subject: v.subject(r)}
	call, req, err := v.taskCall(req, r, o)
	if err != nil {
		return nil, err
	}
	s, res, roots, err := r.pool.forward(ctx, req, class, c, o)
	if err != nil {
		return nil, err
	}
	if out, ok, err := call.result(req, r, s, class, res); ok {
		return out, err
	}
	return v.result(req, r, s, requestState{Class: class, Roots: roots}, res)
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
		arguments = without(arguments, name)
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
		return without(params, "requestState")
	}
	return jsonscan.WithMember(params, "requestState", jsonscan.AppendQuote(nil, *state))
}

func without(object []byte, key string) json.RawMessage {
	b := []byte{'{'}
	for k, value := range jsonscan.Members(object) {
		if string(k) == key {
			continue
		}
		if len(b) > 1 {
			b = append(b, ',')
		}
		b = append(append(jsonscan.AppendQuote(b, string(k)), ':'), value...)
	}
	return append(b, '}')
}

// result returns what the caller receives for a result of a server.
func (v *View) result(req *mcp.Request, r *route, s *start, st requestState, res mcp.Result) (mcp.Result, error) {
	raw, ok := res.(mcp.RawResult)
	if !ok {
		return res, nil
	}
	raw = withoutOwnMeta(raw)
	if raw.ResultType() != mcp.ResultInputRequired {
		if m := v.merged.Load(); m != nil {
			raw = mcp.RawResult(m.catalogue.MapResult(r.pool.up.name, req.Method, json.RawMessage(raw)))
			res = raw
		}
		v.note(r.pool, raw)
		v.validate(r, raw)
		return res, nil
	}
	st.Server = r.pool.up.name
	if inner, ok := jsonscan.Get(raw, "requestState"); ok {
		text, err := jsonscan.Unquote(inner)
		if err != nil {
			return nil, r.pool.up.errorf(CodeInvalidResult, "invalid requestState: must be a string")
		}
		st.State = &text
	}
	if s.session || s.in.calls {
		st.Instance = s.id
	}
	sealed, err := v.host.states.seal(v.caller, req, st)
	if err != nil {
		return nil, &Error{Code: CodeTooLarge, Server: r.pool.up.name, MayHaveRun: true, Err: err}
	}
	out := jsonscan.WithMember(raw, "requestState", jsonscan.AppendQuote(nil, sealed))
	return mcp.RawResult(v.signQuestions(out, r.pool)), nil
}
