package legacy_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/legacy"
	"github.com/patchbay-mcp/patchbay/jsonrpc"
)

const (
	clientCapabilitiesWithTasks = `{"roots":{},"sampling":{"tools":{},"context":{}},"elicitation":{"form":{},"url":{}},"extensions":{"io.modelcontextprotocol/tasks":{}}}`
	accepted                    = `{"action":"accept","content":{"a":1}}`
	unknownTaskError            = `"error":{"code":-32602,"message":"params.taskId: unknown task`
	cancelledError              = `"error":{"code":-32603,"message":"request cancelled"}`
)

// An answerer is the type of ClientConfig.Answer.
type answerer = func(ctx context.Context, method string, params json.RawMessage) (json.RawMessage, *jsonrpc.Error)

func answers(result string) answerer {
	return func(context.Context, string, json.RawMessage) (json.RawMessage, *jsonrpc.Error) {
		return json.RawMessage(result), nil
	}
}

// A taskServer is a fakeServer that sends task-augmented requests.
type taskServer struct {
	*testing.T
	*fakeServer
	client *legacy.Client
	ids    int
}

// newTaskServer opens a session of 2025-11-25 with a client that supports tasks. It must be called
// in a bubble.
func newTaskServer(t *testing.T, answer answerer) *taskServer {
	t.Helper()
	cfg := clientConfig("2025-11-25")
	cfg.Capabilities, cfg.Answer = json.RawMessage(clientCapabilitiesWithTasks), answer
	cfg.Cancelled = func(reason string) error { return fmt.Errorf("%w: %s", errCancelled, reason) }
	return newTaskServerWith(t, cfg)
}

func newTaskServerWith(t *testing.T, cfg legacy.ClientConfig) *taskServer {
	t.Helper()
	q := &taskServer{T: t, fakeServer: &fakeServer{}}
	q.client = open(t, cfg, q.fakeServer)
	return q
}

