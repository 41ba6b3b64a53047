package gateway_test

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/patchbay-mcp/patchbay/gateway/celpolicy"
	"github.com/patchbay-mcp/patchbay/host"
	"github.com/patchbay-mcp/patchbay/host/config"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/oauth/oauthclient"
)

// A call that needs a login and an approval asks for the login first: an approval is for one call. If the
// token turns out to be of no use after the approval, both are asked for again, and the call runs once.
func TestLoginBeforeApproval(t *testing.T) {
	for _, revision := range []string{"2025-11-25", "2026-07-28"} {
		t.Run(revision, func(t *testing.T) {
			u := newProtectedUpstream(t)
			f, err := config.Parse([]byte(`{"mcpServers": {"notes": {"url": "https://notes.example"}}, "patchbay": {"policy":
				{"rules": [{"on": ["call"], "when": "tool.name == 'whoami'", "do": "ask"}]}}}`))
			if err != nil {
				t.Fatal(err)
			}
			rules, err := celpolicy.New(f, nil)
			if err != nil {
				t.Fatal(err)
			}
			g := newLoginGateway(t, u, `{"auth": "caller"}`, "", nil, func(o *host.Options) { o.Policy = rules })
			ann := g.visitor(t, "ann@notes")
			var mu sync.Mutex
			var asked []string
			c := g.clientWith(t, "ann", revision, &mcp.ClientOptions{
				ElicitURL: func(ctx context.Context, p *mcp.ElicitRequestParams) (*mcp.ElicitResult, error) {
					mu.Lock()
					asked = append(asked, "login")
					mu.Unlock()
					return ann.elicit(ctx, p)
				},
				Elicit: func(context.Context, *mcp.ElicitRequestParams) (*mcp.ElicitResult, error) {
					mu.Lock()
					asked = append(asked, "approval")
					mu.Unlock()
					return &mcp.ElicitResult{Action: mcp.ElicitAccept, Content: []byte(`{"decision":"once"}`)}, nil
				},
			})
			call(t, c, "log_in")
			if text, isError := call(t, c, "whoami"); isError || text != "ann@notes" {
				t.Fatalf("got %q, %t", text, isError)
			}
			token := u.lastToken()
			u.onlyCalls.Store(true) // the gateway may read a list again at any time
			u.refuse.Store(&token)
			u.broken.Store(true) // the token is refused, and cannot be renewed: the gateway learns that with the call
			if text, isError := call(t, c, "whoami"); isError || text != "ann@notes" || u.calls("ann@notes") != 2 {
				t.Errorf("got %q, %t, %d calls", text, isError, u.calls("ann@notes"))
			}
			mu.Lock()
			defer mu.Unlock()
			want := []string{"login", "approval", "approval", "login", "approval"}
			if !slices.Equal(asked, want) {
				t.Errorf("asked for %q, want %q", asked, want)
			}
		})
	}
}

// A user who declines, or whose login fails, gets an error, and the call does not run.
func TestDeclinedLogin(t *testing.T) {
	u := newProtectedUpstream(t)
	g := newLoginGateway(t, u, `{"auth": "caller"}`, "", nil)
	nobody := g.visitor(t, "")
	for name, elicit := range map[string]func(context.Context, *mcp.ElicitRequestParams) (*mcp.ElicitResult, error){
		"has not agreed": func(context.Context, *mcp.ElicitRequestParams) (*mcp.ElicitResult, error) {
			return &mcp.ElicitResult{Action: mcp.ElicitDecline}, nil
		},
		"refused it: access_denied": nobody.elicit,
		"has refused it: access_denied": func(ctx context.Context, p *mcp.ElicitRequestParams) (*mcp.ElicitResult, error) {
			res, err := nobody.elicit(ctx, p)
			nobody.visits.Wait() // the login has failed when the request comes back
			return res, err
		},
	} {
		for _, revision := range []string{"2025-11-25", "2026-07-28"} {
			c := g.client(t, "ann"+revision, revision, elicit)
			code, text := errorCode(t, c, "log_in")
			if code != "auth_required" || !strings.Contains(text, name) || !strings.Contains(text, "did not run") {
				t.Errorf("%s: got %q, %q, want %q", revision, code, text, name)
			}
		}
	}
}

