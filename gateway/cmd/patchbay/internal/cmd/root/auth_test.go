package root

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmd/serve"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmdutil"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/connect"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/demo"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/exit"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/login"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/secrets"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/target"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/term"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcphttp"
	"github.com/patchbay-mcp/patchbay/mcptest"
	"github.com/patchbay-mcp/patchbay/oauth/authserver"
)

// protected returns the URL of a server like that of serve --auth demo.
func protected(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return protectedAt(t, listener, "http://"+listener.Addr().String())
}

// protectedAt serves a server like that of serve --auth demo, and returns its URL.
func protectedAt(t *testing.T, listener net.Listener, origin string) string {
	t.Helper()
	store := authserver.NewMemoryStore()
	d, err := serve.NewProtectedDemo(origin, mcphttp.NewHandler(protectedServer(), nil), store, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	d.Host = listener.Addr().String()
	ctx, stop := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- mcphttp.Serve(ctx, listener, "/", d.Handler, d.Route) }()
	t.Cleanup(func() {
		stop()
		if err := errors.Join(<-served, store.Close()); err != nil {
			t.Error(err)
		}
	})
	return origin + connect.Endpoint
}

// freshVault sets a vault directory for the test.
func freshVault(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "vault")
	t.Setenv(secrets.EnvDir, dir)
	return dir
}

// A userBrowser is a browser whose user fills in the login forms.
type userBrowser struct {
	t              *testing.T
	user, password string
	deny           bool
	tls            *tls.Config
	keep           func(last string) // called with the redirect URI instead of opening it, unless nil

	mu     sync.Mutex
	pages  []string // opened pages
	last   string   // text of the last page
	visits sync.WaitGroup
}

func newUserBrowser(t *testing.T) *userBrowser {
	b := &userBrowser{t: t, user: "ann", password: serve.DemoPassword}
	t.Cleanup(b.visits.Wait)
	return b
}

// open opens a page, in place of the system browser.
func (b *userBrowser) open(_ context.Context, page string) error {
	b.mu.Lock()
	b.pages = append(b.pages, page)
	b.mu.Unlock()
	b.visits.Go(func() {
		if err := b.visit(page); err != nil {
			b.t.Error(err)
			b.denyLogin(page)
		}
	})
	return nil
}

// denyLogin ends the wait for the login with an error.
func (b *userBrowser) denyLogin(page string) {
	u, err := url.Parse(page)
	if err != nil {
		b.t.Error(err)
		return
	}
	query := u.Query()
	answer := url.Values{"error": {"access_denied"}, "state": query["state"]}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: timeout}
	if res, err := client.Get(query.Get("redirect_uri") + "?" + answer.Encode()); err == nil {
		res.Body.Close()
	}
}

// timeout bounds the wait for a page. Password hashing is slow with the race detector.
const timeout = 2 * time.Minute

var (
	formAction = regexp.MustCompile(`<form method="post" action="([^"]*)"`)
	formHidden = regexp.MustCompile(`<input type="hidden" name="([^"]*)" value="([^"]*)"`)
)

func (b *userBrowser) visit(page string) error {
	jar, err := cookiejar.New(nil)
	if err != nil {
		return err
	}
	transport := &http.Transport{DisableKeepAlives: true, TLSClientConfig: b.tls}
	client := &http.Client{Jar: jar, Transport: transport, Timeout: timeout}
	if b.keep != nil {
		client.CheckRedirect = func(to *http.Request, _ []*http.Request) error {
			if to.URL.Path == "/callback" {
				b.keep(to.URL.String())
				return http.ErrUseLastResponse
			}
			return nil
		}
	}
	res, err := client.Get(page)
	const maxPages = 5 // consent, login, redirect, and a wrong password
	for range maxPages {
		if err != nil {
			return err
		}
		text, err := io.ReadAll(res.Body)
		res.Body.Close()
		if err != nil {
			return err
		}
		if res.StatusCode >= http.StatusInternalServerError {
			return fmt.Errorf("%s %s: %.500s", res.Status, res.Request.URL.Path, text)
		}
		b.mu.Lock()
		b.last = string(text)
		b.mu.Unlock()
		action := formAction.FindStringSubmatch(string(text))
		if action == nil || strings.Contains(string(text), `id="failure"`) {
			return nil
		}
		to, err := res.Request.URL.Parse(html.UnescapeString(action[1]))
		if err != nil {
			return err
		}
		form := url.Values{"decision": {"allow"}}
		for _, f := range formHidden.FindAllStringSubmatch(string(text), -1) {
			form.Set(f[1], html.UnescapeString(f[2]))
		}
		if strings.Contains(string(text), `name="password"`) {
			form.Set("decision", "login")
			form.Set("username", b.user)
			form.Set("password", b.password)
		}
		if b.deny {
			form.Set("decision", "deny")
		}
		if res, err = client.PostForm(to.String(), form); err != nil {
			return err
		}
	}
	return fmt.Errorf("more than %d pages, the last is %s", maxPages, b.last)
}

