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
	"github.com/patchbay-mcp/patchbay/mcp/driver"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// withPrincipal returns another client with another principal.
func withPrincipal(c *mcptest.Client, subject string) *mcptest.Client {
	o := c.Options
	o.Principal = &mcp.Principal{Issuer: "https://issuer.example", Subject: subject, ClientID: "app"}
	return c.Another(&o)
}

// For other principals a task does not exist. Their responses are those for an unknown id, byte for
// byte.
//
// Requirement: TASKX-18, TASKX-24, TASKD-16, TASKD-18
func TestTaskOfAnotherPrincipalIsUnknown(t *testing.T) {
	add := func(b *testServer) {
		b.tool("ask", nil, func(ctx context.Context) (string, error) {
			secret, err := mcp.Ask[string](ctx, "secret", "The secret?", nil)
			return "secret " + secret, err
		})
	}
	runOn(t, mcptest.Since(revision2025), nil, add, func(t *testing.T, b *testServer, c *mcptest.Client) {
		ada, eve, anonymous := withPrincipal(c, "ada"), withPrincipal(c, "eve"), c
		id := beginTask(t, ada, "ask", nil).TaskID
		synctest.Wait()
		unknown := strings.Repeat("A", len(id))
		methods := []string{"tasks/get", "tasks/cancel", "tasks/update"}
		if !c.Modern() {
			methods = []string{"tasks/get", "tasks/cancel", "tasks/result"}
		}
		for _, other := range []*mcptest.Client{eve, anonymous} {
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
					t.Errorf("%s: response for a task of another principal %s, for an unknown task %s", method, foreign, none)
				}
			}
			if c.Modern() {
				before := len(other.Notifications("notifications/tasks"))
				stop := other.Listen(mcp.SubscriptionFilter{Topics: map[string]json.RawMessage{"taskIds": json.RawMessage(`["` + id + `"]`)}})
				defer stop()
				acks := other.Notifications("notifications/subscriptions/acknowledged")
				if ack := string(acks[len(acks)-1].Params); strings.Contains(ack, id) {
					t.Errorf("acknowledged a task of another principal: %s", ack)
				}
				defer func() {
					if n := len(other.Notifications("notifications/tasks")); n != before {
						t.Errorf("%d notifications of a task of another principal", n-before)
					}
				}()
			}
		}
		if !c.Modern() {
			if got := decode[struct{ Tasks []wireTask }](t, eve.Call("tasks/list", nil)); len(got.Tasks) != 0 {
				t.Errorf("eve's list: %+v", got)
			}
			if got := decode[struct{ Tasks []wireTask }](t, ada.Call("tasks/list", nil)); len(got.Tasks) != 1 ||
				got.Tasks[0].TaskID != id {
				t.Errorf("ada's list: %+v", got)
			}
			_, err := anonymous.Try("tasks/list", nil)
			wantCode(t, "tasks/list without a principal", err, mcp.CodeMethodNotFound)
		}
		answerTask(t, ada, id, object{"value": "kept"})
		if got := finalTask(t, ada, id); got.Result.text() != "secret kept" {
			t.Errorf("ada's task: %+v", got)
		}
	})
}

