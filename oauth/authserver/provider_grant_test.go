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

// wantUnavailable checks that a token is neither taken nor called invalid.
func (w *env) wantUnavailable(token, why string) {
	w.t.Helper()
	if _, err := w.verify(token); err == nil || isInvalid(err) {
		w.t.Errorf("%s: %v, want an error that is not the token's fault", why, err)
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

// A server with the wrong seal keys knows nothing, and destroys nothing.
func TestMissingSealKeyEndsNoGrant(t *testing.T) {
	p, signer := newIDP(t), newKey(t)
	synctest.Test(t, func(t *testing.T) {
		store := authserver.NewMemoryStore()
		right, wrong := authserver.NewSealKey(), authserver.NewSealKey()
		start := func(key authserver.SealKey) *env {
			return newInProcessEnv(t, func(o *authserver.Options) {
				o.Store, o.SealKeys, o.SigningKeys = store, []authserver.SealKey{key}, []crypto.Signer{signer}
				withProviders(t, p.provider("idp"))(o)
			})
		}
		got := start(right).loginVia(p)
		w := start(wrong)
		w.wantUnavailable(got.Access, "with the wrong key")
		if res := w.post("/token", refreshForm(got.Refresh)); res.StatusCode != http.StatusServiceUnavailable {
			t.Errorf("with the wrong key: %s %s", res.Status, res.body)
		}
		w = start(right)
		w.wantValid(got.Access, "with the right key again")
		w.tokensOf(w.post("/token", refreshForm(got.Refresh)))
		if n := p.count("/revoke"); n != 0 {
			t.Errorf("%d revocations at the third party", n)
		}
	})
}

// While one of two servers seals with a key that the other one lacks, that one is only blind.
func TestServersWithDifferentSealKeys(t *testing.T) {
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
		old := start(one)
		got := old.loginVia(p)
		late := start(two, one)
		late.wantValid(got.Access, "at the server with both keys")
		time.Sleep(2 * time.Minute)
		old.wantUnavailable(got.Access, "at the server without the new key")
		late.wantValid(got.Access, "at the server with both keys, afterwards")
	})
}

// No token is given that has expired, however short its life is and whatever was checked when.
func TestProviderTokenHasNotExpired(t *testing.T) {
	for _, life := range []int{2, 30, 90, 150} { // seconds
		p := newIDP(t)
		p.expires = life
		synctest.Test(t, func(t *testing.T) {
			w := newInProcessEnv(t, withProviders(t, p.provider("idp")))
			who := w.principalOf(w.loginVia(p).Access)
			for range 40 {
				time.Sleep(7 * time.Second)
				ut, err := w.server.ProviderToken(t.Context(), resource, who)
				if err != nil {
					t.Fatal(err)
				}
				if left, want := time.Until(ut.Expires), min(time.Minute,
					time.Duration(life)*time.Second/2); left < want {
					t.Fatalf("a token that lives %d s has %v left, want %v", life, left, want)
				}
			}
			if n, most := p.count("/token"), 1+280/min(life/2+1, 7); n > most {
				t.Errorf("tokens of %d s: the third party was asked for %d, want at most %d", life, n, most)
			}
			p.set(func() { p.down = true })
			time.Sleep(time.Duration(life) * time.Second)
			if ut, err := w.server.ProviderToken(t.Context(), resource, who); err == nil {
				t.Errorf("during an outage: a token with %v left", time.Until(ut.Expires))
			}
		})
	}
}

// The provider grant is revoked although the request was canceled.
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
	back := p.visit(b, b.toProvider())
	w.send(b.client, w.request(http.MethodGet, back, "").WithContext(ctx))
	if n, _ := store.Count(t.Context(), "provider-grant"); n != 0 {
		t.Errorf("%d grants of the third party are kept", n)
	}
	if p.count("/revoke") != 1 || len(p.refresh) != 0 {
		t.Errorf("%d refresh tokens are left at the third party", len(p.refresh))
	}
}

// A refresh token that can be used once is not lost with a write.
func TestRenewedProviderTokenSurvivesAStoreFailure(t *testing.T) {
	for name, outage := range map[string]time.Duration{"of a moment": 0, "of minutes": 3 * time.Minute} {
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
				t.Errorf("a fault %s: %v", name, err)
			}
			time.Sleep(outage)
			got = w.tokensOf(w.post("/token", refreshForm(got.Refresh)))
			time.Sleep(time.Minute)
			w.wantValid(got.Access, "after a fault "+name)
			if n := p.count("/token"); n != 2 {
				t.Errorf("a fault %s: the token endpoint was called %d times, want 2", name, n)
			}
		})
	}
}

// What was renewed and not written yet is given back with the rest.
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
		w.wantUnavailable(got.Access, "while what was renewed cannot be written")
		w.post("/revoke", map[string][]string{"token": {got.Refresh}, "client_id": {publicID}})
		if len(p.refresh) != 0 {
			t.Errorf("%d refresh tokens are left at the third party", len(p.refresh))
		}
	})
}

// The issue of a token is a confirmation that survives a restart.
func TestRestartDuringAnOutage(t *testing.T) {
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
		w.wantValid(got.Access, "two minutes after the third party gave its token")
		time.Sleep(3 * time.Minute)
		w.wantUnavailable(got.Access, "five minutes after")
		p.set(func() { p.down = false })
		time.Sleep(5 * time.Second)
		w.wantValid(got.Access, "when the outage is over")
	})
}
