package oauthclient_test

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/oauthtest"
	"github.com/patchbay-mcp/patchbay/oauth/oauthclient"
)

// A failed login is not repeated for each request.
//
// Requirement: AUTHR-37
func TestFailedLoginIsNotRepeatedImmediately(t *testing.T) {
	for name, prepare := range map[string]func(w *testEnv){
		"the server refuses the new token": func(w *testEnv) { w.rs.refuse = true },
		"the token endpoint refuses": func(w *testEnv) {
			w.as.respond = func(url.Values) (int, string) { return http.StatusBadRequest, `{"error":"invalid_target"}` }
		},
		"response of another issuer": func(w *testEnv) {
			w.changeResponse(func(_ *oauthclient.LoginRequest, answer url.Values) (url.Values, error) {
				answer.Set("iss", "https://x.example")
				return answer, nil
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			withEnv(t, func(t *testing.T, w *testEnv) {
				prepare(w)
				tr := w.transport(nil)
				for range 20 {
					if _, _, err := post(tr, t.Context()); err == nil {
						t.Fatal("a request succeeded")
					}
				}
				if n := w.loginCount(); n != 1 {
					t.Errorf("got %d logins for 20 requests, want 1", n)
				}
				time.Sleep(time.Minute)
				_, _, _ = post(tr, t.Context())
				if n := w.loginCount(); n != 2 {
					t.Errorf("got %d logins after a minute, want 2", n)
				}
			})
		})
	}
}

// A server that requires a new scope in each response causes one login.
//
// Requirement: AUTHR-37
func TestDeclinedStepUpIsNotRepeatedForOtherScopes(t *testing.T) {
	withEnv(t, func(t *testing.T, w *testEnv) {
		tr := w.transport(nil)
		w.mustPost(tr)
		n := 0
		w.rs.set(func(r *fakeResource) {
			r.wants = []string{"never"}
			r.challenge = func(int, string) []string {
				n++
				return []string{`Bearer error="insufficient_scope", scope="s` + strconv.Itoa(n) +
					`", resource_metadata="` + r.path + `"`}
			}
		})
		w.changeResponse(func(login *oauthclient.LoginRequest, _ url.Values) (url.Values, error) {
			return url.Values{"error": {"access_denied"}, "state": {login.State}, "iss": {clientIssuer}}, nil
		})
		before := w.loginCount()
		for range 20 {
			_, _, _ = post(tr, t.Context())
		}
		if pages := w.loginCount() - before; pages != 1 {
			t.Errorf("got %d logins for 20 requests after the first was declined, want 1", pages)
		}
	})
}

// The challenge of a 403 may have a scope and no error.
//
// Requirement: AUTHR-33
func TestForbiddenWithScopesAndNoError(t *testing.T) {
	withEnv(t, func(t *testing.T, w *testEnv) {
		tr := w.transport(nil)
		w.mustPost(tr)
		w.rs.set(func(r *fakeResource) {
			r.wants = []string{"write"}
			r.challenge = func(_ int, lacking string) []string {
				return []string{`Bearer resource_metadata="` + r.path + `", scope="` + lacking + `"`}
			}
		})
		w.mustPost(tr)
		if n := w.loginCount(); n != 2 {
			t.Errorf("got %d logins, want 2", n)
		}
		w.rs.set(func(r *fakeResource) {
			r.wants, r.challenge = []string{"other"}, func(int,
				string) []string {
				return []string{`Bearer scope="write"`}
			}
		})
		if status, _, err := post(tr, t.Context()); status != http.StatusForbidden || err != nil ||
			w.loginCount() != 2 {
			t.Errorf("403 for granted scopes: got %d, error %v and %d logins; want 403 and 2", status, err,
				w.loginCount())
		}
	})
}

// A 403 without an error gets no more logins than one with it.
//
// Requirement: AUTHR-37
func TestForbiddenWithGrantedScopesAndNoError(t *testing.T) {
	withoutError := func(w *testEnv, scope func(lacking string) string) {
		w.rs.set(func(r *fakeResource) {
			r.wants = []string{"never"}
			r.challenge = func(_ int, lacking string) []string {
				return []string{`Bearer resource_metadata="` + r.path + `", scope="` + scope(lacking) + `"`}
			}
		})
		w.as.set(func(s *fakeServer) { s.grant = func(string) string { return "read" } })
	}
	t.Run("same scope", func(t *testing.T) {
		withEnv(t, func(t *testing.T, w *testEnv) {
			tr := w.transport(nil)
			w.mustPost(tr)
			withoutError(w, func(lacking string) string { return lacking })
			for range 5 {
				_, _, err := post(tr, t.Context())
				if stepUp, ok := errors.AsType[*oauthclient.StepUpError](err); !ok ||
					strings.Join(stepUp.Scopes, " ") != "never" {
					t.Errorf("got error %v, want a StepUpError for never", err)
				}
			}
			if n := w.loginCount(); n != 2 {
				t.Errorf("got %d logins, want 2", n)
			}
		})
	})
	t.Run("another scope each time", func(t *testing.T) {
		withEnv(t, func(t *testing.T, w *testEnv) {
			tr := w.transport(nil)
			w.mustPost(tr)
			n := 0
			withoutError(w, func(string) string { n++; return "s" + strconv.Itoa(n) })
			_, _, err := post(tr, t.Context())
			if refused, ok := errors.AsType[*oauthclient.AuthorizeError](err); !ok ||
				refused.Status != http.StatusForbidden {
				t.Errorf("got error %v, want an AuthorizeError with status 403", err)
			}
			if n := w.loginCount(); n != 3 {
				t.Errorf("got %d logins, want 3", n)
			}
		})
	})
}

// A hookedStore calls *written once, after tokens have been written and before Update returns.
type hookedStore struct {
	oauthclient.Store
	written atomic.Pointer[func()]
}

func (s *hookedStore) Update(ctx context.Context, key string, change func([]byte) ([]byte, error)) error {
	err := s.Store.Update(ctx, key, change)
	if f := s.written.Load(); f != nil && strings.HasPrefix(key, "tokens ") && s.written.CompareAndSwap(f, nil) {
		(*f)()
	}
	return err
}

func TestLogoutDuringFlow(t *testing.T) {
	withEnv(t, func(t *testing.T, w *testEnv) {
		s := &hookedStore{Store: oauthclient.NewMemoryStore()}
		tr := w.transport(&oauthclient.TransportOptions{Store: s})
		w.as.set(func(as *fakeServer) {
			delete(as.document,
				"revocation_endpoint")
		}) // so that the renewed token stays valid
		w.mustPost(tr)
		time.Sleep(2 * time.Hour)
		logout := func() {
			if err := tr.Logout(t.Context()); err != nil {
				t.Error(err)
			}
		}
		s.written.Store(&logout)
		w.mustPost(tr) // it renews, and the logout happens during the renewal
		w.mustPost(tr)
		if n := w.loginCount(); n != 2 {
			t.Errorf("got %d logins, want 2: the logout must remove the renewed token", n)
		}
	})
}

func TestRenewalDoesNotWaitForLogin(t *testing.T) {
	withEnv(t, func(t *testing.T, w *testEnv) {
		tr := w.transport(nil)
		w.mustPost(tr)
		time.Sleep(time.Hour - 10*time.Second) // valid for ten seconds, and due for renewal
		w.changeResponse(func(*oauthclient.LoginRequest, url.Values) (url.Values, error) {
			time.Sleep(5 * time.Minute)
			return nil, oauthclient.ErrLoginTimeout
		})
		left := make(chan error, 1)
		go func() { left <- tr.Login(t.Context()) }()
		time.Sleep(time.Second)
		begun := time.Now()
		w.mustPost(tr)
		if waited := time.Since(begun); waited > time.Second {
			t.Errorf("the request waited %v for the login", waited)
		}
		if err := <-left; !errors.Is(err, oauthclient.ErrLoginTimeout) {
			t.Errorf("Login: got error %v", err)
		}
	})
}

func TestLogoutWithUnsupportedTokenType(t *testing.T) {
	for _, c := range []struct {
		hint, code string
		succeeds   bool
	}{
		{"access_token", "unsupported_token_type", true},
		{"access_token", "invalid_request", false},
		{"refresh_token", "unsupported_token_type", false}, // it could still be used for new tokens
	} {
		withEnv(t, func(t *testing.T, w *testEnv) {
			tr := w.transport(nil)
			w.mustPost(tr)
			w.Page(clientIssuer+"/revoke", func(rw http.ResponseWriter, r *http.Request) {
				if r.FormValue("token_type_hint") == c.hint {
					rw.Header().Set("Content-Type", "application/json")
					rw.WriteHeader(http.StatusBadRequest)
					_, _ = rw.Write([]byte(`{"error":"` + c.code + `"}`))
				}
			})
			if err := tr.Logout(t.Context()); (err == nil) != c.succeeds {
				t.Errorf("%s for %s: got error %v, want success %t", c.code, c.hint, err, c.succeeds)
			}
		})
	}
}

// Requirement: AUTHB-06
func TestRevisionHeaderOfMetadataRequests(t *testing.T) {
	withEnv(t, func(t *testing.T, w *testEnv) {
		var got string
		document := `{"resource":"` + clientMCP + `","authorization_servers":["` + clientIssuer + `"]}`
		w.Page(w.rs.path, func(rw http.ResponseWriter, r *http.Request) {
			got = r.Header.Get("Mcp-Protocol-Version")
			oauthtest.JSONPage(document)(rw, r)
		})
		tr := w.transport(nil)
		send := func(revision string) {
			t.Helper()
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, clientMCP, strings.NewReader("hello"))
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Mcp-Protocol-Version", revision)
			if res, err := tr.RoundTrip(req); err == nil {
				_ = res.Body.Close()
			}
			if got != revision {
				t.Errorf("got MCP-Protocol-Version %q, want %q", got, revision)
			}
		}
		send("2025-06-18")
		// If tokens cannot be renewed, the metadata is requested again.
		time.Sleep(2 * time.Hour)
		w.as.set(func(s *fakeServer) {
			s.respond = func(url.Values) (int, string) { return http.StatusServiceUnavailable, "" }
		})
		send("2025-11-25")
	})
}
