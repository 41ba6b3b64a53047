package tasks_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/ext/tasks"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// An interceptedStore calls its functions before each operation.
type interceptedStore struct {
	tasks.Store
	create, update func(tasks.Record) error
	after          func(tasks.Record) error // called after an update
}

func (s *interceptedStore) Create(ctx context.Context, r tasks.Record) error {
	if s.create != nil {
		if err := s.create(r); err != nil {
			return err
		}
	}
	return s.Store.Create(ctx, r)
}

func (s *interceptedStore) Update(ctx context.Context, r tasks.Record) error {
	if s.update != nil {
		if err := s.update(r); err != nil {
			return err
		}
	}
	err := s.Store.Update(ctx, r)
	if err == nil && s.after != nil {
		err = s.after(r)
	}
	return err
}

// modernInMemory is one combination, for tests that need no other.
var modernInMemory = mcptest.Combination{Transport: mcptest.InMemory, Revision: mcptest.Modern}

// connectClient returns a client of a server with tasks.
func connectClient(t *testing.T, b *testServer) *mcptest.Client {
	t.Helper()
	return mcptest.Connect(t, b.server, modernInMemory, &mcptest.Options{
		Capabilities: taskCapabilities,
		Extension: mcptest.Extension{ResultTypes: []string{"task"},
			Topics: map[string]string{"notifications/tasks": "taskIds"}},
	})
}

// A task that cannot be stored is not returned, and its handler does not run.
//
// Requirement: TASKX-08
func TestTaskIsStoredBeforeResponse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var runs atomic.Int32
		broken := errors.New("disk full")
		s := &interceptedStore{Store: tasks.NewMemory(), create: func(tasks.Record) error {
			time.Sleep(time.Second)
			return broken
		}}
		b := newTestServer(t, &tasks.Options{Store: s}, nil)
		b.tool("run", nil, func(context.Context) (string, error) { runs.Add(1); return "done", nil })
		c := connectClient(t, b)
		_, err := c.Try("tools/call", object{"name": "run"})
		wantCode(t, "a store that fails", err, mcp.CodeInternalError)
		if err != nil && strings.Contains(err.Message, "disk") {
			t.Errorf("the client got %q", err.Message)
		}
		time.Sleep(time.Minute)
		if runs.Load() != 0 {
			t.Error("the handler ran although the task was not stored")
		}
		broken = nil
		p := c.Send("tools/call", object{"name": "run"})
		synctest.Wait()
		if p.Answered() || runs.Load() != 0 {
			t.Error("the call was answered, or its handler ran, before the task was stored")
		}
		if got := finalTask(t, c, decode[wireTask](t, p.Wait().Result).TaskID); got.Result.text() != "done" {
			t.Errorf("got %+v", got)
		}
		b.closeServer(t)
	})
}

// A result that cannot be stored is retried, and still counts as running.
func TestResultIsRetriedWhenStoreFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var down atomic.Bool
		down.Store(true)
		s := &interceptedStore{Store: tasks.NewMemory(), update: func(tasks.Record) error {
			if down.Load() {
				return errors.New("disk full")
			}
			return nil
		}}
		b := newTestServer(t, &tasks.Options{Store: s, MaxRunning: 1}, nil)
		var runs atomic.Int32
		b.tool("run", nil, func(context.Context) (string, error) { runs.Add(1); return "done", nil })
		c := connectClient(t, b)
		id := beginTask(t, c, "run", nil).TaskID
		second := beginTask(t, c, "run", nil).TaskID
		time.Sleep(5 * time.Minute)
		if got := getTask(t, c, id); got.Status != "working" || runs.Load() != 1 {
			t.Errorf("%d runs, got %+v", runs.Load(), got)
		}
		down.Store(false)
		time.Sleep(time.Minute)
		for _, id := range []string{id, second} {
			if got := getTask(t, c, id); got.Result.text() != "done" {
				t.Errorf("got %+v", got)
			}
		}
		if runs.Load() != 2 {
			t.Errorf("%d runs, want 2", runs.Load())
		}
		down.Store(true)
		id = beginTask(t, c, "run", nil).TaskID
		time.Sleep(time.Hour)
		down.Store(false)
		time.Sleep(time.Minute)
		if got := getTask(t, c, id); got.Status != "failed" || got.Error == nil {
			t.Errorf("after all retries: %+v", got)
		}
		b.closeServer(t)
	})
}

