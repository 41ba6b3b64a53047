package legacy_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/patchbay-mcp/patchbay/internal/legacy"
	"github.com/patchbay-mcp/patchbay/internal/wire"
	"github.com/patchbay-mcp/patchbay/jsonrpc"
)

const (
	everything = `{"tools":{"listChanged":true},"prompts":{"listChanged":true},"resources":{"subscribe":true,"listChanged":true},"completions":{},"logging":{}}`
	allOfUs    = `{"roots":{},"sampling":{"tools":{},"context":{}},"elicitation":{"form":{},"url":{}}}`
	someone    = `{"name":"c","version":"1"}`
)

// A script is a server of the session era that is told what to do, and the link to it. It keeps what it is sent, one line
// each, requests without their ids.
type script struct {
	version      string // that it chooses; that of the client when empty
	capabilities string // that it declares; everything when empty
	serve        func(ctx context.Context, req *jsonrpc.Message) *jsonrpc.Message
	send         func(ctx context.Context, m *jsonrpc.Message) error // what it does about notifications and responses

	ids  atomic.Int64
	done chan struct{}

	mu     sync.Mutex // guards the fields below
	lines  []string
	closed int
}

func (s *script) RoundTrip(ctx context.Context, req *jsonrpc.Message) (*jsonrpc.Message, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	req.ID = jsonrpc.IntID(s.ids.Add(1))
	s.note(jsonrpc.NewNotification(req.Method, req.Params))
	response := s.answer(ctx, req)
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return message(string(jsonrpc.Append(nil, response))), nil
}

func (s *script) answer(ctx context.Context, req *jsonrpc.Message) *jsonrpc.Message {
	if s.serve != nil {
		if response := s.serve(ctx, req); response != nil {
			return response
		}
	}
	if req.Method != wire.MethodInitialize {
		return jsonrpc.NewResponse(req.ID, nil)
	}
	version := s.version
	if version == "" {
		version = strings.Trim(member(req.Params, "protocolVersion"), `"`)
	}
	capabilities := s.capabilities
	if capabilities == "" {
		capabilities = everything
	}
	return jsonrpc.NewResponse(req.ID, json.RawMessage(`{"protocolVersion":"`+version+`","capabilities":`+capabilities+
		`,"serverInfo":{"name":"s","version":"1"},"instructions":"Be kind."}`))
}

func (s *script) Send(ctx context.Context, m *jsonrpc.Message) error {
	if s.send != nil {
		if err := s.send(ctx, m); err != nil {
			return err
		}
	}
	s.note(m)
	return nil
}

func (s *script) Done() <-chan struct{} { return s.done }

func (s *script) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed++; s.closed == 1 {
		close(s.done)
	}
	return nil
}

func (s *script) note(m *jsonrpc.Message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lines = append(s.lines, strings.TrimSuffix(strings.TrimPrefix(string(jsonrpc.Append(nil, m)), `{"jsonrpc":"2.0",`), `}`))
}

// take returns what was sent since the last time.
func (s *script) take() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	lines := s.lines
	s.lines = nil
	return lines
}

func (s *script) wants(t *testing.T, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, s.take()); diff != "" {
		t.Errorf("the server got (-want +got):\n%s", diff)
	}
}

func clientConfig(version string) legacy.ClientConfig {
	rev, _ := wire.ParseRevision(version)
	return legacy.ClientConfig{
		Revision: rev, Logger: slog.New(slog.DiscardHandler),
		Info: json.RawMessage(someone), Capabilities: json.RawMessage(allOfUs),
		Answer: func(context.Context, string, json.RawMessage) (json.RawMessage, *jsonrpc.Error) {
			return nil, &jsonrpc.Error{Code: -1, Message: "nobody at home"}
		},
	}
}

// open opens a session with a script, and closes it when the test ends.
func open(t *testing.T, cfg legacy.ClientConfig, s *script) *legacy.Client {
	t.Helper()
	c := legacy.NewClient(cfg)
	t.Cleanup(func() { c.Close() })
	s.done = make(chan struct{})
	if _, err := c.Open(t.Context(), s); err != nil {
		t.Fatalf("Open: %v", err)
	}
	s.take()
	return c
}

// modern returns params the envelope of a client, with further members of `_meta`.
func modern(params, meta string) json.RawMessage {
	if params != "" {
		params += ","
	}
	if meta != "" {
		meta = "," + meta
	}
	return json.RawMessage(`{` + params + `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",` +
		`"io.modelcontextprotocol/clientInfo":{"name":"c","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}` + meta + `}}`)
}

// sessionVersions are those that have sessions.
var sessionVersions = []string{"2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"}

