package authserver_test

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/patchbay-mcp/patchbay/oauth/authserver"
)

func (w *env) keySet() jose.JSONWebKeySet {
	w.t.Helper()
	res := w.browser().get("/jwks")
	var set jose.JSONWebKeySet
	if err := json.Unmarshal([]byte(res.body), &set); err != nil || strings.Contains(res.body, `"d":`) {
		w.t.Fatalf("key set is %s, %v, want JSON without private keys", res.body, err)
	}
	return set
}

// keyOf returns the kid of a token.
func keyOf(t *testing.T, token string) string {
	t.Helper()
	jws, err := jose.ParseSignedCompact(token, []jose.SignatureAlgorithm{jose.ES256, jose.ES384, jose.EdDSA,
		jose.RS256})
	if err != nil {
		t.Fatal(err)
	}
	return jws.Signatures[0].Protected.KeyID
}

func TestSigningKeysRotateWithAnOverlap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := authserver.NewMemoryStore()
		change := func(o *authserver.Options) {
			o.Store, o.Lifetimes.Key, o.Lifetimes.Access = store, 24*time.Hour, time.Hour
		}
		w, second := newInProcessEnv(t, change), newInProcessEnv(t, change) // two processes with one store
		seen := map[string]time.Time{}                                      // when a key was first published
		used := map[string]bool{}
		var last string
		for step := range 3 * 24 * 60 / 13 {
			set := w.keySet()
			for _, k := range set.Keys {
				if _, ok := seen[k.KeyID]; !ok {
					seen[k.KeyID] = time.Now()
				}
			}
			if len(set.Keys) > 3 {
				t.Fatalf("step %d: %d keys are published, want at most 3", step, len(set.Keys))
			}
			token := w.login().Access
			id := keyOf(t, token)
			if _, err := second.verify(token); err != nil {
				t.Fatalf("step %d: verify in the other process: %v", step, err)
			}
			if id != last {
				if published := time.Since(seen[id]); step > 0 && published < time.Hour {
					t.Errorf("step %d: key used %v after it was published, want at least 1h", step, published)
				}
				last, used[id] = id, true
			}
			time.Sleep(13 * time.Minute) // rotations are not at multiples of 13 minutes
			w.wantValid(token, "across a rotation")
		}
		if len(used) < 3 {
			t.Errorf("%d keys were used in three days, want at least 3", len(used))
		}
	})
}

func TestConfiguredSigningKeysArePublishedAndUsed(t *testing.T) {
	_, edKey, _ := ed25519.GenerateKey(rand.Reader)
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	for alg, key := range map[string]crypto.Signer{"ES256": newKey(t), "EdDSA": edKey, "RS256": rsaKey} {
		w := newEnv(t, func(o *authserver.Options) { o.SigningKeys = []crypto.Signer{key, newKey(t)} })
		token := w.login().Access
		w.wantValid(token, alg)
		set := w.keySet()
		if got := set.Key(keyOf(t, token)); len(set.Keys) != 2 || len(got) != 1 || got[0].Algorithm != alg ||
			got[0].Use != "sig" {
			t.Errorf("%s: key set is %+v, want two keys, the token's with its algorithm", alg, set)
		}
	}
	o := options("https://as.example")
	small := unusableSigner{&rsa.PublicKey{N: newKey(t).X, E: 65537}} // any modulus of 256 bits
	o.SigningKeys = []crypto.Signer{small}
	if _, err := authserver.New(&o); err == nil {
		t.Error("New with a small RSA key returned no error")
	}
}

// An unusableSigner has a public key and cannot sign.
type unusableSigner struct{ public crypto.PublicKey }

func (o unusableSigner) Public() crypto.PublicKey { return o.public }

// Sign returns errors.ErrUnsupported.
func (unusableSigner) Sign(_ io.Reader, _ []byte, _ crypto.SignerOpts) ([]byte, error) {
	return nil, errors.ErrUnsupported
}

// A start with both keys seals the signing keys with the new one.
func TestSealKeyCanBeRemovedAfterItsReplacement(t *testing.T) {
	store, oldKey, newKey := authserver.NewMemoryStore(), authserver.NewSealKey(), authserver.NewSealKey()
	newKey.ID += "-2"
	o := options("https://as.example")
	o.Store = store
	for i, step := range []struct {
		keys []authserver.SealKey
		good bool
	}{
		{[]authserver.SealKey{oldKey}, true},
		{[]authserver.SealKey{newKey, oldKey}, true},
		{[]authserver.SealKey{newKey}, true},
		{[]authserver.SealKey{oldKey}, false},
	} {
		o.SealKeys = step.keys
		if _, err := authserver.New(&o); (err == nil) != step.good {
			t.Errorf("start %d with %d keys: %v, want success %v", i+1, len(step.keys), err, step.good)
		}
	}
}

