package host_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/host/hosterr"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// A gatedServer has a tool that runs until the test ends it.
type gatedServer struct {
	*mcp.Server
	release chan struct{}

	mu   sync.Mutex // guards the fields below
	ran  []string   // the arguments of the calls, in their order
	now  int        // calls that run
	most int
}

func newGatedServer() *gatedServer {
	g := &gatedServer{Server: newServer("all"), release: make(chan struct{})}
	mcp.AddTool(g.Server, &mcp.Tool{Name: "hold"}, func(ctx context.Context, in struct{ ID string }) (string, error) {
		g.mu.Lock()
		g.ran = append(g.ran, in.ID)
		g.now++
		g.most = max(g.most, g.now)
		g.mu.Unlock()
		defer func() {
			g.mu.Lock()
			defer g.mu.Unlock()
			g.now--
		}()
		select {
		case <-g.release:
			return "held " + in.ID, nil
		case <-ctx.Done():
			return "", ctx.Err()
		}
	})
	return g
}

func (g *gatedServer) order() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.ran)
}

// A holder calls the tool hold in goroutines, and collects the texts of the results.
type holder struct {
	work sync.WaitGroup
	mu   sync.Mutex // guards got
	got  map[string]string
}

func (l *holder) call(ctx context.Context, c *mcp.Client, id string) {
	l.work.Go(func() {
		text := "cancelled"
		res, err := c.CallTool(ctx, "all__hold", map[string]any{"ID": id})
		switch {
		case err == nil:
			text = res.Text()
		case ctx.Err() == nil:
			text = err.Error()
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.got == nil {
			l.got = map[string]string{}
		}
		l.got[id] = text
	})
	synctest.Wait()
}

func (l *holder) of(id string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.got[id]
}

// A server gets at most as many requests at once as it serves. Others wait in their order, principals in
// turn; a cancelled one leaves the queue, and one that has waited too long is refused.
func TestRequestsWaitForTheirTurn(t *testing.T) {
	forEachCombination(t, func(t *testing.T, on mcptest.Combination) {
		g := newGatedServer()
		h := newHost(t, map[string]mcp.Handler{"all": g}, on,
			`{"servers": {"all": {"share": "shared", "concurrency": 2, "queue": 6, "queueTimeout": "5s"}}}`)
		ann, bob := mcptest.Dial(t, annOf(h), on, nil), mcptest.Dial(t, bobOf(h), on, nil)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var calls holder
		for _, id := range []string{"a1", "a2", "a3", "a4"} {
			calls.call(t.Context(), ann, id)
		}
		calls.call(ctx, ann, "a5")
		calls.call(t.Context(), bob, "b1")
		calls.call(t.Context(), bob, "b2")
		wantRunning(t, h, "all", 2, 5)
		cancel()
		synctest.Wait()
		wantRunning(t, h, "all", 2, 4)
		for range 3 {
			g.release <- struct{}{}
			synctest.Wait()
		}
		if got := strings.Join(g.order(), " "); got != "a1 a2 a3 b1 a4" {
			t.Errorf("the calls ran in the order %s", got)
		}
		time.Sleep(5*time.Second + time.Millisecond)
		synctest.Wait()
		const want = `server "all": the request has waited for queueTimeout of 5s: the server is busy with concurrency of 2; ` +
			"send it again later; the request did not run"
		if got := calls.of("b2"); !strings.HasPrefix(got, want) {
			t.Errorf("got  %q\nwant %q", got, want)
		}
		for range 2 {
			g.release <- struct{}{}
		}
		calls.work.Wait()
		if g.most != 2 || calls.of("a5") != "cancelled" || calls.of("b1") != "held b1" {
			t.Errorf("got %v, at most %d at once", calls.got, g.most)
		}
		wantRunning(t, h, "all", 0, 0)
	})
}

// HOST-11: 10,000 calls of one principal do not delay the calls of another: that one finds slots, and a
// place in the queue, with a rate of the server too.
//
// Requirement: HOST-11
func TestOnePrincipalDoesNotTakeAllSlots(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	for _, test := range []struct {
		name, settings string
		calls          int
	}{
		{"free slots", `"concurrency": 8`, 10_000},
		{"one slot", `"concurrency": 1, "queueTimeout": "1m"`, 1000},
		{"rate", `"concurrency": 8, "rate": "1/s", "queueTimeout": "1m"`, 1000},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { floodServer(t, test.settings, test.calls) })
		})
	}
}

