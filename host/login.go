package host

import (
	"context"

	"github.com/patchbay-mcp/patchbay/host/event"
	"github.com/patchbay-mcp/patchbay/host/internal/call"
	"github.com/patchbay-mcp/patchbay/host/internal/login"
	"github.com/patchbay-mcp/patchbay/host/operator"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// newLogins returns the logins of the host.
func (h *Host) newLogins() *login.Logins {
	return login.New(login.Options{OAuth: h.opts.OAuth, Tokens: h.opts.Tokens, Lookup: h.opts.Lookup,
		Logger: h.opts.Logger, Dials: h.dials, Context: h.ctx, Run: h.work.run, Record: h.recordLogin})
}

// newPrompt returns the questions for logins. They need the logins and the approvals of the host.
func (h *Host) newPrompt() *login.Prompt {
	return &login.Prompt{Logins: h.logins, Ring: h.states.Ring, Hold: h.approve.Hold, Command: h.opts.LoginCommand,
		Links: func() bool { return h.servers.Current().Settings().Connect.Links }}
}

// recordLogin records the outcome of a login. An empty outcome means that err is the outcome.
func (h *Host) recordLogin(server string, p *mcp.Principal, outcome string, err error) {
	detail := map[string]string{"outcome": outcome}
	if outcome == "" {
		detail["outcome"] = "succeeded"
		if err != nil {
			detail["outcome"] = "failed"
		}
	}
	if err != nil {
		detail["reason"] = operator.LoginFailure(err)
	}
	h.recordChange(event.Login, &policy.Caller{Principal: p}, server, detail)
}

// noteForwarded keeps the headers of a request for the requests of the host itself, such as for lists.
func (v *View) noteForwarded(ctx context.Context, req *mcp.Request) {
	for _, s := range v.table.Servers().All {
		p := serverPool(s)
		p.Logins().With(ctx, p.Forwarded(), req)
	}
}

// requester returns the sender of the view's requests, for questions about logins.
func (v *View) requester() *login.Requester {
	return &login.Requester{Caller: v.caller, Principal: v.principal,
		Credential: func(ctx context.Context, server string) (*login.Credential, error) {
			p := v.poolNamed(server)
			if p == nil {
				return nil, nil //nolint:nilnil // the server was removed
			}
			return p.Logins().Of(ctx, p.Caller())
		}}
}

// checkLogin refuses a call that requires a missing login.
func (h *Host) checkLogin(next call.Next) call.Next {
	return func(ctx context.Context, c *call.Call) (mcp.Result, error) {
		if err := poolOf(c).CheckLogin(ctx); err != nil {
			return nil, err
		}
		return next(ctx, c)
	}
}
