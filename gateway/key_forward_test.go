package gateway_test

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/patchbay-mcp/patchbay/gateway"
	"github.com/patchbay-mcp/patchbay/host"
	"github.com/patchbay-mcp/patchbay/host/config"
	"github.com/patchbay-mcp/patchbay/mcphttp"
)

// A key of the gateway reaches no server, also not one that gets the header Authorization of its callers.
func TestKeysAreNotForwarded(t *testing.T) {
	var mu sync.Mutex
	var seen []string
	handler := mcphttp.NewHandler((&upstreams{}).newServer("one"), nil)
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		seen = append(seen, r.Header.Get("Authorization"))
		mu.Unlock()
		handler.ServeHTTP(w, r)
	}))
	defer upstream.Close()
	f, err := config.Parse(fmt.Appendf(nil, `{"mcpServers": {"one": {"url": %q}}, "patchbay": {"servers": {"one":
		{"auth": "forward", "insecureForwardAuthorization": true}}}}`, upstream.URL))
	if err != nil {
		t.Fatal(err)
	}
	h, err := host.Open(t.Context(), f, &host.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	as := newIssuer(t, publicURL+"/mcp")
	opts := as.options(publicURL)
	secret := newKey(t, opts.KeyStore, gateway.Key{Name: "ann"})
	g := gateway.New(h, opts).Handler()
	token := as.token(t, "bob", publicURL+"/mcp", "use")
	for _, value := range []string{key, secret, token} {
		if w := request(g, "POST", "/mcp", "Authorization", "Bearer "+value); w.Code != 200 || !strings.Contains(w.Body.String(), "whoami") {
			t.Errorf("%d %s, want the tools", w.Code, w.Body)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	all := strings.Join(seen, "\n")
	if len(seen) < 3 || strings.Contains(all, key) || strings.Contains(all, secret) || !strings.Contains(all, token) {
		t.Errorf("the server got %q, want the token that the settings forward, and no key", seen)
	}
}
