package oauthclient_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcphttp"
	"github.com/patchbay-mcp/patchbay/oauth/oauthclient"
)

// overHTTP returns an MCP transport to an MCP server at clientMCP that requires tokens. tr returns
// the oauthclient.Transport over a RoundTripper to the server.
func (w *testEnv) overHTTP(t *testing.T, tr func(base http.RoundTripper) *oauthclient.Transport) *mcphttp.Transport {
	t.Helper()
	s := mcp.NewServer("demo", "1.0.0", &mcp.ServerOptions{Logger: discardLog})
	mcp.AddTool(s, &mcp.Tool{Name: "hello"}, func(context.Context, struct{}) (string, error) { return "hello", nil })
	handler := mcphttp.NewHandler(s, &mcphttp.Options{Logger: discardLog})
	base := roundTripper(func(req *http.Request) (*http.Response, error) {
		if _, ok := w.rs.as.check(bearerOf(req), clientMCP); !ok {
			return w.roundTrip(req)
		}
		rec := httptest.NewRecorder()
		served := req.Clone(req.Context())
		served.RemoteAddr, served.Host, served.RequestURI = "192.0.2.1:1", req.URL.Host, "/mcp"
		handler.ServeHTTP(rec, served)
		return rec.Result(), nil
	})
	return mcphttp.NewTransport(clientMCP,
		&mcphttp.TransportOptions{Client: &http.Client{Transport: tr(base)}, Logger: discardLog})
}

func bearerOf(req *http.Request) string {
	const scheme = "Bearer "
	if text := req.Header.Get("Authorization"); len(text) > len(scheme) {
		return text[len(scheme):]
	}
	return ""
}

// After the login, each HTTP request of an MCP client carries the token in its Authorization
// header, in a session or not, and no request has it in its URL.
//
// Requirement: AUTH-02, AUTH-05, AUTH-06
func TestTokenIsSentInTheHeaderOfEveryRequest(t *testing.T) {
	for revision, minRequests := range map[string]int{
		"2025-03-26": 5, "2025-06-18": 5, "2025-11-25": 5, "2026-07-28": 3,
	} {
		t.Run(revision, func(t *testing.T) {
			withEnv(t, func(t *testing.T, w *testEnv) {
				var mu sync.Mutex
				var requests []*http.Request
				transport := w.overHTTP(t, func(base http.RoundTripper) *oauthclient.Transport {
					return oauthclient.NewTransport(clientMCP, &oauthclient.TransportOptions{
						Base: roundTripper(func(req *http.Request) (*http.Response, error) {
							mu.Lock()
							requests = append(requests, req.Clone(context.WithoutCancel(req.Context())))
							mu.Unlock()
							return base.RoundTrip(req)
						}),
						Fetcher: w.fetcher(nil), Logger: discardLog,
						Authorizer: oauthclient.NewAuthorizer(clientRedirect, w.login),
					})
				})
				c, err := mcp.Connect(t.Context(), transport,
					&mcp.ClientOptions{Revision: revision, Logger: discardLog})
				if err != nil {
					t.Fatal(err)
				}
				for range 2 {
					if _, err := c.CallTool(t.Context(), "hello", nil); err != nil {
						t.Error(err)
					}
				}
				if err := c.Close(); err != nil {
					t.Error(err)
				}
				if err := transport.Close(); err != nil {
					t.Error(err)
				}
				mu.Lock()
				defer mu.Unlock()
				token := bearerOf(requests[len(requests)-1])
				if token == "" || len(requests) < 1+minRequests {
					t.Fatalf("got %d requests, the last with the token %q; want a token and at least %d requests",
						len(requests), token, 1+minRequests)
				}
				for i, req := range requests {
					if got := bearerOf(req); i > 0 && got != token {
						t.Errorf("request %d, %s: got token %q, want %q", i, req.Method, got, token)
					}
					if strings.Contains(req.URL.String(), token) || req.URL.RawQuery != "" {
						t.Errorf("request %d, %s: got URL %s, want no query", i, req.Method, req.URL)
					}
				}
			})
		})
	}
}

// A login takes longer than the client's timeout.
func TestTimeoutsAreSuspendedDuringLogin(t *testing.T) {
	withEnv(t, func(t *testing.T, w *testEnv) {
		slow := oauthclient.NewAuthorizer(clientRedirect,
			func(ctx context.Context, login *oauthclient.LoginRequest) (url.Values, error) {
				select {
				case <-time.After(4 * time.Minute):
					return w.login(ctx, login)
				case <-ctx.Done():
					return nil, context.Cause(ctx)
				}
			})
		transport := w.overHTTP(t, func(base http.RoundTripper) *oauthclient.Transport {
			return oauthclient.NewTransport(clientMCP, &oauthclient.TransportOptions{
				Base: base, Fetcher: w.fetcher(nil), Logger: discardLog, Authorizer: slow,
			})
		})
		defer transport.Close()
		c, err := mcp.Connect(t.Context(), transport, &mcp.ClientOptions{Timeout: 5 * time.Second, Logger: discardLog})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		w.as.forgetAll()
		w.as.set(func(s *fakeServer) { s.noRefresh = true })
		done := make(chan error)
		for i := range 2 {
			go func() {
				time.Sleep(time.Duration(i) * time.Minute) // the second call joins the login of the first
				_, err := c.CallTool(t.Context(), "hello", nil)
				done <- err
			}()
		}
		for range 2 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		if w.loginCount() != 2 {
			t.Errorf("got %d logins, want 2", w.loginCount())
		}
	})
}

func TestUnauthorizedRequestsCannotHaveRun(t *testing.T) {
	withEnv(t, func(t *testing.T, w *testEnv) {
		transport := w.overHTTP(t, func(base http.RoundTripper) *oauthclient.Transport {
			return oauthclient.NewTransport(clientMCP,
				&oauthclient.TransportOptions{Base: base, Fetcher: w.fetcher(nil), Logger: discardLog})
		})
		defer transport.Close()
		_, err := mcp.Connect(t.Context(), transport, &mcp.ClientOptions{Logger: discardLog})
		transportErr, ok := errors.AsType[*mcp.TransportError](err)
		if !ok || transportErr.MayHaveRun || !errors.Is(err, oauthclient.ErrLoginRequired) {
			t.Errorf("got error %v, want ErrLoginRequired in a TransportError without MayHaveRun", err)
		}
		synctest.Wait()
	})
}
