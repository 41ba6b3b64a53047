package oauthclient_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/oauth/oauthclient"
)

// withEnv calls f with a new testEnv in a synctest bubble. A token sent to another URL fails the
// test.
func withEnv(t *testing.T, f func(t *testing.T, w *testEnv)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newTestEnv(t)
		f(t, w)
		if len(w.leaks) > 0 {
			t.Errorf("tokens were sent to %v", w.leaks)
		}
	})
}

func TestLoginOnUnauthorized(t *testing.T) {
	withEnv(t, func(t *testing.T, w *testEnv) {
		tr := w.transport(nil)
		w.mustPost(tr)
		w.mustPost(tr)
		if w.loginCount() != 1 || w.as.count("register") != 1 || w.as.count("authorization_code") != 1 {
			t.Errorf("got %d logins for two requests, want 1", w.loginCount())
		}
		if n := w.rs.requests; n != 3 {
			t.Errorf("got %d requests to the server, want 3", n)
		}
	})
}

// Requirement: AUTH-01
func TestServerWithoutAuthorizationNeedsNoLogin(t *testing.T) {
	withEnv(t, func(t *testing.T, w *testEnv) {
		tr := oauthclient.NewTransport(clientMCP, &oauthclient.TransportOptions{
			Base: roundTripper(func(req *http.Request) (*http.Response, error) {
				if got := req.Header.Get("Authorization"); got != "" {
					t.Errorf("got Authorization %q, want none", got)
				}
				return &http.Response{StatusCode: http.StatusOK, Body: req.Body, Request: req}, nil
			}),
			Fetcher: w.fetcher(nil), Authorizer: oauthclient.NewAuthorizer(clientRedirect, w.login),
		})
		w.mustPost(tr)
		if asked := w.Requests(); len(asked) > 0 || w.loginCount() != 0 {
			t.Errorf("requested %v and logged in %d times, want neither", asked, w.loginCount())
		}
	})
}

func TestTokensAreStoredByServer(t *testing.T) {
	withEnv(t, func(t *testing.T, w *testEnv) {
		store := oauthclient.NewMemoryStore()
		w.mustPost(w.transport(&oauthclient.TransportOptions{Store: store}))
		w.mustPost(w.unattended(store))
		other := oauthclient.NewTransport("https://mcp.example/other", &oauthclient.TransportOptions{
			Base: roundTripper(w.roundTrip), Store: store, Fetcher: w.fetcher(nil),
		})
		_, _, err := send(other, t.Context(), "https://mcp.example/other")
		if !errors.Is(err, oauthclient.ErrLoginRequired) {
			t.Errorf("another server: got error %v, want ErrLoginRequired", err)
		}
	})
}

func TestConcurrentRequestsShareLogin(t *testing.T) {
	withEnv(t, func(t *testing.T, w *testEnv) {
		tr := w.transport(&oauthclient.TransportOptions{Authorizer: oauthclient.NewAuthorizer(clientRedirect,
			func(ctx context.Context, login *oauthclient.LoginRequest) (url.Values, error) {
				time.Sleep(time.Minute) // the user
				return w.login(ctx, login)
			})})
		var requests sync.WaitGroup
		for range 100 {
			requests.Go(func() {
				if status, _, err := post(tr, t.Context()); status != http.StatusOK {
					t.Errorf("got %d, error %v; want 200", status, err)
				}
			})
		}
		requests.Wait()
		if w.loginCount() != 1 || w.as.count("register") != 1 {
			t.Errorf("got %d logins, want 1", w.loginCount())
		}
	})
}

func TestCancelledWaiterDoesNotEndLogin(t *testing.T) {
	withEnv(t, func(t *testing.T, w *testEnv) {
		tr := w.transport(&oauthclient.TransportOptions{Authorizer: oauthclient.NewAuthorizer(clientRedirect,
			func(ctx context.Context, login *oauthclient.LoginRequest) (url.Values, error) {
				time.Sleep(time.Minute)
				if ctx.Err() != nil {
					return nil, ctx.Err()
				}
				return w.login(ctx, login)
			})})
		first, cancel := context.WithCancelCause(t.Context())
		gaveUp := errors.New("gave up")
		var requests sync.WaitGroup
		requests.Go(func() {
			if _, _, err := post(tr, first); !errors.Is(err, gaveUp) {
				t.Errorf("cancelled request: got error %v, want %v", err, gaveUp)
			}
		})
		synctest.Wait()
		requests.Go(func() {
			if status, _, err := post(tr, t.Context()); status != http.StatusOK {
				t.Errorf("waiting request: got %d, error %v; want 200", status, err)
			}
		})
		synctest.Wait()
		cancel(gaveUp)
		requests.Wait()
	})
}

