package host_test

import (
	"bytes"
	"context"
	"encoding/json"
	"sync/atomic"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/ext/tasks"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// denyResults denies each result that has a text.
func denyResults(text string) policyFunc {
	return func(a *policy.Action) policy.Decision {
		if a.Kind == policy.ActionResult && bytes.Contains(a.Result, []byte(text)) {
			return policy.Decision{Rule: "secret"}
		}
		return policy.Decision{Do: policy.OutcomeAllow}
	}
}

// A caller that makes a call as a task does not receive what the policy denies, also if the server
// responds at once.
func TestPolicyDecidesResultsOfTasks(t *testing.T) {
	forEachTaskPair(t, func(t *testing.T, up, down mcptest.Combination) {
		h := newTaskHost(t, map[string]mcp.Handler{"a": newTaskServer(t, "a")}, up)
		h.SetPolicy(denyResults("plain"))
		if down.Modern() {
			return
		}
		c := mcptest.Dial(t, h.For(person("ada")), down, answering())
		task, err := tasks.Start(t.Context(), c, "a__plain", nil)
		if err != nil {
			return // refused
		}
		if r, err := task.Wait(t.Context()); err == nil && r.Text() == "plain" {
			t.Errorf("the caller has received %q", r.Text())
		}
	})
}

// Notifications of tasks have no result that the policy denies.
func TestPolicyDecidesNotificationsOfTasks(t *testing.T) {
	forEachTaskPair(t, func(t *testing.T, up, down mcptest.Combination) {
		if !down.Modern() || !up.Modern() {
			return
		}
		h := newTaskHost(t, map[string]mcp.Handler{"a": newTaskServer(t, "a")}, up)
		h.SetPolicy(denyResults("rested"))
		c := mcptest.Dial(t, h.For(person("ada")), down, answering())
		nap := start(t, c, "a__nap")
		ids, _ := json.Marshal([]string{nap.ID()})
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		for e, err := range c.Listen(ctx, mcp.SubscriptionFilter{Topics: map[string]json.RawMessage{"taskIds": ids}}) {
			if err != nil {
				break
			}
			if bytes.Contains(e.Params, []byte("rested")) {
				t.Errorf("the caller has received %s", e.Params)
				return
			}
			if bytes.Contains(e.Params, []byte(`"completed"`)) {
				return
			}
		}
	})
}

// The policy decides about lists of tasks.
func TestPolicyDecidesListsOfTasks(t *testing.T) {
	up := mcptest.Combination{Transport: "in-memory", Revision: "2025-11-25"}
	var lists atomic.Int32
	s := newTaskServer(t, "a")
	server := mcp.HandlerFunc(func(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
		if req.Method == "tasks/list" {
			lists.Add(1)
		}
		inner := *req
		inner.Principal = &mcp.Principal{Issuer: "i", Subject: "host"}
		return s.ServeMCP(ctx, &inner)
	})
	h := newTaskHost(t, map[string]mcp.Handler{"a": server}, up)
	c := mcptest.Dial(t, h.For(person("ada")), up, answering())
	start(t, c, "a__nap")
	if raw, err := c.Do(t.Context(), "tasks/list", nil); err != nil || !bytes.Contains(raw, []byte(`"taskId"`)) {
		t.Fatalf("before: %s, %v", raw, err)
	}
	before := lists.Load()
	h.SetPolicy(policyFunc(func(a *policy.Action) policy.Decision {
		if a.Kind == policy.ActionOther && a.Method == "tasks/list" {
			return policy.Decision{Rule: "no-lists"}
		}
		return policy.Decision{Do: policy.OutcomeAllow}
	}))
	raw, err := c.Do(t.Context(), "tasks/list", nil)
	if lists.Load() != before || bytes.Contains(raw, []byte(`"taskId"`)) {
		t.Errorf("got %s, %v, sent %d times", raw, err, lists.Load()-before)
	}
}

// A task does not ask what the policy denies.
func TestPolicyDecidesQuestionsOfTasks(t *testing.T) {
	forEachTaskPair(t, func(t *testing.T, up, down mcptest.Combination) {
		h := newTaskHost(t, map[string]mcp.Handler{"a": newTaskServer(t, "a")}, up)
		h.SetPolicy(policyFunc(func(a *policy.Action) policy.Decision {
			if a.Kind == policy.ActionQuestion {
				return policy.Decision{Rule: "no-questions"}
			}
			return policy.Decision{Do: policy.OutcomeAllow}
		}))
		asked := 0
		c := mcptest.Dial(t, h.For(person("ada")), down, tasks.Declare(&mcp.ClientOptions{
			Elicit: func(ctx context.Context, p *mcp.ElicitRequestParams) (*mcp.ElicitResult, error) {
				asked++
				return yes(ctx, p)
			}}, nil))
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if r, err := start(t, c, "a__meet").Wait(ctx); err == nil || asked > 0 {
			t.Errorf("the user was asked %d times, and the result is %+v", asked, r)
		}
	})
}

// A caller that may not call tools does not listen to their tasks.
func TestTasksOfACallerWithoutTools(t *testing.T) {
	on := mcptest.Combination{Transport: "in-memory", Revision: mcptest.Modern}
	h := newTaskHost(t, map[string]mcp.Handler{"a": newTaskServer(t, "a")}, on)
	nap := start(t, mcptest.Dial(t, h.For(person("ada")), on, answering()), "a__nap")
	limited := person("ada")
	limited.Only = []policy.ActionKind{policy.ActionGet}
	c := mcptest.Dial(t, h.For(limited), on, answering())
	ids, _ := json.Marshal([]string{nap.ID()})
	for e, err := range c.Listen(t.Context(), mcp.SubscriptionFilter{Topics: map[string]json.RawMessage{"taskIds": ids}}) {
		if err != nil || e.Kind == mcp.EventListening && len(e.Filter.Topics) == 0 {
			return
		}
		t.Fatalf("got %s %s, want a subscription without topics: %+v", e.Method, e.Params, e.Filter)
	}
}
