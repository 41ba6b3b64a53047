package oauth_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcphttp"
	"github.com/patchbay-mcp/patchbay/oauth"
)

const (
	july2026     = "2026-07-28"
	november2025 = "2025-11-25"
	june2025     = "2025-06-18"
	march2025    = "2025-03-26"
	november2024 = "2024-11-05"
)

// newScoped returns a server whose tools need scopes.
func newScoped() *mcp.Server {
	s := mcp.NewServer("demo", "1.0.0", &mcp.ServerOptions{
		Logger: discardLog,
		Middleware: []mcp.Middleware{oauth.RequireScopes(&oauth.ScopeRules{
			Tools:      map[string]oauth.Scopes{"who": {}, "ask": {}, "late": {}, "write": oauth.AllOf("write", "files")},
			OtherTools: oauth.AllOf("admin"),
			Prompts:    map[string]oauth.Scopes{"secret": oauth.AllOf("write")},
			Resource:   func(uri string) oauth.Scopes { return oauth.AllOf("res:" + strings.TrimPrefix(uri, "x:")) },
			Methods:    map[string]oauth.Scopes{"completion/complete": oauth.AllOf("write")},
		})},
	})
	who := func(ctx context.Context, _ struct{}) (string, error) {
		return fmt.Sprintf("%s for %s", mcp.RequestFrom(ctx).Principal.Subject, mcp.RequestFrom(ctx).Header["Authorization"]), nil
	}
	mcp.AddTool(s, &mcp.Tool{Name: "who"}, who)
	mcp.AddTool(s, &mcp.Tool{Name: "write"}, who)
	mcp.AddTool(s, &mcp.Tool{Name: "unlisted"}, who)
	mcp.AddTool(s, &mcp.Tool{Name: "late"}, func(ctx context.Context, in struct {
		First bool `json:"first,omitzero"`
	}) (string, error) {
		if in.First {
			mcp.Progress(ctx, 1, 2, "begun")
		}
		return "done", oauth.CheckScopes(ctx, oauth.AnyOf("delete", "admin"))
	})
	mcp.AddTool(s, &mcp.Tool{Name: "ask"}, func(ctx context.Context, _ struct{}) (string, error) {
		answer, err := mcp.Ask[struct {
			Name string `json:"name"`
		}](ctx, "name", "Who?", nil)
		return "it is " + answer.Name, err
	})
	return s
}

// A site is a protected server on a loopback address.
type site struct {
	t   testing.TB
	url string
}

func newSite(t testing.TB, s *mcp.Server, opts *oauth.RequireOptions) *site {
	t.Helper()
	h := mcphttp.NewHandler(s, &mcphttp.Options{Logger: discardLog})
	srv := httptest.NewUnstartedServer(nil)
	site := &site{t, "http://" + srv.Listener.Addr().String() + "/mcp"}
	var o oauth.RequireOptions
	if opts != nil {
		o = *opts
	}
	o.Logger = discardLog
	srv.Config.Handler = oauth.Require(testVerifier(t), oauth.ResourceMetadata{
		Resource: site.url, AuthorizationServers: []string{issuerURL},
	}, &o)(h)
	srv.Start()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = h.Shutdown(ctx)
		srv.Close()
	})
	return site
}

// token returns a token for the site.
func (s *site) token(subject, scope string, changes ...claims) string {
	all := append([]claims{{"sub": subject, "scope": scope, "aud": s.url, "jti": time.Now().String()}}, changes...)
	return issue(s.t, all...)
}

// A reply is a whole answer.
type reply struct {
	status int
	header http.Header
	body   string
}

func (r *reply) challenge(t testing.TB) params {
	t.Helper()
	all := oauth.ParseChallenges(r.header)
	if len(all) != 1 {
		t.Fatalf("got %d challenges in %d %v %s", len(all), r.status, r.header, r.body)
	}
	return all[0].Params
}

func (s *site) do(method, url, token, body string, header ...string) *reply {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("Accept", "application/json, text/event-stream")
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return &reply{resp.StatusCode, resp.Header, string(text)}
}

