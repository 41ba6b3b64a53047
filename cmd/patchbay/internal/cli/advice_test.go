package cli

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

	"github.com/patchbay-mcp/patchbay/mcptest"
	"github.com/patchbay-mcp/patchbay/oauth/oauthclient"
)

// loginTimeout is the message for a login that was not completed in time.
var loginTimeout = strings.TrimPrefix(oauthclient.ErrLoginTimeout.Error(), "oauth: ")

// loggedIn returns a server at which ann is logged in.
func loggedIn(t *testing.T) (server string, ann *person) {
	t.Helper()
	mcptest.NoLeaks(t)
	freshVault(t)
	server, ann = protected(t), newPerson(t)
	if o := withBrowser(t, ann, "auth", "login", server); o.status != exitOK {
		t.Fatalf("got %d, %s", o.status, o.stderr)
	}
	return server, ann
}

// If a step-up fails, the message names the missing scopes and the command that requests them.
func TestStepUpFails(t *testing.T) {
	server, ann := loggedIn(t)
	login := "patchbay auth login " + server + " --scope " + scopeUse + " --scope " + scopeReset
	lacks := "the login at " + server + " lacks the scopes " + scopeReset
	deny := newPerson(t)
	deny.deny = true
	for name, test := range map[string]struct {
		set    func(p *program)
		args   []string
		status int
		words  string
	}{
		"denied": {func(p *program) { p.open = deny.open }, nil, exitAuth, lacks +
			": the login was refused: access_denied"},
		"not asked":   {func(p *program) { p.open = ann.open }, []string{"--no-input"}, exitAuth, lacks},
		"no terminal": {func(p *program) { p.interactive = false }, nil, exitAuth, lacks},
		"not answered": {func(p *program) {
			p.loginTime, p.open = time.Millisecond, func(context.Context, string) error { return nil }
		}, nil, exitTimeout, lacks + ": " + loginTimeout},
	} {
		t.Run(name, func(t *testing.T) {
			set := func(p *program) { p.output.terminal = false; test.set(p) }
			o := atTerminal(t, "", set, append([]string{"call", server, "reset_counter"}, test.args...)...)
			if o.status != test.status || !strings.Contains(o.stderr, "patchbay: "+test.words) ||
				!strings.HasSuffix(o.stderr, "\n  "+login+"\n") {
				t.Errorf("got %d, %s", o.status, o.stderr)
			}
			o = atTerminal(t, "", set, append([]string{"call", server, "reset_counter", "--json"}, test.args...)...)
			if got := failureOf(t, o); got.Login != login || !strings.HasPrefix(got.Message, test.words) {
				t.Errorf("JSON: got %+v", got)
			}
		})
	}
	o := withBrowser(t, ann, "call", server, "reset_counter")
	if o.status != exitOK || !strings.Contains(o.stderr,
		"The login at "+server+" lacks the scopes "+scopeReset+". Allow them at ") ||
		strings.Contains(o.stderr, "Log in to") {
		t.Errorf("the question: got %d, %s", o.status, o.stderr)
	}
}

// A login requests the earlier scopes again, and reports those that were not granted.
func TestLoginKeepsScopes(t *testing.T) {
	server, ann := loggedIn(t)
	if o := withBrowser(t, ann, "call", server, "reset_counter"); o.status != exitOK {
		t.Fatalf("got %d, %s", o.status, o.stderr)
	}
	o := withBrowser(t, ann, "auth", "login", server)
	if o.status != exitOK || !strings.Contains(o.stdout, scopeReset) ||
		strings.Contains(o.stderr, "no longer allowed") {
		t.Errorf("got %d, %s, %s", o.status, o.stdout, o.stderr)
	}
	if o := patchbay(t, "", "call", server, "reset_counter"); o.status != exitOK {
		t.Errorf("got %d, %s", o.status, o.stderr)
	}
	for _, args := range [][]string{{"logout", server}, {"login", server}} {
		if o := withBrowser(t, ann, append([]string{"auth"}, args...)...); o.status != exitOK ||
			strings.Contains(o.stdout, scopeReset) {
			t.Errorf("%q: got %d, %s, %s", args, o.status, o.stdout, o.stderr)
		}
	}
}

