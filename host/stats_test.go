package host_test

import (
	"context"
	"errors"
	"maps"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/host"
	"github.com/patchbay-mcp/patchbay/host/approval"
	"github.com/patchbay-mcp/patchbay/host/event"
	"github.com/patchbay-mcp/patchbay/host/hosterr"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/host/status"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

func wantCounts[K comparable](t *testing.T, what string, got, want map[K]uint64) {
	t.Helper()
	if !maps.Equal(got, want) {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

// Decisions about requests, results and questions are counted, and those about lists are not.
func TestStatsCountDecisions(t *testing.T) {
	rules := policyFunc(func(a *policy.Action) policy.Decision {
		switch {
		case a.Kind == policy.ActionQuestion, a.Kind == policy.ActionCall && a.Target == "fail":
			return policy.Decision{}
		case a.Kind == policy.ActionResult && a.Target == "log":
			return policy.Decision{Do: policy.OutcomeAllow, Redact: []policy.Redaction{{}}}
		}
		return policy.Decision{Do: policy.OutcomeAllow}
	})
	for _, on := range oneProcess(mcptest.Since("2025-06-18")) {
		t.Run(on.String(), func(t *testing.T) {
			h := newHostWith(t, map[string]mcp.Handler{"all": featureServer()}, host.Options{Policy: rules})
			c := mcptest.Dial(t, h.For(&policy.Caller{}), on, (&seen{}).options())
			for _, tool := range []string{"log", "log", "fail", "ask", "large"} {
				if _, err := c.CallTool(t.Context(), "all__"+tool, nil); err != nil {
					t.Error(err)
				}
			}
			if _, err := c.GetPrompt(t.Context(), "all__greet", nil); err != nil {
				t.Error(err)
			}
			st := h.Stats()
			wantCounts(t, "decisions", st.Decisions, map[host.DecisionKind]uint64{
				{About: policy.ActionCall, Effect: "allow"}: 4, {About: policy.ActionCall, Effect: "deny"}: 1,
				{About: policy.ActionGet, Effect: "allow"}: 1, {About: policy.ActionQuestion, Effect: "deny"}: 1,
				{About: policy.ActionResult, Effect: "allow"}: 2, {About: policy.ActionResult, Effect: "redact"}: 2})
			wantCounts(t, "errors", st.ByServer["all"].Errors, map[hosterr.Code]uint64{hosterr.CodeDenied: 2})
		})
	}
}

// Requests that wait for the operator are held, and their ends are counted.
func TestStatsCountApprovals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, _ := openBank(t, "auto", host.Options{Policy: askPolicy,
			Channels: []policy.Channel{policy.ChannelClient, policy.ChannelConsole}})
		plain := client(t, h, &policy.Caller{})
		call := func(ctx context.Context) chan struct{} {
			done := make(chan struct{})
			go func() {
				defer close(done)
				_, _ = plain.CallTool(ctx, "bank__pay", map[string]any{}) // the approval is of interest
			}()
			synctest.Wait()
			if st := h.Stats().ByServer["bank"]; st.Held != 1 || st.Requests != 0 {
				t.Errorf("%d requests are held and %d at the server, want one and none", st.Held, st.Requests)
			}
			return done
		}
		for _, answer := range []approval.Answer{approval.Once, approval.Deny} {
			done := call(t.Context())
			if err := h.Approvals().Decide(t.Context(), pending(t, h.Approvals()).ID, answer, "olga"); err != nil {
				t.Error(err)
			}
			<-done
		}
		<-call(mcp.WithCallOptions(t.Context(), mcp.CallOptions{Timeout: time.Hour})) // without an answer
		ctx, cancel := context.WithCancel(t.Context())
		done := call(ctx)
		cancel()
		<-done
		synctest.Wait()
		for _, answer := range []string{"cancel", "always"} {
			asking := clientWith(t, h, &policy.Caller{}, deciding(answer, nil))
			if _, err := asking.CallTool(t.Context(), "bank__pay", map[string]any{}); err != nil {
				t.Error(err)
			}
		}
		if _, err := plain.CallTool(t.Context(), "bank__pay", map[string]any{}); err != nil { // by the grant
			t.Error(err)
		}
		st := h.Stats()
		wantCounts(t, "approvals", st.Approvals, map[string]uint64{"approved": 2, "denied": 2, "expired": 1,
			"cancelled": 1, "granted": 1})
		if held := st.ByServer["bank"].Held; held != 0 {
			t.Errorf("%d requests are held, want none", held)
		}
	})
	h, _ := openBank(t, "auto", host.Options{Policy: askPolicy, Channels: []policy.Channel{policy.ChannelClient}})
	if _, err := client(t, h, &policy.Caller{}).CallTool(t.Context(), "bank__pay", map[string]any{}); err != nil {
		t.Error(err)
	}
	wantCounts(t, "without a channel", h.Stats().Approvals, map[string]uint64{"failed": 1})
}

