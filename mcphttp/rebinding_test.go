package mcphttp_test

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/mcphttp"
)

// A page that had its own name pointed at the server's address is of the same origin as the server by its own word
// only.
func TestHTTP02_SameOriginNeedsAHostThatIsOurs(t *testing.T) {
	lan := &net.TCPAddr{IP: net.IPv4(192, 0, 2, 7), Port: 8080}
	for _, test := range []struct {
		host, origin, site string
		allowed            []string
		want               bool
	}{
		{"evil.example:8080", "http://evil.example:8080", "", nil, false},
		{"evil.example:8080", "", "same-origin", nil, false},
		{"evil.example:8080", "", "", nil, true}, // no browser
		{"192.0.2.7:8080", "http://192.0.2.7:8080", "", nil, true},
		{"localhost:8080", "http://localhost:8080", "", nil, true},
		{"mcp.example:8080", "http://mcp.example:8080", "", []string{"mcp.example"}, true},
		{"mcp.example:8080", "", "same-origin", []string{"mcp.example"}, true},
		{"mcp.example:8080", "http://evil.example:8080", "", []string{"mcp.example"}, false},
	} {
		h := mcphttp.NewHandler(cannedCore, &mcphttp.Options{AllowedHosts: test.allowed})
		r := httptest.NewRequest(http.MethodPost, "http://"+test.host+"/mcp", strings.NewReader(modernBody))
		r = r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, net.Addr(lan)))
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Mcp-Protocol-Version", "2026-07-28")
		r.Header.Set("Mcp-Method", "tools/call")
		r.Header.Set("Mcp-Name", "echo")
		if test.origin != "" {
			r.Header.Set("Origin", test.origin)
		}
		if test.site != "" {
			r.Header.Set("Sec-Fetch-Site", test.site)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if got := w.Code != http.StatusForbidden; got != test.want {
			t.Errorf("%+v: status %d", test, w.Code)
		}
	}
}
