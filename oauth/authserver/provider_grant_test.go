package authserver_test

import (
	"context"
	"crypto"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/oauth/authserver"
)

// wantUnavailable checks that verify returns an error that does not call the token invalid.
func (w *env) wantUnavailable(token, when string) {
	w.t.Helper()
	if _, err := w.verify(token); err == nil || isInvalid(err) {
		w.t.Errorf("%s: verify returned %v, want an error other than ErrInvalidToken", when, err)
	}
}

// principalOf returns the principal of an access token.
func (w *env) principalOf(token string) *mcp.Principal {
	w.t.Helper()
	got, err := w.verify(token)
	if err != nil {
		w.t.Fatal(err)
	}
	return &mcp.Principal{Issuer: got.Issuer, Subject: got.Subject, ClientID: got.ClientID, Scopes: got.Scopes,
		Claims: got.Claims}
}

func TestMissingSealKeyDoesNotEndTheGrant(t *testing.T) {
	p, signer := newIDP(t), newKey(t)
	synctest.Test(t, func(t *testing.T) {
		store := authserver.NewMemoryStore()
		sealKey, otherKey := authserver.NewSealKey(), authserver.NewSealKey()
		start := func(key authserver.SealKey) *env {
			return newInProcessEnv(t, func(o *authserver.Options) {
				o.Store, o.SealKeys, o.SigningKeys = store, []authserver.SealKey{key}, []crypto.Signer{signer}
				withProviders(t, p.provider("idp"))(o)
			})
		}
		got := start(sealKey).loginVia(p)
		w := start(otherKey)
		w.wantUnavailable(got.Access, "with another seal key")
		if res := w.post("/token", refreshForm(got.Refresh)); res.StatusCode != http.StatusServiceUnavailable {
			t.Errorf("refresh with another seal key: %s %s, want 503", res.Status, res.body)
		}
		w = start(sealKey)
		w.wantValid(got.Access, "with the right seal key again")
		w.tokensOf(w.post("/token", refreshForm(got.Refresh)))
		if n := p.count("/revoke"); n != 0 {
			t.Errorf("%d tokens of the provider were revoked, want 0", n)
		}
	})
}

// A server cannot use grants that another one seals with a key that it lacks. It must not end them.
func TestServersWithDifferentSealKeysShareAStore(t *testing.T) {
	p := newIDP(t)
	synctest.Test(t, func(t *testing.T) {
		store := authserver.NewMemoryStore()
		one, two := authserver.NewSealKey(), authserver.NewSealKey()
		start := func(keys ...authserver.SealKey) *env {
			return newInProcessEnv(t, func(o *authserver.Options) {
				o.Store, o.SealKeys = store, keys
				withProviders(t, p.provider("idp"))(o)
			})
		}
		first := start(one)
		got := first.loginVia(p)
		second := start(two, one)
		second.wantValid(got.Access, "at the server with both keys")
		time.Sleep(2 * time.Minute)
		first.wantUnavailable(got.Access, "at the server without the new key")
		second.wantValid(got.Access, "at the server with both keys, afterwards")
	})
}

// Requirement: AUTHB-14
func TestProviderTokenIsRenewedBeforeItExpires(t *testing.T) {
	for _, lifetime := range []int{2, 30, 90, 150} { // seconds
		p := newIDP(t)
		p.expires = lifetime
		synctest.Test(t, func(t *testing.T) {
			w := newInProcessEnv(t, withProviders(t, p.provider("idp")))
			principal := w.principalOf(w.loginVia(p).Access)
			for range 40 {
				time.Sleep(7 * time.Second)
				ut, err := w.server.ProviderToken(t.Context(), resource, principal)
				if err != nil {
					t.Fatal(err)
				}
				want := min(time.Minute, time.Duration(lifetime)*time.Second/2)
				if left := time.Until(ut.Expires); left < want {
					t.Fatalf("a token with a lifetime of %ds expires in %v, want at least %v", lifetime, left, want)
				}
			}
			if n, most := p.count("/token"), 1+280/min(lifetime/2+1, 7); n > most {
				t.Errorf("lifetime %ds: the provider issued %d tokens, want at most %d", lifetime, n, most)
			}
			p.set(func() { p.down = true })
			time.Sleep(time.Duration(lifetime) * time.Second)
			if ut, err := w.server.ProviderToken(t.Context(), resource, principal); err == nil {
				t.Errorf("during an outage: got a token that expires in %v, want an error", time.Until(ut.Expires))
			}
		})
	}
}

