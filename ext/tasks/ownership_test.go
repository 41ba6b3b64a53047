package tasks_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/ext/tasks"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// as returns another client with another principal.
func as(c *mcptest.Client, subject string) *mcptest.Client {
	o := c.Options
	o.Principal = &mcp.Principal{Issuer: "https://issuer.example", Subject: subject, ClientID: "app"}
	return c.Another(&o)
}

// TASKX-24, TASKD-18: for other principals a task does not exist, in any form. Their responses are
// those for an unknown id, byte for byte.
func TestTASKX24_TaskOfAnotherPrincipalIsUnknown(t *testing.T) {
	add := func(b *bench) {
		b.tool("ask", nil, func(ctx context.Context) (string, error) {
			secret, err := mcp.Ask[string](ctx, "secret", "The secret?", nil)
			return "secret " + secret, err
		})
	}
	on(t, mcptest.Since(revision2025), nil, add, func(t *testing.T, b *bench, c *mcptest.Client) {
		ada, eve, nobody := as(c, "ada"), as(c, "eve"), c
		id := begin(t, ada, "ask", nil).TaskID
		synctest.Wait()
		unknown := strings.Repeat("A", len(id))
		methods := []string{"tasks/get", "tasks/cancel", "tasks/update"}
		if !c.Modern() {
			methods = []string{"tasks/get", "tasks/cancel", "tasks/result"}
		}
		for _, other := range []*mcptest.Client{eve, nobody} {
			for _, method := range methods {
				try := func(id string) string {
					params := object{"taskId": id}
					if method == "tasks/update" {
						params["inputResponses"] = object{"secret.1": object{"action": "accept",
							"content": object{"value": "stolen"}}}
					}
					_, err := other.Try(method, params)
					wantCode(t, method, err, mcp.CodeInvalidParams)
					raw, _ := json.Marshal(err)
					return string(raw)
				}
				foreign, none := try(id), try(unknown)
				if foreign != none || strings.Contains(foreign, id) {
					t.Errorf("%s: a foreign task is answered %s, an unknown one %s", method, foreign, none)
				}
			}
			if c.Modern() {
				before := len(other.Notifications("notifications/tasks"))
				stop := other.Listen(mcp.SubscriptionFilter{Topics: map[string]json.RawMessage{"taskIds": json.RawMessage(`["` + id + `"]`)}})
				defer stop()
				acks := other.Notifications("notifications/subscriptions/acknowledged")
				if ack := string(acks[len(acks)-1].Params); strings.Contains(ack, id) {
					t.Errorf("a foreign task is listened to: %s", ack)
				}
				defer func() {
					if n := len(other.Notifications("notifications/tasks")); n != before {
						t.Errorf("%d notifications of a foreign task", n-before)
					}
				}()
			}
		}
		if !c.Modern() {
			if got := decode[struct{ Tasks []told }](t, eve.Call("tasks/list", nil)); len(got.Tasks) != 0 {
				t.Errorf("eve's list: %+v", got)
			}
			if got := decode[struct{ Tasks []told }](t, ada.Call("tasks/list", nil)); len(got.Tasks) != 1 ||
				got.Tasks[0].TaskID != id {
				t.Errorf("ada's list: %+v", got)
			}
			_, err := nobody.Try("tasks/list", nil)
			wantCode(t, "TASKD-19: list without a principal", err, mcp.CodeMethodNotFound)
		}
		answer(t, ada, id, object{"value": "kept"})
		if got := finished(t, ada, id); got.Result.text() != "secret kept" {
			t.Errorf("ada's task: %+v", got)
		}
	})
}

// The handler's principal is the creator of the task in each run, whoever answers, and after a
// restart.
func TestPrincipalOfHandlerIsOwner(t *testing.T) {
	store := tasks.NewMemory()
	add := func(b *bench) {
		b.tool("who", nil, func(ctx context.Context) (string, error) {
			before := mcp.PrincipalFrom(ctx)
			if _, err := mcp.Ask[string](ctx, "go", "Go on?", nil); err != nil {
				return "", err
			}
			p := mcp.RequestFrom(ctx).Principal
			if before.Key() != p.Key() || tasks.IDFrom(ctx) == "" {
				return "", mcp.Errorf(-1, "%v, %v", before, p)
			}
			return p.Subject + " " + strings.Join(p.Scopes, ","), nil
		})
	}
	on(t, mcptest.Since(revision2025), &tasks.Options{Store: store}, add,
		func(t *testing.T, b *bench, c *mcptest.Client) {
			o := c.Options
			o.Principal = &mcp.Principal{Issuer: "i", Subject: "ada\x01\xff", ClientID: "c",
				Scopes: []string{"read", "write"}}
			ada := c.Another(&o)
			id := begin(t, ada, "who", nil).TaskID
			synctest.Wait()
			answer(t, ada, id, object{"value": "yes"})
			if got := finished(t, ada, id); !strings.HasSuffix(got.Result.text(), " read,write") {
				t.Errorf("got %+v", got)
			}
		})
}

