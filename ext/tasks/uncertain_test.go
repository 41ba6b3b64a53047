package tasks_test

import (
	"context"
	"errors"
	"iter"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/ext/tasks"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// A call that ends before its response creates no task.
//
// Requirement: TASKX-20
func TestEndedCallCreatesNoTask(t *testing.T) {
	for _, combination := range mcptest.Since(revision2025) {
		var slow atomic.Bool
		s := &interceptedStore{Store: tasks.NewMemory(), create: func(tasks.Record) error {
			if slow.Load() {
				time.Sleep(10 * time.Second)
			}
			return nil
		}}
		var runs atomic.Int32
		add := func(b *testServer) {
			b.tool("effect", nil, func(context.Context) (string, error) { runs.Add(1); return "", nil })
			b.tool("manual", &tasks.ToolOptions{ManualStart: true}, func(ctx context.Context) (string, error) {
				if tasks.IDFrom(ctx) == "" {
					<-ctx.Done()
				}
				if err := tasks.Begin(ctx); err != nil {
					return "", err
				}
				runs.Add(1)
				return "", nil
			})
		}
		runOn(t, []mcptest.Combination{combination}, &tasks.Options{Store: s}, add,
			func(t *testing.T, b *testServer, c *mcptest.Client) {
				for _, tool := range []string{"effect", "manual"} {
					slow.Store(tool == "effect")
					params := object{"name": tool}
					if !c.Modern() {
						params["task"] = object{}
					}
					p := c.Send("tools/call", params)
					time.Sleep(time.Second)
					p.Cancel("stopped")
					time.Sleep(time.Minute)
					n, _, err := s.CountAll(t.Context())
					if n != 0 || err != nil || runs.Load() != 0 {
						t.Errorf("%s: %d tasks, %v, %d runs", tool, n, err, runs.Load())
					}
				}
			})
	}
}

// A record whose creation is uncertain, and whose deletion failed, is deleted later.
func TestUncertainCreationIsDeletedLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &slowStore{Store: tasks.NewMemory()}
		b := newTestServer(t, &tasks.Options{Store: s, MaxPerPrincipal: 3}, nil)
		b.tool("run", nil, func(context.Context) (string, error) { return "done", nil })
		c := connectClient(t, b)
		for _, deletes := range []bool{true, false} {
			s.slow.Store(true)
			s.keep.Store(!deletes)
			p := c.Send("tools/call", object{"name": "run"})
			time.Sleep(2 * time.Minute)
			wantCode(t, "an unconfirmed creation", p.Wait().Error, mcp.CodeInternalError)
			n, _, _ := s.CountAll(t.Context())
			if deletes != (n == 0) {
				t.Errorf("deletes %t: %d tasks", deletes, n)
			}
		}
		time.Sleep(5 * time.Minute)
		s.slow.Store(false)
		s.keep.Store(false)
		time.Sleep(2 * time.Minute)
		if n, _, _ := s.CountAll(t.Context()); n != 0 {
			t.Errorf("%d tasks in the store, want 0", n)
		}
		if got := finalTask(t, c, beginTask(t, c, "run", nil).TaskID); got.Result.text() != "done" {
			t.Errorf("got %+v", got)
		}
		b.closeServer(t)
	})
}

// A slowStore creates a record and returns after its caller has ended. With keep set, deletions
// fail.
type slowStore struct {
	tasks.Store
	slow, keep atomic.Bool
}

func (s *slowStore) Create(ctx context.Context, r tasks.Record) error {
	err := s.Store.Create(ctx, r)
	if s.slow.Load() {
		<-ctx.Done()
		return ctx.Err()
	}
	return err
}

func (s *slowStore) Delete(ctx context.Context, owner, id string) error {
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case s.keep.Load():
		return errors.New("input/output error")
	}
	return s.Store.Delete(ctx, owner, id)
}

// If it is uncertain whether an answer was stored, it is not lost, and its run does not count as
// interrupted.
func TestUncertainAnswer(t *testing.T) {
	for _, wrote := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			s := &failingStore{Store: tasks.NewMemory()}
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
			params := object{"taskId": id,
				"inputResponses": object{"q.1": object{"action": "accept", "content": object{"value": "x"}}}}
			s.writes.Store(wrote)
			s.down.Store(true)
			_, err := c.Try("tasks/update", params)
			wantCode(t, "an unconfirmed creation", err, mcp.CodeInternalError)
			time.Sleep(time.Minute)
			s.down.Store(false)
			s.broken.Store(false)
			for range 3 {
				if _, err := c.Try("tasks/update", params); err != nil {
					t.Error(err)
				}
			}
			time.Sleep(time.Minute)
			if got := getTask(t, c, id); got.Result.text() != "x" || ends.Load() != 1 {
				t.Errorf("wrote %t: %d ends, %+v", wrote, ends.Load(), got)
			}
			b.closeServer(t)
		})
	}
}

// A failingStore fails from the first update after down is set, which may be stored or not.
type failingStore struct {
	tasks.Store
	down, writes, broken atomic.Bool
}

