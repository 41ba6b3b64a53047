package gateway_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/ext/servercard"
	"github.com/patchbay-mcp/patchbay/gateway"
)

// cardPaths are the paths of the documents of a gateway with a card.
var cardPaths = []string{"/mcp/server-card", "/.well-known/ai-catalog.json", "/.well-known/mcp/server-card"}

func TestGatewayServesItsCardWithoutAuthorization(t *testing.T) {
	key := gateway.NewKey()
	opts := &gateway.Options{Keys: []string{key}, PublicURL: "https://mcp.example.com",
		Card: &servercard.Card{Version: "1.2.3"}}
	h := gateway.New((&upstreams{}).newHost(t, twoServers), opts).Handler()
	get := func(path string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "https://mcp.example.com"+path, nil))
		return w
	}
	for _, path := range cardPaths {
		w := get(path)
		if w.Code != http.StatusOK {
			t.Errorf("%s: status %d, want 200 without a key", path, w.Code)
		}
		for _, private := range []string{"one", "two", "key_", key} {
			if strings.Contains(w.Body.String(), `"`+private) {
				t.Errorf("%s names %q, which is not public: %s", path, private, w.Body)
			}
		}
	}
	card, err := servercard.Parse(get("/mcp/server-card").Body.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	if card.Name != "com.example.mcp/patchbay" || card.Version != "1.2.3" || len(card.Remotes) != 1 ||
		card.Remotes[0].URL != "https://mcp.example.com/mcp" || card.Remotes[0].SupportedProtocolVersions[0] != "2026-07-28" {
		t.Errorf("got %+v", card)
	}
	if all := card.Remotes[0].Headers; len(all) != 1 || all[0].Name != "Authorization" || !all[0].IsSecret {
		t.Errorf("got the headers %+v, want the key", all)
	}
	for _, path := range []string{"/mcp", "/mcp/s/one", "/mcp/s/one/server-card"} {
		if w := get(path); w.Code != http.StatusUnauthorized {
			t.Errorf("%s: status %d, want 401", path, w.Code)
		}
	}
}

func TestGatewayServesNoCardByDefault(t *testing.T) {
	opts := &gateway.Options{Keys: []string{gateway.NewKey()}, PublicURL: "https://mcp.example.com"}
	h := gateway.New((&upstreams{}).newHost(t, twoServers), opts).Handler()
	for _, path := range cardPaths {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "https://mcp.example.com"+path, nil))
		if w.Code != http.StatusNotFound && w.Code != http.StatusUnauthorized {
			t.Errorf("%s: status %d, want no card", path, w.Code)
		}
	}
}

func TestGatewayRefusesUnusableCards(t *testing.T) {
	for name, opts := range map[string]*gateway.Options{
		"no public URL": {Card: &servercard.Card{Version: "1"}},
		"no version":    {PublicURL: "https://mcp.example.com", Card: &servercard.Card{}},
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: New did not panic", name)
				}
			}()
			gateway.New((&upstreams{}).newHost(t, twoServers), opts)
		}()
	}
}
