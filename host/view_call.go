package host

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/patchbay-mcp/patchbay/host/config"
	"github.com/patchbay-mcp/patchbay/host/internal/call"
	"github.com/patchbay-mcp/patchbay/host/internal/catalogue"
	"github.com/patchbay-mcp/patchbay/host/internal/listing"
	"github.com/patchbay-mcp/patchbay/host/internal/result"
	"github.com/patchbay-mcp/patchbay/host/internal/round"
	"github.com/patchbay-mcp/patchbay/host/internal/routes"
	"github.com/patchbay-mcp/patchbay/host/internal/task"
	"github.com/patchbay-mcp/patchbay/host/internal/upstream"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/internal/wire"
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
// that its type does not define. Otherwise the policy could decide about an item, and the server
// use another item.
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

// referenceName returns the name, or without a name the URI, of a completion reference.
func referenceName(ref []byte) string {
	raw, ok := jsonscan.Get(ref, refName)
	if !ok {
		raw, _ = jsonscan.Get(ref, refURI)
	}
	name, _ := jsonscan.Unquote(raw)
	return name
}

// sendTo sends a request through the pipeline to a server; target is the URI that it names, if any.
func (v *View) sendTo(
	ctx context.Context, req *mcp.Request, kind policy.ActionKind, s routes.Server, target string,
) (mcp.Result, error) {
	return v.send(ctx, req, &call.Call{Kind: kind, Pool: s, Target: target})
}

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

// readKept serves a read of a page of a large result. Callers other than the principal of the
// result receive the error of a resource that does not exist. The policy decided about the result
// before.
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

// extensions returns the extensions that the client of an instance declares for its own requests:
// it lists the tools for pages, and subscribes to tasks. Requests of callers declare their own
// extensions.
func extensions(own map[string]json.RawMessage) map[string]json.RawMessage {
	all := map[string]json.RawMessage{
		task.Extension:          json.RawMessage("{}"),
		listing.ExtensionEvents: json.RawMessage("{}"),
		routes.ExtensionApps:    json.RawMessage(`{"mimeTypes":["text/html;profile=mcp-app"]}`),
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

// suspendedRoute returns the route of the answer to a call that waits at a server which was
// removed, or which no longer lists the item. It returns nil for any other request. The server does
// not receive the arguments again, so that hidden arguments need not be removed from them.
func (v *View) suspendedRoute(req *mcp.Request, kind catalogue.Kind) *call.Call {
	text, ok, err := round.StateOf(req)
	if !ok || err != nil {
		return nil
	}
	st, err := v.host.states.Open(v.caller, req, text)
	if err != nil || st.Target == "" {
		return nil
	}
	p := v.host.servers.Leaving(st.Server, st.Instance)
	if p == nil {
		if u := v.host.servers.Current().Named(st.Server); u != nil {
			p = u.PoolOfConnection(st.Instance)
		}
	}
	if p == nil || !v.mayContinue(p, kind, st.Target, jsonscan.GetString(req.Params, "name")) {
		return nil
	}
	return &call.Call{Kind: actionOf(kind), Pool: p, Target: st.Target, Suspended: true}
}

// mayContinue reports whether the caller may use the server and the item of a suspended call. A
// caller with the same principal and more permissions may have begun the call.
func (v *View) mayContinue(p *upstream.Pool, kind catalogue.Kind, target, public string) bool {
	c, set := v.caller, v.host.servers.Current()
	present := set.Named(p.Name()) // possibly a replacement of the server of the call
	if !set.Opens(c, p.Server()) || present != nil && !set.Opens(c, present) {
		return false
	}
	if profile := set.Settings().Profiles[c.Profile]; kind == catalogue.Tools && profile != nil &&
		profile.Tools != nil && !config.Match(profile.Tools, public) {
		return false
	}
	return mayUse(c, &catalogue.Item{Kind: kind, Raw: p.Lists().Last()[kind].Definition(target)})
}

// leaving returns the connections of a removed server at which a call waits, or nil.
func (h *Host) leaving(server, connection string) call.Pool {
	if p := h.servers.Leaving(server, connection); p != nil {
		return p
	}
	return nil // not a nil *upstream.Pool
}
