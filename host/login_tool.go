package host

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/patchbay-mcp/patchbay/host/internal/catalogue"
	"github.com/patchbay-mcp/patchbay/host/internal/listing"
	"github.com/patchbay-mcp/patchbay/host/internal/upstream"
	"github.com/patchbay-mcp/patchbay/internal/fold"
	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// loginTool is the tool that logs in to a server: without a login, the tools of most servers cannot be
// listed, and no call could ask for it.
const loginTool = "log_in"

// logoutTool is the name of the tool that lists and ends the logins of a caller.
const logoutTool = "log_out"

var loginTools = []string{loginTool, logoutTool}

// lacksLogin reports whether the lists of a pool cannot be read because its caller has not logged in.
func lacksLogin(ctx context.Context, p *upstream.Pool) bool {
	if !p.Entry().UsesLoginOfCaller() || p.Lists().Has(catalogue.Tools) {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, listing.Wait) // an authorization server may be slow
	defer cancel()
	c, err := p.Logins().Of(ctx, p.Caller())
	return err == nil && c != nil && c.Ready(ctx) != nil && c.IsMissing()
}

// hasLogin reports whether the caller of the pool is logged in to its server.
func hasLogin(ctx context.Context, p *upstream.Pool) bool {
	ctx, cancel := context.WithTimeout(ctx, listing.Wait)
	defer cancel()
	c, err := p.Logins().Of(ctx, p.Caller())
	return err == nil && c != nil && c.Includes(ctx, nil)
}

// loginServers returns, in the order of the file, the servers at which each caller logs in and for
// which selected returns true.
func (v *View) loginServers(
	ctx context.Context, selected func(ctx context.Context, p *upstream.Pool) bool,
) (names []string) {
	if !v.servers().logins {
		return nil
	}
	pools := v.pools()
	found := make([]bool, len(pools))
	var wait sync.WaitGroup
	for n, p := range pools {
		if p.Entry().UsesLoginOfCaller() {
			wait.Go(func() { found[n] = selected(ctx, p) })
		}
	}
	wait.Wait()
	for n, p := range pools {
		if found[n] {
			names = append(names, p.Name())
		}
	}
	return names
}

// withLoginTools returns the first page of tools with log_in, for the servers in missing, and
// log_out, for the servers in logins. It omits a tool without servers.
func (v *View) withLoginTools(p *listPage, missing, logins []string) *listPage {
	items := slices.Clone(p.items[:len(p.items)-1])
	add := func(name, title, text string, servers []string) {
		if len(servers) == 0 {
			return
		}
		required := []string{"server"}
		if len(servers) == 1 {
			required = []string{}
		}
		if len(items) > 1 {
			items = append(items, ',')
		}
		items = append(items, mustJSON(map[string]any{"name": name, "title": title,
			"description": text + strings.Join(servers, ", ") + ".",
			"inputSchema": map[string]any{"type": "object", "required": required,
				"properties": map[string]any{"server": map[string]any{"type": "string", "enum": servers}}}})...)
	}
	add(loginTool, "Log in", "Logs the user in to a server that requires it. The tools of the server are listed "+
		"afterwards. Servers: ", missing)
	add(logoutTool, "Log out", "Ends a login of the user, and revokes its tokens. The user is logged in to: ", logins)
	if len(missing)+len(logins) == 0 {
		return p
	}
	return v.newListPage(catalogue.Tools, append(items, ']'), p.next)
}

// useLogin serves a call of log_in or log_out. ok is false if a server offers a tool with this
// name, or if no server requires its callers to log in.
func (v *View) useLogin(ctx context.Context, req *mcp.Request, name string) (res mcp.Result, ok bool, err error) {
	if m := v.latest(); m != nil && m.catalogue.Find(catalogue.Tools, name) != nil {
		return nil, false, nil
	}
	servers := v.loginServers(ctx, func(ctx context.Context, p *upstream.Pool) bool {
		return name == loginTool || hasLogin(ctx, p)
	})
	if !slices.ContainsFunc(v.pools(), func(p *upstream.Pool) bool { return p.Entry().UsesLoginOfCaller() }) {
		return nil, false, nil
	}
	arguments, _ := req.Param("arguments")
	var args struct{ Server string }
	switch {
	case len(arguments) > 0 && fold.Named([]string{"server"}).Check(arguments) != nil:
		return failed("invalid arguments: must have no name that differs from server in case only"), true, nil
	case len(arguments) > 0 && json.Unmarshal(arguments, &args) != nil:
		return failed("invalid arguments.server: must be a string"), true, nil
	case len(servers) == 0:
		return failed("the user is not logged in to a server"), true, nil
	case args.Server == "" && len(servers) == 1:
		args.Server = servers[0]
	case !slices.Contains(servers, args.Server):
		return failed(fmt.Sprintf("unknown server %.64q: must be one of %s", args.Server,
			strings.Join(servers, ", "))), true, nil
	}
	p := v.poolNamed(args.Server)
	if p == nil {
		return failed("the configuration has changed: list the tools again"), true, nil
	}
	if name == logoutTool {
		text := "Logged out of " + args.Server + "."
		if err := v.host.Operator().Logout(ctx, args.Server, v.caller); err != nil {
			text += " The authorization server has not confirmed that the tokens are revoked."
		}
		return textResult(text), true, nil
	}
	if err := p.CheckLogin(ctx); err != nil {
		return nil, true, err
	}
	m, err := v.current(ctx)
	if err != nil {
		return nil, true, err
	}
	tools := 0
	for _, item := range m.catalogue.Items(catalogue.Tools) {
		if item.Server == args.Server {
			tools++
		}
	}
	text := fmt.Sprintf("Logged in to %s: it has %d tools. List the tools again.", args.Server, tools)
	return textResult(text), true, nil
}

func textResult(text string) mcp.Result {
	b := jsonscan.AppendQuote([]byte(`{"resultType":"complete","content":[{"type":"text","text":`), text)
	return mcp.RawResult(append(b, `}]}`...))
}