// begin sends a request, and returns the response that is there once the client is idle, without
// the id.
func (q *taskServer) begin(method, params string) (id int, response string) {
	q.Helper()
	q.ids++
	q.client.Receive(message(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":%q,"params":%s}`, q.ids, method, params)))
	return q.ids, q.awaited(q.ids)
}

// awaited returns the response to a request, or "".
func (q *taskServer) awaited(id int) string {
	q.Helper()
	synctest.Wait()
	lines := q.take()
	if len(lines) > 1 {
		q.Fatalf("the server got %q", lines)
	}
	response, ok := strings.CutPrefix(strings.Join(lines, ""), fmt.Sprintf(`"id":%d,`, id))
	if !ok && response != "" {
		q.Fatalf("the server got %q, want the response to %d", lines, id)
	}
	return response
}

func (q *taskServer) wants(what, method, params, want string) {
	q.Helper()
	if _, got := q.begin(method, params); !strings.HasPrefix(got, want) {
		q.Errorf("%s: %s\ngot  %s\nwant %s", what, method, got, want)
	}
}

// elicit creates a task and returns its id.
func (q *taskServer) elicit() string {
	q.Helper()
	_, got := q.begin("elicitation/create", `{"message":"m","requestedSchema":{"type":"object","properties":{}},"task":{"ttl":60000}}`)
	return q.id(got)
}

func (q *taskServer) id(created string) string {
	q.Helper()
	_, rest, ok := strings.Cut(created, `"result":{"task":{"taskId":"`)
	if !ok {
		q.Fatalf("no task was created: %s", created)
	}
	id, _, _ := strings.Cut(rest, `"`)
	return id
}

func taskIDParams(id string) string { return `{"taskId":"` + id + `"}` }

// asTask returns a task that was created and updated after some time.
func taskJSON(id, status, message string, created, changed, ttl time.Duration) string {
	at := func(d time.Duration) string {
		return time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC).Add(d).Format("2006-01-02T15:04:05.000Z")
	}
	if message != "" {
		message = `"statusMessage":"` + message + `",`
	}
	return fmt.Sprintf(`{"taskId":%q,"status":%q,%s"createdAt":%q,"lastUpdatedAt":%q,"ttl":%d,"pollInterval":1000}`,
		id, status, message, at(created), at(changed), ttl.Milliseconds())
}

// Requirement: TASKD-01
func TestClientTaskCapability(t *testing.T) {
	const (
		extension = `"extensions":{"io.modelcontextprotocol/tasks":{}}`
		both      = `"tasks":{"list":{},"cancel":{},"requests":{"elicitation":{"create":{}},"sampling":{"createMessage":{}}}}`
	)
	for _, tc := range []struct{ version, capabilities, want string }{
		{"2025-11-25", `{"sampling":{},"elicitation":{},` + extension + `}`, `{"sampling":{},"elicitation":{},` + both + `}`},
		{"2025-11-25", `{` + extension + `,"elicitation":{"url":{}}}`,
			`{"elicitation":{"url":{}},"tasks":{"list":{},"cancel":{},"requests":{"elicitation":{"create":{}}}}}`},
		{"2025-11-25", `{"sampling":{},` + extension + `}`, `{"sampling":{},"tasks":{"list":{},"cancel":{},"requests":{"sampling":{"createMessage":{}}}}}`},
		{"2025-11-25", `{"roots":{},` + extension + `}`, `{"roots":{"listChanged":true}}`}, // roots are never tasks
		{"2025-11-25", `{` + extension + `}`, `{}`},
		{"2025-11-25", `{"sampling":{},"extensions":{"io.modelcontextprotocol/tasks":null}}`, `{"sampling":{}}`},
		{"2025-11-25", `{"sampling":{},"tasks":{"list":{}}}`, `{"sampling":{}}`},
		{"2025-06-18", `{"sampling":{},"elicitation":{},` + extension + `}`, `{"sampling":{},"elicitation":{}}`},
		{"2024-11-05", `{"sampling":{},` + extension + `}`, `{"sampling":{}}`},
	} {
		cfg := clientConfig(tc.version)
		cfg.Capabilities = json.RawMessage(tc.capabilities)
		s := &fakeServer{done: make(chan struct{})}
		c := legacy.NewClient(cfg)
		if _, err := c.Open(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		if got := member(json.RawMessage(`{`+s.take()[0]+`}`), "params"); !strings.Contains(got, `"capabilities":`+tc.want+`,`) {
			t.Errorf("%s: %s\ngot  %s\nwant %s", tc.version, tc.capabilities, got, tc.want)
		}
		c.Close()
	}
}

// Requirement: TASKD-06, TASKD-08, TASKD-09, TASKD-11, TASKD-12
func TestTaskAugmentedRequests(t *testing.T) {
	for name, tc := range map[string]struct {
		method, params, wanted string
		answer                 string
		err                    *jsonrpc.Error
		status, message, want  string
	}{
		"elicitation": {method: "elicitation/create",
			params: `{"message":"m","task":{"ttl":60000},"_meta":{"progressToken":1}}`, wanted: `{"mode":"form","message":"m"}`,
			answer: `{"resultType":"complete","action":"accept","content":{"a":1}}`,
			status: "completed", want: `"result":{"_meta":RELATED,"action":"accept","content":{"a":1}}`},
		"declined": {method: "elicitation/create",
			params: `{"message":"m","task":{"ttl":60000}}`, wanted: `{"mode":"form","message":"m"}`,
			answer: `{"action":"decline"}`, status: "completed", want: `"result":{"_meta":RELATED,"action":"decline"}`},
		"sampling": {method: "sampling/createMessage",
			params: `{"messages":[],"maxTokens":5,"task":{"ttl":60000}}`, wanted: `{"messages":[],"maxTokens":5}`,
			answer: `{"model":"m","role":"assistant","content":[],"_meta":{"k":1,"io.modelcontextprotocol/related-task":{"taskId":"x"}}}`,
			status: "completed", want: `"result":{"_meta":{"k":1,` + `RELATED` + `},"model":"m","role":"assistant","content":[]}`},
		"refused": {method: "sampling/createMessage",
			params: `{"messages":[],"maxTokens":5,"task":{"ttl":60000}}`, wanted: `{"messages":[],"maxTokens":5}`,
			err:    &jsonrpc.Error{Code: -1, Message: "the user \"refused\"", Data: json.RawMessage(`{"a":1}`)},
			status: "failed", message: `the user \"refused\"`, want: `"error":{"code":-1,"message":"the user \"refused\"","data":{"a":1}}`},
		"modern error": {method: "sampling/createMessage",
			params: `{"messages":[],"maxTokens":5,"task":{"ttl":60000}}`, wanted: `{"messages":[],"maxTokens":5}`,
			err:    &jsonrpc.Error{Code: -32021, Message: "x"},
			status: "failed", message: `the client did not declare a capability that this request needs, or its revision does not have it`, want: `"error":{"code":-32600,`},
		"no answer": {method: "elicitation/create",
			params: `{"message":"m","task":{"ttl":60000}}`, wanted: `{"mode":"form","message":"m"}`,
			answer: `[]`, status: "failed", message: "internal error", want: `"error":{"code":-32603,"message":"internal error"}`},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				asked := 0
				q := newTaskServer(t, func(_ context.Context, method string, params json.RawMessage) (json.RawMessage, *jsonrpc.Error) {
					asked++
					if method != tc.method || string(params) != tc.wanted {
						t.Errorf("Answer got %s with %s, want %s", method, params, tc.wanted)
					}
					time.Sleep(3 * time.Second)
					return json.RawMessage(tc.answer), tc.err
				})
				defer q.client.Close()
				_, got := q.begin(tc.method, tc.params)
				id := q.id(got)
				working := taskJSON(id, "working", "", 0, 0, time.Minute)
				if got != `"result":{"task":`+working+`}` { // TASKD-09, TASKD-10
					t.Errorf("created %s", got)
				}
				time.Sleep(time.Second)
				q.wants("working", "tasks/get", `{"taskId":"`+id+`","task":{"ttl":1},"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"other"}}}`, `"result":`+working)
				waiting, got := q.begin("tasks/result", taskIDParams(id))
				if got != "" {
					t.Errorf("the result before the end is %s", got)
				}
				time.Sleep(2 * time.Second)
				want := strings.ReplaceAll(tc.want, "{\"k\":1,RELATED}", `{"k":1,"io.modelcontextprotocol/related-task":{"taskId":"`+id+`"}}`)
				want = strings.ReplaceAll(want, "RELATED", `{"io.modelcontextprotocol/related-task":{"taskId":"`+id+`"}}`) // TASKD-12
				if got := q.awaited(waiting); !strings.HasPrefix(got, want) {
					t.Errorf("result\ngot  %s\nwant %s", got, want)
				}
				time.Sleep(time.Second)
				q.wants("result, again", "tasks/result", taskIDParams(id), want)
				ended := taskJSON(id, tc.status, tc.message, 0, 3*time.Second, time.Minute)
				q.wants("ended", "tasks/get", taskIDParams(id), `"result":`+ended)
				q.wants("ended", "tasks/list", `{}`, `"result":{"tasks":[`+ended+`]}`)
				q.wants("ended", "tasks/cancel", taskIDParams(id), `"error":{"code":-32602,"message":"params.taskId: the task has ended already: it is `+tc.status)
				if asked != 1 {
					t.Errorf("Answer was called %d times, want once", asked)
				}
			})
		})
	}
}

