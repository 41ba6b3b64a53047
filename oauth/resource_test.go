package oauth_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/oauth"
)

const rootMetadata = "/.well-known/oauth-protected-resource"

// Requirement: AUTHR-01
func TestServeResourceMetadata(t *testing.T) {
	for name, tc := range map[string]struct {
		resource string
		served   []string
		not      []string
	}{
		"with a path": {"https://a.example/mcp", []string{rootMetadata, rootMetadata + "/mcp"},
			[]string{rootMetadata + "/", rootMetadata + "/mcp/", "/mcp" + rootMetadata}},
		"with a slash": {"https://a.example/mcp/", []string{rootMetadata, rootMetadata + "/mcp/"},
			[]string{rootMetadata + "/mcp"}},
		"without a path": {"https://a.example", []string{rootMetadata}, []string{rootMetadata + "/mcp"}},
		"a bare slash":   {"https://a.example/", []string{rootMetadata}, []string{rootMetadata + "/"}},
	} {
		t.Run(name, func(t *testing.T) {
			m := oauth.ResourceMetadata{Resource: tc.resource, AuthorizationServers: []string{issuerURL}, Name: "Demo"}
			standalone := oauth.NewMetadataHandler(m)
			protected := oauth.Require(testVerifier(t), m, &oauth.RequireOptions{Logger: discardLog})(echo)
			for _, path := range tc.served {
				for _, h := range []http.Handler{standalone, protected} {
					w := do(h, "GET", path, "", "Origin: https://page.example")
					var got oauth.ResourceMetadata
					if err := json.Unmarshal(w.Body.Bytes(), &got); w.Code != 200 || err != nil ||
						got.Resource != tc.resource || got.AuthorizationServers[0] != issuerURL || got.Name != "Demo" {
						t.Errorf("%s: got %d %s, want the metadata", path, w.Code, w.Body)
					}
					if h := w.Header(); h.Get("Content-Type") != "application/json" ||
						h.Get("Access-Control-Allow-Origin") != "*" ||
						h.Get("Access-Control-Allow-Credentials") != "" ||
						!strings.Contains(h.Get("Cache-Control"), "max-age=300") {
						t.Errorf("%s: got header %v, want cacheable JSON for every origin", path, h)
					}
				}
			}
			for _, path := range tc.not {
				if w := do(standalone, "GET", path, ""); w.Code != 404 {
					t.Errorf("%s: got %d, want 404", path, w.Code)
				}
				if w := do(protected, "GET", path, ""); w.Code != 401 {
					t.Errorf("%s behind Require: got %d, want 401", path, w.Code)
				}
			}
		})
	}
}

func TestMetadataCORS(t *testing.T) {
	h := protect(t, echo, nil)
	w := do(h, "OPTIONS", rootMetadata+"/mcp", "", "Origin: https://page.example", "Access-Control-Request-Method: GET",
		"Access-Control-Request-Headers: mcp-protocol-version")
	if head := w.Header(); w.Code != 204 || head.Get("Access-Control-Allow-Origin") != "*" ||
		head.Get("Access-Control-Allow-Headers") != "*" || head.Get("Access-Control-Allow-Methods") != "GET" {
		t.Errorf("preflight: got %d %v, want 204 with CORS headers", w.Code, head)
	}
	if w := do(h, "POST", rootMetadata, "x"); w.Code != 405 || w.Header().Get("Allow") != "GET, HEAD, OPTIONS" {
		t.Errorf("POST: got %d %v, want 405 with Allow", w.Code, w.Header())
	}
}

func TestMetadataURL(t *testing.T) {
	for resource, want := range map[string]string{
		"https://a.example/mcp":      "https://a.example/.well-known/oauth-protected-resource/mcp",
		"HTTPS://A.example:8443/":    "https://A.example:8443/.well-known/oauth-protected-resource",
		"https://a.example/a%2Fb/mc": "https://a.example/.well-known/oauth-protected-resource/a%2Fb/mc",
	} {
		m := oauth.ResourceMetadata{Resource: resource, AuthorizationServers: []string{issuerURL}}
		w := do(oauth.Require(testVerifier(t), m, &oauth.RequireOptions{Logger: discardLog})(echo), "POST", "/", "")
		if got := bearerChallenge(t, w)["resource_metadata"]; got != want {
			t.Errorf("%s: got %s, want %s", resource, got, want)
		}
	}
}
