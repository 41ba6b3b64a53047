package host

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/patchbay-mcp/patchbay/host/internal/call"
	"github.com/patchbay-mcp/patchbay/host/internal/round"
	"github.com/patchbay-mcp/patchbay/host/internal/upstream"
	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcp/driver"
)

// sendCall sends a call to its server, or serves it in the host.
func (h *Host) sendCall(ctx context.Context, c *call.Call) (mcp.Result, error) {
	if c.Local != nil {
		return c.Local(ctx)
	}
	return viewOf(c).forward(ctx, c)
}

// forward sends one round of a call.
func (v *View) forward(ctx context.Context, c *call.Call) (mcp.Result, error) {
	st, continues, err := c.Continues()
	if err != nil {
		return nil, err
	}
	p, req := poolOf(c), c.Request
	if c.Sent != nil {
		req = c.Sent
	}
	class, from := p.Class(req), upstream.Earlier{}
	if continues {
		class, from = st.Class, upstream.Earlier{Conn: st.Instance, Roots: st.Roots}
		if suspended := v.host.servers.Leaving(st.Server, st.Instance); suspended != nil {
			p = suspended
		}
		inner := *req
		inner.Params = withState(req.Params, st.State)
		req = &inner
	}
	if !c.Suspended {
		from.Uses = uses(c)
	}
	if params := headerParams(c); params != nil {
		inner := *req
		inner.HeaderParams = params
		req = &inner
	}
	o := &driver.ForwardOptions{Principal: v.principal, Subject: v.subject(c)}
	if c.Task != nil && c.Task.DeclaresTasks() {
		o.Capabilities = withTasks(req, p)
	}
	ctx = p.Logins().With(ctx, p.Forwarded(), req)
	s, res, roots, err := p.Forward(ctx, req, class, from, o)
	if errors.Is(err, upstream.ErrRemoved) && !continues {
		if now := v.poolNamed(p.Name()); now != nil && now != p { // the server was replaced
			p = now
			s, res, roots, err = p.Forward(ctx, req, p.Class(req), from, o)
		}
	}
	if err != nil {
		return nil, err
	}
	c.Pool = p
	c.Served = call.Served{ID: s.ID(), Session: s.HasSession(), Single: s.IsSingle(), Round: round.State{Call: c.ID(), Class: class, Roots: roots}}
	return res, nil
}

// withState returns params with the state of the server in place of the caller's.
func withState(params json.RawMessage, state *string) json.RawMessage {
	if state == nil {
		return jsonscan.Without(params, "requestState")
	}
	return jsonscan.WithMember(params, "requestState", jsonscan.AppendQuote(nil, *state))
}
