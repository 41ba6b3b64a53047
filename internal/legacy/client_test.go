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
	allServerCapabilities = `{"tools":{"listChanged":true},"prompts":{"listChanged":true},"resources":{"subscribe":true,"listChanged":true},"completions":{},"logging":{}}`
	allClientCapabilities = `{"roots":{},"sampling":{"tools":{},"context":{}},"elicitation":{"form":{},"url":{}}}`
	clientInfo            = `{"name":"c","version":"1"}`
)

// A fakeServer is a server with sessions whose behaviour the test sets, and the Conn to it. It
// records what it is sent, one line each, requests without their ids.
type fakeServer struct {
	version      string // the revision it chooses; that of the client when empty
	capabilities string // its capabilities; allServerCapabilities when empty
	serve        serveFunc
	send         func(ctx context.Context, m *jsonrpc.Message) error // called for notifications and responses

	ids  atomic.Int64
	done chan struct{}

	mu     sync.Mutex // guards the fields below
	lines  []string
	closed int
}

func (s *fakeServer) RoundTrip(ctx context.Context, req *jsonrpc.Message) (*jsonrpc.Message, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	req.ID = jsonrpc.IntID(s.ids.Add(1))
	s.record(&jsonrpc.Message{Method: req.Method, Params: req.Params})
	response := s.answer(ctx, req)
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return message(string(jsonrpc.Append(nil, response))), nil
}

func (s *fakeServer) answer(ctx context.Context, req *jsonrpc.Message) *jsonrpc.Message {
	if s.serve != nil {
		if response := s.serve(ctx, req); response != nil {
			return response
		}
	}
	if req.Method != wire.MethodInitialize {
		return &jsonrpc.Message{ID: req.ID, Result: json.RawMessage("{}")}
	}
	version := s.version
	if version == "" {
		version = strings.Trim(member(req.Params, "protocolVersion"), `"`)
	}
	capabilities := s.capabilities
	if capabilities == "" {
		capabilities = allServerCapabilities
	}
	return &jsonrpc.Message{ID: req.ID, Result: json.RawMessage(`{"protocolVersion":"` + version + `","capabilities":` + capabilities +
		`,"serverInfo":{"name":"s","version":"1"},"instructions":"Be kind."}`)}

}

func (s *fakeServer) Send(ctx context.Context, m *jsonrpc.Message) error {
	if s.send != nil {
		if err := s.send(ctx, m); err != nil {
			return err
		}
	}
	s.record(m)
	return nil
}

func (s *fakeServer) Done() <-chan struct{} { return s.done }

func (s *fakeServer) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed++; s.closed == 1 {
		close(s.done)
	}
	return nil
}

func (s *fakeServer) record(m *jsonrpc.Message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lines = append(s.lines, strings.TrimSuffix(strings.TrimPrefix(string(jsonrpc.Append(nil, m)), `{"jsonrpc":"2.0",`), `}`))
}

// take returns what was sent since the last call.
func (s *fakeServer) take() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	lines := s.lines
	s.lines = nil
	return lines
}

func (s *fakeServer) wants(t *testing.T, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, s.take()); diff != "" {
		t.Errorf("the server received (-want +got):\n%s", diff)
	}
}

func clientConfig(version string) legacy.ClientConfig {
	rev, _ := wire.ParseRevision(version)
	return legacy.ClientConfig{
		Revision: rev, Logger: slog.New(slog.DiscardHandler),
		Info: json.RawMessage(clientInfo), Capabilities: json.RawMessage(allClientCapabilities),
		Answer: func(context.Context, string, json.RawMessage) (json.RawMessage, *jsonrpc.Error) {
			return nil, &jsonrpc.Error{Code: -1, Message: "not supported"}
		},
	}
}

// open opens a session with a fakeServer, and closes it when the test ends.
func open(t *testing.T, cfg legacy.ClientConfig, s *fakeServer) *legacy.Client {
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

// withEnvelope returns params with the envelope of a client, and with further members of `_meta`.
func withEnvelope(params, meta string) json.RawMessage {
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

// A serveFunc returns the response to a request.
type serveFunc = func(ctx context.Context, req *jsonrpc.Message) *jsonrpc.Message

// respondWith returns the result for every request.
func respondWith(result string) serveFunc {
	return func(_ context.Context, req *jsonrpc.Message) *jsonrpc.Message {
		return &jsonrpc.Message{ID: req.ID, Result: json.RawMessage(result)}
	}
}

// failWith returns an error for every request.
func failWith(code int, text, data string) serveFunc {
	return func(_ context.Context, req *jsonrpc.Message) *jsonrpc.Message {
		e := &jsonrpc.Error{Code: code, Message: text}
		if data != "" {
			e.Data = json.RawMessage(data)
		}
		return &jsonrpc.Message{ID: req.ID, Error: e}
	}
}

// afterInitialize calls serve for all requests except initialize.
func afterInitialize(serve serveFunc) serveFunc {
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
			t.Errorf("%s before Open returned no error", name)
		}
	}
	first, second, third := &fakeServer{done: make(chan struct{})}, &fakeServer{done: make(chan struct{})}, &fakeServer{done: make(chan struct{})}
	if _, err := c.Open(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Open(t.Context(), second); err == nil || second.closed == 0 || first.closed != 0 {
		t.Errorf("a second Open: error %v, closed first %d times and second %d times", err, first.closed, second.closed)
	}
	for range 2 {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
	if first.closed == 0 {
		t.Error("Close did not close the Conn")
	}
	if _, err := c.Open(t.Context(), third); !errors.Is(err, legacy.ErrEnded) || third.closed == 0 {
		t.Errorf("Open after Close: error %v, want ErrEnded", err)
	}
}

// Requirement: ROOT-03
func TestRootsChanged(t *testing.T) {
	s := &fakeServer{}
	c := open(t, clientConfig("2025-06-18"), s)
	if err := c.RootsChanged(t.Context()); err != nil {
		t.Error(err)
	}
	s.wants(t, `"method":"notifications/roots/list_changed"`)
	cfg := clientConfig("2025-06-18")
	cfg.Capabilities = nil
	s = &fakeServer{}
	if err := open(t, cfg, s).RootsChanged(t.Context()); err == nil {
		t.Error("RootsChanged without the roots capability returned no error")
	}
	s.wants(t)
}