// opened waits for the visits, and returns the number of opened pages and the text of the last one.
func (b *userBrowser) opened() (count int, last string) {
	b.visits.Wait()
	b.mu.Lock()
	defer b.mu.Unlock()
	_, last, _ = strings.Cut(b.last, "<body>")
	return len(b.pages), last
}

// withBrowser runs a command on a terminal, with a browser.
func withBrowser(t *testing.T, b *userBrowser, args ...string) outcome {
	t.Helper()
	return atTerminal(t, "", func(p *cmdutil.Factory) { p.Ask.Open = b.open; p.IO.Out.Terminal = false }, args...)
}

func TestCommandsLogInAndStoreTheTokens(t *testing.T) {
	mcptest.NoLeaks(t)
	freshVault(t)
	server, ann := protected(t), newUserBrowser(t)
	o := withBrowser(t, ann, "call", server, "who_am_i")
	if o.status != exit.OK || !strings.Contains(o.stdout, `"user":"ann"`) || !strings.Contains(o.stdout, serve.ScopeUse) {
		t.Fatalf("got %d, %s, %s, want %d, ann and her scope", o.status, o.stdout, o.stderr, exit.OK)
	}
	for _, want := range []string{"Log in to " + server + " at " + strings.TrimSuffix(server, connect.Endpoint),
		"/authorize?client_id="} {
		if !strings.Contains(o.stderr, want) {
			t.Errorf("stderr does not contain %q: %s", want, o.stderr)
		}
	}
	if n, page := ann.opened(); n != 1 || !strings.Contains(page, "logged in") {
		t.Errorf("%d pages were opened, the last one is %s; want 1, logged in", n, page)
	}
	// Another run, without a terminal, has the tokens.
	o = patchbay(t, "", "call", server, "who_am_i")
	if o.status != exit.OK || !strings.Contains(o.stdout, `"user":"ann"`) || o.stderr != "" {
		t.Errorf("second run: got %d, %s, %s, want %d, ann", o.status, o.stdout, o.stderr, exit.OK)
	}
	// Other commands have them too.
	for _, args := range [][]string{{"tools"}, {"probe"}, {"ping"}, {"prompts"}, {"ping", "--revision", "2025-03-26"}} {
		if o := patchbay(t, "", append(args, server)...); o.status != exit.OK || o.stderr != "" {
			t.Errorf("%q: got %d, %s, want %d", args, o.status, o.stderr, exit.OK)
		}
	}
}

func TestProbeLogsInOnce(t *testing.T) {
	mcptest.NoLeaks(t)
	freshVault(t)
	server, ann := protected(t), newUserBrowser(t)
	if o := withBrowser(t, ann, "probe", server); o.status != exit.OK {
		t.Errorf("got %d, %s, want %d", o.status, o.stderr, exit.OK)
	}
	if n, _ := ann.opened(); n != 1 {
		t.Errorf("%d pages were opened, want 1", n)
	}
}

// Requirement: AUTHR-35
func TestMissingScopesAreRequestedAtATerminal(t *testing.T) {
	mcptest.NoLeaks(t)
	freshVault(t)
	server, ann := protected(t), newUserBrowser(t)
	if o := withBrowser(t, ann, "auth", "login", server); o.status != exit.OK {
		t.Fatalf("got %d, %s, want %d", o.status, o.stderr, exit.OK)
	}
	o := patchbay(t, "", "call", server, "reset_counter", "--json")
	want := "patchbay auth login " + server + " --scope " + serve.ScopeUse + " --scope " + serve.ScopeReset
	if got := failureOf(t, o); o.status != exit.Auth || got.Login != want {
		t.Errorf("without a terminal: got %d, %+v, want %d, %s", o.status, got, exit.Auth, want)
	}
	o = withBrowser(t, ann, "call", server, "reset_counter")
	if o.status != exit.OK || !strings.Contains(o.stdout, "0") {
		t.Errorf("at a terminal: got %d, %s, %s, want %d, 0", o.status, o.stdout, o.stderr, exit.OK)
	}
	if n, _ := ann.opened(); n != 2 {
		t.Errorf("%d pages were opened, want 2", n)
	}
	o = patchbay(t, "", "call", server, "who_am_i", "--json")
	if !strings.Contains(o.stdout, serve.ScopeUse) || !strings.Contains(o.stdout, serve.ScopeReset) {
		t.Errorf("got %s, want the scopes of both logins", o.stdout)
	}
}

