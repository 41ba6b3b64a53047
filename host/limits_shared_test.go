package host_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/host"
	"github.com/patchbay-mcp/patchbay/host/config"
	"github.com/patchbay-mcp/patchbay/host/hosterr"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// openShared opens a host of a server with a URL, which shares its limits through a store.
func openShared(t *testing.T, h mcp.Handler, settings string, store *limitClient) *host.Host {
	t.Helper()
	return openFile(t, map[string]any{"all": map[string]string{"url": "https://all.example/mcp"}}, settings,
		&host.Options{Limits: store, Dial: func(context.Context, *config.Server) (mcp.Transport, error) {
			return mcp.InMemory(h), nil
		}})
}

// openBoth opens two hosts that share their limits, and waits until both know it.
func openBoth(t *testing.T, h mcp.Handler, settings string) (hosts [2]*host.Host, stores [2]*limitClient) {
	t.Helper()
	m := &memoryLimits{}
	for n := range hosts {
		stores[n] = &limitClient{memoryLimits: m}
		hosts[n] = openShared(t, h, settings, stores[n])
	}
	<-time.After(3 * time.Second)
	return hosts, stores
}

// admitted calls a tool until it is refused, and returns the number of calls before.
func admitted(t *testing.T, c *mcp.Client) (n int) {
	t.Helper()
	for ; n < 1000; n++ {
		if f, text := failureOf(t, c, "all__name"); f != nil {
			if f.Code != hosterr.CodeLimited {
				t.Fatalf("got %+v, %q", f, text)
			}
			return n
		}
	}
	t.Fatal("nothing was refused")
	return n
}

func wantAdmitted(t *testing.T, c *mcp.Client, want int) {
	t.Helper()
	if got := admitted(t, c); got != want {
		t.Errorf("%d calls were admitted, want %d", got, want)
	}
}

func wantSharing(t *testing.T, h *host.Host, processes int, want bool) {
	t.Helper()
	if n, answers := h.Operator().LimitSharing(); n != processes || answers != want {
		t.Errorf("figures are of %d processes, the store answers: %t; want %d, %t", n, answers, processes, want)
	}
}

// Two processes admit a rate together. The figures that each shows are those of both.
//
// Requirement: HOST-06
func TestRateOfSeveralProcesses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hosts, _ := openBoth(t, simpleServer("a"), `{"limits": {"perTool": "6/m"}}`)
		first, second := clientOfView(t, annOf(hosts[0])), clientOfView(t, annOf(hosts[1]))
		wantText(t, first, "all__name", "a")
		wantText(t, second, "all__name", "a")
		for n, h := range hosts {
			wantSharing(t, h, 2, true)
			rates := h.Operator().CallerLimits()[0].Rates
			if got, want := rates[len(rates)-1].Left, 5-n; got != want { // as of its own last request
				t.Errorf("host %d shows %d tokens, want %d", n, got, want)
			}
		}
		wantAdmitted(t, first, 4)
		wantAdmitted(t, second, 0)
		wantAdmitted(t, clientOfView(t, bobOf(hosts[1])), 6)
		<-time.After(10 * time.Second)
		wantAdmitted(t, second, 1)
		wantAdmitted(t, first, 0)
	})
}

// Without the store, each process admits its share, and afterwards both admit the rate together.
func TestRatesWithoutTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hosts, stores := openBoth(t, simpleServer("a"), `{"limits": {"perTool": "6/m"}}`)
		clients := [2]*mcp.Client{clientOfView(t, annOf(hosts[0])), clientOfView(t, annOf(hosts[1]))}
		for n, s := range stores {
			s.fail(errBroken)
			wantAdmitted(t, clients[n], 3)
		}
		<-time.After(time.Minute)
		for n, h := range hosts {
			wantSharing(t, h, 2, false)
			wantAdmitted(t, clients[n], 3)
			stores[n].fail(nil)
		}
		<-time.After(3 * time.Second)
		for _, h := range hosts {
			wantSharing(t, h, 2, true)
		}
		if n := admitted(t, clients[0]) + admitted(t, clients[1]); n != 6 {
			t.Errorf("%d calls were admitted, want 6", n)
		}
	})
}

// Two processes use a budget together, in parts: a process that ends returns the rest of its part, and the rest of a
// process that is killed is lost.
//
// Requirement: HOST-06
func TestBudgetOfSeveralProcessesInParts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const settings = `{"limits": {"callsPerDay": 384}}` // parts of 6, and of 4 with three processes
		hosts, stores := openBoth(t, simpleServer("a"), settings)
		killed := openShared(t, simpleServer("a"), settings, &limitClient{memoryLimits: stores[0].memoryLimits})
		first, second := clientOfView(t, annOf(hosts[0])), clientOfView(t, annOf(hosts[1]))
		wantText(t, clientOfView(t, annOf(killed)), "all__name", "a") // it leaves 3
		wantText(t, second, "all__name", "a")                         // it leaves 5
		before := stores[0].leases
		wantAdmitted(t, first, 374)
		if n := stores[0].leases - before; n > 64 {
			t.Errorf("374 calls leased %d times, want at most 64", n)
		}
		if c := hosts[0].Operator().CallerLimits()[0]; c.Calls != 384 {
			t.Errorf("got %d calls, want 384 of all processes", c.Calls)
		}
		_ = hosts[1].Close()
		wantAdmitted(t, first, 5)
		<-time.After(24 * time.Hour)
		wantAdmitted(t, first, 384)
	})
}

