package oauth_test

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcphttp"
	"github.com/patchbay-mcp/patchbay/oauth"
	"github.com/patchbay-mcp/patchbay/oauth/oauthclient"
)

// A dpopServer is an MCP server protected by Require, together with its authorization server, which
// issues DPoP-bound tokens.
type dpopServer struct {
	t       *testing.T
	url, as string

	mu     sync.Mutex // guards the field below
	tokens map[string]*oauth.Token
}

func newDPoPServer(t *testing.T, opts *oauth.ProofOptions) *dpopServer {
	t.Helper()
	s := &dpopServer{t: t, tokens: map[string]*oauth.Token{}}
	as := httptest.NewServer(http.HandlerFunc(s.serveAS))
	rs := httptest.NewUnstartedServer(nil)
	s.as, s.url = as.URL, "http://"+rs.Listener.Addr().String()+"/mcp"
	h := mcphttp.NewHandler(newScopedServer(), &mcphttp.Options{Logger: discardLog})
	rs.Config.Handler = oauth.Require(s, oauth.ResourceMetadata{Resource: s.url, AuthorizationServers: []string{s.as}},
		&oauth.RequireOptions{DPoP: opts, Logger: discardLog})(h)
	rs.Start()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = h.Shutdown(ctx)
		rs.Close()
		as.Close()
	})
	return s
}

// Verify accepts the tokens that the authorization server has issued.
func (s *dpopServer) Verify(_ context.Context, token string) (*oauth.Token, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t := s.tokens[token]; t != nil {
		return t, nil
	}
	return nil, oauth.ErrInvalidToken
}

func (s *dpopServer) serveAS(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	if r.URL.Path != "/token" {
		_ = json.NewEncoder(w).Encode(oauth.ServerMetadata{
			Issuer: s.as, TokenEndpoint: s.as + "/token", DPoPAlgorithms: []string{"ES256"},
		})
		return
	}
	signed, err := jose.ParseSignedCompact(r.Header.Get("DPoP"), []jose.SignatureAlgorithm{jose.ES256})
	if err != nil {
		s.t.Error(err)
		return
	}
	sum, err := signed.Signatures[0].Protected.JSONWebKey.Thumbprint(crypto.SHA256)
	if err != nil {
		s.t.Error(err)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	token := fmt.Sprintf("token-%d", len(s.tokens))
	s.tokens[token] = &oauth.Token{
		Issuer: s.as, Subject: "ann", ClientID: "c", Audience: []string{s.url}, Expires: time.Now().Add(time.Hour),
		KeyThumbprint: base64.RawURLEncoding.EncodeToString(sum),
	}
	_, _ = fmt.Fprintf(w, `{"access_token":%q,"token_type":"DPoP","expires_in":3600}`, token)
}

// connect returns a client with a bound token. base carries its requests.
func (s *dpopServer) connect(revision string, base http.RoundTripper) (*mcp.Client, error) {
	transport := oauthclient.NewTransport(s.url, &oauthclient.TransportOptions{
		Base:   base,
		Grant:  oauthclient.NewClientCredentialsGrant(),
		Client: oauthclient.Identity{ID: "c", Secret: "s", Issuer: s.as},
		DPoP:   &oauthclient.DPoPOptions{},
		Logger: discardLog,
	})
	s.t.Cleanup(transport.CloseIdleConnections)
	return mcp.Connect(s.t.Context(), mcphttp.NewTransport(s.url, &mcphttp.TransportOptions{
		Client: &http.Client{Transport: transport}, Logger: discardLog,
	}), &mcp.ClientOptions{Revision: revision, Logger: discardLog})
}

func TestDPoPEndToEnd(t *testing.T) {
	for _, revision := range []string{november2025, july2026} {
		for _, nonces := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, nonces %t", revision, nonces), func(t *testing.T) {
				s := newDPoPServer(t, &oauth.ProofOptions{Required: true, Nonces: nonces})
				c, err := s.connect(revision, nil)
				if err != nil {
					t.Fatal(err)
				}
				for range 3 {
					result, err := c.CallTool(t.Context(), "who", nil)
					if err != nil {
						t.Fatal(err)
					}
					if text := fmt.Sprint(mustJSON(result)); !strings.Contains(text, "ann for []") {
						t.Errorf("got tool result %s, want the subject ann and no Authorization header", text)
					}
				}
				if err := c.Close(); err != nil {
					t.Error(err)
				}
				if len(s.tokens) != 1 {
					t.Errorf("the authorization server issued %d tokens, want 1", len(s.tokens))
				}
			})
		}
	}
}

// An attacker who has recorded a request can use neither its token nor its proof.
func TestStolenBoundToken(t *testing.T) {
	s := newDPoPServer(t, &oauth.ProofOptions{})
	var stolen *http.Request
	base := &http.Transport{}
	defer base.CloseIdleConnections()
	c, err := s.connect(july2026, roundTripper(func(req *http.Request) (*http.Response, error) {
		if req.Header.Get("DPoP") != "" {
			stolen = req.Clone(context.WithoutCancel(req.Context()))
		}
		return base.RoundTrip(req)
	}))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.CallTool(t.Context(), "who", nil); err != nil {
		t.Fatal(err)
	}
	_, token, _ := strings.Cut(stolen.Header.Get("Authorization"), " ")
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name, scheme, proof, want string
	}{
		{"replayed proof", "DPoP", stolen.Header.Get("DPoP"), "invalid_dpop_proof"},
		{"without the proof", "DPoP", "", "invalid_dpop_proof"},
		{"as a bearer token", "Bearer", "", "invalid_token"},
		{"as a bearer token, with the proof", "Bearer", stolen.Header.Get("DPoP"), "invalid_token"},
		{"proof with another key", "DPoP", signProof(t, key, s.url, token), "invalid_dpop_proof"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			req := stolen.Clone(t.Context())
			body, err := stolen.GetBody()
			if err != nil {
				t.Fatal(err)
			}
			req.Body = body
			req.Header.Set("Authorization", tt.scheme+" "+token)
			if req.Header.Set("DPoP", tt.proof); tt.proof == "" {
				req.Header.Del("DPoP")
			}
			res, err := base.RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}
			defer res.Body.Close()
			codes := ""
			for _, challenge := range oauth.ParseChallenges(res.Header) {
				codes += challenge.Params["error"]
			}
			if res.StatusCode != http.StatusUnauthorized || codes != tt.want {
				t.Errorf("got %s %q, want 401 with %s", res.Status, res.Header["Www-Authenticate"], tt.want)
			}
		})
	}
}

// signProof returns a valid proof, signed with the given key.
func signProof(t *testing.T, key *ecdsa.PrivateKey, target, token string) string {
	t.Helper()
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: key},
		(&jose.SignerOptions{EmbedJWK: true}).WithType("dpop+jwt"))
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256([]byte(token))
	signed, err := signer.Sign([]byte(mustJSON(map[string]any{
		"jti": "1", "htm": "POST", "htu": target, "iat": time.Now().Unix(), "ath": base64.RawURLEncoding.EncodeToString(sum[:]),
	})))
	if err != nil {
		t.Fatal(err)
	}
	text, err := signed.CompactSerialize()
	if err != nil {
		t.Fatal(err)
	}
	return text
}

type roundTripper func(req *http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }
