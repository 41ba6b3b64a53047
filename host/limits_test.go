package host_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/host"
	"github.com/patchbay-mcp/patchbay/host/hosterr"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// forEachCombination runs a test, in fake time, for a client and a server of every revision over every
// transport.
func forEachCombination(t *testing.T, f func(t *testing.T, on mcptest.Combination)) {
	for _, on := range oneProcess(mcptest.Combinations()) {
		t.Run(on.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { f(t, on) })
		})
	}
}

// annOf and bobOf return the views of two callers.
func annOf(h *host.Host) *host.View { return h.For(&policy.Caller{Principal: principal("ann")}) }
func bobOf(h *host.Host) *host.View { return h.For(&policy.Caller{Principal: principal("bob")}) }

// wantFailure calls a tool, whose failure must have a code and a text. It returns the time to wait.
func wantFailure(t *testing.T, c *mcp.Client, tool string, code hosterr.Code, text string) time.Duration {
	t.Helper()
	f, got := failureOf(t, c, tool)
	if f == nil || f.Code != code || !strings.Contains(got, text) {
		t.Fatalf("got %+v, %q, want %s: %s", f, got, code, text)
	}
	return time.Duration(f.RetryAfterMs) * time.Millisecond
}

// HOST-06: a request above the rate of its caller does not reach the server; the callers have a rate
// each. The refusal says when there is a token again, and then there is.
//
// Requirement: HOST-06
func TestRateOfACaller(t *testing.T) {
	forEachCombination(t, func(t *testing.T, on mcptest.Combination) {
		all := &recorded{Handler: newServer("all")}
		h := newHost(t, map[string]mcp.Handler{"all": all}, on, `{"limits": {"perCaller": "60/m burst 3"}}`)
		ann, bob := mcptest.Dial(t, annOf(h), on, nil), mcptest.Dial(t, bobOf(h), on, nil)
		add := func(c *mcp.Client) {
			t.Helper()
			if got, err := mcp.CallTool[string](t.Context(), c, "all__add", map[string]any{"A": 1, "B": 2}); got != "all3" {
				t.Errorf("got %q, %v", got, err)
			}
		}
		add(ann)
		add(ann)
		if _, err := ann.GetPrompt(t.Context(), "all__greet", nil); err != nil {
			t.Error(err)
		}
		const want = `server "all": the caller has reached limits.perCaller of 60/m burst 3: send the request again in 1s; ` +
			"the request did not run"
		wait := wantFailure(t, ann, "all__add", hosterr.CodeLimited, want)
		if wait <= 0 || wait > time.Second {
			t.Errorf("got %v, want at most a second", wait)
		}
		_, err := ann.GetPrompt(t.Context(), "all__greet", nil)
		var refused *mcp.Error
		if !errors.As(err, &refused) || refused.Code != -32000 || !strings.Contains(string(refused.Data), `"code":"limited"`) {
			t.Errorf("prompt: got %v", err)
		}
		add(bob)
		time.Sleep(wait)
		add(ann)
		if n := len(all.of("tools/call")); n != 4 {
			t.Errorf("the server has got %d calls, want 4", n)
		}
		if got := upstream(t, h, "all").Status().Limits.Refused["limits.perCaller"]; got != 2 {
			t.Errorf("got %d refusals, want 2", got)
		}
	})
}

// A rate of a tool is that of one caller; one of the server's settings replaces that of all tools.
//
// Requirement: HOST-06
func TestRateOfATool(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := openFakes(t, fakesOf("a"), `{"limits": {"perTool": "1/h"}, "servers": {"a": {"toolRates": {"name": "2/m"}}}}`)
		ann, bob := clientOfView(t, annOf(h)), clientOfView(t, bobOf(h))
		wantText(t, ann, "a__name", "a")
		wantText(t, ann, "a__name", "a")
		wait := wantFailure(t, ann, "a__name", hosterr.CodeLimited, "toolRates of 2/m")
		if wait != 30*time.Second {
			t.Errorf("got %v", wait)
		}
		wantText(t, bob, "a__name", "a")
		wantText(t, ann, "a__slow", "slow")
		wantFailure(t, ann, "a__slow", hosterr.CodeLimited, "limits.perTool of 1/h: send the request again in 59m10s")
	})
}

