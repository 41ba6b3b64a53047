package host

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/patchbay-mcp/patchbay/internal/catalogue"
	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// loginTool is the tool that logs in to a server: without a login, the tools of most servers cannot be
// listed, and no call could ask for it.
const loginTool = "log_in"

// lacksLogin reports whether the lists of a pool cannot be read because its caller has not logged in.
func (p *pool) lacksLogin(ctx context.Context) bool {
	if !p.up.entry().isOfCallers() || p.hasList(catalogue.Tools) {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, listWait) // an authorization server may be slow
	defer cancel()
	c, err := p.up.login(ctx, p.caller)
	return err == nil && c != nil && c.ready(ctx) != nil && c.missing.Load()
}

// missingLogins returns the names of the servers that lack a login, in the order of the file.
func (v *View) missingLogins(ctx context.Context) (names []string) {
	pools := v.pools()
	lacks := make([]bool, len(pools))
	var wait sync.WaitGroup
	for n, p := range pools {
		if p.up.entry().isOfCallers() {
			wait.Go(func() { lacks[n] = p.lacksLogin(ctx) })
		}
	}
	wait.Wait()
	for n, p := range pools {
		if lacks[n] {
			names = append(names, p.up.name)
		}
	}
	return names
}

// withLoginTool returns the first page of tools with the tool that logs in to servers.
func (v *View) withLoginTool(p *listPage, servers []string) *listPage {
	if len(servers) == 0 {
		return p
	}
	required := []string{"server"}
	if len(servers) == 1 {
		required = []string{}
	}
	tool := mustJSON(map[string]any{"name": loginTool, "title": "Log in",
		"description": "Logs the user in to a server that requires it. The tools of the server are listed " +
			"afterwards. Servers: " + strings.Join(servers, ", ") + ".",
		"inputSchema": map[string]any{"type": "object", "required": required,
			"properties": map[string]any{"server": map[string]any{"type": "string", "enum": servers}}}})
	items := slices.Clone(p.items[:len(p.items)-1])
	if len(items) > 1 {
		items = append(items, ',')
	}
	return v.newListPage(catalogue.Tools, append(append(items, tool...), ']'), p.next)
}

// useLogin serves a call of that tool. ok is false if the name is one of a server.
func (v *View) useLogin(ctx context.Context, req *mcp.Request) (res mcp.Result, ok bool, err error) {
	if m := v.latest(); m != nil && m.catalogue.Find(catalogue.Tools, loginTool) != nil {
		return nil, false, nil
	}
	var servers []string
	for _, p := range v.pools() {
		if p.up.entry().isOfCallers() {
			servers = append(servers, p.up.name)
		}
	}
	if len(servers) == 0 {
		return nil, false, nil
	}
	arguments, _ := req.Param("arguments")
	var args struct{ Server string }
	if len(arguments) > 0 && json.Unmarshal(arguments, &args) != nil {
		return failed("invalid arguments.server: must be a string"), true, nil
	}
	if args.Server == "" && len(servers) == 1 {
		args.Server = servers[0]
	}
	if !slices.Contains(servers, args.Server) {
		return failed(fmt.Sprintf("unknown server %.64q: must be one of %s", args.Server,
			strings.Join(servers, ", "))), true, nil
	}
	p := v.poolNamed(args.Server)
	if p == nil {
		return failed("the configuration has changed: list the tools again"), true, nil
	}
	if err := p.checkLogin(ctx); err != nil {
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
	b := jsonscan.AppendQuote([]byte(`{"resultType":"complete","content":[{"type":"text","text":`), text)
	return mcp.RawResult(append(b, `}]}`...)), true, nil
}
