package mcphttp_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcphttp"
)

// A toolServer is a server of 2026-07-28 with a changing list of tools. It refuses calls of the tool
// "x" whose header Mcp-Param-<header> does not equal the argument "region".
type toolServer struct {
	tools   string // elements of the array
	header  string
	methods []string // of the requests
	params  []string // Mcp-Param-* headers of the calls, as "name: value"
}

func (s *toolServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var m struct {
		ID     json.RawMessage
		Method string
		Params struct{ Arguments struct{ Region string } }
	}
	_ = json.NewDecoder(r.Body).Decode(&m)
	s.methods = append(s.methods, m.Method)
	result := `{"resultType":"complete","supportedVersions":["` + modern + `"],"capabilities":{"tools":{}}}`
	switch m.Method {
	case "tools/list":
		result = `{"resultType":"complete","tools":[` + s.tools + `]}`
	case "tools/call":
		result = `{"resultType":"complete","content":[]}`
		params := ""
		for name, values := range r.Header {
			if strings.HasPrefix(name, "Mcp-Param-") {
				params += name + ": " + values[0]
			}
		}
		s.params = append(s.params, params)
		if r.Header.Get("Mcp-Param-"+s.header) != m.Params.Arguments.Region {
			writeJSON(w, 400, fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32020,"message":"no"}}`, m.ID))
			return
		}
	}
	writeJSON(w, 200, fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID, result))
}

// toolWithHeader returns a tool whose property region has an x-mcp-header.
func toolWithHeader(name, header string) string {
	return fmt.Sprintf(`{"name":%q,"inputSchema":{"type":"object","properties":{"region":{"type":"string",`+
		`"x-mcp-header":%q}}}}`, name, header)
}

func connectToolServer(t *testing.T, s *toolServer, log io.Writer) *mcp.Client {
	c, err := mcp.Connect(t.Context(), newServerTransport(t, s.ServeHTTP, nil),
		&mcp.ClientOptions{Revision: modern, Logger: slog.New(slog.NewTextHandler(log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func listedNames(t *testing.T, c *mcp.Client) (names []string) {
	t.Helper()
	for tool, err := range c.Tools(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, tool.Name)
	}
	return names
}

// Requirement: HDR-31, HDR-37
func TestHeadersFollowTheNewestSchema(t *testing.T) {
	s := &toolServer{tools: toolWithHeader("x", "Region"), header: "Region"}
	c := connectToolServer(t, s, io.Discard)
	call := func() {
		t.Helper()
		s.methods, s.params = nil, nil
		if _, err := c.CallTool(t.Context(), "x", map[string]any{"region": "eu"}); err != nil {
			t.Errorf("call: %v", err)
		}
	}
	check := func(what string, methods, params []string) {
		t.Helper()
		if !slices.Equal(s.methods, methods) || !slices.Equal(s.params, params) {
			t.Errorf("%s: got %q with headers %q, want %q with %q", what, s.methods, s.params, methods, params)
		}
	}
	refreshed := []string{"tools/call", "tools/list", "tools/call"}
	call()
	check("no schema", refreshed, []string{"", "Mcp-Param-Region: eu"})
	call()
	check("listed schema", []string{"tools/call"}, []string{"Mcp-Param-Region: eu"})
	s.tools, s.header = toolWithHeader("x", "Zone"), "Zone"
	call()
	check("changed schema", refreshed, []string{"Mcp-Param-Region: eu", "Mcp-Param-Zone: eu"})
}

// Requirement: HDR-31
func TestMismatchIsRetriedOnce(t *testing.T) {
	s := &toolServer{tools: toolWithHeader("x", "Region"), header: "Other"}
	c := connectToolServer(t, s, io.Discard)
	s.methods = nil
	_, err := c.CallTool(t.Context(), "x", map[string]any{"region": "eu"})
	if err == nil || !slices.Equal(s.methods, []string{"tools/call", "tools/list", "tools/call"}) {
		t.Errorf("got %v after %q, want the error after one retry", err, s.methods)
	}
}

// The annotations violate HDR-13 to HDR-16 and HDR-18.
var toolsWithInvalidHeaders = map[string]string{
	"empty":   `"properties":{"a":{"type":"string","x-mcp-header":""}}`,
	"control": `"properties":{"a":{"type":"string","x-mcp-header":"A\n"}}`,
	"token":   `"properties":{"a":{"type":"string","x-mcp-header":"A B"}}`,
	"twice": `"properties":{"a":{"type":"string","x-mcp-header":"A"},` +
		`"b":{"type":"string","x-mcp-header":"a"}}`,
	"number": `"properties":{"a":{"type":"number","x-mcp-header":"A"}}`,
	"items":  `"properties":{"a":{"type":"array","items":{"type":"string","x-mcp-header":"A"}}}`,
}

// Requirement: HDR-19, HDR-20
func TestToolsWithInvalidHeadersAreDropped(t *testing.T) {
	for name, properties := range toolsWithInvalidHeaders {
		t.Run(name, func(t *testing.T) {
			tools := []string{toolWithHeader("first", "Region"),
				`{"name":"invalid","inputSchema":{"type":"object",` + properties + `}}`,
				toolWithHeader("last", "Region")}
			var log syncBuffer
			c := connectToolServer(t, &toolServer{tools: strings.Join(tools, ",")}, &log)
			if got := listedNames(t, c); !slices.Equal(got, []string{"first", "last"}) {
				t.Errorf("got tools %q, want first and last", got)
			}
			if got := log.String(); strings.Count(got, "level=WARN") != 1 || !strings.Contains(got, "tool=invalid") ||
				!strings.Contains(got, "reason=") {
				t.Errorf("logged %q, want one warning with the tool and the reason", got)
			}
		})
	}
}

// A transport without headers ignores the annotations, valid or not.
//
// Requirement: HDR-21
func TestOtherTransportsIgnoreTheAnnotations(t *testing.T) {
	s := &toolServer{}
	for name, properties := range toolsWithInvalidHeaders {
		s.tools += `,{"name":"` + name + `","inputSchema":{"type":"object",` + properties + `}}`
	}
	s.tools = strings.TrimPrefix(s.tools, ",")
	list := mcp.HandlerFunc(func(_ context.Context, req *mcp.Request) (mcp.Result, error) {
		if req.Method == "tools/list" {
			return mcp.RawResult(`{"resultType":"complete","tools":[` + s.tools + `]}`), nil
		}
		return mcp.RawResult(`{"resultType":"complete","supportedVersions":["` + modern +
			`"],"capabilities":{"tools":{}}}`), nil
	})
	c, err := mcp.Connect(t.Context(), mcp.InMemory(list), &mcp.ClientOptions{Revision: modern, Logger: discardLogger})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if got := listedNames(t, c); len(got) != len(toolsWithInvalidHeaders) {
		t.Errorf("got tools %q, want all of %d", got, len(toolsWithInvalidHeaders))
	}
}