func floodServer(t *testing.T, settings string, n int) {
	const duration = time.Second // of a call
	s := newServer("all")
	mcp.AddTool(s, &mcp.Tool{Name: "work"}, func(ctx context.Context, _ struct{}) (string, error) {
		select {
		case <-time.After(duration):
		case <-ctx.Done():
		}
		return "done", ctx.Err()
	})
	h := hostileHost(t, map[string]mcp.Handler{"all": s}, mcptest.Combination{Transport: mcptest.InMemory, Revision: "2026-07-28"},
		`{"limits": {"perCaller": "off"}, "servers": {"all": {"share": "shared", `+settings+`}}}`)
	ann, bob := clientOfView(t, annOf(h)), clientOfView(t, bobOf(h))
	ctx, cancel := context.WithCancel(t.Context())
	var flood sync.WaitGroup
	var mu sync.Mutex
	served, refused := 0, 0
	for range n {
		flood.Go(func() {
			res, err := ann.CallTool(ctx, "all__work", nil)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err != nil: // cancelled
			case res.IsError:
				refused++
			default:
				served++
			}
		})
	}
	time.Sleep(1500 * time.Millisecond)
	for n := range 5 {
		began := time.Now()
		res, err := bob.CallTool(t.Context(), "all__work", nil)
		if err != nil || res.IsError {
			t.Fatalf("call %d: got %+v, %v", n, res, err)
		}
		// Its turn is at most the second: after a call that runs and one that waits.
		if took := time.Since(began); took > 3*duration {
			t.Errorf("call %d took %v", n, took)
		}
	}
	cancel()
	flood.Wait()
	if served == 0 || refused < n*9/10 {
		t.Errorf("of the flood %d calls were served and %d refused", served, refused)
	}
	wantRunning(t, h, "all", 0, 0)
}

// A caller that finds the queue full takes the place of the last request of the caller with the most.
//
// Requirement: HOST-11
func TestFullQueueIsShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGatedServer()
		on := mcptest.Combination{Transport: mcptest.InMemory, Revision: "2026-07-28"}
		h := hostileHost(t, map[string]mcp.Handler{"all": g}, on,
			`{"servers": {"all": {"share": "shared", "concurrency": 4, "queue": 4}}}`)
		ann, bob := clientOfView(t, annOf(h)), clientOfView(t, bobOf(h))
		var calls holder
		for n := range 8 { // 3 run, 4 wait, one is refused
			calls.call(t.Context(), ann, fmt.Sprint("a", n+1))
		}
		const full = `server "all": the caller uses three quarters of concurrency of 4, and queue of 4 is full: ` +
			"send the request again in 1s; the request did not run"
		if got := calls.of("a8"); !strings.HasPrefix(got, full) {
			t.Errorf("got  %q\nwant %q", got, full)
		}
		for n := range 4 { // the first runs
			calls.call(t.Context(), bob, fmt.Sprint("b", n+1))
		}
		wantRunning(t, h, "all", 4, 4)
		if calls.of("a7") == "" || calls.of("a6") == "" || calls.of("a5") != "" || calls.of("b4") == "" {
			t.Errorf("got %v, want a6, a7 and b4 refused", calls.got)
		}
		close(g.release)
		calls.work.Wait()
		if st := upstream(t, h, "all").Status().Limits; st.Refused["queue"] != 4 || st.Concurrency != 4 || st.Queue != 4 {
			t.Errorf("got %+v, want 4 refusals", st)
		}
	})
}

// The local user may use all slots.
func TestLocalUserMayUseAllSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGatedServer()
		on := mcptest.Combination{Transport: mcptest.InMemory, Revision: "2026-07-28"}
		h := hostileHost(t, map[string]mcp.Handler{"all": g}, on, `{"servers": {"all": {"share": "shared"}}}`)
		var calls holder
		for n := range 9 {
			calls.call(t.Context(), client(t, h, &policy.Caller{}), fmt.Sprint(n))
		}
		wantRunning(t, h, "all", 8, 1)
		close(g.release)
		calls.work.Wait()
	})
}

// Each process of a command serves its own requests: those of one caller do not use the slots of another.
func TestProcessesHaveSlotsOfTheirOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := openFakes(t, fakesOf("a"), `{"servers": {"a": {"concurrency": 1, "queue": 0}}}`)
		ann, bob := clientOfView(t, annOf(h)), clientOfView(t, bobOf(h))
		wantText(t, ann, "a__name", "a")
		wantText(t, bob, "a__name", "a")
		done := make(chan string)
		go func() { _, text := failureOf(t, ann, "a__slow"); done <- text }()
		synctest.Wait()
		wantFailure(t, ann, "a__name", hosterr.CodeLimited, "the server is busy with concurrency of 1, and queue of 0 is full")
		wantText(t, bob, "a__name", "a")
		if got := <-done; got != "slow" {
			t.Errorf("got %q", got)
		}
	})
}

