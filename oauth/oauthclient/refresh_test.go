package oauthclient_test

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/oauth/oauthclient"
)

func TestExpiredTokensAreRenewedFirst(t *testing.T) {
	withEnv(t, func(t *testing.T, w *testEnv) {
		tr := w.transport(nil)
		w.mustPost(tr)
		for _, pause := range []time.Duration{3600 * time.Second, 3571 * time.Second} { // expired; expires soon
			w.rs.requests = 0
			time.Sleep(pause)
			w.mustPost(tr)
			if n := w.as.count("refresh_token"); n != 1 || w.rs.requests != 1 {
				t.Errorf("after %v: got %d renewals and %d requests, want 1 and 1", pause, n, w.rs.requests)
			}
		}
		time.Sleep(3569 * time.Second)
		w.mustPost(tr)
		if n := w.as.count("refresh_token"); n != 0 || w.loginCount() != 1 {
			t.Errorf("30 seconds before expiry: got %d renewals and %d logins, want 0 and 1", n, w.loginCount())
		}
	})
}

func TestShortLivedTokensAreNotRenewedEarly(t *testing.T) {
	withEnv(t, func(t *testing.T, w *testEnv) {
		w.as.lifetime = 20
		tr := w.transport(nil)
		w.mustPost(tr)
		w.mustPost(tr)
		if n := w.as.count("refresh_token"); n != 0 {
			t.Errorf("got %d renewals, want 0", n)
		}
	})
}

func TestRenewalIsSharedByGoroutines(t *testing.T) {
	withEnv(t, func(t *testing.T, w *testEnv) {
		tr := w.transport(nil)
		w.mustPost(tr)
		w.as.revokeAccess() // before the client knows
		var requests sync.WaitGroup
		for range 100 {
			requests.Go(func() {
				if status, _, err := post(tr, t.Context()); status != http.StatusOK {
					t.Errorf("got %d, error %v; want 200", status, err)
				}
			})
		}
		requests.Wait()
		if n := w.as.count("refresh_token"); n != 1 || w.loginCount() != 1 {
			t.Errorf("got %d renewals and %d logins, want 1 and 1", n, w.loginCount())
		}
	})
}

// Transports that share only a store make one renewal.
func TestRenewalIsSharedByProcesses(t *testing.T) {
	withEnv(t, func(t *testing.T, w *testEnv) {
		store := oauthclient.NewMemoryStore()
		var all []*oauthclient.Transport
		for range 8 {
			all = append(all, w.transport(&oauthclient.TransportOptions{Store: store}))
			w.mustPost(all[len(all)-1])
		}
		time.Sleep(time.Hour)
		var requests sync.WaitGroup
		for _, tr := range all {
			requests.Go(func() {
				if status, _, err := post(tr, t.Context()); status != http.StatusOK {
					t.Errorf("got %d, error %v; want 200", status, err)
				}
			})
		}
		requests.Wait()
		if n := w.as.count("refresh_token"); n != 1 || w.loginCount() != 1 {
			t.Errorf("got %d renewals and %d logins, want 1 and 1", n, w.loginCount())
		}
	})
}

func TestRenewedByAnotherProcess(t *testing.T) {
	withEnv(t, func(t *testing.T, w *testEnv) {
		store := oauthclient.NewMemoryStore()
		one, two := w.transport(&oauthclient.TransportOptions{Store: store}), w.unattended(store)
		w.mustPost(one)
		w.mustPost(two)
		w.as.revokeAccess()
		w.mustPost(one)
		w.mustPost(two) // it is refused and loads the other one's token
		if n := w.as.count("refresh_token"); n != 1 {
			t.Errorf("got %d renewals, want 1", n)
		}
	})
}

