package host_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/host/hosterr"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/host/status"
	"github.com/patchbay-mcp/patchbay/mcp"
)

func wantStates(t *testing.T, got []status.State, want ...status.State) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("events: got %v, want %v", got, want)
	}
}

// The first request starts the server. Requests that arrive meanwhile wait for the same start, also
// if the one that began it is cancelled.
func TestConcurrentCallersShareAStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &fakeProcess{handler: simpleServer("calc"), startup: 3 * time.Second}
		h := openFakes(t, map[string]*fakeProcess{"calc": p}, "{}")
		states := follow(t, h)
		if got := upstream(t, h, "calc").Status().State; got != status.Off {
			t.Errorf("state before the first request: got %s, want off", got)
		}
		first, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		begun := time.Now()
		if _, err := mcp.Connect(first, mcp.InMemory(h.For(&policy.Caller{Server: "calc"})), nil); err == nil {
			t.Error("the first client connected before the server was ready")
		}
		if took := time.Since(begun); took != time.Second {
			t.Errorf("the cancelled client waited %v, want 1s", took)
		}
		var wait sync.WaitGroup
		for range 20 {
			wait.Go(func() {
				c, err := mcp.Connect(t.Context(), mcp.InMemory(h.For(&policy.Caller{Server: "calc"})), nil)
				if err != nil {
					t.Error(err)
					return
				}
				defer c.Close()
				if _, err := c.CallTool(t.Context(), "name", nil); err != nil {
					t.Error(err)
				}
			})
		}
		wait.Wait()
		if took := time.Since(begun); took != 3*time.Second {
			t.Errorf("the calls took %v, want 3s", took)
		}
		if n := len(p.started()); n != 1 {
			t.Errorf("got %d starts, want 1", n)
		}
		synctest.Wait()
		wantStates(t, states(), status.Starting, status.Ready)
		st := upstream(t, h, "calc").Status()
		if st.State != status.Ready || st.Revision != "2026-07-28" || len(st.Instances) != 1 || st.Starts != 1 {
			t.Errorf("got %+v, want a ready instance", st)
		}
	})
}

// An exit delays the next start by at most a second, which a request waits for.
func TestRequestWaitsForARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &fakeProcess{handler: simpleServer("calc")}
		h := openFakes(t, map[string]*fakeProcess{"calc": p}, "{}")
		c := client(t, h, &policy.Caller{})
		states := follow(t, h)
		if f, text := failureOf(t, c, "calc__name"); f != nil || text != "calc" {
			t.Fatalf("got %+v, %q", f, text)
		}
		time.Sleep(time.Minute)
		p.exit()
		synctest.Wait()
		wantStates(t, states(), status.Backoff)
		if st := upstream(t, h, "calc").Status(); st.State != status.Backoff || st.Err == nil {
			t.Errorf("got %+v, want backoff and the reason", st)
		}
		begun := time.Now()
		if f, text := failureOf(t, c, "calc__name"); f != nil || text != "calc" {
			t.Errorf("after the exit: got %+v, %q", f, text)
		}
		if took := time.Since(begun); took > time.Second {
			t.Errorf("the call took %v, want at most 1s", took)
		}
		synctest.Wait()
		wantStates(t, states(), status.Starting, status.Ready)
	})
}

