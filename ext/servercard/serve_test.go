package servercard_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/ext/servercard"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcp/driver"
	"github.com/patchbay-mcp/patchbay/mcphttp"
)

// get sends a request to a handler.
func get(h http.Handler, method, path string, header http.Header) *http.Response {
	r := httptest.NewRequest(method, "https://mcp.example.com"+path, nil)
	if header != nil {
		r.Header = header
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Result()
}

func bodyOf(t *testing.T, r *http.Response) string {
	t.Helper()
	text, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestServeSendsTheHeadersOfTheSpecification(t *testing.T) {
	h := servercard.Serve(weather())(http.NotFoundHandler())
	kinds := map[string]string{
		"/mcp/server-card":                  "application/mcp-server-card+json",
		"/.well-known/mcp/server-card":      "application/mcp-server-card+json",
		"/.well-known/mcp/server-card.json": "application/mcp-server-card+json",
		"/.well-known/ai-catalog.json":      "application/ai-catalog+json",
	}
	for path, kind := range kinds {
		r := get(h, http.MethodGet, path, nil)
		text := bodyOf(t, r)
		for name, want := range map[string]string{
			"Content-Type": kind, "Cache-Control": "public, max-age=3600", "Access-Control-Allow-Origin": "*",
			"Access-Control-Allow-Methods": "GET", "Access-Control-Allow-Headers": "Content-Type, If-None-Match",
			"Access-Control-Expose-Headers": "ETag",
		} {
			if got := r.Header.Get(name); got != want {
				t.Errorf("%s: %s is %q, want %q", path, name, got, want)
			}
		}
		tag := r.Header.Get("ETag")
		if r.StatusCode != http.StatusOK || !json.Valid([]byte(text)) || tag == "" {
			t.Errorf("%s: status %d, %s, ETag %q", path, r.StatusCode, text, tag)
		}
		r = get(h, http.MethodGet, path, http.Header{"If-None-Match": {tag}})
		if r.StatusCode != http.StatusNotModified || bodyOf(t, r) != "" ||
			r.Header.Get("Access-Control-Allow-Origin") != "*" {
			t.Errorf("%s: status %d for the tag, want 304", path, r.StatusCode)
		}
		if r = get(h, http.MethodGet, path, http.Header{"If-None-Match": {`"other"`}}); r.StatusCode != http.StatusOK {
			t.Errorf("%s: status %d for another tag, want 200", path, r.StatusCode)
		}
		if r = get(h, http.MethodHead, path, nil); r.StatusCode != http.StatusOK || bodyOf(t, r) != "" {
			t.Errorf("%s: HEAD: status %d, want 200 without a body", path, r.StatusCode)
		}
		if r = get(h, http.MethodOptions, path, nil); r.StatusCode != http.StatusNoContent {
			t.Errorf("%s: OPTIONS: status %d, want 204", path, r.StatusCode)
		}
		if r = get(h, http.MethodPost, path, nil); r.StatusCode != http.StatusMethodNotAllowed {
			t.Errorf("%s: POST: status %d, want 405", path, r.StatusCode)
		}
	}
	for _, path := range []string{"/mcp", "/server-card", "/mcp/server-card/", "/"} {
		if r := get(h, http.MethodGet, path, nil); r.StatusCode != http.StatusNotFound {
			t.Errorf("%s: status %d, want that of the next handler", path, r.StatusCode)
		}
	}
}

func TestCatalogueNamesEachCard(t *testing.T) {
	second := weather()
	second.Name = "com.example.maps/tiles"
	second.Remotes = []servercard.Remote{{Type: servercard.SSE, URL: "https://mcp.example.com/maps/?tenant=a"}}
	h := servercard.Serve(weather(), second)(http.NotFoundHandler())
	const want = `{"specVersion":"1.0","entries":[` +
		`{"identifier":"urn:air:example.com:mcp:weather","type":"application/mcp-server-card+json",` +
		`"url":"https://mcp.example.com/mcp/server-card"},` +
		`{"identifier":"urn:air:maps.example.com:mcp:tiles","type":"application/mcp-server-card+json",` +
		`"url":"https://mcp.example.com/maps/server-card"}]}`
	if got := bodyOf(t, get(h, http.MethodGet, "/.well-known/ai-catalog.json", nil)); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if r := get(h, http.MethodGet, "/maps/server-card", nil); r.StatusCode != http.StatusOK {
		t.Errorf("the second card: status %d", r.StatusCode)
	}
	if r := get(h, http.MethodGet, "/.well-known/mcp/server-card", nil); r.StatusCode != http.StatusNotFound {
		t.Errorf("the path of a site's only card: status %d, want 404 with two cards", r.StatusCode)
	}
}

func TestServePanicsOnUnusableCards(t *testing.T) {
	without := func(change func(c *servercard.Card)) *servercard.Card {
		c := weather()
		change(c)
		return c
	}
	for name, cards := range map[string][]*servercard.Card{
		"none":          nil,
		"invalid":       {without(func(c *servercard.Card) { c.Description = "" })},
		"no remote":     {without(func(c *servercard.Card) { c.Remotes = nil })},
		"variables":     {without(func(c *servercard.Card) { c.Remotes[0].URL = "https://{x}.example.com/mcp" })},
		"the same name": {weather(), without(func(c *servercard.Card) { c.Remotes[0].URL = "https://mcp.example.com/b" })},
		"the same path": {weather(), without(func(c *servercard.Card) { c.Name = "com.example/b" })},
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: Serve did not panic", name)
				}
			}()
			servercard.Serve(cards...)
		}()
	}
}