// modern sends a request that carries its envelope.
func (s *site) modern(token, method, name, params string) *reply {
	s.t.Helper()
	const meta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",
		"io.modelcontextprotocol/clientCapabilities":{"elicitation":{"form":{}}},"progressToken":"p"}`
	header := []string{"MCP-Protocol-Version", july2026, "Mcp-Method", method}
	if name != "" {
		header = append(header, "Mcp-Name", name)
	}
	return s.do("POST", s.url, token, `{"jsonrpc":"2.0","id":7,"method":"`+method+`","params":{`+params+meta+`}}`, header...)
}

// open begins a session.
func (s *site) open(token, revision string) (session string) {
	s.t.Helper()
	r := s.do("POST", s.url, token, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"`+revision+
		`","capabilities":{},"clientInfo":{"name":"test","version":"1"}}}`)
	if session = r.header.Get("Mcp-Session-Id"); r.status != 200 || session == "" {
		s.t.Fatalf("initialize: got %d %s", r.status, r.body)
	}
	return session
}

func (s *site) inSession(token, session, body string) *reply {
	s.t.Helper()
	return s.do("POST", s.url, token, body, "Mcp-Session-Id", session)
}

func callOf(tool string) string {
	return `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"` + tool + `","_meta":{"progressToken":"p"}}}`
}

// A session belongs to who opened it, whatever token they show, and to nobody else does it exist.
func TestSEC09_SessionsAreBoundToThePrincipal(t *testing.T) {
	for _, revision := range []string{march2025, june2025, november2025} {
		t.Run(revision, func(t *testing.T) {
			s := newSite(t, newScoped(), nil)
			session := s.open(s.token("ann", "read"), revision)
			if r := s.inSession(s.token("ann", "read write", claims{"jti": "renewed"}), session, callOf("who")); r.status != 200 || !strings.Contains(r.body, "ann for []") {
				t.Errorf("a renewed token: got %d %s", r.status, r.body)
			}
			for name, token := range map[string]string{
				"another subject": s.token("bob", "read write admin"),
				"another client":  s.token("ann", "read", claims{"client_id": "other"}),
			} {
				for _, method := range []string{"POST", "GET", "DELETE"} {
					body := ""
					if method == "POST" {
						body = callOf("who")
					}
					if r := s.do(method, s.url, token, body, "Mcp-Session-Id", session); r.status != 404 {
						t.Errorf("%s, %s: got %d %s", name, method, r.status, r.body)
					}
				}
			}
			if r := s.do("POST", s.url, "", callOf("who"), "Mcp-Session-Id", session); r.status/100 != 4 || r.status == 404 {
				t.Errorf("the session alone: got %d", r.status) // SEC-09: it is no authentication
			}
			if r := s.inSession(s.token("ann", ""), session, callOf("who")); r.status != 200 {
				t.Errorf("after the others: got %d %s", r.status, r.body)
			}
		})
	}
	t.Run(november2024, func(t *testing.T) {
		s := newSite(t, newScoped(), nil)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		req, _ := http.NewRequestWithContext(ctx, "GET", s.url, nil)
		req.Header.Set("Authorization", "Bearer "+s.token("ann", "read"))
		req.Header.Set("Accept", "text/event-stream")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		lines := bufio.NewScanner(resp.Body)
		endpoint := ""
		for endpoint == "" && lines.Scan() {
			endpoint, _ = strings.CutPrefix(lines.Text(), "data: ")
			if !strings.HasPrefix(endpoint, "?") {
				endpoint = ""
			}
		}
		initialize := `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2024-11-05","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`
		if r := s.do("POST", s.url+endpoint, s.token("bob", "read"), initialize); r.status != 404 {
			t.Errorf("another subject: got %d %s", r.status, r.body)
		}
		if r := s.do("POST", s.url+endpoint, s.token("ann", ""), initialize); r.status != 202 {
			t.Errorf("a renewed token: got %d %s", r.status, r.body)
		}
	})
}

