package mcptest

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/patchbay-mcp/patchbay/mcp"
)

// leaks are tests whose handler does not return.
var leaks = map[string]func(t *testing.T){
	"a client of a run": func(t *testing.T) {
		RunOn(t, newLeakServer(nil), Since(Modern), nil, func(_ *testing.T, c *Client) { leakCall(c) })
	},
	"another client": func(t *testing.T) {
		RunOn(t, newLeakServer(nil), []Combination{{Stdio, "2025-11-25"}}, nil, func(_ *testing.T, c *Client) {
			leakCall(c.Another(nil))
		})
	},
	"a custom handler": func(t *testing.T) {
		h := mcp.HandlerFunc(newLeakServer(nil).ServeMCP)
		RunOn(t, h, []Combination{{HTTP, Modern}}, nil, func(_ *testing.T, c *Client) { leakCall(c) })
	},
	"typed clients": func(t *testing.T) {
		RunClient(t, newLeakServer(nil), nil, func(t *testing.T, c *mcp.Client) {
			ctx, cancel := context.WithCancel(t.Context())
			go func() {
				synctest.Wait()
				cancel()
			}()
			_, _ = c.CallTool(ctx, "wait", nil)
		})
	},
	"a channel outside of the bubble": func(t *testing.T) {
		RunOn(t, newLeakServer(make(chan struct{})), []Combination{{InMemory, Modern}}, nil, func(_ *testing.T, c *Client) {
			leakCall(c)
		})
	},
	"real time": func(t *testing.T) {
		opts := &Options{RealTime: true}
		RunOn(t, newLeakServer(nil), []Combination{{InMemory, Modern}}, opts, func(_ *testing.T, c *Client) { leakCall(c) })
	},
}

func leakCall(c *Client) {
	c.Send("tools/call", map[string]any{"name": "wait"})
	if c.bubble {
		synctest.Wait()
	}
}

// newLeakServer returns a server with a tool that waits for release, or never returns if that is nil.
func newLeakServer(release chan struct{}) *mcp.Server {
	s := mcp.NewServer("leak", "1", nil)
	mcp.AddTool(s, &mcp.Tool{Name: "wait"}, func(context.Context, struct{}) (string, error) {
		<-release
		return "", nil
	})
	return s
}

func TestLeakedHandlersAreNamedInOneLine(t *testing.T) {
	for name := range leaks {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out := runFailing(t, name)
			named := 0
			for line := range strings.Lines(out) {
				if strings.Contains(line, "handlers have not returned") && strings.Contains(line, `tools/call "wait"`) {
					named++
				}
			}
			want := 1
			if name == "a client of a run" {
				want = len(Transports())
			}
			if name == "typed clients" {
				want = 20
			}
			if named != want || strings.Contains(out, "panic:") || strings.Contains(out, "deadlock") || !strings.Contains(out, "FAIL") {
				t.Errorf("got %d lines that name the handler, want %d and no panic:\n%s", named, want, out)
			}
		})
	}
}

func TestRunClientCombinations(t *testing.T) {
	var ran []string
	s := mcp.NewServer("test", "1", nil)
	mcp.AddTool(s, &mcp.Tool{Name: "revision"}, func(ctx context.Context, _ struct{}) (string, error) {
		return mcp.RequestFrom(ctx).Revision(), nil
	})
	RunClient(t, s, nil, func(t *testing.T, c *mcp.Client) {
		got, err := mcp.CallTool[string](t.Context(), c, "revision", nil)
		if err != nil || got != c.Revision() {
			t.Errorf("got %q, %v, want %q", got, err, c.Revision())
		}
		ran = append(ran, strings.TrimPrefix(t.Name(), "TestRunClientCombinations/"))
	})
	if len(ran) != 20 || ran[0] != "in-memory/2024-11-05" || ran[19] != "replicas/2026-07-28" {
		t.Errorf("ran %q, want 20 combinations", ran)
	}
}

// RunClient validates what the server sends, as responses and as notifications, on every transport.
func TestRunClientValidatesMessages(t *testing.T) {
	requireSchemas(t)
	for _, on := range Combinations() {
		for name, s := range map[string]invalidServer{
			"response":     answers(`{"resultType":"complete","content":[],"more":1}`),
			"notification": notifies(`notifications/message {"level":"shout","data":1}`),
		} {
			synctest.Test(t, func(t *testing.T) {
				faults := faultsOf(t, func(t testing.TB) {
					opts := &mcp.ClientOptions{Log: func(context.Context, *mcp.LoggingMessage) {}}
					c := dial(t, checkedTransport(t, s, on, opts), on, opts)
					_, _ = c.CallTool(context.Background(), "x", nil)
				})
				want := "'more' not allowed"
				if name == "notification" {
					want = "'/params/level'"
				} else if !on.Modern() {
					want = "" // the translation to older revisions drops the member
				}
				if !strings.Contains(faults, want) {
					t.Errorf("%s, %s: got failures %q, want %q", on, name, faults, want)
				}
			})
		}
	}
}