// Requirement: TASKD-03
func TestOtherRequestsAreServedDirectly(t *testing.T) {
	direct := func(t *testing.T, version, capabilities, method, params, answer string) {
		synctest.Test(t, func(t *testing.T) {
			cfg := clientConfig(version)
			cfg.Capabilities, cfg.Answer = json.RawMessage(capabilities), answers(answer)
			q := newTaskServerWith(t, cfg)
			defer q.client.Close()
			q.wants(version, method, params, `"result":`+answer)
			if n := q.client.Tasks(); n != 0 {
				t.Errorf("%d tasks, want 0", n)
			}
		})
	}
	const form = `{"message":"m","task":{"ttl":1}}`
	direct(t, "2025-11-25", allClientCapabilities, "elicitation/create", form, accepted)
	direct(t, "2025-06-18", clientCapabilitiesWithTasks, "elicitation/create", form, accepted)
	direct(t, "2025-11-25", clientCapabilitiesWithTasks, "roots/list", `{"task":{"ttl":1}}`, `{"roots":[]}`)
	direct(t, "2025-11-25", clientCapabilitiesWithTasks, "elicitation/create", `{"message":"m"}`, accepted)
	direct(t, "2025-11-25", clientCapabilitiesWithTasks, "elicitation/create", `{"message":"m","task":null}`, accepted)
	for _, method := range []string{"tasks/get", "tasks/result", "tasks/list", "tasks/cancel"} {
		for version, capabilities := range map[string]string{"2025-11-25": allClientCapabilities, "2025-06-18": clientCapabilitiesWithTasks} {
			got := sendServerRequest(t, version, capabilities, method, `{"taskId":"x"}`, nil)
			if len(got) != 1 || !strings.HasPrefix(got[0], `"id":"q","error":{"code":-32601,`) {
				t.Errorf("%s %s: %q", version, method, got)
			}
		}
	}
}

