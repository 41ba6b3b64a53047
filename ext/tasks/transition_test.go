package tasks_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/ext/tasks"
	"github.com/patchbay-mcp/patchbay/jsonrpc"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// Each state of a task with each event.
//
// Requirement: TASKD-08, TASKX-21
func TestEveryTransition(t *testing.T) {
	states := map[string]string{ // and the tool whose task reaches the state
		"working": "works", "input_required": "asks", "completed": "ends", "failed": "fails", "cancelled": "works",
	}
	want := map[string]map[string]string{
		"working": {"answer": "working", "cancel": "cancelled", "expire": "failed", "result": "completed",
			"error": "failed", "ask": "input_required"},
		"input_required": {"answer": "completed", "cancel": "cancelled", "expire": "failed",
			"result": "input_required", "error": "input_required", "ask": "input_required"},
	}
	for _, final := range []string{"completed", "failed", "cancelled"} {
		want[final] = map[string]string{}
		for event := range want["working"] {
			want[final][event] = final
		}
		want[final]["expire"] = "" // unknown
	}
	for from, tool := range states {
		for event, to := range want[from] {
			t.Run(from+" and then "+event, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					next := make(chan func(ctx context.Context) (string, error), 1)
					b := newTestServer(t, nil, nil)
					b.tool("works", nil, func(ctx context.Context) (string, error) {
						if f, ok := <-next; ok { // ignores its context, so that its result comes late
							return f(ctx)
						}
						return "", nil
					})
					b.tool("ends", nil, func(context.Context) (string, error) { return "end", nil })
					b.tool("fails", nil, func(context.Context) (string, error) { return "", mcp.Errorf(-1, "failed") })
					ask := func(ctx context.Context) (string, error) { return mcp.Ask[string](ctx, "q", "?", nil) }
					b.tool("asks", nil, ask)
					c := connectClient(t, b)
					id := beginTask(t, c, tool, nil).TaskID
					synctest.Wait()
					if from == "cancelled" {
						c.Call("tasks/cancel", object{"taskId": id})
					}
					if got := getTask(t, c, id); got.Status != from {
						t.Fatalf("status %s, want %s", got.Status, from)
					}
					switch event {
					case "answer":
						c.Call("tasks/update",
							object{"taskId": id,
								"inputResponses": object{"q.1": object{"action": "accept",
									"content": object{"value": "x"}}}})
					case "cancel":
						c.Call("tasks/cancel", object{"taskId": id})
					case "expire":
						time.Sleep(24*time.Hour + time.Second)
					case "result":
						next <- func(context.Context) (string, error) { return "late", nil }
					case "error":
						next <- func(context.Context) (string, error) { return "", mcp.Errorf(-2, "late") }
					case "ask":
						next <- ask
					}
					synctest.Wait()
					if to == "" {
						_, err := c.Try("tasks/get", object{"taskId": id})
						wantCode(t, event, err, mcp.CodeInvalidParams)
					} else if got := getTask(t, c, id); got.Status != to {
						t.Errorf("status %s, want %s", got.Status, to)
					}
					close(next)
					b.closeServer(t)
				})
			})
		}
	}
}

// A checkedStore fails the test if a task changes after its end, or a key is used twice.
type checkedStore struct {
	tasks.Store
	t  *testing.T
	mu sync.Mutex
	at map[string]tasks.Record
}

func (s *checkedStore) Update(ctx context.Context, r tasks.Record) error {
	err := s.Store.Update(ctx, r)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if before, ok := s.at[r.ID]; ok && before.Done {
		s.t.Errorf("task %s changed after its end: %s\nto %s", r.ID, before.Data, r.Data)
	}
	s.at[r.ID] = r
	return nil
}

// Concurrent answers, cancellations, expiry and results. Each task has one final status.
func TestConcurrentEndsOfTask(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &checkedStore{Store: tasks.NewMemory(), t: t, at: map[string]tasks.Record{}}
		b := newTestServer(t, &tasks.Options{Store: store, MaxRunning: 16}, nil)
		var entered atomic.Int32
		b.tool("ask", &tasks.ToolOptions{TTL: 3 * time.Second}, func(ctx context.Context) (string, error) {
			entered.Add(1)
			time.Sleep(time.Second)
			v, err := mcp.Ask[string](ctx, "q", "?", nil)
			if err != nil {
				return "", err
			}
			time.Sleep(time.Second)
			return v, nil
		})
		c := connectClient(t, b)
		const n = 64
		var wg sync.WaitGroup
		ends := make([]string, n)
		for i := range n {
			id := beginTask(t, c, "ask", nil).TaskID
			send := func(method string, at time.Duration, params object) {
				wg.Go(func() {
					time.Sleep(at)
					params["taskId"] = id
					if m := c.Send(method, params).Wait(); m.Error != nil {
						t.Errorf("%s: %v", method, m.Error)
					}
				})
			}
			accept := func() object {
				return object{"inputResponses": object{"q.1": object{"action": "accept",
					"content": object{"value": "x"}}}}
			}
			for k := range 3 {
				send("tasks/update", time.Second+time.Duration(k)*time.Millisecond, accept())
			}
			if i%2 == 0 {
				send("tasks/cancel", []time.Duration{0, time.Second, 2 * time.Second, 3 * time.Second}[i/2%4], object{})
			}
			wg.Go(func() {
				for range 80 {
					time.Sleep(50 * time.Millisecond)
					m := c.Send("tasks/get", object{"taskId": id}).Wait()
					got := decode[wireTask](t, m.Result)
					if final := tasks.Status(got.Status).Final(); ends[i] != "" && got.Status != ends[i] {
						t.Errorf("%s after %s", got.Status, ends[i])
					} else if final {
						ends[i] = got.Status
					}
				}
			})
		}
		wg.Wait()
		counts := map[string]int{}
		for _, end := range ends {
			counts[end]++
		}
		if counts[""] != 0 {
			t.Errorf("ends: %v", counts)
		}
		t.Logf("ends: %v, %d runs", counts, entered.Load())
		b.closeServer(t)
	})
}