func TestLaterLoginAddsScopes(t *testing.T) {
	freshVault(t)
	server, ann := protected(t), newUserBrowser(t)
	for _, args := range [][]string{nil, {"--scope", serve.ScopeReset}} {
		if o := withBrowser(t, ann, append([]string{"auth", "login", server}, args...)...); o.status != exit.OK {
			t.Fatalf("got %d, %s, want %d", o.status, o.stderr, exit.OK)
		}
	}
	if o := patchbay(t, "", "call", server, "reset_counter"); o.status != exit.OK {
		t.Errorf("got %d, %s, want %d", o.status, o.stderr, exit.OK)
	}
}

func failureOf(t *testing.T, o outcome) exit.Report {
	t.Helper()
	var got struct{ Error exit.Report }
	if err := json.Unmarshal([]byte(o.stdout), &got); err != nil {
		t.Fatalf("standard output %q, want an error as JSON: %v", o.stdout, err)
	}
	return got.Error
}

// Without a terminal, the error names the command that logs in.
func TestLoginIsNotTriedWithoutATerminal(t *testing.T) {
	mcptest.NoLeaks(t)
	dir := freshVault(t)
	server := protected(t)
	login := "patchbay auth login " + server
	for name, run := range map[string]func(args ...string) outcome{
		"no terminal": func(args ...string) outcome { return patchbay(t, "", args...) },
		"--no-input": func(args ...string) outcome {
			return atTerminal(t, "", func(p *cmdutil.Factory) { p.IO.Out.Terminal = false }, append(args, "--no-input")...)
		},
	} {
		o := run("tools", server)
		if o.status != exit.Auth || !strings.HasSuffix(o.stderr,
			"patchbay: a login is required at "+server+" (scopes "+serve.ScopeUse+")\n  "+login+"\n") {
			t.Errorf("%s: got %d, %s, want %d and the login command", name, o.status, o.stderr, exit.Auth)
		}
		o = run("tools", server, "--json")
		if got := failureOf(t, o); got.Kind != "auth_required" || got.Login != login {
			t.Errorf("%s: got %+v, want auth_required, %s", name, got, login)
		}
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("vault directory: %v, want that it does not exist", err)
	}
	config := filepath.Join(t.TempDir(), "my servers.json")
	writeFile(t, config, `{"mcpServers": {"web": {"url": "`+server+`"}}}`)
	o := patchbay(t, "", "tools", "web", "--config", config, "--json")
	if got := failureOf(t, o); got.Login != "patchbay auth login web --config '"+config+"'" {
		t.Errorf("a server by its name: got %+v, want the login command with --config", got)
	}
	if o := patchbay(t, "", "auth", "token", server); o.status != exit.Auth || o.stdout != "" ||
		!strings.Contains(o.stderr, login) {
		t.Errorf("token: got %+v, want %d and the login command", o, exit.Auth)
	}
	if o := atTerminal(t, "", nil, "auth", "login", server, "--no-input"); o.status != exit.Auth ||
		!strings.Contains(o.stderr, "--no-input") {
		t.Errorf("login --no-input: got %+v, want %d", o, exit.Auth)
	}
}

