package conformance_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/ext/tasks"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcphttp"
)

// Tasks of revision 2025-11-25 between our SDK and the official TypeScript SDK.

// newTaskServer returns the server for clients/tasks_2025.mjs.
func newTaskServer(t *testing.T) *mcp.Server {
	s := mcp.NewServer("patchbay-tasks", "1.0.0", &mcp.ServerOptions{Logger: logger(t)})
	m := tasks.NewServer(s, &tasks.Options{PollInterval: 50 * time.Millisecond, Logger: logger(t)})
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := m.Close(ctx); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	type none struct{}
	tasks.AddTool(m, &mcp.Tool{Name: "slow"}, nil, func(ctx context.Context, in struct {
		Label string `json:"label"`
	}) (string, error) {
		for i := range 3 {
			mcp.Progress(ctx, float64(i+1), 3, "")
			select {
			case <-time.After(100 * time.Millisecond):
			case <-ctx.Done():
				return "", context.Cause(ctx)
			}
		}
		return "slow: " + in.Label, nil
	})
	tasks.AddTool(m, &mcp.Tool{Name: "must"}, &tasks.ToolOptions{Required: true},
		func(context.Context, none) (string, error) {
			return "as a task", nil
		})
	tasks.AddTool(m, &mcp.Tool{Name: "confirm"}, nil, func(ctx context.Context, in struct {
		File string `json:"file"`
	}) (string, error) {
		sure, err := mcp.Ask[bool](ctx, "sure", "Delete "+in.File+"?", nil)
		switch {
		case errors.Is(err, mcp.ErrDeclined):
			return "kept " + in.File, nil
		case err != nil:
			return "", err
		}
		return fmt.Sprintf("deleted %s: %t", in.File, sure), nil
	})
	tasks.AddTool(m, &mcp.Tool{Name: "many"}, nil, func(ctx context.Context, in struct {
		Questions int `json:"questions"`
	}) (string, error) {
		for i := range in.Questions {
			if _, err := mcp.Ask[bool](ctx, fmt.Sprint(i), fmt.Sprintf("Question %d?", i), nil); err != nil {
				return "", err
			}
		}
		return fmt.Sprintf("%d answers", in.Questions), nil
	})
	tasks.AddTool(m, &mcp.Tool{Name: "haiku"}, nil, func(ctx context.Context, _ none) (string, error) {
		r, err := mcp.Sample(ctx, "haiku", &mcp.CreateMessageParams{Messages: []mcp.SamplingMessage{{Role: mcp.RoleUser,
			Content: []mcp.ContentBlock{mcp.Text("A haiku, please.")}}}, MaxTokens: 50})
		if err != nil {
			return "", err
		}
		return r.Text(), nil
	})
	tasks.AddTool(m, &mcp.Tool{Name: "fail_tool"}, nil, func(context.Context, none) (string, error) {
		return "", errors.New("it failed, as it should")
	})
	tasks.AddTool(m, &mcp.Tool{Name: "fail_protocol"}, nil, func(context.Context, none) (string, error) {
		return "", mcp.Errorf(-32050, "broken")
	})
	tasks.AddTool(m, &mcp.Tool{Name: "forever"}, nil, func(ctx context.Context, _ none) (string, error) {
		<-ctx.Done()
		return "", context.Cause(ctx)
	})
	mcp.AddTool(s, &mcp.Tool{Name: "plain"}, func(context.Context, none) (string, error) { return "plain", nil })
	return s
}

// taskServerOnStdio is set when this test binary runs as a server on stdio.
const taskServerOnStdio = "PATCHBAY_TEST_TASKS_STDIO"

// TestTaskServerOnStdio is the server of the stdio test.
func TestTaskServerOnStdio(t *testing.T) {
	if os.Getenv(taskServerOnStdio) == "" {
		t.Skip("started by TestOfficialClientUsesOurTasks")
	}
	if err := newTaskServer(t).Run(t.Context(), mcp.Stdio()); err != nil {
		t.Error(err)
	}
}

type taskReport struct {
	TaskID, Status, StatusMessage, CreatedAt, LastUpdatedAt string
	TTL, PollInterval                                       float64
}

