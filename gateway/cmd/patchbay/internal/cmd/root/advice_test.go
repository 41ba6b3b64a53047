package root

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmd/auth"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmd/serve"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmdutil"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/connect"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/exit"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/login"
	"github.com/patchbay-mcp/patchbay/mcptest"
	"github.com/patchbay-mcp/patchbay/oauth/oauthclient"
)

// loginTimeout is the message for a login that was not completed in time.
var loginTimeout = strings.TrimPrefix(oauthclient.ErrLoginTimeout.Error(), "oauth: ")

// loggedIn returns a server at which ann is logged in.
func loggedIn(t *testing.T) (server string, ann *userBrowser) {
	t.Helper()
	mcptest.NoLeaks(t)
	freshVault(t)
	server, ann = protected(t), newUserBrowser(t)
	if o := withBrowser(t, ann, "auth", "login", server); o.status != exit.OK {
		t.Fatalf("got %d, %s, want %d", o.status, o.stderr, exit.OK)
	}
	return server, ann
}

// The message also has the command that requests the scopes.
func TestFailedStepUpNamesTheMissingScopes(t *testing.T) {
	server, ann := loggedIn(t)
	login := "patchbay auth login " + server + " --scope " + serve.ScopeUse + " --scope " + serve.ScopeReset
	lacks := "the login at " + server + " lacks the scopes " + serve.ScopeReset
	denying := newUserBrowser(t)
	denying.deny = true
	for name, test := range map[string]struct {
		set     func(p *cmdutil.Factory)
		args    []string
		status  int
		message string
	}{
		"denied": {func(p *cmdutil.Factory) { p.Ask.Open = denying.open }, nil, exit.Auth, lacks +
			": the login was refused: access_denied"},
		"--no-input":  {func(p *cmdutil.Factory) { p.Ask.Open = ann.open }, []string{"--no-input"}, exit.Auth, lacks},
		"no terminal": {func(p *cmdutil.Factory) { p.IO.Interactive = false }, nil, exit.Auth, lacks},
		"timeout": {func(p *cmdutil.Factory) {
			p.Login.Timeout, p.Ask.Open = time.Millisecond, func(context.Context, string) error { return nil }
		}, nil, exit.Timeout, lacks + ": " + loginTimeout},
	} {
		t.Run(name, func(t *testing.T) {
			set := func(p *cmdutil.Factory) { p.IO.Out.Terminal = false; test.set(p) }
			o := atTerminal(t, "", set, append([]string{"call", server, "reset_counter"}, test.args...)...)
			if o.status != test.status || !strings.Contains(o.stderr, "patchbay: "+test.message) ||
				!strings.HasSuffix(o.stderr, "\n  "+login+"\n") {
				t.Errorf("got %d, %s, want %d, %s", o.status, o.stderr, test.status, test.message)
			}
			o = atTerminal(t, "", set, append([]string{"call", server, "reset_counter", "--json"}, test.args...)...)
			if got := failureOf(t, o); got.Login != login || !strings.HasPrefix(got.Message, test.message) {
				t.Errorf("JSON: got %+v, want %s, login %s", got, test.message, login)
			}
		})
	}
	o := withBrowser(t, ann, "call", server, "reset_counter")
	if o.status != exit.OK || !strings.Contains(o.stderr,
		"The login at "+server+" lacks the scopes "+serve.ScopeReset+". Allow them at ") ||
		strings.Contains(o.stderr, "Log in to") {
		t.Errorf("at a terminal: got %d, %s, want %d and a question for the scopes", o.status, o.stderr, exit.OK)
	}
}

