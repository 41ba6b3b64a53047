package limits_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/host/config"
	"github.com/patchbay-mcp/patchbay/host/hosterr"
	"github.com/patchbay-mcp/patchbay/host/internal/limits"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/host/state"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest/testhome"
)

func TestMain(m *testing.M) { os.Exit(testhome.Main(m, (*testing.M).Run)) }

func newLimits(t *testing.T, store state.Store, l *config.CallerLimits) *limits.Limits {
	t.Helper()
	limited := limits.New(limits.Options{State: store, Logger: slog.New(slog.DiscardHandler), Done: make(chan struct{}),
		Settings: func() *config.CallerLimits { return l }})
	t.Cleanup(limited.Close)
	return limited
}

func call(s *limits.Server, principal, arguments string) *limits.Request {
	params := json.RawMessage(`{"name":"tool","arguments":` + arguments + `}`)
	return &limits.Request{Principal: principal, Server: s, Kind: policy.ActionCall, Target: "tool",
		MCP: &mcp.Request{Method: "tools/call", Params: params}}
}

func wantRefusal(t *testing.T, err error, code hosterr.Code, wait time.Duration, reason string) {
	t.Helper()
	refused, ok := errors.AsType[*hosterr.Error](err)
	if !ok || refused.Code != code || refused.RetryAfter != wait || refused.Err.Error() != reason {
		t.Errorf("got %v\nwant %q (%s, again in %v)", err, reason, code, wait)
	}
}

func TestRatesOfCallersAndTools(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimits(t, &state.Memory{}, &config.CallerLimits{
			PerCaller: config.Rate{Count: 1, Per: time.Second, Burst: 3},
			PerTool:   config.Rate{Count: 1, Per: time.Minute, Burst: 2}, ArgumentBytes: 20,
		})
		s := l.NewServer("a", &config.ServerSettings{})
		admit := func(principal, arguments string) error { return l.Check(t.Context(), call(s, principal, arguments)) }
		if err := errors.Join(admit("ann", "{}"), admit("ann", "{}"), admit("ben", "{}")); err != nil {
			t.Error(err)
		}
		wantRefusal(t, admit("ann", "{}"), hosterr.CodeLimited, time.Minute,
			"the caller has reached limits.perTool of 1/m burst 2: send the request again in 1m0s")
		wantRefusal(t, admit("ann", "{}"), hosterr.CodeLimited, time.Second,
			"the caller has reached limits.perCaller of 1/s burst 3: send the request again in 1s")
		if err := l.AdmitCaller(t.Context(), call(s, "ann", "{}"), "subscriptions/listen"); err != nil {
			t.Error(err) // has a bucket of its own
		}
		wantRefusal(t, admit("ben", `{"text":"longer than 20 bytes"}`), hosterr.CodeTooLarge, 0,
			"the arguments have 31 bytes, more than limits.argumentBytes of 20B")
		want := map[string]uint64{"limits.perTool": 1, "limits.perCaller": 1, "limits.argumentBytes": 1}
		if got := s.Refused(); !maps.Equal(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
	})
}

// A process that ends writes the usage of its callers, and the next process reads it.
func TestBudgetsOutliveAProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, settings := &state.Memory{}, &config.CallerLimits{CallsPerDay: 2}
		for range 2 {
			l := newLimits(t, store, settings)
			r := call(l.NewServer("a", &config.ServerSettings{}), "ann", "{}")
			if err := errors.Join(l.Check(t.Context(), r), l.Pay(t.Context(), r)); err != nil {
				t.Error(err)
			}
			l.Close()
		}
		l := newLimits(t, store, settings)
		wantRefusal(t, l.Check(t.Context(), call(l.NewServer("a", &config.ServerSettings{}), "ann", "{}")),
			hosterr.CodeLimited, 24*time.Hour,
			"the caller has used limits.callsPerDay of 2: send the request again after midnight UTC, in 24h0m0s")
	})
}