// The local user has no rate unless the settings have one; other callers do.
func TestRateOfTheLocalUser(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := openFakes(t, fakesOf("a"), `{}`)
		local, ann := client(t, h, &policy.Caller{}), clientOfView(t, annOf(h))
		for range 2001 {
			wantText(t, local, "a__name", "a")
		}
		refused := 0
		for range 2001 {
			if f, _ := failureOf(t, ann, "a__name"); f != nil {
				refused++
			}
		}
		if refused != 1 {
			t.Errorf("%d requests of a caller are refused, want 1", refused)
		}
	})
}

// More callers than there are buckets do not reset the rate of one that floods.
//
// Requirement: HOST-06
func TestEvictedRatesAreKept(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	synctest.Test(t, func(t *testing.T) {
		h := openFakes(t, fakesOf("a"), `{"limits": {"perCaller": "2/h"}, "servers": {"a": {"share": "shared"}}}`)
		call := func(c *policy.Caller) string {
			text, err := serve(t, h.For(c), "tools/call", `"name":"a__name"`)
			if err != nil {
				t.Fatal(err)
			}
			return text
		}
		ann := &policy.Caller{Principal: principal("ann")}
		call(ann)
		call(ann)
		for n := range 10_001 {
			call(&policy.Caller{Principal: principal(fmt.Sprint(n))})
		}
		if got := call(ann); !strings.Contains(got, "limits.perCaller of 2/h") {
			t.Errorf("got %s, want a refusal", got)
		}
		served := 0
		for n := range 100 {
			if !strings.Contains(call(&policy.Caller{Principal: principal(fmt.Sprint("new", n))}), "isError") {
				served++
			}
		}
		if served < 90 {
			t.Errorf("%d of 100 new callers are served, want nearly all", served)
		}
	})
}

// HOST-06: arguments that are too large do not reach the server.
//
// Requirement: HOST-06
func TestLargeArguments(t *testing.T) {
	forEachCombination(t, func(t *testing.T, on mcptest.Combination) {
		all := &recorded{Handler: newServer("all")}
		h := newHost(t, map[string]mcp.Handler{"all": all}, on, `{"limits": {"argumentBytes": "2KiB"}}`)
		c := mcptest.Dial(t, annOf(h), on, nil)
		res, err := c.CallTool(t.Context(), "all__add", map[string]any{"A": 1, "C": strings.Repeat("x", 3000)})
		const want = "the arguments have 3014 bytes, more than limits.argumentBytes of 2KiB; the request did not run"
		if err != nil || !res.IsError || !strings.Contains(res.Text(), want) {
			t.Errorf("got %+v, %v, want %s", res, err, want)
		}
		if raw, _ := json.Marshal(res.Meta["dev.patchbay/error"]); !strings.Contains(string(raw), `"too_large"`) {
			t.Errorf("got %s", raw)
		}
		if n := len(all.of("tools/call")); n != 0 {
			t.Errorf("the server has got %d calls", n)
		}
		_, err = c.GetPrompt(t.Context(), "all__greet", map[string]string{"a": strings.Repeat("x", 3000)})
		var refused *mcp.Error
		if !errors.As(err, &refused) || !strings.Contains(refused.Message, "limits.argumentBytes") {
			t.Errorf("prompt: got %v", err)
		}
	})
}

