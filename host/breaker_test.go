package host_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/host"
	"github.com/patchbay-mcp/patchbay/host/hosterr"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/host/status"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

const breakerSettings = `{"servers": {"a": {"share": "shared", "timeout": "1s", "breaker": {"failures": 3, "open": "10s"}}}}`

// wantTimeouts calls a tool that does not respond in time.
func wantTimeouts(t *testing.T, c *mcp.Client, n int) {
	t.Helper()
	for range n {
		wantFailure(t, c, "a__slow", hosterr.CodeTimeout, "within timeout of 1s")
	}
}

func wantBreaker(t *testing.T, h *host.Host, state status.Breaker, after time.Duration) {
	t.Helper()
	if st := upstream(t, h, "a").Status().Limits; st.Breaker != state || st.RetryAfter != after {
		t.Errorf("the breaker is %s for %v, want %s for %v", st.Breaker, st.RetryAfter, state, after)
	}
}

// After requests in sequence without a response, calls fail at once, until one that tries the server has
// a response.
//
// Requirement: HOST-23
func TestBreakerOpens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := openFakes(t, fakesOf("a"), breakerSettings)
		c := client(t, h, &policy.Caller{})
		wantTimeouts(t, c, 2)
		wantText(t, c, "a__name", "a") // a response
		wantTimeouts(t, c, 3)
		wantBreaker(t, h, status.BreakerOpen, 10*time.Second)
		const want = `server "a": the last 3 requests had no response (breaker of 3 failures, open for 10s): ` +
			"the server is tried again in 10s; the request did not run"
		if wait := wantFailure(t, c, "a__name", hosterr.CodeUnavailable, want); wait != 10*time.Second {
			t.Errorf("got %v, want 10s", wait)
		}
		time.Sleep(10 * time.Second)
		wantBreaker(t, h, status.BreakerHalfOpen, 0)
		wantTimeouts(t, c, 1)
		wantFailure(t, c, "a__name", hosterr.CodeUnavailable, "the last 4 requests")
		time.Sleep(10 * time.Second)
		wantText(t, c, "a__name", "a")
		wantBreaker(t, h, status.BreakerClosed, 0)
		wantTimeouts(t, c, 2)
		wantText(t, c, "a__name", "a")
		if n := upstream(t, h, "a").Status().Limits.Refused["breaker"]; n != 2 {
			t.Errorf("got %d refusals, want 2", n)
		}
	})
}

// One request at a time tries the server. A slow one does not keep the others waiting for longer than the
// breaker was open.
func TestOneRequestTriesTheServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := openFakes(t, fakesOf("a"), strings.Replace(breakerSettings, `"1s"`, `"30s"`, 1))
		c := client(t, h, &policy.Caller{})
		slow := func() { go func() { _, _ = c.CallTool(t.Context(), "a__slow", nil) }() }
		for range 3 {
			slow()
		}
		time.Sleep(30*time.Second + time.Millisecond)
		wantBreaker(t, h, status.BreakerOpen, 10*time.Second-time.Millisecond)
		time.Sleep(10 * time.Second)
		slow()
		synctest.Wait()
		wantFailure(t, c, "a__name", hosterr.CodeUnavailable, "breaker")
		time.Sleep(10 * time.Second)
		wantText(t, c, "a__name", "a")
		wantBreaker(t, h, status.BreakerClosed, 0)
		time.Sleep(time.Minute)
	})
}

// HOST-11: timeouts of one principal alone do not close a shared server to the others.
//
// Requirement: HOST-11
func TestTimeoutsOfOnePrincipal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := openFakes(t, fakesOf("a"), breakerSettings)
		ann, bob := clientOfView(t, annOf(h)), clientOfView(t, bobOf(h))
		wantTimeouts(t, ann, 10)
		wantBreaker(t, h, status.BreakerClosed, 0)
		wantTimeouts(t, bob, 1)
		wantBreaker(t, h, status.BreakerOpen, 10*time.Second)
		wantFailure(t, ann, "a__name", hosterr.CodeUnavailable, "breaker")
		if err := upstream(t, h, "a").Restart(t.Context()); err != nil { // also ends the effect of the breaker
			t.Fatal(err)
		}
		wantText(t, bob, "a__name", "a")
	})
}

// A process of one caller has a breaker for itself; and none if the settings say so, at once.
func TestBreakerOfAProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		own := strings.Replace(breakerSettings, `"share": "shared", `, "", 1)
		r := newReloaded(t, fakesOf("a"), `"a": {"command": "a"}`, own)
		ann, bob := clientOfView(t, annOf(r.Host)), clientOfView(t, bobOf(r.Host))
		wantTimeouts(t, ann, 3)
		wantFailure(t, ann, "a__name", hosterr.CodeUnavailable, "breaker")
		wantText(t, bob, "a__name", "a")
		r.reload(t, `"a": {"command": "a"}`, strings.Replace(own, `"failures": 3`, `"failures": 0`, 1),
			host.Diff{Updated: []string{"a"}})
		wantText(t, ann, "a__name", "a")
		wantTimeouts(t, ann, 10)
		wantBreaker(t, r.Host, status.BreakerClosed, 0)
	})
}

// Failures of HTTP count, but not refusals of a server that responds. Requests are not sent while the
// breaker is open.
//
// Requirement: HOST-23
func TestBreakerOverHTTP(t *testing.T) {
	r := newRemote(t)
	r.serve(simpleServer("r"))
	h := openRemote(t, r, `{"breaker": {"failures": 3, "open": "1h"}}`)
	c := client(t, h, &policy.Caller{})
	wantText(t, c, "r__name", "r")
	var requests atomic.Int64
	fail := func(status int) {
		r.use(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			if req.Header.Get("Mcp-Method") == "tools/call" { // the host may subscribe to changes at any time
				requests.Add(1)
			}
			http.Error(w, "failed", status)
		}))
	}
	fail(http.StatusForbidden)
	for range 5 {
		wantFailure(t, c, "r__name", hosterr.CodeAuthRequired, "403")
	}
	fail(http.StatusBadGateway)
	for range 3 {
		wantFailure(t, c, "r__name", hosterr.CodeUnavailable, "502")
	}
	if requests.Swap(0) == 0 {
		t.Error("no call was counted before the breaker opened")
	}
	for range 5 {
		wantFailure(t, c, "r__name", hosterr.CodeUnavailable, "the last 3 requests had no response")
	}
	if n := requests.Load(); n != 0 {
		t.Errorf("%d requests were sent", n)
	}
}

// The failures are the same over every transport and in every revision.
func TestBreakerOnEveryTransport(t *testing.T) {
	forEachCombination(t, func(t *testing.T, on mcptest.Combination) {
		h := newHost(t, map[string]mcp.Handler{"a": simpleServer("a")}, on, breakerSettings)
		c := mcptest.Dial(t, h.For(&policy.Caller{}), on, nil)
		for n := range 4 {
			res, err := c.CallTool(t.Context(), "a__slow", nil)
			want := "within timeout of 1s; the request may have run"
			if n == 3 {
				want = "had no response"
			}
			if err != nil || !res.IsError || !strings.Contains(res.Text(), want) {
				t.Errorf("call %d: got %s, want %s", n, fmt.Sprint(res.Text(), err), want)
			}
		}
	})
}