func TestLoginAfterRefusedRefresh(t *testing.T) {
	for _, code := range []string{"invalid_grant", "bad_refresh_token", "unauthorized_client"} {
		t.Run(code, func(t *testing.T) {
			withEnv(t, func(t *testing.T, w *testEnv) {
				store := oauthclient.NewMemoryStore()
				tr := w.transport(&oauthclient.TransportOptions{Store: store})
				w.mustPost(tr)
				w.as.forgetAll()
				w.as.set(func(s *fakeServer) {
					s.respond = func(form url.Values) (int, string) {
						if form.Get("grant_type") == "refresh_token" {
							return http.StatusBadRequest, `{"error":"` + code + `"}`
						}
						return 0, ""
					}
				})
				unattended := w.unattended(store)
				if _, _, err := post(unattended, t.Context()); !errors.Is(err, oauthclient.ErrLoginRequired) {
					t.Errorf("without an Authorizer: got error %v, want ErrLoginRequired", err)
				}
				if s, err := unattended.Status(t.Context()); s != nil || err != nil {
					t.Errorf("got status %v, error %v; want no tokens", s, err)
				}
				w.mustPost(tr)
				if w.loginCount() != 2 {
					t.Errorf("got %d logins, want 2", w.loginCount())
				}
			})
		})
	}
}

func TestFailedRenewalKeepsTheTokens(t *testing.T) {
	for name, respond := range map[string]func(url.Values) (int, string){
		"unavailable":  func(url.Values) (int, string) { return 503, "" },
		"server error": func(url.Values) (int, string) { return 500, `{"error":"invalid_grant"}` },
		"temporary":    func(url.Values) (int, string) { return 400, `{"error":"temporarily_unavailable"}` },
		"not found":    func(url.Values) (int, string) { return 404, "<html>" },
		"malformed":    func(url.Values) (int, string) { return 200, `{"access_token":` },
	} {
		t.Run(name, func(t *testing.T) {
			withEnv(t, func(t *testing.T, w *testEnv) {
				tr := w.transport(nil)
				w.mustPost(tr)
				w.as.set(func(s *fakeServer) { s.respond = respond })
				time.Sleep(3580 * time.Second)
				w.mustPost(tr) // the token is valid for another 20 seconds
				time.Sleep(20 * time.Second)
				if _, _, err := post(tr, t.Context()); err == nil {
					t.Error("got no error")
				}
				w.as.set(func(s *fakeServer) { s.respond = nil })
				w.mustPost(tr)
				if w.loginCount() != 1 {
					t.Errorf("got %d logins, want 1", w.loginCount())
				}
			})
		})
	}
}

// Errors that do not come from the token endpoint, or are temporary, do not end the grant.
func TestTemporaryRefreshErrors(t *testing.T) {
	for name, c := range map[string]struct {
		status int
		code   string
		kept   bool
	}{
		"too many":            {429, "too_many_requests", true},
		"not found":           {404, "Not Found", true},
		"a firewall":          {403, "Forbidden", true},
		"timeout":             {408, "request_timeout", true},
		"status 200, unknown": {200, "internal_error", true},
		"bad gateway":         {502, "invalid_grant", true},
		"status 200, refused": {200, "bad_refresh_token", false},
		"forbidden, refused":  {403, "invalid_grant", false},
		"unauthorized":        {401, "invalid_client", false},
	} {
		t.Run(name, func(t *testing.T) {
			withEnv(t, func(t *testing.T, w *testEnv) {
				store := oauthclient.NewMemoryStore()
				w.mustPost(w.transport(&oauthclient.TransportOptions{Store: store}))
				tr := w.unattended(store)
				w.as.set(func(s *fakeServer) {
					s.respond = func(url.Values) (int, string) { return c.status, `{"error":"` + c.code + `"}` }
				})
				time.Sleep(time.Hour)
				if _, _, err := post(tr, t.Context()); err == nil {
					t.Error("got no error")
				}
				w.as.set(func(s *fakeServer) { s.respond = nil })
				if _, _, err := post(tr, t.Context()); (err == nil) != c.kept {
					t.Errorf("next request: got error %v, want success %t", err, c.kept)
				}
			})
		})
	}
}

