package host

import (
	"context"
	"errors"
	"strings"

	"github.com/patchbay-mcp/patchbay/host/internal/authorize"
	"github.com/patchbay-mcp/patchbay/host/internal/call"
	"github.com/patchbay-mcp/patchbay/host/internal/catalogue"
	"github.com/patchbay-mcp/patchbay/host/internal/limits"
	"github.com/patchbay-mcp/patchbay/host/internal/login"
	"github.com/patchbay-mcp/patchbay/host/internal/pins"
	"github.com/patchbay-mcp/patchbay/host/internal/result"
	"github.com/patchbay-mcp/patchbay/host/internal/round"
	"github.com/patchbay-mcp/patchbay/host/internal/routes"
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
	if kind == catalogue.Tools && routes.IsSearchTool(name) {
		if res, ok, err := v.table.Search(ctx, req, name); ok {
			return res, err
		}
	}
	if kind == catalogue.Tools && routes.IsLoginTool(name) {
		if res, ok, err := (loginRounds{v}).useLogin(ctx, req, name); ok {
			return res, err
		}
	}
	item, s, err := v.table.Find(ctx, kind, name)
	if q, ok := errors.AsType[*routes.QuarantinedError](err); ok {
		return v.send(ctx, req, &call.Call{Kind: actionOf(kind), Pool: q.Server, Target: q.Item.Original, Item: &q.Item,
			Quarantined: q.Err})
	}
	if err != nil {
		return nil, v.refused(req, actionOf(kind), name, err)
	}
	if item == nil && kind == catalogue.Tools {
		item, s = v.table.AppTool(name)
	}
	if item == nil {
		if r := v.suspendedRoute(req, kind); r != nil {
			return v.send(ctx, req, r)
		}
		return nil, v.refused(req, actionOf(kind), name, kind.Unknown(name))
	}
	return v.send(ctx, req, &call.Call{Kind: actionOf(kind), Pool: s, Target: item.Original, Item: item})
}

func actionOf(kind catalogue.Kind) policy.ActionKind {
	if kind == catalogue.Prompts {
		return policy.ActionGet
	}
	return policy.ActionCall
}

func (v *View) read(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
	uri, err := routes.URIOf(req)
	if err != nil {
		return nil, err
	}
	if strings.HasPrefix(uri, result.Prefix) {
		return v.readKept(ctx, req, uri)
	}
	r, err := v.table.URIs().Route(ctx, uri)
	if err != nil {
		return nil, v.refused(req, policy.ActionRead, uri, err)
	}
	return v.send(ctx, req, &call.Call{Kind: policy.ActionRead, Pool: r.Server, Target: r.URI})
}

// complete serves completion/complete, whose reference names a prompt, a template or a resource.
func (v *View) complete(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
	ref, _ := req.Param("ref")
	if err := checkReference(ref); err != nil {
		return nil, err
	}
	s, own, err := v.table.Reference(ctx, ref)
	if err == nil && s == nil {
		err = errUnknownReference
	}
	if err != nil {
		return nil, err
	}
	return v.send(ctx, req, &call.Call{Kind: policy.ActionComplete, Pool: s, Target: referenceName(own)})
}

var errUnknownReference = mcp.Errorf(mcp.CodeInvalidParams, "invalid params.ref: unknown prompt or resource template")

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

// sendTo sends a request through the pipeline to a server; target is the URI that it names, if any.
func (v *View) sendTo(
	ctx context.Context, req *mcp.Request, kind policy.ActionKind, s routes.Server, target string,
) (mcp.Result, error) {
	return v.send(ctx, req, &call.Call{Kind: kind, Pool: s, Target: target})
}

// A callView is a [call.View].
type callView View

// The stages assert these interfaces.
var (
	_ authorize.View = (*callView)(nil)
	_ result.View    = (*callView)(nil)
	_ task.View      = (*callView)(nil)
	_ upstream.View  = (*callView)(nil)
	_ limits.Pool    = (*upstream.Pool)(nil)
	_ login.Pool     = (*upstream.Pool)(nil)
	_ pins.Pool      = (*upstream.Pool)(nil)
	_ result.Pool    = (*upstream.Pool)(nil)
)

// Caller implements [call.View].
func (v *callView) Caller() *policy.Caller { return v.caller }

// Principal implements [call.View].
func (v *callView) Principal() string { return v.principal }

// OpenState implements [call.View].
func (v *callView) OpenState(req *mcp.Request, c *call.Call) (st round.State, ok bool, err error) {
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

// IsSingle implements [result.View].
func (v *callView) IsSingle() bool { return v.table.Servers().Single }

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

// PoolNamed implements [upstream.View].
func (v *callView) PoolNamed(server string) *upstream.Pool { return (*View)(v).poolNamed(server) }

// viewOf returns the view of a call.
func viewOf(c *call.Call) *View { return (*View)(c.View.(*callView)) }

// poolOf returns the pool of a call.
func poolOf(c *call.Call) *upstream.Pool { return c.Pool.(*upstream.Pool) }

// publish returns a result of a server as the caller sees it. p may be nil.
func (v *View) publish(server string, p *upstream.Pool, method string, raw []byte) []byte {
	raw = result.WithoutOwnMeta(raw)
	if m := v.table.Latest(); m != nil {
		raw = m.Catalogue.MapResult(server, method, raw)
	}
	if p != nil {
		v.table.URIs().AddResult(p, raw)
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
