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
	"testing/synctest"
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

// newScopedServer returns an MCP server whose tools need scopes.
func newScopedServer() *mcp.Server {
	s := mcp.NewServer("demo", "1.0.0", &mcp.ServerOptions{
		Logger: discardLog,
		Middleware: []mcp.Middleware{oauth.RequireScopes(&oauth.ScopeRules{
			Tools: map[string]oauth.Scopes{"who": {}, "ask": {}, "late": {},
				"write": oauth.AllOf("write", "files")},
			OtherTools: oauth.AllOf("admin"),
			Prompts:    map[string]oauth.Scopes{"secret": oauth.AllOf("write")},
			Resource:   func(uri string) oauth.Scopes { return oauth.AllOf("res:" + strings.TrimPrefix(uri, "x:")) },
			Methods:    map[string]oauth.Scopes{"completion/complete": oauth.AllOf("write")},
		})},
	})
	who := func(ctx context.Context, _ struct{}) (string, error) {
		return fmt.Sprintf("%s for %s", mcp.RequestFrom(ctx).Principal.Subject,
			mcp.RequestFrom(ctx).Header["Authorization"]), nil
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

// A testServer is an MCP server on a loopback address, protected by Require.
type testServer struct {
	t      testing.TB
	url    string
	client *http.Client
}

func newTestServer(t testing.TB, s *mcp.Server, opts *oauth.RequireOptions) *testServer {
	t.Helper()
	h := mcphttp.NewHandler(s, &mcphttp.Options{Logger: discardLog})
	srv := httptest.NewUnstartedServer(nil)
	site := &testServer{t, "http://" + srv.Listener.Addr().String() + "/mcp", http.DefaultClient}
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

// token returns a token whose audience is the server.
func (s *testServer) token(subject, scope string, changes ...claims) string {
	all := append([]claims{{"sub": subject, "scope": scope, "aud": s.url, "jti": time.Now().String()}}, changes...)
	return issue(s.t, all...)
}

// A response is an HTTP response that was read to its end.
type response struct {
	status int
	header http.Header
	body   string
}

func (r *response) challenge(t testing.TB) params {
	t.Helper()
	all := oauth.ParseChallenges(r.header)
	if len(all) != 1 {
		t.Fatalf("got %d challenges in the response %d %v %s, want 1", len(all), r.status, r.header, r.body)
	}
	return all[0].Params
}

func (s *testServer) do(method, url, token, body string, header ...string) *response {
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
	resp, err := s.client.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return &response{resp.StatusCode, resp.Header, string(text)}
}

// modern sends a request of revision 2026-07-28.
func (s *testServer) modern(token, method, name, params string) *response {
	s.t.Helper()
	const meta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",
		"io.modelcontextprotocol/clientCapabilities":{"elicitation":{"form":{}}},"progressToken":"p"}`
	header := []string{"MCP-Protocol-Version", july2026, "Mcp-Method", method}
	if name != "" {
		header = append(header, "Mcp-Name", name)
	}
	return s.do("POST", s.url, token, `{"jsonrpc":"2.0","id":7,"method":"`+method+`","params":{`+params+meta+`}}`,
		header...)
}

// openSession initializes a session and returns its id.
func (s *testServer) openSession(token, revision string) (session string) {
	s.t.Helper()
	r := s.do("POST", s.url, token,
		`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"`+revision+
			`","capabilities":{},"clientInfo":{"name":"test","version":"1"}}}`)
	if session = r.header.Get("Mcp-Session-Id"); r.status != 200 || session == "" {
		s.t.Fatalf("initialize: got %d %s, want 200 and a session id", r.status, r.body)
	}
	return session
}

func (s *testServer) postInSession(token, session, body string) *response {
	s.t.Helper()
	return s.do("POST", s.url, token, body, "Mcp-Session-Id", session)
}

func toolCall(tool string) string {
	return `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"` + tool +
		`","_meta":{"progressToken":"p"}}}`
}

// Another principal gets 404 for a session, and the session id without a token is not enough.
//
// Requirement: SEC-09, SEC-10
func TestSessionsAreBoundToThePrincipal(t *testing.T) {
	for _, revision := range []string{march2025, june2025, november2025} {
		t.Run(revision, func(t *testing.T) {
			s := newTestServer(t, newScopedServer(), nil)
			session := s.openSession(s.token("ann", "read"), revision)
			r := s.postInSession(s.token("ann", "read write", claims{"jti": "renewed"}), session, toolCall("who"))
			if r.status != 200 || !strings.Contains(r.body, "ann for []") {
				t.Errorf("renewed token: got %d %s, want success", r.status, r.body)
			}
			for name, token := range map[string]string{
				"another subject": s.token("bob", "read write admin"),
				"another client":  s.token("ann", "read", claims{"client_id": "other"}),
			} {
				for _, method := range []string{"POST", "GET", "DELETE"} {
					body := ""
					if method == "POST" {
						body = toolCall("who")
					}
					if r := s.do(method, s.url, token, body, "Mcp-Session-Id", session); r.status != 404 {
						t.Errorf("%s, %s: got %d %s, want 404", name, method, r.status, r.body)
					}
				}
			}
			if r := s.do("POST", s.url, "", toolCall("who"), "Mcp-Session-Id", session); r.status/100 != 4 ||
				r.status == 404 {
				t.Errorf("session id with an empty token: got %d, want a 4xx status other than 404", r.status)
			}
			if r := s.postInSession(s.token("ann", ""), session, toolCall("who")); r.status != 200 {
				t.Errorf("owner after the refused requests: got %d %s, want 200", r.status, r.body)
			}
		})
	}
	t.Run(november2024, func(t *testing.T) {
		s := newTestServer(t, newScopedServer(), nil)
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
			t.Errorf("another subject: got %d %s, want 404", r.status, r.body)
		}
		if r := s.do("POST", s.url+endpoint, s.token("ann", ""), initialize); r.status != 202 {
			t.Errorf("renewed token: got %d %s, want success", r.status, r.body)
		}
	})
}

