package explore_test

import (
	"context"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/ext/tasks"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// A person sends a request of any method. Numbers of its params keep their digits.
func TestAnyMethodIsSent(t *testing.T) {
	mcptest.NoLeaks(t)
	server := newEchoServer(mcptest.Modern)
	v := newVisitor(t, func() mcp.Transport { return mcp.InMemory(server) })
	v.Await("/explore?server=fs&kind=methods", "tools/list")
	send := func(method, params string) string {
		t.Helper()
		return v.Post("/explore/run", url.Values{"at-server": {"fs"}, "at-kind": {"methods"}, "at-name": {method},
			"at-timeout": {"60"}, "mode": {"json"}, "text": {params}, "do": {"run"}})
	}
	const typed = `{"name":"echo", "arguments":{ "n":1.50 }}`
	page := v.Await(send("tools/call", typed), "patchbay rpc fs tools/call") // at the end of the run
	if got := server.last(); got != `{"n":1.50}` || !strings.Contains(page, "half of it") {
		t.Errorf("the server received %s; the page is\n%s", got, page)
	}
	v.Await(send("example/unknown", "{}"), "-32601")
	page = v.See("/explore?server=fs&kind=methods&name=example/other")
	if !strings.Contains(page, "Params, as JSON") || strings.Contains(page, "Edit as a form") {
		t.Errorf("a method that is not listed:\n%s", page)
	}
}

// A task that requires input shows its questions in the run and in the Inbox. Each is answered once,
// and the task continues.
func TestTasksAskInTheInbox(t *testing.T) {
	mcptest.NoLeaks(t)
	for _, revision := range []string{"2025-11-25", mcptest.Modern} {
		t.Run(revision, func(t *testing.T) {
			server := mcp.NewServer("press", "1", &mcp.ServerOptions{Revisions: []string{revision}})
			work := tasks.NewServer(server, nil)
			defer func() {
				if err := work.Close(context.Background()); err != nil {
					t.Error(err)
				}
			}()
			tasks.AddTool(work, &mcp.Tool{Name: "publish"}, nil, func(ctx context.Context, _ struct{}) (string, error) {
				name, err := mcp.Ask[string](ctx, "name", "Which title?", nil)
				if err != nil {
					return "", err
				}
				r, err := mcp.Sample(ctx, "s", &mcp.CreateMessageParams{MaxTokens: 9, Messages: []mcp.SamplingMessage{
					{Role: mcp.RoleUser, Content: []mcp.ContentBlock{mcp.Text("Sum up " + name)}}}})
				if err != nil {
					return "", err
				}
				return name + ": " + r.Text(), nil
			})
			v := newVisitor(t, func() mcp.Transport { return mcp.InMemory(server) })
			v.Await("/explore?server=fs", "name=publish")
			at := v.run("publish", url.Values{"at-task": {"yes"}})
			answer := func(text string, values url.Values) {
				t.Helper()
				shown := v.Await("/inbox", text)
				about := "of run " + v.runID(at) + " of publish"
				if !strings.Contains(shown, "(1) Inbox") || !strings.Contains(shown, about) {
					t.Errorf("the Inbox does not name the run:\n%s", shown)
				}
				v.Await(at, text)
				v.Await(at, "input_required")
				values.Set("question", regexp.MustCompile(`name="question" value="(\d+)"`).FindStringSubmatch(shown)[1])
				values.Set("action", "accept")
				v.Post("/inbox/answer", values)
				if res, _ := v.Send(http.MethodPost, "/inbox/answer", values); res.StatusCode != http.StatusConflict {
					t.Errorf("the same answer again: status %d, want 409", res.StatusCode)
				}
			}
			answer("Which title?", url.Values{"open:": {""}, "/value": {"News"}})
			answer("Sum up News", url.Values{"text": {"all is well"}})
			v.Await(at, "News: all is well")
			v.Await("/inbox", "Nothing waits")
		})
	}
}

// A call that becomes a task shows its id and status, and its result at the end. The end of the run
// cancels the task.
func TestCallsBecomeTasks(t *testing.T) {
	mcptest.NoLeaks(t)
	for _, revision := range []string{"2025-11-25", mcptest.Modern} {
		t.Run(revision, func(t *testing.T) {
			more, cancelled := make(chan struct{}), make(chan struct{})
			server := mcp.NewServer("press", "1", &mcp.ServerOptions{Revisions: []string{revision}})
			work := tasks.NewServer(server, nil)
			defer func() {
				if err := work.Close(context.Background()); err != nil {
					t.Error(err)
				}
			}()
			tasks.AddTool(work, &mcp.Tool{Name: "slow"}, nil, func(context.Context, struct{}) (string, error) {
				<-more
				return "done at last", nil
			})
			tasks.AddTool(work, &mcp.Tool{Name: "stuck"}, nil, func(ctx context.Context, _ struct{}) (string, error) {
				<-ctx.Done()
				close(cancelled)
				return "", context.Cause(ctx)
			})
			v := newVisitor(t, func() mcp.Transport { return mcp.InMemory(server) })
			v.Await("/explore?server=fs", "name=slow")
			at := v.run("slow", url.Values{"at-task": {"yes"}})
			v.Await(at, "<p class=\"small\">Task <span")
			close(more)
			v.Await(at, "done at last")
			at = v.run("stuck", url.Values{"at-task": {"yes"}})
			v.Await(at, "<p class=\"small\">Task <span")
			v.Post("/explore/cancel", url.Values{"run": {v.runID(at)}})
			<-cancelled
			v.Await(at, ">cancelled</span>")
		})
	}
}