// A login does not help with a server that requires tokens and has no metadata.
func TestServerWithoutLogin(t *testing.T) {
	mcptest.NoLeaks(t)
	for name, elsewhere := range map[string]int{"guarded": http.StatusUnauthorized,
		"without metadata": http.StatusNotFound} {
		t.Run(name, func(t *testing.T) {
			dir := freshVault(t)
			web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path != endpoint {
					w.WriteHeader(elsewhere)
					return
				}
				w.Header().Set("WWW-Authenticate", "Bearer")
				w.WriteHeader(http.StatusUnauthorized)
			}))
			defer web.Close()
			server := web.URL + endpoint
			want := "patchbay: " + server +
				" requires a token, and does not support login (no OAuth metadata)\n  " + headerHint + "\n"
			for _, args := range [][]string{{"call", server, "add"}, {"tools", server, "--no-input"},
				{"auth", "login", server}} {
				o := withBrowser(t, newPerson(t), args...)
				if o.status != exitAuth || !strings.HasSuffix(o.stderr, want) {
					t.Errorf("%q: got %d, %s", args, o.status, o.stderr)
				}
			}
			o := patchbay(t, "", "tools", server, "--json")
			if got := failureOf(t, o); o.status != exitAuth || got.Login != "" ||
				!strings.Contains(got.Message, "does not support login") {
				t.Errorf("without a terminal: got %d, %+v", o.status, got)
			}
			if o := patchbay(t, "", "auth", "status", server); strings.Contains(o.stdout, "issuer") {
				t.Errorf("the search in %s is remembered: %s", dir, o.stdout)
			}
		})
	}
}

// A server of revision 2025-03-26 without metadata has its login at the default path of that
// revision.
func TestServerWithDefaultLoginPath(t *testing.T) {
	mcptest.NoLeaks(t)
	freshVault(t)
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case endpoint:
			w.WriteHeader(http.StatusUnauthorized)
		case "/authorize":
			w.WriteHeader(http.StatusBadRequest)
		case "/register":
			t.Error("a client is registered for nothing")
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	}))
	defer web.Close()
	if o := patchbay(t, "", "tools", web.URL+endpoint); o.status != exitAuth ||
		!strings.HasSuffix(o.stderr, "\n  patchbay auth login "+web.URL+endpoint+"\n") {
		t.Errorf("got %d, %s", o.status, o.stderr)
	}
}

// A rejected Authorization header of the user is reported as such.
func TestRejectedTokenOfTheUser(t *testing.T) {
	for name, test := range map[string]struct {
		status                   int
		challenge, header, words string
	}{
		"refused": {http.StatusUnauthorized, "", "Bearer mine", "the server rejected your token"},
		"with a cause": {http.StatusUnauthorized,
			`Bearer error="invalid_token", error_description="it has ended"`, "Bearer mine", "the server rejected your token: it has ended"},
		"a password": {http.StatusUnauthorized, "Basic", "Basic bWluZTptaW5l",
			"the server rejected your credentials"},
		"one scope": {http.StatusForbidden, `Bearer error="insufficient_scope", scope="admin"`,
			"Bearer mine", "your token lacks the scope admin"},
		"scopes": {http.StatusForbidden, `Bearer error="insufficient_scope", scope="use admin"`,
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
			if o.status != exitAuth || o.stderr != "patchbay: "+test.words+"\n" {
				t.Errorf("got %d, %s", o.status, o.stderr)
			}
			if got := failureOf(t, o); got.Message != test.words || got.Login != "" {
				t.Errorf("JSON: got %+v", got)
			}
		})
	}
}

func TestStatusWithClientCredentials(t *testing.T) {
	mcptest.NoLeaks(t)
	freshVault(t)
	server, secret := protectedForMachines(t)
	t.Setenv(envClientID, "robot")
	t.Setenv(envSecret, secret)
	t.Setenv(envIssuer, strings.TrimSuffix(server, endpoint))
	for _, verb := range []string{"status", "login"} {
		o := patchbay(t, "", "auth", verb, server)
		if o.status != exitOK || !strings.Contains(o.stdout,
			"logged in   yes, as client robot (from the environment)\n") || strings.Contains(o.stdout, secret) {
			t.Errorf("%s: got %+v", verb, o)
		}
		o = patchbay(t, "", "auth", verb, server, "--json")
		var got loginReport
		if err := json.Unmarshal([]byte(o.stdout), &got); err != nil || !got.Environment || !got.LoggedIn ||
			got.ClientID != "robot" || got.Storage != nil {
			t.Errorf("%s --json: got %+v, %v", verb, o, err)
		}
	}
}