// After a failed store operation during an answer, the task is unchanged or changed completely, and
// its handler runs once.
func TestStoreWithUncertainWrites(t *testing.T) {
	for _, wrote := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			var fail atomic.Bool
			lost := func(tasks.Record) error {
				if fail.CompareAndSwap(true, false) {
					return errors.New("timed out")
				}
				return nil
			}
			s := &interceptedStore{Store: tasks.NewMemory()}
			if wrote {
				s.after = lost
			} else {
				s.update = lost
			}
			b := newTestServer(t, &tasks.Options{Store: s}, nil)
			var ends atomic.Int32
			b.tool("ask", nil, func(ctx context.Context) (string, error) {
				v, err := mcp.Ask[string](ctx, "q", "?", nil)
				if err == nil {
					ends.Add(1)
				}
				return v, err
			})
			c := connectClient(t, b)
			id := beginTask(t, c, "ask", nil).TaskID
			synctest.Wait()
			fail.Store(true)
			params := object{"taskId": id,
				"inputResponses": object{"q.1": object{"action": "accept", "content": object{"value": "x"}}}}
			if _, err := c.Try("tasks/update", params); wrote != (err == nil) {
				t.Errorf("wrote %t: %v", wrote, err)
			}
			if !wrote {
				c.Call("tasks/update", params)
			}
			if got := finalTask(t, c, id); got.Result.text() != "x" || ends.Load() != 1 {
				t.Errorf("wrote %t: %d ends, %+v", wrote, ends.Load(), got)
			}
			b.closeServer(t)
		})
	}
}

// Recover: finished tasks can be read, waiting ones answered, queued ones run, and interrupted ones
// fail or run again.
func TestRecover(t *testing.T) {
	for _, clean := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			store := tasks.NewMemory()
			var isFirst atomic.Bool
			isFirst.Store(true)
			runs := map[string]*atomic.Int32{"done": {}, "ask": {}, "once": {}, "again": {}}
			add := func(b *testServer) {
				b.tool("done", nil, func(context.Context) (string, error) { runs["done"].Add(1); return "done", nil })
				b.tool("ask", nil, func(ctx context.Context) (string, error) {
					runs["ask"].Add(1)
					return mcp.Ask[string](ctx, "q", "?", nil)
				})
				for name, again := range map[string]bool{"once": false, "again": true} {
					b.tool(name, &tasks.ToolOptions{Restartable: again}, func(ctx context.Context) (string, error) {
						runs[name].Add(1)
						if isFirst.Load() {
							<-ctx.Done()
							return "", ctx.Err()
						}
						return "ran", nil
					})
				}
			}
			b := newTestServer(t, &tasks.Options{Store: store, MaxRunning: 2}, nil)
			add(b)
			c := connectClient(t, b)
			ids := map[string]string{}
			for _, tool := range []string{"done", "ask"} {
				ids[tool] = beginTask(t, c, tool, nil).TaskID
				synctest.Wait()
			}
			for _, tool := range []string{"once", "again"} {
				ids[tool] = beginTask(t, c, tool, nil).TaskID
			}
			ids["queued"] = beginTask(t, c, "once", nil).TaskID
			synctest.Wait()
			if clean {
				b.closeServer(t)
				if _, err := c.Try("tools/call", object{"name": "done"}); err == nil || err.Code != mcp.CodeBusy {
					t.Errorf("a call after Close: %v", err)
				}
			}
			isFirst.Store(false)
			next := newTestServer(t, &tasks.Options{Store: snapshot(t, store)}, nil) // the first process may still run
			add(next)
			if err := next.Recover(t.Context()); err != nil {
				t.Fatal(err)
			}
			c = connectClient(t, next)
			synctest.Wait()
			answerTask(t, c, ids["ask"], object{"value": "x"})
			synctest.Wait()
			for tool, want := range map[string]string{"done": "done", "ask": "x", "again": "ran", "queued": "ran"} {
				if got := getTask(t, c, ids[tool]); got.Status != "completed" || got.Result.text() != want {
					t.Errorf("clean %t: %s: %+v", clean, tool, got)
				}
			}
			if got := getTask(t, c, ids["once"]); got.Status != "failed" || got.Error == nil ||
				!strings.Contains(got.Error.Message, "restarted") {
				t.Errorf("clean %t: once: %+v", clean, got)
			}
			for tool, want := range map[string]int32{"done": 1, "ask": 2, "once": 2, "again": 2} {
				if got := runs[tool].Load(); got != want {
					t.Errorf("clean %t: %s ran %d times, want %d", clean, tool, got, want)
				}
			}
			b.closeServer(t)
			next.closeServer(t)
		})
	}
}

