package oauth_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/patchbay-mcp/patchbay/oauth"
)

type blackHole struct{ header http.Header }

func (b *blackHole) Header() http.Header       { return b.header }
func (*blackHole) Write(p []byte) (int, error) { return len(p), nil }
func (*blackHole) WriteHeader(int)             {}

func benchmarkGate(b *testing.B, h http.Handler, token string) {
	r := httptest.NewRequest("POST", "/mcp", nil)
	for name, value := range map[string]string{
		"Authorization": "Bearer " + token, "Content-Type": "application/json", "Accept": "application/json, text/event-stream",
		"Mcp-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": "add", "User-Agent": "bench",
	} {
		r.Header.Set(name, value)
	}
	w := &blackHole{http.Header{}}
	b.ReportAllocs()
	for b.Loop() {
		h.ServeHTTP(w, r)
	}
}

// What a protected server pays for a request whose token it has seen before.
func BenchmarkRequire(b *testing.B) {
	nothing := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	secret := "a-token-of-the-configuration"
	b.Run("jwt", func(b *testing.B) { benchmarkGate(b, protect(b, nothing, nil), issue(b)) })
	b.Run("static", func(b *testing.B) {
		v := staticVerifier(b, oauth.StaticToken{Token: secret, Subject: "ann"})
		benchmarkGate(b, oauth.Require(v, oauth.ResourceMetadata{Resource: resourceURL}, nil)(nothing), secret)
	})
	b.Run("none", func(b *testing.B) { benchmarkGate(b, nothing, secret) })
}

// What the first sight of a token costs.
func BenchmarkJWTVerifier(b *testing.B) {
	keys := jwks(b, map[string]any{"ec": ecKey().Public()})
	token := issue(b)
	b.ReportAllocs()
	for b.Loop() {
		v := oauth.NewJWTVerifier(issuerURL, &oauth.JWTOptions{JWKS: keys})
		if _, err := v.Verify(b.Context(), token); err != nil {
			b.Fatal(err)
		}
	}
}
