package routes

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"sync"

	"github.com/patchbay-mcp/patchbay/host/internal/catalogue"
	"github.com/patchbay-mcp/patchbay/host/internal/listing"
)

// Names of the tools that log in to a server, and that list and end the logins of a caller: without a login,
// the tools of most servers cannot be listed, and no call could ask for it.
const (
	LoginTool  = "log_in"
	LogoutTool = "log_out"
)

var loginNames = []string{LoginTool, LogoutTool}

// IsLoginTool reports whether a tool is called like a tool for logins.
func IsLoginTool(name string) bool { return slices.Contains(loginNames, name) }

// lacksLogin reports whether the lists of a server cannot be read without a login of its caller.
func lacksLogin(ctx context.Context, s Server) bool {
	if !s.Entry().UsesLoginOfCaller() || s.Lists().Last()[catalogue.Tools] != nil {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, listing.Wait) // an authorization server may be slow
	defer cancel()
	c, err := s.Logins().Of(ctx, s.Caller())
	return err == nil && c != nil && c.Ready(ctx) != nil && c.IsMissing()
}

// HasLogin reports whether the caller is logged in to a server.
func HasLogin(ctx context.Context, s Server) bool {
	ctx, cancel := context.WithTimeout(ctx, listing.Wait)
	defer cancel()
	c, err := s.Logins().Of(ctx, s.Caller())
	return err == nil && c != nil && c.Includes(ctx, nil)
}

// LoginServers returns, in the order of the file, the servers that require each caller to log in and for
// which selected returns true.
func (t *Table) LoginServers(
	ctx context.Context, selected func(ctx context.Context, s Server) bool,
) (names []string) {
	servers := t.Servers()
	if !servers.Logins {
		return nil
	}
	found := make([]bool, len(servers.All))
	var wait sync.WaitGroup
	for n, p := range servers.All {
		if p.Entry().UsesLoginOfCaller() {
			wait.Go(func() { found[n] = selected(ctx, p) })
		}
	}
	wait.Wait()
	for n, p := range servers.All {
		if found[n] {
			names = append(names, p.Name())
		}
	}
	return names
}

// withLoginTools returns the first page of tools with log_in, for the servers in missing, and
// log_out, for the servers in logins. It omits a tool without servers.
func (t *Table) withLoginTools(p *page, missing, logins []string) *page {
	if len(missing)+len(logins) == 0 {
		return p
	}
	items := slices.Clone(p.items[:len(p.items)-1])
	items = appendLoginTool(items, LoginTool, "Log in", "Logs the user in to a server that requires it. "+
		"The tools of the server are listed afterwards. Servers: ", missing)
	items = appendLoginTool(items, LogoutTool, "Log out", "Ends a login of the user, and revokes its tokens. "+
		"The user is logged in to: ", logins)
	return t.newPage(catalogue.Tools, append(items, ']'), p.next)
}

func appendLoginTool(items []byte, name, title, text string, servers []string) []byte {
	if len(servers) == 0 {
		return items
	}
	required := []string{"server"}
	if len(servers) == 1 {
		required = []string{}
	}
	definition, err := json.Marshal(map[string]any{"name": name, "title": title,
		"description": text + strings.Join(servers, ", ") + ".",
		"inputSchema": map[string]any{"type": "object", "required": required,
			"properties": map[string]any{"server": map[string]any{"type": "string", "enum": servers}}}})
	if err != nil {
		return items // texts always encode
	}
	if len(items) > 1 {
		items = append(items, ',')
	}
	return append(items, definition...)
}
