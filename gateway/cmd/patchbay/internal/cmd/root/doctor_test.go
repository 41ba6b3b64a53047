package root

import (
	"cmp"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"html"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/connect"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/doctor"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/exit"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// serveWeb serves a handler until the test ends, and returns its URL.
func serveWeb(t *testing.T, h http.HandlerFunc) string {
	t.Helper()
	web := httptest.NewServer(h)
	t.Cleanup(web.Close)
	return web.URL
}

// respond responds with a status, a Content-Type and a body.
func respond(status int, contentType, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", contentType)
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

const initialized = `{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"1999-01-01","capabilities":{"tools":{}},` +
	`"serverInfo":{"name":"old","version":"1"}}}`

// unauthorized requires a token. documents are the bodies at the paths of metadata, in which $URL
// is its URL.
func unauthorized(t *testing.T, documents map[string]string) string {
	return serveWeb(t, func(w http.ResponseWriter, r *http.Request) {
		origin := "http://" + r.Host
		switch text, ok := documents[r.URL.Path]; {
		case r.URL.Path == connect.Endpoint:
			w.Header().Set("WWW-Authenticate", `Bearer error="invalid_token"`)
			w.WriteHeader(http.StatusUnauthorized)
		case ok:
			respond(http.StatusOK, "application/json", strings.ReplaceAll(text, "$URL", origin))(w, r)
		default:
			http.NotFound(w, r)
		}
	}) + connect.Endpoint
}

const (
	resourcePath = "/.well-known/oauth-protected-resource/mcp"
	issuerPath   = "/.well-known/oauth-authorization-server"
	resourceText = `{"resource":"$URL/mcp","authorization_servers":["$URL"]}`
)

// expired returns the URL of a server whose certificate has expired, and the file of the
// certificate.
func expired(t *testing.T) (address, file string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC),
		NotAfter: time.Date(2021, 1, 1, 0, 0, 0, 0, time.UTC), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	web := httptest.NewUnstartedServer(respond(http.StatusOK, "application/json", initialized))
	web.Config.ErrorLog = log.New(io.Discard, "", 0)
	web.TLS = &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
	web.StartTLS()
	t.Cleanup(web.Close)
	file = filepath.Join(t.TempDir(), "ca.pem")
	writeFile(t, file, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})))
	return web.URL + connect.Endpoint, file
}

// A sickServer is a server that the doctor examines.
type sickServer struct {
	failed string // the check that names the cause; "" if the server connects
	status int
	args   []string
}

func sickServers(t *testing.T) map[string]sickServer {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	good := listenHTTP(t, newServer("demo"))
	mux := http.NewServeMux()
	mux.Handle(connect.Endpoint, http.RedirectHandler(good, http.StatusTemporaryRedirect))
	elsewhere := httptest.NewServer(mux)
	t.Cleanup(elsewhere.Close)
	paths := serveWeb(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != connect.Endpoint {
			http.NotFound(w, r)
			return
		}
		respond(http.StatusOK, "application/json", initialized)(w, r)
	})
	past, file := expired(t)
	serve := []string{"--env", serveEnv + "=1", "--"}
	shell := func(script string) []string { return append(slices.Clone(serve), "sh", "-c", script, self) }
	return map[string]sickServer{
		"wrong path": {"http", exit.Unreachable, []string{paths + "/api"}},
		"307":        {"redirect", exit.Unreachable, []string{elsewhere.URL + connect.Endpoint}},
		"HTML page": {"http", exit.Unreachable, []string{serveWeb(t, respond(http.StatusOK, "text/html; charset=utf-8",
			"<!doctype html>\n<title>Acme</title>"))}},
		"401 without metadata": {"metadata", exit.Auth, []string{unauthorized(t, nil)}},
		"PKCE missing": {"server-metadata", exit.Auth, []string{unauthorized(t, map[string]string{resourcePath: resourceText,
			issuerPath: `{"issuer":"$URL","authorization_endpoint":"$URL/authorize","token_endpoint":"$URL/token",` +
				`"registration_endpoint":"$URL/register","response_types_supported":["code"]}`})}},
		"expired certificate": {"tls", exit.Unreachable, []string{past, "--cacert", file}},
		"wrong Content-Type": {"http", exit.Unreachable, []string{serveWeb(t,
			respond(http.StatusOK, "text/plain", initialized)) + connect.Endpoint}},
		"302 to a page": {"redirect", exit.Unreachable, []string{serveWeb(t,
			http.RedirectHandler(paths+"/login", http.StatusFound).ServeHTTP) + connect.Endpoint}},
		"missing module": {"start", exit.Unreachable, shell(
			`echo "Cannot find module '/a.js', code: 'MODULE_NOT_FOUND'" >&2; exit 1`)},
		"silent exit":       {"start", exit.Unreachable, shell("exit 1")},
		"version mismatch":  {"negotiate", exit.Unreachable, []string{paths + connect.Endpoint}},
		"crash after start": {"start", exit.Unreachable, shell("echo 'Error: DATABASE_URL is missing' >&2; exit 3")},
		"stdout noise":      {"", exit.OK, shell(`echo "Listening …"; exec "$0"`)},
		"slow start":        {"", exit.OK, shell(`sleep 6; exec "$0"`)},
		"no response":       {"start", exit.Unreachable, append([]string{"--timeout", "500ms"}, shell("exec sleep 60")...)},
	}
}