// The handler's principal is the creator of the task in each run, whichever client answers, and
// after a restart.
func TestPrincipalOfHandlerIsOwner(t *testing.T) {
	store := tasks.NewMemory()
	add := func(b *testServer) {
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
	runOn(t, mcptest.Since(revision2025), &tasks.Options{Store: store}, add,
		func(t *testing.T, b *testServer, c *mcptest.Client) {
			o := c.Options
			o.Principal = &mcp.Principal{Issuer: "i", Subject: "ada\x01\xff", ClientID: "c",
				Scopes: []string{"read", "write"}}
			ada := c.Another(&o)
			id := beginTask(t, ada, "who", nil).TaskID
			synctest.Wait()
			answerTask(t, ada, id, object{"value": "yes"})
			if got := finalTask(t, ada, id); !strings.HasSuffix(got.Result.text(), " read,write") {
				t.Errorf("got %+v", got)
			}
		})
}

// Responses to a client that did not declare the extension.
//
// Requirement: TASKX-03, TASKX-04, TASKX-19, EXT-03
func TestClientWithoutCapability(t *testing.T) {
	add := func(b *testServer) {
		b.tool("may", nil, func(context.Context) (string, error) { return "done", nil })
		b.tool("must", &tasks.ToolOptions{Required: true}, func(context.Context) (string, error) { return "done", nil })
	}
	runOn(t, mcptest.Since(mcptest.Modern), nil, add, func(t *testing.T, b *testServer, c *mcptest.Client) {
		id := beginTask(t, c, "may", nil).TaskID
		o := c.Options
		o.Capabilities = object{}
		plain := c.Another(&o)
		if got := decode[toolResult](t, plain.Call("tools/call", object{"name": "may"})); got.text() != "done" ||
			got.ResultType != "complete" {
			t.Errorf("optional: %+v", got)
		}
		lacks := func(what string, err *mcp.Error) {
			t.Helper()
			wantCode(t, what, err, driver.CodeMissingRequiredClientCapability)
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

// Methods and params of one form are unknown in the other.
//
// Requirement: TASKX-25, TASKX-26, TASKD-03
func TestFormsAreNotMixed(t *testing.T) {
	add := func(b *testServer) {
		b.tool("may", nil, func(context.Context) (string, error) { return "done", nil })
		mcp.AddTool(b.server, &mcp.Tool{Name: "plain"},
			func(context.Context, struct{}) (string, error) { return "plain", nil })
	}
	runOn(t, mcptest.Combinations(), nil, add, func(t *testing.T, b *testServer, c *mcptest.Client) {
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
		if !c.Modern() {
			o := c.Options
			o.Capabilities = taskCapabilities
			c = c.Another(&o)
			if got := decode[toolResult](t, c.Call("tools/call", object{"name": "may"})); got.text() != "done" {
				t.Errorf("with the extension declared in a session: %+v", got)
			}
		}
		for _, method := range foreign {
			_, err := c.Try(method, object{"taskId": "x"})
			wantCode(t, method, err, mcp.CodeMethodNotFound)
		}
	})
}

// Tools are listed with their taskSupport, and a call that does not fit it is an error.
// Clients of older revisions do not see a tool that they cannot call.
//
// Requirement: TASKD-04, TASKD-05
func TestToolsHaveTaskSupport(t *testing.T) {
	add := func(b *testServer) {
		b.tool("may", nil, func(context.Context) (string, error) { return "done", nil })
		b.tool("must", &tasks.ToolOptions{Required: true}, func(context.Context) (string, error) { return "done", nil })
		mcp.AddTool(b.server, &mcp.Tool{Name: "never"},
			func(context.Context, struct{}) (string, error) { return "", nil })
	}
	runOn(t, mcptest.Before(mcptest.Modern), nil, add, func(t *testing.T, b *testServer, c *mcptest.Client) {
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
		wantCode(t, "a required tool without a task", err, mcp.CodeMethodNotFound)
		_, err = c.Try("tools/call", object{"name": "never", "task": object{}})
		wantCode(t, "a tool without task support", err, mcp.CodeMethodNotFound)
		_, unknown := c.Try("tools/call", object{"name": "none", "task": object{}})
		if unknown == nil || unknown.Message != err.Message {
			t.Errorf("error for an unknown tool %v, for a tool without task support %v", unknown, err)
		}
		for _, bad := range []any{1, "x", []int{}, object{"ttl": "x"}, object{"ttl": -1}} {
			_, err = c.Try("tools/call", object{"name": "may", "task": bad})
			wantCode(t, "a bad task", err, mcp.CodeInvalidParams)
		}
	})
}

// A removed tool does not run as a task, and neither does another tool with its name.
//
// Requirement: TASKD-04
func TestRemovedToolCreatesNoTask(t *testing.T) {
	var removed *mcp.Registration[mcp.Tool]
	add := func(b *testServer) {
		removed = b.tool("same", nil, func(context.Context) (string, error) { return "task", nil })
	}
	for _, combination := range combinationsOf(revision2025) {
		runOn(t, []mcptest.Combination{combination}, nil, add, func(t *testing.T, b *testServer, c *mcptest.Client) {
			removed.Remove()
			ran := false
			mcp.AddTool(b.server, &mcp.Tool{Name: "same"},
				func(context.Context, struct{}) (string, error) { ran = true; return "plain", nil })
			if list := string(c.Call("tools/list", nil)); strings.Contains(list, "taskSupport") {
				t.Errorf("tools %s, want no taskSupport", list)
			}
			addSleepTool(b, "other", nil)
			_, err := c.Try("tools/call", object{"name": "same", "task": object{}})
			wantCode(t, "a call as a task", err, mcp.CodeMethodNotFound)
			if ran {
				t.Error("the other tool ran")
			}
		})
	}
}

// A hidden tool is unknown, also in a task-augmented call.
func TestHiddenToolCreatesNoTask(t *testing.T) {
	for _, combination := range mcptest.Since(revision2025) {
		b := newTestServer(t, nil,
			&mcp.ServerOptions{Visible: func(_ context.Context, f mcp.Feature) bool {
				return f.Tool == nil ||
					f.Tool.Name != "hidden"
			}})
		b.tool("hidden", nil, func(context.Context) (string, error) { return "seen", nil })
		o := &mcptest.Options{}
		if combination.Modern() {
			o.Capabilities = taskCapabilities
		}
		mcptest.RunOn(t, b.server, []mcptest.Combination{combination}, o, func(t *testing.T, c *mcptest.Client) {
			_, hidden := c.Try("tools/call", object{"name": "hidden", "task": object{}})
			_, unknown := c.Try("tools/call", object{"name": "hiddem", "task": object{}})
			if hidden == nil || unknown == nil ||
				strings.Replace(hidden.Message, "hidden", "hiddem", 1) != unknown.Message ||
				hidden.Code != unknown.Code {
				t.Errorf("error for a hidden tool %v, for an unknown tool %v", hidden, unknown)
			}
			b.closeServer(t)
		})
	}
}

// IDs are long and random.
//
// Requirement: TASKD-07, TASKD-19, TASKX-24
func TestIDsAreLongAndRandom(t *testing.T) {
	add := func(b *testServer) {
		b.tool("may", nil, func(context.Context) (string, error) { return "done", nil })
	}
	runOn(t, mcptest.Since(revision2025), nil, add, func(t *testing.T, b *testServer, c *mcptest.Client) {
		seen := map[string]bool{}
		for range 50 {
			id := beginTask(t, c, "may", nil).TaskID
			if len(id) < 26 || seen[id] {
				t.Errorf("id %q", id)
			}
			seen[id] = true
		}
		time.Sleep(time.Second)
	})
}

// Each form is declared to its own clients. tasks/list is declared to authenticated callers only.
//
// Requirement: TASKX-01, TASKD-01, TASKD-19
func TestDeclaredCapabilities(t *testing.T) {
	b := newTestServer(t, nil, nil)
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
	b.closeServer(t)
}