// A start after a failure, or to replace a connection, is counted as a restart. The next start of a
// server that was stopped because nothing used it is not.
func TestStatsCountRestarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &fakeProcess{handler: simpleServer("calc")}
		h := openFakes(t, map[string]*fakeProcess{"calc": p}, "{}")
		c := client(t, h, &policy.Caller{})
		want := func(when string, starts int, restarts uint64) {
			t.Helper()
			if f, text := failureOf(t, c, "calc__name"); f != nil {
				t.Errorf("%s: %+v, %q", when, f, text)
			}
			synctest.Wait()
			if got := h.Stats().ByServer["calc"]; len(p.started()) != starts || got.Restarts != restarts ||
				got.State != status.Ready || got.Instances != 1 {
				t.Errorf("%s: %d starts, %+v, want %d starts and %d restarts", when, len(p.started()), got, starts, restarts)
			}
		}
		want("first", 1, 0)
		time.Sleep(time.Hour)
		synctest.Wait()
		if st := h.Stats(); st.Servers[status.Stopped] != 1 || st.ByServer["calc"].State != status.Stopped {
			t.Errorf("after an hour: got %+v, want a stopped server", st)
		}
		want("after idle time", 2, 0)
		time.Sleep(time.Minute)
		p.exit()
		synctest.Wait()
		want("after an exit", 3, 1)
		if err := upstream(t, h, "calc").Restart(t.Context()); err != nil {
			t.Error(err)
		}
		want("after Restart", 4, 2)
	})
}

// Requests without a valid response are counted by code, except those that callers have cancelled.
func TestStatsCountErrorsAndLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &fakeProcess{handler: simpleServer("calc")}
		h := openFakes(t, map[string]*fakeProcess{"calc": p}, `{"limits": {"perCaller": "2/m"},
			"servers": {"calc": {"timeout": "5s", "maxTimeout": "5s"}}}`)
		c := client(t, h, &policy.Caller{Principal: principal("bob")})
		if f, _ := failureOf(t, c, "calc__slow"); f == nil || f.Code != hosterr.CodeTimeout {
			t.Errorf("got %+v, want a timeout", f)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := c.CallTool(ctx, "calc__slow", nil); err == nil {
			t.Error("no error of a cancelled call")
		}
		if f, _ := failureOf(t, c, "calc__name"); f == nil || f.Code != hosterr.CodeLimited {
			t.Errorf("got %+v, want a limit", f)
		}
		if _, err := c.CallTool(t.Context(), "calc__invented", nil); err == nil { // an error of the request
			t.Error("no error of an unknown tool")
		}
		synctest.Wait()
		st := h.Stats().ByServer["calc"]
		wantCounts(t, "errors", st.Errors, map[hosterr.Code]uint64{hosterr.CodeTimeout: 1, hosterr.CodeLimited: 1})
		wantCounts(t, "limits", st.Limited, map[string]uint64{"limits.perCaller": 1})
		if st.Breaker != status.BreakerClosed {
			t.Errorf("breaker %q, want closed", st.Breaker)
		}
	})
}

// A failingRecorder loses each record that is no intent.
type failingRecorder struct{}

func (failingRecorder) Record(r *event.Record) error {
	if r.Event == event.Intent {
		return nil
	}
	return errors.New("no space left")
}

// A backlogRecorder counts itself.
type backlogRecorder struct{ failingRecorder }

func (backlogRecorder) Backlog() (waiting int, lost uint64) { return 7, 9 }

// An outerRecorder is in front of another one.
type outerRecorder struct{ event.Recorder }

func (r outerRecorder) Unwrap() event.Recorder { return r.Recorder }

func TestStatsCountLostRecords(t *testing.T) {
	for _, test := range []struct {
		recorder event.Recorder
		waiting  int
		lost     uint64
	}{{failingRecorder{}, 0, 3}, {backlogRecorder{}, 7, 9}, {outerRecorder{backlogRecorder{}}, 7, 9}} { // of the configuration and of both calls
		h := newHostWith(t, map[string]mcp.Handler{"web": serverOf("web", "w")}, host.Options{Recorder: test.recorder})
		c := client(t, h, &policy.Caller{})
		for range 2 {
			if _, err := c.CallTool(t.Context(), "web__get", nil); err != nil {
				t.Error(err)
			}
		}
		if st := h.Stats(); st.RecordsWaiting != test.waiting || st.RecordsLost != test.lost {
			t.Errorf("%T: %d records wait and %d are lost, want %d and %d", test.recorder, st.RecordsWaiting, st.RecordsLost,
				test.waiting, test.lost)
		}
	}
}