type runReport struct {
	Task, Last    taskReport
	Statuses      []string
	Text, Related string
	IsError       bool
	Error         string
}

// A tasksReport is the output of clients/tasks_2025.mjs.
type tasksReport struct {
	Asked []struct{ Message, Task string }

	Capability, Extensions json.RawMessage
	Support                map[string]string

	Slow                           runReport
	SlowAgain                      taskReport
	Waited, Direct                 string
	Progress                       []float64
	Confirm, Declined, Many, Haiku runReport
	CancelledOpen, Blocked         string
	Cancelled                      runReport
	Cancel                         taskReport
	CancelTwice, CancelledResult   int
	FailedTool, FailedProtocol     taskReport
	FailedToolResult               struct {
		IsError       bool
		Text, Related string
	}
	FailedProtocolResult                int
	TTL                                 float64
	Expired, Required                   string
	RequiredWithout, Forbidden, Unknown int
	List, BadCursor                     int
	Listed, Made                        []string
	Bob                                 struct{ List, Get, Cancel, Result int }
	Outlived                            string
}

// TestOfficialClientUsesOurTasks runs the tasks of our server with the official TypeScript client.
func TestOfficialClientUsesOurTasks(t *testing.T) {
	needNode(t)
	for name, args := range map[string]func(t *testing.T) []string{
		"HTTP": func(t *testing.T) []string {
			h := mcphttp.NewHandler(newTaskServer(t), &mcphttp.Options{Logger: logger(t)})
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				who := &mcp.Principal{Issuer: "test", Subject: r.Header.Get("Authorization")}
				h.ServeHTTP(w, r.WithContext(mcp.WithPrincipal(r.Context(), who)))
			}))
			t.Cleanup(func() {
				ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
				defer cancel()
				_ = h.Shutdown(ctx)
				server.Close()
			})
			return []string{"http", server.URL}
		},
		"stdio": func(t *testing.T) []string {
			t.Setenv(taskServerOnStdio, "1")
			return []string{"stdio", must(os.Executable())(t), "-test.run=^TestTaskServerOnStdio$"}
		},
	} {
		t.Run(name, func(t *testing.T) {
			out, err := node(t, time.Minute, append([]string{"clients/tasks_2025.mjs"}, args(t)...)...)
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			var report tasksReport
			if err := json.Unmarshal([]byte(out), &report); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			checkTasks(t, &report)
			if name == "HTTP" {
				checkOwners(t, &report)
				return
			}
			equal(t, "tasks/list without authentication", report.List, mcp.CodeMethodNotFound) // Requirement: TASKD-19
		})
	}
}

