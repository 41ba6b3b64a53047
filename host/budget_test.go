package host_test

import (
	"context"
	"errors"
	"iter"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/host"
	"github.com/patchbay-mcp/patchbay/host/config"
	"github.com/patchbay-mcp/patchbay/host/hosterr"
	"github.com/patchbay-mcp/patchbay/host/state"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// openBudget opens a host of one server with limits and a state.
func openBudget(t *testing.T, limits string, state state.Store) *host.Host {
	t.Helper()
	p := &fakeProcess{handler: simpleServer("a")}
	h, err := host.Open(t.Context(), parseConfig(t, `"a": {"command": "a"}`, `{"limits": `+limits+`}`), &host.Options{
		Logger: noLog, State: state,
		Dial: func(ctx context.Context, _ *config.Server) (mcp.Transport, error) { return p.dial(ctx) }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = h.Close()
		p.work.Wait()
	})
	return h
}

// A budget is that of one caller from midnight to midnight, UTC. A restart does not reset it.
//
// Requirement: HOST-06
func TestCallsOfADay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // begins at midnight UTC
		time.Sleep(20 * time.Hour)
		state := &state.Memory{}
		const limits = `{"callsPerDay": 3}`
		first := openBudget(t, limits, state)
		c := clientOfView(t, annOf(first))
		wantText(t, c, "a__name", "a")
		wantText(t, c, "a__name", "a")
		_ = first.Close()
		h := openBudget(t, limits, state)
		ann, bob := clientOfView(t, annOf(h)), clientOfView(t, bobOf(h))
		wantText(t, ann, "a__name", "a")
		wait := wantFailure(t, ann, "a__name", hosterr.CodeLimited,
			"the caller has used limits.callsPerDay of 3: send the request again after midnight UTC, in 4h0m0s")
		if wait != 4*time.Hour {
			t.Errorf("got %v, want 4h", wait)
		}
		wantText(t, bob, "a__name", "a")
		time.Sleep(wait - time.Second)
		wantFailure(t, ann, "a__name", hosterr.CodeLimited, "callsPerDay")
		time.Sleep(time.Second)
		for range 3 {
			wantText(t, ann, "a__name", "a")
		}
		wantFailure(t, ann, "a__name", hosterr.CodeLimited, "in 24h0m0s")
		time.Sleep(time.Minute)
		if n := entries(t, state); n != 1 { // that of bob was of the day before
			t.Errorf("the state has %d budgets, want 1", n)
		}
	})
}

func entries(t *testing.T, state state.Store) (n int) {
	t.Helper()
	for _, err := range state.List(t.Context(), "budget") {
		if err != nil {
			t.Fatal(err)
		}
		n++
	}
	return n
}

// Concurrent calls do not exceed the budget.
func TestConcurrentCallsOfADay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := openBudget(t, `{"callsPerDay": 5}`, nil)
		c := clientOfView(t, annOf(h))
		var calls sync.WaitGroup
		var mu sync.Mutex
		served := 0
		for range 50 {
			calls.Go(func() {
				if f, _ := failureOf(t, c, "a__name"); f == nil {
					mu.Lock()
					defer mu.Unlock()
					served++
				}
			})
		}
		calls.Wait()
		if served != 5 {
			t.Errorf("%d calls were served, want 5", served)
		}
	})
}

// Bytes are those of requests and results.
//
// Requirement: HOST-06
func TestBytesOfADay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer("a")
		mcp.AddTool(s, &mcp.Tool{Name: "large"}, func(context.Context, struct{}) (string, error) {
			return strings.Repeat("x", 3000), nil
		})
		state := &state.Memory{}
		p := &fakeProcess{handler: s}
		h := openFile(t, map[string]any{"a": map[string]string{"command": "a"}}, `{"limits": {"bytesPerDay": "4KiB"}}`,
			&host.Options{State: state, Dial: func(ctx context.Context, _ *config.Server) (mcp.Transport, error) { return p.dial(ctx) }})
		t.Cleanup(func() { _ = h.Close(); p.work.Wait() })
		c := clientOfView(t, annOf(h))
		for range 2 {
			if f, text := failureOf(t, c, "a__large"); f != nil || len(text) != 3000 {
				t.Fatalf("got %+v, %.100q", f, text)
			}
		}
		wantFailure(t, c, "a__large", hosterr.CodeLimited, "limits.bytesPerDay of 4KiB")
		_, err := c.GetPrompt(t.Context(), "a__greet", nil)
		var refused *mcp.Error
		if !errors.As(err, &refused) || !strings.Contains(refused.Message, "limits.bytesPerDay of 4KiB") {
			t.Errorf("got %v", err)
		}
	})
}

