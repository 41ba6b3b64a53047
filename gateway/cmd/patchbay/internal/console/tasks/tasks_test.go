package tasks_test

import (
	"context"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/ext/tasks"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/consoletest"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/page"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// newSite serves a console of a gateway whose server jobs asks for a region, and then waits. start calls a tool
// as a task of the principal ann.
func newSite(t *testing.T, role page.Role) (s *consoletest.Site, start func(tool string) *tasks.Handle) {
	t.Helper()
	jobs := mcp.NewServer("jobs", "1", nil)
	ts := tasks.NewServer(jobs, nil)
	t.Cleanup(func() {
		if err := ts.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	tasks.AddTool(ts, &mcp.Tool{Name: "deploy"}, nil, func(ctx context.Context, _ struct{}) (string, error) {
		_, err := mcp.Ask[bool](ctx, "sure", "Which <region>?", nil)
		return "", err
	})
	tasks.AddTool(ts, &mcp.Tool{Name: "build"}, nil, func(context.Context, struct{}) (string, error) {
		return "built <all>", nil
	})
	g, h := consoletest.Gateway(t, `{"mcpServers": {"jobs": {"command": "x"}}}`,
		map[string]*mcp.Server{"jobs": jobs}, nil)
	s = consoletest.New(t, func(o *console.Options) {
		o.Admin = g.AdminClient
		o.Authenticate = func(*http.Request) (*mcp.Principal, page.Role, error) {
			return &mcp.Principal{Subject: "bob"}, role, nil
		}
	})
	c := mcptest.Dial(t, h.For(&policy.Caller{Principal: &mcp.Principal{Subject: "ann"}}),
		mcptest.Combination{Transport: mcptest.InMemory, Revision: mcptest.Modern},
		tasks.Declare(&mcp.ClientOptions{Elicit: func(context.Context, *mcp.ElicitRequestParams) (*mcp.ElicitResult,
			error) {
			return &mcp.ElicitResult{Action: mcp.ElicitDecline}, nil
		}}, nil))
	return s, func(tool string) *tasks.Handle {
		t.Helper()
		handle, err := tasks.Start(t.Context(), c, "jobs__"+tool, nil)
		if err != nil {
			t.Fatal(err)
		}
		return handle
	}
}

var taskID = regexp.MustCompile(`name="task" value="([^"]+)"`)

// An operator sees the question of a task that its caller does not poll, cancels the task, and reads results.
func TestOperatorCancelsTasksAndReadsResults(t *testing.T) {
	mcptest.NoLeaks(t)
	s, start := newSite(t, page.RoleOperator)
	v := s.Guest()
	if text := v.See("/tasks"); !strings.Contains(text, "No caller has created a task") {
		t.Errorf("without tasks: got %s", text)
	}
	handle := start("deploy")
	text := v.Await("/tasks", "Which &lt;region&gt;?")
	for _, want := range []string{"input required", ">deploy<", "jobs", "ann", "Cancel deploy"} {
		if !strings.Contains(text, want) {
			t.Errorf("got %s, want %q", text, want)
		}
	}
	id := taskID.FindStringSubmatch(text)
	if id == nil {
		t.Fatalf("no form: %s", text)
	}
	if to := v.Post("/tasks/cancel", url.Values{"task": id[1:]}); to != "/tasks" {
		t.Errorf("cancel: went to %s", to)
	}
	if got, err := handle.Get(t.Context()); err != nil || got.Status != tasks.StatusCancelled {
		t.Errorf("the caller got %+v, %v, want a cancelled task", got, err)
	}
	if to := v.Post("/tasks/cancel", url.Values{"task": id[1:]}); to != "/tasks" {
		t.Errorf("cancel again: went to %s", to)
	}
	if res, _ := v.Send(http.MethodPost, "/tasks/cancel", url.Values{"task": {"none"}}); res.StatusCode !=
		http.StatusNotFound {
		t.Errorf("cancel an unknown task: got %d, want 404", res.StatusCode)
	}
	start("build")
	link := regexp.MustCompile(`href="(/tasks/result[^"]+)"`).FindStringSubmatch(v.Await("/tasks", "/tasks/result"))
	if text = v.See(link[1]); !strings.Contains(text, "built &lt;all&gt;") || !strings.Contains(text, "completed") {
		t.Errorf("got the result %s", text)
	}
}

// A viewer sees tasks without the texts of their servers, and neither cancels tasks nor reads results.
func TestViewerSeesNoTexts(t *testing.T) {
	s, start := newSite(t, page.RoleViewer)
	v := s.Guest()
	start("deploy")
	text := v.Await("/tasks", "waits for an answer of its caller")
	if strings.Contains(text, "region") || strings.Contains(text, "Cancel") || !strings.Contains(text, "ann") {
		t.Errorf("got %s", text)
	}
	for _, one := range [][2]string{{http.MethodPost, "/tasks/cancel"}, {http.MethodGet, "/tasks/result?task=x"}} {
		if res, _ := v.Send(one[0], one[1], nil); res.StatusCode != http.StatusForbidden {
			t.Errorf("%s: got %d, want 403", one[1], res.StatusCode)
		}
	}
}