// What the server sealed for one caller's retry is of no use to another, and a renewed token of the
// caller is.
func TestRequestStateIsBoundToThePrincipal(t *testing.T) {
	s := newSite(t, newScoped(), nil)
	asked := s.modern(s.token("ann", "read"), "tools/call", "ask", `"name":"ask",`)
	var answer struct {
		Result struct {
			InputRequests map[string]json.RawMessage `json:"inputRequests"`
			RequestState  string                     `json:"requestState"`
		} `json:"result"`
	}
	if err := json.Unmarshal([]byte(asked.body), &answer); err != nil || len(answer.Result.InputRequests) != 1 {
		t.Fatalf("got %d %s", asked.status, asked.body)
	}
	retry := `"name":"ask",`
	for key := range answer.Result.InputRequests {
		retry += `"inputResponses":{"` + key + `":{"action":"accept","content":{"name":"Eve"}}},`
	}
	retry += `"requestState":"` + answer.Result.RequestState + `",`
	for name, token := range map[string]string{"another subject": s.token("bob", "read"), "another client": s.token("ann", "read", claims{"client_id": "other"})} {
		if r := s.modern(token, "tools/call", "ask", retry); !strings.Contains(r.body, `"error"`) || strings.Contains(r.body, "Eve") {
			t.Errorf("%s: got %d %s", name, r.status, r.body)
		}
	}
	if r := s.modern(s.token("ann", "read write", claims{"jti": "renewed"}), "tools/call", "ask", retry); !strings.Contains(r.body, "it is Eve") {
		t.Errorf("a renewed token: got %d %s", r.status, r.body)
	}
}

// A call that lacks scopes is answered as HTTP has it, in every revision, and goes through with a
// token that has them.
func TestAUTHR34_ScopesOfTools(t *testing.T) {
	base := &oauth.RequireOptions{Scopes: oauth.AllOf("read"), Implies: oauth.Hierarchy{"root": {"write", "files"}}.Implies}
	check := func(t *testing.T, s *site, send func(token, tool string) *reply) {
		t.Helper()
		for tool, want := range map[string]string{"write": "read write files", "unlisted": "read admin", "late": "read delete"} {
			r := send(s.token("ann", "read write"), tool)
			got := r.challenge(t)
			if r.status != 403 || got["error"] != "insufficient_scope" || got["scope"] != want || got["error_description"] == "" ||
				!strings.HasSuffix(got["resource_metadata"], "/.well-known/oauth-protected-resource/mcp") {
				t.Errorf("%s: got %d %v", tool, r.status, got)
			}
			var body struct {
				ID    int `json:"id"`
				Error struct {
					Code int                    `json:"code"`
					Data struct{ Scope string } `json:"data"`
				} `json:"error"`
			}
			if err := json.Unmarshal([]byte(r.body), &body); err != nil || body.ID != 7 || body.Error.Code != mcp.CodeInvalidRequest || body.Error.Data.Scope != want {
				t.Errorf("%s: got body %s", tool, r.body)
			}
			if r := send(s.token("ann", want), tool); r.status != 200 || !strings.Contains(r.body, `"result"`) {
				t.Errorf("%s with what the challenge names: got %d %s", tool, r.status, r.body)
			}
		}
		if r := send(s.token("ann", "read root"), "write"); r.status != 200 {
			t.Errorf("AUTHR-38: got %d %s", r.status, r.body)
		}
	}
	t.Run(july2026, func(t *testing.T) {
		s := newSite(t, newScoped(), base)
		check(t, s, func(token, tool string) *reply { return s.modern(token, "tools/call", tool, `"name":"`+tool+`",`) })
		for _, tc := range []struct{ method, name, params, want string }{
			{"prompts/get", "secret", `"name":"secret",`, "read write"},
			{"resources/read", "x:a", `"uri":"x:a",`, "read res:a"},
			{"subscriptions/listen", "", `"notifications":{"resourceSubscriptions":["x:a","x:b"]},`, "read res:a res:b"},
			{"completion/complete", "", `"ref":{"type":"ref/prompt","name":"p"},"argument":{"name":"a","value":""},`, "read write"},
		} {
			r := s.modern(s.token("ann", "read"), tc.method, tc.name, tc.params)
			if got := r.challenge(t); r.status != 403 || got["scope"] != tc.want {
				t.Errorf("%s: got %d %v", tc.method, r.status, got)
			}
		}
	})
	for _, revision := range []string{march2025, june2025, november2025} {
		t.Run(revision, func(t *testing.T) {
			s := newSite(t, newScoped(), base)
			session := s.open(s.token("ann", "read"), revision)
			check(t, s, func(token, tool string) *reply { return s.inSession(token, session, callOf(tool)) })
		})
	}
}

