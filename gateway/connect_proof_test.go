package gateway_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
	"github.com/patchbay-mcp/patchbay/oauth/authserver"
	"github.com/patchbay-mcp/patchbay/oauth/oauthclient"
)

// Two principals use one protected server: each has its own tokens, connections and view, and nothing
// that anyone else can read has a token.
//
// Requirement: HOST-07, HOST-35
func TestCallersHaveTheirOwnLogins(t *testing.T) {
	for _, era := range []string{"modern", "session"} {
		t.Run(era, func(t *testing.T) {
			mcptest.NoLeaks(t)
			u := newProtectedUpstream(t)
			g := newLoginGateway(t, u, `{"auth": "caller", "era": "`+era+`"}`, "", nil)
			ann, bob := g.visitor(t, "ann@notes"), g.visitor(t, "bob@notes")
			a, b := g.client(t, "ann", "2026-07-28", ann.elicit), g.client(t, "bob", "2025-11-25", bob.elicit)
			if text, isError := call(t, a, "log_in"); isError {
				t.Fatal(text)
			}
			if got := toolNames(t, a); slices.Contains(got, "log_in") || !slices.Contains(got, "whoami") {
				t.Errorf("the tools of ann are %q", got)
			}
			if got := toolNames(t, b); !slices.Equal(got, []string{"log_in"}) { // the login of ann is not that of bob
				t.Errorf("the tools of bob are %q, want log_in", got)
			}
			if code, text := errorCode(t, g.client(t, "bob", "2026-07-28", nil), "whoami"); code != "auth_required" {
				t.Errorf("bob without a login: %q, %q", code, text)
			}
			if text, isError := call(t, b, "log_in"); isError {
				t.Fatal(text)
			}
			var wait sync.WaitGroup
			for i := range 20 {
				c, want := a, "ann@notes"
				if i%2 == 1 {
					c, want = b, "bob@notes"
				}
				wait.Go(func() {
					if res, err := c.CallTool(t.Context(), "whoami", nil); err != nil || res.Text() != want {
						t.Errorf("got %+v, %v, want %s", res, err, want)
					}
				})
			}
			wait.Wait()
			if n := u.count(authserver.AuditLogin); n != 2 {
				t.Errorf("%d logins, want 2", n)
			}
			g.checkStores(t, u)
			g.checkNoTokens(t, u)
		})
	}
}

// checkStores checks that each token is in the store of one principal.
func (g *loginGateway) checkStores(t *testing.T, u *protectedUpstream) {
	t.Helper()
	owners := map[string]string{}
	for principal, store := range g.stores {
		server, err := store.Load(t.Context(), "server "+u.url)
		if err != nil {
			t.Fatal(err)
		}
		tokens, _ := store.Load(t.Context(), "tokens "+u.issuer+" "+u.url)
		for _, secret := range u.secrets(t) {
			if strings.Contains(string(tokens), secret) {
				if other, ok := owners[secret]; ok {
					t.Errorf("a token is in the stores of %q and %q", principal, other)
				}
				owners[secret] = principal
			}
		}
		if principal == "" && server != nil {
			t.Error("the local user has a login")
		}
	}
	if len(owners) < 4 { // access and refresh tokens of two
		t.Errorf("%d tokens are in the stores, want 4", len(owners))
	}
}

