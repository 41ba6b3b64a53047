package host_test

import (
	"context"
	"encoding/json"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/ext/tasks"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// denyTool denies each result and question of a tool, like a rule on results that names the tool.
func denyTool(name string) policyFunc {
	return func(a *policy.Action) policy.Decision {
		isCall := a.Method == "tools/call"
		named := a.Target == name && len(a.Definition) > 0 && a.Digest != [32]byte{} || a.LacksTool()
		if a.Kind == policy.ActionResult && !isCall && named || a.Kind == policy.ActionQuestion && named {
			return policy.Decision{Rule: "no-" + name}
		}
		return policy.Decision{Do: policy.OutcomeAllow}
	}
}

// A rule on results that names a tool decides about results of this tool's tasks, and not of other tools' tasks.
func TestPolicyKnowsTheToolOfATask(t *testing.T) {
	forEachTaskPair(t, func(t *testing.T, up, down mcptest.Combination) {
		h := newTaskHost(t, map[string]mcp.Handler{"a": newTaskServer(t, "a")}, up)
		h.SetPolicy(denyTool("nap"))
		c := mcptest.Dial(t, h.For(person("ada")), down, answering())
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Hour)
		defer cancel()
		if r, err := start(t, c, "a__nap").Wait(ctx); err == nil {
			t.Errorf("the caller has received %q", r.Text())
		}
		wantResult(t, start(t, c, "a__doze"), "dozed")
		wantResult(t, start(t, c, "a__meet"), "a true true")
	})
}

// A rule that names a tool decides about notifications of tasks of this tool.
func TestPolicyKnowsTheToolOfANotification(t *testing.T) {
	forEachTaskPair(t, func(t *testing.T, up, down mcptest.Combination) {
		if !down.Modern() || !up.Modern() {
			return
		}
		for tool, want := range map[string]bool{"nap": false, "doze": true} {
			h := newTaskHost(t, map[string]mcp.Handler{"a": newTaskServer(t, "a")}, up)
			h.SetPolicy(denyTool("nap"))
			c := mcptest.Dial(t, h.For(person("ada")), down, answering())
			ids, _ := json.Marshal([]string{start(t, c, "a__"+tool).ID()})
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			for e, err := range c.Listen(ctx, mcp.SubscriptionFilter{Topics: map[string]json.RawMessage{"taskIds": ids}}) {
				if err != nil {
					t.Errorf("%s: %v before the end of the task", tool, err)
					break
				}
				if text := string(e.Params); strings.Contains(text, `"completed"`) {
					if got := strings.Contains(text, `"result"`); got != want {
						t.Errorf("%s: got %s, with a result: %t", tool, text, want)
					}
					break
				}
			}
		}
	})
}

// The id of a task contains its tool, so that a host knows the tool after a restart.
func TestPolicyKnowsTheToolAfterARestart(t *testing.T) {
	forEachTaskPair(t, func(t *testing.T, up, down mcptest.Combination) {
		servers := map[string]mcp.Handler{"a": newTaskServer(t, "a")}
		first := mcptest.Dial(t, newTaskHost(t, servers, up).For(person("ada")), down, answering())
		nap, doze := start(t, first, "a__nap"), start(t, first, "a__doze")
		h := newTaskHost(t, servers, up)
		h.SetPolicy(denyTool("nap"))
		c := mcptest.Dial(t, h.For(person("ada")), down, answering())
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Hour)
		defer cancel()
		if r, err := tasks.Resume(c, nap.ID()).Wait(ctx); err == nil {
			t.Errorf("the caller has received %q", r.Text())
		}
		wantResult(t, tasks.Resume(c, doze.ID()), "dozed")
	})
}

// listsTasks is a session server that lists the tasks of its client.
func listsTasks(t *testing.T) mcp.Handler {
	s := newTaskServer(t, "a")
	return mcp.HandlerFunc(func(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
		inner := *req // lists are for authenticated clients
		inner.Principal = &mcp.Principal{Issuer: "i", Subject: "host"}
		return s.ServeMCP(ctx, &inner)
	})
}

func listed(t *testing.T, c *mcp.Client) *tasks.Handle {
	t.Helper()
	raw, err := c.Do(t.Context(), "tasks/list", nil)
	var list struct {
		Tasks []struct{ TaskID string }
	}
	if err != nil || json.Unmarshal(raw, &list) != nil || len(list.Tasks) != 1 {
		t.Fatalf("got %s, %v, want one task", raw, err)
	}
	return tasks.Resume(c, list.Tasks[0].TaskID)
}

// The host knows the tool of a task that a server lists until the host restarts. After a restart, LacksTool
// tells the policy that the tool is unknown.
func TestToolOfAListedTask(t *testing.T) {
	forEachTaskPair(t, func(t *testing.T, up, down mcptest.Combination) {
		if up.Modern() || down.Modern() {
			return // have no lists
		}
		servers := map[string]mcp.Handler{"a": listsTasks(t)}
		h := newTaskHost(t, servers, up)
		c := mcptest.Dial(t, h.For(person("ada")), down, answering())
		wantResult(t, start(t, c, "a__doze"), "dozed")
		h.SetPolicy(denyTool("nap"))
		wantResult(t, listed(t, c), "dozed")
		h.SetPolicy(denyTool("doze"))
		if r, err := listed(t, c).Wait(t.Context()); err == nil {
			t.Errorf("the caller has received %q in spite of a rule about the tool", r.Text())
		}
		var unknown atomic.Int32
		again := newTaskHost(t, servers, up)
		again.SetPolicy(policyFunc(func(a *policy.Action) policy.Decision {
			if a.Kind == policy.ActionResult && a.Method == "tasks/result" && a.LacksTool() && a.LacksDefinition() {
				unknown.Add(1)
				return policy.Decision{Rule: "any tool"}
			}
			return policy.Decision{Do: policy.OutcomeAllow}
		}))
		c = mcptest.Dial(t, again.For(person("ada")), down, answering())
		if _, err := mcp.Collect(c.Tools(t.Context())); err != nil {
			t.Fatal(err)
		}
		if r, err := listed(t, c).Wait(t.Context()); err == nil || unknown.Load() == 0 {
			t.Errorf("got %+v, %v after %d decisions about an unknown tool", r, err, unknown.Load())
		}
	})
}

// Tasks of one principal do not make the host forget the tools of tasks of another principal.
func TestToolOfAListedTaskBesideOtherPrincipals(t *testing.T) {
	on := mcptest.Combination{Transport: "in-memory", Revision: "2025-11-25"}
	h := newTaskHost(t, map[string]mcp.Handler{"a": listsTasks(t)}, on)
	ada := mcptest.Dial(t, h.For(person("ada")), on, answering())
	bob := mcptest.Dial(t, h.For(person("bob")), on, answering())
	want := start(t, ada, "a__fail").ID()
	const many = 201 // more tasks than the host remembers for one principal
	for range many {
		start(t, bob, "a__fail")
	}
	ids := map[string]bool{}
	for task, err := range tasks.List(t.Context(), ada) {
		if err != nil {
			t.Fatal(err)
		}
		ids[task.ID] = true
	}
	if !ids[want] || len(ids) != many+1 {
		t.Errorf("the list has the id of the call: %t, want true; %d tasks", ids[want], len(ids))
	}
}