// Only the principal that received a requestState can use it, also with a renewed token.
//
// Requirement: SEC-11
func TestRequestStateIsBoundToThePrincipal(t *testing.T) {
	s := newTestServer(t, newScopedServer(), nil)
	asked := s.modern(s.token("ann", "read"), "tools/call", "ask", `"name":"ask",`)
	var answer struct {
		Result struct {
			InputRequests map[string]json.RawMessage `json:"inputRequests"`
			RequestState  string                     `json:"requestState"`
		} `json:"result"`
	}
	if err := json.Unmarshal([]byte(asked.body), &answer); err != nil || len(answer.Result.InputRequests) != 1 {
		t.Fatalf("got %d %s, want one input request", asked.status, asked.body)
	}
	retry := `"name":"ask",`
	for key := range answer.Result.InputRequests {
		retry += `"inputResponses":{"` + key + `":{"action":"accept","content":{"name":"Eve"}}},`
	}
	retry += `"requestState":"` + answer.Result.RequestState + `",`
	for name, token := range map[string]string{"another subject": s.token("bob", "read"),
		"another client": s.token("ann", "read", claims{"client_id": "other"})} {
		if r := s.modern(token, "tools/call", "ask", retry); !strings.Contains(r.body, `"error"`) ||
			strings.Contains(r.body, "Eve") {
			t.Errorf("%s: got %d %s, want an error", name, r.status, r.body)
		}
	}
	r := s.modern(s.token("ann", "read write", claims{"jti": "renewed"}), "tools/call", "ask", retry)
	if !strings.Contains(r.body, "it is Eve") {
		t.Errorf("renewed token: got %d %s, want success", r.status, r.body)
	}
}