func TestCanceledCallbackRevokesTheProviderGrant(t *testing.T) {
	p, store := newIDP(t), authserver.NewMemoryStore()
	ctx, cancel := context.WithCancel(t.Context())
	up := p.provider("idp")
	up.Subject = func(_ context.Context, u *authserver.ProviderUser) (authserver.Subject, error) {
		cancel()
		return authserver.Subject{ID: "idp|" + u.ID}, nil
	}
	w := newInProcessEnv(t, func(o *authserver.Options) {
		o.Store = store
		withProviders(t, up)(o)
	})
	b := w.browser()
	callback := p.visit(b, b.toProvider())
	w.send(b.client, w.request(http.MethodGet, callback, "").WithContext(ctx))
	if n := authserver.MemoryRecords(store, "provider-grant"); n != 0 {
		t.Errorf("%d provider grants are stored, want 0", n)
	}
	if p.count("/revoke") != 1 || len(p.refresh) != 0 {
		t.Errorf("the provider has %d refresh tokens after %d revocations, want 0 after 1",
			len(p.refresh), p.count("/revoke"))
	}
}

// The previous refresh token has been used, so a failed write must not lose the new one.
//
// Requirement: AUTHB-15
func TestRenewedProviderTokenSurvivesAStoreFailure(t *testing.T) {
	for name, outage := range map[string]time.Duration{"one failed write": 0, "failure of minutes": 3 * time.Minute} {
		p := newIDP(t)
		synctest.Test(t, func(t *testing.T) {
			store := newFaultyStore()
			w := newInProcessEnv(t, func(o *authserver.Options) {
				o.Store, o.Lifetimes.Access = store, time.Hour
				withProviders(t, p.provider("idp"))(o)
			})
			got := w.loginVia(p)
			time.Sleep(59*time.Minute + 1)
			start, renewals := time.Now(), 0
			store.set(func(_ context.Context, op, kind string) error {
				if op != "update" || kind != "provider-grant" {
					return nil
				}
				if renewals++; renewals == 2 || renewals > 2 && time.Since(start) < outage {
					return errDisk
				}
				return nil
			})
			_, err := w.verify(got.Access)
			if outage == 0 && err != nil || outage > 0 && (err == nil || isInvalid(err)) {
				t.Errorf("%s: verify returned %v, want an error other than ErrInvalidToken after a failure of minutes",
					name, err)
			}
			time.Sleep(outage)
			got = w.tokensOf(w.post("/token", refreshForm(got.Refresh)))
			time.Sleep(time.Minute)
			w.wantValid(got.Access, "after a "+name)
			if n := p.count("/token"); n != 2 {
				t.Errorf("%s: the token endpoint got %d requests, want 2", name, n)
			}
		})
	}
}

// The renewed refresh token could not be stored yet.
func TestRevocationUsesTheRenewedToken(t *testing.T) {
	p := newIDP(t)
	synctest.Test(t, func(t *testing.T) {
		store := newFaultyStore()
		w := newInProcessEnv(t, func(o *authserver.Options) {
			o.Store, o.Lifetimes.Access = store, time.Hour
			withProviders(t, p.provider("idp"))(o)
		})
		got := w.loginVia(p)
		time.Sleep(59*time.Minute + 1)
		updates := 0
		store.set(func(_ context.Context, op, kind string) error {
			if op == "update" && kind == "provider-grant" {
				if updates++; updates > 1 {
					return errDisk
				}
			}
			return nil
		})
		w.wantUnavailable(got.Access, "while the renewed token cannot be stored")
		w.post("/revoke", map[string][]string{"token": {got.Refresh}, "client_id": {publicID}})
		if len(p.refresh) != 0 {
			t.Errorf("the provider has %d refresh tokens, want 0", len(p.refresh))
		}
	})
}

// The time of the last confirmation by the provider is stored. A login is a confirmation.
//
// Requirement: AUTHB-15
func TestRestartDuringAProviderOutage(t *testing.T) {
	p := newIDP(t)
	synctest.Test(t, func(t *testing.T) {
		store := authserver.NewMemoryStore()
		start := func() *env {
			return newInProcessEnv(t, func(o *authserver.Options) {
				o.Store = store
				withProviders(t, p.provider("idp"))(o)
			})
		}
		got := start().loginVia(p)
		p.set(func() { p.down = true })
		time.Sleep(2 * time.Minute)
		w := start()
		w.wantValid(got.Access, "two minutes after the login")
		time.Sleep(3 * time.Minute)
		w.wantUnavailable(got.Access, "five minutes after the login")
		p.set(func() { p.down = false })
		time.Sleep(5 * time.Second)
		w.wantValid(got.Access, "after the outage")
	})
}
