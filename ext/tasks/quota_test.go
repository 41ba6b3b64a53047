package tasks_test

import (
	"context"
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

// MaxBytes, MaxBytesPerPrincipal: the size of tasks is limited, until they have expired.
//
// Requirement: TASKD-22
func TestBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTestServer(t, &tasks.Options{MaxBytes: 10 << 20, MaxBytesPerPrincipal: 6 << 20, TTL: time.Hour}, nil)
		type text struct{ Text string }
		tasks.AddTool(b.Server, &mcp.Tool{Name: "ask"}, nil, func(ctx context.Context, in text) (string, error) {
			return mcp.Ask[string](ctx, "q", "?", nil)
		})
		b.tool("large", nil, func(context.Context) (string, error) { return strings.Repeat("x", 3<<20), nil })
		c := connectClient(t, b)
		eve, ada := withPrincipal(c, "eve"), withPrincipal(c, "ada")
		large := object{"arguments": object{"Text": strings.Repeat("x", 2<<20)}}
		beginTask(t, eve, "ask", large)
		beginTask(t, eve, "ask", large)
		_, err := eve.Try("tools/call", object{"name": "ask", "arguments": large["arguments"]})
		wantCode(t, "above the limit of a principal", err, mcp.CodeBusy)
		beginTask(t, ada, "large", nil)
		synctest.Wait() // its result is counted
		beginTask(t, ada, "ask", large)
		_, err = withPrincipal(c, "bob").Try("tools/call", object{"name": "ask", "arguments": large["arguments"]})
		wantCode(t, "above the limit of all", err, mcp.CodeBusy)
		beginTask(t, eve, "ask", object{"arguments": object{"Text": "small"}})
		time.Sleep(2 * time.Hour)
		beginTask(t, eve, "ask", large)
		b.closeServer(t)
	})
}

// A task that is stored while its call is not answered yet is counted once.
func TestConcurrentReservationsAtLimit(t *testing.T) {
	s := &blockedStore{Store: tasks.NewMemory(), stored: make(chan struct{}), counted: make(chan struct{})}
	b := newTestServer(t, &tasks.Options{Store: s, MaxPerPrincipal: 2}, nil)
	b.tool("run", nil, func(context.Context) (string, error) { return "", nil })
	c := connectClient(t, b)
	first := c.Send("tools/call", object{"name": "run"})
	<-s.stored
	second := c.Send("tools/call", object{"name": "run"})
	for i, p := range []*mcptest.Pending{first, second} {
		if m := p.Wait(); m.Error != nil {
			t.Errorf("task %d of 2: %v", i+1, m.Error)
		}
	}
	_, err := c.Try("tools/call", object{"name": "run"})
	wantCode(t, "a third task", err, mcp.CodeBusy)
	b.closeServer(t)
}

// A blockedStore does not return from the first Create until CountAll is called.
type blockedStore struct {
	tasks.Store
	stored, counted chan struct{}
	first, count    sync.Once
	isStored        atomic.Bool
}

func (s *blockedStore) Create(ctx context.Context, r tasks.Record) error {
	err := s.Store.Create(ctx, r)
	s.first.Do(func() {
		s.isStored.Store(true)
		close(s.stored)
		<-s.counted
	})
	return err
}

func (s *blockedStore) CountAll(ctx context.Context) (int, int64, error) {
	n, size, err := s.Store.CountAll(ctx)
	if s.isStored.Load() {
		s.count.Do(func() { close(s.counted) })
	}
	return n, size, err
}

// A call that must become a task does not run its handler if the limits do not allow a task.
//
// Requirement: TASKD-06
func TestNoEffectWhenLimitIsReached(t *testing.T) {
	var charged atomic.Int32
	add := func(b *testServer) {
		b.tool("charge", &tasks.ToolOptions{ManualStart: true},
			func(context.Context) (string, error) { charged.Add(1); return "charged", nil })
	}
	runOn(t, combinationsOf(revision2025), &tasks.Options{MaxPerPrincipal: 1}, add,
		func(t *testing.T, b *testServer, c *mcptest.Client) {
			charged.Store(0)
			beginTask(t, c, "charge", nil)
			_, err := c.Try("tools/call", object{"name": "charge", "task": object{}})
			wantCode(t, "at the limit", err, mcp.CodeBusy)
			if charged.Load() != 1 {
				t.Errorf("charged %d times, want once", charged.Load())
			}
		})
}

// One principal cannot use all running tasks. Queued tasks have a status message, and their owners
// alternate.
//
// Requirement: TASKD-22
func TestRunningTasksPerPrincipal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTestServer(t, &tasks.Options{MaxRunning: 8}, nil)
		addSleepTool(b, "sleep", nil)
		b.tool("note", nil, func(context.Context) (string, error) { return "noted", nil })
		c := connectClient(t, b)
		eve, ada := withPrincipal(c, "eve"), withPrincipal(c, "ada")
		last := ""
		for range 20 {
			last = beginTask(t, eve, "sleep", nil).TaskID
		}
		if got := finalTask(t, ada, beginTask(t, ada, "note", nil).TaskID); got.Result.text() != "noted" {
			t.Errorf("ada's: %+v", got)
		}
		if got := getTask(t, eve, last); got.Status != "working" || got.StatusMessage != "queued" {
			t.Errorf("eve's last: %+v", got)
		}
		time.Sleep(10 * time.Minute)
		if got := getTask(t, eve, last); got.Result.text() != "slept" {
			t.Errorf("eve's last: %+v", got)
		}
		b.closeServer(t)
	})
	synctest.Test(t, func(t *testing.T) {
		b := newTestServer(t, &tasks.Options{MaxRunning: 1}, nil)
		order := make(chan string, 10)
		b.tool("note", nil, func(ctx context.Context) (string, error) {
			order <- mcp.PrincipalFrom(ctx).Subject
			time.Sleep(time.Second)
			return "noted", nil
		})
		c := connectClient(t, b)
		eve, ada := withPrincipal(c, "eve"), withPrincipal(c, "ada")
		for range 4 {
			beginTask(t, eve, "note", nil)
		}
		for range 2 {
			beginTask(t, ada, "note", nil)
		}
		time.Sleep(time.Minute)
		for i, want := range []string{"eve", "eve", "ada", "eve", "ada", "eve"} {
			if got := <-order; got != want {
				t.Errorf("owner of run %d: %s, want %s", i+1, got, want)
			}
		}
		b.closeServer(t)
	})
}

// A cancelled task is removed from the queue.
func TestCancelledTaskLeavesQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTestServer(t, &tasks.Options{MaxRunning: 1}, nil)
		addSleepTool(b, "sleep", nil)
		c := connectClient(t, b)
		beginTask(t, c, "sleep", nil)
		for range 100 {
			c.Call("tasks/cancel", object{"taskId": beginTask(t, c, "sleep", nil).TaskID})
		}
		if runs := tasks.Runs(b.Server); runs != 1 {
			t.Errorf("%d runs, want 1", runs)
		}
		b.closeServer(t)
	})
}