func TestLIFE02_LIFE04_OpenIsTheHandshakeOfEachRevision(t *testing.T) {
	for version, want := range map[string]string{
		"2024-11-05": `{"roots":{"listChanged":true},"sampling":{}}`,
		"2025-03-26": `{"roots":{"listChanged":true},"sampling":{}}`,
		"2025-06-18": `{"roots":{"listChanged":true},"sampling":{},"elicitation":{}}`,
		"2025-11-25": `{"roots":{"listChanged":true},"sampling":{"tools":{},"context":{}},"elicitation":{"form":{},"url":{}}}`,
		"":           `{"roots":{"listChanged":true},"sampling":{"tools":{},"context":{}},"elicitation":{"form":{},"url":{}}}`,
	} {
		t.Run(version, func(t *testing.T) {
			cfg := clientConfig(version)
			cfg.Info = json.RawMessage(`{"name":"c","title":"C","version":"1"}`)
			s := &script{done: make(chan struct{})}
			c := legacy.NewClient(cfg)
			defer c.Close()
			if c.Revision() != 0 {
				t.Error("there is a revision before Open")
			}
			got, err := c.Open(t.Context(), s)
			if err != nil {
				t.Fatal(err)
			}
			if version == "" {
				version = "2025-11-25" // LIFE-07
			}
			info := someone
			if version >= "2025-06-18" {
				info = `{"name":"c","title":"C","version":"1"}`
			}
			s.wants(t, `"method":"initialize","params":{"protocolVersion":"`+version+`","capabilities":`+want+`,"clientInfo":`+info+`}`,
				`"method":"notifications/initialized"`)
			discover := `{"resultType":"complete","ttlMs":0,"cacheScope":"private","supportedVersions":["` + version + `"],"capabilities":` + everything +
				`,"instructions":"Be kind.","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"s","version":"1"}}}`
			if diff := cmp.Diff(discover, string(got)); diff != "" {
				t.Errorf("discovered (-want +got):\n%s", diff)
			}
			if c.Revision().String() != version {
				t.Errorf("revision is %s, want %s", c.Revision(), version)
			}
			again, err := c.RoundTrip(t.Context(), "server/discover", modern("", ""), nil)
			if string(again) != discover || err != nil {
				t.Errorf("server/discover: %s, %v", again, err)
			}
			s.wants(t)
		})
	}
}