// snapshot copies a store as a killed process leaves it. No other process may use the copy.
func snapshot(t *testing.T, s tasks.Store) tasks.Store {
	t.Helper()
	out := tasks.NewMemory()
	records, err := s.List(t.Context(), "", tasks.Cursor{}, 1000)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range records {
		r.Version = 0
		if err := out.Create(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	return &interceptedStore{Store: out}
}

// A run that crashes each process is restarted maxRestarts times.
func TestRunThatCrashesProcessIsNotRestartedForever(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := tasks.NewMemory()
		var runs atomic.Int32
		id := ""
		for process := range 8 {
			b := newTestServer(t, &tasks.Options{Store: store}, nil)
			b.tool("kills", &tasks.ToolOptions{Restartable: true}, func(ctx context.Context) (string, error) {
				runs.Add(1)
				<-ctx.Done()
				return "", ctx.Err()
			})
			if err := b.Recover(t.Context()); err != nil {
				t.Fatal(err)
			}
			c := connectClient(t, b)
			if process == 0 {
				id = beginTask(t, c, "kills", nil).TaskID
			}
			synctest.Wait()
			if process == 7 {
				if got := getTask(t, c, id); got.Status != "failed" || runs.Load() != 6 {
					t.Errorf("%d runs, got %+v", runs.Load(), got)
				}
			}
			store = snapshot(t, store)
			b.closeServer(t)
		}
	})
}

// The error of a task says that its tool was removed.
func TestTaskOfRemovedTool(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := tasks.NewMemory()
		ask := func(ctx context.Context) (string, error) { return mcp.Ask[string](ctx, "q", "?", nil) }
		b := newTestServer(t, &tasks.Options{Store: store}, nil)
		b.tool("gone", nil, ask)
		removed := b.tool("removed", nil, ask)
		c := connectClient(t, b)
		gone, out := beginTask(t, c, "gone", nil).TaskID, beginTask(t, c, "removed", nil).TaskID
		synctest.Wait()
		removed.Remove()
		answerTask(t, c, out, object{"value": "x"})
		if got := finalTask(t, c, out); got.Status != "failed" || got.Error == nil ||
			!strings.Contains(got.Error.Message, `"removed"`) {
			t.Errorf("removed: %+v", got)
		}
		b.closeServer(t)
		next := newTestServer(t, &tasks.Options{Store: store}, nil)
		if err := next.Recover(t.Context()); err != nil {
			t.Fatal(err)
		}
		c = connectClient(t, next)
		answerTask(t, c, gone, object{"value": "x"})
		if got := finalTask(t, c, gone); got.Status != "failed" || got.Error == nil ||
			!strings.Contains(got.Error.Message, `"gone"`) {
			t.Errorf("gone: %+v", got)
		}
		next.closeServer(t)
	})
}

// A damaged record is an error for its readers. Recover logs it.
func TestDamagedRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := tasks.NewMemory()
		now := time.Now()
		for _, id := range []string{"broken", "BROKEN"} {
			if err := store.Create(t.Context(), tasks.Record{ID: id, Created: now, Expires: now.Add(time.Hour),
				Data: []byte(`{"format":99}`)}); err != nil {
				t.Fatal(err)
			}
		}
		b := newTestServer(t, &tasks.Options{Store: store}, nil)
		if err := b.Recover(t.Context()); err != nil {
			t.Fatal(err)
		}
		c := connectClient(t, b)
		for _, method := range []string{"tasks/get", "tasks/cancel", "tasks/update"} {
			_, err := c.Try(method, object{"taskId": "broken", "inputResponses": object{}})
			wantCode(t, method, err, mcp.CodeInternalError)
		}
		time.Sleep(2 * time.Hour)
		if n, _, _ := store.CountAll(t.Context()); n != 0 {
			t.Errorf("%d records in the store, want 0", n)
		}
		b.closeServer(t)
	})
}