// With an Authorization header from the user, no login is tried.
func TestAuthorizationHeaderTakesPrecedence(t *testing.T) {
	dir := freshVault(t)
	var mu sync.Mutex
	sent := map[string]bool{} // values of Authorization
	web := newRejectingServer(t, func(authorization string) {
		mu.Lock()
		defer mu.Unlock()
		sent[authorization] = true
	})
	o := atTerminal(t, "", nil, "ping", web, "--header", "Authorization: Bearer mine")
	if o.status != exit.Auth || !strings.HasSuffix(o.stderr, "patchbay: the server rejected your token\n") {
		t.Errorf("got %d, %s, want %d, rejected", o.status, o.stderr, exit.Auth)
	}
	mu.Lock()
	defer mu.Unlock()
	if len(sent) != 1 || !sent["Bearer mine"] {
		t.Errorf("requests had Authorization %v, want Bearer mine only", sent)
	}
	for _, verb := range []string{"login", "status", "token", "logout"} {
		if o := patchbay(t, "", "auth", verb, web, "--header", "Authorization: Bearer mine"); o.status != exit.Usage {
			t.Errorf("auth %s: got %d, %s, want %d", verb, o.status, o.stderr, exit.Usage)
		}
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("vault directory: %v, want that it does not exist", err)
	}
}

// newRejectingServer returns the URL of a server that rejects all requests with status 401.
func newRejectingServer(t *testing.T, onRequest func(authorization string)) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{ReadHeaderTimeout: time.Minute,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			onRequest(r.Header.Get("Authorization"))
			w.WriteHeader(http.StatusUnauthorized)
		})}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	t.Cleanup(func() { server.Close(); <-ended })
	return "http://" + listener.Addr().String() + connect.Endpoint
}

func TestAuthCommandsManageALogin(t *testing.T) {
	mcptest.NoLeaks(t)
	dir := freshVault(t)
	server, bob := protected(t), newUserBrowser(t)
	bob.user = "bob"
	type report struct {
		LoggedIn, Renewable bool
		Server, Issuer      string
		Scopes              []string
		Storage             struct{ Directory, Key string }
	}
	status := func() (report, int) {
		t.Helper()
		var r report
		o := patchbay(t, "", "auth", "status", server, "--json")
		if err := json.Unmarshal([]byte(o.stdout), &r); err != nil || o.stderr != "" {
			t.Fatalf("auth status --json: got %q, %s, want JSON: %v", o.stdout, o.stderr, err)
		}
		return r, o.status
	}
	if r, code := status(); code != exit.Auth || r.LoggedIn || r.Storage.Key != "" {
		t.Errorf("status before login: %d, %+v, want %d, not logged in", code, r, exit.Auth)
	}
	o := withBrowser(t, bob, "auth", "login", server)
	if o.status != exit.OK || !strings.Contains(o.stdout, "logged in   yes\n") ||
		!strings.Contains(o.stdout, dir+", encrypted with a key in the same directory") {
		t.Fatalf("login: %d, %s, %s, want %d and the storage", o.status, o.stdout, o.stderr, exit.OK)
	}
	r, code := status()
	if code != exit.OK || !r.LoggedIn || !r.Renewable || r.Issuer != strings.TrimSuffix(server, connect.Endpoint) ||
		r.Storage.Directory != dir || r.Storage.Key != "file" ||
		len(r.Scopes) != 1 || r.Scopes[0] != serve.ScopeUse {
		t.Errorf("status after login: %d, %+v, want %d, logged in with one scope", code, r, exit.OK)
	}
	token := patchbay(t, "", "auth", "token", server)
	if token.status != exit.OK || strings.Count(token.stdout, "\n") != 1 ||
		strings.Count(token.stdout, ".") != 2 || token.stderr != "" {
		t.Errorf("token: got %+v, want one line with a JWT", token)
	}
	bearer := "Authorization: Bearer " + strings.TrimSpace(token.stdout)
	if o := patchbay(t, "", "call", server, "who_am_i", "--header", bearer); o.status != exit.OK ||
		!strings.Contains(o.stdout, `"user":"bob"`) {
		t.Errorf("call with the token: got %+v, want %d, bob", o, exit.OK)
	}
	if o := atTerminal(t, "", nil, "auth", "token", server); o.status != exit.Usage || o.stdout != "" ||
		strings.Contains(o.stderr, strings.TrimSpace(token.stdout)) {
		t.Errorf("token at a terminal: got %+v, want %d without the token", o, exit.Usage)
	}
	if o := atTerminal(t, "", nil, "auth", "token", server, "--show"); o.status != exit.OK ||
		strings.Count(o.stdout, ".") != 2 {
		t.Errorf("token --show: got %+v, want the token", o)
	}
	if o := patchbay(t, "", "auth", "token", server, "--json"); o.status != exit.OK ||
		!strings.Contains(o.stdout, `"tokenType":"Bearer"`) {
		t.Errorf("token --json: got %+v, want tokenType Bearer", o)
	}
	if o := patchbay(t, "", "auth", "logout", server); o.status != exit.OK ||
		!strings.Contains(o.stderr, "Logged out of "+server) {
		t.Errorf("logout: got %+v, want %d", o, exit.OK)
	}
	if r, code := status(); code != exit.Auth || r.LoggedIn {
		t.Errorf("status after logout: %d, %+v, want %d, not logged in", code, r, exit.Auth)
	}
	if o := patchbay(t, "", "call", server, "who_am_i", "--header", bearer); o.status != exit.Auth {
		t.Errorf("call with the token after logout: got %+v, want %d", o, exit.Auth)
	}
	if o := patchbay(t, "", "auth", "logout", server); o.status != exit.OK ||
		!strings.Contains(o.stderr, "Not logged in") {
		t.Errorf("second logout: got %+v, want %d, Not logged in", o, exit.OK)
	}
	if o := patchbay(t, "", "ping", server); o.status != exit.Auth {
		t.Errorf("ping after logout: got %+v, want %d", o, exit.Auth)
	}
}