func checkTasks(t *testing.T, s *tasksReport) {
	t.Helper()
	equal(t, "extensions", s.Extensions, nil) // tasks are a capability in this revision
	equal(t, "support", s.Support, map[string]string{
		"slow": "optional", "must": "required", "confirm": "optional", "many": "optional", "haiku": "optional",
		"fail_tool": "optional", "fail_protocol": "optional", "forever": "optional", "plain": "",
	})
	equal(t, "statuses", append([]string{s.Slow.Task.Status}, s.Slow.Statuses...), // Requirement: TASKD-06
		[]string{"working", "working", "completed"})
	equal(t, "ttl and pollInterval", []float64{s.Slow.Task.TTL, s.Slow.Task.PollInterval}, // Requirement: TASKD-08
		[]float64{60000, 50})
	equal(t, "tasks/result", s.Slow.Text, "slow: one")           // Requirement: TASKD-10
	equal(t, "related task", s.Slow.Related, s.Slow.Task.TaskID) // Requirement: TASKD-12
	equal(t, "slow later", s.SlowAgain, s.Slow.Last)
	for _, at := range []string{s.SlowAgain.CreatedAt, s.SlowAgain.LastUpdatedAt} {
		_, err := time.Parse(time.RFC3339, at)
		equal(t, "error of the time "+at, err, nil) // Requirement: TASKD-09
	}
	equal(t, "ttl in tasks/get is set", s.SlowAgain.TTL > 0, true) // Requirement: TASKD-09
	equal(t, "tasks/result before the end", s.Waited, "slow: two")
	if n := len(s.Progress); n == 0 || s.Progress[n-1] != 3 || !slices.IsSorted(s.Progress) {
		t.Errorf("progress: got %v, want it ascending to 3", s.Progress)
	}
	equal(t, "call without a task", s.Direct, "slow: direct")
	// Requirement: TASKD-14
	equal(t, "confirm", []any{s.Confirm.Text, slices.Contains(s.Confirm.Statuses, "input_required")},
		[]any{"deleted a.txt: true", true})
	equal(t, "question of confirm", s.Asked[0], // Requirement: TASKD-13
		map[string]string{"Message": "Delete a.txt?", "Task": s.Confirm.Task.TaskID})
	equal(t, "declined", s.Declined.Text, "kept b.txt")
	equal(t, "many questions", s.Many.Text, "40 answers")
	equal(t, "sampling", s.Haiku.Text, "a haiku")
	equal(t, "cancelled with an open question", []string{s.CancelledOpen, s.Blocked},
		[]string{"cancelled", "error -32603"})
	// Requirement: TASKD-15
	equal(t, "cancelled", []any{s.Cancel.Status, s.Cancelled.Statuses, s.CancelTwice, s.CancelledResult},
		[]any{"cancelled", []string{"cancelled"}, mcp.CodeInvalidParams, mcp.CodeInternalError})
	// Requirement: TASKD-20
	equal(t, "failed tool", []any{s.FailedTool.Status, s.FailedToolResult.IsError, s.FailedToolResult.Text,
		s.FailedToolResult.Related == s.FailedTool.TaskID},
		[]any{"failed", true, "it failed, as it should", true})
	// Requirement: TASKD-11
	equal(t, "protocol error", []any{s.FailedProtocol.Status, s.FailedProtocolResult}, []any{"failed", -32050})
	equal(t, "ttl", []any{s.TTL, s.Expired}, []any{1000, "failed"})
	// Requirement: TASKD-05
	equal(t, "required", []any{s.Required, s.RequiredWithout}, []any{"as a task", mcp.CodeMethodNotFound})
	// Requirement: TASKD-04
	equal(t, "forbidden", s.Forbidden, mcp.CodeMethodNotFound)
	// Requirement: TASKD-16
	equal(t, "unknown", s.Unknown, mcp.CodeInvalidParams)
}

// checkOwners checks the operations that require an authenticated client.
func checkOwners(t *testing.T, s *tasksReport) {
	t.Helper()
	equal(t, "capability", s.Capability, json.RawMessage(`{"list":{},"cancel":{},"requests":{"tools":{"call":{}}}}`))
	for _, id := range s.Made {
		equal(t, "task "+id+" is listed", slices.Contains(s.Listed, id), true) // Requirement: TASKD-21
	}
	equal(t, "bad cursor", s.BadCursor, mcp.CodeInvalidParams)
	equal(t, "responses to another principal", s.Bob, // Requirement: TASKD-18
		json.RawMessage(`{"List":0,"Get":-32602,"Cancel":-32602,"Result":-32602}`))
	equal(t, "after the end of the session", s.Outlived, "slow: outlives")
}

// TestOurClientUsesOfficialTasks runs tasks of a server of the official TypeScript SDK with our
// client.
func TestOurClientUsesOfficialTasks(t *testing.T) {
	node := needNode(t)
	for name, transport := range map[string]func(t *testing.T) mcp.Transport{
		"HTTP":  overHTTP(startPeer(t, exec.Command(node, "peers/typescript/tasks.mjs"))),
		"stdio": overStdio(node, "peers/typescript/tasks.mjs", "--stdio"),
	} {
		t.Run(name, func(t *testing.T) {
			ctx := within(t, time.Minute)
			var mu sync.Mutex
			var questions []string
			opts := newHost().options(t, "")
			opts.Elicit = func(_ context.Context, p *mcp.ElicitRequestParams) (*mcp.ElicitResult, error) {
				mu.Lock()
				defer mu.Unlock()
				questions = append(questions, p.Message)
				return &mcp.ElicitResult{Action: mcp.ElicitAccept, Content: json.RawMessage(`{"value":true}`)}, nil
			}
			c := dial(ctx, t, transport(t), tasks.Declare(opts, &tasks.ClientOptions{TTL: 30 * time.Second}))
			equal(t, "revision", c.Revision(), "2025-11-25")
			callPeerTasks(ctx, t, c)
			handlePeerTasks(ctx, t, c)
			mu.Lock()
			defer mu.Unlock()
			equal(t, "questions", questions, []string{"Delete a.txt?", "First?", "Second?", "Delete b.txt?"})
		})
	}
}

