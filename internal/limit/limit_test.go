package limit_test

import (
	"context"
	"errors"
	"math"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/limit"
)

func wantWait(t *testing.T, got, want time.Duration) {
	t.Helper()
	if got != want {
		t.Errorf("got a wait of %v, want %v", got, want)
	}
}

func TestTokensAreRefilled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table, r := limit.NewTable[string, string](10, nil), limit.Per(2, time.Second, 3)
		wantWait(t, table.Take("a", r, 3), 0)
		wantWait(t, table.Take("a", r, 1), 500*time.Millisecond)
		wantWait(t, table.Take("b", r, 1), 0)
		time.Sleep(500 * time.Millisecond)
		wantWait(t, table.Take("a", r, 1), 0)
		table.GiveBack("a", r, 1)
		wantWait(t, table.Take("a", r, 1), 0)
		wantWait(t, table.Take("a", r, 1), 500*time.Millisecond)
		never := limit.Rate{Burst: 1}
		wantWait(t, table.Take("never", never, 1), 0)
		wantWait(t, table.Take("never", never, 1), math.MaxInt64)
		if !table.Contains("b") || table.Contains("c") || table.Len() != 3 {
			t.Errorf("got %d buckets", table.Len())
		}
	})
}

// A token bucket allows almost twice its burst in one span; a strict rate does not.
func TestStrictRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table, r := limit.NewTable[string, string](10, nil), limit.Per(2, time.Minute, 2)
		r.Window = time.Minute
		wantWait(t, table.Take("a", r, 1), 0)
		time.Sleep(40 * time.Second)
		wantWait(t, table.Take("a", r, 1), 0)
		wantWait(t, table.Take("a", r, 1), 20*time.Second)
		wantWait(t, table.Take("a", r, 2), time.Minute)
		time.Sleep(20 * time.Second)
		wantWait(t, table.Take("a", r, 1), 0)
		wantWait(t, table.Take("a", r, 1), 40*time.Second)
		table.GiveBack("a", r, 1)
		wantWait(t, table.Take("a", r, 1), 0)
	})
}

// New buckets of a group begin with the spent tokens of the group's evicted buckets.
func TestEvictedTokensCountForTheGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := limit.NewTable(1, func(key string) (byte, bool) { return key[0], key[0] != '-' })
		r := limit.Per(1, time.Second, 3)
		wantWait(t, table.Take("a1", r, 2), 0)
		wantWait(t, table.Take("-1", r, 3), 0) // evicts a1
		wantWait(t, table.Take("a2", r, 2), time.Second)
		wantWait(t, table.Take("a2", r, 1), 0)
		wantWait(t, table.Take("-1", r, 3), 0) // the bucket of a key without a group was dropped
		wantWait(t, table.Take("a3", r, 1), time.Second)
		if table.Len() != 1 {
			t.Errorf("got %d buckets, want 1", table.Len())
		}
	})
}

// A visitor enters a queue, and records the order of the requests that run.
type visitor struct {
	queue *limit.Queue
	order []string
	errs  map[string]error
}

func (v *visitor) enter(ctx context.Context, caller, name string) {
	go func() {
		if err := v.queue.Enter(ctx, caller); err != nil {
			v.errs[name] = err
			return
		}
		v.order = append(v.order, name)
	}()
	synctest.Wait()
}

func newVisitor(limits limit.QueueLimits, shares func(string) bool, done <-chan struct{}) *visitor {
	return &visitor{queue: limit.NewQueue(limits, shares, done), errs: map[string]error{}}
}

func (v *visitor) wantOrder(t *testing.T, want ...string) {
	t.Helper()
	synctest.Wait()
	if !slices.Equal(v.order, want) {
		t.Errorf("got %v, want %v", v.order, want)
	}
}

func (v *visitor) wantRefusal(t *testing.T, name string, want limit.QueueError) {
	t.Helper()
	synctest.Wait()
	if err, _ := errors.AsType[*limit.QueueError](v.errs[name]); err == nil || *err != want {
		t.Errorf("%s: got %v, want %+v", name, v.errs[name], want)
	}
}

func TestCallersOfAQueueRunInTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newVisitor(limit.QueueLimits{Running: 1, Waiting: 3, Timeout: time.Minute}, nil, nil)
		for _, name := range []string{"a1", "a2", "a3", "a4"} {
			v.enter(t.Context(), "a", name)
		}
		v.enter(t.Context(), "a", "a5")
		v.wantRefusal(t, "a5", limit.QueueError{IsFull: true})
		v.enter(t.Context(), "b", "b1") // takes the place of a4
		v.wantRefusal(t, "a4", limit.QueueError{IsFull: true})
		for _, caller := range []string{"a", "a", "b"} {
			v.queue.Leave(caller)
			synctest.Wait()
		}
		v.wantOrder(t, "a1", "a2", "b1", "a3")
		v.queue.Force("c")
		if running, waiting := v.queue.Len(); running != 2 || waiting != 0 {
			t.Errorf("%d requests run and %d wait, want 2 and 0", running, waiting)
		}
	})
}

func TestLastQuarterOfAQueueIsForOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newVisitor(limit.QueueLimits{Running: 4, Waiting: 5, Timeout: time.Second},
			func(caller string) bool { return caller == "a" }, nil)
		for _, name := range []string{"a1", "a2", "a3", "a4"} {
			v.enter(t.Context(), "a", name)
		}
		v.enter(t.Context(), "b", "b1")
		v.enter(t.Context(), "b", "b2")
		v.wantOrder(t, "a1", "a2", "a3", "b1")
		v.queue.Leave("b")
		v.wantOrder(t, "a1", "a2", "a3", "b1", "b2")
		v.queue.Leave("b")
		time.Sleep(time.Second)
		v.wantRefusal(t, "a4", limit.QueueError{By: limit.ByShare})
	})
}

// A request starts as soon as there is a token, or as changed limits allow it.
func TestRateOfAQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limits := limit.QueueLimits{Waiting: 5, Timeout: time.Second, Rate: limit.Per(1, time.Minute, 1)}
		v := newVisitor(limits, nil, nil)
		v.enter(t.Context(), "a", "a1")
		v.enter(t.Context(), "a", "a2")
		time.Sleep(time.Second)
		v.wantRefusal(t, "a2", limit.QueueError{By: limit.ByRate})
		time.Sleep(58500 * time.Millisecond)
		v.enter(t.Context(), "a", "a3")
		time.Sleep(500 * time.Millisecond)
		v.wantOrder(t, "a1", "a3")
		v.enter(t.Context(), "a", "a4")
		limits.Rate = limit.Rate{}
		v.queue.SetLimits(limits)
		v.wantOrder(t, "a1", "a3", "a4")
	})
}

func TestWaitingInAQueueEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		done := make(chan struct{})
		v := newVisitor(limit.QueueLimits{Running: 1, Waiting: 5, Timeout: time.Minute}, nil, done)
		ctx, cancel := context.WithCancel(t.Context())
		v.enter(ctx, "a", "a1")
		v.enter(ctx, "a", "a2")
		v.enter(t.Context(), "b", "b1")
		cancel()
		synctest.Wait()
		if !errors.Is(v.errs["a2"], context.Canceled) {
			t.Errorf("got %v, want %v", v.errs["a2"], context.Canceled)
		}
		close(done)
		synctest.Wait()
		if !errors.Is(v.errs["b1"], limit.ErrClosed) {
			t.Errorf("got %v, want %v", v.errs["b1"], limit.ErrClosed)
		}
		if running, waiting := v.queue.Len(); running != 1 || waiting != 0 {
			t.Errorf("%d requests run and %d wait, want 1 and 0", running, waiting)
		}
	})
}

func TestBreaker(t *testing.T) {
	var b limit.Breaker
	l, now := limit.BreakerLimits{Failures: 2, Open: 10 * time.Second}, time.Now()
	want := func(state limit.BreakerState, wait time.Duration) {
		t.Helper()
		if got, left := b.State(now); got != state || left != wait {
			t.Errorf("got %s for %v, want %s for %v", got, left, state, wait)
		}
	}
	for range 3 {
		b.Failed(l, "a", now)
	}
	want(limit.Closed, 0) // one caller does not open it
	b.Failed(l, "b", now)
	want(limit.Open, 10*time.Second)
	now = now.Add(8 * time.Second)
	wantWait(t, b.Refuses(l, now), 2*time.Second)
	now = now.Add(2 * time.Second)
	want(limit.HalfOpen, 0)
	wantWait(t, b.Refuses(l, now), 0) // the trial
	wantWait(t, b.Refuses(l, now), 10*time.Second)
	b.Failed(l, "a", now)
	want(limit.Open, 10*time.Second)
	b.Succeeded() // a late response
	want(limit.Closed, 0)
	b.Failed(l, "", now)
	b.Failed(l, "", now)
	want(limit.Open, 10*time.Second)
	wantWait(t, b.Refuses(limit.BreakerLimits{}, now), 0)
	want(limit.Closed, 0)
}