// The rest of a budget that left memory returns to the lender.
func TestRestsOfManyBudgetsAreReturned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, settings := &state.Memory{}, &config.CallerLimits{CallsPerDay: 64} // parts of 2
		l := newLimits(t, store, settings)
		s := l.NewServer("a", &config.ServerSettings{})
		pay := func(l *limits.Limits, principal string) error { return l.Pay(t.Context(), call(s, principal, "{}")) }
		if err := pay(l, "ann"); err != nil {
			t.Fatal(err)
		}
		for n := range 20_001 {
			if err := pay(l, fmt.Sprint(n)); err != nil {
				t.Fatal(err)
			}
		}
		another := newLimits(t, store, settings)
		for n := range 63 {
			if err := pay(another, "ann"); err != nil {
				t.Fatalf("call %d: %v", n+2, err)
			}
		}
		if err := pay(another, "ann"); err == nil {
			t.Error("call 65 of 64 was admitted")
		}
	})
}

// A result that exceeds the budget counts in the next process.
func TestLargeResultsOutliveAProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, settings := &state.Memory{}, &config.CallerLimits{BytesPerDay: 3200}
		l := newLimits(t, store, settings)
		r := call(l.NewServer("a", &config.ServerSettings{}), "ann", "{}")
		if err := l.Pay(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		l.Charge("ann", 4000)
		l.Close()
		wantRefusal(t, newLimits(t, store, settings).Pay(t.Context(), r), hosterr.CodeLimited, 24*time.Hour,
			"the caller has used limits.bytesPerDay of 3200B: send the request again after midnight UTC, in 24h0m0s")
	})
}

func TestRefusalsOfAQueueNameTheSetting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		settings := &config.ServerSettings{Concurrency: 1, Queue: 1, QueueTimeout: config.Duration(time.Second)}
		s := newLimits(t, &state.Memory{}, &config.CallerLimits{}).NewServer("a", settings)
		q := s.NewQueue(false)
		if err := q.Enter(t.Context(), "ann"); err != nil {
			t.Fatal(err)
		}
		waited := make(chan error)
		go func() { waited <- q.Enter(context.Background(), "ann") }()
		synctest.Wait()
		wantRefusal(t, q.Enter(t.Context(), "ann"), hosterr.CodeLimited, time.Second,
			"the server is busy with concurrency of 1, and queue of 1 is full: send the request again in 1s")
		wantRefusal(t, <-waited, hosterr.CodeLimited, time.Second,
			"the request has waited for queueTimeout of 1s: the server is busy with concurrency of 1; "+
				"send it again later")
		s.Configure(&config.ServerSettings{Concurrency: 2, Queue: 1, QueueTimeout: config.Duration(time.Second)})
		q.Update()
		if err := q.Enter(t.Context(), "ann"); err != nil {
			t.Error(err)
		}
	})
}

// A slowStore gives a batch to each Take when it is released.
type slowStore struct {
	state.LimitStore
	takes   atomic.Int32
	release chan struct{}
}

func (s *slowStore) Take(_ context.Context, _ string, _ time.Duration, _, n int) (
	taken, left int, wait time.Duration, err error,
) {
	s.takes.Add(1)
	<-s.release
	return n, n, 0, nil
}

func (s *slowStore) Join(context.Context, string, time.Duration) (place, processes int, err error) {
	return 0, 1, nil
}

// Requests that need a batch at the same time wait for a single command of the store. With a small rate, each request
// sends its own command.
func TestConcurrentRequestsShareABatch(t *testing.T) {
	for burst, want := range map[int]int32{640: 1, 63: 20} {
		synctest.Test(t, func(t *testing.T) {
			store := &slowStore{release: make(chan struct{})}
			settings := &config.CallerLimits{PerCaller: config.Rate{Count: 1, Per: time.Hour, Burst: burst}}
			l := limits.New(limits.Options{State: &state.Memory{}, Shared: store, Logger: slog.New(slog.DiscardHandler),
				Settings: func() *config.CallerLimits { return settings }})
			defer l.Close()
			s := l.NewServer("a", &config.ServerSettings{})
			var work sync.WaitGroup
			for range 20 {
				work.Go(func() {
					if err := l.Check(t.Context(), call(s, "ann", "{}")); err != nil {
						t.Error(err)
					}
				})
			}
			synctest.Wait()
			if n := store.takes.Load(); n != want {
				t.Errorf("20 requests of a burst of %d sent %d commands, want %d", burst, n, want)
			}
			close(store.release)
			work.Wait()
			if n := store.takes.Load(); n != want {
				t.Errorf("20 requests of a burst of %d sent %d commands in all, want %d", burst, n, want)
			}
		})
	}
}