func TestInvalidRequestsCreateNoTask(t *testing.T) {
	for _, tc := range []struct{ method, params, want string }{
		{"elicitation/create", `{"message":"m","task":true}`, `"error":{"code":-32602,"message":"params.task: want an object"`},
		{"elicitation/create", `{"message":"m","task":[]}`, `"error":{"code":-32602,"message":"params.task: want an object"`},
		{"elicitation/create", `{"message":"m","task":{"ttl":-1}}`, `"error":{"code":-32602,"message":"params.task.ttl: want a number of milliseconds"`},
		{"elicitation/create", `{"message":"m","task":{"ttl":"1"}}`, `"error":{"code":-32602,"message":"params.task.ttl: `},
		{"elicitation/create", `{"mode":"voice","task":{}}`, `"error":{"code":-32602,"message":"params.mode: `},
		{"elicitation/create", `[]`, `"error":{"code":-32602,"message":"params: want an object"`},
		{"tools/call", `{"name":"t","task":{}}`, `"error":{"code":-32601,`},
	} {
		synctest.Test(t, func(t *testing.T) {
			q := newTaskServer(t, func(context.Context, string, json.RawMessage) (json.RawMessage, *jsonrpc.Error) {
				t.Errorf("%s: Answer was called", tc.params)
				return nil, nil
			})
			defer q.client.Close()
			q.wants("", tc.method, tc.params, tc.want)
			if n := q.client.Tasks(); n != 0 {
				t.Errorf("%d tasks, want 0", n)
			}
		})
	}
}

// Requirement: TASKD-13
func TestRelatedTaskOfATask(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newTaskServer(t, answers(accepted))
		defer q.client.Close()
		_, created := q.begin("elicitation/create", `{"message":"m","task":{},"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"other"}}}`)
		const prefix = `"result":{"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"other"}},`
		rest, ok := strings.CutPrefix(created, prefix)
		if !ok {
			t.Fatalf("created %s", created)
		}
		id := q.id(`"result":{` + rest)
		q.wants("result", "tasks/result", taskIDParams(id), `"result":{"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"`+id+`"}},"action":"accept"`)
		q.wants("get", "tasks/get", `{"taskId":"`+id+`","_meta":{"io.modelcontextprotocol/related-task":{"taskId":"other"}}}`, `"result":{"taskId":"`+id)
	})
}

// Requirement: TASKD-15
func TestCancelledTasksStayCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cause := make(chan error, 1)
		release := make(chan struct{})
		q := newTaskServer(t, func(ctx context.Context, _ string, _ json.RawMessage) (json.RawMessage, *jsonrpc.Error) {
			<-ctx.Done()
			cause <- context.Cause(ctx)
			<-release
			return json.RawMessage(accepted), nil // too late
		})
		defer q.client.Close()
		id := q.elicit()
		waiting, _ := q.begin("tasks/result", taskIDParams(id))
		time.Sleep(time.Second)
		cancelled := taskJSON(id, "cancelled", "", 0, time.Second, time.Minute)
		q.ids++
		q.client.Receive(message(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tasks/cancel","params":%s}`, q.ids, taskIDParams(id))))
		synctest.Wait()
		got := strings.Join(q.take(), "\n")
		for _, want := range []string{fmt.Sprintf(`"id":%d,"result":%s`, q.ids, cancelled), fmt.Sprintf(`"id":%d,%s`, waiting, cancelledError)} {
			if !strings.Contains(got, want) {
				t.Errorf("got %s, want %s", got, want)
			}
		}
		if err := <-cause; !errors.Is(err, errCancelled) {
			t.Errorf("cancellation cause %v", err)
		}
		close(release)
		synctest.Wait()
		q.wants("late", "tasks/get", taskIDParams(id), `"result":`+cancelled)
		q.wants("late", "tasks/result", taskIDParams(id), cancelledError)
		q.wants("twice", "tasks/cancel", taskIDParams(id), `"error":{"code":-32602,"message":"params.taskId: the task has ended already: it is cancelled`)
	})
}

