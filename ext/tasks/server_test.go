package tasks_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/ext/tasks"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// object is a JSON object.
type object = map[string]any

// revision2025 is the revision whose core has tasks.
const revision2025 = "2025-11-25"

// taskCapabilities are the capabilities of a client that supports everything.
var taskCapabilities = object{"elicitation": object{}, "sampling": object{}, "extensions": object{tasks.ID: object{}}}

// A testServer is a server with tasks for a test.
type testServer struct {
	*tasks.Server
	server *mcp.Server
}

func newTestServer(t testing.TB, opts *tasks.Options, server *mcp.ServerOptions) *testServer {
	t.Helper()
	var so mcp.ServerOptions
	if server != nil {
		so = *server
	}
	var o tasks.Options
	if opts != nil {
		o = *opts
	}
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	so.Logger, o.Logger = log, log
	s := mcp.NewServer("test", "1", &so)
	return &testServer{tasks.NewServer(s, &o), s}
}

// tool adds a tool without arguments.
func (b *testServer) tool(name string, opts *tasks.ToolOptions,
	f func(ctx context.Context) (string, error)) *mcp.Registration[mcp.Tool] {
	return tasks.AddTool(b.Server, &mcp.Tool{Name: name}, opts,
		func(ctx context.Context, _ struct{}) (string, error) { return f(ctx) })
}

// runOn runs body for all transports and revisions that have tasks. add adds the tools.
func runOn(t *testing.T, combinations []mcptest.Combination, opts *tasks.Options, add func(b *testServer),
	body func(t *testing.T, b *testServer, c *mcptest.Client)) {
	t.Helper()
	for _, combination := range combinations {
		b := newTestServer(t, opts, nil)
		add(b)
		co := &mcptest.Options{Extension: mcptest.Extension{
			ResultTypes: []string{"task"}, Topics: map[string]string{"notifications/tasks": "taskIds"},
		}}
		if combination.Modern() {
			co.Capabilities = taskCapabilities
		}
		mcptest.RunOn(t, b.server, []mcptest.Combination{combination}, co, func(t *testing.T, c *mcptest.Client) {
			body(t, b, c)
			b.closeServer(t)
		})
	}
}

func (b *testServer) closeServer(t testing.TB) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := b.Close(ctx); err != nil {
		t.Error(err)
	}
}

// A wireTask has the members of a task in both protocol forms.
type wireTask struct {
	ResultType    string
	TaskID        string
	Status        string
	StatusMessage string
	CreatedAt     time.Time
	LastUpdatedAt time.Time
	TTLMs         *int64
	TTL           *int64
	PollIntervalM int64 `json:"pollIntervalMs"`
	PollInterval  int64
	Task          *wireTask
	InputRequests map[string]struct {
		Method string
		Params json.RawMessage
	}
	Result *toolResult
	Error  *mcp.Error
}

type toolResult struct {
	ResultType string
	Content    []struct{ Type, Text string }
	IsError    bool
	Meta       map[string]json.RawMessage `json:"_meta"`
}

func (r *toolResult) text() string {
	if r == nil || len(r.Content) == 0 {
		return ""
	}
	return r.Content[0].Text
}

func decode[T any](t testing.TB, raw json.RawMessage) (v T) {
	t.Helper()
	if err := json.Unmarshal(raw, &v); err != nil {
		t.Fatalf("%v: %s", err, raw)
	}
	return v
}

// beginTask calls a tool as a task and returns the task.
func beginTask(t testing.TB, c *mcptest.Client, tool string, more object) wireTask {
	t.Helper()
	params := object{"name": tool, "arguments": object{}}
	if !c.Modern() {
		params["task"] = object{}
	}
	maps.Copy(params, more)
	// Not Try, which answers questions.
	m := c.Send("tools/call", params).Wait()
	if m.Error != nil {
		t.Fatalf("%s: %v", tool, m.Error)
	}
	got := decode[wireTask](t, m.Result)
	if got.Task != nil {
		got = *got.Task
	}
	if got.TaskID == "" {
		t.Fatalf("%s: no task: %s", tool, m.Result)
	}
	return got
}

func getTask(t testing.TB, c *mcptest.Client, id string) wireTask {
	t.Helper()
	return decode[wireTask](t, c.Call("tasks/get", object{"taskId": id}))
}