// A conflict, as when servers share a store by mistake, is retried.
func TestConflictIsRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conflicts := 3
		s := &interceptedStore{Store: tasks.NewMemory()}
		s.update = func(r tasks.Record) error {
			if conflicts--; conflicts < 0 {
				return nil
			}
			other, err := s.Store.Get(context.Background(), r.Owner, r.ID)
			if err != nil {
				return err
			}
			return s.Store.Update(context.Background(), other)
		}
		b := newTestServer(t, &tasks.Options{Store: s}, nil)
		b.tool("run", nil, func(context.Context) (string, error) { return "done", nil })
		c := connectClient(t, b)
		if got := finalTask(t, c, beginTask(t, c, "run", nil).TaskID); got.Result.text() != "done" {
			t.Errorf("got %+v", got)
		}
		b.closeServer(t)
	})
}

// A result that is too large for the store fails the task.
func TestResultThatIsTooLarge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTestServer(t, nil, nil)
		b.tool("large", nil,
			func(context.Context) (string, error) {
				return string(make([]byte, tasks.MaxRecord/6)),
					nil
			}) // \u0000 each
		c := connectClient(t, b)
		got := finalTask(t, c, beginTask(t, c, "large", nil).TaskID)
		if got.Status != "failed" || got.Error == nil || got.Error.Code != mcp.CodeInternalError {
			t.Errorf("got %s, %v", got.Status, got.Error)
		}
		b.closeServer(t)
	})
}

// Progress is visible at once, is sanitized, and is not stored.
func TestProgressIsTheStatusMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var writes atomic.Int32
		s := &interceptedStore{Store: tasks.NewMemory(), update: func(tasks.Record) error { writes.Add(1); return nil }}
		b := newTestServer(t, &tasks.Options{Store: s}, nil)
		steps := make(chan func(ctx context.Context))
		b.tool("run", nil, func(ctx context.Context) (string, error) {
			for step := range steps {
				step(ctx)
			}
			return "", errors.New("failed")
		})
		c := connectClient(t, b)
		id := beginTask(t, c, "run", nil).TaskID
		for i, step := range []struct {
			done, total float64
			message     string
			want        string
		}{
			{1, 0, "", "1"}, {2, 10, "", "2 of 10"}, {2.5, 10, "half", "half"}, {3, 10, "bad \xff text", ""}, {4, 0,
				fmt.Sprintf("%01000d", 7), fmt.Sprintf("%0512d", 0)},
		} {
			steps <- func(ctx context.Context) { mcp.Progress(ctx, step.done, step.total, step.message) }
			synctest.Wait()
			if got := getTask(t, c, id); step.want != "" && got.StatusMessage != step.want {
				t.Errorf("step %d: %q", i, got.StatusMessage)
			}
		}
		if writes.Load() != 0 {
			t.Errorf("%d writes, want 0", writes.Load())
		}
		close(steps)
		if got := finalTask(t, c, id); got.StatusMessage != "" {
			t.Errorf("got %+v", got)
		}
		b.closeServer(t)
	})
}

// A task that leaves no headroom in its record is refused. The largest one that does leave it runs.
func TestRecordHasHeadroom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var size atomic.Int64
		s := &interceptedStore{Store: tasks.NewMemory(),
			create: func(r tasks.Record) error { size.Store(int64(len(r.Data))); return nil }}
		b := newTestServer(t, &tasks.Options{Store: s, MaxRunning: 1}, nil)
		addSleepTool(b, "sleep", nil)
		type text struct{ Text string }
		tasks.AddTool(b.Server, &mcp.Tool{Name: "large"}, &tasks.ToolOptions{ManualStart: true},
			func(ctx context.Context, _ text) (string, error) {
				_, err := mcp.Once(ctx, "much",
					func(context.Context) (string, error) { return strings.Repeat("x", 15<<20), nil })
				if err != nil {
					return "", err
				}
				return "done", tasks.Begin(ctx)
			})
		c := connectClient(t, b)
		beginTask(t, c, "sleep", nil) // so that the others are queued
		call := func(n int64) *jsonrpc.Message {
			return c.Send("tools/call",
				object{"name": "large", "arguments": object{"Text": strings.Repeat("x", int(n))}}).Wait()
		}
		if m := call(1000); m.Error != nil {
			t.Fatal(m.Error)
		}
		full := 1000 + tasks.MaxRecord - size.Load()
		wantCode(t, "a full record", call(full).Error, mcp.CodeInvalidParams)
		m := call(full - 8<<10)
		if m.Error != nil || size.Load() > tasks.MaxRecord-8<<10 {
			t.Fatalf("%v, %d bytes", m.Error, size.Load())
		}
		time.Sleep(2 * time.Minute)
		if got := getTask(t, c, decode[wireTask](t, m.Result).TaskID); got.Result.text() != "done" {
			t.Errorf("got %s, %v", got.Status, got.Error)
		}
		b.closeServer(t)
	})
}