// Requirement: TASKD-16
func TestUnknownTasksAndCursors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newTaskServer(t, answers(accepted))
		defer q.client.Close()
		q.elicit()
		for _, method := range []string{"tasks/get", "tasks/result", "tasks/cancel"} {
			q.wants("unknown", method, `{"taskId":"x"}`, unknownTaskError)
			for _, params := range []string{`{}`, `{"taskId":7}`, `{"taskId":null}`} {
				q.wants(params, method, params, `"error":{"code":-32602,"message":"params.taskId: want a string"`)
			}
			q.wants("no object", method, `[]`, `"error":{"code":-32602,"message":"params: want an object"`)
		}
		q.wants("cursor", "tasks/list", `{"cursor":"x"}`, `"error":{"code":-32602,"message":"params.cursor: `)
		q.wants("cursor", "tasks/list", `{"cursor":""}`, `"error":{"code":-32602,"message":"params.cursor: `)
		q.wants("no cursor", "tasks/list", `{"cursor":null}`, `"result":{"tasks":[{`)
	})
}

// Requirement: TASKD-10
func TestTTLIsLimited(t *testing.T) {
	for task, want := range map[string]time.Duration{
		`{}`: time.Hour, `{"ttl":null}`: time.Hour, `{"ttl":0}`: time.Second, `{"ttl":1500}`: 1500 * time.Millisecond, `{"ttl":1500.7}`: 1500 * time.Millisecond,
		`{"ttl":86400001}`: 24 * time.Hour, `{"ttl":1e300}`: 24 * time.Hour, `{"ttl":1e999}`: 24 * time.Hour, `{"ttl":1e-999}`: time.Second,
	} {
		synctest.Test(t, func(t *testing.T) {
			q := newTaskServer(t, answers(accepted))
			defer q.client.Close()
			_, got := q.begin("elicitation/create", `{"message":"m","task":`+task+`}`)
			id := q.id(got)
			if !strings.Contains(got, fmt.Sprintf(`"ttl":%d,`, want.Milliseconds())) {
				t.Errorf("%s: %s", task, got)
			}
			time.Sleep(want - time.Millisecond)
			q.wants(task+" is kept", "tasks/get", taskIDParams(id), `"result":{"taskId":"`+id+`","status":"completed",`)
			time.Sleep(time.Millisecond)
			synctest.Wait()
			q.wants(task+" is over", "tasks/get", taskIDParams(id), unknownTaskError)
			q.wants(task+" is over", "tasks/list", `{}`, `"result":{"tasks":[]}`)
		})
	}
}

func TestRequestEndsWithItsTasksTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cause := make(chan error, 1)
		q := newTaskServer(t, untilCancelled(cause))
		defer q.client.Close()
		id := q.elicit()
		request, _ := q.begin("tasks/result", taskIDParams(id))
		time.Sleep(time.Minute)
		if got := q.awaited(request); !strings.HasPrefix(got, unknownTaskError) {
			t.Errorf("response to the waiting tasks/result %s, want %s", got, unknownTaskError) //, got)
		}
		if err := <-cause; err == nil || !strings.Contains(err.Error(), "ttl") {
			t.Errorf("cancellation cause %v", err)
		}
		q.wants("over", "tasks/cancel", taskIDParams(id), unknownTaskError)
	})
}