// In every revision a call that lacks scopes gets a 403 whose challenge names all scopes that the
// call needs.
//
// Requirement: AUTHR-34
func TestChallengeListsAllScopesOfATool(t *testing.T) {
	base := &oauth.RequireOptions{Scopes: oauth.AllOf("read"),
		Implies: oauth.Hierarchy{"root": {"write", "files"}}.Implies}
	check := func(t *testing.T, s *testServer, send func(token, tool string) *response) {
		t.Helper()
		for tool, want := range map[string]string{"write": "read write files", "unlisted": "read admin",
			"late": "read delete"} {
			r := send(s.token("ann", "read write"), tool)
			got := r.challenge(t)
			if r.status != 403 || got["error"] != "insufficient_scope" || got["scope"] != want ||
				got["error_description"] == "" ||
				!strings.HasSuffix(got["resource_metadata"], "/.well-known/oauth-protected-resource/mcp") {
				t.Errorf("%s: got %d %v, want 403 insufficient_scope with scope %q", tool, r.status, got, want)
			}
			var body struct {
				ID    int `json:"id"`
				Error struct {
					Code int                    `json:"code"`
					Data struct{ Scope string } `json:"data"`
				} `json:"error"`
			}
			if err := json.Unmarshal([]byte(r.body), &body); err != nil || body.ID != 7 ||
				body.Error.Code != mcp.CodeInvalidRequest || body.Error.Data.Scope != want {
				t.Errorf("%s: got body %s, want an error with scope %q", tool, r.body, want)
			}
			if r := send(s.token("ann", want), tool); r.status != 200 || !strings.Contains(r.body, `"result"`) {
				t.Errorf("%s with the scopes of the challenge: got %d %s, want a result", tool, r.status, r.body)
			}
		}
		if r := send(s.token("ann", "read root"), "write"); r.status != 200 {
			t.Errorf("scope that implies those of the tool: got %d %s, want 200", r.status, r.body)
		}
	}
	t.Run(july2026, func(t *testing.T) {
		s := newTestServer(t, newScopedServer(), base)
		check(t, s, func(token, tool string) *response {
			return s.modern(token, "tools/call", tool, `"name":"`+tool+`",`)
		})
		for _, tc := range []struct{ method, name, params, want string }{
			{"prompts/get", "secret", `"name":"secret",`, "read write"},
			{"resources/read", "x:a", `"uri":"x:a",`, "read res:a"},
			{"subscriptions/listen", "", `"notifications":{"resourceSubscriptions":["x:a","x:b"]},`,
				"read res:a res:b"},
			{"completion/complete", "", `"ref":{"type":"ref/prompt","name":"p"},"argument":{"name":"a","value":""},`,
				"read write"},
		} {
			r := s.modern(s.token("ann", "read"), tc.method, tc.name, tc.params)
			if got := r.challenge(t); r.status != 403 || got["scope"] != tc.want {
				t.Errorf("%s: got %d %v, want 403 with scope %q", tc.method, r.status, got, tc.want)
			}
		}
	})
	for _, revision := range []string{march2025, june2025, november2025} {
		t.Run(revision, func(t *testing.T) {
			s := newTestServer(t, newScopedServer(), base)
			session := s.openSession(s.token("ann", "read"), revision)
			check(t, s, func(token, tool string) *response { return s.postInSession(token, session, toolCall(tool)) })
		})
	}
}

// After the response has begun, and in a batch, missing scopes are a JSON-RPC error without a
// challenge.
func TestScopesAfterResponseHasBegun(t *testing.T) {
	s := newTestServer(t, newScopedServer(), nil)
	session := s.openSession(s.token("ann", ""), march2025)
	for name, r := range map[string]*response{
		"2026, after progress": s.modern(s.token("ann", ""), "tools/call", "late",
			`"name":"late","arguments":{"first":true},`),
		"session, after progress": s.postInSession(s.token("ann", ""), session,
			`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"late","arguments":{"first":true},"_meta":{"progressToken":"p"}}}`),
		"a batch": s.postInSession(s.token("ann", ""), session,
			`[`+toolCall("write")+`,{"jsonrpc":"2.0","id":8,"method":"tools/call","params":{"name":"who"}}]`),
	} {
		if r.status != 200 || r.header.Get("WWW-Authenticate") != "" || !strings.Contains(r.body, "does not have all of these scopes") {
			t.Errorf("%s: got %d %v %s, want 200 and the error of the missing scope", name, r.status, r.header, r.body)
		}
	}
}