// newServer returns a server with a tool that the card must not name, and which an anonymous caller
// does not see.
func newServer() *mcp.Server {
	s := mcp.NewServer("weather-server", "2.1.0", &mcp.ServerOptions{
		Title: "Weather", Description: "Forecasts for every place", Instructions: "secret instructions",
		Visible: func(_ context.Context, f mcp.Feature) bool { return f.Tool == nil },
	})
	type input struct{}
	mcp.AddTool(s, &mcp.Tool{Name: "secret_tool"}, func(context.Context, input) (string, error) { return "", nil })
	return s
}

func TestCardOfAServerEqualsItsDescriptionInEachRevision(t *testing.T) {
	s := newServer()
	listening := httptest.NewUnstartedServer(nil)
	endpoint := "http://" + listening.Listener.Addr().String() + "/mcp"
	card, err := servercard.Describe(t.Context(), s, servercard.Card{Name: "com.example/weather",
		Remotes: []servercard.Remote{{URL: endpoint}}})
	if err != nil {
		t.Fatal(err)
	}
	handler := mcphttp.NewHandler(s, nil)
	refuse := func(next http.Handler) http.Handler { // as authorization does
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Authorization") == "" {
				w.WriteHeader(http.StatusUnauthorized)
				return
			}
			next.ServeHTTP(w, r)
		})
	}
	mux := http.NewServeMux()
	mux.Handle("/mcp", handler)
	listening.Config.Handler = servercard.Serve(card)(refuse(mux))
	listening.Start()
	defer listening.Close()
	claims, err := servercard.Find(t.Context(), nil, listening.URL)
	if err != nil || len(claims) != 1 {
		t.Fatalf("got %+v, %v, want the card without authorization", claims, err)
	}
	text, _ := json.Marshal(claims[0])
	if strings.Contains(string(text), "secret") {
		t.Errorf("the card reveals more than the server's identity: %s", text)
	}
	found := claims[0].Card
	for _, revision := range driver.Revisions() {
		if revision == driver.November2024 { // whose transport has another path
			continue
		}
		header := &http.Client{Transport: withToken{}}
		transport := mcphttp.NewTransport(found.Endpoints()[0], &mcphttp.TransportOptions{Client: header})
		c, err := mcp.Connect(t.Context(), transport, &mcp.ClientOptions{Revision: revision})
		if err != nil {
			t.Fatal(err)
		}
		info := c.ServerInfo()
		if info.Version != found.Version || !slices.Contains(found.Remotes[0].SupportedProtocolVersions, revision) {
			t.Errorf("%s: the server reports %+v, the card %+v", revision, info, found)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
}

type withToken struct{}

func (withToken) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer token")
	return http.DefaultTransport.RoundTrip(r)
}

func TestDescribeFillsEmptyFieldsOnly(t *testing.T) {
	card, err := servercard.Describe(t.Context(), newServer(), servercard.Card{Name: "com.example/w", Title: "Mine",
		Description: "Short", Remotes: []servercard.Remote{{Type: servercard.SSE, URL: "https://example.com/sse"}}})
	if err != nil || card.Title != "Mine" || card.Description != "Short" || card.Version != "2.1.0" ||
		card.Remotes[0].Type != servercard.SSE {
		t.Errorf("got %+v, %v", card, err)
	}
	for name, c := range map[string]servercard.Card{
		"no remote": {Name: "com.example/w"},
		"no name":   {Remotes: []servercard.Remote{{URL: "https://example.com/mcp"}}},
		"no URL":    {Name: "com.example/w", Remotes: []servercard.Remote{{}}},
	} {
		if card, err := servercard.Describe(t.Context(), newServer(), c); err == nil {
			t.Errorf("%s: got %+v, want an error", name, card)
		}
	}
	refusing := mcp.HandlerFunc(func(context.Context, *mcp.Request) (mcp.Result, error) {
		return nil, mcp.Errorf(mcp.CodeInvalidRequest, "log in first")
	})
	if card, err := servercard.Describe(t.Context(), refusing, *weather()); err == nil {
		t.Errorf("a server that refuses: got %+v, want an error", card)
	}
}
