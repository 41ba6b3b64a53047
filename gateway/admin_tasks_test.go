package gateway_test

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/ext/tasks"
	"github.com/patchbay-mcp/patchbay/gateway"
	"github.com/patchbay-mcp/patchbay/host"
	"github.com/patchbay-mcp/patchbay/host/config"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// An adminTask is a task as the admin API describes it.
type adminTask struct {
	ID, Handle, Server, Tool, Status, Question string
	Created, Updated, Expires, Checked         time.Time
	HasResult                                  bool
	Caller                                     struct{ Subject string }
	Result                                     json.RawMessage
}

// newTaskAdmin is newAdmin for a server whose tools wait, ask, fail and succeed as tasks.
func newTaskAdmin(t *testing.T) *adminTest {
	t.Helper()
	s := mcp.NewServer("one", "1", nil)
	ts := tasks.NewServer(s, nil)
	t.Cleanup(func() {
		if err := ts.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	add := func(name string, run func(ctx context.Context) (string, error)) {
		tasks.AddTool(ts, &mcp.Tool{Name: name}, nil, func(ctx context.Context, _ struct{}) (string, error) {
			return run(ctx)
		})
	}
	add("wait", func(ctx context.Context) (string, error) {
		<-ctx.Done()
		return "", context.Cause(ctx)
	})
	add("ask", func(ctx context.Context) (string, error) {
		_, err := mcp.Ask[bool](ctx, "sure", "Which region?", nil)
		return "", err
	})
	add("fail", func(context.Context) (string, error) { return "", mcp.Errorf(-31000, "closed today") })
	mcp.AddTool(s, &mcp.Tool{Name: "plain"}, func(context.Context, struct{}) (string, error) { return "at once", nil })
	add("done", func(context.Context) (string, error) { return "all done", nil })
	return newAdmin(t, `{"mcpServers": {"one": {"command": "one"}}}`, func(o *host.Options, _ *gateway.AdminOptions) {
		o.Dial = func(context.Context, *config.Server) (mcp.Transport, error) { return mcp.InMemory(s), nil }
	})
}

// start starts a task of a principal.
func (a *adminTest) start(revision, subject, tool string) *tasks.Handle {
	a.t.Helper()
	caller := &policy.Caller{Principal: &mcp.Principal{Issuer: "https://idp.example", Subject: subject}}
	c := mcptest.Dial(a.t, a.host.For(caller), mcptest.Combination{Transport: mcptest.InMemory, Revision: revision},
		tasks.Declare(&mcp.ClientOptions{Elicit: func(ctx context.Context, _ *mcp.ElicitRequestParams) (
			*mcp.ElicitResult, error) {
			<-ctx.Done()
			return nil, context.Cause(ctx)
		}}, nil))
	h, err := tasks.Start(a.t.Context(), c, "one__"+tool, nil)
	if err != nil {
		a.t.Fatal(err)
	}
	return h
}

// list returns a page of the tasks.
func (a *adminTest) list(query string) (all []adminTask, next int) {
	a.t.Helper()
	var page struct {
		Tasks      []adminTask
		NextCursor int
	}
	a.get("GET", "/tasks"+query, "", &page)
	return page.Tasks, page.NextCursor
}

// untilTask asks about a task until it has a status.
func (a *adminTest) untilTask(id, status string) (t adminTask) {
	a.t.Helper()
	for deadline := time.Now().Add(time.Minute); t.Status != status; {
		if a.get("GET", "/tasks/"+id, "", &t); time.Now().After(deadline) {
			a.t.Fatalf("got %+v, want the status %s", t, status)
		}
	}
	return t
}

// Tasks of callers of both forms are listed by page, the newest first, and an operator cancels
// them.
func TestAdminListsAndCancelsTasks(t *testing.T) {
	a := newTaskAdmin(t)
	if all, _ := a.list(""); len(all) != 0 {
		t.Errorf("before a task: %+v", all)
	}
	a.start(mcptest.Modern, "ann", "wait")
	handle := a.start("2025-11-25", "bob", "wait")
	first, next := a.list("?limit=1")
	second, end := a.list("?limit=1&cursor=1")
	if next != 1 || end != 0 || len(first) != 1 || len(second) != 1 {
		t.Fatalf("got pages %+v and %+v, next %d and %d", first, second, next, end)
	}
	if got := first[0]; got.Caller.Subject != "bob" || got.Server != "one" || got.Tool != "wait" ||
		got.Status != "working" || got.HasResult || got.Created.IsZero() || got.Updated.IsZero() ||
		!got.Expires.After(time.Now()) || got.Checked.IsZero() || strings.Contains(handle.ID(), got.ID) {
		t.Errorf("got %+v", got)
	}
	bob := a.gateway.AdminClient(&mcp.Principal{Issuer: "https://idp.example", Subject: "bob"})
	_, text := sendInProcess(t, bob, http.MethodGet, "/tasks/"+first[0].ID)
	if !strings.Contains(text, `"handle":"`+handle.ID()+`"`) || first[0].Handle != "" {
		t.Errorf("the caller gets %s and the local user the handle %q, want the handle %q only for the caller", text,
			first[0].Handle, handle.ID())
	}
	for _, task := range append(first, second...) {
		var cancelled adminTask
		a.get("POST", "/tasks/"+task.ID+":cancel", "", &cancelled)
		a.untilTask(task.ID, "cancelled")
		if detail := string(a.lastAdmin().Detail); !strings.Contains(detail, task.Caller.Subject) {
			t.Errorf("the record of the request does not name the caller: %s", detail)
		}
		a.refused("POST", "/tasks/"+task.ID+":cancel", "", 409, "task_ended")
	}
	if got, err := handle.Get(t.Context()); err != nil || got.Status != tasks.StatusCancelled {
		t.Errorf("the caller got %+v, %v, want a cancelled task", got, err)
	}
	a.refused("GET", "/tasks/unknown", "", 404, "unknown_task")
	a.refused("POST", "/tasks/unknown:cancel", "", 404, "unknown_task")
	a.refused("GET", "/tasks?limit=0.5", "", 400, "invalid_parameter")
}

// Reading a task does not start its server.
func TestAdminReadsTasksOfStoppedServers(t *testing.T) {
	a := newTaskAdmin(t)
	a.start(mcptest.Modern, "ann", "wait")
	all, _ := a.list("")
	if status, text := a.send("POST", "/servers/one:stop", ""); status >= 300 {
		t.Fatalf("stop: %d %s", status, text)
	}
	var got adminTask
	if a.get("GET", "/tasks/"+all[0].ID, "", &got); got.Status != "working" || !got.Checked.Equal(all[0].Checked) {
		t.Errorf("got %+v, want the last description %+v", got, all[0])
	}
	if status, _ := a.send("POST", "/tasks/"+all[0].ID+":result", ""); status == 200 {
		t.Error("read the result from a stopped server")
	}
}

// A task with a result contains it, and lists contain the open question of a task.
func TestAdminShowsResultsAndQuestionsOfTasks(t *testing.T) {
	for _, revision := range []string{mcptest.Modern, "2025-11-25"} {
		a := newTaskAdmin(t)
		for tool, want := range map[string]string{"done": "all done", "fail": "closed today", "plain": "at once"} {
			if tool == "plain" && revision == mcptest.Modern {
				continue // the server decides which calls become tasks
			}
			a.start(revision, "ann", tool)
			all, _ := a.list("?limit=1")
			status := "completed"
			if tool == "fail" {
				status = "failed"
			}
			got := a.untilTask(all[0].ID, status)
			if got.Result != nil {
				t.Errorf("%s, %s: a request without an audit record read the result %s", revision, tool, got.Result)
			}
			a.get("POST", "/tasks/"+all[0].ID+":result", "", &got)
			if detail := string(a.lastAdmin().Detail); !strings.Contains(detail, `:result"`) ||
				!strings.Contains(detail, "ann") {
				t.Errorf("the record of the request does not name the caller: %s", detail)
			}
			if !got.HasResult || !strings.Contains(string(got.Result), want) {
				t.Errorf("%s, %s: got %+v, result %s", revision, tool, got, got.Result)
			}
		}
		a.start(revision, "bob", "ask")
		all, _ := a.list("?limit=1")
		a.untilTask(all[0].ID, "input_required")
		var got adminTask
		if a.get("POST", "/tasks/"+all[0].ID+":result", "", &got); got.Result != nil {
			t.Errorf("%s: got the result %s of a task without a result", revision, got.Result)
		}
		if all, _ = a.list("?limit=1"); all[0].Question != "Which region?" && revision == mcptest.Modern {
			t.Errorf("%s: got %+v", revision, all[0])
		}
	}
}