func TestDeniedLoginIsReported(t *testing.T) {
	mcptest.NoLeaks(t)
	freshVault(t)
	server, ann := protected(t), newUserBrowser(t)
	ann.deny = true
	o := withBrowser(t, ann, "tools", server)
	if o.status != exit.Auth || !strings.Contains(o.stderr, "access_denied") {
		t.Errorf("tools: got %d, %s, want %d, access_denied", o.status, o.stderr, exit.Auth)
	}
	if n, _ := ann.opened(); n != 1 {
		t.Errorf("%d pages were opened, want 1", n)
	}
	o = withBrowser(t, ann, "auth", "login", server)
	if o.status != exit.Auth || strings.Contains(o.stderr, "patchbay auth login") {
		t.Errorf("auth login: got %d, %s, want %d without the login command", o.status, o.stderr, exit.Auth)
	}
}

// The user may take longer to log in than --timeout.
func TestTimeoutDoesNotLimitLogin(t *testing.T) {
	mcptest.NoLeaks(t)
	server, ann := protected(t), newUserBrowser(t)
	var o outcome
	withLimit(700*time.Millisecond, func(limit time.Duration) bool {
		freshVault(t)
		o = atTerminal(t, "", func(p *cmdutil.Factory) {
			p.Ask.Open = func(ctx context.Context, page string) error {
				ann.visits.Go(func() {
					<-time.After(2 * limit)
					_ = ann.open(ctx, page)
				})
				return nil
			}
		}, "call", server, "who_am_i", "--timeout", limit.String())
		ann.visits.Wait()
		return o.status != exit.Timeout
	})
	if o.status != exit.OK {
		t.Errorf("got %d, %s, want %d", o.status, o.stderr, exit.OK)
	}
}

func TestInterruptCancelsLogin(t *testing.T) {
	mcptest.NoLeaks(t)
	freshVault(t)
	server := protected(t)
	for _, args := range [][]string{{"tools", server}, {"auth", "login", server},
		{"auth", "login", server, "--no-browser"}} {
		ctx, cancel := context.WithCancel(t.Context())
		var stdout bytes.Buffer
		p := newRun(strings.NewReader(""), &stdout, io.Discard)
		p.IO.Interactive = true
		p.Ask.Open = func(context.Context, string) error { return nil }
		stderr := &trigger{when: "/authorize?", then: cancel}
		p.IO.Err.W = stderr
		if status := runCommandLine(ctx, p, args); status != exit.Interrupted ||
			!strings.HasSuffix(stderr.text(), "patchbay: interrupted\n") {
			t.Errorf("%q: got %d, %s, want %d, interrupted", args, status, stderr.text(), exit.Interrupted)
		}
		cancel()
	}
}

