package mcp_test

import (
	"context"
	"io"
	"log/slog"
	"runtime"
	"testing"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// A nilError is an error whose methods panic, as those of a nil pointer often do.
type nilError struct{ cause error }

func (e *nilError) Error() string { return e.cause.Error() }
func (e *nilError) Unwrap() error { return e.cause }

// Each handler fails in a way that the server must survive. More calls than a server serves at once
// show that each of them frees its place.
func TestHandlersThatExitFreeTheirPlace(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	handlers := map[string]mcp.HandlerFunc{
		"goexit":    func(context.Context, *mcp.Request) (mcp.Result, error) { runtime.Goexit(); return nil, nil },
		"nil error": func(context.Context, *mcp.Request) (mcp.Result, error) { return nil, (*nilError)(nil) },
		"panic":     func(context.Context, *mcp.Request) (mcp.Result, error) { panic("broken") },
	}
	for name, exit := range handlers {
		s := mcp.NewServer("s", "1", &mcp.ServerOptions{Logger: slog.New(slog.NewTextHandler(io.Discard, nil))})
		s.HandleMethod("example/exit", exit)
		s.HandleMethod("example/works", mcp.HandlerFunc(func(context.Context, *mcp.Request) (mcp.Result, error) {
			return mcp.RawResult(`{"resultType":"complete"}`), nil
		}))
		for kind, h := range map[string]mcp.Handler{
			"of a Server": s,
			"of a custom Handler": mcp.HandlerFunc(func(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
				if req.Method == "example/exit" {
					return exit(ctx, req)
				}
				return s.ServeMCP(ctx, req)
			}),
		} {
			t.Run(name+" "+kind, func(t *testing.T) {
				mcptest.Run(t, h, func(t *testing.T, c *mcptest.Client) {
					for range 300 {
						_, err := c.Try("example/exit", nil)
						if err == nil || err.Code != mcp.CodeInternalError {
							t.Fatalf("got %v, want code %d", err, mcp.CodeInternalError)
						}
					}
					if _, err := c.Try("example/works", nil); err != nil {
						t.Errorf("after it: %v", err)
					}
				})
			})
		}
	}
}

func TestPrincipalsWithUnusualCharactersDiffer(t *testing.T) {
	seen := map[string]*mcp.Principal{}
	for _, p := range []*mcp.Principal{
		nil, {Subject: "x"}, {ClientID: "x"}, {Issuer: "x"}, {Subject: "x\x00y", ClientID: "z"},
		{Subject: "x", ClientID: "y\x00z"}, {Issuer: "1:x", Subject: "y"}, {Issuer: "1:x1:y"}, {Issuer: "x", Subject: "1:y"},
		{Subject: "1:x", ClientID: "y"}, {Subject: "1:xy"}, {Issuer: "0:", Subject: "x"}, {},
	} {
		if before, ok := seen[p.Key()]; ok {
			t.Errorf("%+v and %+v have the same key %q", before, p, p.Key())
		}
		seen[p.Key()] = p
	}
}
