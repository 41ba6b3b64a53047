package host_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/ext/tasks"
	"github.com/patchbay-mcp/patchbay/host"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// A taskServer has tools that run as tasks, and counts their runs.
type taskServer struct {
	*mcp.Server
	runs atomic.Int32
}

func newTaskServer(t *testing.T, name string) *taskServer {
	s := &taskServer{Server: mcp.NewServer(name, "1.0.0", nil)}
	ts := tasks.NewServer(s.Server, nil)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
		defer cancel()
		if err := ts.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	tool := func(tool string, o *tasks.ToolOptions, f func(ctx context.Context) (string, error)) {
		tasks.AddTool(ts, &mcp.Tool{Name: tool}, o, func(ctx context.Context, _ struct{}) (string, error) {
			return f(ctx)
		})
	}
	tool("nap", nil, func(ctx context.Context) (string, error) {
		s.runs.Add(1)
		for n := range 5 {
			mcp.Progress(ctx, float64(n+1), 5, fmt.Sprint("step ", n+1))
			select {
			case <-time.After(time.Minute):
			case <-ctx.Done():
				return "", context.Cause(ctx)
			}
		}
		return name + " rested", nil
	})
	tool("doze", nil, func(ctx context.Context) (string, error) { // longer than a request may take
		select {
		case <-time.After(10 * time.Minute):
			return "dozed", nil
		case <-ctx.Done():
			return "", context.Cause(ctx)
		}
	})
	tool("meet", nil, func(ctx context.Context) (string, error) {
		first, err := mcp.Ask[bool](ctx, "first", "First?", nil)
		if err != nil {
			return "", err
		}
		second, err := mcp.Ask[bool](ctx, "second", "Second?", nil)
		return fmt.Sprint(name, " ", first, " ", second), err
	})
	tool("fail", nil, func(context.Context) (string, error) { return "", errors.New("no paper") })
	tool("refuse", nil, func(context.Context) (string, error) { return "", mcp.Errorf(-31000, "closed today") })
	tool("must", &tasks.ToolOptions{Required: true}, func(context.Context) (string, error) { return "done", nil })
	mcp.AddTool(s.Server, &mcp.Tool{Name: "plain"}, func(context.Context, struct{}) (string, error) {
		return "plain", nil
	})
	return s
}

// newTaskHost is [newHost] for servers with tasks: the schema of the newest revision does not have
// them.
func newTaskHost(t *testing.T, servers map[string]mcp.Handler, on mcptest.Combination) *host.Host {
	return openTaskHost(t, servers, on, "{}")
}

func openTaskHost(t *testing.T, servers map[string]mcp.Handler, on mcptest.Combination, settings string) *host.Host {
	schema := on.Revision
	if on.Modern() {
		schema = ""
	}
	return openHost(t, servers, on, settings, schema, [][]byte{slices.Repeat([]byte{7}, 32)})
}

func hasTasks(on mcptest.Combination) bool { return on.Since("2025-11-25") }

// Clients with tasks of either form use servers with tasks of either form. The others wait for
// results.
//
// Requirement: HOST-31
func TestTasksInEveryForm(t *testing.T) {
	forEachPair(t, func(t *testing.T, up, down mcptest.Combination) {
		a, b := newTaskServer(t, "a"), newTaskServer(t, "b")
		h := newTaskHost(t, map[string]mcp.Handler{"a": a, "b": b}, up)
		var asked []string
		c := mcptest.Dial(t, h.For(&policy.Caller{}), down, tasks.Declare(&mcp.ClientOptions{
			Timeout: time.Hour, // without tasks, the client waits for the result
			Elicit: func(_ context.Context, p *mcp.ElicitRequestParams) (*mcp.ElicitResult, error) {
				asked = append(asked, p.Message)
				return &mcp.ElicitResult{Action: mcp.ElicitAccept, Content: json.RawMessage(`{"value":true}`)}, nil
			},
		}, nil))
		wantTools(t, c, up, down)
		if !hasTasks(up) || !hasTasks(down) {
			return
		}
		useTasks(t, c)
		if runs := b.runs.Load(); runs != 1 || a.runs.Load() != 0 {
			t.Errorf("the tool nap ran %d times at its server and %d times at the other", runs, a.runs.Load())
		}
		if want := []string{"[b] First?", "[b] Second?"}; !slices.Equal(asked, want) {
			t.Errorf("questions: got %q, want %q", asked, want)
		}
	})
}

