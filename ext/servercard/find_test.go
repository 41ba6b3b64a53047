package servercard_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/patchbay-mcp/patchbay/ext/servercard"
	"github.com/patchbay-mcp/patchbay/internal/oauthfetch"
	"github.com/patchbay-mcp/patchbay/internal/oauthtest"
	"github.com/patchbay-mcp/patchbay/oauth"
)

const catalogURL = "https://example.com/.well-known/ai-catalog.json"

// catalog returns a catalogue with entries.
func catalog(entries ...string) string {
	return `{"specVersion":"1.0","host":{"displayName":"x"},"signature":"forged","entries":[` +
		strings.Join(entries, ",") + `]}`
}

func entry(member string) string {
	return `{"identifier":"urn:air:example.com:mcp:weather","type":"application/mcp-server-card+json",` + member + `}`
}

// find returns the sources of the cards of a site in a network.
func find(t *testing.T, n *oauthtest.Network, site string) ([]string, error) {
	t.Helper()
	claims, err := servercard.Find(t.Context(), (*oauth.Fetcher)(n.Fetcher(nil)), site)
	var sources []string
	for _, c := range claims {
		sources = append(sources, c.Source)
	}
	return sources, err
}

func TestFindReadsTheCatalogueAndTheCardBesideAnEndpoint(t *testing.T) {
	n := oauthtest.NewNetwork(t)
	n.Doc("https://example.com/mcp/server-card", minimal)
	n.Doc("https://cards.example/weather", minimal)
	n.Doc("https://example.com/cards/maps", minimal)
	n.Doc(catalogURL, catalog(
		entry(`"url":"https://cards.example/weather"`),
		`{"identifier":"x","type":"application/a2a-agent-card+json","url":"https://agents.example/x"}`,
		`{"identifier":"x","type":"application/ai-catalog+json","url":"https://nested.example/x"}`,
		entry(`"data":`+minimal),
		entry(`"url":"/cards/maps"`),
		entry(`"url":"https://example.com/mcp/server-card"`),
	))
	got, err := find(t, n, "https://example.com/mcp?token=secret#x")
	want := []string{"https://example.com/mcp/server-card", "https://cards.example/weather", catalogURL,
		"https://example.com/cards/maps"}
	if err != nil || !cmp.Equal(got, want) {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
	wantRequests := []string{"GET https://example.com/mcp/server-card", "GET " + catalogURL,
		"GET https://cards.example/weather", "GET https://example.com/cards/maps"}
	if got := n.Requests(); !cmp.Equal(got, wantRequests) {
		t.Errorf("requests %q, want %q", got, wantRequests)
	}
}

func TestFindSendsTheMediaTypeAndNoCredentials(t *testing.T) {
	n := oauthtest.NewNetwork(t)
	n.Doc("https://example.com/mcp/server-card", minimal)
	if _, err := find(t, n, "https://example.com/mcp"); err != nil {
		t.Fatal(err)
	}
	if _, err := find(t, n, "https://user:secret@example.com/mcp"); err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("a URL with credentials: error %v, want one without the credentials", err)
	}
	n.Doc(catalogURL, catalog())
	_, _ = find(t, n, "https://example.com")
	if h := n.LastHeader(); h.Get("Accept") == "" || h.Get("Authorization") != "" || h.Get("Cookie") != "" {
		t.Errorf("header %v, want an Accept and no credentials", h)
	}
}

