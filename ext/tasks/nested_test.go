package tasks_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/ext/tasks"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcp/driver"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// A handler may call another server in the same process with its own context.
func TestNestedServersHaveSeparateTasks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := newTestServer(t, nil, nil)
		inner.tool("must", &tasks.ToolOptions{Required: true},
			func(context.Context) (string, error) { return "ran", nil })
		bare := mcp.NewServer("bare", "1", nil)
		plain := func(ctx context.Context, _ struct{}) (string, error) { return tasks.IDFrom(ctx), tasks.Begin(ctx) }
		mcp.AddTool(inner.server, &mcp.Tool{Name: "plain"}, plain)
		mcp.AddTool(bare, &mcp.Tool{Name: "plain"}, plain)
		var clients []*mcp.Client
		for _, s := range []*mcp.Server{inner.server, bare} {
			client, err := mcp.Connect(t.Context(), mcp.InMemory(s), nil)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = client.Close() }()
			clients = append(clients, client)
		}
		call := func(ctx context.Context) (string, error) {
			_, required := clients[0].CallTool(ctx, "must", nil)
			var fault *mcp.Error
			if !errors.As(required, &fault) || fault.Code != driver.CodeMissingRequiredClientCapability {
				t.Errorf("a required tool within: %v", required)
			}
			for _, client := range clients {
				r, err := client.CallTool(ctx, "plain", nil)
				if err != nil || !r.IsError ||
					!strings.Contains(r.Content[0].(*mcp.TextContent).Text, "outside a handler") {
					t.Errorf("Begin within: %+v, %v", r, err)
				}
			}
			return "called", nil
		}
		outer := newTestServer(t, nil, nil)
		outer.tool("task", nil, call)
		outer.tool("manual", &tasks.ToolOptions{ManualStart: true}, call)
		c := connectClient(t, outer)
		if got := finalTask(t, c, beginTask(t, c, "task", nil).TaskID); got.Result.text() != "called" {
			t.Errorf("got %+v", got)
		}
		if got := decode[toolResult](t, c.Call("tools/call", object{"name": "manual"})); got.text() != "called" {
			t.Errorf("got %+v", got)
		}
		outer.closeServer(t)
		inner.closeServer(t)
	})
}

// A question is sent to a client that supports it. Other clients of the owner wait.
func TestQuestionGoesToClientWithCapability(t *testing.T) {
	add := func(b *testServer) {
		b.tool("ask", nil, func(ctx context.Context) (string, error) { return mcp.Ask[string](ctx, "q", "?", nil) })
	}
	runOn(t, combinationsOf(revision2025), nil, add, func(t *testing.T, b *testServer, c *mcptest.Client) {
		id := beginTask(t, c, "ask", nil).TaskID
		synctest.Wait()
		o := c.Options
		o.Capabilities = object{}
		o.Answer = func(method string, _ json.RawMessage) (any, error) {
			t.Errorf("the client without the capability got %s", method)
			return nil, errors.New("no")
		}
		limited := c.Another(&o)
		p := limited.Send("tasks/result", object{"taskId": id})
		synctest.Wait()
		answerTask(t, c, id, object{"value": "x"})
		if got := decode[toolResult](t, p.Wait().Result); got.text() != "x" {
			t.Errorf("got %+v", got)
		}
	})
}

// If the store does not confirm a creation, no unknown task remains.
func TestUncertainCreationLeavesNoTask(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &unconfirmedStore{Store: tasks.NewMemory()}
		b := newTestServer(t, &tasks.Options{Store: s}, nil)
		var runs atomic.Int32
		b.tool("run", nil, func(context.Context) (string, error) { runs.Add(1); return "", nil })
		c := connectClient(t, b)
		_, err := c.Try("tools/call", object{"name": "run"})
		wantCode(t, "an unconfirmed creation", err, mcp.CodeInternalError)
		time.Sleep(time.Minute)
		if n, _, _ := s.CountAll(t.Context()); n != 0 || runs.Load() != 0 {
			t.Errorf("%d tasks, %d runs", n, runs.Load())
		}
		b.closeServer(t)
	})
}

// An unconfirmedStore creates the record and returns an error.
type unconfirmedStore struct{ tasks.Store }

func (s *unconfirmedStore) Create(ctx context.Context, r tasks.Record) error {
	return errors.Join(s.Store.Create(ctx, r), errors.New("timed out"))
}

// A queued task that was started and interrupted fails.
func TestQueuedRunIsStoredAsStarted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := tasks.NewMemory()
		var runs atomic.Int32
		add := func(b *testServer) {
			b.tool("run", nil, func(ctx context.Context) (string, error) {
				runs.Add(1)
				select {
				case <-time.After(time.Minute):
					return "ran", nil
				case <-ctx.Done():
					return "", ctx.Err()
				}
			})
		}
		b := newTestServer(t, &tasks.Options{Store: store, MaxRunning: 1}, nil)
		add(b)
		c := connectClient(t, b)
		beginTask(t, c, "run", nil)
		id := beginTask(t, c, "run", nil).TaskID
		time.Sleep(90 * time.Second)
		next := newTestServer(t, &tasks.Options{Store: snapshot(t, store)}, nil)
		add(next)
		if err := next.Recover(t.Context()); err != nil {
			t.Fatal(err)
		}
		c = connectClient(t, next)
		if got := finalTask(t, c, id); got.Status != "failed" || runs.Load() != 2 {
			t.Errorf("%d runs, got %+v", runs.Load(), got)
		}
		b.closeServer(t)
		next.closeServer(t)
	})
}

// Answers that are too large are refused and do not change the task.
func TestAnswersThatAreTooLarge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTestServer(t, nil, nil)
		b.tool("ask", nil, func(ctx context.Context) (string, error) { return mcp.Ask[string](ctx, "q", "?", nil) })
		c := connectClient(t, b)
		id := beginTask(t, c, "ask", nil).TaskID
		synctest.Wait()
		large := object{"q.1": object{"action": "accept", "content": object{"value": strings.Repeat("x", 4<<20)}}}
		_, err := c.Try("tasks/update", object{"taskId": id, "inputResponses": large})
		wantCode(t, "4 MiB", err, mcp.CodeInvalidParams)
		if got := getTask(t, c, id); got.Status != "input_required" {
			t.Errorf("got %+v", got)
		}
		b.closeServer(t)
	})
}

// Invalid options panic.
func TestInvalidOptionsPanic(t *testing.T) {
	panics := func(what string, f func()) {
		defer func() {
			if recover() == nil {
				t.Errorf("%s: no panic", what)
			}
		}()
		f()
	}
	s := mcp.NewServer("test", "1", nil)
	for what, o := range map[string]*tasks.Options{
		"ttl": {TTL: -1}, "a long ttl": {TTL: 1 << 62}, "poll": {PollInterval: time.Microsecond},
		"a short lease": {Lease: 5 * time.Second}, "a long lease": {Lease: 2 * time.Hour},
		"tasks": {MaxTasks: -1}, "running": {MaxRunning: -1},
	} {
		panics(what, func() { tasks.NewServer(s, o) })
	}
	m := tasks.NewServer(s, nil)
	panics("a second NewServer", func() { tasks.NewServer(s, nil) })
	panics("a tool's ttl", func() {
		tasks.AddTool(m, &mcp.Tool{Name: "x"}, &tasks.ToolOptions{TTL: -1},
			func(context.Context, struct{}) (string, error) { return "", nil })
	})
}
