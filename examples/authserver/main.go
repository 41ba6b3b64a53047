// Command authserver is an MCP server with its own authorization server, for a single user. The
// password comes from the environment:
//
//	MCP_PASSWORD='correct horse battery staple' authserver DIR
//
// DIR contains the files that must survive a restart. Clients, such as examples/login, log in at
// http://127.0.0.1:8080/mcp.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcphttp"
	"github.com/patchbay-mcp/patchbay/oauth"
	"github.com/patchbay-mcp/patchbay/oauth/authserver"
	"github.com/patchbay-mcp/patchbay/stores/bolt"
)

const (
	address = "127.0.0.1:8080"
	issuer  = "http://" + address
	// The URL of the MCP server for its clients. Behind a proxy it is the https URL of the proxy.
	resource = issuer + "/mcp"
)

func main() {
	if len(os.Args) != 2 {
		log.Fatal("usage: MCP_PASSWORD=... authserver DIR")
	}
	if err := run(os.Args[1], os.Getenv("MCP_PASSWORD")); err != nil {
		log.Fatal(err)
	}
}

func run(dir, password string) (err error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	store, err := bolt.OpenAuthorization(filepath.Join(dir, "auth.db"), nil)
	if err != nil {
		return err
	}
	// After the server has shut down.
	defer func() { err = errors.Join(err, store.Close()) }()
	auth, err := newAuth(store, dir, password)
	if err != nil {
		return err
	}
	handler := mcphttp.NewHandler(newNotes(), nil)
	protect := oauth.Require(auth.Verifier(resource), auth.ResourceMetadata(resource), nil)
	mux := http.NewServeMux()
	mux.Handle("/mcp", protect(handler))
	mux.Handle("/", auth) // pages, endpoints, metadata
	return serve(ctx, mux, handler)
}

// newAuth returns the authorization server.
func newAuth(store authserver.Store, dir, password string) (*authserver.Server, error) {
	hash, err := authserver.HashPassword(password)
	if err != nil {
		return nil, fmt.Errorf("MCP_PASSWORD: %w", err)
	}
	login, err := authserver.NewPasswordLogin(&authserver.PasswordOptions{
		// The scopes that ann may grant. Another user could have only notes:read.
		Users: []authserver.PasswordUser{{Name: "ann", Hash: hash, Scopes: []string{"notes:read", "notes:write"}}},
	})
	if err != nil {
		return nil, err
	}
	keys, err := authserver.LoadSealKeys(filepath.Join(dir, "seal.keys")) // in production, not next to the store
	if err != nil {
		return nil, err
	}
	return authserver.New(&authserver.Options{
		Issuer: issuer,
		Resources: []authserver.Resource{{URL: resource, Name: "Notes", Scopes: []authserver.Scope{
			{Name: "notes:read", Description: "Read your notes"},
			{Name: "notes:write", Description: "Write notes", OnRequest: true},
		}}},
		Login: login, Store: store, SealKeys: keys,
	})
}

type note struct {
	Text string `json:"text" jsonschema:"what to write down"`
}

// newNotes returns the MCP server. Its tools require scopes. A client that lacks a scope gets its
// name in the error and requests it.
func newNotes() *mcp.Server {
	s := mcp.NewServer("notes", "1.0.0", &mcp.ServerOptions{Middleware: []mcp.Middleware{
		oauth.RequireScopes(&oauth.ScopeRules{
			Tools:      map[string]oauth.Scopes{"read_notes": oauth.AllOf("notes:read")},
			OtherTools: oauth.AllOf("notes:write"),
		}),
	}})
	mcp.AddTool(s, &mcp.Tool{Name: "read_notes", Description: "Read the notes."},
		func(ctx context.Context, _ struct{}) (string, error) {
			return "the notes of " + mcp.RequestFrom(ctx).Principal.Subject, nil
		})
	mcp.AddTool(s, &mcp.Tool{Name: "write_note", Description: "Write a note."},
		func(_ context.Context, in note) (string, error) { return "written: " + in.Text, nil })
	return s
}

// serve serves until ctx ends. Then it shuts down: first the calls, which get their responses, then
// the connections.
func serve(ctx context.Context, site http.Handler, handler *mcphttp.Handler) error {
	server := &http.Server{
		Addr: address, Handler: site, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute,
	}
	failed := make(chan error, 1)
	go func() { failed <- server.ListenAndServe() }()
	log.Print("serving ", resource)
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	ending, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	// Close ends what did not end in time
	return errors.Join(handler.Shutdown(ending), server.Shutdown(ending), server.Close())
}