// A server cancels its request before it has the task. The client sends no response, and does not
// call Answer.
func TestCancelledRequestCreatesNoTask(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var client *legacy.Client
		cfg := clientConfig("2025-11-25")
		cfg.Capabilities = json.RawMessage(clientCapabilitiesWithTasks)
		cfg.Answer = func(context.Context, string, json.RawMessage) (json.RawMessage, *jsonrpc.Error) {
			t.Error("Answer was called")
			return nil, nil
		}
		cancels := false
		cfg.Logger = slog.New(logHandler{func(text string) {
			if strings.Contains(text, "created a task") {
				cancels = true
				client.Receive(message(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`))
			}
		}})
		q := newTaskServerWith(t, cfg)
		client = q.client
		defer q.client.Close()
		if _, got := q.begin("elicitation/create", `{"message":"m","task":{}}`); got != "" || !cancels {
			t.Errorf("got %s, cancelled: %v", got, cancels)
		}
		if n := q.client.Tasks(); n != 0 {
			t.Errorf("%d tasks, want 0", n)
		}
	})
}

// A task is cancelled while its creation is reported. The client does not call Answer.
func TestTaskCancelledAtOnceIsNotRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := clientConfig("2025-11-25")
		cfg.Capabilities = json.RawMessage(clientCapabilitiesWithTasks)
		cfg.Answer = func(context.Context, string, json.RawMessage) (json.RawMessage, *jsonrpc.Error) {
			t.Error("Answer was called")
			return nil, nil
		}
		q := &taskServer{T: t, fakeServer: &fakeServer{}}
		cancelled := make(chan struct{})
		q.send = func(_ context.Context, m *jsonrpc.Message) error {
			result := string(m.Result)
			switch {
			case strings.HasPrefix(result, `{"task":`):
				q.client.Receive(message(`{"jsonrpc":"2.0","id":"c","method":"tasks/cancel","params":` + taskIDParams(q.id(`"result":`+result)) + `}`))
				<-cancelled
			case strings.Contains(result, `"status":"cancelled"`):
				close(cancelled)
			}
			return nil
		}
		q.client = open(t, cfg, q.fakeServer)
		defer q.client.Close()
		q.client.Receive(message(`{"jsonrpc":"2.0","id":1,"method":"elicitation/create","params":{"message":"m","task":{}}}`))
		synctest.Wait()
		if got := q.take(); len(got) != 2 {
			t.Errorf("the server got %q", got)
		}
	})
}

// A logHandler is a slog.Handler that calls a function for each message.
type logHandler struct{ note func(text string) }

func (logHandler) Enabled(context.Context, slog.Level) bool { return true }
func (h logHandler) Handle(_ context.Context, r slog.Record) error {
	h.note(r.Message)
	return nil
}
func (h logHandler) WithAttrs([]slog.Attr) slog.Handler { return h }
func (h logHandler) WithGroup(string) slog.Handler      { return h }

// Requirement: TASKD-22
func TestRunningTasksAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		q := newTaskServer(t, func(ctx context.Context, _ string, _ json.RawMessage) (json.RawMessage, *jsonrpc.Error) {
			<-release // ignores its context
			return json.RawMessage(accepted), nil
		})
		defer q.client.Close()
		var ids []string
		for range 32 {
			ids = append(ids, q.elicit())
			q.begin("tasks/result", taskIDParams(ids[len(ids)-1]))
		}
		const one = `{"message":"m","task":{}}`
		q.wants("above the limit", "elicitation/create", one, `"error":{"code":429,"message":"too many tasks in progress","data":{"retryAfterMs":1000}}`)
		// tasks/cancel does not lower the number of running tasks, since their handlers still run.
		q.ids++
		q.client.Receive(message(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tasks/cancel","params":%s}`, q.ids, taskIDParams(ids[0]))))
		synctest.Wait()
		if got := q.take(); len(got) != 2 {
			t.Errorf("cancelled: %q", got)
		}
		q.wants("above the limit while the handler runs", "elicitation/create", one, `"error":{"code":429,`)
		close(release)
		synctest.Wait()
		if got := q.take(); len(got) != 31 {
			t.Errorf("%d results", len(got))
		}
		q.wants("below the limit", "elicitation/create", one, `"result":{"task":{`)
	})
}

// Requirement: TASKD-22
func TestTasksAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		first := true
		q := newTaskServer(t, func(context.Context, string, json.RawMessage) (json.RawMessage, *jsonrpc.Error) {
			if first {
				first = false
				<-release
			}
			return json.RawMessage(accepted), nil
		})
		defer q.client.Close()
		var ids []string
		for range 128 + 2 {
			ids = append(ids, q.elicit())
		}
		if n := q.client.Tasks(); n != 128 {
			t.Errorf("%d tasks, want 128", n)
		}
		q.wants("running", "tasks/get", taskIDParams(ids[0]), `"result":{"taskId":"`+ids[0]+`","status":"working"`)
		q.wants("the first that ended", "tasks/get", taskIDParams(ids[1]), unknownTaskError)
		q.wants("the second that ended", "tasks/get", taskIDParams(ids[2]), unknownTaskError)
		q.wants("the third", "tasks/get", taskIDParams(ids[3]), `"result":{`)
		close(release)
	})
}