func TestClientCapabilitiesAreThoseOfTheRevision(t *testing.T) {
	for _, tc := range []struct{ version, capabilities, want string }{
		{"2025-06-18", `{"elicitation":{"url":{}}}`, `{}`}, // it knows forms alone
		{"2025-06-18", `{"elicitation":{}}`, `{"elicitation":{}}`},
		{"2025-11-25", `{"elicitation":{"url":{}}}`, `{"elicitation":{"url":{}}}`},
		{"2025-11-25", `{"extensions":{"io.modelcontextprotocol/tasks":{},"io.modelcontextprotocol/ui":{"a":[1]}},"tasks":{}}`,
			`{"extensions":{"io.modelcontextprotocol/ui":{"a":[1]}}}`}, // T-46
		{"2024-11-05", `{"extensions":{"io.modelcontextprotocol/tasks":{}}}`, `{}`},
		{"2024-11-05", `{"experimental":{"x":{}},"com.example":{"y":1},"sampling":null,"roots":true}`, `{"experimental":{"x":{}},"com.example":{"y":1}}`},
		{"2024-11-05", ``, `{}`},
	} {
		cfg := clientConfig(tc.version)
		cfg.Capabilities, cfg.Info = json.RawMessage(tc.capabilities), nil
		s := &script{done: make(chan struct{})}
		c := legacy.NewClient(cfg)
		if _, err := c.Open(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		want := `"method":"initialize","params":{"protocolVersion":"` + tc.version + `","capabilities":` + tc.want + `,"clientInfo":{"name":"unnamed","version":"0"}}`
		if got := s.take()[0]; got != want {
			t.Errorf("%s: %s\ngot  %s\nwant %s", tc.version, tc.capabilities, got, want)
		}
		c.Close()
	}
}

func TestLIFE10_OtherRevisionsAreTakenOrRefused(t *testing.T) {
	for _, tc := range []struct{ offered, chosen, pinned, wantError string }{
		{"2025-11-25", "2024-11-05", "", ""},
		{"2025-03-26", "2025-11-25", "", ""}, // unusual, but a session revision
		{"2025-11-25", "2025-06-18", "pinned", "want 2025-11-25"},
		{"2025-06-18", "2025-06-18", "pinned", ""},
		{"2025-11-25", "2026-07-28", "", "has no sessions"},
		{"2025-11-25", "1999-01-01", "", `"1999-01-01" chosen by the server: want one of 2025-11-25, 2025-06-18, 2025-03-26, 2024-11-05`},
		{"2025-11-25", strings.Repeat("x", 1000), "", strings.Repeat("x", 64) + "…"},
		{"2026-07-28", "2025-11-25", "", "2026-07-28 has no sessions"},
	} {
		cfg := clientConfig(tc.offered)
		cfg.Pinned = tc.pinned != ""
		s := &script{version: tc.chosen, done: make(chan struct{})}
		c := legacy.NewClient(cfg)
		_, err := c.Open(t.Context(), s)
		switch {
		case tc.wantError == "" && (err != nil || c.Revision().String() != tc.chosen):
			t.Errorf("%+v: revision %s, error %v", tc, c.Revision(), err)
		case tc.wantError != "" && (err == nil || !strings.Contains(err.Error(), tc.wantError)):
			t.Errorf("%+v: error %v", tc, err)
		case tc.wantError != "" && s.closed == 0:
			t.Errorf("%+v: the link is open", tc)
		case tc.wantError != "" && slices.ContainsFunc(s.take(), func(l string) bool { return strings.Contains(l, "initialized") }):
			t.Errorf("%+v: the server was told that the session is open", tc)
		}
		c.Close()
	}
}

func TestOpenFailsWithTheServer(t *testing.T) {
	gone := errors.New("gone")
	for _, tc := range []struct {
		name   string
		script *script
		want   func(error) bool
	}{
		{"error", &script{serve: fails(-32602, "Unsupported protocol version", "")}, func(err error) bool {
			var e *jsonrpc.Error
			return errors.As(err, &e) && e.Remote() && e.Code == -32602
		}},
		{"no object", &script{serve: gives(`7`)}, func(err error) bool { return errors.Is(err, legacy.ErrMalformed) }},
		{"no version", &script{serve: gives(`{}`)}, func(err error) bool { return errors.Is(err, legacy.ErrMalformed) }},
		{"odd version", &script{serve: gives(`{"protocolVersion":20250618}`)}, func(err error) bool { return errors.Is(err, legacy.ErrMalformed) }},
		{"deaf", &script{send: func(context.Context, *jsonrpc.Message) error { return gone }}, func(err error) bool { return errors.Is(err, gone) }},
	} {
		c := legacy.NewClient(clientConfig("2025-06-18"))
		tc.script.done = make(chan struct{})
		_, err := c.Open(t.Context(), tc.script)
		if !tc.want(err) || tc.script.closed == 0 {
			t.Errorf("%s: error %v, closed %d times", tc.name, err, tc.script.closed)
		}
	}
}

// gives is a server that returns one result for every request; fails is one that returns an error.
func gives(result string) func(context.Context, *jsonrpc.Message) *jsonrpc.Message {
	return func(_ context.Context, req *jsonrpc.Message) *jsonrpc.Message {
		return jsonrpc.NewResponse(req.ID, json.RawMessage(result))
	}
}

func fails(code int, text, data string) func(context.Context, *jsonrpc.Message) *jsonrpc.Message {
	return func(_ context.Context, req *jsonrpc.Message) *jsonrpc.Message {
		e := &jsonrpc.Error{Code: code, Message: text}
		if data != "" {
			e.Data = json.RawMessage(data)
		}
		return jsonrpc.NewErrorResponse(req.ID, e)
	}
}

// after has the server do something from the session's first request on.
func after(serve func(context.Context, *jsonrpc.Message) *jsonrpc.Message) func(context.Context, *jsonrpc.Message) *jsonrpc.Message {
	return func(ctx context.Context, req *jsonrpc.Message) *jsonrpc.Message {
		if req.Method == wire.MethodInitialize {
			return nil
		}
		return serve(ctx, req)
	}
}

func TestAClientIsOpenedOnce(t *testing.T) {
	c := legacy.NewClient(clientConfig(""))
	for name, f := range map[string]func() error{
		"RoundTrip":    func() error { _, err := c.RoundTrip(t.Context(), "tools/list", nil, nil); return err },
		"RootsChanged": func() error { return c.RootsChanged(t.Context()) },
	} {
		if err := f(); err == nil {
			t.Errorf("%s before Open gives no error", name)
		}
	}
	first, second, third := &script{done: make(chan struct{})}, &script{done: make(chan struct{})}, &script{done: make(chan struct{})}
	if _, err := c.Open(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Open(t.Context(), second); err == nil || second.closed == 0 || first.closed != 0 {
		t.Errorf("a second Open: %v", err)
	}
	for range 2 {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
	if first.closed == 0 {
		t.Error("the link is open")
	}
	if _, err := c.Open(t.Context(), third); !errors.Is(err, legacy.ErrEnded) || third.closed == 0 {
		t.Errorf("Open after Close: %v", err)
	}
}

func TestRequestsLoseTheirEnvelope(t *testing.T) {
	s := &script{}
	c := open(t, clientConfig("2025-06-18"), s)
	for _, tc := range []struct{ method, params, want string }{
		{"tools/list", string(modern("", "")), `"method":"tools/list"`},
		{"tools/list", ``, `"method":"tools/list"`},
		{"tools/list", string(modern(`"cursor":""`, "")), `"method":"tools/list","params":{"cursor":""}`}, // T-48
		{"tools/call", string(modern(`"name":"t","requestState":"s","arguments":{"a":1.0,"_meta":{"x":1},"requestState":1}`, `"progressToken":7,"traceparent":"00-1-2-03","com.example/k":[1]`)),
			`"method":"tools/call","params":{"name":"t","arguments":{"a":1.0,"_meta":{"x":1},"requestState":1},"_meta":{"progressToken":7,"traceparent":"00-1-2-03","com.example/k":[1]}}`},
		{"com.example/x", string(modern(`"requestState":"mine"`, "")), `"method":"com.example/x","params":{"requestState":"mine"}`},
		{"ping", string(modern("", "")), `"method":"ping"`},
	} {
		got, err := c.RoundTrip(t.Context(), tc.method, json.RawMessage(tc.params), nil)
		if err != nil || !strings.Contains(string(got), `"resultType":"complete"`) {
			t.Errorf("%s: %s, %v", tc.method, got, err)
		}
		s.wants(t, tc.want)
	}
	for _, params := range []string{`[]`, `{"_meta":[]}`, `{"_meta":{"progressToken":1.5}}`} {
		_, err := c.RoundTrip(t.Context(), "tools/list", json.RawMessage(params), nil)
		var e *jsonrpc.Error
		if !errors.As(err, &e) || e.Code != jsonrpc.CodeInvalidParams || e.Remote() {
			t.Errorf("%s: %v", params, err)
		}
		s.wants(t)
	}
}

func TestCMP05_CompletionContextNeedsItsRevision(t *testing.T) {
	for _, version := range sessionVersions {
		s := &script{}
		c := open(t, clientConfig(version), s)
		_, err := c.RoundTrip(t.Context(), "completion/complete", modern(`"ref":{"type":"ref/prompt","name":"p"},"context":{"arguments":{"a":"b"}}`, ""), nil)
		if err != nil {
			t.Errorf("%s: %v", version, err)
		}
		want := `"method":"completion/complete","params":{"ref":{"type":"ref/prompt","name":"p"}`
		if version >= "2025-06-18" {
			want += `,"context":{"arguments":{"a":"b"}}`
		}
		s.wants(t, want+`}`)
	}
}

func TestLIFE13_RPC31_OnlyWhatWasDeclaredIsSent(t *testing.T) {
	for _, tc := range []struct{ version, capabilities, method, wantError string }{
		{"2025-06-18", `{}`, "tools/list", "does not offer tools"},
		{"2025-06-18", `{"tools":{}}`, "tools/call", ""},
		{"2025-06-18", `{"tools":{}}`, "prompts/list", "does not offer prompts"},
		{"2025-06-18", `{"tools":{}}`, "prompts/get", "does not offer prompts"},
		{"2024-11-05", `{"prompts":{}}`, "resources/read", "does not offer resources"},
		{"2025-03-26", `{"resources":{}}`, "resources/templates/list", ""},
		{"2025-03-26", `{"tools":null}`, "tools/list", "does not offer tools"},
		{"2024-11-05", `{}`, "completion/complete", ""}, // LIFE-25
		{"2025-03-26", `{"prompts":{}}`, "completion/complete", "does not offer completions"},
		{"2025-11-25", `{"completions":{}}`, "completion/complete", ""},
		{"2025-11-25", `{}`, "logging/setLevel", "does not offer logging"},
		{"2025-11-25", `{}`, "com.example/x", ""},                                                                      // an extension's
		{"2025-06-18", `{"tasks":{"list":{}}}`, "tasks/get", "2025-06-18, which this server speaks, has no tasks/get"}, // T-17
		{"2025-11-25", everything, "tasks/get", "does not offer tasks, which"},
		{"2025-11-25", `{"tasks":{}}`, "tasks/get", ""},
		{"2025-11-25", `{"tasks":{}}`, "tasks/result", ""},
		{"2025-11-25", `{"tasks":{}}`, "tasks/list", "does not offer tasks.list, which"},
		{"2025-11-25", `{"tasks":{"list":{}}}`, "tasks/cancel", "does not offer tasks.cancel, which"},
		{"2025-11-25", `{"tasks":{"list":{}}}`, "tasks/list", ""},
		{"2025-11-25", `{"tasks":{"cancel":{}}}`, "tasks/cancel", ""},
		{"2025-11-25", everything, "initialize", "has no initialize"},
		{"2025-11-25", everything, "roots/list", "has no roots/list"},
		{"2024-11-05", everything, "elicitation/create", "has no elicitation/create"},
		{"2025-11-25", everything, "notifications/cancelled", "has no notifications/cancelled"},
	} {
		s := &script{capabilities: tc.capabilities}
		c := open(t, clientConfig(tc.version), s)
		_, err := c.RoundTrip(t.Context(), tc.method, modern(`"uri":"x:y"`, ""), nil)
		var e *jsonrpc.Error
		switch {
		case tc.wantError == "" && (err != nil || len(s.take()) != 1):
			t.Errorf("%+v: %v", tc, err)
		case tc.wantError != "" && (!errors.As(err, &e) || e.Code != jsonrpc.CodeMethodNotFound || e.Remote() || !strings.Contains(e.Message, tc.wantError) || s.take() != nil):
			t.Errorf("%+v: %v", tc, err)
		}
	}
}

func TestCapabilitiesOfServersAreMadeModern(t *testing.T) {
	for _, tc := range []struct{ version, declared, want string }{
		{"2024-11-05", `{"prompts":{}}`, `{"prompts":{},"completions":{}}`}, // LIFE-25
		{"2024-11-05", `{"tools":{}}`, `{"tools":{}}`},
		{"2025-03-26", `{"prompts":{}}`, `{"prompts":{}}`},
		{"2025-11-25", `{"tasks":{"list":{}},"tools":{"listChanged":"yes","x":1},"resources":{"subscribe":null,"listChanged":false},"logging":true,"prompts":null}`,
			`{"tasks":{"list":{}},"tools":{"x":1},"resources":{"listChanged":false}}`}, // TASKD-01
		{"2025-06-18", `{"tasks":{"list":{}}}`, `{}`},
		{"2025-11-25", `{"experimental":{"a":1},"extensions":{"io.modelcontextprotocol/tasks":{},"io.modelcontextprotocol/ui":{},"x":1},"com.example":{}}`,
			`{"experimental":{"a":1},"extensions":{"io.modelcontextprotocol/ui":{}},"com.example":{}}`},
		{"2025-11-25", `[]`, `{}`},
	} {
		c := open(t, clientConfig(tc.version), &script{capabilities: tc.declared})
		got, err := c.RoundTrip(t.Context(), "server/discover", nil, nil)
		if capabilities := member(got, "capabilities"); err != nil || capabilities != tc.want {
			t.Errorf("%s: %s became %s, want %s (%v)", tc.version, tc.declared, capabilities, tc.want, err)
		}
	}
}

func TestVER23_ServersThatSayLittleAreSpokenWith(t *testing.T) {
	for result, want := range map[string]string{
		`{"protocolVersion":"2025-06-18"}`: `{}`,
		`{"protocolVersion":"2025-06-18","capabilities":null,"serverInfo":7,"instructions":[]}`:            `{}`,
		`{"protocolVersion":"2025-06-18","capabilities":{},"serverInfo":{"name":"x"}}`:                     `{}`,
		`{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":1,"version":2}}`: `{"tools":{}}`,
	} {
		c := open(t, clientConfig("2025-06-18"), &script{serve: gives(result)})
		got, err := c.RoundTrip(t.Context(), "server/discover", nil, nil)
		whole := `{"resultType":"complete","ttlMs":0,"cacheScope":"private","supportedVersions":["2025-06-18"],"capabilities":` + want + `}`
		if err != nil || string(got) != whole {
			t.Errorf("%s: %s, %v", result, got, err)
		}
	}
}

func TestResultsBecomeModern(t *testing.T) {
	for _, tc := range []struct{ method, result, want string }{
		{"tools/list", `{"tools":[{"name":"t","inputSchema":{"type":"object"},"execution":{"taskSupport":"optional"}}],"nextCursor":""}`,
			`{"resultType":"complete","ttlMs":0,"cacheScope":"private","tools":[{"name":"t","inputSchema":{"type":"object"},"execution":{"taskSupport":"optional"}}],"nextCursor":""}`},
		{"tools/call", `{"content":[{"type":"text","text":"x"}],"_meta":{"a":1},"isError":false}`,
			`{"resultType":"complete","content":[{"type":"text","text":"x"}],"_meta":{"a":1},"isError":false}`},
		{"resources/read", `{"contents":[],"ttlMs":60000,"cacheScope":"public"}`, `{"resultType":"complete","ttlMs":0,"cacheScope":"private","contents":[]}`},
		{"tools/call", `{"resultType":"input_required","inputRequests":{"a":{}},"requestState":"s","content":[]}`, `{"resultType":"complete","content":[]}`},
		{"com.example/x", `{"ttlMs":7,"requestState":"mine"}`, `{"resultType":"complete","ttlMs":7,"requestState":"mine"}`},
		{"ping", `{}`, `{"resultType":"complete"}`},
	} {
		c := open(t, clientConfig("2025-11-25"), &script{serve: after(gives(tc.result))})
		got, err := c.RoundTrip(t.Context(), tc.method, modern(`"uri":"x:y","name":"t"`, ""), nil)
		if err != nil || string(got) != tc.want {
			t.Errorf("%s\ngot  %s, %v\nwant %s", tc.result, got, err, tc.want)
		}
	}
	for _, result := range []string{`null`, `[]`, `"x"`, `true`} {
		c := open(t, clientConfig("2025-11-25"), &script{serve: after(gives(result))})
		if got, err := c.RoundTrip(t.Context(), "tools/list", nil, nil); got != nil || !errors.Is(err, legacy.ErrMalformed) {
			t.Errorf("%s: %s, %v", result, got, err)
		}
	}
}

func TestRPC25_MissingResourcesHaveTheModernCode(t *testing.T) {
	for _, tc := range []struct {
		method, data, wantData string
		code, want             int
	}{
		{"resources/read", ``, `{"uri":"x:y"}`, -32002, -32602},
		{"resources/read", `{"uri":"x:z"}`, `{"uri":"x:z"}`, -32002, -32602},
		{"resources/read", `"gone"`, `{"uri":"x:y"}`, -32002, -32602},
		{"tools/call", ``, ``, -32002, -32002},
		{"resources/read", `{"a":1}`, `{"a":1}`, -32603, -32603},
	} {
		c := open(t, clientConfig("2025-06-18"), &script{serve: after(fails(tc.code, "no", tc.data))})
		_, err := c.RoundTrip(t.Context(), tc.method, modern(`"uri":"x:y"`, ""), nil)
		var e *jsonrpc.Error
		if !errors.As(err, &e) || !e.Remote() || e.Code != tc.want || string(e.Data) != tc.wantData || e.Message != "no" {
			t.Errorf("%+v: %v %s", tc, err, e.Data)
		}
	}
}

func TestLOG02_LevelIsSetWhenItChanges(t *testing.T) {
	list := func(c *legacy.Client, level string) {
		t.Helper()
		meta := ""
		if level != "" {
			meta = `"io.modelcontextprotocol/logLevel":"` + level + `"`
		}
		if _, err := c.RoundTrip(t.Context(), "tools/list", modern("", meta), nil); err != nil {
			t.Errorf("level %q: %v", level, err)
		}
	}
	const tools = `"method":"tools/list"`
	set := func(level string) string { return `"method":"logging/setLevel","params":{"level":"` + level + `"}` }
	for name, serve := range map[string]func(context.Context, *jsonrpc.Message) *jsonrpc.Message{
		"willing": nil,
		"unwilling": func(ctx context.Context, req *jsonrpc.Message) *jsonrpc.Message { // the request matters more
			if req.Method == wire.MethodLoggingSetLevel {
				return fails(-32601, "no", "")(ctx, req)
			}
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := &script{serve: serve}
			c := open(t, clientConfig("2025-06-18"), s)
			for _, level := range []string{"", "info", "info", "", "debug", "debug", "info"} {
				list(c, level)
			}
			s.wants(t, tools, set("info"), tools, tools, tools, set("debug"), tools, tools, set("info"), tools)
		})
	}

	s := &script{}
	c := open(t, clientConfig("2025-06-18"), s)
	list(c, "info")
	if _, err := c.RoundTrip(t.Context(), "logging/setLevel", modern(`"level":"debug"`, ""), nil); err != nil {
		t.Error(err)
	}
	list(c, "info") // it was changed by hand
	s.wants(t, set("info"), tools, set("debug"), set("info"), tools)

	s = &script{capabilities: `{"tools":{}}`}
	list(open(t, clientConfig("2025-06-18"), s), "info")
	s.wants(t, tools)
}

func TestLevelIsSetOnceForManyRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		s := &script{serve: func(ctx context.Context, req *jsonrpc.Message) *jsonrpc.Message {
			if req.Method == wire.MethodLoggingSetLevel {
				<-release
			}
			return nil
		}}
		c := open(t, clientConfig("2025-06-18"), s)
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() {
				if _, err := c.RoundTrip(t.Context(), "tools/list", modern("", `"io.modelcontextprotocol/logLevel":"info"`), nil); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		stopped, stop := context.WithCancelCause(t.Context())
		wg.Go(func() { // one of them gives up, which takes nothing from the others
			if _, err := c.RoundTrip(stopped, "tools/list", modern("", `"io.modelcontextprotocol/logLevel":"info"`), nil); err != errCancelled {
				t.Errorf("the caller gave up: %v", err)
			}
		})
		synctest.Wait()
		stop(errCancelled)
		synctest.Wait()
		close(release)
		wg.Wait()
		count := 0
		for _, line := range s.take() {
			if strings.Contains(line, "setLevel") {
				count++
			}
		}
		if count != 1 {
			t.Errorf("the level was set %d times", count)
		}
		c.Close()
	})
}