func TestLoginRequestsEarlierScopesAgain(t *testing.T) {
	server, ann := loggedIn(t)
	if o := withBrowser(t, ann, "call", server, "reset_counter"); o.status != exit.OK {
		t.Fatalf("got %d, %s, want %d", o.status, o.stderr, exit.OK)
	}
	o := withBrowser(t, ann, "auth", "login", server)
	if o.status != exit.OK || !strings.Contains(o.stdout, serve.ScopeReset) ||
		strings.Contains(o.stderr, "no longer allowed") {
		t.Errorf("login: got %d, %s, %s, want %d with the scope %s", o.status, o.stdout, o.stderr, exit.OK, serve.ScopeReset)
	}
	if o := patchbay(t, "", "call", server, "reset_counter"); o.status != exit.OK {
		t.Errorf("call: got %d, %s, want %d", o.status, o.stderr, exit.OK)
	}
	for _, args := range [][]string{{"logout", server}, {"login", server}} {
		if o := withBrowser(t, ann, append([]string{"auth"}, args...)...); o.status != exit.OK ||
			strings.Contains(o.stdout, serve.ScopeReset) {
			t.Errorf("%q: got %d, %s, %s, want %d without the scope", args, o.status, o.stdout, o.stderr, exit.OK)
		}
	}
}

// The message suggests the header: a server that requires tokens and has no metadata has no login.
func TestServerWithoutMetadataHasNoLogin(t *testing.T) {
	mcptest.NoLeaks(t)
	for name, metadataStatus := range map[string]int{"metadata requires a token": http.StatusUnauthorized,
		"no metadata": http.StatusNotFound} {
		t.Run(name, func(t *testing.T) {
			dir := freshVault(t)
			web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path != connect.Endpoint {
					w.WriteHeader(metadataStatus)
					return
				}
				w.Header().Set("WWW-Authenticate", "Bearer")
				w.WriteHeader(http.StatusUnauthorized)
			}))
			defer web.Close()
			server := web.URL + connect.Endpoint
			want := "patchbay: " + server +
				" requires a token, and does not support login (no OAuth metadata)\n  " + cmdutil.HeaderHint + "\n"
			for _, args := range [][]string{{"call", server, "add"}, {"tools", server, "--no-input"},
				{"auth", "login", server}} {
				o := withBrowser(t, newUserBrowser(t), args...)
				if o.status != exit.Auth || !strings.HasSuffix(o.stderr, want) {
					t.Errorf("%q: got %d, %s, want %d, %s", args, o.status, o.stderr, exit.Auth, want)
				}
			}
			o := patchbay(t, "", "tools", server, "--json")
			if got := failureOf(t, o); o.status != exit.Auth || got.Login != "" ||
				!strings.Contains(got.Message, "does not support login") {
				t.Errorf("without a terminal: got %d, %+v, want %d without a login command", o.status, got, exit.Auth)
			}
			if o := patchbay(t, "", "auth", "status", server); strings.Contains(o.stdout, "issuer") {
				t.Errorf("auth status with vault %s: got %s, want no issuer", dir, o.stdout)
			}
		})
	}
}

// Spec: basic/authorization (2025-03-26), Fallbacks for Servers without Metadata Discovery.
func TestServerWithoutMetadataMayHaveTheDefaultLoginPath(t *testing.T) {
	mcptest.NoLeaks(t)
	freshVault(t)
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case connect.Endpoint:
			w.WriteHeader(http.StatusUnauthorized)
		case "/authorize":
			w.WriteHeader(http.StatusBadRequest)
		case "/register":
			t.Error("the command registered a client")
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	}))
	defer web.Close()
	if o := patchbay(t, "", "tools", web.URL+connect.Endpoint); o.status != exit.Auth ||
		!strings.HasSuffix(o.stderr, "\n  patchbay auth login "+web.URL+connect.Endpoint+"\n") {
		t.Errorf("got %d, %s, want %d and the login command", o.status, o.stderr, exit.Auth)
	}
}