// Without HTTP there is no principal: calls that need scopes are refused.
func TestScopesWithoutHTTP(t *testing.T) {
	c, err := mcp.Connect(t.Context(), mcp.InMemory(newScopedServer()), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.CallTool(t.Context(), "write", nil); err == nil || !strings.Contains(err.Error(), "does not have all of these scopes") {
		t.Errorf("got error %v, want the error of the missing scope", err)
	}
}

// A handlerTransport calls a handler in place of a network, for tests in a synctest bubble.
type handlerTransport struct{ h http.Handler }

func (x handlerTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	in := httptest.NewRequestWithContext(r.Context(), r.Method, r.URL.String(), r.Body)
	in.Header = r.Header
	w := httptest.NewRecorder()
	x.h.ServeHTTP(w, in)
	return w.Result(), nil
}

// A stream ends with a result when its token ends, and its session continues with a new token.
func TestStreamEndsWithToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := mcphttp.NewHandler(newScopedServer(), &mcphttp.Options{Logger: discardLog})
		defer h.Shutdown(context.Background())
		s := &testServer{t: t, url: "http://127.0.0.1/mcp"}
		s.client = &http.Client{Transport: handlerTransport{oauth.Require(testVerifier(t), oauth.ResourceMetadata{
			Resource: s.url, AuthorizationServers: []string{issuerURL},
		}, &oauth.RequireOptions{MaxStream: time.Minute, Logger: discardLog})(h)}}
		token := func() string { return s.token("ann", "") }
		begin := time.Now()
		r := s.modern(token(), "subscriptions/listen", "", `"notifications":{"toolsListChanged":true},`)
		if r.status != 200 || !strings.Contains(r.body, "acknowledged") || !strings.Contains(r.body, `"result"`) ||
			strings.Contains(r.body, `"error"`) {
			t.Errorf("listen: got %d %s, want an acknowledgement and a result", r.status, r.body)
		}
		if got := time.Since(begin); got != time.Minute {
			t.Errorf("listen: the stream ended after %v, want 1m", got)
		}
		session := s.openSession(s.token("ann", ""), november2025)
		if r := s.do("GET", s.url, s.token("ann", ""), "", "Mcp-Session-Id", session); r.status != 200 {
			t.Errorf("GET: got %d %s, want 200", r.status, r.body)
		}
		if r := s.postInSession(s.token("ann", ""), session, toolCall("who")); r.status != 200 {
			t.Errorf("session after its stream has ended: got %d %s, want 200", r.status, r.body)
		}
	})
}

// As middleware of mcphttp.Serve, Require also serves the metadata.
func TestServeWithRequire(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &testServer{t, "http://" + l.Addr().String() + "/mcp", http.DefaultClient}
	protect := oauth.Require(testVerifier(t), oauth.ResourceMetadata{
		Resource: s.url, AuthorizationServers: []string{issuerURL},
	}, &oauth.RequireOptions{Logger: discardLog})
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error)
	go func() {
		served <- mcphttp.Serve(ctx, l, "/mcp",
			mcphttp.NewHandler(newScopedServer(), &mcphttp.Options{Logger: discardLog}), protect)
	}()
	refused := s.do("POST", s.url, "x", toolCall("who"))
	if r := s.do("GET", refused.challenge(t)["resource_metadata"], "x", ""); r.status != 200 ||
		!strings.Contains(r.body, s.url) {
		t.Errorf("metadata: got %d %s, want 200 and the resource %s", r.status, r.body, s.url)
	}
	if r := s.modern(s.token("ann", ""), "tools/call", "who", `"name":"who",`); r.status != 200 ||
		!strings.Contains(r.body, "ann for []") {
		t.Errorf("call: got %d %s, want 200 and no Authorization header in the handler", r.status, r.body)
	}
	http.DefaultClient.CloseIdleConnections()
	stop()
	if err := <-served; err != nil {
		t.Error(err)
	}
}