// Without the store, each process uses its share of a budget, and what it used counts afterwards.
func TestBudgetsWithoutTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hosts, stores := openBoth(t, simpleServer("a"), `{"limits": {"callsPerDay": 10}}`)
		clients := [2]*mcp.Client{clientOfView(t, annOf(hosts[0])), clientOfView(t, annOf(hosts[1]))}
		wantText(t, clients[0], "all__name", "a")
		for _, s := range stores {
			s.fail(errBroken)
		}
		wantAdmitted(t, clients[0], 4)
		wantText(t, clients[1], "all__name", "a")
		<-time.After(3 * time.Second)
		for _, s := range stores {
			s.fail(nil)
		}
		<-time.After(3 * time.Second)
		wantAdmitted(t, clients[0], 4)
		wantAdmitted(t, clients[1], 0)
	})
}

// A lease whose answer is lost is repeated, so that its units are used.
func TestLeasesWhoseAnswersAreLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &limitClient{memoryLimits: &memoryLimits{}}
		h := openShared(t, simpleServer("a"), `{"limits": {"callsPerDay": 640}}`, store)
		c := clientOfView(t, annOf(h))
		store.lose(errBroken)
		for range 100 {
			wantText(t, c, "all__name", "a")
		}
		store.lose(nil)
		wantAdmitted(t, c, 540)
	})
}

// While the calls that were admitted without the store are counted, requests count each call once, and the process
// reports that it runs.
func TestCallsAreCountedAfterAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &memoryLimits{}
		store, second := &limitClient{memoryLimits: m}, &limitClient{memoryLimits: m}
		h := openShared(t, simpleServer("a"), `{"limits": {"callsPerDay": 64}}`, store)
		other := openShared(t, simpleServer("a"), `{}`, second)
		<-time.After(3 * time.Second)
		store.fail(errBroken)
		clients := make([]*mcp.Client, 30)
		for n := range clients {
			p := mcp.Principal{Issuer: "i", Subject: fmt.Sprint(n)}
			clients[n] = clientOfView(t, h.For(&policy.Caller{Principal: &p}))
			for range 20 {
				wantText(t, clients[n], "all__name", "a")
			}
		}
		<-time.After(3 * time.Second)
		store.slow(time.Second)
		store.fail(nil)
		<-time.After(3 * time.Second) // it began to count
		for _, c := range clients {
			wantText(t, c, "all__name", "a")
			wantSharing(t, other, 2, true)
		}
		store.slow(0)
		for _, c := range clients {
			wantAdmitted(t, c, 43)
		}
	})
}

// A process that knows that a budget is used up admits nothing without the store.
func TestUsedBudgetWithoutTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hosts, stores := openBoth(t, simpleServer("a"), `{"limits": {"callsPerDay": 64}}`)
		first, second := clientOfView(t, annOf(hosts[0])), clientOfView(t, annOf(hosts[1]))
		wantAdmitted(t, first, 64)
		wantAdmitted(t, second, 0)
		for _, s := range stores {
			s.fail(errBroken)
		}
		wantAdmitted(t, first, 0)
		wantAdmitted(t, second, 0)
	})
}

// The parts that many processes hold do not use up a budget.
func TestBudgetOfManyProcesses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const settings = `{"limits": {"callsPerDay": 3200, "perCaller": "off", "perTool": "off"}}`
		m := &memoryLimits{}
		for range 40 {
			h := openShared(t, simpleServer("a"), settings, &limitClient{memoryLimits: m})
			wantText(t, clientOfView(t, annOf(h)), "all__name", "a")
		}
	})
}

// When the clock of the store is ahead, a caller waits for the period of the store, and its budget begins again with
// that period.
func TestPeriodOfTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &memoryLimits{}
		h := openShared(t, simpleServer("a"), `{"limits": {"callsPerDay": 64}}`, &limitClient{memoryLimits: m})
		c := clientOfView(t, annOf(h))
		wantText(t, c, "all__name", "a")
		wantText(t, c, "all__name", "a")
		m.move(36 * time.Hour)
		wantAdmitted(t, c, 64)
		if got := h.Operator().CallerLimits()[0].Calls; got != 64 {
			t.Errorf("got %d calls, want 64 of the new period", got)
		}
		wait := wantFailure(t, c, "all__name", hosterr.CodeLimited, "after midnight UTC")
		if wait > 12*time.Hour {
			t.Errorf("the caller has to wait for %v, want at most 12h", wait)
		}
	})
}

// Processes divide the concurrency of a server with a URL. When one is killed, the others get its share after it
// expires.
//
// Requirement: HOST-06
func TestConcurrencyOfSeveralProcesses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGatedServer()
		hosts, stores := openBoth(t, g, `{"servers": {"all": {"concurrency": 5, "queueTimeout": "1h"}}}`)
		work := &holder{}
		for n, h := range hosts {
			ann, bob := clientOfView(t, annOf(h)), clientOfView(t, bobOf(h))
			for i := range 4 {
				work.call(t.Context(), ann, fmt.Sprint("ann ", n, i))
				work.call(t.Context(), bob, fmt.Sprint("bob ", n, i))
			}
		}
		running := func() int {
			g.mu.Lock()
			defer g.mu.Unlock()
			return g.now
		}
		if n := running(); n != 5 {
			t.Errorf("%d calls run, want 5", n)
		}
		stores[1].fail(errBroken)
		<-time.After(time.Second)
		if n := running(); n != 5 { // the share of a process that cannot be reached is in use
			t.Errorf("%d calls run, want 5", n)
		}
		<-time.After(12 * time.Second)
		share := hosts[0].Upstreams()[0].Status().Limits.Running
		if share != 5 {
			t.Errorf("%d calls of the remaining process run, want 5", share)
		}
		close(g.release)
		work.work.Wait()
		for id, text := range work.got {
			if !strings.HasPrefix(text, "held") {
				t.Errorf("%s: %s", id, text)
			}
		}
	})
}