func TestLevelIsSetAgainWhenTheFirstCallerGaveUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{serve: func(ctx context.Context, req *jsonrpc.Message) *jsonrpc.Message {
			if req.Method == wire.MethodLoggingSetLevel && ctx.Value(errCancelled) != nil {
				<-ctx.Done()
			}
			return nil
		}}
		c := open(t, clientConfig("2025-06-18"), s)
		params := modern("", `"io.modelcontextprotocol/logLevel":"info"`)
		ctx, stop := context.WithCancelCause(context.WithValue(t.Context(), errCancelled, "the first"))
		time.AfterFunc(time.Second, func() { stop(errCancelled) })
		if _, err := c.RoundTrip(ctx, "tools/list", params, nil); err != errCancelled {
			t.Error(err)
		}
		if _, err := c.RoundTrip(t.Context(), "tools/list", params, nil); err != nil {
			t.Error(err)
		}
		const set = `"method":"logging/setLevel","params":{"level":"info"}`
		s.wants(t, set, set, `"method":"tools/list"`)
		c.Close()
	})
}

func TestDeafLogDoesNotHoldUpRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{serve: func(ctx context.Context, req *jsonrpc.Message) *jsonrpc.Message {
			if req.Method == wire.MethodLoggingSetLevel {
				<-ctx.Done()
			}
			return nil
		}}
		c := open(t, clientConfig("2025-06-18"), s)
		for _, within := range []time.Duration{10 * time.Second, 0} {
			start := time.Now()
			if _, err := c.RoundTrip(t.Context(), "tools/list", modern("", `"io.modelcontextprotocol/logLevel":"info"`), nil); err != nil {
				t.Error(err)
			}
			if took := time.Since(start); took != within {
				t.Errorf("it took %v, want %v", took, within)
			}
		}
		c.Close()
	})
}