// wantTools checks that a tool that runs as a task only is listed for clients that can call it.
func wantTools(t *testing.T, c *mcp.Client, up, down mcptest.Combination) {
	t.Helper()
	tools, err := mcp.Collect(c.Tools(t.Context()))
	if err != nil {
		t.Fatal(err)
	}
	listed := slices.ContainsFunc(tools, func(tool *mcp.Tool) bool { return tool.Name == "b__must" })
	want := hasTasks(down) && hasTasks(up) || up.Modern()
	if listed != want {
		t.Errorf("the tool must is listed: %v, want %v", listed, want)
	}
	if r, err := c.CallTool(t.Context(), "b__plain", nil); err != nil || r.Text() != "plain" {
		t.Errorf("plain tool: got %+v, %v", r, err)
	}
	if up.Revision == "2025-11-25" && !hasTasks(down) {
		var refused *mcp.Error
		_, err := c.CallTool(t.Context(), "b__must", nil)
		if !errors.As(err, &refused) || refused.Code != mcp.CodeInvalidParams {
			t.Errorf("hidden tool: got %v", err)
		}
	}
}

func useTasks(t *testing.T, c *mcp.Client) {
	t.Helper()
	h := start(t, c, "b__nap")
	task, err := h.Get(t.Context())
	if err != nil || task.Status != tasks.StatusWorking || task.ID != h.ID() || task.TTL != 24*time.Hour {
		t.Fatalf("get: got %+v, %v", task, err)
	}
	if len(h.ID()) > 512 {
		t.Errorf("the id has %d bytes", len(h.ID()))
	}
	wantResult(t, h, "b rested")
	wantResult(t, tasks.Resume(c, h.ID()), "b rested")
	if task, err = h.Get(t.Context()); err != nil || task.Status != tasks.StatusCompleted {
		t.Errorf("get after the end: got %+v, %v", task, err)
	}
	wantResult(t, start(t, c, "b__doze"), "dozed")
	wantResult(t, start(t, c, "b__meet"), "b true true")
	wantResult(t, start(t, c, "b__must"), "done")
	wantResult(t, start(t, c, "b__plain"), "plain")

	r, err := start(t, c, "b__fail").Wait(t.Context())
	if err != nil || !r.IsError || !strings.Contains(r.Text(), "no paper") {
		t.Errorf("tool error: got %+v, %v", r, err)
	}
	var fault *mcp.Error
	if _, err = start(t, c, "b__refuse").Wait(t.Context()); !errors.As(err, &fault) || fault.Code != -31000 {
		t.Errorf("error: got %v", err)
	}
	cancelTask(t, c)
}

func cancelTask(t *testing.T, c *mcp.Client) {
	t.Helper()
	h := start(t, c, "a__meet")
	if err := h.Cancel(t.Context()); err != nil {
		t.Errorf("cancel: %v", err)
	}
	if task, err := h.Get(t.Context()); err != nil || task.Status != tasks.StatusCancelled {
		t.Errorf("after cancel: got %+v, %v", task, err)
	}
	if _, err := h.Wait(t.Context()); !errors.Is(err, mcp.ErrCancelled) {
		t.Errorf("wait after cancel: %v", err)
	}
	if _, err := tasks.Resume(c, "none").Get(t.Context()); !isUnknownTask(err) {
		t.Errorf("unknown task: got %v", err)
	}
}

func start(t *testing.T, c *mcp.Client, tool string) *tasks.Handle {
	t.Helper()
	h, err := tasks.Start(t.Context(), c, tool, nil)
	if err != nil {
		t.Fatalf("start %s: %v", tool, err)
	}
	return h
}

func wantResult(t *testing.T, h *tasks.Handle, want string) {
	t.Helper()
	r, err := h.Wait(t.Context())
	if err != nil {
		t.Errorf("task of %s: %v", h.Tool(), err)
	} else if r.Text() != want {
		t.Errorf("task of %s: got %q, want %q", h.Tool(), r.Text(), want)
	}
}
