package storetest

import (
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/host/state"
)

// longPeriod is a period of a budget that does not end during a test.
const longPeriod = 100 * 365 * 24 * time.Hour

// RunLimits tests that a store conforms to [state.LimitStore]. open returns two clients of a new
// store.
func RunLimits(t *testing.T, open func(t *testing.T) (a, b state.LimitStore)) {
	run(t, open, map[string]func(t *testing.T, a, b state.LimitStore){
		"a bucket contains its burst":              limitsBurst,
		"a bucket fills":                           limitsRefill,
		"several tokens are taken at once":         limitsBatches,
		"concurrent users take no token twice":     limitsConcurrent,
		"leases do not exceed a budget":            limitsLeases,
		"a repeated lease takes nothing":           limitsRepeated,
		"a budget begins again with a period":      limitsPeriod,
		"processes are counted until they expire":  limitsProcesses,
		"a process that leaves removes no others":  limitsLeave,
		"canceled context of Take, Lease and Join": limitsCanceled,
	})
}

// until calls done until it returns true.
func until(t *testing.T, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !done(); {
		if time.Now().After(deadline) {
			t.Fatalf("%s did not happen within %v", what, patience)
		}
	}
}

func limitsBurst(t *testing.T, a, b state.LimitStore) {
	const burst = 5
	for _, key := range []string{"a", "A", "}{a}", "a:b", "a\x00\xff", strings.Repeat("k", 1<<16)} {
		for n := range burst {
			taken, left, wait, err := []state.LimitStore{a, b}[n%2].Take(t.Context(), key, time.Hour, burst, 1)
			if taken != 1 || left != burst-n-1 || wait != 0 || err != nil {
				t.Errorf("token %d of %.10q: got %d left, wait %v, %v", n+1, key, left, wait, err)
			}
		}
		taken, left, wait, err := b.Take(t.Context(), key, time.Hour, burst, 1)
		if taken != 0 || left != 0 || wait < time.Hour-patience || wait > time.Hour || err != nil {
			t.Errorf("a token of the empty bucket %.10q: got %d left, wait %v, %v", key, left, wait, err)
		}
	}
}

func limitsRefill(t *testing.T, a, b state.LimitStore) {
	const every, burst, rounds, imprecision = 20 * time.Millisecond, 3, 10, time.Millisecond
	begin, taken := time.Now(), 0
	until(t, "the bucket to fill", func() bool {
		_, _, wait, err := []state.LimitStore{a, b}[taken%2].Take(t.Context(), "a", every, burst, 1)
		must(t, err)
		if wait == 0 {
			taken++
		} else if wait > every {
			t.Fatalf("the next token needs %v, longer than %v", wait, every)
		}
		return taken == burst+rounds
	})
	if took := time.Since(begin); took < rounds*every-imprecision {
		t.Errorf("%d tokens took %v, less than %v", taken, took, rounds*every)
	}
}

func limitsBatches(t *testing.T, a, b state.LimitStore) {
	const every, burst = time.Hour, 10
	want := func(s state.LimitStore, n, taken, left int) {
		t.Helper()
		gotTaken, gotLeft, wait, err := s.Take(t.Context(), "a", every, burst, n)
		if gotTaken != taken || gotLeft != left || (taken == 0) != (wait > 0) || wait > every || err != nil {
			t.Errorf("%d tokens: %d were taken, %d are left, wait %v, %v; want %d and %d",
				n, gotTaken, gotLeft, wait, err, taken, left)
		}
	}
	want(a, 4, 4, 6)
	want(b, 1, 1, 5)
	want(b, 4, 4, 1)
	want(a, 4, 1, 0)
	want(b, 4, 0, 0)
}

func limitsConcurrent(t *testing.T, a, b state.LimitStore) {
	const tokens, units, each = 100, 1000, 3
	var taken, leased atomic.Int64
	concurrently(a, b, func(n int, s state.LimitStore) {
		next := operations(strconv.Itoa(n))
		for range each {
			n, _, _, err := s.Take(t.Context(), "a", time.Hour, tokens, 7)
			taken.Add(int64(n))
			l, err2 := s.Lease(t.Context(), "a", next(), longPeriod, units, 7)
			leased.Add(l.Units)
			if err != nil || err2 != nil {
				t.Error(err, err2)
			}
		}
	})
	if taken.Load() != tokens || leased.Load() != units {
		t.Errorf("%d tokens and %d units were taken, want %d and %d", taken.Load(), leased.Load(), tokens, units)
	}
}

func limitsLeases(t *testing.T, a, b state.LimitStore) {
	var last state.Lease
	next := operations("process")
	want := func(s state.LimitStore, limit, n, units, taken int64) {
		t.Helper()
		l, err := s.Lease(t.Context(), "a", next(), longPeriod, limit, n)
		if l.Units != units || l.Taken != taken || l.Left <= 0 || l.Left > longPeriod || err != nil {
			t.Errorf("a lease of %d of %d is %+v, %v; want %d, %d in all", n, limit, l, err, units, taken)
		}
		last = l
	}
	want(a, 10, 4, 4, 4)
	want(b, 10, 4, 4, 8)
	want(a, 10, 4, 2, 10)
	want(b, 10, 4, 0, 10)
	want(a, 5, 4, 0, 10) // the configuration changed
	want(b, 12, 4, 2, 12)
	must(t, a.Return(t.Context(), "a", state.Lease{Units: 3, Period: last.Period}))
	must(t, a.Return(t.Context(), "a", state.Lease{Units: 3, Period: last.Period - 1}))
	must(t, a.Return(t.Context(), "b", state.Lease{Units: 3, Period: last.Period}))
	want(b, 12, 9, 3, 12)
	must(t, b.Return(t.Context(), "a", state.Lease{Units: 100, Period: last.Period}))
	must(t, b.Return(t.Context(), "a", state.Lease{Units: -7, Period: last.Period}))
	want(a, 10, 4, 3, 10)
	must(t, b.Return(t.Context(), "a", state.Lease{Units: 10, Period: last.Period}))
	const large = 1 << 50
	want(a, large, large-1, large-1, large-1)
	want(b, large, large, 1, large)
}