// Requirement: TASKD-22
func TestTaskBytesAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		size := 0
		q := newTaskServer(t, func(context.Context, string, json.RawMessage) (json.RawMessage, *jsonrpc.Error) {
			return json.RawMessage(`{"action":"accept","content":{"a":"` + strings.Repeat("x", size) + `"}}`), nil
		})
		defer q.client.Close()
		size = 5 << 20
		var ids []string
		for range 4 {
			ids = append(ids, q.elicit())
		}
		q.wants("the first", "tasks/result", taskIDParams(ids[0]), unknownTaskError)
		q.wants("the second", "tasks/result", taskIDParams(ids[1]), `"result":{`)
		size = 16 << 20
		large := q.elicit()
		q.wants("too large", "tasks/result", taskIDParams(large), `"error":{"code":-32603,"message":"result too large for a task`)
		q.wants("the second, still", "tasks/get", taskIDParams(ids[1]), `"result":{`)
		if n := q.client.TaskBytes(); n > 16<<20 || n < 15<<20 {
			t.Errorf("%d bytes", n)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := q.client.TaskBytes(); n != 0 {
			t.Errorf("%d bytes after all tasks expired, want 0", n)
		}
	})
}

// A server that creates tasks and fetches no results cannot exhaust memory.
//
// Requirement: TASKD-22
func TestUnfetchedResultsAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newTaskServer(t, func(context.Context, string, json.RawMessage) (json.RawMessage, *jsonrpc.Error) {
			return nil, &jsonrpc.Error{Code: -1, Message: strings.Repeat("x", 1<<20), Data: json.RawMessage(`{}`)}
		})
		defer q.client.Close()
		before := heap()
		for range 500 {
			q.elicit()
		}
		if growth := heap() - before; growth > 20<<20 {
			t.Errorf("the heap grew by %d bytes, want at most %d", growth, 20<<20)
		}
		if _, got := q.begin("tasks/list", `{}`); len(got) > 128*600 || !strings.Contains(got, `"status":"failed"`) {
			t.Errorf("a list of %d bytes", len(got))
		}
	})
}

func TestTasksEndWithTheSession(t *testing.T) {
	for name, end := range map[string]func(q *taskServer){
		"closed": func(q *taskServer) { q.client.Close() },
		"lost":   func(q *taskServer) { q.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cause := make(chan error, 1)
				q := newTaskServer(t, untilCancelled(cause))
				id := q.elicit()
				q.begin("tasks/result", taskIDParams(id))
				end(q)
				synctest.Wait()
				if err := <-cause; !errors.Is(err, legacy.ErrEnded) {
					t.Errorf("cancellation cause %v", err)
				}
				if n, bytes := q.client.Tasks(), q.client.TaskBytes(); n != 0 || bytes != 0 {
					t.Errorf("%d tasks, %d bytes after the end", n, bytes)
				}
				q.client.Receive(message(`{"jsonrpc":"2.0","id":77,"method":"elicitation/create","params":{"message":"m","task":{}}}`))
				synctest.Wait()
				if n := q.client.Tasks(); n != 0 {
					t.Errorf("%d tasks after the end", n)
				}
				q.client.Close()
			})
		})
	}
}

// Requirement: TASKD-07
func TestIDsAreUnguessable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newTaskServer(t, answers(accepted))
		defer q.client.Close()
		seen := map[string]bool{}
		for range 100 {
			id := q.elicit()
			if len(id) < 26 || seen[id] { // 128 bits
				t.Errorf("id %q", id)
			}
			seen[id] = true
		}
	})
}