// With --no-browser the user opens the page.
func TestLoginWithoutABrowserPrintsThePage(t *testing.T) {
	mcptest.NoLeaks(t)
	freshVault(t)
	server, ann := protected(t), newUserBrowser(t)
	link := regexp.MustCompile(`http\S+/authorize\?\S+`)
	var stdout bytes.Buffer
	p := newRun(strings.NewReader(""), &stdout, io.Discard)
	p.Ask.Open = func(context.Context, string) error { t.Error("the command opened a page"); return nil }
	stderr := &trigger{when: "state="}
	stderr.then = func() {
		if page := link.FindString(stderr.seen); page != "" && len(ann.pages) == 0 {
			_ = ann.open(t.Context(), page)
		}
	}
	p.IO.Err.W = stderr
	if status := runCommandLine(t.Context(), p, []string{"auth", "login", server, "--no-browser"}); status != exit.OK {
		t.Errorf("got %d, %s, want %d", status, stderr.text(), exit.OK)
	}
}

// Spec: basic/authorization, Protocol Requirements.
//
// Requirement: AUTH-03, STDIO-20
func TestStdioHasNoLogin(t *testing.T) {
	freshVault(t)
	for _, args := range [][]string{
		{"auth", "login", "--", "server"}, {"auth", "token", "--", "server"}, {"auth", "status", "--", "server"},
		{"auth", "logout", "--", "server"}, {"serve", "--auth", "demo", "--stdio"},
	} {
		if o := patchbay(t, "", args...); o.status != exit.Usage || o.stderr == "" || o.stdout != "" {
			t.Errorf("%q: got %+v, want %d and a message", args, o, exit.Usage)
		}
	}
}

func TestAuthUsageErrors(t *testing.T) {
	freshVault(t)
	server := "https://mcp.example/mcp"
	secret := filepath.Join(t.TempDir(), "secret")
	writeFile(t, secret, "")
	for _, args := range [][]string{
		{"auth"}, {"auth", "logn"}, {"auth", "login"}, {"auth", "login", server, "more"},
		{"auth", "login", "http://mcp.example/mcp"},
		{"auth", "token", "http://192.0.2.1/mcp"}, {"auth", "login", "unknown"},
		{"auth", "login", server, "--client-id", "x"}, {"auth", "login", server, "--omit-resource"},
		{"auth", "login", server, "--client-secret-file", secret},
		{"auth", "login", server, "--client-id", "x", "--issuer", "https://x.example", "--client-secret-file", secret},
		{"auth", "login", server, "--client-id", "x", "--issuer", "https://x.example",
			"--client-secret-file", secret + "no"},
		{"auth", "login", server, "--client-id", "x", "--issuer", "https://x.example",
			"--client-metadata-url", "https://x.example/c"},
		{"serve", "--auth", "real"},
		{"serve", "--auth", "demo", "--addr", "0.0.0.0:0"},
		{"serve", "--auth", "demo", "--addr", "example.com:80"},
	} {
		if o := patchbay(t, "", args...); o.status != exit.Usage || o.stderr == "" || o.stdout != "" {
			t.Errorf("%q: got %+v, want %d and a message", args, o, exit.Usage)
		}
	}
}

// Plain HTTP works without a login. No token is sent over it, except to a loopback address.
func TestTokensAreNotSentOverPlainHTTP(t *testing.T) {
	freshVault(t)
	for address, want := range map[string]bool{
		"http://127.0.0.1:1/mcp": true, "http://[::1]:1/mcp": true, "http://localhost/mcp": true,
		"https://a.example/mcp": true, "http://a.example/mcp": false, "http://192.168.0.1/mcp": false,
		"http://localhost.a.example/mcp": false,
	} {
		p := newRun(strings.NewReader(""), io.Discard, io.Discard)
		target := &target.Target{URL: address, Header: http.Header{}}
		if err := p.Login.Authorize(t.Context(), target); err != nil || (target.Auth != nil) != want {
			t.Errorf("%s: sends tokens %v, %v, want %v", address, target.Auth != nil, err, want)
		}
	}
}