// callPeerTasks calls tools that the client runs as tasks transparently.
func callPeerTasks(ctx context.Context, t *testing.T, c *mcp.Client) {
	t.Helper()
	call := func(ctx context.Context, tool string, args any) string {
		t.Helper()
		res := must(c.CallTool(ctx, tool, args))(t)
		return fmt.Sprintf("%s %t", res.Text(), res.IsError)
	}
	equal(t, "plain", call(ctx, "plain", nil), "plain false")
	equal(t, "must", call(ctx, "must", nil), "as a task false")
	equal(t, "confirm", call(ctx, "confirm", map[string]string{"file": "a.txt"}), "deleted a.txt false")
	equal(t, "twice", call(ctx, "twice", nil), "accept accept false")
	equal(t, "fail_tool", call(ctx, "fail_tool", nil), "it failed, as it should true")
	limited, cancel := context.WithTimeout(ctx, 500*time.Millisecond)
	defer cancel()
	if _, err := c.CallTool(limited, "forever", nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a call that ends before its task: got %v, want %v", err, context.DeadlineExceeded)
	}
}

// handlePeerTasks starts tasks and uses their handles.
func handlePeerTasks(ctx context.Context, t *testing.T, c *mcp.Client) {
	t.Helper()
	var progress []float64
	onProgress := func(u mcp.ProgressUpdate) { progress = append(progress, u.Progress) }
	withProgress := mcp.WithCallOptions(ctx, mcp.CallOptions{Progress: onProgress})
	slow := must(tasks.Start(withProgress, c, "slow", map[string]string{"label": "one"}))(t)
	if slow.ID() == "" {
		t.Fatal("the call of slow did not create a task")
	}
	equal(t, "slow", must(tasks.Resume(c, slow.ID()).Wait(ctx))(t).Text(), "slow: one")
	done := must(slow.Get(ctx))(t)
	equal(t, "slow, done", []any{done.Status, done.TTL, done.PollInterval},
		[]any{tasks.StatusCompleted, 30 * time.Second, 50 * time.Millisecond})
	if !strings.Contains(string(done.Result), "slow: one") {
		t.Errorf("result: got %s, want slow: one", done.Result)
	}

	confirm := must(tasks.Start(ctx, c, "confirm", map[string]string{"file": "b.txt"}))(t)
	equal(t, "confirm", must(confirm.Wait(ctx))(t).Text(), "deleted b.txt")

	forever := must(tasks.Start(ctx, c, "forever", nil))(t)
	if err := forever.Cancel(ctx); err != nil {
		t.Errorf("Cancel: %v", err)
	}
	if _, err := forever.Wait(ctx); !errors.Is(err, mcp.ErrCancelled) {
		t.Errorf("Wait for a cancelled task: got %v, want %v", err, mcp.ErrCancelled)
	}
	var e *mcp.Error
	if err := forever.Cancel(ctx); !errors.As(err, &e) || e.Code != mcp.CodeInvalidParams {
		t.Errorf("second Cancel: got %v, want code %d", err, mcp.CodeInvalidParams)
	}
	if _, err := tasks.Resume(c, "no-such-task").Get(ctx); !errors.As(err, &e) || e.Code != mcp.CodeInvalidParams {
		t.Errorf("an unknown task: got %v, want code %d", err, mcp.CodeInvalidParams)
	}
	statuses := map[tasks.Status]int{}
	for task, err := range tasks.List(ctx, c) {
		if err != nil {
			t.Fatal(err)
		}
		statuses[task.Status]++
	}
	// The call of forever cancelled its task at its deadline.
	equal(t, "list", statuses, map[tasks.Status]int{tasks.StatusCompleted: 5, tasks.StatusFailed: 1,
		tasks.StatusCancelled: 2})
}

