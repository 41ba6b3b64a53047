package gateway_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/gateway"
	"github.com/patchbay-mcp/patchbay/host"
	"github.com/patchbay-mcp/patchbay/host/config"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// Requests that the document does not have, or that are invalid, are refused with stable codes.
func TestAdminRefusesInvalidRequests(t *testing.T) {
	mcptest.NoLeaks(t)
	a := newAdmin(t, twoServers, func(_ *host.Options, o *gateway.AdminOptions) { o.Events = nil })
	const large = 4<<20 + 1
	for _, c := range []struct {
		method, path, body string
		status             int
		code               string
		header             []string
	}{
		{"GET", "/nothing", "", 404, "unknown_path", nil},
		{"GET", "/servers/three", "", 404, "unknown_server", nil},
		{"GET", "/servers/%2e%2e%2fstatus", "", 404, "unknown_server", nil},
		{"GET", "/servers/..%2f..%2fetc%2fpasswd/stderr", "", 404, "unknown_server", nil},
		{"GET", "/servers/one%00", "", 404, "unknown_server", nil},
		{"GET", "/servers/../status", "", 404, "unknown_path", nil},
		{"GET", "//status", "", 404, "unknown_path", nil},
		{"GET", "/./status", "", 404, "unknown_path", nil},
		{"GET", "/servers/one:restart", "", 404, "unknown_server", nil},
		{"POST", "/servers/one:delete", "", 404, "unknown_path", nil},
		{"POST", "/servers/one", "", 405, "method_not_allowed", nil},
		{"POST", "/servers/:stop", "", 404, "unknown_server", nil},
		{"DELETE", "/status", "", 405, "method_not_allowed", nil},
		{"HEAD", "/nothing", "", 404, "", nil},
		{"TRACE", "/status", "", 405, "method_not_allowed", nil},
		{"POST", "/status", "", 405, "method_not_allowed", nil},
		{"POST", "/status", "", 405, "method_not_allowed", []string{"X-HTTP-Method-Override", "GET"}},
		{"GET", "/servers/one?_method=POST", "", 400, "invalid_parameter", nil},
		{"GET", "/status?x=1", "", 400, "invalid_parameter", nil},
		{"GET", "/status?%zz", "", 400, "invalid_parameter", nil},
		{"GET", "/pins?limit=0", "", 400, "invalid_parameter", nil},
		{"GET", "/pins?limit=1001", "", 400, "invalid_parameter", nil},
		{"GET", "/pins?limit=1&limit=2", "", 400, "invalid_parameter", nil},
		{"GET", "/pins?cursor=-1", "", 400, "invalid_parameter", nil},
		{"GET", "/pins?limit=1e99", "", 400, "invalid_parameter", nil},
		{"GET", "/pins?status=x", "", 400, "invalid_parameter", nil},
		{"GET", "/pins?server=" + strings.Repeat("x", 9<<10), "", 400, "invalid_parameter", nil},
		{"GET", "/catalogue?kind=x", "", 400, "invalid_parameter", nil},
		{"GET", "/catalogue?cursor=x", "", 400, "invalid_parameter", nil},
		{"GET", "/catalogue?server=three", "", 404, "unknown_route", nil},
		{"GET", "/audit", "", 404, "no_audit_log", nil},
		{"GET", "/config", "", 501, "unsupported", nil},
		{"GET", "/servers/one/config", "", 501, "unsupported", nil},
		{"GET", "/servers/x/config", "", 404, "unknown_server", nil},
		{"POST", "/stop", "", 501, "unsupported", nil},
		{"POST", "/reload", "", 501, "unsupported", nil},
		{"PUT", "/config", `{"text":"","version":""}`, 501, "unsupported", nil},
		{"PUT", "/config", `{"text":""}`, 400, "invalid_body", nil},
		{"POST", "/pending/x:decide", `{"answer":"once"}`, 404, "not_pending", nil},
		{"POST", "/pending/x:decide", `{"answer":"no"}`, 400, "invalid_body", nil},
		{"POST", "/pending/x:decide", `{"answer":"once","answer":"deny"}`, 400, "invalid_body", nil},
		{"POST", "/pending/x:decide", `{"answer":"once","x":1}`, 400, "invalid_body", nil},
		{"POST", "/pending/x:decide", `{"answer":"once"} {}`, 400, "invalid_body", nil},
		{"POST", "/pending/x:decide", `{`, 400, "invalid_body", nil},
		{"POST", "/pending/x:decide", `answer=once`, 415, "unsupported_media_type",
			[]string{"Content-Type", "application/x-www-form-urlencoded"}},
		{"POST", "/pending/x:decide", strings.Repeat("[", large), 413, "too_large", nil},
		{"POST", "/pending/x:decide", strings.Repeat("[", 1<<20), 400, "invalid_body", nil},
		{"POST", "/grants/x:revoke", "", 404, "unknown_grant", nil},
		{"POST", "/pins:approve", `{"pins":[]}`, 400, "invalid_body", nil},
		{"POST", "/pins:approve", `{"pins":[{"identity":"x","kind":"tool","name":"y","digest":"z"}]}`, 404, "unknown_pin",
			nil},
		{"GET", "/attach", "", 426, "upgrade_required", nil},
		{"GET", "/attach?workspace=relative", "", 400, "invalid_parameter", []string{"Upgrade", "mcp-stdio"}},
		{"GET", "/attach?server=three", "", 404, "unknown_route", []string{"Upgrade", "mcp-stdio"}},
		{"GET", "/events?types=x", "", 400, "invalid_parameter", nil},
		{"GET", "/status", "", 403, "invalid_host", []string{"Host", "attacker.example"}},
		{"GET", "/status", "", 403, "invalid_host", []string{"Host", "localhost.attacker.example"}},
		{"GET", "/status", "", 403, "invalid_host", []string{"Host", "127.0.0.1.nip.io"}},
		{"GET", "/status", "", 403, "invalid_origin", []string{"Origin", "http://localhost"}},
		{"GET", "/status", "", 403, "invalid_origin", []string{"Origin", "null"}},
		{"GET", "/status", "", 403, "invalid_origin", []string{"Sec-Fetch-Site", "none"}},
	} {
		if c.code == "" {
			req, err := http.NewRequestWithContext(t.Context(), c.method, "http://localhost/admin/v1"+c.path, nil)
			if err != nil {
				t.Fatal(err)
			}
			res, err := a.client.Do(req)
			if err != nil || res.StatusCode != c.status {
				t.Errorf("%s %s: %v, %v", c.method, c.path, res, err)
			}
			continue
		}
		a.refused(c.method, c.path, c.body, c.status, c.code, c.header...)
	}
	for _, name := range []string{"localhost:1", "LOCALHOST", "127.0.0.1", "[::1]:80", "patchbay"} {
		if status, text := a.send("GET", "/status", "", "Host", name); status != http.StatusOK {
			t.Errorf("Host %q: status %d: %s", name, status, text)
		}
	}
}

