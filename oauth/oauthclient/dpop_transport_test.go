package oauthclient

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"testing"

	"github.com/go-jose/go-jose/v4"

	"github.com/patchbay-mcp/patchbay/internal/dpop"
	"github.com/patchbay-mcp/patchbay/internal/oauthwire"
)

// A dpopEnv is a grantEnv with DPoP-bound tokens. Both servers may require nonces.
type dpopEnv struct {
	*grantEnv
	nonces   bool
	verifier *dpop.Verifier
	key      string // thumbprint of the token's key
}

func newDPoPEnv(t *testing.T, nonces bool) *dpopEnv {
	t.Helper()
	w := &dpopEnv{grantEnv: newGrantEnv(t), nonces: nonces}
	w.metadata.DPoPAlgorithms = []string{"ES256"}
	verifier, err := dpop.NewVerifier(&dpop.VerifierOptions{Nonces: nonces})
	if err != nil {
		t.Fatal(err)
	}
	w.verifier = verifier
	w.token, w.guard = w.issueBound, w.checkProof
	return w
}

// proofClaims are claims of a proof for a token endpoint.
type proofClaims struct {
	Method    string `json:"htm"`
	Target    string `json:"htu"`
	TokenHash string `json:"ath"`
	Nonce     string `json:"nonce"`
}

// openProof returns the claims of a proof and the thumbprint of the key in it.
func openProof(proof string) (claims proofClaims, thumbprint string, err error) {
	signed, err := jose.ParseSignedCompact(proof, []jose.SignatureAlgorithm{jose.ES256})
	if err != nil {
		return claims, "", err
	}
	key := signed.Signatures[0].Protected.JSONWebKey
	payload, err := signed.Verify(key.Key)
	if err != nil {
		return claims, "", err
	}
	sum, err := key.Thumbprint(crypto.SHA256)
	return claims, base64.RawURLEncoding.EncodeToString(sum), errors.Join(err, json.Unmarshal(payload, &claims))
}

// issueBound issues a token that is bound to the key of the proof.
func (w *dpopEnv) issueBound(rw http.ResponseWriter, r *http.Request) {
	claims, key, err := openProof(r.Header.Get(dpop.Header))
	if err != nil || claims.Method != "POST" || claims.Target != w.as.URL+"/token" || claims.TokenHash != "" {
		w.t.Errorf("got proof %+v, error %v; want one for the token endpoint", claims, err)
	}
	const nonce = "as-nonce"
	if w.nonces && claims.Nonce != nonce {
		rw.Header().Set(dpop.HeaderNonce, nonce)
		writeJSON(rw, http.StatusBadRequest, map[string]string{"error": oauthwire.UseDPoPNonce})
		return
	}
	w.mu.Lock()
	w.key = key
	w.mu.Unlock()
	w.issue(rw, "DPoP", nil)
}

// checkProof reports whether a request has a valid proof, and responds if it does not.
func (w *dpopEnv) checkProof(rw http.ResponseWriter, r *http.Request) bool {
	w.mu.Lock()
	key, good := w.key, w.good
	w.mu.Unlock()
	target, err := url.Parse(w.rs.URL + "/mcp")
	if err != nil {
		w.t.Fatal(err)
	}
	if r.Header.Get("Authorization") != "DPoP "+good {
		w.t.Errorf("got Authorization %q, want the scheme DPoP and the token", r.Header.Get("Authorization"))
	}
	nonce, err := w.verifier.Verify(r, target, good, key)
	if nonce != "" {
		rw.Header().Set(dpop.HeaderNonce, nonce)
	}
	var fault *dpop.ProofError
	if errors.As(err, &fault) && fault.Code == oauthwire.UseDPoPNonce {
		rw.Header().Set("WWW-Authenticate", `DPoP error="use_dpop_nonce", algs="ES256"`)
		rw.WriteHeader(http.StatusUnauthorized)
		return false
	}
	if err != nil {
		w.t.Errorf("invalid proof for the server: %v", err)
	}
	return err == nil
}

func TestDPoPThroughTransport(t *testing.T) {
	for _, nonces := range []bool{false, true} {
		t.Run(fmt.Sprintf("nonces %t", nonces), func(t *testing.T) {
			w := newDPoPEnv(t, nonces)
			opts := w.client(NewClientCredentialsGrant())
			opts.DPoP = &DPoPOptions{}
			transport := w.transport(opts)
			for range 3 {
				if err := w.get(transport); err != nil {
					t.Fatal(err)
				}
			}
			want := 1
			if nonces {
				want = 2 // the first request learns the nonce
			}
			if len(w.tokenRequests) != want {
				t.Errorf("got %d token requests, want %d", len(w.tokenRequests), want)
			}
			if w.key != transport.prover.Thumbprint() {
				t.Error("the token is bound to another key")
			}
		})
	}
}

