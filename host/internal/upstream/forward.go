package upstream

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/patchbay-mcp/patchbay/host/internal/call"
	"github.com/patchbay-mcp/patchbay/host/internal/catalogue"
	"github.com/patchbay-mcp/patchbay/host/internal/pins"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcp/driver"
)

// A View is the caller's side of a call, which the [call.Call.View] of each call must implement.
type View interface {
	call.View
	// IsSingle reports whether names and URIs are unchanged, because the caller uses one server.
	IsSingle() bool
	// PoolNamed returns the connections of a server for the caller, or nil if the caller may not use it.
	PoolNamed(server string) *Pool
}

var _ call.Pool = (*Pool)(nil)

// Send sends a call to its server, or serves it in the host. It is the last function of the pipeline.
func (s *Servers) Send(ctx context.Context, c *call.Call) (mcp.Result, error) {
	if c.Local != nil {
		return c.Local(ctx)
	}
	st, continues, err := c.Continues()
	if err != nil {
		return nil, err
	}
	p, req := c.Pool.(*Pool), c.Request
	if c.Sent != nil {
		req = c.Sent
	}
	class, from := p.Class(req), Earlier{}
	if continues {
		class, from = st.Class, Earlier{Conn: st.Instance, Roots: st.Roots}
		if leaving := s.Leaving(st.Server, st.Instance); leaving != nil {
			p = leaving
		}
		inner := *req
		inner.Params = withState(req.Params, st.State)
		req = &inner
	}
	if !c.Suspended {
		from.Uses = pins.TargetOf(c.Kind, c.Target)
	}
	if params := p.headerParams(c.Item); params != nil {
		inner := *req
		inner.HeaderParams = params
		req = &inner
	}
	v := c.View.(View)
	o := &driver.ForwardOptions{Principal: v.Principal(), Subject: subject(c, v)}
	if inCluster(p.up) {
		o.Caller = o.Principal // the answer may reach another host
	}
	if c.Task != nil && c.Task.DeclaresTasks() {
		o.Capabilities = p.DeclareTasks(req)
	}
	if c.Server != nil { // the host approved the members of _meta for this configuration
		o.WithoutMeta = c.Server.WithoutMeta()
	}
	ctx = p.Logins().With(ctx, p.Forwarded(), req)
	conn, res, roots, err := p.Forward(ctx, req, class, from, o)
	if errors.Is(err, ErrRemoved) && !continues {
		if now := v.PoolNamed(p.Name()); now != nil && now != p && mayReplace(c, now) { // the server was replaced
			p = now
			conn, res, roots, err = p.Forward(ctx, req, p.Class(req), from, o)
		}
	}
	if err != nil {
		return nil, err
	}
	c.Pool = p
	c.Served = call.Served{ID: conn.ServedID(), Class: class, Roots: roots, Session: conn.binds(),
		Single: conn.IsSingle()}
	return res, nil
}

// mayReplace reports whether a call may go to a replacement: an approval is only for its program.
func mayReplace(c *call.Call, now *Pool) bool {
	return c.Decision == nil || c.Decision.Do != policy.OutcomeAsk || now.Entry().Program() == c.Server.Program()
}

// subject returns the name or URI that replaces the public name or URI, or "" if the server knows the same.
func subject(c *call.Call, v View) string {
	if c.Item != nil && c.Item.Public == c.Target || c.Item == nil && v.IsSingle() {
		return ""
	}
	return c.Target
}

// headerParams returns the arguments of a call that HTTP clients repeat in headers.
func (p *Pool) headerParams(item *catalogue.Item) []driver.HeaderParam {
	if item == nil || item.Kind != catalogue.Tools {
		return nil
	}
	return p.Schema(item).Headers
}

// withState returns params with the state of the server in place of the caller's.
func withState(params json.RawMessage, state *string) json.RawMessage {
	if state == nil {
		return jsonscan.Without(params, "requestState")
	}
	return jsonscan.WithMember(params, "requestState", jsonscan.AppendQuote(nil, *state))
}

// extensionTasks is the name of the tasks extension; see package ext/tasks.
const extensionTasks = "io.modelcontextprotocol/tasks"

// DeclareTasks returns the capabilities of the client of a request with the tasks extension.
func (p *Pool) DeclareTasks(req *mcp.Request) json.RawMessage {
	capabilities := p.ClientCapabilities(req)
	if capabilities == nil {
		var err error
		if capabilities, err = json.Marshal(req.Capabilities()); err != nil || !jsonscan.IsObject(capabilities) {
			capabilities = json.RawMessage("{}")
		}
	}
	extensions, _ := jsonscan.Get(capabilities, "extensions")
	if !jsonscan.IsObject(extensions) {
		extensions = []byte("{}")
	}
	extensions = jsonscan.WithMember(extensions, extensionTasks, []byte("{}"))
	return jsonscan.WithMember(capabilities, "extensions", extensions)
}