// Five early exits are a crash loop: requests fail at once, and the server starts again after five
// minutes.
func TestCrashLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &fakeProcess{handler: simpleServer("calc"), fail: errBroken}
		h := openFakes(t, map[string]*fakeProcess{"calc": p}, "{}")
		u := upstream(t, h, "calc")
		var codes []hosterr.Code
		for len(p.started()) < 5 {
			err := h.Start(t.Context())
			var failed *hosterr.Error
			if !errors.As(err, &failed) {
				t.Fatalf("got %v, want an Error", err)
			}
			if failed.MayHaveRun || failed.Server != "calc" {
				t.Errorf("got %+v", failed)
			}
			if !slices.Contains(codes, failed.Code) {
				codes = append(codes, failed.Code)
			}
			if failed.RetryAfter <= time.Minute {
				time.Sleep(failed.RetryAfter)
			}
		}
		for n, start := range p.started()[1:] {
			if delay, most := start.Sub(p.started()[n]), time.Second<<n+backoffSlack; delay > most {
				t.Errorf("delay before start %d: got %v, want at most %v", n+2, delay, most)
			}
		}
		if !slices.Equal(codes, []hosterr.Code{hosterr.CodeUnavailable}) {
			t.Errorf("codes: got %v, want unavailable", codes)
		}
		if st := u.Status(); st.State != status.CrashLoop || st.RetryAfter < 4*time.Minute || st.Starts != 5 {
			t.Fatalf("got %+v, want a crash loop", st)
		}
		begun := time.Now()
		err := h.Start(t.Context())
		var failed *hosterr.Error
		if !errors.As(err, &failed) || failed.Code != hosterr.CodeCrashLoop || failed.MayHaveRun ||
			!errors.Is(err, errBroken) || !strings.Contains(err.Error(), errBroken.Error()) {
			t.Errorf("got %v, want crashloop with the last error", err)
		}
		if took := time.Since(begun); took != 0 || failed.RetryAfter < 4*time.Minute {
			t.Errorf("the request failed after %v, retry after %v; want at once, about 5m", took, failed.RetryAfter)
		}
		time.Sleep(failed.RetryAfter) // then one trial
		if err := h.Start(t.Context()); !errors.Is(err, errBroken) || len(p.started()) != 6 {
			t.Errorf("trial: got %v after %d starts", err, len(p.started()))
		}
		err = h.Start(t.Context())
		if !errors.As(err, &failed) || failed.Code != hosterr.CodeCrashLoop || len(p.started()) != 6 {
			t.Errorf("after the trial: got %v after %d starts", err, len(p.started()))
		}
		p.setFail(nil)
		if err := u.Restart(t.Context()); err != nil || u.Status().State != status.Ready {
			t.Errorf("restart: got %v, %+v", err, u.Status())
		}
	})
}

// backoffSlack is how long the requests of a test wait between two attempts.
const backoffSlack = 10 * time.Millisecond

// A process that exits after it was ready counts too, unless it has run for 30 seconds.
func TestLongRunsAreNoCrashLoop(t *testing.T) {
	for _, test := range []struct {
		run  time.Duration
		want status.State
	}{{29 * time.Second, status.CrashLoop}, {31 * time.Second, status.Backoff}} {
		t.Run(test.run.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := &fakeProcess{handler: simpleServer("calc")}
				h := openFakes(t, map[string]*fakeProcess{"calc": p}, "{}")
				for range 5 {
					for h.Start(t.Context()) != nil {
						time.Sleep(time.Second)
					}
					time.Sleep(test.run)
					p.exit()
					synctest.Wait()
				}
				if st := upstream(t, h, "calc").Status(); st.State != test.want || st.Starts != 5 {
					t.Errorf("got %+v, want %s", st, test.want)
				}
			})
		})
	}
}

// A start that takes too long is ended.
func TestStartTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &fakeProcess{handler: simpleServer("calc"), startup: time.Hour}
		h := openFakes(t, map[string]*fakeProcess{"calc": p}, `{"servers": {"calc": {"startTimeout": "7s"}}}`)
		begun := time.Now()
		err := h.Start(t.Context())
		var failed *hosterr.Error
		if !errors.As(err, &failed) || failed.Code != hosterr.CodeStarting || failed.MayHaveRun {
			t.Errorf("got %v, want starting", err)
		}
		if took := time.Since(begun); took != 7*time.Second {
			t.Errorf("the start took %v, want 7s", took)
		}
	})
}

