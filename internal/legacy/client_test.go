package legacy_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

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

// A script is a server with sessions whose behaviour the test sets, and the Conn to it. It records
// what it is sent, one line each, requests without their ids.
type script struct {
	version      string // the revision it chooses; that of the client when empty
	capabilities string // its capabilities; everything when empty
	serve        func(ctx context.Context, req *jsonrpc.Message) *jsonrpc.Message
	send         func(ctx context.Context, m *jsonrpc.Message) error // called for notifications and responses

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

// take returns what was sent since the last call.
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

// modern returns params with the envelope of a client, and with further members of `_meta`.
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

// sessionVersions are the versions with sessions.
var sessionVersions = []string{"2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"}

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

// after wraps a server that first responds to initialize.
func after(serve func(context.Context, *jsonrpc.Message) *jsonrpc.Message) func(context.Context, *jsonrpc.Message) *jsonrpc.Message {
	return func(ctx context.Context, req *jsonrpc.Message) *jsonrpc.Message {
		if req.Method == wire.MethodInitialize {
			return nil
		}
		return serve(ctx, req)
	}
}

func TestOpenOnlyOnce(t *testing.T) {
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