func TestPROG_ProgressGoesToItsRequest(t *testing.T) {
	for token, other := range map[string]string{`7`: `"7"`, `"7"`: `7`, `"a\u0062"`: `"a"`} { // 7 is another one than "7"
		var c *legacy.Client
		s := &script{serve: after(func(_ context.Context, req *jsonrpc.Message) *jsonrpc.Message {
			for i, token := range []string{token, `"other"`, `8`, other, token, `null`, `[]`, token} {
				c.Receive(message(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":%d}}`, token, i)))
			}
			c.Receive(message(`{"jsonrpc":"2.0","method":"notifications/progress"}`))
			return nil
		})}
		c = open(t, clientConfig("2025-06-18"), s)
		var got []string
		notify := func(_ context.Context, method string, params json.RawMessage) error {
			got = append(got, method+member(params, "progress"))
			return nil
		}
		asked := strings.ReplaceAll(token, `\u0062`, "b")
		if _, err := c.RoundTrip(t.Context(), "tools/list", modern("", `"progressToken":`+asked), notify); err != nil {
			t.Fatal(err)
		}
		c.Receive(message(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":` + token + `,"progress":9}}`)) // late
		const p = "notifications/progress"
		if diff := cmp.Diff([]string{p + "0", p + "4", p + "7"}, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", token, diff)
		}
		if _, err := c.RoundTrip(t.Context(), "tools/list", modern("", `"progressToken":`+asked), nil); err != nil {
			t.Errorf("nobody wants progress: %v", err)
		}
	}
}

func TestProgressEndsWhenNotifyFails(t *testing.T) {
	var c *legacy.Client
	c = open(t, clientConfig("2025-06-18"), &script{serve: after(func(context.Context, *jsonrpc.Message) *jsonrpc.Message {
		for range 3 {
			c.Receive(message(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":1}}`))
		}
		return nil
	})})
	told := 0
	_, err := c.RoundTrip(t.Context(), "tools/list", modern("", `"progressToken":1`), func(context.Context, string, json.RawMessage) error {
		told++
		return errCancelled
	})
	if err != nil || told != 1 {
		t.Errorf("told %d times, %v", told, err)
	}
}

func TestPROG01_TokensAreUnique(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		c := open(t, clientConfig("2025-06-18"), &script{serve: after(func(context.Context, *jsonrpc.Message) *jsonrpc.Message {
			<-release
			return nil
		})})
		notify := func(context.Context, string, json.RawMessage) error { return nil }
		call := func() error {
			_, err := c.RoundTrip(t.Context(), "tools/list", modern("", `"progressToken":1`), notify)
			return err
		}
		first := make(chan error)
		go func() { first <- call() }()
		synctest.Wait()
		var e *jsonrpc.Error
		if err := call(); !errors.As(err, &e) || e.Code != jsonrpc.CodeInvalidParams || e.Remote() {
			t.Errorf("the same token again: %v", err)
		}
		close(release)
		if err := <-first; err != nil {
			t.Error(err)
		}
		if err := call(); err != nil {
			t.Errorf("the token is free again: %v", err)
		}
		c.Close()
	})
}

func TestCAN_EndOfTheContextGivesItsCause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := open(t, clientConfig("2025-06-18"), &script{serve: after(func(ctx context.Context, _ *jsonrpc.Message) *jsonrpc.Message {
			<-ctx.Done()
			return nil
		})})
		for _, method := range []string{"tools/list", "subscriptions/listen"} {
			ctx, cancel := context.WithCancelCause(t.Context())
			done := make(chan error)
			go func() {
				_, err := c.RoundTrip(ctx, method, modern(`"notifications":{"resourceSubscriptions":["x:y"]}`, `"progressToken":1`),
					func(context.Context, string, json.RawMessage) error { return nil })
				done <- err
			}()
			synctest.Wait()
			cancel(errCancelled)
			if err := <-done; err != errCancelled {
				t.Errorf("%s: %v", method, err)
			}
		}
		c.Close()
	})
}

func TestROOT03_RootsChanged(t *testing.T) {
	s := &script{}
	c := open(t, clientConfig("2025-06-18"), s)
	if err := c.RootsChanged(t.Context()); err != nil {
		t.Error(err)
	}
	s.wants(t, `"method":"notifications/roots/list_changed"`)
	cfg := clientConfig("2025-06-18")
	cfg.Capabilities = nil
	s = &script{}
	if err := open(t, cfg, s).RootsChanged(t.Context()); err == nil {
		t.Error("roots that nobody was told of have changed")
	}
	s.wants(t)
}

const visitData = `{"elicitations":[{"mode":"url","message":"m","url":"https://a.example/x","elicitationId":"v\"1"},{"mode":"url","message":"n","url":"https://b.example/","elicitationId":"v2","_meta":{"progressToken":1}}]}`

func TestELI30_RequiredVisitsAreInputRequests(t *testing.T) {
	s := &script{serve: after(fails(-32042, "visit", visitData))}
	c := open(t, clientConfig("2025-11-25"), s)
	got, err := c.RoundTrip(t.Context(), "tools/call", modern(`"name":"t"`, ""), nil)
	want := `{"resultType":"input_required","inputRequests":{` +
		`"v\"1":{"method":"elicitation/create","params":{"mode":"url","message":"m","url":"https://a.example/x","elicitationId":"v\"1"}},` +
		`"v2":{"method":"elicitation/create","params":{"mode":"url","message":"n","url":"https://b.example/","elicitationId":"v2"}}}}`
	if err != nil || string(got) != want {
		t.Errorf("got %s, %v", got, err)
	}
	visit := func(id string) string {
		return `{"mode":"url","message":"m","url":"https://a.example/","elicitationId":"` + id + `"}`
	}
	many := visit("0")
	for i := range 16 {
		many += "," + visit(fmt.Sprint(i+1))
	}
	for name, tc := range map[string]struct{ version, method, capabilities, data string }{
		"not declared": {"2025-11-25", "tools/call", `{"elicitation":{}}`, visitData},
		"old":          {"2025-06-18", "tools/call", allOfUs, visitData},
		"a list":       {"2025-11-25", "tools/list", allOfUs, visitData},
		"none":         {"2025-11-25", "tools/call", allOfUs, `{"elicitations":[]}`},
		"no data":      {"2025-11-25", "tools/call", allOfUs, ``},
		"odd data":     {"2025-11-25", "tools/call", allOfUs, `{"elicitations":[7]}`},
		"a form":       {"2025-11-25", "tools/call", allOfUs, `{"elicitations":[{"mode":"form","message":"m","elicitationId":"v"}]}`},
		"no id":        {"2025-11-25", "tools/call", allOfUs, `{"elicitations":[{"mode":"url","message":"m","url":"https://a.example/"}]}`},
		"long id":      {"2025-11-25", "tools/call", allOfUs, `{"elicitations":[` + visit(strings.Repeat("x", 257)) + `]}`},
		"same id":      {"2025-11-25", "tools/call", allOfUs, `{"elicitations":[` + visit("a") + `,` + visit("a") + `]}`},
		"many":         {"2025-11-25", "tools/call", allOfUs, `{"elicitations":[` + many + `]}`},
	} {
		cfg := clientConfig(tc.version)
		cfg.Capabilities = json.RawMessage(tc.capabilities)
		c := open(t, cfg, &script{serve: after(fails(-32042, "visit", tc.data))})
		got, err := c.RoundTrip(t.Context(), tc.method, modern(`"name":"t"`, ""), nil)
		var e *jsonrpc.Error
		if got != nil || !errors.As(err, &e) || !e.Remote() || e.Code != -32042 || string(e.Data) != tc.data {
			t.Errorf("%s: %s, %v", name, got, err)
		}
	}
}

func TestELI28_VisitsAreAwaited(t *testing.T) {
	retry := func(answer string) json.RawMessage {
		return modern(`"name":"t","inputResponses":{"v\"1":`+answer+`,"v2":{"action":"accept"}}`, "")
	}
	const accepted = `{"action":"accept"}`
	done := func(id string) *jsonrpc.Message {
		return message(`{"jsonrpc":"2.0","method":"notifications/elicitation/complete","params":{"elicitationId":"` + id + `"}}`)
	}
	for name, tc := range map[string]struct {
		answer string
		tell   func(c *legacy.Client)
		end    func(c *legacy.Client, cancel context.CancelCauseFunc)
		within time.Duration
		want   string // within the error
	}{
		"both done":  {accepted, func(c *legacy.Client) { c.Receive(done(`v\"1`)); c.Receive(done("v2")); c.Receive(done("v2")) }, nil, 0, ""},
		"one done":   {accepted, func(c *legacy.Client) { c.Receive(done("v2")); c.Receive(done("unknown")) }, nil, 30 * time.Second, ""},
		"never told": {accepted, func(c *legacy.Client) {}, nil, 30 * time.Second, ""}, // servers need not
		"done later": {accepted, func(c *legacy.Client) {
			time.AfterFunc(3*time.Second, func() { c.Receive(done(`v\"1`)) })
			time.AfterFunc(5*time.Second, func() { c.Receive(done("v2")) })
		}, nil, 5 * time.Second, ""},
		"declined":  {`{"action":"decline"}`, func(c *legacy.Client) {}, nil, 0, "did not accept"},
		"no action": {`7`, func(c *legacy.Client) {}, nil, 0, "did not accept"},
		"given up": {accepted, func(c *legacy.Client) {}, func(c *legacy.Client, cancel context.CancelCauseFunc) {
			time.AfterFunc(time.Second, func() { cancel(errCancelled) })
		}, time.Second, "cancelled"},
		"ended": {accepted, func(c *legacy.Client) {}, func(c *legacy.Client, cancel context.CancelCauseFunc) {
			time.AfterFunc(time.Second, func() { c.Close() })
		}, time.Second, "ended"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				refused := false
				s := &script{serve: after(func(ctx context.Context, req *jsonrpc.Message) *jsonrpc.Message {
					if refused {
						return gives(`{"content":[]}`)(ctx, req)
					}
					refused = true
					return fails(-32042, "visit", visitData)(ctx, req)
				})}
				c := open(t, clientConfig("2025-11-25"), s)
				defer c.Close()
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				if _, err := c.RoundTrip(ctx, "tools/call", modern(`"name":"t"`, ""), nil); err != nil {
					t.Fatal(err)
				}
				s.take()
				start := time.Now()
				tc.tell(c)
				if tc.end != nil {
					tc.end(c, cancel)
				}
				got, err := c.RoundTrip(ctx, "tools/call", retry(tc.answer), nil)
				if took := time.Since(start); took != tc.within {
					t.Errorf("it took %v, want %v", took, tc.within)
				}
				if tc.want != "" {
					if err == nil || !strings.Contains(err.Error(), tc.want) {
						t.Errorf("got %s, %v", got, err)
					}
					s.wants(t)
					return
				}
				if err != nil || string(got) != `{"resultType":"complete","content":[]}` {
					t.Errorf("got %s, %v", got, err)
				}
				s.wants(t, `"method":"tools/call","params":{"name":"t"}`)
			})
		})
	}
}

func TestVisitsThatAreKeptAreBounded(t *testing.T) {
	n := 0
	c := open(t, clientConfig("2025-11-25"), &script{serve: after(func(ctx context.Context, req *jsonrpc.Message) *jsonrpc.Message {
		n++
		return fails(-32042, "visit", fmt.Sprintf(`{"elicitations":[{"mode":"url","message":"m","url":"https://a.example/","elicitationId":"v%d"}]}`, n))(ctx, req)
	})})
	for range 10_000 {
		if _, err := c.RoundTrip(t.Context(), "tools/call", modern(`"name":"t"`, ""), nil); err != nil {
			t.Fatal(err)
		}
	}
	if kept := c.Visits(); kept != 256 {
		t.Errorf("%d visits are kept", kept)
	}
}
