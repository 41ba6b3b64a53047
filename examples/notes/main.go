// Command notes is an MCP server over HTTP that stores notes for each user. The tool clear requires
// the scope notes:clear.
package main

import (
	"context"
	"errors"
	"log"
	"slices"
	"sync"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcphttp"
	"github.com/patchbay-mcp/patchbay/oauth"
)

// A user owns notes. Issuer and subject of a token identify a person, with whatever application.
type user struct{ issuer, subject string }

type notes struct {
	mu    sync.Mutex
	texts map[user][]string
}

type note struct {
	Text string `json:"text" jsonschema:"text of the note"`
}

// add adds a note to the caller's notes, and returns all notes of the caller.
func (n *notes) add(ctx context.Context, in note) ([]string, error) {
	caller := mcp.PrincipalFrom(ctx)
	if caller == nil { // the transport does not authenticate
		return nil, errors.New("notes need a login")
	}
	owner := user{caller.Issuer, caller.Subject}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.texts[owner] = append(n.texts[owner], in.Text)
	return slices.Clone(n.texts[owner]), nil
}

func (n *notes) clear(ctx context.Context, _ struct{}) (string, error) {
	caller := mcp.PrincipalFrom(ctx) // not nil: RequireScopes refuses callers without the scope
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.texts, user{caller.Issuer, caller.Subject})
	return "The notes are deleted.", nil
}

func main() {
	s := mcp.NewServer("notes", "1.0.0", &mcp.ServerOptions{
		Middleware: []mcp.Middleware{oauth.RequireScopes(&oauth.ScopeRules{
			Tools: map[string]oauth.Scopes{"clear": oauth.AllOf("notes:clear")},
		})},
	})
	n := &notes{texts: map[user][]string{}}
	mcp.AddTool(s, &mcp.Tool{Name: "add", Description: "Add a note."}, n.add)
	mcp.AddTool(s, &mcp.Tool{Name: "clear", Description: "Delete all notes of the user."}, n.clear)

	const issuer = "https://auth.example.com" // your authorization server
	const addr, path = "127.0.0.1:8080", "/mcp"
	protect := oauth.Require(oauth.NewJWTVerifier(issuer, nil), oauth.ResourceMetadata{
		Resource:             "http://" + addr + path,
		AuthorizationServers: []string{issuer},
	}, nil)
	log.Fatal(mcphttp.ListenAndServe(context.Background(), addr, path, mcphttp.NewHandler(s, nil), protect))
}