func TestBrowserFailsToOpen(t *testing.T) {
	mcptest.NoLeaks(t)
	freshVault(t)
	server, ann := protected(t), newPerson(t)
	o := atTerminal(t, "", func(p *program) {
		p.open = func(ctx context.Context, page string) error {
			return errors.Join(ann.open(ctx, page), errors.New("no browser"))
		}
	}, "auth", "login", server)
	if o.status != exitOK || strings.Contains(o.stderr, "level=") {
		t.Errorf("got %d, %s", o.status, o.stderr)
	}
	var stderr bytes.Buffer
	p := newProgram(strings.NewReader(""), io.Discard, &stderr)
	p.interactive, p.loginTime = true, 500*time.Millisecond
	p.open = func(context.Context, string) error { return errors.New("no browser") }
	status := p.run(t.Context(), []string{"auth", "login", server})
	if status != exitTimeout || strings.Contains(stderr.String(), "level=") ||
		!strings.HasSuffix(stderr.String(),
			"\nCould not open a browser: open the page yourself.\npatchbay: "+loginTimeout+"\n") {
		t.Errorf("got %d, %s", status, &stderr)
	}
}

// Without a terminal, a login fails at once.
func TestLoginWithoutATerminal(t *testing.T) {
	mcptest.NoLeaks(t)
	freshVault(t)
	server := protected(t)
	for flag, want := range map[string]string{"--json": "use --no-browser", "--no-input": "--no-input is set"} {
		o := patchbay(t, "", "auth", "login", server, flag)
		if o.status != exitAuth || !strings.Contains(o.stderr, want) ||
			strings.Contains(o.stderr, "--header") || strings.Contains(o.stderr, "/authorize") {
			t.Errorf("%s: got %d, %s", flag, o.status, o.stderr)
		}
	}
}

func TestUsageErrors(t *testing.T) {
	for args, want := range map[string]string{
		"help auth-status":    `unknown help topic "auth-status": did you mean "auth status"?`,
		"help auth statsu":    `did you mean "auth status"?`,
		"help exit-code":      `did you mean "exit-codes"?`,
		"auth status":         "missing TARGET: the URL of a server or its name in a configuration file\nusage: patchbay auth status TARGET",
		"auth login --json":   "patchbay auth login TARGET",
		"help auth-status-no": `unknown help topic "auth-status-no"`,
	} {
		if o := patchbay(t, "", strings.Fields(args)...); o.status != exitUsage || !strings.Contains(o.stderr, want) {
			t.Errorf("%s: got %d, %s", args, o.status, o.stderr)
		}
	}
	if o := patchbay(t, "", "help", "auth", "status"); o.status != exitOK {
		t.Errorf("got %d, %s", o.status, o.stderr)
	}
}

// An authorization server may grant less than before, or no longer know a scope.
func TestAuthorizationServerAllowsLess(t *testing.T) {
	mcptest.NoLeaks(t)
	freshVault(t)
	var granted, asked, refusal string
	mux := http.NewServeMux()
	web := httptest.NewServer(mux)
	defer web.Close()
	server := web.URL + endpoint
	answer := func(w http.ResponseWriter, status int, body map[string]any) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(body)
	}
	mux.HandleFunc(endpoint, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) })
	mux.HandleFunc("/.well-known/oauth-authorization-server", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusOK, map[string]any{
			"issuer": web.URL, "authorization_endpoint": web.URL + "/authorize", "token_endpoint": web.URL + "/token",
			"registration_endpoint": web.URL + "/register", "response_types_supported": []string{"code"},
			"code_challenge_methods_supported": []string{"S256"}, "token_endpoint_auth_methods_supported": []string{"none"},
		})
	})
	mux.HandleFunc("/register", func(w http.ResponseWriter, r *http.Request) {
		var body map[string]any
		_ = json.NewDecoder(r.Body).Decode(&body)
		body["client_id"] = "it"
		answer(w, http.StatusCreated, body)
	})
	mux.HandleFunc("/authorize", func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		asked = q.Get("scope")
		http.Redirect(w, r, q.Get("redirect_uri")+"?state="+q.Get("state")+refusal, http.StatusFound)
	})
	mux.HandleFunc("/token", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusOK, map[string]any{"access_token": "t", "token_type": "Bearer", "scope": granted})
	})
	for _, step := range []struct {
		granted, refusal, asked, says string
		status                        int
	}{
		{"a b", "&code=c", "a b", "", exitOK},
		{"a", "&code=c", "a b", "Scopes no longer allowed: b\n", exitOK},
		{"", "&error=invalid_scope", "a b", "log out first: patchbay auth logout " + server, exitAuth},
	} {
		granted, refusal = step.granted, step.refusal
		args := []string{"auth", "login", server}
		if step.says == "" {
			args = append(args, "--scope", "a", "--scope", "b")
		}
		p := &person{t: t}
		o := withBrowser(t, p, args...)
		p.seeing.Wait()
		if o.status != step.status || asked != step.asked || !strings.Contains(o.stderr, step.says) {
			t.Errorf("%+v: got %d, asked for %q, %s, %s", step, o.status, asked, o.stdout, o.stderr)
		}
	}
}