// TestOfficialServerSendsRequestsAsTasks tests task-augmented requests of a server of the official
// TypeScript SDK to our client.
func TestOfficialServerSendsRequestsAsTasks(t *testing.T) {
	node := needNode(t)
	for name, transport := range map[string]func(t *testing.T) mcp.Transport{
		"HTTP":  overHTTP(startPeer(t, exec.Command(node, "peers/typescript/tasks.mjs"))),
		"stdio": overStdio(node, "peers/typescript/tasks.mjs", "--stdio"),
	} {
		t.Run(name, func(t *testing.T) {
			ctx := within(t, time.Minute)
			forever, ended := make(chan struct{}), make(chan error, 1)
			opts := newHost().options(t, "")
			opts.Elicit = func(ctx context.Context, p *mcp.ElicitRequestParams) (*mcp.ElicitResult, error) {
				switch p.Message {
				case "Fail?":
					return nil, mcp.Errorf(-32050, "the user is not available")
				case "For ever?":
					close(forever) // once: a request is handled only once
					<-ctx.Done()
					ended <- context.Cause(ctx)
				case "Is it asked?":
					<-forever
				}
				return &mcp.ElicitResult{Action: mcp.ElicitAccept, Content: json.RawMessage(`{"value":true}`)}, nil
			}
			c := dial(ctx, t, transport(t), tasks.Declare(opts, nil))
			checkSurvey(t, must(c.CallTool(ctx, "survey", nil))(t).Text())
			if err := <-ended; !errors.Is(err, mcp.ErrCancelled) {
				t.Errorf("context of a cancelled request: got %v, want %v", err, mcp.ErrCancelled)
			}
		})
	}
}

// checkSurvey checks the report of the server on the tasks of its client.
func checkSurvey(t *testing.T, text string) {
	t.Helper()
	type followed struct {
		Statuses []string
		Task     taskReport
		Result   map[string]any
		Error    string
	}
	var report struct {
		Capability           json.RawMessage
		User, Model, Refused followed
		Cancelled            string
		Codes                []int
		List                 []string
	}
	if err := json.Unmarshal([]byte(text), &report); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	equal(t, "capability", report.Capability, json.RawMessage( // Requirement: TASKD-01
		`{"list":{},"cancel":{},"requests":{"sampling":{"createMessage":{}},"elicitation":{"create":{}}}}`))
	for _, test := range []struct {
		name, last string
		task       followed
	}{{"user", "completed", report.User}, {"model", "completed", report.Model}, {"refused", "failed", report.Refused}} {
		f := test.task
		// Requirement: TASKD-06
		equal(t, "statuses of "+test.name, []string{f.Statuses[0], f.Statuses[len(f.Statuses)-1]},
			[]string{"working", test.last})
		// Requirement: TASKD-08
		equal(t, "ttl and pollInterval of "+test.name, []float64{f.Task.TTL, f.Task.PollInterval},
			[]float64{30000, 1000})
	}
	related := func(f followed) map[string]any {
		return map[string]any{"io.modelcontextprotocol/related-task": map[string]any{"taskId": f.Task.TaskID}}
	}
	equal(t, "user", report.User.Result, // Requirement: TASKD-12
		map[string]any{"_meta": related(report.User), "action": "accept", "content": map[string]any{"value": true}})
	equal(t, "model", report.Model.Result, // Requirement: TASKD-12
		map[string]any{"_meta": related(report.Model), "model": "test-model", "role": "assistant",
			"stopReason": "endTurn",
			"content":    map[string]any{"type": "text", "text": "a summary"}})
	equal(t, "refused", report.Refused.Task.StatusMessage, "the user is not available")
	equal(t, "cancelled", report.Cancelled, "cancelled")
	equal(t, "codes", report.Codes, // Requirement: TASKD-15, TASKD-16
		[]int{mcp.CodeInternalError, mcp.CodeInvalidParams, mcp.CodeInvalidParams, mcp.CodeInvalidParams})
	equal(t, "list", report.List, []string{"completed", "completed", "failed", "cancelled"}) // Requirement: TASKD-21
}
