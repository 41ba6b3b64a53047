package host

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/patchbay-mcp/patchbay/host/event"
	"github.com/patchbay-mcp/patchbay/host/internal/catalogue"
	"github.com/patchbay-mcp/patchbay/host/internal/login"
	"github.com/patchbay-mcp/patchbay/host/internal/routes"
	"github.com/patchbay-mcp/patchbay/host/operator"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/internal/fold"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// newLogins returns the logins of the host.
func (h *Host) newLogins() *login.Logins {
	return login.New(login.Options{OAuth: h.opts.OAuth, Tokens: h.opts.Tokens, Lookup: h.opts.Lookup,
		Logger: h.opts.Logger, Dials: h.dials, Context: h.ctx, Run: h.run, Record: h.recordLogin})
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

// useLogin serves a call of log_in or log_out. ok is false if a server offers a tool with this
// name, or if no server requires its callers to log in.
func (v loginRounds) useLogin(ctx context.Context, req *mcp.Request, name string) (res mcp.Result, ok bool, err error) {
	if m := v.table.Latest(); m != nil && m.Catalogue.Find(catalogue.Tools, name) != nil {
		return nil, false, nil
	}
	servers := v.table.LoginServers(ctx, func(ctx context.Context, s routes.Server) bool {
		return name == routes.LoginTool || routes.HasLogin(ctx, s)
	})
	usesLogin := func(s routes.Server) bool { return s.Entry().UsesLoginOfCaller() }
	if !slices.ContainsFunc(v.table.Servers().All, usesLogin) {
		return nil, false, nil
	}
	arguments, _ := req.Param("arguments")
	var args struct{ Server string }
	switch {
	case len(arguments) > 0 && fold.Named([]string{"server"}).Check(arguments) != nil:
		return routes.Failed("invalid arguments: must have no name that differs from server in case only"), true, nil
	case len(arguments) > 0 && json.Unmarshal(arguments, &args) != nil:
		return routes.Failed("invalid arguments.server: must be a string"), true, nil
	case len(servers) == 0:
		return routes.Failed("the user is not logged in to a server"), true, nil
	case args.Server == "" && len(servers) == 1:
		args.Server = servers[0]
	case !slices.Contains(servers, args.Server):
		return routes.Failed(fmt.Sprintf("unknown server %.64q: must be one of %s", args.Server,
			strings.Join(servers, ", "))), true, nil
	}
	p := v.poolNamed(args.Server)
	if p == nil {
		return routes.Failed("the configuration has changed: list the tools again"), true, nil
	}
	if name == routes.LogoutTool {
		text := "Logged out of " + args.Server + "."
		if err := v.host.Operator().Logout(ctx, args.Server, v.caller); err != nil {
			text += " The authorization server has not confirmed that the tokens are revoked."
		}
		return routes.Text(text), true, nil
	}
	if err := p.CheckLogin(ctx); err != nil {
		return nil, true, err
	}
	m, err := v.table.Current(ctx)
	if err != nil {
		return nil, true, err
	}
	tools := 0
	for _, item := range m.Catalogue.Items(catalogue.Tools) {
		if item.Server == args.Server {
			tools++
		}
	}
	text := fmt.Sprintf("Logged in to %s: it has %d tools. List the tools again.", args.Server, tools)
	return routes.Text(text), true, nil
}

// loginRounds serves the tools that log a caller in and out.
type loginRounds struct{ *View }