// The state of a login is for one caller and one request.
func TestStatesOfLoginsAreBound(t *testing.T) {
	u := newProtectedUpstream(t)
	g := newLoginGateway(t, u, `{"auth": "caller"}`, "", nil)
	send := func(caller, tool, more string) string {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, g.url+"/mcp", strings.NewReader(
			`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"`+tool+`",`+more+
				`"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",`+
				`"io.modelcontextprotocol/clientCapabilities":{"elicitation":{"url":{}}}}}}`))
		if err != nil {
			t.Fatal(err)
		}
		for name, value := range map[string]string{"Content-Type": "application/json", "Mcp-Method": "tools/call",
			"Accept": "application/json, text/event-stream", "Mcp-Protocol-Version": "2026-07-28", "Mcp-Name": tool,
			"Authorization": "Bearer " + caller} {
			r.Header.Set(name, value)
		}
		res, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		b, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	first := send("ann", "log_in", "")
	_, state, _ := strings.Cut(first, `"requestState":"`)
	state, _, _ = strings.Cut(state, `"`)
	if state == "" || !strings.Contains(first, `"mode":"url"`) {
		t.Fatalf("got %s", first)
	}
	again := `"requestState":"` + state + `","inputResponses":{"login":{"action":"decline"}},`
	if got := send("ann", "log_in", again); !strings.Contains(got, "has not agreed") {
		t.Errorf("got %s", got)
	}
	for name, got := range map[string]string{"another caller": send("bob", "log_in", again),
		"another tool": send("ann", "whoami", again)} {
		if strings.Contains(got, "has not agreed") {
			t.Errorf("%s: the state was opened: %s", name, got)
		}
	}
	if got := send("ann", "log_in", `"requestState":"`+state+`",`); !strings.Contains(got, `"mode":"url"`) {
		t.Errorf("without an answer: got %s, want the question again", got)
	}
}

// A call whose token ends while its user answers a question of the server goes on after the login, with the
// answer.
func TestLoginWhileTheServerWaits(t *testing.T) {
	for _, revision := range []string{"2025-11-25", "2026-07-28"} {
		t.Run(revision, func(t *testing.T) {
			u := newProtectedUpstream(t)
			g := newLoginGateway(t, u, `{"auth": "caller", "era": "modern"}`, "", nil)
			ann := g.visitor(t, "ann@notes")
			var asked atomic.Int64
			c := g.clientWith(t, "ann", revision, &mcp.ClientOptions{ElicitURL: ann.elicit,
				Elicit: func(context.Context, *mcp.ElicitRequestParams) (*mcp.ElicitResult, error) {
					asked.Add(1)
					token := u.lastToken()
					u.refuse.Store(&token)
					u.broken.Store(true)
					return answer(t.Context(), nil)
				},
			})
			call(t, c, "log_in")
			text, isError := call(t, c, "ask")
			if isError || text != "blue of ann@notes" || asked.Load() != 1 || len(ann.opened()) != 2 {
				t.Errorf("got %q, %t, %d questions, %d logins", text, isError, asked.Load(), len(ann.opened()))
			}
		})
	}
}

// A server that asks for the same scopes again after each login does not make the user log in without end.
func TestEndlessStepUpEnds(t *testing.T) {
	u := newProtectedUpstream(t)
	g := newLoginGateway(t, u, `{"auth": "caller", "era": "modern"}`, "", nil)
	ann := g.visitor(t, "ann@notes")
	for _, revision := range []string{"2025-11-25", "2026-07-28"} {
		c := g.client(t, "ann"+revision, revision, ann.elicit)
		call(t, c, "log_in")
		before := len(ann.opened())
		u.demands.Store(true)
		code, text := errorCode(t, c, "whoami")
		if n := len(ann.opened()) - before; code != "auth_required" || !strings.Contains(text, "still requires a login") || n != 1 {
			t.Errorf("%s: got %q, %q, %d logins", revision, code, text, n)
		}
		u.demands.Store(false)
	}
}

// With "auth": "gateway" all callers have the login of the local user, and cannot log in themselves.
func TestLoginOfTheGateway(t *testing.T) {
	u := newProtectedUpstream(t)
	g := newLoginGateway(t, u, `{"auth": "gateway"}`, `, "connect": {"links": true}`, nil)
	ops := g.visitor(t, "ops@notes")
	if c, err := g.connect(t, "ann", "2026-07-28", ops.elicit); err == nil {
		if code, text := errorCode(t, c, "whoami"); code != "auth_required" || strings.Contains(text, "/connect/") {
			t.Errorf("before the login: %q, %q", code, text)
		}
	}
	if _, err := g.host.Operator().BeginLogin(t.Context(), "notes", &policy.Caller{Principal: person("ann")}); err == nil {
		t.Error("a caller can log in for all")
	}
	login := oauthclient.NewTransport(u.url, &oauthclient.TransportOptions{Store: g.store(""),
		Authorizer: oauthclient.NewAuthorizer(g.url+"/connect/callback",
			func(_ context.Context, l *oauthclient.LoginRequest) (url.Values, error) {
				page, err := url.Parse(l.URL)
				if err != nil {
					return nil, err
				}
				return ops.response(page).Query(), nil
			})})
	if err := login.Login(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, caller := range []string{"ann", "bob", "local"} {
		if text, isError := call(t, g.client(t, caller, "2026-07-28", nil), "whoami"); isError || text != "ops@notes" {
			t.Errorf("%s: got %q, %t, want the access of the operator", caller, text, isError)
		}
	}
}