func TestLoginIsCancelledWithoutWaiters(t *testing.T) {
	withEnv(t, func(t *testing.T, w *testEnv) {
		var ended atomic.Bool
		tr := w.transport(&oauthclient.TransportOptions{Authorizer: oauthclient.NewAuthorizer(clientRedirect,
			func(ctx context.Context, _ *oauthclient.LoginRequest) (url.Values, error) {
				<-ctx.Done()
				ended.Store(true)
				return nil, context.Cause(ctx)
			})})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, _, err := post(tr, ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got error %v, want DeadlineExceeded", err)
		}
		synctest.Wait()
		if !ended.Load() {
			t.Error("the login continues without a waiting request")
		}
	})
}

func TestRefusedAfterLogin(t *testing.T) {
	withEnv(t, func(t *testing.T, w *testEnv) {
		w.rs.refuse = true
		_, _, err := post(w.transport(nil), t.Context())
		refused, ok := errors.AsType[*oauthclient.AuthorizeError](err)
		if !ok || refused.Status != http.StatusUnauthorized || w.loginCount() != 1 || w.rs.requests != 2 ||
			w.as.count("refresh_token") != 0 {
			t.Errorf("got error %v after %d logins and %d requests, want an AuthorizeError", err, w.loginCount(),
				w.rs.requests)
		}
	})
}

// After a renewed token is refused too, the client logs in again, once.
func TestRefusedAfterRenewal(t *testing.T) {
	withEnv(t, func(t *testing.T, w *testEnv) {
		tr := w.transport(nil)
		w.mustPost(tr)
		w.rs.set(func(r *fakeResource) { r.refuse, r.requests = true, 0 })
		_, _, err := post(tr, t.Context())
		if _, ok := errors.AsType[*oauthclient.AuthorizeError](err); !ok || w.loginCount() != 2 ||
			w.rs.requests != 3 || w.as.count("refresh_token") != 1 {
			t.Errorf("got error %v after %d logins and %d requests, want an AuthorizeError", err, w.loginCount(),
				w.rs.requests)
		}
	})
}

// A Transport with a token sends it to no other URL, also after a redirect.
func TestTokensAreNotSentToOtherURLs(t *testing.T) {
	withEnv(t, func(t *testing.T, w *testEnv) {
		tr := w.transport(nil)
		w.mustPost(tr)
		for _, target := range []string{
			"https://evil.example/mcp", "https://mcp.example:8443/mcp", "http://mcp.example:80/mcp",
			"https://mcp.example/other",
			"https://mcp.example/mcp2", "https://mcp.example/", "https://mcp.example/mcp/../other",
			"https://mcp.example/mcp/%2e%2E/other",
			"https://mcp.example.evil.example/mcp",
		} {
			if status, _, err := send(tr, t.Context(), target); status != http.StatusUnauthorized {
				t.Errorf("%s: got %d, error %v; want 401", target, status, err)
			}
		}
		w.rs.set(func(r *fakeResource) { r.redirect = "https://evil.example/mcp" })
		req, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, clientMCP, strings.NewReader("x"))
		hops := 0
		client := &http.Client{Transport: tr, CheckRedirect: func(*http.Request, []*http.Request) error {
			w.rs.set(func(r *fakeResource) { r.redirect = "" })
			hops++
			return nil
		}}
		res, err := client.Do(req)
		if err != nil || res.StatusCode != http.StatusUnauthorized || hops != 1 {
			t.Errorf("after a redirect: got %v, error %v; want 401", res, err)
		}
		if res != nil {
			_ = res.Body.Close()
		}
	})
}

