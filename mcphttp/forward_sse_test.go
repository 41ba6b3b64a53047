package mcphttp_test

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcphttp"
)

// sseOnly refuses what is posted to an address that is not that of an endpoint of HTTP+SSE.
func sseOnly(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost && r.URL.RawQuery == "" {
			w.WriteHeader(http.StatusMethodNotAllowed)
			return
		}
		h.ServeHTTP(w, r)
	})
}

// connect returns a client of h over HTTP, or over HTTP+SSE for the first revision, for a principal.
func connectHTTP(t *testing.T, h mcp.Handler, principal string, opts *mcp.ClientOptions) *mcp.Client {
	t.Helper()
	served := http.Handler(mcphttp.NewHandler(h, &mcphttp.Options{Logger: discardLogger}))
	if opts.Revision == november2024 {
		served = sseOnly(served)
	}
	if principal != "" {
		p, next := &mcp.Principal{Subject: principal}, served
		served = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			next.ServeHTTP(w, r.WithContext(mcp.WithPrincipal(r.Context(), p)))
		})
	}
	opts.Logger = discardLogger
	c, err := mcp.Connect(t.Context(), newMemTransport(t, served.ServeHTTP, nil), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// Over HTTP+SSE, nothing relates an input request to a call. Once two principals have made calls,
// input requests reach neither of them.
func TestForwardToSSEKeepsPrincipalsApart(t *testing.T) {
	s := mcp.NewServer("s", "1", &mcp.ServerOptions{Logger: discardLogger})
	mcp.AddTool(s, &mcp.Tool{Name: "sample"}, func(ctx context.Context, in struct{ For string }) (string, error) {
		time.Sleep(time.Second)
		res, err := mcp.Sample(ctx, "q", &mcp.CreateMessageParams{MaxTokens: 1, SystemPrompt: in.For,
			Messages: []mcp.SamplingMessage{{Role: mcp.RoleUser, Content: []mcp.ContentBlock{mcp.Text("?")}}}})
		if err != nil {
			return "", err
		}
		return res.Model, nil
	})
	for _, revision := range append([]string{"2026-07-28"}, sessionRevisions...) {
		t.Run(revision, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := mcp.Forward(connectHTTP(t, s, "", &mcp.ClientOptions{Revision: november2024, ForwardInput: true}))
				var mu sync.Mutex
				asked := map[string][]string{}
				callers := map[string]*mcp.Client{}
				for _, name := range []string{"ann", "bob"} {
					callers[name] = connectHTTP(t, h, name, &mcp.ClientOptions{Revision: revision,
						Sample: func(_ context.Context, p *mcp.CreateMessageParams) (*mcp.CreateMessageResult, error) {
							mu.Lock()
							defer mu.Unlock()
							asked[name] = append(asked[name], p.SystemPrompt)
							return &mcp.CreateMessageResult{Model: name, Content: []mcp.ContentBlock{mcp.Text(".")}}, nil
						}})
				}
				sample := func(name string) (string, error) {
					return mcp.CallTool[string](t.Context(), callers[name], "sample", map[string]any{"For": name})
				}
				var calls sync.WaitGroup
				for name := range callers {
					calls.Go(func() {
						if got, err := sample(name); err == nil && got != name {
							t.Errorf("%s got the answer of %s", name, got)
						}
					})
				}
				calls.Wait()
				for name := range callers {
					if got, err := sample(name); err == nil || !strings.Contains(err.Error(), "several users") {
						t.Errorf("%s alone: got %q, %v, want an error that names the reason", name, got, err)
					}
				}
				mu.Lock()
				defer mu.Unlock()
				for name, questions := range asked {
					for _, of := range questions {
						if of != name {
							t.Errorf("%s was asked a question of %s", name, of)
						}
					}
				}
			})
		})
	}
}
