package otelmcp_test

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/ext/tasks"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// newServer returns a server with a tool for each outcome.
func newServer(t testing.TB, o mcp.Observer) *mcp.Server {
	s := mcp.NewServer("calc", "1.0.0", &mcp.ServerOptions{Observer: o, Logger: slog.New(slog.DiscardHandler)})
	addTools(s)
	type none struct{}
	tool := func(name string, f func(ctx context.Context) (string, error)) {
		mcp.AddTool(s, &mcp.Tool{Name: name}, func(ctx context.Context, _ none) (string, error) { return f(ctx) })
	}
	tool("fail", func(context.Context) (string, error) { return "", errors.New("out of paper") })
	tool("refuse", func(context.Context) (string, error) { return "", mcp.Errorf(-31000, "closed today") })
	tool("panic", func(context.Context) (string, error) { panic("secret") })
	tool("wait", func(ctx context.Context) (string, error) {
		<-ctx.Done()
		return "", context.Cause(ctx)
	})
	tool("think", func(ctx context.Context) (string, error) {
		res, err := mcp.Sample(ctx, "thought", &mcp.CreateMessageParams{MaxTokens: 5,
			Messages: []mcp.SamplingMessage{{Role: mcp.RoleUser, Content: []mcp.ContentBlock{mcp.Text("Think.")}}}})
		if err != nil {
			return "", err
		}
		return res.Text(), nil
	})
	mcp.AddPrompt(s, &mcp.Prompt{Name: "greet"}, func(context.Context, none) (string, error) { return "Hello", nil })
	mcp.AddResource(s, &mcp.Resource{URI: "x://hello", Name: "hello"},
		func(context.Context, string) (string, error) { return "hello", nil })
	return s
}

// addTask adds the tool print, whose calls become tasks.
func addTask(t testing.TB, s *mcp.Server, r *telemetry) {
	ts := tasks.NewServer(s, nil)
	tasks.AddTool(ts, &mcp.Tool{Name: "print"}, nil, func(ctx context.Context, _ struct{}) (string, error) {
		if err := tasks.Begin(ctx); err != nil {
			return "", err
		}
		r.within(ctx, "printing", func(context.Context) { time.Sleep(300 * time.Millisecond) })
		return "done", nil
	})
	t.Cleanup(func() { _ = ts.Close(context.Background()) })
}

// scenarios are the outcomes of requests.
var scenarios = []struct {
	name string
	run  func(ctx context.Context, t *testing.T, c *mcp.Client)
}{
	{"ok", func(ctx context.Context, t *testing.T, c *mcp.Client) {
		mustCall(ctx, t, c, "add", map[string]int{"a": 1, "b": 2})
		if _, err := c.GetPrompt(ctx, "greet", nil); err != nil {
			t.Error(err)
		}
		if _, err := c.ReadResource(ctx, "x://hello"); err != nil {
			t.Error(err)
		}
		for _, err := range c.Tools(ctx) {
			if err != nil {
				t.Error(err)
			}
		}
	}},
	{"tool-error", func(ctx context.Context, t *testing.T, c *mcp.Client) {
		for range 2 { // the second time the name is known
			if res, err := c.CallTool(ctx, "fail", nil); err != nil || !res.IsError {
				t.Errorf("result %v, error %v, want a tool error", res, err)
			}
		}
	}},
	{"protocol-error", func(ctx context.Context, t *testing.T, c *mcp.Client) {
		for _, tool := range []string{"refuse", "unknown", "panic"} {
			if _, err := c.CallTool(ctx, tool, nil); err == nil {
				t.Errorf("%s: no error", tool)
			}
		}
		if _, err := c.Do(ctx, "example/unknown", nil); err == nil {
			t.Error("unknown method: no error")
		}
	}},
	{"cancel", func(ctx context.Context, t *testing.T, c *mcp.Client) {
		ctx, cancel := context.WithCancel(ctx)
		time.AfterFunc(time.Second, cancel)
		if _, err := c.CallTool(ctx, "wait", nil); err == nil {
			t.Error("no error")
		}
		synctest.Wait()
	}},
	{"timeout", func(ctx context.Context, t *testing.T, c *mcp.Client) {
		ctx = mcp.WithCallOptions(ctx, mcp.CallOptions{Timeout: time.Second})
		if _, err := c.CallTool(ctx, "wait", nil); !errors.Is(err, mcp.ErrTimeout) {
			t.Errorf("error %v, want a timeout", err)
		}
		synctest.Wait()
	}},
	{"question", func(ctx context.Context, t *testing.T, c *mcp.Client) { mustCall(ctx, t, c, "think", nil) }},
	{"task", func(ctx context.Context, t *testing.T, c *mcp.Client) {
		if c.Revision() < "2025-11-25" {
			mustCall(ctx, t, c, "print", nil)
			return
		}
		h, err := tasks.Start(ctx, c, "print", nil)
		if err != nil {
			t.Fatal(err)
		}
		if res, err := h.Wait(ctx); err != nil || res.IsError {
			t.Errorf("result %v, error %v", res, err)
		}
	}},
	{"subscription", func(ctx context.Context, t *testing.T, c *mcp.Client) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		for _, err := range c.Listen(ctx, mcp.SubscriptionFilter{ToolsListChanged: true}) {
			if err != nil {
				t.Error(err)
			}
			break
		}
		synctest.Wait()
	}},
}

func mustCall(ctx context.Context, t *testing.T, c *mcp.Client, tool string, args any) {
	t.Helper()
	if res, err := c.CallTool(ctx, tool, args); err != nil || res.IsError {
		t.Errorf("call %s: result %v, error %v", tool, res, err)
	}
}

// oneProcess omits several processes, each of which has metrics of its own.
func oneProcess(all []mcptest.Combination) []mcptest.Combination {
	return slices.DeleteFunc(all, func(on mcptest.Combination) bool { return on.Transport == mcptest.Replicas })
}

// testdata has the spans and metrics of each scenario: review the diff after -update.
func TestGolden(t *testing.T) {
	for _, scenario := range scenarios {
		t.Run(scenario.name, func(t *testing.T) {
			spans, metrics := map[string]string{}, map[string]string{}
			for _, on := range oneProcess(mcptest.Combinations()) {
				t.Run(on.String(), func(t *testing.T) {
					r := newTelemetry(t, nil)
					synctest.Test(t, func(t *testing.T) {
						s := newServer(t, r)
						addTask(t, s, r)
						c := mcptest.Dial(t, s, on, tasks.Declare(&mcp.ClientOptions{Observer: r, Sample: r.think}, nil))
						r.within(t.Context(), "app", func(ctx context.Context) { scenario.run(ctx, t, c) })
					})
					spans[on.String()], metrics[on.String()] = r.spansText(on.Revision), r.metricsText(t, on.Revision)
				})
			}
			mcptest.Golden(t, filepath.Join("testdata", scenario.name+".spans.txt"), grouped(spans))
			mcptest.Golden(t, filepath.Join("testdata", scenario.name+".metrics.txt"), grouped(metrics))
		})
	}
}

// think is the model of the client, in a span of its own.
func (r *telemetry) think(ctx context.Context, _ *mcp.CreateMessageParams) (*mcp.CreateMessageResult, error) {
	res := &mcp.CreateMessageResult{Role: mcp.RoleAssistant, Model: "m", Content: []mcp.ContentBlock{mcp.Text("42")}}
	r.within(ctx, "answer", func(context.Context) {})
	return res, nil
}