func TestTokenForPathsOfResource(t *testing.T) {
	withEnv(t, func(t *testing.T, w *testEnv) {
		tr := w.transport(nil)
		w.mustPost(tr)
		if status, _, err := send(tr, t.Context(), clientMCP+"/message"); status != http.StatusOK {
			t.Errorf("below the resource: got %d, error %v; want 200", status, err)
		}
		whole := w.transport(&oauthclient.TransportOptions{WholeOrigin: true})
		if status, _, err := send(whole, t.Context(), "https://mcp.example/message"); status != http.StatusOK {
			t.Errorf("WholeOrigin: got %d, error %v; want 200", status, err)
		}
		w.leaks = nil // intended with WholeOrigin
	})
}

func TestNoTokenOverPlainHTTP(t *testing.T) {
	for endpoint, local := range map[string]bool{
		"http://mcp.example/mcp": false, "http://10.0.0.1/mcp": false, "http://127.0.0.1.evil.example/mcp": false,
		"http://127.0.0.1:8080/mcp": true, "http://localhost:8080/mcp": true, "http://[::1]:8080/mcp": true,
	} {
		for _, insecure := range []bool{false, true} {
			base := roundTripper(func(*http.Request) (*http.Response, error) {
				return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
			})
			tr := oauthclient.NewTransport(endpoint, &oauthclient.TransportOptions{Base: base, InsecureHTTP: insecure})
			if _, _, err := send(tr, t.Context(), endpoint); (err == nil) != (local || insecure) {
				t.Errorf("%s, InsecureHTTP %t: got error %v, want success %t", endpoint, insecure, err, local ||
					insecure)
			}
		}
	}
}

func TestLoginRequiredWithoutAuthorizer(t *testing.T) {
	withEnv(t, func(t *testing.T, w *testEnv) {
		w.rs.wants = []string{"read"}
		_, _, err := post(w.unattended(nil), t.Context())
		wanted, ok := errors.AsType[*oauthclient.LoginRequiredError](err)
		if !ok || !errors.Is(err, oauthclient.ErrLoginRequired) || wanted.Endpoint != clientMCP ||
			strings.Join(wanted.Scopes, " ") != "read" {
			t.Errorf("got error %v, want a LoginRequiredError for the scope read", err)
		}
		if asked := w.Requests(); len(asked) > 0 {
			t.Errorf("requested %v, want no requests without an Authorizer", asked)
		}
	})
}

func TestRefusalsOfOtherSchemes(t *testing.T) {
	for name, c := range map[string]struct {
		status    int
		challenge []string
	}{
		"Basic":               {401, []string{`Basic realm="x"`}},
		"forbidden":           {403, nil},
		"forbidden by policy": {403, []string{`Bearer error="access_denied"`}},
		"scope not named":     {403, []string{`Bearer error="insufficient_scope"`}},
		"invalid scope":       {403, []string{`Bearer error="insufficient_scope", scope="\"` + "\x01" + `"`}},
	} {
		t.Run(name, func(t *testing.T) {
			withEnv(t, func(t *testing.T, w *testEnv) {
				w.rs.challenge = func(int, string) []string { return c.challenge }
				tr := oauthclient.NewTransport(clientMCP,
					&oauthclient.TransportOptions{Base: roundTripper(func(req *http.Request) (*http.Response, error) {
						res, err := w.roundTrip(req)
						res.StatusCode = c.status
						return res, err
					}), Authorizer: oauthclient.NewAuthorizer(clientRedirect, w.login), Fetcher: w.fetcher(nil)})
				if status, _, err := post(tr, t.Context()); status != c.status || w.loginCount() != 0 {
					t.Errorf("got %d, error %v after %d logins; want %d after 0", status, err, w.loginCount(), c.status)
				}
			})
		})
	}
}

// Requirement: AUTH-15
func TestRequestWithAuthorizationIsUnchanged(t *testing.T) {
	withEnv(t, func(t *testing.T, w *testEnv) {
		req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, clientMCP, nil)
		req.Header.Set("Authorization", "Bearer mine")
		res, err := w.transport(nil).RoundTrip(req)
		if err != nil || res.StatusCode != http.StatusUnauthorized || w.loginCount() != 0 {
			t.Errorf("got %v, error %v; want 401 without a login", res, err)
		}
	})
}