// An instance that is not used stops, and starts again with the next request.
func TestIdleInstanceStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &fakeProcess{handler: simpleServer("calc")}
		h := openFakes(t, map[string]*fakeProcess{"calc": p}, "{}")
		c := client(t, h, &policy.Caller{})
		states := follow(t, h)
		for range 3 { // use restarts the time
			time.Sleep(9 * time.Minute)
			if f, text := failureOf(t, c, "calc__name"); f != nil {
				t.Fatalf("got %+v, %q", f, text)
			}
		}
		wantStates(t, states())
		time.Sleep(10*time.Minute + time.Second)
		wantStates(t, states(), status.Stopped)
		if tools, err := mcp.Collect(c.Tools(t.Context())); err != nil || len(tools) != 4 {
			t.Errorf("tools of the stopped server: got %d, %v", len(tools), err)
		}
		if f, text := failureOf(t, c, "calc__name"); f != nil || len(p.started()) != 2 {
			t.Errorf("got %+v, %q after %d starts", f, text, len(p.started()))
		}
	})
}

// Requests, suspended ones and subscriptions keep an instance.
func TestBusyInstanceDoesNotStop(t *testing.T) {
	for _, revision := range []string{"2025-11-25", "2026-07-28"} {
		t.Run(revision, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := &fakeProcess{handler: simpleServer("calc")}
				h := openFakes(t, map[string]*fakeProcess{"calc": p}, `{"servers": {"calc": {"idle": "20s"}}}`)
				states := follow(t, h)
				c := clientWith(t, h, &policy.Caller{}, &mcp.ClientOptions{Revision: revision,
					Elicit: func(ctx context.Context, p *mcp.ElicitRequestParams) (*mcp.ElicitResult, error) {
						time.Sleep(time.Minute)
						return yes(ctx, p)
					}})
				states()
				if f, text := failureOf(t, c, "calc__slow"); f != nil || text != "slow" {
					t.Errorf("slow: got %+v, %q", f, text)
				}
				if f, text := failureOf(t, c, "calc__ask"); f != nil || text != "calctrue" {
					t.Errorf("question: got %+v, %q", f, text)
				}
				ctx, cancel := context.WithCancel(t.Context())
				var wait sync.WaitGroup
				wait.Go(func() {
					for range c.Listen(ctx, mcp.SubscriptionFilter{ResourceSubscriptions: []string{"file:///calc"}}) {
					}
				})
				time.Sleep(time.Hour)
				if got := states(); slices.Contains(got, status.Stopped) {
					t.Errorf("events: got %v", got)
				}
				cancel()
				wait.Wait()
				time.Sleep(12 * time.Minute)
				wantStates(t, states(), status.Stopped)
			})
		})
	}
}

// With subscriptions to resources, a server starts again without a request, and the subscriptions
// continue: at once, after an exit and after a restart.
//
// Requirement: HOST-42
func TestSubscriptionRestartsTheServer(t *testing.T) {
	const uri = "file:///calc"
	synctest.Test(t, func(t *testing.T) {
		s := simpleServer("calc")
		p := &fakeProcess{handler: s}
		h := openFakes(t, map[string]*fakeProcess{"calc": p}, "{}")
		u := upstream(t, h, "calc")
		c := client(t, h, &policy.Caller{})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var wait sync.WaitGroup
		var updates atomic.Int64
		wait.Go(func() {
			for e := range c.Listen(ctx, mcp.SubscriptionFilter{ResourceSubscriptions: []string{uri}}) {
				if e.Kind == mcp.EventResourceUpdated && e.URI == uri {
					updates.Add(1)
				}
			}
		})
		wantUpdate := func(when string) {
			t.Helper()
			time.Sleep(2 * time.Second)
			updates.Store(0)
			s.ResourceUpdated(uri)
			time.Sleep(time.Second)
			if n := updates.Load(); n != 1 {
				t.Errorf("%s: got %d updates, want 1", when, n)
			}
		}
		wantUpdate("at first")
		time.Sleep(time.Minute)
		updates.Store(0)
		p.exit()
		time.Sleep(2 * time.Second)
		if st := u.Status(); st.State != status.Ready || st.Starts != 2 || updates.Load() != 1 {
			t.Errorf("got %+v and %d updates, want a second start and one update", st, updates.Load())
		}
		wantUpdate("after an exit")
		if err := u.Restart(t.Context()); err != nil {
			t.Error(err)
		}
		time.Sleep(2 * time.Second)
		if st := u.Status(); len(st.Instances) != 1 || st.Starts != 3 {
			t.Errorf("got %+v, want that the subscription does not keep the old instance", st)
		}
		wantUpdate("after a restart")
		cancel()
		wait.Wait()
	})
}