// checkNoTokens searches everything that others can read for tokens, codes and tickets.
func (g *loginGateway) checkNoTokens(t *testing.T, u *protectedUpstream) {
	t.Helper()
	secrets := u.secrets(t)
	if len(secrets) < 2 {
		t.Fatal("no token was issued")
	}
	if err := g.host.Close(); err != nil {
		t.Error(err)
	}
	if err := g.log.Close(); err != nil {
		t.Error(err)
	}
	records := ""
	err := filepath.WalkDir(g.audit, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			b, readErr := os.ReadFile(path)
			records, err = records+string(b), readErr
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, outcome := range []string{"started", "succeeded"} {
		if !strings.Contains(records, outcome) {
			t.Errorf("no record of a login that was %s", outcome)
		}
	}
	for where, text := range map[string]string{"log": g.logs.String(), "page": g.pages.String(), "record": records} {
		if text == "" && where != "log" {
			t.Errorf("no %s", where)
		}
		for _, secret := range secrets {
			if at := strings.Index(text, secret); at >= 0 {
				t.Errorf("a %s has a token: %s", where, text[max(0, at-200):min(len(text), at+20)])
			}
		}
	}
	for _, text := range []string{g.logs.String(), records} {
		if strings.Contains(text, "/connect/") || strings.Contains(text, "code=") {
			t.Error("a log or record has a ticket or a code")
		}
	}
}

// A server that repeats a token in an error does not make it known.
func TestTokensOfServersErrorsAreMasked(t *testing.T) {
	u := newProtectedUpstream(t)
	g := newLoginGateway(t, u, `{"auth": "caller"}`, "", nil)
	c := g.client(t, "ann", "2026-07-28", g.visitor(t, "ann@notes").elicit)
	call(t, c, "log_in")
	call(t, c, "leak")
	g.checkNoTokens(t, u)
}

// expire makes the access token of a store one that has expired.
func expire(t *testing.T, s oauthclient.Store, u *protectedUpstream) {
	t.Helper()
	err := s.Update(t.Context(), "tokens "+u.issuer+" "+u.url, func(old []byte) ([]byte, error) {
		var tokens map[string]any
		if err := json.Unmarshal(old, &tokens); err != nil {
			return nil, err
		}
		tokens["expires"] = time.Now().Add(-time.Minute)
		return json.Marshal(tokens)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// 50 requests with an expired token refresh it once, in one process and in two with the same store, and
// so do 50 requests whose token the server refuses.
func TestExpiredTokenIsRefreshedOnce(t *testing.T) {
	for _, kind := range []string{"expired", "refused", "two processes"} {
		t.Run(kind, func(t *testing.T) {
			u := newProtectedUpstream(t)
			g := newLoginGateway(t, u, `{"auth": "caller"}`, "", nil)
			ann := g.visitor(t, "ann@notes")
			c := g.client(t, "ann", "2026-07-28", ann.elicit)
			call(t, c, "log_in")
			call(t, c, "whoami")
			clients := []*mcp.Client{c}
			switch kind {
			case "refused":
				token := u.lastToken()
				u.refuse.Store(&token)
			default: // the tokens of a process are in its memory: others have only the store
				expire(t, g.store((&mcp.Principal{Issuer: loginIssuer, Subject: "ann"}).Key()), u)
				clients = nil
				for range map[string]int{"expired": 1, "two processes": 2}[kind] {
					other := newLoginGateway(t, u, `{"auth": "caller"}`, "", nil)
					other.stores = g.stores
					clients = append(clients, other.client(t, "ann", "2026-07-28", ann.elicit))
				}
			}
			var wait sync.WaitGroup
			for i := range 50 {
				wait.Go(func() {
					res, err := clients[i%len(clients)].CallTool(t.Context(), "whoami", nil)
					if err != nil || res.IsError || res.Text() != "ann@notes" {
						t.Errorf("got %+v, %v", res, err)
					}
				})
			}
			wait.Wait()
			if n := u.count(authserver.AuditRefresh); n != 1 {
				t.Errorf("%d refreshes, want 1", n)
			}
			if n := len(ann.opened()); n != 1 {
				t.Errorf("%d logins were asked for, want 1", n)
			}
		})
	}
}

// A refresh that fails requires a login. The caller never gets an anonymous session, nor the one of
// another caller.
func TestFailedRefreshRequiresALogin(t *testing.T) {
	for _, era := range []string{"modern", "session"} {
		t.Run(era, func(t *testing.T) {
			u := newProtectedUpstream(t)
			g := newLoginGateway(t, u, `{"auth": "caller", "era": "`+era+`"}`, "", nil)
			ann := g.visitor(t, "ann@notes")
			c := g.client(t, "ann", "2026-07-28", ann.elicit)
			call(t, c, "log_in")
			call(t, c, "whoami")
			token := u.lastToken()
			u.refuse.Store(&token)
			u.broken.Store(true)
			before := u.calls("ann@notes")
			if code, text := errorCode(t, g.client(t, "ann", "2026-07-28", nil), "whoami"); code != "auth_required" {
				t.Errorf("got %q, %q, want auth_required", code, text)
			}
			if u.calls("ann@notes") != before {
				t.Error("the call has run")
			}
			u.mu.Lock()
			for _, h := range u.headers[3:] {
				if h.Get("Authorization") == "" && h.Get("Accept") != "application/json, text/event-stream" {
					t.Errorf("a request without a token: %v", h)
				}
			}
			u.mu.Unlock()
			u.broken.Store(false)
			if text, isError := call(t, c, "whoami"); isError || text != "ann@notes" {
				t.Errorf("after another login: %q, %t", text, isError)
			}
			if n := len(ann.opened()); n != 2 {
				t.Errorf("%d logins were asked for, want 2", n)
			}
			g.checkNoTokens(t, u)
		})
	}
}

// A server that asks for more scopes causes another login, which adds them.
func TestStepUpAsksForTheScope(t *testing.T) {
	u := newProtectedUpstream(t)
	g := newLoginGateway(t, u, `{"auth": "caller"}`, "", nil)
	ann := g.visitor(t, "ann@notes")
	for _, revision := range []string{"2025-11-25", "2026-07-28"} {
		caller := "ann" + revision
		c := g.client(t, caller, revision, ann.elicit)
		call(t, c, "log_in")
		before := len(ann.opened())
		if code, text := errorCode(t, g.client(t, caller, revision, nil), "write"); code != "auth_required" {
			t.Errorf("without a channel: %q, %q, want auth_required", code, text)
		}
		if text, isError := call(t, c, "write"); isError || text != "written by ann@notes" {
			t.Errorf("write: %q, %t", text, isError)
		}
		if text, isError := call(t, c, "whoami"); isError || text != "ann@notes" {
			t.Errorf("the scope of before is lost: %q", text)
		}
		if n := len(ann.opened()) - before; n != 1 {
			t.Errorf("%d logins were asked for, want 1", n)
		}
	}
}

// A session that the server has lost, together with its token, is opened again with the new token.
func TestLostSessionAfterRefresh(t *testing.T) {
	u := newProtectedUpstream(t)
	g := newLoginGateway(t, u, `{"auth": "caller", "era": "session"}`, "", nil)
	ann := g.visitor(t, "ann@notes")
	c := g.client(t, "ann", "2026-07-28", ann.elicit)
	call(t, c, "log_in")
	call(t, c, "whoami")
	for n := int64(2); n < 5; n++ {
		token := u.lastToken()
		u.refuse.Store(&token)
		u.restart()
		if text, isError := call(t, c, "whoami"); isError || text != "ann@notes" || u.calls("ann@notes") != n {
			t.Errorf("got %q, %t, %d calls, want %d", text, isError, u.calls("ann@notes"), n)
		}
	}
	if n := len(ann.opened()); n != 1 {
		t.Errorf("%d logins were asked for, want 1", n)
	}
}

// The headers of callers do not reach servers, except those that the settings name.
func TestHeadersOfCallersAreNotForwarded(t *testing.T) {
	for name, c := range map[string]struct {
		settings string
		want     map[string]string
	}{
		"none":     {`{"auth": "none"}`, nil},
		"default":  {`{}`, nil},
		"caller":   {`{"auth": "caller"}`, nil},
		"forward":  {`{"auth": "forward", "forwardHeaders": ["x-tenant"]}`, map[string]string{"X-Tenant": "tenant-%s"}},
		"insecure": {`{"auth": "forward", "insecureForwardAuthorization": true}`, map[string]string{"Authorization": "Bearer %s"}},
	} {
		t.Run(name, func(t *testing.T) {
			u := newProtectedUpstream(t)
			g := newLoginGateway(t, u, c.settings, "", nil)
			sent := 0
			for _, revision := range []string{"2025-06-18", "2026-07-28"} {
				for _, caller := range []string{"ann", "bob"} {
					u.mu.Lock()
					u.headers = nil
					u.mu.Unlock()
					if client, err := g.connect(t, caller, revision, nil); err == nil {
						_, _ = mcp.Collect(client.Tools(t.Context()))
						_, _ = client.CallTool(t.Context(), "whoami", nil)
					}
					u.mu.Lock()
					sent += len(u.headers)
					for _, h := range u.headers {
						for _, header := range []string{"Authorization", "Cookie", "X-Tenant"} {
							want := ""
							if c.want[header] != "" {
								want = fmt.Sprintf(c.want[header], caller)
							}
							if got := h.Get(header); got != want {
								t.Errorf("%s of %s: got %q, want %q", header, caller, got, want)
							}
						}
					}
					u.mu.Unlock()
				}
			}
			if sent == 0 && name != "caller" {
				t.Error("no request was sent")
			}
		})
	}
}

// The end of a login by another process, such as the command line, lets a request go on.
func TestLoginByAnotherProcess(t *testing.T) {
	u := newProtectedUpstream(t)
	g := newLoginGateway(t, u, `{"auth": "caller"}`, "", nil)
	other := newLoginGateway(t, u, `{"auth": "caller"}`, "", nil)
	other.stores = g.stores
	ann := other.visitor(t, "ann@notes")
	visit := func(context.Context, *mcp.ElicitRequestParams) (*mcp.ElicitResult, error) {
		l, err := other.host.Operator().BeginLogin(t.Context(), "notes",
			&policy.Caller{Principal: &mcp.Principal{Issuer: loginIssuer, Subject: "ann"}})
		if err != nil {
			t.Error(err)
			return nil, err
		}
		ann.visits.Go(func() { ann.visit(l.URL()) })
		return &mcp.ElicitResult{Action: mcp.ElicitAccept}, nil
	}
	c := g.client(t, "ann", "2026-07-28", visit)
	if text, isError := call(t, c, "log_in"); isError || !strings.Contains(text, "Logged in") {
		t.Errorf("got %q, %t", text, isError)
	}
}

// A login by another process, which another request uses before the client has answered.
func TestLoginByAnotherProcessBeforeTheAnswer(t *testing.T) {
	u := newProtectedUpstream(t)
	g := newLoginGateway(t, u, `{"auth": "caller"}`, "", nil)
	other := newLoginGateway(t, u, `{"auth": "caller"}`, "", nil)
	other.stores = g.stores
	ann := other.visitor(t, "ann@notes")
	second := g.client(t, "ann", "2026-07-28", nil)
	visit := func(context.Context, *mcp.ElicitRequestParams) (*mcp.ElicitResult, error) {
		l, err := other.host.Operator().BeginLogin(t.Context(), "notes",
			&policy.Caller{Principal: &mcp.Principal{Issuer: loginIssuer, Subject: "ann"}})
		if err != nil {
			t.Error(err)
			return nil, err
		}
		ann.visit(l.URL())
		for end := time.Now().Add(30 * time.Second); ; {
			r, err := second.CallTool(t.Context(), "whoami", nil)
			if err == nil && !r.IsError {
				break
			}
			if time.Now().After(end) {
				t.Errorf("whoami: %v, %v, want the login of the other process", r, err)
				break
			}
		}
		return &mcp.ElicitResult{Action: mcp.ElicitAccept}, nil
	}
	c := g.client(t, "ann", "2026-07-28", visit)
	if text, isError := call(t, c, "log_in"); isError || !strings.Contains(text, "Logged in") {
		t.Errorf("got %q, %t", text, isError)
	}
}

// A logout ends the access of one caller.
func TestLogoutIsOfOneCaller(t *testing.T) {
	u := newProtectedUpstream(t)
	g := newLoginGateway(t, u, `{"auth": "caller"}`, "", nil)
	a := g.client(t, "ann", "2026-07-28", g.visitor(t, "ann@notes").elicit)
	b := g.client(t, "bob", "2026-07-28", g.visitor(t, "bob@notes").elicit)
	call(t, a, "log_in")
	call(t, b, "log_in")
	if err := g.host.Operator().Logout(t.Context(), "notes", &policy.Caller{Principal: &mcp.Principal{Issuer: loginIssuer,
		Subject: "ann"}}); err != nil {
		t.Error(err)
	}
	if code, text := errorCode(t, g.client(t, "ann", "2026-07-28", nil), "whoami"); code != "auth_required" {
		t.Errorf("ann: %q, %q", code, text)
	}
	if text, isError := call(t, b, "whoami"); isError || text != "bob@notes" {
		t.Errorf("bob: %q", text)
	}
}

// A caller sees its own logins, and ends them with a tool.
func TestCallersLogOut(t *testing.T) {
	for _, revision := range []string{"2025-11-25", "2026-07-28"} {
		t.Run(revision, func(t *testing.T) {
			u := newProtectedUpstream(t)
			g := newLoginGateway(t, u, `{"auth": "caller"}`, "", nil)
			a := g.client(t, "ann", revision, g.visitor(t, "ann@notes").elicit)
			b := g.client(t, "bob", revision, g.visitor(t, "bob@notes").elicit)
			if text, isError := call(t, a, "log_out"); !isError || !strings.Contains(text, "not logged in to a server") {
				t.Errorf("before the login: %q, %t", text, isError)
			}
			call(t, a, "log_in")
			call(t, b, "log_in")
			tools, err := mcp.Collect(a.Tools(t.Context()))
			if err != nil || !strings.HasSuffix(tools[len(tools)-1].Description, "The user is logged in to: notes.") {
				t.Errorf("%v, the last tool is %+v, want log_out with the logins", err, tools[len(tools)-1])
			}
			if text, isError := call(t, a, "log_out"); isError || text != "Logged out of notes." {
				t.Errorf("got %q, %t", text, isError)
			}
			if g.loggedIn(t, person("ann")) || !g.loggedIn(t, person("bob")) || u.count(authserver.AuditRevocation) != 1 {
				t.Errorf("%d tokens revoked, want the login of ann only", u.count(authserver.AuditRevocation))
			}
			if slices.Contains(toolNames(t, a), "log_out") || !slices.Contains(toolNames(t, b), "log_out") {
				t.Error("log_out is listed for ann, or not for bob")
			}
			if text, isError := call(t, a, "whoami"); isError || text != "ann@notes" {
				t.Errorf("another login: %q, %t", text, isError)
			}
		})
	}
}