// TASKX-03, TASKX-04, TASKX-19: responses to a client that did not declare the extension.
func TestTASKX19_ClientWithoutCapability(t *testing.T) {
	add := func(b *bench) {
		b.tool("may", nil, func(context.Context) (string, error) { return "done", nil })
		b.tool("must", &tasks.ToolOptions{Required: true}, func(context.Context) (string, error) { return "done", nil })
	}
	on(t, mcptest.Since(mcptest.Modern), nil, add, func(t *testing.T, b *bench, c *mcptest.Client) {
		id := begin(t, c, "may", nil).TaskID
		o := c.Options
		o.Capabilities = object{}
		plain := c.Another(&o)
		if got := decode[toolResult](t, plain.Call("tools/call", object{"name": "may"})); got.text() != "done" ||
			got.ResultType != "complete" {
			t.Errorf("optional: %+v", got)
		}
		lacks := func(what string, err *mcp.Error) {
			t.Helper()
			wantCode(t, what, err, mcp.CodeMissingRequiredClientCapability)
			if err != nil && string(err.Data) != `{"requiredCapabilities":{"extensions":{"io.modelcontextprotocol/tasks":{}}}}` {
				t.Errorf("%s: data %s", what, err.Data)
			}
		}
		_, err := plain.Try("tools/call", object{"name": "must"})
		lacks("required", err)
		for _, method := range []string{"tasks/get", "tasks/update", "tasks/cancel"} {
			_, err := plain.Try(method, object{"taskId": id, "inputResponses": object{}})
			lacks(method, err)
		}
		_, err = plain.Try("subscriptions/listen", object{"notifications": object{"taskIds": []string{id}}})
		lacks("listen", err)
	})
}

// TASKX-25, TASKX-26, TASKD-03: methods and params of one form are unknown in the other.
func TestTASKX25_FormsAreNotMixed(t *testing.T) {
	add := func(b *bench) {
		b.tool("may", nil, func(context.Context) (string, error) { return "done", nil })
		mcp.AddTool(b.server, &mcp.Tool{Name: "plain"},
			func(context.Context, struct{}) (string, error) { return "plain", nil })
	}
	on(t, mcptest.Combinations(), nil, add, func(t *testing.T, b *bench, c *mcptest.Client) {
		foreign := []string{"tasks/get", "tasks/update", "tasks/cancel", "tasks/result", "tasks/list"}
		switch {
		case c.Modern():
			foreign = []string{"tasks/result", "tasks/list"}
			if got := decode[toolResult](t,
				c.Call("tools/call", object{"name": "plain", "task": object{"ttl": 1000}})); got.text() != "plain" {
				t.Errorf("plain tool: %+v", got)
			}
		case c.Since(revision2025):
			foreign = []string{"tasks/update"}
			if got := decode[toolResult](t, c.Call("tools/call", object{"name": "may"})); got.text() != "done" {
				t.Errorf("without params.task: %+v", got)
			}
		default:
			if got := decode[toolResult](t, c.Call("tools/call", object{"name": "may"})); got.text() != "done" {
				t.Errorf("older: %+v", got)
			}
		}
		for _, method := range foreign {
			_, err := c.Try(method, object{"taskId": "x"})
			wantCode(t, method, err, mcp.CodeMethodNotFound)
		}
	})
}

// TASKD-01, TASKD-04, TASKD-05: what is declared, and errors for tools with another taskSupport.
// Clients of older revisions do not see a tool that they cannot call.
func TestTASKD04_ToolsHaveTaskSupport(t *testing.T) {
	add := func(b *bench) {
		b.tool("may", nil, func(context.Context) (string, error) { return "done", nil })
		b.tool("must", &tasks.ToolOptions{Required: true}, func(context.Context) (string, error) { return "done", nil })
		mcp.AddTool(b.server, &mcp.Tool{Name: "never"},
			func(context.Context, struct{}) (string, error) { return "", nil })
	}
	on(t, mcptest.Before(mcptest.Modern), nil, add, func(t *testing.T, b *bench, c *mcptest.Client) {
		got := decode[struct {
			Tools []struct {
				Name      string
				Execution struct{ TaskSupport string }
			}
		}](t, c.Call("tools/list", nil))
		support := map[string]string{}
		for _, tool := range got.Tools {
			support[tool.Name] = tool.Execution.TaskSupport
		}
		_, err := c.Try("tools/call", object{"name": "must"})
		if !c.Since(revision2025) {
			if _, listed := support["must"]; listed || len(support) != 2 {
				t.Errorf("tools: %v", support)
			}
			wantCode(t, "a required tool", err, mcp.CodeInvalidRequest)
			return
		}
		if support["may"] != "optional" || support["must"] != "required" || support["never"] != "" {
			t.Errorf("tools: %v", support)
		}
		wantCode(t, "TASKD-05", err, mcp.CodeMethodNotFound)
		_, err = c.Try("tools/call", object{"name": "never", "task": object{}})
		wantCode(t, "TASKD-04", err, mcp.CodeMethodNotFound)
		_, unknown := c.Try("tools/call", object{"name": "none", "task": object{}})
		if unknown == nil || unknown.Message != err.Message {
			t.Errorf("an unknown tool is answered %v, one without tasks %v", unknown, err)
		}
		for _, bad := range []any{1, "x", []int{}, object{"ttl": "x"}, object{"ttl": -1}} {
			_, err = c.Try("tools/call", object{"name": "may", "task": bad})
			wantCode(t, "a bad task", err, mcp.CodeInvalidParams)
		}
	})
}