// A body without GetBody cannot be sent again after the login.
func TestRequestBodyIsSentAgain(t *testing.T) {
	withEnv(t, func(t *testing.T, w *testEnv) {
		tr := w.transport(nil)
		body := &onceBody{Reader: strings.NewReader("hello")}
		req, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, clientMCP, body)
		if _, err := tr.RoundTrip(req); err == nil || !strings.Contains(err.Error(), "GetBody") {
			t.Errorf("body without GetBody: got error %v, want one about GetBody", err)
		}
		if !body.closed {
			t.Error("the body was not closed")
		}
		w.mustPost(tr) // the login has succeeded
		if w.loginCount() != 1 {
			t.Errorf("got %d logins, want 1", w.loginCount())
		}
	})
}

type onceBody struct {
	io.Reader
	closed bool
}

func (b *onceBody) Close() error {
	b.closed = true
	return nil
}

func TestRequestIsNotModified(t *testing.T) {
	withEnv(t, func(t *testing.T, w *testEnv) {
		req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, clientMCP, nil)
		req.Header.Set("X-Mine", "1")
		res, err := w.transport(nil).RoundTrip(req)
		if err != nil || res.StatusCode != http.StatusOK || len(req.Header) != 1 {
			t.Errorf("got request header %v, error %v; want it unchanged", req.Header, err)
		}
	})
}

func TestDeclinedLoginIsNotRepeatedImmediately(t *testing.T) {
	withEnv(t, func(t *testing.T, w *testEnv) {
		tr := w.transport(nil)
		w.changeResponse(func(_ *oauthclient.LoginRequest, answer url.Values) (url.Values, error) {
			return url.Values{"error": {"access_denied"}, "state": answer["state"], "iss": answer["iss"]}, nil
		})
		for range 5 {
			_, _, err := post(tr, t.Context())
			if refused, ok := errors.AsType[*oauthclient.LoginError](err); !ok || refused.Code != "access_denied" {
				t.Fatalf("got error %v, want access_denied", err)
			}
		}
		if w.loginCount() != 1 {
			t.Errorf("got %d logins after the user declined, want 1", w.loginCount())
		}
		w.changeResponse(nil)
		if err := tr.Login(t.Context()); err != nil || w.loginCount() != 2 {
			t.Errorf("Login: got error %v, want a second login", err)
		}
		w.as.forgetAll()
		w.changeResponse(func(*oauthclient.LoginRequest, url.Values) (url.Values, error) {
			return nil, oauthclient.ErrLoginTimeout
		})
		_, _, _ = post(tr, t.Context())
		w.changeResponse(nil)
		time.Sleep(31 * time.Second)
		w.mustPost(tr)
	})
}

// Some servers answer 401 if they have lost the session. If the server has just accepted the same token, this starts no
// login, and the caller opens a new session. A token that the server calls invalid is replaced.
func TestRefusalOfASessionStartsNoLogin(t *testing.T) {
	withEnv(t, func(t *testing.T, w *testEnv) {
		tr := w.transport(nil)
		w.mustPost(tr)
		inSession := func() (int, error) {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, clientMCP, strings.NewReader("x"))
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Mcp-Session-Id", "lost")
			res, err := tr.RoundTrip(req)
			if err != nil {
				return 0, err
			}
			defer res.Body.Close()
			return res.StatusCode, nil
		}
		w.rs.set(func(r *fakeResource) { r.refuse = true })
		for range 2 { // a request, and the ping that asks whether the session exists
			if status, err := inSession(); err != nil || status != http.StatusUnauthorized {
				t.Errorf("in the lost session: got %d, error %v; want the 401", status, err)
			}
		}
		w.rs.set(func(r *fakeResource) { r.refuse = false })
		w.mustPost(tr)
		if w.loginCount() != 1 || w.as.count("refresh_token") != 0 {
			t.Errorf("%d logins and %d refreshes, want 1 and 0", w.loginCount(), w.as.count("refresh_token"))
		}
		refused := 0
		w.rs.set(func(r *fakeResource) {
			r.refuse = true
			r.challenge = func(int, string) []string {
				refused++
				return []string{`Bearer error="invalid_token"`}
			}
		})
		if _, err := inSession(); err == nil || w.as.count("refresh_token") != 1 {
			t.Errorf("an invalid token: error %v after %d refusals and %d refreshes, want a refresh", err, refused,
				w.as.count("refresh_token"))
		}
	})
}