// volatileReport matches the text of a report that differs between runs and machines.
var volatileReport = []struct {
	pattern *regexp.Regexp
	with    string
}{
	{regexp.MustCompile(`(?m)^ +in your environment and not inherited: .*\n`), ""},
	{regexp.MustCompile(`; the command did not inherit .* with --env`), ""},
	{regexp.MustCompile(`(directory +|program +)/\S+`), "${1}/…"},
	{regexp.MustCompile(`/\S+root\.test`), "/…"},
	{regexp.MustCompile(`127\.0\.0\.1:[0-9]+`), "127.0.0.1:PORT"},
	{regexp.MustCompile(`pid [0-9]+`), "pid N"},
	{regexp.MustCompile(`"ms":[0-9.e-]+`), `"ms":N`},
	{regexp.MustCompile(`\([0-9-]+ [0-9:]+\)`), "(TIME)"},
	{regexp.MustCompile(`[0-9hm]+0s ago`), "TIME ago"},
	{regexp.MustCompile(`(in|after|than|exited) [0-9.]+(µs|ms|s)`), "$1 TIME"},
}

func withoutChanges(text string) string {
	for _, c := range volatileReport {
		text = c.pattern.ReplaceAllString(text, c.with)
	}
	return text
}

// The doctor names the cause of each failure and the next step. The texts are in testdata/doctor.
func TestDoctorNamesTheCause(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("needs sh")
	}
	freshVault(t)
	for name, server := range sickServers(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := patchbay(t, "", append([]string{"doctor"}, server.args...)...)
			if o.status != server.status || o.stderr != "" {
				t.Errorf("got status %d, %s, want %d", o.status, o.stderr, server.status)
			}
			if named := "FAIL  " + server.failed + " "; strings.Contains(o.stdout, "FAIL") != (server.failed != "") ||
				server.failed != "" && !strings.Contains(o.stdout, named) {
				t.Errorf("got\n%swant %q", o.stdout, named)
			}
			checkGolden(t, filepath.Join("testdata", "doctor", strings.ReplaceAll(name, " ", "-")+".txt"),
				withoutChanges(o.stdout))
		})
	}
}

func checkGolden(t *testing.T, file, got string) {
	t.Helper()
	if update() {
		writeFile(t, file, got)
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := gocmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", file, diff)
	}
}