var errStore = errors.New("input/output error")

func (s *failingStore) Update(ctx context.Context, r tasks.Record) error {
	switch {
	case s.broken.Load():
		return errStore
	case !s.down.Load():
		return s.Store.Update(ctx, r)
	}
	s.broken.Store(true)
	if s.writes.Load() {
		return errors.Join(errStore, s.Store.Update(ctx, r))
	}
	return errStore
}

func (s *failingStore) Get(ctx context.Context, owner, id string) (tasks.Record, error) {
	if s.broken.Load() {
		return tasks.Record{}, errStore
	}
	return s.Store.Get(ctx, owner, id)
}

// A run that Close stops before its handler is called runs in the next process.
func TestCloseBeforeRunStarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := tasks.NewMemory()
		s := &interceptedStore{Store: store, create: func(tasks.Record) error { time.Sleep(time.Second); return nil }}
		var runs atomic.Int32
		add := func(b *testServer) {
			b.tool("run", nil, func(context.Context) (string, error) { runs.Add(1); return "done", nil })
		}
		b := newTestServer(t, &tasks.Options{Store: s}, nil)
		add(b)
		p := connectClient(t, b).Send("tools/call", object{"name": "run"})
		synctest.Wait()
		b.closeServer(t)
		m := p.Wait()
		if m.Error != nil || runs.Load() != 0 {
			t.Fatalf("%v, %d runs", m.Error, runs.Load())
		}
		next := newTestServer(t, &tasks.Options{Store: store}, nil)
		add(next)
		if err := next.Recover(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := finalTask(t, connectClient(t, next), decode[wireTask](t, m.Result).TaskID); got.Result.text() != "done" ||
			runs.Load() != 1 {
			t.Errorf("%d runs, got %+v", runs.Load(), got)
		}
		next.closeServer(t)
	})
}

// A damaged record affects neither Recover nor the other records.
func TestRecoverSkipsDamagedRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := tasks.NewMemory()
		add := func(b *testServer) {
			b.tool("run", nil, func(context.Context) (string, error) { return "done", nil })
			addSleepTool(b, "sleep", nil)
		}
		b := newTestServer(t, &tasks.Options{Store: store, MaxRunning: 1}, nil)
		add(b)
		c := connectClient(t, b)
		beginTask(t, c, "sleep", nil)
		var ids []string
		for range 3 {
			ids = append(ids, beginTask(t, c, "run", nil).TaskID)
		}
		b.closeServer(t)
		next := newTestServer(t, &tasks.Options{Store: &damagedStore{store, ids[1]}}, nil)
		add(next)
		if err := next.Recover(t.Context()); err != nil {
			t.Fatal(err)
		}
		c = connectClient(t, next)
		for i, id := range ids {
			if i == 1 {
				_, err := c.Try("tasks/get", object{"taskId": id})
				wantCode(t, "a damaged record", err, mcp.CodeInternalError)
			} else if got := finalTask(t, c, id); got.Result.text() != "done" {
				t.Errorf("got %+v", got)
			}
		}
		next.closeServer(t)
	})
}

// A damagedStore cannot read one record.
type damagedStore struct {
	tasks.Store
	id string
}

func (s *damagedStore) Get(ctx context.Context, owner, id string) (tasks.Record, error) {
	if id == s.id {
		return tasks.Record{}, errStore
	}
	return s.Store.Get(ctx, owner, id)
}

func (s *damagedStore) Unfinished(ctx context.Context) iter.Seq2[tasks.Record, error] {
	return func(yield func(tasks.Record, error) bool) {
		for r, err := range s.Store.Unfinished(ctx) {
			if r.ID == s.id {
				r, err = tasks.Record{ID: r.ID}, errStore
			}
			if !yield(r, err) {
				return
			}
		}
	}
}

// Tasks with large results are listed completely, on more pages.
//
// Requirement: TASKD-21
func TestListOfLargeTasks(t *testing.T) {
	add := func(b *testServer) {
		b.tool("large", nil, func(context.Context) (string, error) { return strings.Repeat("x", 8<<20), nil })
	}
	combinations := []mcptest.Combination{{Transport: mcptest.InMemory, Revision: revision2025}}
	runOn(t, combinations, nil, add, func(t *testing.T, b *testServer, c *mcptest.Client) {
		ada := withPrincipal(c, "ada")
		for range 5 {
			beginTask(t, ada, "large", nil)
			synctest.Wait()
		}
		n, params := 0, object{}
		for {
			page := decode[struct {
				Tasks      []wireTask
				NextCursor *string
			}](t, ada.Call("tasks/list", params))
			n += len(page.Tasks)
			if page.NextCursor == nil {
				break
			}
			if len(page.Tasks) == 0 {
				t.Fatal("an empty page has a cursor")
			}
			params = object{"cursor": *page.NextCursor}
		}
		if n != 5 {
			t.Errorf("%d tasks are listed, want 5", n)
		}
	})
}