// Once something was sent, and in a batch whose other calls must not be sent again, the refusal is
// an error like others.
func TestScopesAfterResponseHasBegun(t *testing.T) {
	s := newSite(t, newScoped(), nil)
	session := s.open(s.token("ann", ""), march2025)
	for name, r := range map[string]*reply{
		"2026, after progress": s.modern(s.token("ann", ""), "tools/call", "late", `"name":"late","arguments":{"first":true},`),
		"session, after progress": s.inSession(s.token("ann", ""), session,
			`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"late","arguments":{"first":true},"_meta":{"progressToken":"p"}}}`),
		"a batch": s.inSession(s.token("ann", ""), session, `[`+callOf("write")+`,{"jsonrpc":"2.0","id":8,"method":"tools/call","params":{"name":"who"}}]`),
	} {
		if r.status != 200 || r.header.Get("WWW-Authenticate") != "" || !strings.Contains(r.body, "lacks a scope") {
			t.Errorf("%s: got %d %v %s", name, r.status, r.header, r.body)
		}
	}
}

// Where there is no HTTP, and nobody who could prove anything, what needs scopes is refused.
func TestScopesWithoutHTTP(t *testing.T) {
	c, err := mcp.Connect(t.Context(), mcp.InMemory(newScoped()), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.CallTool(t.Context(), "write", nil); err == nil || !strings.Contains(err.Error(), "lacks a scope") {
		t.Errorf("got %v", err)
	}
}

// A subscription ends in good order when its token does, and its client may take it up again with a
// new one.
func TestStreamEndsWithToken(t *testing.T) {
	server := newScoped()
	s := newSite(t, server, &oauth.RequireOptions{MaxStream: 50 * time.Millisecond})
	r := s.modern(s.token("ann", ""), "subscriptions/listen", "", `"notifications":{"toolsListChanged":true},`)
	if r.status != 200 || !strings.Contains(r.body, "acknowledged") || !strings.Contains(r.body, `"result"`) || strings.Contains(r.body, `"error"`) {
		t.Errorf("got %d %s", r.status, r.body)
	}
	session := s.open(s.token("ann", ""), november2025)
	if r := s.do("GET", s.url, s.token("ann", ""), "", "Mcp-Session-Id", session); r.status != 200 {
		t.Errorf("GET: got %d %s", r.status, r.body)
	}
	if r := s.inSession(s.token("ann", ""), session, callOf("who")); r.status != 200 {
		t.Errorf("the session after its stream: got %d %s", r.status, r.body)
	}
}

// As middleware of a server, the guard serves the metadata as well.
func TestServeWithRequire(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &site{t, "http://" + l.Addr().String() + "/mcp"}
	protect := oauth.Require(testVerifier(t), oauth.ResourceMetadata{
		Resource: s.url, AuthorizationServers: []string{issuerURL},
	}, &oauth.RequireOptions{Logger: discardLog})
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error)
	go func() {
		served <- mcphttp.Serve(ctx, l, "/mcp", mcphttp.NewHandler(newScoped(), &mcphttp.Options{Logger: discardLog}), protect)
	}()
	refused := s.do("POST", s.url, "x", callOf("who"))
	if r := s.do("GET", refused.challenge(t)["resource_metadata"], "x", ""); r.status != 200 || !strings.Contains(r.body, s.url) {
		t.Errorf("got %d %s", r.status, r.body)
	}
	if r := s.modern(s.token("ann", ""), "tools/call", "who", `"name":"who",`); r.status != 200 || !strings.Contains(r.body, "ann for []") {
		t.Errorf("got %d %s", r.status, r.body)
	}
	http.DefaultClient.CloseIdleConnections()
	stop()
	if err := <-served; err != nil {
		t.Error(err)
	}
}