// The handler serves Unix sockets only: a listener of another kind cannot expose it by mistake.
func TestAdminServesSocketsOnly(t *testing.T) {
	a := newAdmin(t, twoServers, nil)
	server := httptest.NewServer(a.gateway.Admin())
	defer server.Close()
	res, err := http.Get(server.URL + "/admin/v1/status")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusForbidden {
		t.Errorf("status %d over TCP, want 403", res.StatusCode)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := a.gateway.ServeAdmin(t.Context(), l); err == nil {
		t.Error("ServeAdmin of a TCP listener: no error")
	}
	if _, err := l.Accept(); err == nil {
		t.Error("the listener was not closed")
	}
}

// Requests that arrive in parts, end early, or are no HTTP do not keep others from being served.
func TestAdminServesDespiteHostileClients(t *testing.T) {
	mcptest.NoLeaks(t)
	a := newAdmin(t, twoServers, nil)
	var all []net.Conn
	for n := range 200 {
		conn, err := net.Dial("unix", a.socket)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		all = append(all, conn)
		text := []string{"GET /admin/v1/stat", "\x00\xff\x16\x03\x01", "GET /admin/v1/status HTTP/1.1\r\nHost: localhost\r\n" +
			"X: " + strings.Repeat("x", 100<<10), "POST /admin/v1/pins:approve HTTP/1.1\r\nHost: localhost\r\n" +
			"Content-Type: application/json\r\nContent-Length: 1000\r\n\r\n{", `{"patchbay":1,"cwd":"/"}` + "\n"}[n%5]
		_, _ = conn.Write([]byte(text))
	}
	var status struct{ PID int }
	for range 20 {
		a.get("GET", "/status", "", &status)
	}
	for _, conn := range all {
		_ = conn.Close()
	}
}

// A request whose body does not arrive is refused before long, and 64 of them are all that are
// waited for.
func TestAdminBoundsRequestsInProgress(t *testing.T) {
	mcptest.NoLeaks(t)
	a := newAdmin(t, twoServers, nil)
	refuses := func() bool {
		t.Helper()
		res, err := a.client.Get("http://localhost/admin/v1/status")
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		return res.StatusCode == http.StatusServiceUnavailable
	}
	busy := false
	for n := 0; n < 200 || !busy; n++ {
		conn, err := net.Dial("unix", a.socket)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, "POST /admin/v1/pins:approve HTTP/1.1\r\nHost: localhost\r\n"+
			"Content-Type: application/json\r\nContent-Length: 1000\r\n\r\n{")
		if n < 64 || busy {
			continue
		}
		// On a slow machine, the first ones may have ended before the server reads the last ones.
		if busy = refuses(); n == 2000 {
			t.Fatal("others are not refused while 64 requests wait for their bodies")
		}
	}
	for begun := time.Now(); refuses(); { // until the time for the bodies is over
		if time.Since(begun) > time.Minute {
			t.Fatal("requests without a body were waited for during a minute")
		}
	}
}

