package conformance_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
)

// A consoleFailure is a server that does not connect: its entry, the check that fails, and a part
// of the next step.
type consoleFailure struct {
	entry       map[string]any
	check, next string
}

func urlEntry(address string) map[string]any { return map[string]any{"url": address} }

func shellEntry(script string) map[string]any {
	return map[string]any{"command": "sh", "args": []string{"-c", script}}
}

// serveFailure serves a handler until the test ends, and returns its URL.
func serveFailure(t *testing.T, h http.HandlerFunc) string {
	web := httptest.NewServer(h)
	t.Cleanup(web.Close)
	return web.URL
}

// expiredServer returns the URL of a server whose certificate has expired.
func expiredServer(t *testing.T) string {
	key := must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC),
		NotAfter: time.Date(2021, 1, 1, 0, 0, 0, 0, time.UTC), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	der := must(x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key))(t)
	web := httptest.NewUnstartedServer(http.NotFoundHandler())
	web.Config.ErrorLog = log.New(io.Discard, "", 0)
	web.TLS = &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
	web.StartTLS()
	t.Cleanup(web.Close)
	return web.URL + "/mcp"
}

// guarded returns the URL of a server that requires a token. documents are the bodies at the paths
// of metadata, in which $URL is its URL.
func guarded(t *testing.T, documents map[string]string) map[string]any {
	return urlEntry(serveFailure(t, func(w http.ResponseWriter, r *http.Request) {
		switch text, ok := documents[r.URL.Path]; {
		case r.URL.Path == "/mcp":
			w.Header().Set("WWW-Authenticate", `Bearer error="invalid_token"`)
			w.WriteHeader(http.StatusUnauthorized)
		case ok:
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, strings.ReplaceAll(text, "$URL", "http://"+r.Host))
		default:
			http.NotFound(w, r)
		}
	}) + "/mcp")
}

// failures returns a server for each kind of failure.
func failures(t *testing.T) map[string]consoleFailure {
	const (
		resourcePath = "/.well-known/oauth-protected-resource/mcp"
		issuerPath   = "/.well-known/oauth-authorization-server"
		resource     = `{"resource":"$URL/mcp","authorization_servers":["$URL"]}`
		endpoints    = `"authorization_endpoint":"$URL/authorize","token_endpoint":"$URL/token",` +
			`"registration_endpoint":"$URL/register","response_types_supported":["code"]`
		pkce = `,"code_challenge_methods_supported":["S256"]}`
	)
	html := serveFailure(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = io.WriteString(w, "<!doctype html>\n<title>Acme</title>")
	})
	elsewhere := serveFailure(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, html+"/moved", http.StatusTemporaryRedirect)
	})
	return map[string]consoleFailure{
		"wrong-path":  {urlEntry(serveFailure(t, http.NotFound) + "/api"), "http", ""},
		"html-page":   {urlEntry(html), "http", "this is a web page, not an MCP server"},
		"redirect":    {urlEntry(elsewhere + "/mcp"), "redirect", "/moved"},
		"expired":     {urlEntry(expiredServer(t)), "tls", "certificate"},
		"no-metadata": {guarded(t, nil), "metadata", "serve protected resource metadata (RFC 9728)"},
		"wrong-resource": {guarded(t, map[string]string{resourcePath: `{"resource":"https://other.example/mcp",` +
			`"authorization_servers":["$URL"]}`}), "metadata", "resource"},
		"no-issuer": {guarded(t, map[string]string{resourcePath: resource}), "server-metadata", ""},
		"wrong-issuer": {guarded(t, map[string]string{resourcePath: resource,
			issuerPath: `{"issuer":"https://other.example",` + endpoints + pkce}), "server-metadata",
			"correct the metadata of the authorization server"},
		"no-pkce": {guarded(t, map[string]string{resourcePath: resource,
			issuerPath: `{"issuer":"$URL",` + endpoints + `}`}),
			"server-metadata", `"code_challenge_methods_supported": ["S256"]`},
		"no-program":  {map[string]any{"command": "/no/such/program"}, "program", ""},
		"exit-3":      {shellEntry("echo 'Error: DATABASE_URL is missing' >&2; exit 3"), "start", ""},
		"print":       {shellEntry("echo 'Listening on port 1'; exit 1"), "output", "log to standard error"},
		"no-response": {shellEntry("exec sleep 600"), "start", ""},
	}
}

// TestConsoleFailures opens Explore for servers of each kind of failure: the checks of the doctor
// begin by themselves, and name the failed check and the next step.
func TestConsoleFailures(t *testing.T) {
	browser := startBrowser(t)
	all, entries := failures(t), map[string]any{}
	for name, f := range all {
		entries[name] = f.entry
	}
	text := must(json.Marshal(map[string]any{"mcpServers": entries, "patchbay": map[string]any{
		"servers": map[string]any{"no-response": map[string]any{"startTimeout": "5s"}}}}))(t)
	w := startConsole(t, string(text), "--timeout", "5s")
	base, _, _ := strings.Cut(w.url, "/login")
	p := newWatchedTab(t, browser)
	p.open(w.url)
	p.waitFor("the overview", `document.querySelector("#server-demo.ok") !== null`)
	for name, f := range all {
		p.open(base + "/explore?server=" + name)
		p.waitFor("the report of "+name, `document.querySelector("#examination #report-text") !== null`)
		failed := strings.Split(p.read(chromedp.Evaluate[string](`[...document.querySelectorAll("#examination .row")]
			.filter((row) => row.querySelector(".badge.bad") !== null)
			.map((row) => row.querySelector("h3").textContent).join(" ")`)), " ")
		next := p.read(chromedp.Evaluate[string](fmt.Sprintf(`[...document.querySelectorAll("#examination .row")]
			.filter((row) => row.querySelector("h3").textContent === %q)
			.map((row) => row.querySelector(".notice")?.textContent ?? "").join(" ")`, f.check)))
		if !slices.Contains(failed, f.check) || next == "" || !strings.Contains(next, f.next) {
			t.Errorf("%s: failed checks %q with the next step %q, want %s with %q\n%s",
				name, failed, next, f.check, f.next, p.text())
		}
	}
}
