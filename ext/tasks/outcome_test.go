package tasks_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/ext/tasks"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// An error that JSON cannot hold ends its task, without the invalid parts.
func TestErrorThatCannotBeEncoded(t *testing.T) {
	faults := map[string]*mcp.Error{
		"name":      mcp.Errorf(-32001, "file %s not found", "caf\xe9.txt"),
		"twice":     {Code: -32001, Message: "file not found", Data: []byte(`{"a":1,"a":2}`)},
		"none":      {Code: -32001, Message: "file not found", Data: []byte(`{nope`)},
		"surrogate": {Code: -32001, Message: "file not found", Data: []byte(`"\ud800"`)},
	}
	add := func(b *testServer) {
		for name, fault := range faults {
			b.tool(name, nil, func(context.Context) (string, error) { return "", fault })
		}
		b.tool("quick", nil, func(context.Context) (string, error) { return "done", nil })
	}
	runOn(t, mcptest.Since(revision2025), &tasks.Options{MaxRunning: 1}, add,
		func(t *testing.T, b *testServer, c *mcptest.Client) {
			for name := range faults {
				got := finalTask(t, c, beginTask(t, c, name, nil).TaskID)
				if got.Status != "failed" || got.Error == nil || got.Error.Code != -32001 ||
					!strings.HasPrefix(got.Error.Message, "file ") {
					t.Errorf("%s: %+v", name, got)
				}
			}
			if got := finalTask(t, c, beginTask(t, c, "quick", nil).TaskID); got.Result.text() != "done" {
				t.Errorf("the next task: %+v", got)
			}
		})
}

// A handler that calls runtime.Goexit fails its task and does not run again.
func TestHandlerThatCallsGoexit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTestServer(t, nil, nil)
		var runs atomic.Int32
		b.tool("exit", &tasks.ToolOptions{Restartable: true}, func(context.Context) (string, error) {
			runs.Add(1)
			runtime.Goexit()
			return "", nil
		})
		c := connectClient(t, b)
		id := beginTask(t, c, "exit", nil).TaskID
		for range 3 {
			if got := finalTask(t, c, id); got.Status != "failed" ||
				!strings.Contains(got.StatusMessage, "without a result") {
				t.Errorf("got %+v", got)
			}
		}
		if runs.Load() != 1 {
			t.Errorf("%d runs, want 1", runs.Load())
		}
		b.closeServer(t)
	})
}

// The result of a handler during Close is stored, unless it is the error of its context.
func TestOutcomeDuringClose(t *testing.T) {
	outcomes := map[string]struct {
		err    error
		stored bool
	}{
		"its own error":    {mcp.Errorf(-32050, "card declined"), true},
		"its tool error":   {errors.New("card declined"), true},
		"its context":      {context.Canceled, false},
		"the cause":        {fmt.Errorf("charge: %w", mcp.ErrShutdown), false},
		"a wrapped cancel": {fmt.Errorf("charge: %w", context.Canceled), false},
	}
	for name, o := range outcomes {
		for _, again := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				store := tasks.NewMemory()
				var runs atomic.Int32
				add := func(b *testServer) {
					b.tool("pay", &tasks.ToolOptions{Restartable: again}, func(ctx context.Context) (string, error) {
						if runs.Add(1) > 1 {
							return "paid", nil
						}
						<-ctx.Done()
						return "", o.err
					})
				}
				b := newTestServer(t, &tasks.Options{Store: store}, nil)
				add(b)
				id := beginTask(t, connectClient(t, b), "pay", nil).TaskID
				synctest.Wait()
				b.closeServer(t)
				next := newTestServer(t, &tasks.Options{Store: store}, nil)
				add(next)
				if err := next.Recover(t.Context()); err != nil {
					t.Fatal(err)
				}
				got := finalTask(t, connectClient(t, next), id)
				state, _ := json.Marshal(got)
				wantRuns := int32(1)
				if !o.stored && again {
					wantRuns = 2
				}
				if stored := strings.Contains(string(state), "card declined"); stored != o.stored ||
					runs.Load() != wantRuns {
					t.Errorf("%s, again %t: %d runs, %s", name, again, runs.Load(), state)
				}
				next.closeServer(t)
			})
		}
	}
}

// A handler that ignores the error of Begin is logged, since its effects happen twice.
func TestBeginWithIgnoredError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		s := mcp.NewServer("test", "1", nil)
		m := tasks.NewServer(s, &tasks.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		b := &testServer{m, s}
		b.tool("swallow", &tasks.ToolOptions{ManualStart: true}, func(ctx context.Context) (string, error) {
			_ = tasks.Begin(ctx)
			return "done", nil
		})
		b.tool("proper", &tasks.ToolOptions{ManualStart: true},
			func(ctx context.Context) (string, error) { return "done", tasks.Begin(ctx) })
		c := connectClient(t, b)
		finalTask(t, c, beginTask(t, c, "proper", nil).TaskID)
		if log.Len() > 0 {
			t.Errorf("log: %s", log.String())
		}
		finalTask(t, c, beginTask(t, c, "swallow", nil).TaskID)
		if !strings.Contains(log.String(), "tool=swallow") {
			t.Errorf("log: %q", log.String())
		}
		b.closeServer(t)
	})
}

// The status message of a waiting task contains its questions.
func TestStatusMessageOfWaitingTask(t *testing.T) {
	add := func(b *testServer) {
		b.tool("ask", nil, func(ctx context.Context) (string, error) {
			mcp.Progress(ctx, 40, 100, "counting")
			var a, c string
			err := mcp.AskAll(ctx, mcp.FormQuestion("a", "Who\nare you?", &a, nil),
				mcp.FormQuestion("b", strings.Repeat("é", 600), &c, nil))
			if err != nil {
				return "", err
			}
			time.Sleep(time.Minute)
			return a + c, nil
		})
		b.tool("sample", nil, func(ctx context.Context) (string, error) {
			mcp.Progress(ctx, 40, 100, "counting")
			_, err := mcp.Sample(ctx, "s", &mcp.CreateMessageParams{
				Messages: []mcp.SamplingMessage{{Role: mcp.RoleUser,
					Content: []mcp.ContentBlock{&mcp.TextContent{Text: "Hello"}}}},
				MaxTokens: 1,
			})
			return "", err
		})
	}
	runOn(t, mcptest.Since(revision2025), nil, add, func(t *testing.T, b *testServer, c *mcptest.Client) {
		id := beginTask(t, c, "ask", nil).TaskID
		synctest.Wait()
		got := getTask(t, c, id).StatusMessage
		if !strings.HasPrefix(got, "Who are you?; éé") || len(got) > 512 || strings.ContainsRune(got, '\uFFFD') {
			t.Errorf("status message %q", got)
		}
		if c.Modern() {
			c.Call("tasks/update",
				object{"taskId": id,
					"inputResponses": object{"a.1": object{"action": "accept", "content": object{"value": "x"}}}})
			if got := getTask(t, c, id).StatusMessage; !strings.HasPrefix(got, "éé") {
				t.Errorf("status message after one answer %q", got)
			}
		}
		answerTask(t, c, id, object{"value": "x"})
		time.Sleep(time.Second)
		if got := getTask(t, c, id); got.Status != "working" || strings.Contains(got.StatusMessage, "é") {
			t.Errorf("answered: %+v", got)
		}
		time.Sleep(2 * time.Minute)
		id = beginTask(t, c, "sample", nil).TaskID
		synctest.Wait()
		if got := getTask(t, c, id); got.Status != "input_required" || got.StatusMessage != "" {
			t.Errorf("sampling: %+v", got)
		}
	})
}
