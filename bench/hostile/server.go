//go:build linux

package main

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcphttp"
)

// A part is one server and the attack on it.
type part struct {
	name   string
	attack string // the part whose attack it is: attackers of a control send the same
	// elsewhere is the part that is measured while another server is attacked: a control for the
	// effect of a busy machine.
	elsewhere string
	serve     func(l net.Listener, other string) error
	probe     func(address string) (call func() error, err error)
}

var parts []part

func init() {
	parts = []part{
		{"session", "session", "", serveMCP, newSessionProbe},
		{"bare-session", "session", "", serveBare, newSessionProbe},
		{"modern", "modern", "", serveMCP, newModernProbe},
		{"bare-modern", "modern", "", serveBare, newModernProbe},
		{"elsewhere", "modern", "modern", nil, nil},
		{"authserver-token", "authserver", "", serveAuthorization, newRefreshProbe},
		{"bare-authserver", "authserver", "", serveBareAuthorization, newBareRefreshProbe},
		{"bare-hash", "authserver", "", serveBareHash, newBareRefreshProbe},
		{"authserver-login", "authserver", "", serveAuthorization, newLoginProbe},
		{"introspection", "introspection", "", serveIntrospection, newModernProbe},
		{"bare-introspection", "introspection", "", serveStatic, newModernProbe},
	}
}

func partOf(name string) part {
	for _, p := range parts {
		if p.name == name {
			return p
		}
	}
	return part{}
}

var discardLogger = slog.New(slog.DiscardHandler)

// large is the text of the tool large.
var large = strings.Repeat("x", 1<<20)

func runServer(name, other string) error {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	go watchHeap()
	serve := partOf(name).serve
	if name == introspectionEndpoint {
		serve = serveIntrospectionEndpoint
	}
	failed := make(chan error, 1)
	go func() { failed <- serve(listener, other) }()
	return answerLines(listener.Addr().String(), func(command string) (any, error) {
		select {
		case err := <-failed:
			return nil, err
		default:
		}
		if path, ok := strings.CutPrefix(command, "trace "); ok {
			return "", record(path)
		}
		return readFigures(), nil
	})
}

// newServer returns the MCP server that all parts serve.
func newServer() *mcp.Server {
	server := mcp.NewServer("s", "1", &mcp.ServerOptions{Logger: discardLogger})
	mcp.AddTool(server, &mcp.Tool{Name: "echo"}, func(context.Context, struct{}) (string, error) { return "hi", nil })
	mcp.AddTool(server, &mcp.Tool{Name: "large"}, func(context.Context, struct{}) (string, error) { return large, nil })
	mcp.AddTool(server, &mcp.Tool{Name: "wait"}, func(ctx context.Context, _ struct{}) (string, error) {
		sleep(ctx, waitTime)
		return "", nil
	})
	return server
}

// waitTime is how long the tool wait takes.
const waitTime = 10 * time.Second

func serveMCP(l net.Listener, _ string) error {
	h := mcphttp.NewHandler(newServer(), &mcphttp.Options{Logger: discardLogger})
	return mcphttp.Serve(context.Background(), l, "/mcp", h, asPrincipal)
}

// asPrincipal makes the header Authorization the principal.
func asPrincipal(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if subject := r.Header.Get("Authorization"); subject != "" {
			r = r.WithContext(mcp.WithPrincipal(r.Context(), &mcp.Principal{Issuer: "test", Subject: subject}))
		}
		next.ServeHTTP(w, r)
	})
}

// serveBare serves a handler that reads and discards requests and does what the tools do. It has the
// timeouts of mcphttp, and no limits.
func serveBare(l net.Listener, _ string) error {
	return serveBounded(l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Mcp-Session-Id", "1")
		switch r.URL.RawQuery {
		case "listen":
			<-r.Context().Done()
		case "large":
			_, _ = io.WriteString(w, large)
		case "wait":
			sleep(r.Context(), waitTime)
		default:
			_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":1,"result":{}}`)
		}
	}))
}

// sleep waits, and reports whether the context has not ended meanwhile.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(max(d, 0))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