// Every operation of the document has a handler, and every handler is in the document, which names
// each parameter and the schemas of requests and responses.
func TestDocumentHasEveryRoute(t *testing.T) {
	a := newAdmin(t, twoServers, nil)
	d := a.document()
	var all []string
	for path, operations := range d.Paths {
		for method, o := range operations {
			all = append(all, strings.ToUpper(method)+" "+path)
			res, event := o.Responses["200"], o.Responses["200"].Content["text/event-stream"]
			if _, upgrades := o.Responses["101"]; !upgrades && res.Content["application/json"].Schema == nil &&
				event.Schema == nil {
				t.Errorf("%s %s has no schema of its response", method, path)
			}
		}
	}
	slices.Sort(all)
	if routes := gateway.AdminRoutes(a.gateway); !slices.Equal(all, routes) {
		t.Errorf("document:\n%s\nroutes:\n%s", strings.Join(all, "\n"), strings.Join(routes, "\n"))
	}
	for _, want := range []string{"GET /status", "GET /servers", "GET /servers/{name}", "GET /servers/{name}/stderr",
		"GET /catalogue", "GET /pins", "GET /grants", "GET /pending", "GET /audit", "GET /callers", "GET /config",
		"POST /servers/{name}:restart", "POST /servers/{name}:stop", "POST /pins:approve", "POST /pending/{name}:decide",
		"POST /grants/{name}:revoke", "POST /reload", "POST /policy:explain", "PUT /config", "GET /events"} {
		if !slices.Contains(all, want) {
			t.Errorf("the document has no %s", want)
		}
	}
}

// A secret of the configuration that a server repeats is masked in every response and event.
func TestAdminMasksSecrets(t *testing.T) {
	mcptest.NoLeaks(t)
	const secret = `s3cret"9\x` // with characters that JSON escapes
	a := newAdmin(t, `{"mcpServers": {"one": {"command": "one", "env": {"API_KEY": "${K}"}}}}`,
		func(o *host.Options, _ *gateway.AdminOptions) {
			o.Lookup = func(string) (string, bool) { return secret, true }
			o.Dial = func(_ context.Context, s *config.Server) (mcp.Transport, error) {
				if s.Env["API_KEY"] != secret {
					t.Errorf("env %v", s.Env)
				}
				server := mcp.NewServer("one", "1", nil)
				mcp.AddTool(server, &mcp.Tool{Name: "leak", Description: "knows " + secret},
					func(context.Context, struct{}) (string, error) { return "", fmt.Errorf("failed with %s", secret) })
				return mcp.InMemory(server), nil
			}
		})
	a.call("one__leak")
	for _, path := range []string{"/catalogue", "/pins?diff=true", "/servers", "/servers/one", "/callers", "/status"} {
		_, text := a.send("GET", path, "")
		if strings.Contains(string(text), "s3cret") {
			t.Errorf("%s has the secret: %s", path, text)
		}
		if path == "/catalogue" && !strings.Contains(string(text), "knows [secret]") {
			t.Errorf("%s: %s", path, text)
		}
	}
	a.host.Upstreams()[0].Stop()
	s := a.events("?after=0", "")
	for {
		e := s.next()
		if text := fmt.Sprintf("%+v %s", e, e.data.Detail); strings.Contains(text, "s3cret") {
			t.Errorf("event %s", text)
		}
		if e.data.State == "stopped" || e.kind == "audit" {
			return
		}
	}
}

