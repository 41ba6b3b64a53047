package oauth_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/patchbay-mcp/patchbay/oauth"
)

type discardWriter struct{ header http.Header }

func (b *discardWriter) Header() http.Header       { return b.header }
func (*discardWriter) Write(p []byte) (int, error) { return len(p), nil }
func (*discardWriter) WriteHeader(int)             {}

func benchmarkHandler(b *testing.B, h http.Handler, token string) {
	r := httptest.NewRequest("POST", "/mcp", nil)
	for name, value := range map[string]string{
		"Authorization": "Bearer " + token, "Content-Type": "application/json", "Accept": "application/json, text/event-stream",
		"Mcp-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": "add", "User-Agent": "bench",
	} {
		r.Header.Set(name, value)
	}
	w := &discardWriter{http.Header{}}
	b.ReportAllocs()
	for b.Loop() {
		h.ServeHTTP(w, r)
	}
}

// BenchmarkRequire measures a request whose token has been verified before.
func BenchmarkRequire(b *testing.B) {
	empty := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	secret := "a-token-of-the-configuration"
	b.Run("jwt", func(b *testing.B) { benchmarkHandler(b, protect(b, empty, nil), issue(b)) })
	b.Run("static", func(b *testing.B) {
		v := staticVerifier(b, oauth.StaticToken{Token: secret, Subject: "ann"})
		benchmarkHandler(b, oauth.Require(v, oauth.ResourceMetadata{Resource: resourceURL}, nil)(empty), secret)
	})
	b.Run("none", func(b *testing.B) { benchmarkHandler(b, empty, secret) })
}

// BenchmarkJWTVerifier measures the first verification of a token.
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