// newMirrorServer returns a server whose tool has a property with an x-mcp-header.
func newMirrorServer() *mcp.Server {
	s := mcp.NewServer("test", "1", &mcp.ServerOptions{Logger: discardLogger})
	mcp.AddTool(s, &mcp.Tool{Name: "x", InputSchema: json.RawMessage(
		`{"type":"object","properties":{"region":{"type":"string","x-mcp-header":"Region"}}}`)},
		func(context.Context, json.RawMessage) (string, error) { return "done", nil })
	return s
}

// Requirement: HDR-11, HDR-12
func TestToolWithAHeaderIsListedAndCalled(t *testing.T) {
	f := start(t, newMirrorServer(), nil)
	if got := f.modern("tools/list", ""); !strings.Contains(got.body, `"x-mcp-header":"Region"`) {
		t.Errorf("tools/list: got %s, want the annotation", got.body)
	}
	posts := &postRecorder{next: f.client.Transport}
	tr := f.transport(&mcphttp.TransportOptions{Client: &http.Client{Transport: posts}})
	c, err := mcp.Connect(t.Context(), tr, &mcp.ClientOptions{Revision: modern, Logger: discardLogger})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	listedNames(t, c)
	got, err := mcp.CallTool[string](t.Context(), c, "x", map[string]any{"region": "eu"})
	header := posts.headers[len(posts.headers)-1].Get("Mcp-Param-Region")
	if err != nil || got != "done" || header != "eu" {
		t.Errorf("call: got %q, %v with Mcp-Param-Region %q; want eu", got, err, header)
	}
}

// Without a middleware no header makes a principal, and headers that differ from the body are refused.
//
// Requirement: HDR-39
func TestHeadersAloneDoNotAuthorize(t *testing.T) {
	core := newTestCore()
	h := mcphttp.NewHandler(core, &mcphttp.Options{Logger: discardLogger})
	f := &fixture{t: t, host: "localhost:8765"}
	for _, test := range []struct {
		tool   string // in the body
		status int
	}{{"inspect", 200}, {"echo", 400}} {
		body, _ := modernCall("tools/call", `"name":"`+test.tool+`"`)
		_, headers := modernCall("tools/call", `"name":"inspect"`, "Authorization: Bearer x", "Mcp-Param-User: admin")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, f.request(t.Context(), http.MethodPost, body, headers...))
		if w.Code != test.status {
			t.Errorf("%s: got %d %s, want %d", test.tool, w.Code, w.Body, test.status)
		}
	}
	if req := <-core.request; req.Principal != nil {
		t.Errorf("got principal %v, want none", req.Principal)
	}
}