func TestRejectedHeaderOfTheUserIsReported(t *testing.T) {
	for name, test := range map[string]struct {
		status                     int
		challenge, header, message string
	}{
		"rejected token": {http.StatusUnauthorized, "", "Bearer mine", "the server rejected your token"},
		"rejected token with a description": {http.StatusUnauthorized,
			`Bearer error="invalid_token", error_description="it has ended"`, "Bearer mine",
			"the server rejected your token: it has ended"},
		"rejected password": {http.StatusUnauthorized, "Basic", "Basic bWluZTptaW5l",
			"the server rejected your credentials"},
		"one missing scope": {http.StatusForbidden, `Bearer error="insufficient_scope", scope="admin"`,
			"Bearer mine", "your token lacks the scope admin"},
		"several scopes": {http.StatusForbidden, `Bearer error="insufficient_scope", scope="use admin"`,
			"Bearer mine", "your token lacks some of the scopes use admin"},
		"forbidden": {http.StatusForbidden, "", "Bearer mine",
			"the server does not allow this request with your token"},
	} {
		t.Run(name, func(t *testing.T) {
			web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				if test.challenge != "" {
					w.Header().Set("WWW-Authenticate", test.challenge)
				}
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(test.status)
				_, _ = io.WriteString(w, `{"error":"raw"}`)
			}))
			defer web.Close()
			o := patchbay(t, "", "ping", web.URL, "--header", "Authorization: "+test.header, "--json")
			if o.status != exit.Auth || o.stderr != "patchbay: "+test.message+"\n" {
				t.Errorf("got %d, %s, want %d, %s", o.status, o.stderr, exit.Auth, test.message)
			}
			if got := failureOf(t, o); got.Message != test.message || got.Login != "" {
				t.Errorf("JSON: got %+v, want %s without a login command", got, test.message)
			}
		})
	}
}

func TestStatusShowsClientCredentials(t *testing.T) {
	mcptest.NoLeaks(t)
	freshVault(t)
	server, secret := protectedForClient(t)
	t.Setenv(login.EnvClientID, "robot")
	t.Setenv(login.EnvSecret, secret)
	t.Setenv(login.EnvIssuer, strings.TrimSuffix(server, connect.Endpoint))
	for _, verb := range []string{"status", "login"} {
		o := patchbay(t, "", "auth", verb, server)
		if o.status != exit.OK || !strings.Contains(o.stdout,
			"logged in   yes, as client robot (from the environment)\n") || strings.Contains(o.stdout, secret) {
			t.Errorf("%s: got %+v, want client robot without its secret", verb, o)
		}
		o = patchbay(t, "", "auth", verb, server, "--json")
		var got auth.LoginReport
		if err := json.Unmarshal([]byte(o.stdout), &got); err != nil || !got.Environment || !got.LoggedIn ||
			got.ClientID != "robot" || got.Storage != nil {
			t.Errorf("%s --json: got %+v, %v, want client robot without storage", verb, o, err)
		}
	}
}

func TestFailureToOpenABrowserIsReported(t *testing.T) {
	mcptest.NoLeaks(t)
	freshVault(t)
	server, ann := protected(t), newUserBrowser(t)
	o := atTerminal(t, "", func(p *cmdutil.Factory) {
		p.Ask.Open = func(ctx context.Context, page string) error {
			return errors.Join(ann.open(ctx, page), errors.New("no browser"))
		}
	}, "auth", "login", server)
	if o.status != exit.OK || strings.Contains(o.stderr, "level=") {
		t.Errorf("page opened with an error: got %d, %s, want %d without a log line", o.status, o.stderr, exit.OK)
	}
	var stderr bytes.Buffer
	p := newRun(strings.NewReader(""), io.Discard, &stderr)
	p.IO.Interactive, p.Login.Headless, p.Login.Timeout = true, false, 500*time.Millisecond
	p.Ask.Open = func(context.Context, string) error { return errors.New("no browser") }
	status := runCommandLine(t.Context(), p, []string{"auth", "login", server})
	if status != exit.Timeout || strings.Contains(stderr.String(), "level=") ||
		!strings.Contains(stderr.String(), "\nCould not open a browser: open the page yourself.\n") ||
		!strings.HasSuffix(stderr.String(), "\npatchbay: "+loginTimeout+"\n") {
		t.Errorf("page not opened: got %d, %s, want %d", status, &stderr, exit.Timeout)
	}
}

