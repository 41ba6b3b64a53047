package tasks_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/ext/tasks"
	"github.com/patchbay-mcp/patchbay/gateway"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/consoletest"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/page"
	screen "github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/tasks"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// newSite serves a console of a gateway whose server jobs asks for a region, and then waits. start calls a tool
// as a task of the principal ann.
func newSite(t *testing.T, person string, role page.Role) (s *consoletest.Site, start func(tool string) *tasks.Handle) {
	t.Helper()
	jobs := mcp.NewServer("jobs", "1", nil)
	ts := tasks.NewServer(jobs, nil)
	t.Cleanup(func() {
		if err := ts.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	tasks.AddTool(ts, &mcp.Tool{Name: "deploy"}, nil, func(ctx context.Context, _ struct{}) (string, error) {
		region, err := mcp.Ask[string](ctx, "region", "Which <region>?", nil)
		return "deployed to " + region, err
	})
	tasks.AddTool(ts, &mcp.Tool{Name: "build"}, nil, func(context.Context, struct{}) (string, error) {
		return "built <all>", nil
	})
	tasks.AddTool(ts, &mcp.Tool{Name: "fail"}, nil, func(context.Context, struct{}) (string, error) {
		return "", errors.New("no <disk>")
	})
	g, h := consoletest.Gateway(t, `{"mcpServers": {"jobs": {"command": "x"}}}`,
		map[string]*mcp.Server{"jobs": jobs}, nil)
	s = consoletest.New(t, func(o *console.Options) {
		o.Admin = g.AdminClient
		o.Authenticate = func(*http.Request) (*mcp.Principal, page.Role, error) {
			return &mcp.Principal{Subject: person}, role, nil
		}
		o.Connect = func(_ context.Context, server string, p *mcp.Principal) (mcp.Transport, error) {
			handler, err := g.CallerEndpoint(p, gateway.Route{Server: server})
			if err != nil {
				return nil, err
			}
			return mcp.InMemory(handler), nil
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
	s, start := newSite(t, "bob", page.RoleOperator)
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
	if id == nil || strings.Contains(text, "/explore/task") {
		t.Fatalf("want a form that cancels, and none that answers: %s", text)
	}
	if res, _ := v.Send(http.MethodPost, "/explore/task", url.Values{"task": id[1:]}); res.StatusCode !=
		http.StatusForbidden {
		t.Errorf("answer the task of another person: got %d, want 403", res.StatusCode)
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
	if text = v.See(link[1]); !strings.Contains(text, "built &lt;all&gt;") || !strings.Contains(text, "completed") ||
		strings.Contains(text, "reports an error") {
		t.Errorf("got the result %s", text)
	}
	start("fail")
	const ofFail = `Result<span class="away"> of fail`
	link = regexp.MustCompile(`href="(/tasks/result[^"]+)">` + ofFail).FindStringSubmatch(v.Await("/tasks", ofFail))
	if link == nil {
		t.Fatal("the list has no link to the result of the tool that fails")
	}
	if text = v.See(link[1]); !strings.Contains(text, "The tool reports an error") ||
		!strings.Contains(text, "no &lt;disk&gt;") {
		t.Errorf("got the result %s", text)
	}
}

// A person answers the question of a task that an own client created. An answer to a second press of the button goes to
// the same run. Another operator cannot answer.
func TestOwnerAnswersTask(t *testing.T) {
	mcptest.NoLeaks(t)
	s, start := newSite(t, "ann", page.RoleOperator)
	v := s.Guest()
	handle := start("deploy")
	text := v.Await("/tasks", "Which &lt;region&gt;?")
	form := url.Values{"task": taskID.FindStringSubmatch(text)[1:]}
	if !strings.Contains(text, `action="/explore/task"`) || strings.Contains(text, handle.ID()) {
		t.Errorf("want a button for the answer, and no id of the task: got %s", text)
	}
	run := v.Post("/explore/task", form)
	asked := v.Await(run, `name="question"`)
	if again := v.Post("/explore/task", form); again != run {
		t.Errorf("a second press opened %s, want %s", again, run)
	}
	question := regexp.MustCompile(`name="question" value="(\d+)"`).FindStringSubmatch(asked)
	v.Post("/inbox/answer", url.Values{"question": question[1:], "action": {"accept"}, "open:": {""},
		"/value": {"north"}})
	if text := v.Await(run, "deployed to north"); strings.Contains(text, "Copy as") {
		t.Errorf("the run offers to copy a call that it did not send: %s", text)
	}
	got, err := handle.Wait(t.Context())
	if err != nil || got.Content[0].(*mcp.TextContent).Text != "deployed to north" {
		t.Errorf("the client got %+v, %v", got, err)
	}
	if res, _ := v.Send(http.MethodPost, "/explore/task", url.Values{"task": {"none"}}); res.StatusCode != 404 {
		t.Errorf("an unknown task: got %d, want 404", res.StatusCode)
	}
}

// A viewer sees tasks without the texts of their servers, and neither cancels tasks nor reads results.
func TestViewerSeesNoTexts(t *testing.T) {
	s, start := newSite(t, "bob", page.RoleViewer)
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

// forgetful is an admin API whose servers fail for all tasks but the oldest, and counts the requests for each.
type forgetful struct {
	mu    sync.Mutex
	asked map[string]int
}

func (f *forgetful) RoundTrip(r *http.Request) (*http.Response, error) {
	res := &http.Response{StatusCode: http.StatusOK, Request: r}
	body := "{}"
	if id, ok := strings.CutPrefix(r.URL.Path, "/admin/v1/tasks/"); ok {
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.asked[id]++; id != "t19" {
			res.StatusCode, body = http.StatusBadGateway, `{"code": "failed", "detail": "no answer"}`
		}
	} else {
		var all []string
		for i := range 20 { // more than may be asked at once
			all = append(all, fmt.Sprintf(`{"id": "t%d", "status": "working"}`, i))
		}
		body = `{"tasks": [` + strings.Join(append(all, `{"id": "gone", "status": "unknown"}`), ",") + `]}`
	}
	res.Body = io.NopCloser(strings.NewReader(body))
	return res, nil
}

// Servers that fail are asked ever less, do not delay other tasks, and wake no streams.
func TestFailingServersAreAskedRarely(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := &forgetful{asked: map[string]int{}}
		site := page.NewSite(func(*mcp.Principal) *http.Client { return &http.Client{Transport: api} },
			slog.New(slog.DiscardHandler))
		defer site.End()
		view := screen.New(site).Routes[0].View
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/tasks", http.NoBody)
		woken := 0
		for range 240 { // two minutes with two pages
			changed := site.Wait()
			if _, err := view(site.Request(r, nil, page.RoleViewer)); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			select {
			case <-changed:
				woken++
			case <-time.After(500 * time.Millisecond):
			}
		}
		if n := api.asked["t0"]; n < 2 || n > 8 {
			t.Errorf("the server of a failing task got %d requests, want 2 to 8", n)
		}
		if n := api.asked["t19"]; n < 20 || n > 61 || n != woken {
			t.Errorf("the server of another task got %d requests, want 20 to 61; streams were woken %d times", n, woken)
		}
		if n := api.asked["gone"]; n > 0 {
			t.Errorf("a server got %d requests about a task that it does not know", n)
		}
	})
}
