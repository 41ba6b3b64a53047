package host_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/patchbay-mcp/patchbay/ext/tasks"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// A caller cannot continue a call of another caller with the same principal if it may not use the server
// or the tool.
func TestNarrowCallerContinuesNoCallOfAWiderOne(t *testing.T) {
	for _, era := range []string{"modern", "session"} {
		for name, narrow := range map[string]func(*policy.Caller){
			"another server": func(c *policy.Caller) { c.Servers = []string{"b"} },
			"prompts":        func(c *policy.Caller) { c.Only = []policy.ActionKind{policy.ActionGet} },
			"read-only":      func(c *policy.Caller) { c.ReadOnly = true },
			"same":           func(*policy.Caller) {},
		} {
			t.Run(era+" "+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					h := openFakes(t, map[string]*fakeProcess{"a": {handler: simpleServer("a")}, "b": {handler: simpleServer("b")}},
						`{"servers": {"a": {"era": "`+era+`"}}}`)
					limited := person("ann")
					narrow(limited)
					wide, other := &forger{t, h.For(person("ann"))}, &forger{t, h.For(limited)}
					asked := wide.call("a__ask", "{}", "")
					answer := `,"requestState":` + string(asked["requestState"]) +
						`,"inputResponses":{"sure":{"action":"accept","content":{"value":true}}}`
					if asked["requestState"] == nil {
						t.Fatalf("got %s, want a question", asked)
					}
					keys := map[string]json.RawMessage{}
					if err := json.Unmarshal(asked["inputRequests"], &keys); err != nil {
						t.Fatal(err)
					}
					for key := range keys {
						answer = strings.Replace(answer, `"sure"`, `"`+key+`"`, 1)
					}
					got := other.call("a__ask", "{}", answer)
					if name == "same" {
						if !strings.Contains(string(got["content"]), "atrue") {
							t.Errorf("got %s, want the result", got)
						}
						return
					}
					if !strings.Contains(string(got["error"]), "unknown tool") {
						t.Errorf("got %s, want an unknown tool", got)
					}
				})
			})
		}
	}
}

// A read-only caller reads the tasks of its principal, and neither ends them nor answers their questions.
func TestReadOnlyCallerChangesNoTask(t *testing.T) {
	forEachTaskPair(t, func(t *testing.T, up, down mcptest.Combination) {
		h := newTaskHost(t, map[string]mcp.Handler{"a": newTaskServer(t, "a"), "b": newTaskServer(t, "b")}, up)
		task := start(t, mcptest.Dial(t, h.For(person("ann")), down, answering()), "a__meet")
		limited := person("ann")
		limited.ReadOnly = true
		c := mcptest.Dial(t, h.For(limited), down, answering())
		if _, err := tasks.Resume(c, task.ID()).Get(t.Context()); err != nil {
			t.Errorf("get: %v", err)
		}
		if err := tasks.Resume(c, task.ID()).Cancel(t.Context()); !isUnknownTask(err) {
			t.Errorf("cancel: got %v, want an unknown task", err)
		}
		if down.Modern() {
			_, err := c.Do(t.Context(), "tasks/update", map[string]any{"taskId": task.ID(), "inputResponses": map[string]any{}})
			if !isUnknownTask(err) {
				t.Errorf("update: got %v, want an unknown task", err)
			}
		}
		wantResult(t, task, "a true true")
	})
}

// tasks/list omits results that the host keeps of servers that the caller may not use.
func TestListOfKeptTasksOfANarrowCaller(t *testing.T) {
	up := mcptest.Combination{Transport: "in-memory", Revision: mcptest.Modern}
	down := mcptest.Combination{Transport: "in-memory", Revision: "2025-11-25"}
	h := newTaskHost(t, map[string]mcp.Handler{"a": newTaskServer(t, "a"), "b": newTaskServer(t, "b")}, up)
	wide := mcptest.Dial(t, h.For(person("ann")), down, answering())
	id := start(t, wide, "a__plain").ID()
	limited := person("ann")
	limited.Servers = []string{"b"}
	for caller, want := range map[*policy.Caller]bool{person("ann"): true, limited: false} {
		raw, err := mcptest.Connect(t, h.For(caller), down, nil).Try("tasks/list", nil)
		if err != nil || bytes.Contains(raw, []byte(id)) != want {
			t.Errorf("got %s, %v, want the task: %t", raw, err, want)
		}
	}
}