// A client that attaches uses the servers of the gateway, in every revision, until the gateway
// ends.
func TestAttachedClientsUseTheGateway(t *testing.T) {
	mcptest.NoLeaks(t)
	a := newAdmin(t, twoServers, nil)
	attach := func(query string) (net.Conn, *bufio.Reader) {
		conn, err := net.Dial("unix", a.socket)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		_, _ = io.WriteString(conn, "GET /admin/v1/attach?"+query+" HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\n"+
			"Upgrade: mcp-stdio\r\n\r\n")
		reader := bufio.NewReader(conn)
		res, err := http.ReadResponse(reader, nil)
		if err != nil || res.StatusCode != http.StatusSwitchingProtocols {
			t.Fatalf("%+v, %v", res, err)
		}
		return conn, reader
	}
	var last *mcp.Client
	for _, revision := range []string{"2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"} {
		conn, reader := attach("server=two&workspace=" + url.QueryEscape(t.TempDir()))
		stream := mcp.NewStreamConn(struct {
			io.Reader
			io.Closer
		}{reader, conn}, conn, nil)
		c, err := mcp.Connect(t.Context(), mcp.NewConnTransport(stream), &mcp.ClientOptions{Revision: revision})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if res, err := c.CallTool(t.Context(), "whoami", nil); err != nil || res.Text() != "two" {
			t.Errorf("%s: %+v, %v", revision, res, err)
		}
		last = c
	}
	var status struct{ Attached int }
	if a.get("GET", "/status", "", &status); status.Attached != 5 {
		t.Errorf("%d clients are attached, want 5", status.Attached)
	}
	if err := a.gateway.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := last.CallTool(t.Context(), "whoami", nil); err == nil {
		t.Error("a call after the end of the gateway has succeeded")
	}
}

// Definitions are approved by their digests: one that has changed since it was shown is not.
func TestAdminApprovesPinsByDigest(t *testing.T) {
	mcptest.NoLeaks(t)
	description := "first"
	a := newAdmin(t, `{"mcpServers": {"one": {"command": "one"}}, "patchbay": {"servers": {"one": {"trust": "review"}}}}`,
		func(o *host.Options, _ *gateway.AdminOptions) {
			o.Pins = true
			o.Dial = func(context.Context, *config.Server) (mcp.Transport, error) {
				server := mcp.NewServer("one", "1", nil)
				mcp.AddTool(server, &mcp.Tool{Name: "tool", Description: description},
					func(context.Context, struct{}) (string, error) { return "", nil })
				return mcp.InMemory(server), nil
			}
		})
	var page struct {
		Pins []struct {
			Identity, Kind, Name, Status string
			Pending                      []struct{ Digest string }
			Diff                         []string
		}
	}
	list := func() (choice string) {
		a.get("GET", "/catalogue", "", &struct{}{})
		a.get("GET", "/pins?diff=true&server=one", "", &page)
		for _, p := range page.Pins {
			if p.Name == "tool" && len(p.Pending) > 0 {
				text, err := json.Marshal(map[string]any{"pins": []any{map[string]string{"identity": p.Identity,
					"kind": p.Kind, "name": p.Name, "digest": p.Pending[0].Digest}}})
				if err != nil || len(p.Diff) == 0 {
					t.Errorf("diff %q, %v", p.Diff, err)
				}
				return string(text)
			}
		}
		t.Fatalf("no pin of the tool waits: %+v", page)
		return ""
	}
	first := list()
	a.get("POST", "/pins:approve", first, &struct{}{})
	a.refused("POST", "/pins:approve", first, 409, "pin_changed")
	description = "second"
	a.get("POST", "/servers/one:restart", "", &struct{}{})
	second := list()
	a.refused("POST", "/pins:approve", first, 409, "pin_changed")
	a.get("POST", "/pins:approve", second, &struct{}{})
}

// FuzzAdminRequest sends requests of any path, query and body: each has a response of the document.
func FuzzAdminRequest(f *testing.F) {
	f.Add("GET", "/servers/one", "limit=1", "")
	f.Add("POST", "/servers/one:restart", "", "")
	f.Add("POST", "/pending/a:b:decide", "", `{"answer":"once"}`)
	f.Add("POST", "/policy:explain", "", `{"on":"call","server":"one","target":"x","args":{"a":[1]}}`)
	f.Add("PUT", "/config", "", `{"text":"{}","version":"1","dryRun":true}`)
	f.Add("GET", "/pins", "cursor=5&limit=9&diff=true&server=%41", "")
	f.Fuzz(func(t *testing.T, method, path, query, body string) {
		if strings.Contains(path, "restart") || strings.Contains(path, "attach") || strings.Contains(path, "events") {
			return // they wait
		}
		u := &url.URL{Scheme: "http", Host: "localhost", Path: "/admin/v1" + path, RawQuery: query}
		req, err := http.NewRequest(method, u.String(), strings.NewReader(body))
		if err != nil {
			return
		}
		a := newAdmin(t, twoServers, nil)
		req.Header.Set("Content-Type", "application/json")
		res, err := a.client.Do(req)
		if err != nil {
			return // net/http does not send it
		}
		defer res.Body.Close()
		text, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		if res.StatusCode >= 500 && res.StatusCode != http.StatusNotImplemented {
			t.Fatalf("%s %s: status %d: %s", method, u, res.StatusCode, text)
		}
		if kind := res.Header.Get("Content-Type"); strings.Contains(kind, "json") && len(text) > 0 && !json.Valid(text) {
			t.Fatalf("%s %s: invalid JSON %q", method, u, text)
		}
	})
}
