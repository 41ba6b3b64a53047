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
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
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

// speaking returns the URL of a server that speaks a single revision and lists nothing. server/discover
// returns the revisions in declared; if declared is nil, the server does not implement server/discover.
func speaking(t *testing.T, contentType, revision string, declared ...string) string {
	return serveFailure(t, func(w http.ResponseWriter, r *http.Request) {
		var m struct {
			ID     json.RawMessage `json:"id"`
			Method string          `json:"method"`
		}
		if r.Method != http.MethodPost {
			w.WriteHeader(http.StatusMethodNotAllowed)
			return
		}
		if json.NewDecoder(r.Body).Decode(&m) != nil || m.ID == nil {
			w.WriteHeader(http.StatusAccepted)
			return
		}
		const about = `"capabilities":{"tools":{}},"serverInfo":{"name":"acme","version":"1"}`
		answer := `"error":{"code":-32601,"message":"method not found"}`
		switch {
		case m.Method == "initialize":
			answer = fmt.Sprintf(`"result":{"protocolVersion":%q,%s}`, revision, about)
		case m.Method == "server/discover" && declared != nil:
			answer = fmt.Sprintf(`"result":{"resultType":"complete","supportedVersions":%s,"ttlMs":0,`+
				`"cacheScope":"private",%s}`, must(json.Marshal(declared))(t), about)
		case m.Method == "tools/list":
			answer = `"result":{"tools":[]}`
		case m.Method == "ping":
			answer = `"result":{}`
		}
		w.Header().Set("Content-Type", contentType)
		_, _ = fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,%s}`, m.ID, answer)
	}) + "/mcp"
}

// crashing is a script of a server that connects, and crashes when a client requests the first list.
const crashing = `while read -r line; do
	id=$(printf '%s' "$line" | sed -n 's/.*"id":\([0-9]*\).*/\1/p')
	case "$line" in
	*'"initialize"'*) echo '{"jsonrpc":"2.0","id":'$id',"result":{"protocolVersion":"2025-11-25",' \
		'"capabilities":{"tools":{}},"serverInfo":{"name":"acme","version":"1"}}}' ;;
	*tools/list*) echo 'panic: no database' >&2; exit 2 ;;
	*'"id"'*) echo '{"jsonrpc":"2.0","id":'$id',"error":{"code":-32601,"message":"method not found"}}' ;;
	esac