// A removed tool does not run as a task, and neither does another tool with its name.
func TestTASKD04_RemovedToolCreatesNoTask(t *testing.T) {
	var removed *mcp.Registration[mcp.Tool]
	add := func(b *bench) {
		removed = b.tool("same", nil, func(context.Context) (string, error) { return "task", nil })
	}
	for _, combination := range combinationsOf(revision2025) {
		on(t, []mcptest.Combination{combination}, nil, add, func(t *testing.T, b *bench, c *mcptest.Client) {
			removed.Remove()
			ran := false
			mcp.AddTool(b.server, &mcp.Tool{Name: "same"},
				func(context.Context, struct{}) (string, error) { ran = true; return "plain", nil })
			if list := string(c.Call("tools/list", nil)); strings.Contains(list, "taskSupport") {
				t.Errorf("the tool is listed as %s", list)
			}
			sleeper(b, "other", nil)
			_, err := c.Try("tools/call", object{"name": "same", "task": object{}})
			wantCode(t, "a call as a task", err, mcp.CodeMethodNotFound)
			if ran {
				t.Error("it ran")
			}
		})
	}
}

// A hidden tool is unknown, however it is called.
func TestHiddenToolCreatesNoTask(t *testing.T) {
	for _, combination := range mcptest.Since(revision2025) {
		b := newBench(t, nil,
			&mcp.ServerOptions{Visible: func(_ context.Context, f mcp.Feature) bool {
				return f.Tool == nil ||
					f.Tool.Name != "hidden"
			}})
		b.tool("hidden", nil, func(context.Context) (string, error) { return "seen", nil })
		o := &mcptest.Options{}
		if combination.Modern() {
			o.Capabilities = takesTasks
		}
		mcptest.RunOn(t, b.server, []mcptest.Combination{combination}, o, func(t *testing.T, c *mcptest.Client) {
			_, hidden := c.Try("tools/call", object{"name": "hidden", "task": object{}})
			_, unknown := c.Try("tools/call", object{"name": "hiddem", "task": object{}})
			if hidden == nil || unknown == nil ||
				strings.Replace(hidden.Message, "hidden", "hiddem", 1) != unknown.Message ||
				hidden.Code != unknown.Code {
				t.Errorf("a hidden tool is answered %v, an unknown one %v", hidden, unknown)
			}
			b.shut(t)
		})
	}
}

// TASKX-24, TASKD-07: ids are long and random.
func TestTASKD07_IDs(t *testing.T) {
	add := func(b *bench) {
		b.tool("may", nil, func(context.Context) (string, error) { return "done", nil })
	}
	on(t, mcptest.Since(revision2025), nil, add, func(t *testing.T, b *bench, c *mcptest.Client) {
		seen := map[string]bool{}
		for range 50 {
			id := begin(t, c, "may", nil).TaskID
			if len(id) < 26 || seen[id] {
				t.Errorf("id %q", id)
			}
			seen[id] = true
		}
		time.Sleep(time.Second)
	})
}

// TASKD-01, TASKX-01: each form is declared to its own clients; lists only to authenticated
// callers.
func TestTASKX01_WhatIsDeclared(t *testing.T) {
	b := newBench(t, nil, nil)
	none, err := mcp.Connect(t.Context(), mcp.InMemory(b.server), &mcp.ClientOptions{Revision: revision2025})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = none.Close() }()
	if caps := none.Capabilities(); caps.Tasks != nil {
		t.Errorf("without a tool that runs as a task: %+v", caps.Tasks)
	}
	b.tool("may", nil, func(context.Context) (string, error) { return "done", nil })
	for _, revision := range mcptest.Revisions() {
		c, err := mcp.Connect(t.Context(), mcp.InMemory(b.server), &mcp.ClientOptions{Revision: revision})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close() }()
		caps := c.Capabilities()
		if _, extension := caps.Extensions[tasks.ID]; extension != (revision > revision2025) {
			t.Errorf("%s: extensions %v", revision, caps.Extensions)
		}
		if (caps.Tasks != nil) != (revision == revision2025) {
			t.Errorf("%s: tasks %v", revision, caps.Tasks)
		}
		if revision == revision2025 && string(caps.Tasks) != `{"cancel":{},"requests":{"tools":{"call":{}}}}` {
			t.Errorf("%s: tasks %s", revision, caps.Tasks)
		}
	}
	b.shut(t)
}
