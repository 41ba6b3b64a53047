package host_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/patchbay-mcp/patchbay/host"
	"github.com/patchbay-mcp/patchbay/host/config"
	"github.com/patchbay-mcp/patchbay/host/event"
	"github.com/patchbay-mcp/patchbay/host/hosterr"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// openLimited opens a host of one server with a policy and a recorder.
func openLimited(t *testing.T, s mcp.Handler, settings string, p policy.Policy, r event.Recorder) *host.Host {
	t.Helper()
	fake := &fakeProcess{handler: s}
	h := openFile(t, map[string]any{"a": map[string]string{"command": "a"}}, settings, &host.Options{Policy: p, Recorder: r,
		Dial: func(ctx context.Context, _ *config.Server) (mcp.Transport, error) { return fake.dial(ctx) }})
	t.Cleanup(func() { _ = h.Close(); fake.work.Wait() })
	return h
}

// Requests above a rate do not ask a user, and what a policy hides is unknown whatever the rate.
//
// Requirement: HOST-06
func TestLimitsComeBeforeQuestions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		decide := policyFunc(func(a *policy.Action) policy.Decision {
			if a.Kind == policy.ActionCall && a.Target == "slow" {
				return policy.Decision{Do: policy.OutcomeHide}
			}
			if a.Kind == policy.ActionCall {
				return policy.Decision{Do: policy.OutcomeAsk}
			}
			return policy.Decision{Do: policy.OutcomeAllow}
		})
		h := openLimited(t, simpleServer("a"), `{"limits": {"perCaller": "2/h"}}`, decide, nil)
		asked := 0
		c := clientWith(t, h, &policy.Caller{}, &mcp.ClientOptions{
			Elicit: func(context.Context, *mcp.ElicitRequestParams) (*mcp.ElicitResult, error) {
				asked++
				return &mcp.ElicitResult{Action: mcp.ElicitAccept, Content: []byte(`{"decision":"once"}`)}, nil
			}})
		_, _ = failureOf(t, c, "a__name") // the call, and the answer
		for range 10 {
			wantFailure(t, c, "a__name", hosterr.CodeLimited, "limits.perCaller of 2/h")
		}
		if asked != 1 {
			t.Errorf("the user was asked %d times, want 1", asked)
		}
		if _, err := c.CallTool(t.Context(), "a__slow", nil); err == nil || !strings.Contains(err.Error(), `unknown tool "a__slow"`) {
			t.Errorf("hidden tool: got %v", err)
		}
	})
}

// HOST-23: every request that a limit refuses is recorded as one that was not sent, and so are reads of
// kept results.
//
// Requirement: HOST-23
func TestRefusalsAreRecorded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var events []string
		record := recorderFunc(func(r *event.Record) {
			mu.Lock()
			defer mu.Unlock()
			if r.Action.Kind == "" {
				return
			}
			code := ""
			if e, ok := r.Err.(*hosterr.Error); ok {
				code = string(e.Code)
			}
			events = append(events, fmt.Sprint(r.Event, " ", r.Kind, " ", r.Server, " ", code))
		})
		h := openLimited(t, largeServer(), `{"limits": {"callsPerDay": 2, "resultBytes": "4KiB", "result": "spill",
			"argumentBytes": "1KiB"}}`, nil, record)
		c := clientOfView(t, annOf(h))
		res, err := c.CallTool(t.Context(), "a__text", map[string]any{"Size": 9000})
		if err != nil {
			t.Fatal(err)
		}
		uri, _ := linkOf(t, res)
		readAll(t, c, uri)
		wantUnknown(t, clientOfView(t, bobOf(h)), uri)
		_, _ = c.CallTool(t.Context(), "a__text", map[string]any{"Size": 1, "x": strings.Repeat("x", 2000)})
		_, _ = c.CallTool(t.Context(), "a__text", map[string]any{"Size": 1})
		_, _ = c.CallTool(t.Context(), "a__text", map[string]any{"Size": 1})
		mu.Lock()
		defer mu.Unlock()
		got := strings.Join(events, "\n")
		pages := strings.Repeat("\nintent read a \nend read a ", 5)
		if want := "intent call a \nend call a " + pages + "\nrefused read  \nrefused call a too_large\n" +
			"intent call a \nend call a \nrefused call a limited"; got != want {
			t.Errorf("got\n%s\nwant\n%s", got, want)
		}
	})
}

// HOST-15: what is kept of a large result is what the policy leaves of it.
//
// Requirement: HOST-15
func TestKeptResultsAreRedacted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer("a")
		mcp.AddTool(s, &mcp.Tool{Name: "rows"}, func(context.Context, struct{}) (struct{ SSN, Text string }, error) {
			return struct{ SSN, Text string }{"078-05-1120", largeText(9000)}, nil
		})
		decide := policyFunc(func(a *policy.Action) policy.Decision {
			d := policy.Decision{Do: policy.OutcomeAllow}
			switch a.Kind {
			case policy.ActionRead:
				d.Do = policy.OutcomeDeny
			case policy.ActionResult:
				d.Redact = []policy.Redaction{{Pointer: "/SSN"}}
			}
			return d
		})
		h := openLimited(t, s, `{"limits": {"resultBytes": "4KiB", "result": "spill"}}`, decide, nil)
		c := clientOfView(t, annOf(h))
		res, err := c.CallTool(t.Context(), "a__rows", nil)
		if err != nil || !res.IsError { // the tool has an output schema
			t.Fatalf("got %+v, %v", res, err)
		}
		uri, _ := linkOf(t, res)
		text, _ := readAll(t, c, uri)
		if strings.Contains(text, "078-05") || !strings.Contains(text, `"SSN"`) || !strings.Contains(text, "0123456789") {
			t.Errorf("got %.300s", text)
		}
	})
}