done`

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
		"wrong-path": {urlEntry(serveFailure(t, http.NotFound) + "/api"), "http", "no MCP server is at this path"},
		"html-page":  {urlEntry(html), "http", "this is a web page, not an MCP server"},
		"redirect":   {urlEntry(elsewhere + "/mcp"), "redirect", "/moved"},
		"login-page": {urlEntry(serveFailure(t, func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, html+"/login", http.StatusFound)
		}) + "/mcp"), "redirect", "in a browser"},
		"content-type": {urlEntry(speaking(t, "text/plain", "2025-06-18")), "http",
			"Content-Type must be application/json"},
		"newer-revision": {urlEntry(speaking(t, "application/json", "2031-01-01")), "negotiate", "update Patchbay:"},
		"older-revision": {urlEntry(speaking(t, "application/json", "2023-01-01")), "negotiate", "update the server:"},
		"other-revision": {urlEntry(speaking(t, "application/json", "2024-11-05", "2025-11-25")), "negotiate",
			"server/discover lists 2025-11-25, but the response to initialize contains 2024-11-05"},
		"expired":     {urlEntry(expiredServer(t)), "tls", "certificate"},
		"no-metadata": {guarded(t, nil), "metadata", "serve protected resource metadata (RFC 9728)"},
		"wrong-resource": {guarded(t, map[string]string{resourcePath: `{"resource":"https://other.example/mcp",` +
			`"authorization_servers":["$URL"]}`}), "metadata", "resource"},
		"no-issuer": {guarded(t, map[string]string{resourcePath: resource}), "server-metadata",
			"serve metadata of the authorization server (RFC 8414)"},
		"wrong-issuer": {guarded(t, map[string]string{resourcePath: resource,
			issuerPath: `{"issuer":"https://other.example",` + endpoints + pkce}), "server-metadata",
			"correct the metadata of the authorization server"},
		"no-pkce": {guarded(t, map[string]string{resourcePath: resource,
			issuerPath: `{"issuer":"$URL",` + endpoints + `}`}),
			"server-metadata", `"code_challenge_methods_supported": ["S256"]`},
		"no-program": {map[string]any{"command": "/no/such/program"}, "program", "correct the path"},
		"no-npx": {map[string]any{"command": "npx", "args": []string{"-y", "@acme/server"}}, "program",
			"install Node.js, which contains npx"},
		"exit-3": {shellEntry("echo 'Error: DATABASE_URL is missing' >&2; exit 3"), "start", "DATABASE_URL"},
		"no-module": {shellEntry("echo \"code: 'MODULE_NOT_FOUND', Cannot find module '/a.js'\" >&2; exit 1"), "start",
			"correct the path in the arguments"},
		"crash":       {shellEntry(crashing), "negotiate", "correct the error that standard error names"},
		"print":       {shellEntry("echo 'Listening on port 1'; exit 1"), "output", "log to standard error"},
		"no-response": {shellEntry("exec sleep 600"), "start", "run the command in a terminal"},
	}
}

// onlyPrograms limits PATH to the named programs until the test ends.
func onlyPrograms(t *testing.T, names ...string) {
	t.Helper()
	dir := t.TempDir()
	for _, name := range names {
		if err := os.Symlink(must(exec.LookPath(name))(t), filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", dir)
}

// nextSteps runs the command doctor, and returns the next step of each check that did not pass, by name.
func (w *webConsole) nextSteps(server string) map[string]string {
	w.t.Helper()
	at := slices.Index(w.cmd.Args, "--config")
	cmd := exec.Command(w.binary, "doctor", server, "--json", "--timeout", "5s", "--config", w.cmd.Args[at+1])
	out, err := cmd.Output() // a failed check sets the exit status
	var report struct {
		Checks []struct{ Name, Status, Next string }
	}
	if json.Unmarshal(out, &report) != nil {
		w.t.Fatalf("doctor %s: %v\n%s", server, err, out)
	}
	steps := map[string]string{}
	for _, c := range report.Checks {
		if c.Status == "fail" || c.Status == "warn" {
			steps[c.Name] = c.Next
		}
	}
	return steps
}

// nextStep returns the next step of a check on the page, or "".
func (p *watchedTab) nextStep(check string) string {
	p.t.Helper()
	return p.read(chromedp.Evaluate[string](fmt.Sprintf(`[...document.querySelectorAll("#examination .row")]
		.filter((row) => row.querySelector("h3").textContent === %q && row.querySelector(".badge.bad, .badge.warn"))
		.map((row) => row.querySelector(".notice").textContent.replace("Next: ", "")).join(" ")`, check)))
}

// TestConsoleFailures opens Explore for servers of each kind of failure: the checks of the doctor
// begin by themselves, and name the failed check and the next step, as the command doctor does. A
// server with a warning connects, so the person begins the checks.
func TestConsoleFailures(t *testing.T) {
	browser := startBrowser(t)
	build(t, "..", "./gateway/cmd/patchbay")
	onlyPrograms(t, "sh", "sleep", "sed")
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
		if name == "other-revision" {
			p.open(base + "/doctor?server=" + name)
			p.click("#examination button")
		} else {
			p.open(base + "/explore?server=" + name)
		}
		p.waitFor("the report of "+name, `document.querySelector("#examination #report-text") !== null`)
		next := p.nextStep(f.check)
		if next == "" || !strings.Contains(next, f.next) {
			t.Errorf("%s: the page shows the next step %q of %s, want %q\n%s", name, next, f.check, f.next, p.text())
		}
		steps := w.nextSteps(name)
		if clock.ReplaceAllString(steps[f.check], "") != clock.ReplaceAllString(next, "") {
			t.Errorf("%s: the command prints the next steps %q, want %q of %s", name, steps, next, f.check)
		}
	}
}

// clock is the time of an examination.
var clock = regexp.MustCompile(`\d+:\d+:\d+`)

// TestConsoleSlowStart follows a person whose server starts slowly: Explore and the doctor show the
// elapsed time and standard error meanwhile. Then Explore lists the tools, and the doctor warns.
func TestConsoleSlowStart(t *testing.T) {
	const script = "echo 'downloading acme 1.0' >&2; sleep 8; exec PATCHBAY serve --stdio"
	w := startConsole(t, string(must(json.Marshal(map[string]any{
		"mcpServers": map[string]any{"slow": shellEntry(script)}}))(t)))
	base, _, _ := strings.Cut(w.url, "/login")
	browser := startBrowser(t)
	explore, doctor := newWatchedTab(t, browser), newWatchedTab(t, browser)
	explore.open(w.url)
	explore.waitFor("the overview", `document.querySelector("#server-demo.ok") !== null`)
	explore.shareLogin(doctor)
	doctor.open(base + "/doctor?server=slow")
	doctor.click("#examination button")
	explore.open(base + "/explore?server=slow")
	const counts = `/[1-9]/.test(document.querySelector("%s time[data-since]")?.textContent ?? "") &&
		document.querySelector("%s")?.textContent.includes("downloading acme 1.0") === true`
	explore.waitFor("the elapsed time and standard error", fmt.Sprintf(counts, "#explore-state", "#stderr"))
	doctor.waitFor("the elapsed time and standard error", fmt.Sprintf(counts, "#examination", "#examination-stderr"))
	explore.waitFor("the tools", `document.querySelector("#explore-state .badge.ok") !== null &&
		document.querySelectorAll("#items a").length > 1`)
	doctor.waitFor("the report", `document.querySelector("#examination #report-text") !== null`)
	if next := doctor.nextStep("start"); !strings.Contains(next, "some clients wait for less time") {
		t.Errorf("got the next step %q\n%s", next, doctor.text())
	}
	if doctor.has("#examination .badge.bad") || doctor.has("#examination-stderr") {
		t.Errorf("got a failed check, or standard error after the end:\n%s", doctor.text())
	}
}