func TestLoginWithoutATerminalFailsAtOnce(t *testing.T) {
	mcptest.NoLeaks(t)
	freshVault(t)
	server := protected(t)
	for flag, want := range map[string]string{"--json": "use --no-browser", "--no-input": "--no-input is set"} {
		o := patchbay(t, "", "auth", "login", server, flag)
		if o.status != exit.Auth || !strings.Contains(o.stderr, want) ||
			strings.Contains(o.stderr, "--header") || strings.Contains(o.stderr, "/authorize") {
			t.Errorf("%s: got %d, %s, want %d, %s", flag, o.status, o.stderr, exit.Auth, want)
		}
	}
}

func TestUsageErrorsSuggestCorrections(t *testing.T) {
	for args, want := range map[string]string{
		"help auth-status": `unknown help topic "auth-status": did you mean "auth status"?`,
		"help auth statsu": `did you mean "auth status"?`,
		"help exit-code":   `did you mean "exit-codes"?`,
		"auth logout": "missing TARGET: the URL of a server or its name in a configuration file\n" +
			"usage: patchbay auth logout TARGET",
		"auth login --json":   "patchbay auth login TARGET",
		"help auth-status-no": `unknown help topic "auth-status-no"`,
	} {
		if o := patchbay(t, "", strings.Fields(args)...); o.status != exit.Usage || !strings.Contains(o.stderr, want) {
			t.Errorf("%s: got %d, %s, want %d, %s", args, o.status, o.stderr, exit.Usage, want)
		}
	}
	if o := patchbay(t, "", "help", "auth", "status"); o.status != exit.OK {
		t.Errorf("help auth status: got %d, %s, want %d", o.status, o.stderr, exit.OK)
	}
}

// An authorization server may grant less than before, or no longer know a scope.
func TestScopesThatAreNotGrantedAreReported(t *testing.T) {
	mcptest.NoLeaks(t)
	freshVault(t)
	var granted, requested, refusal string
	mux := http.NewServeMux()
	web := httptest.NewServer(mux)
	defer web.Close()
	server := web.URL + connect.Endpoint
	answer := func(w http.ResponseWriter, status int, body map[string]any) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(body)
	}
	mux.HandleFunc(connect.Endpoint, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) })
	mux.HandleFunc("/.well-known/oauth-authorization-server", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusOK, map[string]any{
			"issuer":                                web.URL,
			"authorization_endpoint":                web.URL + "/authorize",
			"token_endpoint":                        web.URL + "/token",
			"registration_endpoint":                 web.URL + "/register",
			"response_types_supported":              []string{"code"},
			"code_challenge_methods_supported":      []string{"S256"},
			"token_endpoint_auth_methods_supported": []string{"none"},
		})
	})
	mux.HandleFunc("/register", func(w http.ResponseWriter, r *http.Request) {
		var body map[string]any
		_ = json.NewDecoder(r.Body).Decode(&body)
		body["client_id"] = "client"
		answer(w, http.StatusCreated, body)
	})
	mux.HandleFunc("/authorize", func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		requested = q.Get("scope")
		http.Redirect(w, r, q.Get("redirect_uri")+"?state="+q.Get("state")+refusal, http.StatusFound)
	})
	mux.HandleFunc("/token", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusOK, map[string]any{"access_token": "t", "token_type": "Bearer", "scope": granted})
	})
	for _, step := range []struct {
		granted, refusal, requested, message string
		status                               int
	}{
		{"a b", "&code=c", "a b", "", exit.OK},
		{"a", "&code=c", "a b", "Scopes no longer allowed: b\n", exit.OK},
		{"", "&error=invalid_scope", "a b", "log out first: patchbay auth logout " + server, exit.Auth},
	} {
		granted, refusal = step.granted, step.refusal
		args := []string{"auth", "login", server}
		if step.message == "" {
			args = append(args, "--scope", "a", "--scope", "b")
		}
		p := &userBrowser{t: t}
		o := withBrowser(t, p, args...)
		p.visits.Wait()
		if o.status != step.status || requested != step.requested || !strings.Contains(o.stderr, step.message) {
			t.Errorf("got %d, requested scopes %q, %s, %s, want %+v", o.status, requested, o.stdout, o.stderr, step)
		}
	}
}