// Cancelling a request does not cancel the renewal, whose response has the only refresh token.
func TestRenewalIsNotCancelled(t *testing.T) {
	withEnv(t, func(t *testing.T, w *testEnv) {
		tr := w.transport(nil)
		w.mustPost(tr)
		time.Sleep(time.Hour)
		w.as.set(func(s *fakeServer) { s.delay = 5 * time.Second })
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, _, err := post(tr, ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got error %v, want DeadlineExceeded", err)
		}
		w.mustPost(tr)
		if n := w.as.count("refresh_token"); n != 1 || w.loginCount() != 1 {
			t.Errorf("got %d renewals and %d logins, want 1 and 1", n, w.loginCount())
		}
	})
}

func TestRefreshResponseWithoutRefreshToken(t *testing.T) {
	withEnv(t, func(t *testing.T, w *testEnv) {
		tr := w.transport(nil)
		w.mustPost(tr)
		w.as.set(func(s *fakeServer) { s.noRefresh, s.rotates, s.noScope = true, false, true })
		for range 3 {
			time.Sleep(time.Hour)
			w.mustPost(tr)
		}
		if n := w.as.count("refresh_token"); n != 3 || w.loginCount() != 1 {
			t.Errorf("got %d renewals and %d logins, want 3 and 1", n, w.loginCount())
		}
	})
}

// Requirement: AUTHR-39
func TestNoRefreshToken(t *testing.T) {
	withEnv(t, func(t *testing.T, w *testEnv) {
		w.as.noRefresh = true
		tr := w.transport(nil)
		w.mustPost(tr)
		time.Sleep(time.Hour)
		w.mustPost(tr)
		if w.loginCount() != 2 {
			t.Errorf("got %d logins, want 2", w.loginCount())
		}
	})
}

// Requirement: REG-15
func TestAuthorizationServerChanges(t *testing.T) {
	for name, isDown := range map[string]bool{"first server up": false, "first server down": true} {
		t.Run(name, func(t *testing.T) {
			withEnv(t, func(t *testing.T, w *testEnv) {
				tr := w.transport(nil)
				w.mustPost(tr)
				other := w.newServer(otherIssuer)
				w.rs.moveTo(other)
				if isDown {
					w.as.set(func(s *fakeServer) { s.respond = func(url.Values) (int, string) { return 503, "" } })
				}
				w.mustPost(tr)
				if other.count("register") != 1 || other.count("authorization_code") != 1 ||
					other.count("refresh_token") != 0 {
					t.Error("want one registration and one login at the second authorization server, and no renewal")
				}
				s, err := tr.Status(t.Context())
				if err != nil || s == nil || s.Issuer != otherIssuer {
					t.Errorf("got status %+v, error %v; want the issuer %s", s, err, otherIssuer)
				}
				w.mustPost(tr)
				time.Sleep(time.Hour)
				w.mustPost(tr)
				if other.count("refresh_token") != 1 || w.loginCount() != 2 {
					t.Errorf("got %d logins, want 2 and a renewal at the second authorization server", w.loginCount())
				}
			})
		})
	}
}