// finalTask waits until the task has ended, and returns it with its result.
func finalTask(t testing.TB, c *mcptest.Client, id string) wireTask {
	t.Helper()
	synctest.Wait()
	got := getTask(t, c, id)
	if c.Modern() || got.Status != "completed" && got.Status != "failed" {
		return got
	}
	raw, err := c.Try("tasks/result", object{"taskId": id})
	if got.Error = err; err == nil {
		r := decode[toolResult](t, raw)
		got.Result = &r
	}
	return got
}

// answerTask answers all open questions with the same response.
func answerTask(t testing.TB, c *mcptest.Client, id string, content object) {
	t.Helper()
	reply := object{"action": "accept", "content": content}
	if !c.Modern() {
		c.Options.Answer = func(string, json.RawMessage) (any, error) { return reply, nil }
		p := c.Send("tasks/result", object{"taskId": id})
		synctest.Wait()
		p.Cancel("")
		return
	}
	responses := object{}
	for key := range getTask(t, c, id).InputRequests {
		responses[key] = reply
	}
	c.Call("tasks/update", object{"taskId": id, "inputResponses": responses})
}

func wantCode(t testing.TB, what string, err *mcp.Error, code int) {
	t.Helper()
	if err == nil || err.Code != code {
		t.Errorf("%s: got %v, want an error of code %d", what, err, code)
	}
}

// A task of each form is created, works, requires input, continues and completes.
func TestTaskFromCallToResult(t *testing.T) {
	add := func(b *testServer) {
		b.tool("ask", nil, func(ctx context.Context) (string, error) {
			mcp.Progress(ctx, 1, 2, "thinking")
			select {
			case <-time.After(10 * time.Second):
			case <-ctx.Done():
				return "", ctx.Err()
			}
			name, err := mcp.Ask[string](ctx, "name", "Who?", nil)
			if err != nil {
				return "", err
			}
			return "hello " + name, nil
		})
	}
	runOn(t, mcptest.Since(revision2025), nil, add, func(t *testing.T, b *testServer, c *mcptest.Client) {
		created := beginTask(t, c, "ask", nil)
		if created.Status != "working" || created.CreatedAt.IsZero() {
			t.Errorf("created task: %+v", created)
		}
		synctest.Wait()
		if got := getTask(t, c, created.TaskID); got.Status != "working" || got.StatusMessage != "thinking" {
			t.Errorf("running task: %+v", got)
		}
		time.Sleep(11 * time.Second)
		got := getTask(t, c, created.TaskID)
		if got.Status != "input_required" || c.Modern() != (len(got.InputRequests) == 1) {
			t.Errorf("waiting task: %+v", got)
		}
		answerTask(t, c, created.TaskID, object{"value": "Ada"})
		time.Sleep(11 * time.Second)
		if got := finalTask(t, c, created.TaskID); got.Status != "completed" || got.Result.text() != "hello Ada" {
			t.Errorf("final task: %+v", got)
		}
	})
}

func TestTaskFails(t *testing.T) {
	add := func(b *testServer) {
		b.tool("toolError", nil, func(context.Context) (string, error) { return "", errors.New("no luck") })
		b.tool("protocolError", nil, func(context.Context) (string, error) { return "", mcp.Errorf(-32001, "no way") })
		b.tool("panics", nil, func(context.Context) (string, error) { panic("secret") })
	}
	runOn(t, mcptest.Since(revision2025), nil, add, func(t *testing.T, b *testServer, c *mcptest.Client) {
		got := finalTask(t, c, beginTask(t, c, "toolError", nil).TaskID)
		want := "completed" // TASKX-12
		if !c.Modern() {
			want = "failed" // TASKD-20
		}
		if got.Status != want || !got.Result.IsError || got.Result.text() != "no luck" || got.Error != nil {
			t.Errorf("tool error: %+v", got)
		}
		got = finalTask(t, c, beginTask(t, c, "protocolError", nil).TaskID)
		if got.Status != "failed" || got.Error == nil || got.Error.Code != -32001 || got.Error.Message != "no way" ||
			got.Result != nil {
			t.Errorf("protocol error: %+v", got)
		}
		got = finalTask(t, c, beginTask(t, c, "panics", nil).TaskID)
		if got.Status != "failed" || got.Error == nil || got.Error.Code != mcp.CodeInternalError ||
			strings.Contains(got.Error.Message, "secret") {
			t.Errorf("panic: %+v", got)
		}
	})
}