// Requirement: REG-11
func TestClientCredentialsComeFromTheEnvironment(t *testing.T) {
	mcptest.NoLeaks(t)
	dir := freshVault(t)
	server, secret := protectedForClient(t)
	issuer := strings.TrimSuffix(server, connect.Endpoint)
	t.Setenv(login.EnvClientID, "robot")
	t.Setenv(login.EnvSecret, secret)
	t.Setenv(login.EnvIssuer, issuer)
	o := patchbay(t, "", "call", server, "who_am_i", "--json")
	if o.status != exit.OK || !strings.Contains(o.stdout, `"clientId":"robot"`) {
		t.Fatalf("got %d, %s, %s, want %d, robot", o.status, o.stdout, o.stderr, exit.OK)
	}
	o = patchbay(t, "", "auth", "login", server, "--json")
	if o.status != exit.OK || !strings.Contains(o.stdout, `"loggedIn":true`) || strings.Contains(o.stdout, "storage") {
		t.Errorf("auth login: got %+v, want logged in without storage", o)
	}
	if o := patchbay(t, "", "auth", "token", server); o.status != exit.OK || strings.Count(o.stdout, ".") != 2 {
		t.Errorf("auth token: got %+v, want a JWT", o)
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("vault directory: %v, want that it does not exist", err)
	}
	for _, test := range []struct {
		name, value string
		status      int
	}{
		{login.EnvIssuer, "", exit.Usage}, {login.EnvSecret, "", exit.Usage}, {login.EnvKeyFile, "also", exit.Usage},
		{login.EnvSecret, "wrong", exit.Auth}, {login.EnvIssuer, "https://other.example", exit.Auth},
	} {
		t.Run(test.name+"="+test.value, func(t *testing.T) {
			t.Setenv(test.name, test.value)
			o := patchbay(t, "", "ping", server)
			if o.status != test.status || strings.Contains(o.stderr, secret) {
				t.Errorf("got %d, want %d: %s", o.status, test.status, o.stderr)
			}
		})
	}
}

// protectedForClient returns the URL of a server with the registered client robot, and its secret.
func protectedForClient(t *testing.T) (server, secret string) {
	t.Helper()
	secret, hash := authserver.NewClientSecret()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	origin := "http://" + listener.Addr().String()
	auth, err := authserver.New(&authserver.Options{
		Issuer: origin, Logger: slog.New(slog.DiscardHandler),
		Clients:   []authserver.Client{{ID: "robot", SecretHash: hash}},
		Resources: []authserver.Resource{{URL: origin + connect.Endpoint, Scopes: []authserver.Scope{{Name: serve.ScopeUse}}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	d := serve.NewProtected(origin+connect.Endpoint, mcphttp.NewHandler(protectedServer(), nil), auth, slog.New(slog.DiscardHandler))
	ctx, stop := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- mcphttp.Serve(ctx, listener, "/", d.Handler, d.Route) }()
	t.Cleanup(func() { stop(); <-served })
	return origin + connect.Endpoint, secret
}

// Later runs need the client of a login with --client-id to refresh its tokens.
func TestLoginSettingsAreStored(t *testing.T) {
	freshVault(t)
	p := newRun(strings.NewReader(""), io.Discard, io.Discard)
	a, b := &target.Target{URL: "HTTPS://A.example/mcp"}, &target.Target{URL: "https://a.example/mcp?x"}
	want := login.Settings{ClientID: "id", ClientSecret: "s3cret", Issuer: "https://as.example", Scopes: []string{"x"}}
	if err := p.Login.SaveSettings(t.Context(), a, &want); err != nil {
		t.Fatal(err)
	}
	got, err := newRun(strings.NewReader(""), io.Discard, io.Discard).Login.LoadSettings(t.Context(),
		&target.Target{URL: "https://a.example/mcp"})
	if err != nil || fmt.Sprint(*got) != fmt.Sprint(want) {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
	if got, err := p.Login.LoadSettings(t.Context(), b); err != nil || !got.IsEmpty() {
		t.Errorf("another server: got %+v, %v, want no settings", got, err)
	}
	if err := p.Login.SaveSettings(t.Context(), a, &login.Settings{}); err != nil {
		t.Fatal(err)
	}
	if got, err := p.Login.LoadSettings(t.Context(), a); err != nil || !got.IsEmpty() {
		t.Errorf("after removal: got %+v, %v, want no settings", got, err)
	}
}

func TestShellWordQuotes(t *testing.T) {
	for word, want := range map[string]string{
		"https://a.example/mcp": "https://a.example/mcp",
		"":                      "''",
		"a b":                   "'a b'",
		"https://a/?x&y=$(z)":   "'https://a/?x&y=$(z)'",
		"it's":                  `'it'\''s'`,
	} {
		if got := term.ShellWord(word); got != want {
			t.Errorf("shellWord(%q) = %s, want %s", word, got, want)
		}
	}
}

func protectedServer() *mcp.Server {
	return demo.New("1.0", &demo.Options{Scopes: serve.DemoScopes()}).Server
}