// HOST-23: the error of a timeout names the setting.
//
// Requirement: HOST-23
func TestTimeoutsNameTheirSetting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := simpleServer("a")
		mcp.AddTool(s, &mcp.Tool{Name: "progress"}, func(ctx context.Context, _ struct{}) (string, error) {
			for n := 1.; ctx.Err() == nil; n++ {
				mcp.Progress(ctx, n, 0, "")
				select {
				case <-time.After(5 * time.Second):
				case <-ctx.Done():
				}
			}
			return "", ctx.Err()
		})
		p := &fakeProcess{handler: s}
		for _, caller := range []*policy.Caller{{}, {Principal: principal("ann")}} {
			h := openFakes(t, map[string]*fakeProcess{"a": p}, `{"servers": {"a": {"timeout": "10s", "maxTimeout": "1m"}}}`)
			c := client(t, h, caller)
			wantFailure(t, c, "a__slow", hosterr.CodeTimeout, "no response, and no progress, within timeout of 10s; the request may have run")
			progress := clientWith(t, h, caller, &mcp.ClientOptions{Timeout: time.Hour, MaxTimeout: time.Hour})
			ctx := mcp.WithCallOptions(t.Context(), mcp.CallOptions{Progress: func(mcp.ProgressUpdate) {}})
			res, err := progress.CallTool(ctx, "a__progress", nil)
			if err != nil || !strings.Contains(res.Text(), "no response within maxTimeout of 1m0s; the request may have run") {
				t.Errorf("got %+v, %v", res, err)
			}
			_ = h.Close()
		}
		p.setStartup(time.Hour)
		h := openFakes(t, map[string]*fakeProcess{"a": p}, `{"servers": {"a": {"startTimeout": "3s"}}}`)
		if err := h.Start(t.Context()); err == nil || !strings.Contains(err.Error(), "did not become ready within startTimeout of 3s") {
			t.Errorf("got %v", err)
		}
	})
}

// clientOfView returns a client of a view.
func clientOfView(t *testing.T, v *host.View) *mcp.Client {
	t.Helper()
	c, err := mcp.Connect(t.Context(), mcp.InMemory(v), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// A reload replaces the limits at once, and keeps the connections.
func TestReloadReplacesLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const servers = `"a": {"command": "one"}`
		r := newReloaded(t, fakesOf("one"), servers, `{"limits": {"perCaller": "1/h"}}`)
		c := client(t, r.Host, &policy.Caller{})
		wantText(t, c, "a__name", "one")
		wantFailure(t, c, "a__name", hosterr.CodeLimited, "1/h")
		r.reload(t, servers, `{"limits": {"perCaller": "2/h"}}`, host.Diff{Settings: []string{"limits"}})
		wantText(t, c, "a__name", "one")
		wantText(t, c, "a__name", "one")
		wantFailure(t, c, "a__name", hosterr.CodeLimited, "2/h")
		r.reload(t, servers, `{"servers": {"a": {"concurrency": 1}}}`,
			host.Diff{Settings: []string{"limits"}, Updated: []string{"a"}})
		wantText(t, c, "a__name", "one")
		// A request that waits is admitted by a reload.
		done := make(chan string, 2)
		for range 2 {
			go func() { _, text := failureOf(t, c, "a__slow"); done <- text }()
		}
		synctest.Wait()
		wantRunning(t, r.Host, "a", 1, 1)
		r.reload(t, servers, `{"servers": {"a": {"concurrency": 2}}}`, host.Diff{Updated: []string{"a"}})
		synctest.Wait()
		wantRunning(t, r.Host, "a", 2, 0)
		for range 2 {
			if got := <-done; got != "slow" {
				t.Errorf("got %q", got)
			}
		}
		if n := len(r.fakes["one"].started()); n != 1 {
			t.Errorf("got %d starts, want 1", n)
		}
	})
}

// wantRunning tests how many requests of a server run and wait.
func wantRunning(t *testing.T, h *host.Host, server string, running, queued int) {
	t.Helper()
	if st := upstream(t, h, server).Status().Limits; st.Running != running || st.Queued != queued {
		t.Errorf("got %d requests that run and %d that wait, want %d and %d", st.Running, st.Queued, running, queued)
	}
}
