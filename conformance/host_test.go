package conformance_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcphttp"
)

// A host is the user and the model of the client. It records the pages and log messages that they
// get.
type host struct {
	mu      sync.Mutex
	visited []string
	logs    chan string
}

func newHost() *host { return &host{logs: make(chan string, 1000)} }

// options returns the options of a client that supports every request of a server and always
// accepts.
func (h *host) options(t *testing.T, revision string) *mcp.ClientOptions {
	return &mcp.ClientOptions{
		Info:     mcp.Implementation{Name: "patchbay-interop", Version: "1.0.0"},
		Revision: revision,
		Logger:   logger(t),
		Elicit: func(context.Context, *mcp.ElicitRequestParams) (*mcp.ElicitResult, error) {
			return &mcp.ElicitResult{Action: mcp.ElicitAccept, Content: json.RawMessage(`{"name":"Ada"}`)}, nil
		},
		ElicitURL: func(_ context.Context, p *mcp.ElicitRequestParams) (*mcp.ElicitResult, error) {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.visited = append(h.visited, p.URL)
			return &mcp.ElicitResult{Action: mcp.ElicitAccept}, nil
		},
		Sample: func(context.Context, *mcp.CreateMessageParams) (*mcp.CreateMessageResult, error) {
			return &mcp.CreateMessageResult{Model: "test-model", Content: []mcp.ContentBlock{mcp.Text("a summary")},
				StopReason: "endTurn"}, nil
		},
		Roots: func(context.Context) ([]mcp.Root, error) {
			return []mcp.Root{{URI: "file:///srv/area", Name: "area"}}, nil
		},
		Log: func(_ context.Context, m *mcp.LoggingMessage) {
			select {
			case h.logs <- m.Text():
			default:
			}
		},
	}
}

// logger returns a logger that writes to the output of the test.
func logger(t *testing.T) *slog.Logger {
	return slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug}))
}

func overHTTP(url string) func(t *testing.T) mcp.Transport {
	return func(t *testing.T) mcp.Transport {
		return mcphttp.NewTransport(url, &mcphttp.TransportOptions{Logger: logger(t)})
	}
}

func overStdio(name string, args ...string) func(t *testing.T) mcp.Transport {
	return func(t *testing.T) mcp.Transport {
		s := mcp.Command(name, args...)
		s.Logger, s.Stderr = logger(t), t.Output()
		return s
	}
}

// pages returns the URLs that the user was asked to visit.
func (h *host) pages() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.visited)
}

// logged waits until the server has logged a text.
func (h *host) logged(ctx context.Context, t *testing.T, text string) {
	t.Helper()
	if !h.hasLogged(ctx, text) {
		t.Errorf("log message %q did not arrive", text)
	}
}

// hasLogged waits for a log message, and reports whether it arrived before the end of the context.
func (h *host) hasLogged(ctx context.Context, text string) bool {
	for {
		select {
		case got := <-h.logs:
			if strings.Contains(got, text) {
				return true
			}
		case <-ctx.Done():
			return false
		}
	}
}

// dial connects, and closes the client at the end of the test. Both must succeed.
func dial(ctx context.Context, t *testing.T, transport mcp.Transport, opts *mcp.ClientOptions) *mcp.Client {
	t.Helper()
	c, err := mcp.Connect(ctx, transport, opts)
	if err != nil {
		t.Fatalf("Connect: %v", err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return c
}

// within returns a context with the time limit of a test of one server.
func within(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// must returns the value, or fails the test on an error.
func must[V any](v V, err error) func(t *testing.T) V {
	return func(t *testing.T) V {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// names returns the names of all items of a list.
func names[V any](t *testing.T, list func(func(*V, error) bool), name func(*V) string) []string {
	t.Helper()
	var all []string
	for v, err := range list {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, name(v))
	}
	slices.Sort(all)
	return all
}

func toolNames(ctx context.Context, t *testing.T, c *mcp.Client) []string {
	t.Helper()
	return names(t, c.Tools(ctx), func(v *mcp.Tool) string { return v.Name })
}

func equal(t *testing.T, what string, got, want any) {
	t.Helper()
	g, _ := json.Marshal(got)
	w, _ := json.Marshal(want)
	if string(g) != string(w) {
		t.Errorf("%s: got %s, want %s", what, g, w)
	}
}
