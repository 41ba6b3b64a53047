package mcphttp_test

import (
	"context"
	"io"
	"net/http"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcphttp"
)

func TestSessions_AreLimitedInAllAndPerPrincipal(t *testing.T) {
	f := start(t, newTestCore(), &mcphttp.Options{Sessions: mcphttp.SessionOptions{Max: 4, MaxPerPrincipal: 2}})
	for i, test := range []struct {
		subject string
		status  int
	}{{"ann", 200}, {"ann", 200}, {"ann", 429}, {"bob", 200}, {"bob", 200}, {"", 503}, {"cleo", 503}} {
		got := f.do(http.MethodPost, initializeBody(november2025), "Authorization: "+test.subject)
		if got.status != test.status || test.status != 200 && got.header.Get("Retry-After") == "" {
			t.Errorf("session %d of %q: got %d %s, want %d", i, test.subject, got.status, got.body, test.status)
		}
		if i == 1 {
			id := got.header.Get("Mcp-Session-Id")
			defer func() {
				f.do(http.MethodDelete, "", "Mcp-Session-Id: "+id, "Authorization: ann")
				if got := f.do(http.MethodPost, initializeBody(november2025), "Authorization: ann"); got.status != 200 {
					t.Errorf("after a session has ended: got %d, want 200", got.status)
				}
			}()
		}
	}
}

// A question without a response keeps its session for a limited time, even if the client has
// disconnected.
func TestSessions_UnansweredQuestionKeepsItsSessionForALimitedTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, newTestCore(), &mcphttp.Options{Sessions: mcphttp.SessionOptions{MaxPerPrincipal: 1}})
		s := f.initialize(november2025, "Authorization: ann")
		ctx, disconnect := context.WithCancel(t.Context())
		f.stream(s.post(ctx, callBody(1, "ask"))).next()
		disconnect()
		time.Sleep(39 * time.Minute)
		if got := f.do(http.MethodPost, initializeBody(november2025), "Authorization: ann"); got.status != 429 {
			t.Errorf("second session: got %d, want 429", got.status)
		}
		time.Sleep(2 * time.Minute)
		f.initialize(november2025, "Authorization: ann")
	})
}

func TestSessions_OnlyIdleOnesExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core := newTestCore()
		f := start(t, core, nil)
		status := func(s *testSession) int { return s.send(`{"jsonrpc":"2.0","id":1,"method":"ping"}`).status }

		unused := f.do(http.MethodPost, initializeBody(november2025)).header.Get("Mcp-Session-Id")
		used, busy, streaming := f.initialize(november2025), f.initialize(november2025), f.initialize(november2025)
		done := make(chan response)
		go func() { done <- busy.send(callBody(1, "wait")) }()
		<-core.started
		open := f.stream(streaming.get(t.Context()))
		go io.Copy(io.Discard, open.resp.Body) // comments, until the end

		time.Sleep(25 * time.Minute)
		if got := f.do(http.MethodPost, callBody(1, "echo"), "Mcp-Session-Id: "+unused).status; got != 404 {
			t.Errorf("session that was never used: got %d, want 404", got)
		}
		if got := status(used); got != 200 {
			t.Errorf("session that was idle for 25 minutes: got %d, want 200", got)
		}
		time.Sleep(35 * time.Minute)
		if got := status(used); got != 404 {
			t.Errorf("session that was idle for 35 minutes: got %d, want 404", got)
		}
		core.proceed <- struct{}{}
		if got := <-done; got.status != 200 {
			t.Errorf("call of an hour: got %d, want 200", got.status)
		}
		if got := status(streaming); got != 200 {
			t.Errorf("session with an open stream: got %d, want 200", got)
		}
	})
}

func TestSessions_CallsInFlightAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core := newTestCore()
		f := start(t, core, &mcphttp.Options{Sessions: mcphttp.SessionOptions{MaxInFlight: 2}})
		s := f.initialize(november2025)
		done := make(chan response)
		for id := range 2 {
			go func() { done <- s.send(callBody(id+1, "wait")) }()
		}
		<-core.started
		<-core.started
		if got := s.send(callBody(3, "wait")); got.status != 429 || got.code() != mcp.CodeBusy ||
			got.header.Get("Retry-After") != "1" {
			t.Errorf("got %d %s, want 429 with Retry-After 1", got.status, got.body)
		}
		for range 2 {
			core.proceed <- struct{}{}
			<-done
		}
	})
}

// A client that does not read its stream blocks Notify until the write timeout. Then the call
// continues.
func TestSessions_UnreadStreamBlocksItsCallUntilTheWriteTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core := newTestCore()
		f := start(t, core, nil)
		s := f.initialize(november2025)
		conn, err := f.listener.dial()
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		go s.post(t.Context(), callBody(1, "notifywait")).Write(conn)
		begin := time.Now()
		<-core.started
		if got := time.Since(begin); got != 30*time.Second {
			t.Errorf("the call was blocked for %v, want 30s", got)
		}
		core.proceed <- struct{}{}
	})
}

// An idle session has no goroutine. The default of Max is 10,000 sessions, half of them for anonymous
// callers.
func TestSessions_IdleOnesHaveNoGoroutines(t *testing.T) {
	const n = 5_000
	f := start(t, newTestCore(), nil)
	first := f.initialize(november2025)
	before := runtime.NumGoroutine()
	for range n - 1 {
		resp, err := f.client.Do(f.request(t.Context(), http.MethodPost, initializeBody(november2025)))
		if err != nil {
			t.Fatal(err)
		}
		io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
	}
	if more := runtime.NumGoroutine() - before; more > 10 {
		t.Errorf("%d idle sessions have %d goroutines, want at most 10", n, more)
	}
	ping := func() int { return first.send(`{"jsonrpc":"2.0","id":1,"method":"ping"}`).status }
	if got := ping(); got != 200 {
		t.Errorf("first of %d sessions: got %d, want 200", n, got)
	}
	for range n { // which end those that were never used, and then the first
		f.do(http.MethodPost, initializeBody(november2025))
	}
	if got := ping(); got != 200 {
		t.Errorf("first session after %d more: got %d, want 200", n, got)
	}
}