// MaxTasks, MaxPerPrincipal and MaxRunning limit the tasks.
//
// Requirement: TASKD-22
func TestTasksAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTestServer(t, &tasks.Options{MaxTasks: 5, MaxPerPrincipal: 3, MaxRunning: 2}, nil)
		var mu sync.Mutex // guards now and most
		now, most := 0, 0
		count := func(n int) {
			mu.Lock()
			defer mu.Unlock()
			now += n
			most = max(most, now)
		}
		b.tool("run", nil, func(context.Context) (string, error) {
			count(1)
			time.Sleep(time.Second)
			count(-1)
			return "done", nil
		})
		c := connectClient(t, b)
		ada := withPrincipal(c, "ada")
		for range 3 {
			beginTask(t, c, "run", nil)
		}
		_, err := c.Try("tools/call", object{"name": "run"})
		wantCode(t, "a fourth task", err, mcp.CodeBusy)
		for range 2 {
			beginTask(t, ada, "run", nil)
		}
		_, err = ada.Try("tools/call", object{"name": "run"})
		wantCode(t, "a sixth task", err, mcp.CodeBusy)
		time.Sleep(10 * time.Second)
		count(0)
		if most != 2 || now != 0 {
			t.Errorf("%d concurrent runs, want 2; %d still running, want 0", most, now)
		}
		time.Sleep(25 * time.Hour)
		beginTask(t, c, "run", nil) // expired tasks do not count
		b.closeServer(t)
	})
}

// A queued task can be cancelled, and does not run.
func TestCancelledQueuedTaskDoesNotRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTestServer(t, &tasks.Options{MaxRunning: 1}, nil)
		var runs atomic.Int32
		b.tool("run", nil,
			func(context.Context) (string, error) { runs.Add(1); time.Sleep(time.Minute); return "", nil })
		c := connectClient(t, b)
		beginTask(t, c, "run", nil)
		id := beginTask(t, c, "run", nil).TaskID
		c.Call("tasks/cancel", object{"taskId": id})
		time.Sleep(5 * time.Minute)
		if got := getTask(t, c, id); got.Status != "cancelled" || runs.Load() != 1 {
			t.Errorf("%d runs, got %+v", runs.Load(), got)
		}
		b.closeServer(t)
	})
}

// Close returns when its context ends.
func TestCloseWithAHandlerThatDoesNotEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTestServer(t, nil, nil)
		end := make(chan struct{})
		b.tool("ignores", nil, func(context.Context) (string, error) { <-end; return "late", nil })
		c := connectClient(t, b)
		id := beginTask(t, c, "ignores", nil).TaskID
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := b.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		close(end)
		b.closeServer(t)
		if got := getTask(t, c, id); got.Result.text() != "late" {
			t.Errorf("a result after Close: %+v", got)
		}
	})
}

// tasks/result waits, sends progress on its stream, and names the
// task in its requests and result.
//
// Requirement: TASKD-11, TASKD-12, TASKD-13
func TestResultWaits(t *testing.T) {
	add := func(b *testServer) {
		b.tool("ask", nil, func(ctx context.Context) (string, error) {
			for i := range 3 {
				time.Sleep(10 * time.Second)
				mcp.Progress(ctx, float64(i+1), 3, "step")
			}
			time.Sleep(10 * time.Second)
			return mcp.Ask[string](ctx, "q", "?", nil)
		})
	}
	runOn(t, oneProcess(combinationsOf(revision2025)), nil, add, func(t *testing.T, b *testServer, c *mcptest.Client) {
		id := beginTask(t, c, "ask", object{"_meta": object{"progressToken": "p"}}).TaskID
		related := `"io.modelcontextprotocol/related-task":{"taskId":"` + id + `"}`
		c.Options.Answer = func(_ string, params json.RawMessage) (any, error) {
			if !strings.Contains(string(params), related) {
				t.Errorf("input request %s, want the related task", params)
			}
			return object{"action": "accept", "content": object{"value": "x"}}, nil
		}
		p := c.Send("tasks/result", object{"taskId": id})
		time.Sleep(25 * time.Second)
		if p.Answered() {
			t.Error("answered too early")
		}
		time.Sleep(50 * time.Second)
		if !p.Answered() {
			time.Sleep(time.Minute)
		}
		m := p.Wait()
		if got := decode[toolResult](t, m.Result); got.text() != "x" || !strings.Contains(string(m.Result), related) {
			t.Errorf("got %s", m.Result)
		}
		notes := c.Notifications("notifications/progress")
		if len(notes) != 3 {
			t.Errorf("%d progress notifications, want 3", len(notes))
		}
		for _, n := range notes {
			if !strings.Contains(string(n.Params), related) || !strings.Contains(string(n.Params),
				`"progressToken":"p"`) {
				t.Errorf("progress notification %s", n.Params)
			}
		}
	})
}