// The servers refuse every nonce.
func TestDPoPNonceIsRetriedOnce(t *testing.T) {
	t.Run("authorization server", func(t *testing.T) {
		w := newDPoPEnv(t, false)
		w.token = func(rw http.ResponseWriter, _ *http.Request) {
			rw.Header().Set(dpop.HeaderNonce, fmt.Sprintf("nonce-%d", len(w.tokenRequests)))
			writeJSON(rw, http.StatusBadRequest, map[string]string{"error": oauthwire.UseDPoPNonce})
		}
		opts := w.client(NewClientCredentialsGrant())
		opts.DPoP = &DPoPOptions{}
		if err := w.try(opts); err == nil {
			t.Error("the request succeeded, want an error")
		}
		if len(w.tokenRequests) != 2 {
			t.Errorf("got %d token requests, want 2", len(w.tokenRequests))
		}
	})
	t.Run("authorization server that refuses for another reason", func(t *testing.T) {
		w := newDPoPEnv(t, false)
		w.token = func(rw http.ResponseWriter, _ *http.Request) {
			rw.Header().Set(dpop.HeaderNonce, "nonce")
			writeJSON(rw, http.StatusBadRequest, map[string]string{"error": oauthwire.InvalidGrant})
		}
		opts := w.client(NewClientCredentialsGrant())
		opts.DPoP = &DPoPOptions{}
		if err := w.try(opts); err == nil || len(w.tokenRequests) != 1 {
			t.Errorf("got error %v after %d token requests, want an error after 1", err, len(w.tokenRequests))
		}
	})
	t.Run("MCP server", func(t *testing.T) {
		w := newDPoPEnv(t, false)
		guarded := 0
		w.guard = func(rw http.ResponseWriter, _ *http.Request) bool {
			guarded++
			rw.Header().Set(dpop.HeaderNonce, fmt.Sprintf("nonce-%d", guarded))
			rw.Header().Set("WWW-Authenticate", `DPoP error="use_dpop_nonce"`)
			rw.WriteHeader(http.StatusUnauthorized)
			return false
		}
		opts := w.client(NewClientCredentialsGrant())
		opts.DPoP = &DPoPOptions{}
		if err := w.try(opts); err == nil {
			t.Error("the request succeeded, want an error")
		}
		// Two requests for each token, and at most two tokens.
		if guarded < 2 || guarded > 4 {
			t.Errorf("got %d requests with a token, want 2 to 4", guarded)
		}
	})
}

func TestDPoPDemandsBoundTokens(t *testing.T) {
	for name, change := range map[string]func(w *dpopEnv){
		"token of type Bearer": func(w *dpopEnv) {
			w.token = func(rw http.ResponseWriter, _ *http.Request) { w.issue(rw, "Bearer", nil) }
		},
		"metadata without proof algorithms": func(w *dpopEnv) { w.metadata.DPoPAlgorithms = nil },
		"metadata without ES256":            func(w *dpopEnv) { w.metadata.DPoPAlgorithms = []string{"RS256"} },
	} {
		t.Run(name, func(t *testing.T) {
			w := newDPoPEnv(t, false)
			change(w)
			w.guard = func(http.ResponseWriter, *http.Request) bool {
				t.Error("the client used a token that is not bound to its key")
				return false
			}
			opts := w.client(NewClientCredentialsGrant())
			opts.DPoP = &DPoPOptions{}
			if err := w.try(opts); err == nil {
				t.Error("the request succeeded, want an error")
			}
		})
	}
	t.Run("server requires DPoP, client has no key", func(t *testing.T) {
		w := newGrantEnv(t)
		w.bound = true
		if err := w.try(w.client(NewClientCredentialsGrant())); err == nil || len(w.tokenRequests) != 0 {
			t.Errorf("got error %v after %d token requests, want an error after 0", err, len(w.tokenRequests))
		}
	})
	t.Run("bearer tokens allowed", func(t *testing.T) {
		w := newGrantEnv(t)
		opts := w.client(NewClientCredentialsGrant())
		opts.DPoP = &DPoPOptions{InsecureAllowBearer: true}
		if err := w.try(opts); err != nil {
			t.Error(err)
		}
	})
}

// A stored token is used by a client with the same key. A client with another key requests a new one.
func TestBoundTokensNeedTheirKey(t *testing.T) {
	w := newDPoPEnv(t, false)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	store := NewMemoryStore()
	for i, tt := range []struct {
		dpop *DPoPOptions
		want int
	}{{&DPoPOptions{Key: key}, 1}, {&DPoPOptions{Key: key}, 1}, {&DPoPOptions{}, 2}} {
		opts := w.client(NewClientCredentialsGrant())
		opts.Store, opts.DPoP = store, tt.dpop
		if err := w.try(opts); err != nil {
			t.Fatal(err)
		}
		if len(w.tokenRequests) != tt.want {
			t.Errorf("transport %d: got %d token requests in all, want %d", i, len(w.tokenRequests), tt.want)
		}
	}
}