// A process that no longer responds is replaced: in sessions also without a request, in the modern era
// after one has timed out.
func TestHangingProcessIsReplaced(t *testing.T) {
	for _, era := range []string{"session", "modern"} {
		t.Run(era, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := &fakeProcess{handler: simpleServer("calc")}
				h := openFakes(t, map[string]*fakeProcess{"calc": p}, `{"servers": {"calc": {"era": "`+era+`"}}}`)
				u := upstream(t, h, "calc")
				c := clientWith(t, h, &policy.Caller{}, &mcp.ClientOptions{Timeout: time.Hour})
				p.frozen.Store(true)
				if era == "modern" {
					f, text := failureOf(t, c, "calc__name")
					if f == nil || f.Code != hosterr.CodeTimeout || !f.MayHaveRun {
						t.Errorf("got %+v, %q, want a timeout", f, text)
					}
				}
				time.Sleep(5 * time.Minute)
				if st := u.Status(); st.State != status.Backoff || len(st.Instances) != 0 {
					t.Errorf("got %+v, want that the process was ended", st)
				}
				p.frozen.Store(false)
				if f, text := failureOf(t, c, "calc__name"); f != nil || text != "calc" {
					t.Errorf("got %+v, %q", f, text)
				}
			})
		})
	}
}

// A request that times out does not end a server that responds to others.
func TestSlowRequestDoesNotEndTheServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &fakeProcess{handler: simpleServer("calc")}
		h := openFakes(t, map[string]*fakeProcess{"calc": p}, `{"servers": {"calc": {"timeout": "10s"}}}`)
		c := client(t, h, &policy.Caller{})
		for range 5 {
			if f, text := failureOf(t, c, "calc__slow"); f == nil || f.Code != hosterr.CodeTimeout || !f.MayHaveRun {
				t.Errorf("got %+v, %q, want a timeout", f, text)
			}
		}
		time.Sleep(3 * time.Minute)
		if st := upstream(t, h, "calc").Status(); st.State != status.Degraded || st.Starts != 1 {
			t.Errorf("got %+v, want the first instance", st)
		}
		if f, text := failureOf(t, c, "calc__name"); f != nil || text != "calc" {
			t.Errorf("got %+v, %q", f, text)
		}
	})
}

// Requests that wait for a start that hangs are served by the one that a restart begins.
func TestRestartOfAStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &fakeProcess{handler: simpleServer("calc"), startup: time.Hour}
		h := openFakes(t, map[string]*fakeProcess{"calc": p}, "{}")
		u := upstream(t, h, "calc")
		var wait sync.WaitGroup
		wait.Go(func() {
			if err := h.Start(t.Context()); err != nil {
				t.Error(err)
			}
		})
		time.Sleep(time.Second)
		p.setStartup(0)
		if err := u.Restart(t.Context()); err != nil {
			t.Error(err)
		}
		begun := time.Now()
		wait.Wait()
		if took := time.Since(begun); took != 0 || len(p.started()) != 2 {
			t.Errorf("the request waited %v after the restart, for %d starts", took, len(p.started()))
		}
		wantInstances(t, u, 1, 2)
	})
}
