package oauthclient_test

import (
	"errors"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/oauth/oauthclient"
)

// machineTransport returns a Transport with client credentials to a server that requires the scope read.
func (w *testEnv) machineTransport(store oauthclient.Store) *oauthclient.Transport {
	w.as.set(func(s *fakeServer) {
		s.clients["machine"], s.method = "s3cret", "client_secret_basic"
		s.document["token_endpoint_auth_methods_supported"] = []string{"client_secret_basic"}
	})
	w.rs.set(func(r *fakeResource) { r.wants = []string{"read"} })
	return w.transport(&oauthclient.TransportOptions{
		Store: store, Grant: oauthclient.NewClientCredentialsGrant(),
		Client: oauthclient.Identity{ID: "machine", Secret: "s3cret", Issuer: clientIssuer},
	})
}

// counts returns the numbers of token requests and of requests to the server since the last call.
func (w *testEnv) counts() (tokens, requests int) {
	w.rs.set(func(r *fakeResource) { requests, r.requests = r.requests, 0 })
	return w.as.count("client_credentials"), requests
}

func TestGrantRenewsBeforeExpiry(t *testing.T) {
	withEnv(t, func(t *testing.T, w *testEnv) {
		store := oauthclient.NewMemoryStore()
		w.mustPost(w.machineTransport(store))
		tr := w.machineTransport(store) // has not seen a challenge
		w.counts()
		for _, c := range []struct {
			pause  time.Duration
			tokens int
		}{{3569 * time.Second, 0}, {2 * time.Second, 1}, {2 * time.Hour, 1}} { // valid, about to expire, expired
			time.Sleep(c.pause)
			w.Requests()
			w.mustPost(tr)
			if tokens, requests := w.counts(); tokens != c.tokens || requests != 1 {
				t.Errorf("after %v: got %d token requests and %d requests, want %d and 1", c.pause, tokens, requests, c.tokens)
			}
			if asked := w.Requests(); len(asked) != c.tokens {
				t.Errorf("after %v: requested %v, want %d requests", c.pause, asked, c.tokens)
			}
		}
		s, err := tr.Status(t.Context())
		if err != nil || s == nil || strings.Join(s.Scopes, " ") != "read" {
			t.Errorf("got status %+v, error %v; want the scope read", s, err)
		}
	})
}

func TestGrantRenewalIsShared(t *testing.T) {
	withEnv(t, func(t *testing.T, w *testEnv) {
		tr := w.machineTransport(nil)
		w.mustPost(tr)
		w.counts()
		time.Sleep(2 * time.Hour)
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() {
				if status, _, err := post(tr, t.Context()); status != http.StatusOK {
					t.Errorf("got %d, error %v; want 200", status, err)
				}
			})
		}
		all.Wait()
		if tokens, requests := w.counts(); tokens != 1 || requests != 20 {
			t.Errorf("got %d token requests and %d requests, want 1 and 20", tokens, requests)
		}
	})
}

// A refusal of the token endpoint is remembered for 30 seconds; a temporary failure is not.
func TestGrantFailureIsRemembered(t *testing.T) {
	answer := func(status int, body string) func(url.Values) (int, string) {
		return func(url.Values) (int, string) { return status, body }
	}
	for name, c := range map[string]struct {
		respond   func(url.Values) (int, string)
		remembers bool
	}{
		"a refusal":      {answer(http.StatusBadRequest, `{"error":"unauthorized_client"}`), true},
		"unknown client": {answer(http.StatusUnauthorized, `{"error":"invalid_client"}`), true},
		"a failure":      {answer(http.StatusServiceUnavailable, ""), false},
		"temporary":      {answer(http.StatusBadRequest, `{"error":"temporarily_unavailable"}`), false},
		"not found":      {answer(http.StatusNotFound, "<html>"), false},
	} {
		for _, first := range []bool{true, false} {
			when := map[bool]string{true: "at first", false: "after expiry"}[first]
			t.Run(name+" "+when, func(t *testing.T) {
				withEnv(t, func(t *testing.T, w *testEnv) {
					tr := w.machineTransport(nil)
					if !first {
						w.mustPost(tr)
						time.Sleep(2 * time.Hour)
					}
					w.counts()
					w.as.set(func(s *fakeServer) { s.respond = c.respond })
					const requests = 5
					for range requests {
						_, _, err := post(tr, t.Context())
						if _, ok := errors.AsType[*oauthclient.TokenError](err); !ok {
							t.Fatalf("got error %v, want a TokenError", err)
						}
					}
					want := map[bool]int{true: 1, false: requests}[c.remembers]
					if tokens, _ := w.counts(); tokens != want {
						t.Errorf("got %d token requests for %d requests, want %d", tokens, requests, want)
					}
					w.as.set(func(s *fakeServer) { s.respond = nil })
					if c.remembers {
						time.Sleep(31 * time.Second)
					}
					w.mustPost(tr)
				})
			})
		}
	}
}