func TestDoctorNamesAProgramThatIsNotInstalled(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("needs sh")
	}
	empty, home := t.TempDir(), t.TempDir()
	t.Setenv("PATH", empty)
	o := patchbay(t, "", "doctor", "--", "npx", "-y", "@acme/server")
	text := strings.ReplaceAll(withoutChanges(o.stdout), empty, "/empty")
	if o.status != exit.Unreachable {
		t.Errorf("got %+v, want status %d", o, exit.Unreachable)
	}
	checkGolden(t, filepath.Join("testdata", "doctor", "npx-that-is-not-installed.txt"), text)
	// A login shell that finds the program is run only with the flag.
	writeFile(t, filepath.Join(home, "npx"), "#!/bin/sh\n")
	shell := filepath.Join(home, "shell")
	writeFile(t, shell, "#!/bin/sh\nPATH="+home+":$PATH\neval \"$3\"\n")
	for _, file := range []string{shell, filepath.Join(home, "npx")} {
		if err := os.Chmod(file, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("SHELL", shell)
	found := "your login shell finds " + filepath.Join(home, "npx")
	o = patchbay(t, "", "doctor", "--login-shell", "--", "npx")
	if !strings.Contains(o.stdout, found) || !strings.Contains(o.stdout, "only in the PATH of your login shell: "+home+"\n") {
		t.Errorf("got %s, want %s", o.stdout, found)
	}
	if o = patchbay(t, "", "doctor", "--", "npx"); strings.Contains(o.stdout, found) {
		t.Errorf("got %s, want no login shell without the flag", o.stdout)
	}
}

// The doctor names a runtime that is older than the SDKs of MCP need.
func TestDoctorNamesAnOldRuntime(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("needs sh")
	}
	for name, test := range map[string]struct{ program, version, want string }{
		"npx with an old Node.js": {"npx", "v16.20.2", "-> install Node.js 18 or later"},
		"npx with Node.js":        {"npx", "v18.0.0", "Node.js v18.0.0"},
		"old Python":              {"python3", "Python 3.9.18", "-> install Python 3.10 or later"},
		"another program":         {"node", "hello", "Node.js hello"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for _, program := range []string{"npx", "node", "python3"} {
				script := "#!/bin/sh\n[ \"$1\" != --version ] || { echo '" + test.version + "'; exit; }\nexit 3\n"
				if err := os.WriteFile(filepath.Join(dir, program), []byte(script), 0o700); err != nil {
					t.Fatal(err)
				}
			}
			t.Setenv("PATH", dir)
			o := patchbay(t, "", "doctor", "--", test.program, "-y", "@acme/server")
			isOld := strings.HasPrefix(test.want, "->")
			if !strings.Contains(o.stdout, test.want) || strings.Contains(o.stdout, "warn  program") != isOld {
				t.Errorf("got %s, want %s", o.stdout, test.want)
			}
		})
	}
}

// The error of a server that does not connect names the doctor. A server that answers, or asks for a
// login, needs no doctor.
func TestFailedConnectionsNameTheDoctor(t *testing.T) {
	freshVault(t)
	const hint = "\n  To find the reason: patchbay doctor "
	page := serveWeb(t, respond(http.StatusOK, "text/html", "<title>Acme</title>"))
	for name, test := range map[string]struct {
		args []string
		want string
	}{
		"no server":         {[]string{"tools", "http://127.0.0.1:1/mcp"}, hint + "http://127.0.0.1:1/mcp\n"},
		"a web page":        {[]string{"probe", page}, hint + page + "\n"},
		"no such program":   {[]string{"call", "x", "--", "/no/such/file", "a b"}, hint + "-- /no/such/file 'a b'\n"},
		"an unknown tool":   {[]string{"call", listenHTTP(t, newServer("demo")), "none"}, ""},
		"an unknown server": {[]string{"tools", "none"}, ""},
	} {
		if o := patchbay(t, "", test.args...); o.status == exit.OK || !strings.Contains(o.stderr, test.want) ||
			test.want == "" && strings.Contains(o.stderr, "doctor") {
			t.Errorf("%s: got %d, %s, want %q", name, o.status, o.stderr, test.want)
		}
	}
}

func TestDoctorPrintsJSON(t *testing.T) {
	freshVault(t)
	o := patchbay(t, "", "doctor", "--json", unauthorized(t, nil))
	var got doctor.Report
	if err := json.Unmarshal([]byte(o.stdout), &got); err != nil || o.status != exit.Auth || len(got.Checks) != 15 {
		t.Fatalf("got %+v, %v, want status %d and 15 checks", o, err, exit.Auth)
	}
	checkGolden(t, filepath.Join("testdata", "doctor", "401-without-metadata.json"),
		strings.ReplaceAll(withoutChanges(o.stdout), `},{"name"`, "},\n{\"name\""))
}

func TestDoctorFindsNoFault(t *testing.T) {
	mcptest.NoLeaks(t)
	freshVault(t)
	o := patchbay(t, "", "doctor", listenHTTP(t, newServer("demo")))
	if o.status != exit.OK || strings.Contains(o.stdout, "FAIL") || strings.Contains(o.stdout, "  warn") ||
		!strings.Contains(o.stdout, "10 tools\n") {
		t.Errorf("got %+v, want no failure", o)
	}
}

