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
func TestTASKX20_EndedCallCreatesNoTask(t *testing.T) {
	for _, combination := range mcptest.Since(revision2025) {
		var slow atomic.Bool
		s := &faulty{Store: tasks.NewMemory(), create: func(tasks.Record) error {
			if slow.Load() {
				time.Sleep(10 * time.Second)
			}
			return nil
		}}
		var runs atomic.Int32
		add := func(b *bench) {
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
		on(t, []mcptest.Combination{combination}, &tasks.Options{Store: s}, add,
			func(t *testing.T, b *bench, c *mcptest.Client) {
				for _, tool := range []string{"effect", "manual"} {
					slow.Store(tool == "effect")
					params := object{"name": tool}
					if !c.Modern() {
						params["task"] = object{}
					}
					p := c.Send("tools/call", params)
					time.Sleep(time.Second)
					p.Cancel("the user has gone")
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
	inBubble(t, func(t *testing.T) {
		s := &stuck{Store: tasks.NewMemory()}
		b := newBench(t, &tasks.Options{Store: s, MaxPerPrincipal: 3}, nil)
		b.tool("run", nil, func(context.Context) (string, error) { return "done", nil })
		c := connected(t, b)
		for _, deletes := range []bool{true, false} {
			s.slow.Store(true)
			s.deaf.Store(!deletes)
			p := c.Send("tools/call", object{"name": "run"})
			time.Sleep(2 * time.Minute)
			wantCode(t, "in doubt", p.Wait().Error, mcp.CodeInternalError)
			n, _, _ := s.CountAll(t.Context())
			if deletes != (n == 0) {
				t.Errorf("deletes %t: %d tasks", deletes, n)
			}
		}
		time.Sleep(5 * time.Minute)
		s.slow.Store(false)
		s.deaf.Store(false)
		time.Sleep(2 * time.Minute)
		if n, _, _ := s.CountAll(t.Context()); n != 0 {
			t.Errorf("%d tasks are left", n)
		}
		if got := finished(t, c, begin(t, c, "run", nil).TaskID); got.Result.text() != "done" {
			t.Errorf("got %+v", got)
		}
		b.shut(t)
	})
}

// A stuck store creates a record and returns after its caller has ended. With deaf set it does not
// delete.
type stuck struct {
	tasks.Store
	slow, deaf atomic.Bool
}

func (s *stuck) Create(ctx context.Context, r tasks.Record) error {
	err := s.Store.Create(ctx, r)
	if s.slow.Load() {
		<-ctx.Done()
		return ctx.Err()
	}
	return err
}

func (s *stuck) Delete(ctx context.Context, owner, id string) error {
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case s.deaf.Load():
		return errors.New("input/output error")
	}
	return s.Store.Delete(ctx, owner, id)
}

// If it is uncertain whether an answer was stored, it is not lost, and its run does not count as
// interrupted.
func TestUncertainAnswer(t *testing.T) {
	for _, wrote := range []bool{false, true} {
		inBubble(t, func(t *testing.T) {
			s := &silent{Store: tasks.NewMemory()}
			b := newBench(t, &tasks.Options{Store: s}, nil)
			var ends atomic.Int32
			b.tool("ask", nil, func(ctx context.Context) (string, error) {
				v, err := mcp.Ask[string](ctx, "q", "?", nil)
				if err == nil {
					ends.Add(1)
				}
				return v, err
			})
			c := connected(t, b)
			id := begin(t, c, "ask", nil).TaskID
			synctest.Wait()
			params := object{"taskId": id,
				"inputResponses": object{"q.1": object{"action": "accept", "content": object{"value": "x"}}}}
			s.writes.Store(wrote)
			s.down.Store(true)
			_, err := c.Try("tasks/update", params)
			wantCode(t, "in doubt", err, mcp.CodeInternalError)
			time.Sleep(time.Minute)
			s.down.Store(false)
			s.broken.Store(false)
			for range 3 {
				if _, err := c.Try("tasks/update", params); err != nil {
					t.Error(err)
				}
			}
			time.Sleep(time.Minute)
			if got := get(t, c, id); got.Result.text() != "x" || ends.Load() != 1 {
				t.Errorf("wrote %t: %d ends, %+v", wrote, ends.Load(), got)
			}
			b.shut(t)
		})
	}
}

// A silent store fails from the first update after down is set, which may be stored or not.
type silent struct {
	tasks.Store
	down, writes, broken atomic.Bool
}

var errSilent = errors.New("input/output error")

func (s *silent) Update(ctx context.Context, r tasks.Record) error {
	switch {
	case s.broken.Load():
		return errSilent
	case !s.down.Load():
		return s.Store.Update(ctx, r)
	}
	s.broken.Store(true)
	if s.writes.Load() {
		return errors.Join(errSilent, s.Store.Update(ctx, r))
	}
	return errSilent
}

func (s *silent) Get(ctx context.Context, owner, id string) (tasks.Record, error) {
	if s.broken.Load() {
		return tasks.Record{}, errSilent
	}
	return s.Store.Get(ctx, owner, id)
}

// A run that Close stops before its handler is called is left to the next process.
func TestCloseBeforeRunStarts(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		store := tasks.NewMemory()
		s := &faulty{Store: store, create: func(tasks.Record) error { time.Sleep(time.Second); return nil }}
		var runs atomic.Int32
		add := func(b *bench) {
			b.tool("run", nil, func(context.Context) (string, error) { runs.Add(1); return "done", nil })
		}
		b := newBench(t, &tasks.Options{Store: s}, nil)
		add(b)
		p := connected(t, b).Send("tools/call", object{"name": "run"})
		synctest.Wait()
		b.shut(t)
		m := p.Wait()
		if m.Error != nil || runs.Load() != 0 {
			t.Fatalf("%v, %d runs", m.Error, runs.Load())
		}
		next := newBench(t, &tasks.Options{Store: store}, nil)
		add(next)
		if err := next.Recover(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := finished(t, connected(t, next), decode[told](t, m.Result).TaskID); got.Result.text() != "done" ||
			runs.Load() != 1 {
			t.Errorf("%d runs, got %+v", runs.Load(), got)
		}
		next.shut(t)
	})
}

// A damaged record affects neither Recover nor the other records.
func TestRecoverSkipsDamagedRecord(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		store := tasks.NewMemory()
		add := func(b *bench) {
			b.tool("run", nil, func(context.Context) (string, error) { return "done", nil })
			sleeper(b, "hold", nil)
		}
		b := newBench(t, &tasks.Options{Store: store, MaxRunning: 1}, nil)
		add(b)
		c := connected(t, b)
		begin(t, c, "hold", nil)
		var ids []string
		for range 3 {
			ids = append(ids, begin(t, c, "run", nil).TaskID)
		}
		b.shut(t)
		next := newBench(t, &tasks.Options{Store: &damaged{store, ids[1]}}, nil)
		add(next)
		if err := next.Recover(t.Context()); err != nil {
			t.Fatal(err)
		}
		c = connected(t, next)
		for i, id := range ids {
			if i == 1 {
				_, err := c.Try("tasks/get", object{"taskId": id})
				wantCode(t, "the damaged one", err, mcp.CodeInternalError)
			} else if got := finished(t, c, id); got.Result.text() != "done" {
				t.Errorf("got %+v", got)
			}
		}
		next.shut(t)
	})
}

// A damaged store cannot read one record.
type damaged struct {
	tasks.Store
	id string
}

func (s *damaged) Get(ctx context.Context, owner, id string) (tasks.Record, error) {
	if id == s.id {
		return tasks.Record{}, errSilent
	}
	return s.Store.Get(ctx, owner, id)
}

func (s *damaged) Unfinished(ctx context.Context) iter.Seq2[tasks.Record, error] {
	return func(yield func(tasks.Record, error) bool) {
		for r, err := range s.Store.Unfinished(ctx) {
			if r.ID == s.id {
				r, err = tasks.Record{ID: r.ID}, errSilent
			}
			if !yield(r, err) {
				return
			}
		}
	}
}

// TASKD-21: tasks with large results are listed in more pages, and completely.
func TestTASKD21_ListOfLargeTasks(t *testing.T) {
	add := func(b *bench) {
		b.tool("large", nil, func(context.Context) (string, error) { return strings.Repeat("x", 8<<20), nil })
	}
	combinations := []mcptest.Combination{{Transport: mcptest.InMemory, Revision: revision2025}}
	on(t, combinations, nil, add, func(t *testing.T, b *bench, c *mcptest.Client) {
		ada := as(c, "ada")
		for range 5 {
			begin(t, ada, "large", nil)
			synctest.Wait()
		}
		n, params := 0, object{}
		for {
			page := decode[struct {
				Tasks      []told
				NextCursor *string
			}](t, ada.Call("tasks/list", params))
			n += len(page.Tasks)
			if page.NextCursor == nil {
				break
			}
			if len(page.Tasks) == 0 {
				t.Fatal("a page of nothing that goes on")
			}
			params = object{"cursor": *page.NextCursor}
		}
		if n != 5 {
			t.Errorf("%d tasks are listed, want 5", n)
		}
	})
}