func TestFindReadsEarlierPathsWithoutACatalogue(t *testing.T) {
	n := oauthtest.NewNetwork(t)
	if got, err := find(t, n, "https://example.com"); got != nil || err != nil {
		t.Errorf("a site without cards: got %q, %v, want nothing", got, err)
	}
	n.Default = func(w http.ResponseWriter, _ *http.Request) { // as a single-page application
		w.Header().Set("Content-Type", "text/html")
		_, _ = w.Write([]byte("<html>"))
	}
	if got, err := find(t, n, "https://example.com/mcp"); got != nil || err != nil {
		t.Errorf("a site of web pages: got %q, %v, want nothing", got, err)
	}
	n.Page(catalogURL, oauthtest.RedirectPage("https://login.example/"))
	if got, err := find(t, n, "https://example.com"); got != nil || err != nil {
		t.Errorf("a site that redirects to a login: got %q, %v, want nothing", got, err)
	}
	n.Doc("https://example.com/.well-known/mcp/server-card.json", minimal)
	want := []string{"https://example.com/.well-known/mcp/server-card.json"}
	if got, err := find(t, n, "https://example.com"); err != nil || !cmp.Equal(got, want) {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
}

func TestFindReportsDocumentsThatItCannotUse(t *testing.T) {
	large := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, `{"specVersion":"1.0","x":%q}`, strings.Repeat("a", oauthfetch.MaxDocument))
	}
	for name, test := range map[string]struct {
		page http.HandlerFunc
		want string
	}{
		"a failure":      {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(503) }, "HTTP 503"},
		"a large text":   {large, "larger than 1 MiB"},
		"a deep text":    {oauthtest.JSONPage(`{"x":` + nested(50) + `}`), "invalid JSON"},
		"wrong types":    {oauthtest.JSONPage(`{"specVersion":1,"entries":[]}`), "wrong type"},
		"a new version":  {oauthtest.JSONPage(`{"specVersion":"2.0","entries":[]}`), "unknown specVersion"},
		"no version":     {oauthtest.JSONPage(`{"entries":[]}`), "unknown specVersion"},
		"url and data":   {oauthtest.JSONPage(catalog(entry(`"url":"https://a.x","data":` + minimal))), "either url or data"},
		"neither":        {oauthtest.JSONPage(catalog(entry(`"x":1`))), "either url or data"},
		"a file URL":     {oauthtest.JSONPage(catalog(entry(`"url":"file:///etc/passwd"`))), "invalid url"},
		"a private URL":  {oauthtest.JSONPage(catalog(entry(`"url":"https://intern.example/"`))), "URL refused"},
		"cloud metadata": {oauthtest.JSONPage(catalog(entry(`"url":"http://169.254.169.254/latest"`))), "URL refused"},
		"this machine":   {oauthtest.JSONPage(catalog(entry(`"url":"http://localhost/x"`))), "URL refused"},
		"an invalid card": {oauthtest.JSONPage(catalog(entry(`"data":{"name":"\u001b[2J"}`))),
			"invalid $schema"},
		"an escape": {oauthtest.JSONPage(catalog(`{"identifier":"\u001b[2J","type":"` + servercard.MediaType + `"}`)),
			`\x1b[2J`},
	} {
		n := oauthtest.NewNetwork(t)
		n.At("intern.example", "10.1.2.3")
		n.Page(catalogURL, test.page)
		got, err := find(t, n, "https://example.com")
		if got != nil || err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "\x1b") {
			t.Errorf("%s: got %q, error %v, want an error with %q", name, got, err, test.want)
		}
		if strings.HasSuffix(test.want, "refused") && !errors.Is(err, oauth.ErrURLRefused) {
			t.Errorf("%s: error %v, want one that wraps ErrURLRefused", name, err)
		}
	}
}

func TestFindReadsAtMostEightCards(t *testing.T) {
	n := oauthtest.NewNetwork(t)
	var entries []string
	for i := range 100 {
		address := fmt.Sprintf("https://example.com/cards/%d", i)
		n.Doc(address, minimal)
		entries = append(entries, entry(`"url":"`+address+`"`))
	}
	n.Doc(catalogURL, catalog(entries...))
	got, err := find(t, n, "https://example.com")
	if len(got) != 8 || len(n.Requests()) != 9 || err == nil || !strings.Contains(err.Error(), "100 server cards") {
		t.Errorf("got %d cards with %d requests, error %v, want 8 and 9, and an error that says so", len(got),
			len(n.Requests()), err)
	}
}

func TestFindEndsWithItsTimeLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := oauthtest.NewNetwork(t)
		n.Default = func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
		began := time.Now()
		_, err := find(t, n, "https://example.com/mcp")
		if took := time.Since(began); !errors.Is(err, context.DeadlineExceeded) || took != 10*time.Second {
			t.Errorf("error %v after %v, want the time limit after 10 seconds for all requests", err, took)
		}
	})
}
