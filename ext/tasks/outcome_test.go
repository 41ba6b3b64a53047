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
	add := func(b *bench) {
		for name, fault := range faults {
			b.tool(name, nil, func(context.Context) (string, error) { return "", fault })
		}
		b.tool("quick", nil, func(context.Context) (string, error) { return "done", nil })
	}
	on(t, mcptest.Since(revision2025), &tasks.Options{MaxRunning: 1}, add,
		func(t *testing.T, b *bench, c *mcptest.Client) {
			for name := range faults {
				got := finished(t, c, begin(t, c, name, nil).TaskID)
				if got.Status != "failed" || got.Error == nil || got.Error.Code != -32001 ||
					!strings.HasPrefix(got.Error.Message, "file ") {
					t.Errorf("%s: %+v", name, got)
				}
			}
			if got := finished(t, c, begin(t, c, "quick", nil).TaskID); got.Result.text() != "done" {
				t.Errorf("the next one: %+v", got)
			}
		})
}

// A handler that calls runtime.Goexit fails its task and does not run again.
func TestHandlerThatCallsGoexit(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := newBench(t, nil, nil)
		var runs atomic.Int32
		b.tool("exit", &tasks.ToolOptions{Restartable: true}, func(context.Context) (string, error) {
			runs.Add(1)
			runtime.Goexit()
			return "", nil
		})
		c := connected(t, b)
		id := begin(t, c, "exit", nil).TaskID
		for range 3 {
			if got := finished(t, c, id); got.Status != "failed" ||
				!strings.Contains(got.StatusMessage, "without a result") {
				t.Errorf("got %+v", got)
			}
		}
		if runs.Load() != 1 {
			t.Errorf("%d runs", runs.Load())
		}
		b.shut(t)
	})
}

// The result of a handler during Close is stored, unless it is the error of its context.
func TestOutcomeDuringClose(t *testing.T) {
	outcomes := map[string]struct {
		err    error
		stands bool
	}{
		"its own error":    {mcp.Errorf(-32050, "card declined"), true},
		"its tool error":   {errors.New("card declined"), true},
		"its context":      {context.Canceled, false},
		"the cause":        {fmt.Errorf("charge: %w", mcp.ErrShutdown), false},
		"a wrapped cancel": {fmt.Errorf("charge: %w", context.Canceled), false},
	}
	for name, o := range outcomes {
		for _, again := range []bool{false, true} {
			inBubble(t, func(t *testing.T) {
				store := tasks.NewMemory()
				var runs atomic.Int32
				add := func(b *bench) {
					b.tool("pay", &tasks.ToolOptions{Restartable: again}, func(ctx context.Context) (string, error) {
						if runs.Add(1) > 1 {
							return "paid", nil
						}
						<-ctx.Done()
						return "", o.err
					})
				}
				b := newBench(t, &tasks.Options{Store: store}, nil)
				add(b)
				id := begin(t, connected(t, b), "pay", nil).TaskID
				synctest.Wait()
				b.shut(t)
				next := newBench(t, &tasks.Options{Store: store}, nil)
				add(next)
				if err := next.Recover(t.Context()); err != nil {
					t.Fatal(err)
				}
				got := finished(t, connected(t, next), id)
				said, _ := json.Marshal(got)
				wantRuns := int32(1)
				if !o.stands && again {
					wantRuns = 2
				}
				if stands := strings.Contains(string(said), "card declined"); stands != o.stands ||
					runs.Load() != wantRuns {
					t.Errorf("%s, again %t: %d runs, %s", name, again, runs.Load(), said)
				}
				next.shut(t)
			})
		}
	}
}

// A handler that ignores the error of Begin is logged: its effects happen twice.
func TestBeginWithIgnoredError(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		var log strings.Builder
		s := mcp.NewServer("test", "1", nil)
		m := tasks.NewServer(s, &tasks.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		b := &bench{m, s}
		b.tool("swallow", &tasks.ToolOptions{ManualStart: true}, func(ctx context.Context) (string, error) {
			_ = tasks.Begin(ctx)
			return "done", nil
		})
		b.tool("proper", &tasks.ToolOptions{ManualStart: true},
			func(ctx context.Context) (string, error) { return "done", tasks.Begin(ctx) })
		c := connected(t, b)
		finished(t, c, begin(t, c, "proper", nil).TaskID)
		if log.Len() > 0 {
			t.Errorf("log: %s", log.String())
		}
		finished(t, c, begin(t, c, "swallow", nil).TaskID)
		if !strings.Contains(log.String(), "tool=swallow") {
			t.Errorf("log: %q", log.String())
		}
		b.shut(t)
	})
}

// The status message of a waiting task has its questions.
func TestStatusMessageOfWaitingTask(t *testing.T) {
	add := func(b *bench) {
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
	on(t, mcptest.Since(revision2025), nil, add, func(t *testing.T, b *bench, c *mcptest.Client) {
		id := begin(t, c, "ask", nil).TaskID
		synctest.Wait()
		got := get(t, c, id).StatusMessage
		if !strings.HasPrefix(got, "Who are you?; éé") || len(got) > 512 || strings.ContainsRune(got, '\uFFFD') {
			t.Errorf("it says %q", got)
		}
		if c.Modern() {
			c.Call("tasks/update",
				object{"taskId": id,
					"inputResponses": object{"a.1": object{"action": "accept", "content": object{"value": "x"}}}})
			if got := get(t, c, id).StatusMessage; !strings.HasPrefix(got, "éé") {
				t.Errorf("with one answer, it says %q", got)
			}
		}
		answer(t, c, id, object{"value": "x"})
		time.Sleep(time.Second)
		if got := get(t, c, id); got.Status != "working" || strings.Contains(got.StatusMessage, "é") {
			t.Errorf("answered: %+v", got)
		}
		time.Sleep(2 * time.Minute)
		id = begin(t, c, "sample", nil).TaskID
		synctest.Wait()
		if got := get(t, c, id); got.Status != "input_required" || got.StatusMessage != "" {
			t.Errorf("sampling: %+v", got)
		}
	})
}