// operations returns a function that returns the operations of a process.
func operations(process string) func() state.Operation {
	op := state.Operation{Process: process}
	return func() state.Operation {
		op.Number++
		return op
	}
}

func limitsRepeated(t *testing.T, a, b state.LimitStore) {
	op := func(process string, number int64) state.Operation {
		return state.Operation{Process: process, Number: number}
	}
	want := func(s state.LimitStore, op state.Operation, n, units, taken int64) {
		t.Helper()
		l, err := s.Lease(t.Context(), "a", op, longPeriod, 100, n)
		if l.Units != units || l.Taken != taken || err != nil {
			t.Errorf("%+v leases %+v, %v; want %d, %d in all", op, l, err, units, taken)
		}
	}
	want(a, op("1", 1), 10, 10, 10)
	want(b, op("1", 1), 20, 10, 10) // may need more by now
	want(b, op("2", 1), 10, 10, 20)
	want(a, op("1", 3), 10, 10, 30)
	want(b, op("1", 2), 10, 0, 30) // came late
	want(b, op("1", 3), 10, 10, 30)
	want(a, op("1", 4), 100, 70, 100)
	want(a, op("1", 5), 1, 0, 100)
}

func limitsPeriod(t *testing.T, a, b state.LimitStore) {
	const period, limit = time.Second, 5
	nextOp := operations("process")
	lease := func(s state.LimitStore) state.Lease {
		l, err := s.Lease(t.Context(), "a", nextOp(), period, limit, limit)
		must(t, err)
		return l
	}
	first := lease(a)
	var next state.Lease
	until(t, "the next period", func() bool {
		next = lease(b)
		return next.Period > first.Period
	})
	if first.Units != limit || next.Units != limit || next.Taken != limit {
		t.Errorf("the leases are %+v and %+v, want all units in each period", first, next)
	}
	must(t, a.Return(t.Context(), "a", first))
	if l := lease(b); l.Period == next.Period && l.Units != 0 {
		t.Errorf("the units of the former period were returned to the next: %+v", l)
	}
}

// joined counts a process, and returns its place.
func joined(t *testing.T, s state.LimitStore, process string, ttl time.Duration) string {
	t.Helper()
	place, processes, err := s.Join(t.Context(), process, ttl)
	must(t, err)
	return strconv.Itoa(place) + " of " + strconv.Itoa(processes)
}

func limitsProcesses(t *testing.T, a, b state.LimitStore) {
	joined(t, a, "d", shortIdle)
	until(t, "the end of a process", func() bool { return joined(t, b, "e", shortIdle) == "0 of 1" })
	until(t, "the end of the last process", func() bool { return joined(t, b, "a", 0) == "0 of 0" })
	for _, step := range []struct {
		store         state.LimitStore
		process, want string
		ttl           time.Duration
	}{
		{a, "b", "0 of 1", longIdle}, {b, "c", "1 of 2", longIdle}, {a, "b", "0 of 2", longIdle},
		{b, "a", "0 of 3", longIdle}, {a, "c", "2 of 3", longIdle}, {b, "a", "0 of 2", 0}, {b, "c", "1 of 2", longIdle},
	} {
		if got := joined(t, step.store, step.process, step.ttl); got != step.want {
			t.Errorf("%q is %s, want %s", step.process, got, step.want)
		}
	}
}

func limitsLeave(t *testing.T, a, b state.LimitStore) {
	joined(t, a, "a", longIdle)
	joined(t, b, "b", longIdle)
	joined(t, b, "b", 0)
	_, _, _, err := a.Take(t.Context(), "time", 20*time.Millisecond, 1, 1)
	must(t, err)
	until(t, "the next token", func() bool { // in the time of the store
		_, _, wait, err := a.Take(t.Context(), "time", 20*time.Millisecond, 1, 1)
		must(t, err)
		return wait == 0
	})
	if got := joined(t, b, "c", longIdle); got != "1 of 2" {
		t.Errorf("a process that joined after another left is %s, want 1 of 2", got)
	}
}

func limitsCanceled(t *testing.T, a, b state.LimitStore) {
	_, _, _, take := a.Take(ended(t), "a", time.Hour, 2, 1)
	_, lease := a.Lease(ended(t), "a", state.Operation{Process: "a", Number: 1}, longPeriod, 2, 1)
	_, _, join := a.Join(ended(t), "a", longIdle)
	back := a.Return(ended(t), "a", state.Lease{})
	for name, err := range map[string]error{"Take": take, "Lease": lease, "Join": join, "Return": back} {
		if err != nil {
			wantCanceled(t, name, err)
		}
	}
	if _, _, wait, err := b.Take(t.Context(), "a", time.Hour, 2, 1); wait != 0 || err != nil {
		t.Errorf("the next token: wait %v, %v", wait, err)
	}
}