// The MCP server moves to another authorization server and back.
//
// Requirement: HOST-35, REG-16, AUTHR-19
func TestRegistrationsAndTokensAreKeptByIssuer(t *testing.T) {
	withEnv(t, func(t *testing.T, w *testEnv) {
		store := &recordingStore{oauthclient.NewMemoryStore(), map[string]bool{}}
		tr := w.transport(&oauthclient.TransportOptions{Store: store})
		other := w.newServer(otherIssuer)
		for i, as := range []*fakeServer{w.as, other, w.as} {
			if i > 0 {
				w.rs.moveTo(as)
			}
			w.mustPost(tr)
			w.rs.set(func(r *fakeResource) { r.received = nil })
			w.mustPost(tr)
			issuer := strings.TrimPrefix(as.issuer, "https://")
			if got := as.last.Get("client_id"); !strings.HasSuffix(got, "-of-"+issuer) {
				t.Errorf("login at %s: got client id %q, want one registered there", as.issuer, got)
			}
			for _, token := range w.rs.received {
				if !strings.HasSuffix(token, "-of-"+issuer) {
					t.Errorf("the server of %s received the token %q of another issuer", as.issuer, token)
				}
			}
			if n, want := as.count("register"), []int{1, 1, 0}[i]; n != want {
				t.Errorf("step %d: got %d registrations at %s, want %d", i, n, as.issuer, want)
			}
		}
		for _, issuer := range []string{clientIssuer, otherIssuer} {
			if !slices.ContainsFunc(slices.Collect(maps.Keys(store.keys)), func(key string) bool {
				return strings.HasPrefix(key, "client ") && strings.Contains(key, issuer)
			}) {
				t.Errorf("got store keys %v, want a registration of %s", store.keys, issuer)
			}
		}
	})
}

// The server's metadata does not mention the resource parameter.
//
// Requirement: AUTHR-14
func TestResourceParameterInEveryRequest(t *testing.T) {
	withEnv(t, func(t *testing.T, w *testEnv) {
		got := map[string]string{}
		w.as.respond = func(form url.Values) (int, string) {
			got[form.Get("grant_type")] = form.Get("resource")
			return 0, ""
		}
		tr := w.transport(nil)
		w.mustPost(tr)
		time.Sleep(time.Hour)
		w.mustPost(tr)
		got["login"] = w.as.last.Get("resource")
		want := map[string]string{"login": clientMCP, "authorization_code": clientMCP, "refresh_token": clientMCP}
		if !maps.Equal(got, want) {
			t.Errorf("got resource parameters %v, want %v", got, want)
		}
	})
}

func TestAuthorizationServerMovedWhileTokensExpired(t *testing.T) {
	withEnv(t, func(t *testing.T, w *testEnv) {
		tr := w.transport(nil)
		w.mustPost(tr)
		time.Sleep(time.Hour)
		w.rs.moveTo(w.newServer(otherIssuer))
		w.as.set(func(s *fakeServer) { s.respond = func(url.Values) (int, string) { return 503, "" } })
		w.mustPost(tr)
	})
}

// A renewed token that the server accepted and then revoked is renewed again, also by a request that sends
// it for the first time after the revocation. Only a new token that the server never accepted needs a login.
func TestRenewedTokenIsRevokedBeforeASecondRequestSendsIt(t *testing.T) {
	withEnv(t, func(t *testing.T, w *testEnv) {
		var late sync.WaitGroup
		second := make(chan struct{})
		tr := oauthclient.NewTransport(clientMCP, &oauthclient.TransportOptions{
			Base: roundTripper(func(req *http.Request) (*http.Response, error) {
				if req.Header.Get("X-Late") != "" && req.Header.Get("Authorization") != "Bearer "+w.rs.firstToken() {
					<-second
				}
				return w.roundTrip(req)
			}),
			Fetcher: w.fetcher(nil), Logger: slog.New(slog.DiscardHandler),
			Authorizer: oauthclient.NewAuthorizer(clientRedirect, w.login),
		})
		w.mustPost(tr)
		w.as.revokeAccess()
		w.as.delay = time.Second // both requests wait for one renewal
		late.Go(func() {
			req, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, clientMCP, strings.NewReader("hello"))
			req.Header.Set("X-Late", "yes")
			res, err := tr.RoundTrip(req)
			if err != nil || res.StatusCode != http.StatusOK {
				t.Errorf("the late request: got %v, error %v; want 200", res, err)
			}
		})
		w.mustPost(tr)
		w.as.revokeAccess()
		close(second)
		late.Wait()
		if n := w.as.count("refresh_token"); n != 2 || w.loginCount() != 1 {
			t.Errorf("got %d renewals and %d logins, want 2 and 1", n, w.loginCount())
		}
	})
}