// A server that can open none of its signing keys does not start, and the error says how to remove
// them. A server that can open some of them starts.
func TestServerStartsWithSomeOfItsSigningKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, oldKey, newKey := authserver.NewMemoryStore(), authserver.NewSealKey(), authserver.NewSealKey()
		var log bytes.Buffer
		o := options("https://as.example")
		o.Store, o.Logger = store, slog.New(slog.NewTextHandler(&log, nil))
		o.SealKeys = []authserver.SealKey{oldKey}
		newServer(t, o)
		o.SealKeys = []authserver.SealKey{newKey}
		_, err := authserver.New(&o)
		if err == nil || !strings.Contains(err.Error(), `Store.GetAndDelete(ctx, "signing-keys", "1")`) ||
			!strings.Contains(err.Error(), oldKey.ID) {
			t.Errorf("the error is %v, want it to name the key and the call that removes the record", err)
		}
		lost, err := store.GetAndDelete(t.Context(), "signing-keys", "1")
		if err != nil || lost == nil {
			t.Fatalf("GetAndDelete of the record that the error names: %q, %v", lost, err)
		}
		newServer(t, o)
		own, _ := store.Get(t.Context(), "signing-keys", "1")
		if log.Len() > 0 {
			t.Errorf("the log is %s, want it empty", log.String())
		}
		mixed := append(append(lost[:len(lost)-1:len(lost)-1], ','), own[1:]...) // both lists of keys
		if err := store.Put(t.Context(), "signing-keys", "1", mixed, time.Time{}); err != nil {
			t.Fatal(err)
		}
		w := &env{t, newServer(t, o), o.Issuer, nil}
		w.base = handlerTransport{w.server, "192.0.2.1"}
		if !strings.Contains(log.String(), "dropping") || !strings.Contains(log.String(), oldKey.ID) {
			t.Errorf("the log is %s, want a message with the ID of the missing seal key", log.String())
		}
		w.wantValid(w.login().Access, "with one of two keys")
		if n := len(w.keySet().Keys); n != 1 {
			t.Errorf("%d keys are published, want 1", n)
		}
	})
}

// Requirement: AUTHR-17, SEC-06
func TestVerifierRefusesTokensOfOthers(t *testing.T) {
	w := newEnv(t, nil)
	access := w.login().Access
	parts := strings.Split(access, ".")
	encode := func(text string) string { return base64.RawURLEncoding.EncodeToString([]byte(text)) }
	payload, _ := base64.RawURLEncoding.DecodeString(parts[1])
	var claims map[string]any
	if err := json.Unmarshal(payload, &claims); err != nil {
		t.Fatal(err)
	}
	set := w.keySet()
	der, err := x509.MarshalPKIXPublicKey(set.Keys[0].Key)
	if err != nil {
		t.Fatal(err)
	}
	for name, token := range map[string]string{
		"empty":         "",
		"nonsense":      "x.y.z",
		"alg none":      encode(`{"alg":"none","typ":"at+jwt"}`) + "." + parts[1] + ".",
		"key confusion": sign(t, jose.HS256, der, claims),
		"another key":   sign(t, jose.ES256, newKey(t), claims),
		"no signature":  parts[0] + "." + parts[1] + ".",
		"another payload": parts[0] + "." + encode(strings.Replace(string(payload), "alice", "admin",
			1)) + "." + parts[2],
		"of another server": newEnv(t, nil).login().Access,
		"long":              strings.Repeat("x", 1<<20),
	} {
		if _, err := w.verify(token); !isInvalid(err) {
			t.Errorf("%s: verify returned %v, want ErrInvalidToken", name, err)
		}
	}
	// A JWT signed by the right key which is not an access token.
	key := newKey(t)
	own := newEnv(t, func(o *authserver.Options) { o.SigningKeys = []crypto.Signer{key} })
	payload, _ = base64.RawURLEncoding.DecodeString(strings.Split(own.login().Access, ".")[1])
	if err := json.Unmarshal(payload, &claims); err != nil {
		t.Fatal(err)
	}
	if _, err := own.verify(sign(t, jose.ES256, key, claims)); !isInvalid(err) {
		t.Errorf("typ JWT: verify returned %v, want ErrInvalidToken", err)
	}
}

// A fakeProviderLogin is a ProviderLogin whose results the test sets.
type fakeProviderLogin struct {
	check   error
	revoked []string
}

func (d *fakeProviderLogin) Login(w http.ResponseWriter, r *http.Request, l *authserver.LoginRequest) {
	l.Finish(w, r, authserver.Subject{ID: "alice", ProviderGrant: "handle"})
}

func (d *fakeProviderLogin) CheckGrant(_ context.Context, handle string) error {
	if handle != "handle" {
		return errors.New("another handle")
	}
	return d.check
}

func (d *fakeProviderLogin) RevokeGrant(_ context.Context, handle string) error {
	d.revoked = append(d.revoked, handle)
	return nil
}

// Requirement: AUTHB-13
func TestGrantsDependOnTheProviderGrant(t *testing.T) {
	d := new(fakeProviderLogin)
	w := newEnv(t, func(o *authserver.Options) { o.Login = d })
	got := w.login()
	w.wantValid(got.Access, "while the provider grant is valid")

	d.check = errors.New("not now")
	w.wantUnavailable(got.Access, "while the provider is unavailable")
	w.post("/token", refreshForm(got.Refresh)).wantError(t, http.StatusServiceUnavailable, "temporarily_unavailable")
	d.check = nil
	w.wantValid(got.Access, "when the provider is available again")
	got = w.tokensOf(w.post("/token", refreshForm(got.Refresh)))

	d.check = authserver.ErrProviderGrantEnded
	w.post("/token", refreshForm(got.Refresh)).wantError(t, http.StatusBadRequest, "invalid_grant")
	d.check = nil
	w.wantInvalid(got.Access, "after the provider grant has ended")
	if len(d.revoked) != 1 {
		t.Errorf("RevokeGrant was called for %v, want one call", d.revoked)
	}

	got = w.login()
	w.post("/revoke", map[string][]string{"token": {got.Refresh}, "client_id": {publicID}})
	if len(d.revoked) != 2 {
		t.Errorf("after a revocation RevokeGrant was called for %v, want two calls", d.revoked)
	}
}