// A process that is killed forgets nothing, and two processes count together.
func TestBudgetOfSeveralProcesses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		state := &state.Memory{}
		const limits = `{"callsPerDay": 6}`
		one, two := openBudget(t, limits, state), openBudget(t, limits, state)
		first, second := clientOfView(t, annOf(one)), clientOfView(t, annOf(two))
		wantText(t, first, "a__name", "a")
		wantText(t, second, "a__name", "a")
		wantText(t, second, "a__name", "a")
		killed := openBudget(t, limits, state) // sees what was written
		third := clientOfView(t, annOf(killed))
		wantText(t, third, "a__name", "a")
		wantText(t, first, "a__name", "a")
		wantText(t, first, "a__name", "a") // 6 over all processes
		wantFailure(t, first, "a__name", hosterr.CodeLimited, "callsPerDay")
		last := clientOfView(t, annOf(openBudget(t, limits, state)))
		wantFailure(t, last, "a__name", hosterr.CodeLimited, "callsPerDay")
	})
}

// A faultyState fails while broken is set.
type faultyState struct {
	state.Memory
	mu     sync.Mutex // guards broken
	broken error
	writes int
}

func (s *faultyState) fail(err error) { s.mu.Lock(); defer s.mu.Unlock(); s.broken = err }

func (s *faultyState) failure() error { s.mu.Lock(); defer s.mu.Unlock(); return s.broken }

func (s *faultyState) Get(ctx context.Context, kind, key string) ([]byte, uint64, error) {
	if err := s.failure(); err != nil {
		return nil, 0, err
	}
	return s.Memory.Get(ctx, kind, key)
}

func (s *faultyState) CompareAndSet(ctx context.Context, kind, key string, version uint64, value []byte) error {
	if err := s.failure(); err != nil {
		return err
	}
	s.mu.Lock()
	s.writes++
	s.mu.Unlock()
	return s.Memory.CompareAndSet(ctx, kind, key, version, value)
}

func (s *faultyState) List(ctx context.Context, kind string) iter.Seq2[state.Entry, error] {
	return s.Memory.List(ctx, kind)
}

// While the state cannot be written, the process counts itself, and writes with a later request. A caller whose
// budget cannot be read is refused.
func TestBudgetsOfABrokenState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		state := &faultyState{}
		h := openBudget(t, `{"callsPerDay": 3}`, state)
		ann := clientOfView(t, annOf(h))
		wantText(t, ann, "a__name", "a")
		state.fail(errBroken)
		wantText(t, ann, "a__name", "a")
		time.Sleep(time.Minute)
		wantText(t, ann, "a__name", "a")
		wantFailure(t, ann, "a__name", hosterr.CodeLimited, "callsPerDay")
		f, text := failureOf(t, clientOfView(t, bobOf(h)), "a__name")
		if f == nil || f.Code != hosterr.CodeUnavailable || f.RetryAfterMs != 1000 || strings.Contains(text, "broken") {
			t.Errorf("got %+v, %q, want unavailable without the reason", f, text)
		}
		state.fail(nil)
		wantFailure(t, ann, "a__name", hosterr.CodeLimited, "callsPerDay")
		again := openBudget(t, `{"callsPerDay": 3}`, state)
		wantFailure(t, clientOfView(t, annOf(again)), "a__name", hosterr.CodeLimited, "callsPerDay")
		if state.writes > 2 {
			t.Errorf("%d writes, want at most 2", state.writes)
		}
	})
}

// Without budgets, nothing is read or written.
func TestNoBudgetsUseNoState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		state := &faultyState{broken: errBroken}
		wantText(t, clientOfView(t, annOf(openBudget(t, `{}`, state))), "a__name", "a")
	})
}
