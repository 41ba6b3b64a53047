package root

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/patchbay-mcp/patchbay/ext/servercard"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/exit"
	"github.com/patchbay-mcp/patchbay/gateway/internal/freeport"
	"github.com/patchbay-mcp/patchbay/mcphttp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// cardText returns the JSON of a card, whose title contains an escape sequence.
func cardText(endpoint string) string {
	return `{"$schema":"https://static.modelcontextprotocol.io/schemas/v1/server-card.schema.json",` +
		`"name":"com.example/weather","version":"9.9","description":"x","title":"\u001b]0;owned\u0007W\u202e",` +
		`"remotes":[{"type":"streamable-http","url":"` + endpoint + `","supportedProtocolVersions":["2026-07-28"]}]}`
}

// catalogText returns a catalogue that contains a card, and a signature.
func catalogText(card string) string {
	return `{"specVersion":"1.0","signature":"x","entries":[{"identifier":"urn:air:example.com:mcp:weather",` +
		`"type":"application/mcp-server-card+json","data":` + card + `}]}`
}

func TestProbeShowsCardsAsClaims(t *testing.T) {
	mcptest.NoLeaks(t)
	mux := http.NewServeMux()
	web := httptest.NewServer(mux)
	defer web.Close()
	mux.Handle("/mcp", mcphttp.NewHandler(newServer("demo"), nil))
	var credentials atomic.Bool
	mux.HandleFunc("/mcp/server-card", func(w http.ResponseWriter, r *http.Request) {
		credentials.Store(r.Header.Get("Authorization") != "" || r.URL.RawQuery != "")
		w.Header().Set("Content-Type", servercard.MediaType)
		_, _ = io.WriteString(w, cardText(web.URL+"/mcp"))
	})
	args := []string{"probe", web.URL + "/mcp", "--header", "Authorization: Bearer s3cret"}
	o := patchbay(t, "", args...)
	for _, want := range []string{
		"card        com.example/weather 9.9 (", "as " + web.URL + "/mcp/server-card claims, unverified",
		"endpoints " + web.URL + "/mcp", `differs   version is "9.9", and the server reports`,
	} {
		if !strings.Contains(o.stdout, want) {
			t.Errorf("got %s, want %q", o.stdout, want)
		}
	}
	if o.status != exit.OK || strings.ContainsAny(o.stdout+o.stderr, "\x1b\x07\u202e") || credentials.Load() {
		t.Errorf("exit code %d, %q, with credentials: %t", o.status, o.stdout+o.stderr, credentials.Load())
	}
	var report struct {
		Cards []struct {
			Source  string
			Card    servercard.Card
			Differs []string
		}
	}
	o = patchbay(t, "", append(args, "--json")...)
	if err := json.Unmarshal([]byte(o.stdout), &report); err != nil || len(report.Cards) != 1 ||
		report.Cards[0].Card.Version != "9.9" || len(report.Cards[0].Differs) == 0 {
		t.Errorf("--json: %+v, %v", report, err)
	}
	if o = patchbay(t, "", append(args, "--quick")...); strings.Contains(o.stdout, "card ") {
		t.Errorf("--quick: %s, want no cards", o.stdout)
	}
}

func TestProbeReportsCardsThatItCannotRead(t *testing.T) {
	mux := http.NewServeMux()
	web := httptest.NewServer(mux)
	defer web.Close()
	mux.Handle("/mcp", mcphttp.NewHandler(newServer("demo"), nil))
	mux.HandleFunc("/.well-known/ai-catalog.json", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"specVersion":"7.0\u001b[2J"}`)
	})
	o := patchbay(t, "", "probe", web.URL+"/mcp")
	if !strings.Contains(o.stdout, "not read: ") || strings.Contains(o.stdout, "\x1b") || o.status != exit.OK {
		t.Errorf("exit code %d, %q, want the problem of the catalogue", o.status, o.stdout)
	}
}

// A command names the endpoints that a site claims, and connects to none of them.
func TestClaimedEndpointsAreNamedAndNotUsed(t *testing.T) {
	mcptest.NoLeaks(t)
	home, _ := editHome(t)
	var requests atomic.Int64
	mcp := mcphttp.NewHandler(newServer("demo"), nil)
	claimed := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		mcp.ServeHTTP(w, r)
	}))
	defer claimed.Close()
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/.well-known/ai-catalog.json" {
			w.Header().Set("Content-Type", "text/html")
			_, _ = io.WriteString(w, "<html>welcome</html>")
			return
		}
		w.Header().Set("Content-Type", servercard.CatalogMediaType)
		_, _ = io.WriteString(w, catalogText(cardText(claimed.URL+"/mcp")))
	}))
	defer site.Close()
	for _, args := range [][]string{{"probe", site.URL}, {"tools", site.URL + "/about?key=s3cret"},
		{"gateway", "add", "weather", site.URL}} {
		o := patchbay(t, "", args...)
		if o.status != exit.Unreachable || !strings.Contains(o.stderr, "its server cards claim "+claimed.URL+
			"/mcp (com.example/weather); the claims are not verified") || strings.Contains(o.stderr, "s3cret") {
			t.Errorf("%q: exit code %d, %s", args, o.status, o.stderr)
		}
	}
	if n := requests.Load(); n > 0 {
		t.Errorf("the claimed endpoint got %d requests, want none", n)
	}
	if all, _ := filepath.Glob(filepath.Join(home, "*", "patchbay", "*.json*")); len(all) > 0 {
		text, _ := os.ReadFile(all[0])
		t.Errorf("%s was written: %s", all[0], text)
	}
	if o := patchbay(t, "", "gateway", "add", "weather", claimed.URL); o.status != exit.OK {
		t.Errorf("the URL that the user names: exit code %d, %s", o.status, o.stderr)
	}
}

func TestGatewayCommandServesItsCard(t *testing.T) {
	mcptest.NoLeaks(t)
	file, addr := filepath.Join(t.TempDir(), "mcp.json"), freeport.Addr(t)
	writeFile(t, file, `{"mcpServers": {"one": `+demoEntry(t)+`}, "patchbay": {"publicURL": "http://`+addr+`",
		"card": {"name": "com.example/tools", "title": "Tools"}}}`)
	g := startGateway(t, nil, "--config", file, "--addr", addr)
	r, err := http.Get(g.url + "/server-card")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	card, err := servercard.Parse(text)
	if err != nil || card.Name != "com.example/tools" || card.Title != "Tools" {
		t.Errorf("got %s, %v, want the card of the settings", text, err)
	}
}