// Lists have pages with all tasks.
//
// Requirement: TASKD-16, TASKD-21
func TestList(t *testing.T) {
	add := func(b *testServer) {
		b.tool("run", nil, func(context.Context) (string, error) { return "done", nil })
	}
	runOn(t, combinationsOf(revision2025), nil, add, func(t *testing.T, b *testServer, c *mcptest.Client) {
		ada := withPrincipal(c, "ada")
		const n = 230
		for range n {
			beginTask(t, ada, "run", nil)
		}
		seen := map[string]bool{}
		pages, params := 0, object{}
		for {
			page := decode[struct {
				Tasks      []wireTask
				NextCursor string
			}](t, ada.Call("tasks/list", params))
			for _, task := range page.Tasks {
				seen[task.TaskID] = true
			}
			if pages++; page.NextCursor == "" {
				break
			}
			params = object{"cursor": page.NextCursor}
		}
		if len(seen) != n || pages != 3 {
			t.Errorf("%d tasks on %d pages, want 230 on 3", len(seen), pages)
		}
		for _, bad := range []any{"x", "", 1, "MTIz", "LjEy"} {
			_, err := ada.Try("tasks/list", object{"cursor": bad})
			wantCode(t, "a bad cursor", err, mcp.CodeInvalidParams)
		}
		synctest.Wait()
	})
}

// An expired task is unknown, or failed, from the moment it expires, before any sweep.
//
// Requirement: TASKX-28
func TestExpiredTaskIsUnknownBeforeSweep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := tasks.NewMemory()
		add := func(b *testServer) {
			b.tool("quick", &tasks.ToolOptions{TTL: time.Minute},
				func(context.Context) (string, error) { return "done", nil })
			b.tool("ask", &tasks.ToolOptions{TTL: 10 * time.Minute}, func(ctx context.Context) (string, error) {
				return mcp.Ask[string](ctx, "q", "?", nil)
			})
		}
		b := newTestServer(t, &tasks.Options{Store: store}, nil)
		add(b)
		c := connectClient(t, b)
		done, open := beginTask(t, c, "quick", nil).TaskID, beginTask(t, c, "ask", nil).TaskID
		synctest.Wait()
		b.closeServer(t)
		next := newTestServer(t, &tasks.Options{Store: store}, nil) // without Recover, it has no timer for the deadline
		add(next)
		c = connectClient(t, next)
		time.Sleep(5*time.Minute - time.Second)
		if got := getTask(t, c, done); got.Result.text() != "done" {
			t.Errorf("got %+v", got)
		}
		time.Sleep(2 * time.Second)
		_, err := c.Try("tasks/get", object{"taskId": done})
		wantCode(t, "after its time", err, mcp.CodeInvalidParams)
		time.Sleep(5 * time.Minute)
		if got := getTask(t, c, open); got.Status != "failed" {
			t.Errorf("got %+v", got)
		}
		next.closeServer(t)
	})
}

// A working task without a run, as without Recover, is recovered when it is read.
func TestTaskWithoutRunIsRecovered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := tasks.NewMemory()
		var runs atomic.Int32
		add := func(b *testServer) {
			b.tool("run", nil,
				func(context.Context) (string, error) { runs.Add(1); time.Sleep(time.Minute); return "ran", nil })
		}
		b := newTestServer(t, &tasks.Options{Store: store, MaxRunning: 1}, nil)
		add(b)
		c := connectClient(t, b)
		beginTask(t, c, "run", nil)
		queued := beginTask(t, c, "run", nil).TaskID
		synctest.Wait()
		next := newTestServer(t, &tasks.Options{Store: snapshot(t, store)}, nil)
		add(next)
		c = connectClient(t, next)
		for range 3 {
			getTask(t, c, queued)
		}
		time.Sleep(2 * time.Minute)
		if got := getTask(t, c, queued); got.Result.text() != "ran" {
			t.Errorf("got %+v", got)
		}
		b.closeServer(t)
		next.closeServer(t)
		if runs.Load() != 3 { // two of the first process
			t.Errorf("%d runs, want 3", runs.Load())
		}
	})
}
