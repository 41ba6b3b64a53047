package explore_test

import (
	"context"
	"net/url"
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
	page := v.Await(send("tools/call", typed), "half of it")
	if got := server.last(); got != `{"n":1.50}` || !strings.Contains(page, "patchbay rpc fs tools/call") {
		t.Errorf("the server received %s; the page is\n%s", got, page)
	}
	v.Await(send("example/unknown", "{}"), "-32601")
	page = v.See("/explore?server=fs&kind=methods&name=example/other")
	if !strings.Contains(page, "Params, as JSON") || strings.Contains(page, "Edit as a form") {
		t.Errorf("a method that is not listed:\n%s", page)
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