// The doctor begins a login only with --login, checks its steps, and uses the stored login later.
func TestDoctorLogsIn(t *testing.T) {
	mcptest.NoLeaks(t)
	freshVault(t)
	server, ann := protected(t), newUserBrowser(t)
	o := patchbay(t, "", "doctor", server)
	if o.status != exit.Auth || !strings.Contains(o.stdout, "a login begins only on request") ||
		!strings.Contains(o.stdout, "-> log in with patchbay auth login "+server) {
		t.Errorf("without --login: got %+v", o)
	}
	o = withBrowser(t, ann, "doctor", "--login", server)
	if o.status != exit.OK {
		t.Errorf("with --login: got %+v", o)
	}
	for _, want := range []string{"  ok    register", "  ok    authorize", "resource=" + server, "response with code, iss, state",
		"  ok    token", "token type Bearer", "  ok    negotiate"} {
		if !strings.Contains(o.stdout, want) {
			t.Errorf("got %s, want %q", o.stdout, want)
		}
	}
	if o = patchbay(t, "", "doctor", server); o.status != exit.OK || !strings.Contains(o.stdout, "a login at ") {
		t.Errorf("with the stored login: got %+v", o)
	}
	denying := newUserBrowser(t)
	denying.deny = true
	o = withBrowser(t, denying, "doctor", "--login", server)
	if o.status != exit.Auth || !strings.Contains(o.stdout, "error access_denied") {
		t.Errorf("denied: got %+v", o)
	}
}

// The first event of a stream may only state its id, so that a client can resume the stream.
func TestDoctorReadsEventsUpToTheMessage(t *testing.T) {
	mcptest.NoLeaks(t)
	freshVault(t)
	o := patchbay(t, "", "doctor", serveWeb(t, respond(http.StatusOK, "text/event-stream",
		"id: 1\ndata: \n\nevent: message\ndata: "+initialized+"\n\n"))+connect.Endpoint)
	if !strings.Contains(o.stdout, "  ok    http ") || !strings.Contains(o.stdout, "FAIL  negotiate ") {
		t.Errorf("got %+v, want that the server responds with a message of an unknown revision", o)
	}
}

const leaked = "s3cr3t-TOKEN/val&<ue+1"

// The report contains no secret, even if the server repeats it, and escapes the text of the server.
func TestDoctorReportIsSafe(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("needs sh")
	}
	freshVault(t)
	echo := serveWeb(t, func(w http.ResponseWriter, r *http.Request) {
		said := r.Header.Get("Authorization") + r.Header.Get("X-Key")
		w.Header().Set("WWW-Authenticate", `Bearer error_description="`+said+`"`)
		w.Header().Set("Content-Type", "text/plain; x="+said)
		w.WriteHeader(cmp.Or(map[string]int{"/401": http.StatusUnauthorized, "/200": http.StatusOK}[r.URL.Path], http.StatusNotFound))
		inJSON, _ := json.Marshal(said) // never fails
		_, _ = fmt.Fprintf(w, "%s %s %s\u202E\U000E0041%s", inJSON, html.EscapeString(said), hostile,
			strings.Repeat(said+" ", 10000))
	})
	const script = `printf '%s \033]0;title\007 \342\200\256 %s\n' "$API_KEY" "$0"; echo "$API_KEY \033[2J" >&2; exit 1`
	for _, args := range [][]string{
		{echo + "/401", "--header", "Authorization: Bearer " + leaked},
		{echo + "/200", "--header", "X-Key: " + leaked},
		{echo + "/404?key=" + leaked, "--header", "X-Key: " + leaked},
		{"--env", "API_KEY=" + leaked, "--", "sh", "-c", script, leaked},
	} {
		for _, format := range []string{"--color=auto", "--json"} {
			o := patchbay(t, "", append([]string{"doctor", format}, args...)...)
			text := o.stdout + o.stderr
			if o.status == exit.OK || !strings.Contains(text, "***") {
				t.Errorf("%q: got %+v, want a failure with masked text", args, o)
			}
			isLeaked := strings.Contains(text, "s3cr3t") || strings.Contains(text, "TOKEN/") || strings.Contains(text, "ue+1")
			if isLeaked || strings.ContainsAny(text, "\x1b\x07\u202e\u200b\U000E0041") {
				t.Errorf("%q: the report contains a secret or a control character: %q", args, text)
			}
		}
	}
}