// A call that waits for an answer of its caller uses no slot, and its answer does not wait for one: the
// server may serve no other request before it. Other callers are served meanwhile.
func TestQuestionsUseNoSlot(t *testing.T) {
	forEachCombination(t, func(t *testing.T, on mcptest.Combination) {
		if !on.Since("2025-06-18") {
			return // cannot ask
		}
		g := newGatedServer()
		h := newHost(t, map[string]mcp.Handler{"all": g}, on,
			`{"servers": {"all": {"share": "shared", "concurrency": 1, "queue": 0}}}`)
		asked, answer := make(chan struct{}), make(chan struct{})
		ann := mcptest.Dial(t, annOf(h), on, &mcp.ClientOptions{
			Elicit: func(ctx context.Context, p *mcp.ElicitRequestParams) (*mcp.ElicitResult, error) {
				close(asked)
				<-answer
				return yes(ctx, p)
			}})
		bob := mcptest.Dial(t, bobOf(h), on, nil)
		done := make(chan string)
		go func() {
			got, err := mcp.CallTool[string](t.Context(), ann, "all__ask", nil)
			done <- fmt.Sprint(got, err)
		}()
		<-asked
		synctest.Wait()
		wantRunning(t, h, "all", 0, 0)
		var calls holder
		calls.call(t.Context(), bob, "b")
		wantRunning(t, h, "all", 1, 0)
		close(answer)
		if session := on.Revision < "2026-07-28"; session {
			if got := <-done; got != "alltrue<nil>" {
				t.Errorf("got %s while another request runs", got)
			}
			close(g.release)
		} else { // a server without sessions gets a new request, which waits like others
			close(g.release)
			<-done
		}
		calls.work.Wait()
		if got := calls.of("b"); got != "held b" {
			t.Errorf("got %q", got)
		}
	})
}

// A request that only looks like an answer waits as others do.
func TestForgedAnswersWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGatedServer()
		on := mcptest.Combination{Transport: mcptest.InMemory, Revision: "2025-11-25"}
		h := hostileHost(t, map[string]mcp.Handler{"all": g}, on,
			`{"servers": {"all": {"share": "shared", "concurrency": 1, "queue": 0}}}`)
		var calls holder
		calls.call(t.Context(), clientOfView(t, annOf(h)), "a")
		for _, params := range []string{
			`"name":"all__add","arguments":{"A":1,"B":2},"inputResponses":{}`,
			`"name":"all__add","arguments":{"A":1,"B":2},"inputResponses":{},"requestState":"AAAA"`,
		} {
			if got, err := serve(t, bobOf(h), "tools/call", params); err != nil || !strings.Contains(got, "concurrency of 1") {
				t.Errorf("%s: got %s, %v, want a refusal", params, got, err)
			}
		}
		close(g.release)
		calls.work.Wait()
	})
}

// Requests above the rate of a server wait for it.
func TestRateOfAServerDelays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := openFakes(t, fakesOf("a"), `{"servers": {"a": {"rate": "1/s burst 2", "queue": 2, "queueTimeout": "1500ms"}}}`)
		c := client(t, h, &policy.Caller{})
		wantText(t, c, "a__name", "a")
		wantText(t, c, "a__name", "a")
		began := time.Now()
		wantText(t, c, "a__name", "a")
		if took := time.Since(began); took != time.Second {
			t.Errorf("took %v, want 1s", took)
		}
		var texts [3]string
		var calls sync.WaitGroup
		for n := range texts {
			calls.Go(func() { _, texts[n] = failureOf(t, c, "a__name") })
			synctest.Wait()
		}
		calls.Wait()
		if texts[0] != "a" || !strings.Contains(texts[1], "waited for queueTimeout of 1.5s: the server has reached rate of 1/s burst 2") ||
			!strings.Contains(texts[2], "queue of 2 is full") {
			t.Errorf("got %q", texts)
		}
	})
}

// Requests that wait end with the host.
func TestWaitingRequestsEndWithTheHost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGatedServer()
		on := mcptest.Combination{Transport: mcptest.InMemory, Revision: "2026-07-28"}
		h := hostileHost(t, map[string]mcp.Handler{"all": g}, on, `{"servers": {"all": {"concurrency": 1}}}`)
		var calls holder
		c := clientOfView(t, annOf(h))
		calls.call(t.Context(), c, "1")
		calls.call(t.Context(), c, "2")
		began := time.Now()
		_ = h.Close()
		calls.work.Wait()
		if got := calls.of("2"); !strings.Contains(got, "closed") || time.Since(began) > time.Second {
			t.Errorf("got %q after %v", got, time.Since(began))
		}
	})
}
