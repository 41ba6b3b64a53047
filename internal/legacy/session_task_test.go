package legacy_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/legacy"
	"github.com/patchbay-mcp/patchbay/internal/wire"
	"github.com/patchbay-mcp/patchbay/jsonrpc"
)

// task is a task of 2025-11-25.
const task = `{"taskId":"t1","status":"working","createdAt":"2025-11-25T10:30:00Z","lastUpdatedAt":"2025-11-25T10:30:00Z","ttl":60000,"pollInterval":1000}`

const taskResult = `{"jsonrpc":"2.0","id":1,"method":"tasks/result","params":{"taskId":"t1","_meta":{"progressToken":"p"}}}`

// related returns a request that is marked as related to the task.
func related(question string) string {
	return strings.Replace(question, `"params":{`, `"params":{"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"t1"}},`, 1)
}

// A pendingTask is a core with one task. The test sets the result of tasks/result. Until it is
// final, the request waits while there are no input requests.
type pendingTask struct {
	hasState bool // use the request state

	mu      sync.Mutex // guards the fields below
	open    map[string]string
	order   []string
	final   *jsonrpc.Message
	answers []string
	changed chan struct{}
	calls   int
}

func newPendingTask() *pendingTask {
	return &pendingTask{open: map[string]string{}, changed: make(chan struct{})}
}

func (s *pendingTask) set(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *pendingTask) addRequest(key, question string) {
	s.set(func() { s.open[key] = question; s.order = append(s.order, key) })
}

func (s *pendingTask) removeRequest(key string) { s.set(func() { delete(s.open, key) }) }

func (s *pendingTask) finish(response string) { s.set(func() { s.final = message(response) }) }

func (s *pendingTask) serve(ctx context.Context, req *jsonrpc.Message, _ legacy.Stream) *jsonrpc.Message {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls++
	var answers map[string]json.RawMessage
	if raw := member(req.Params, "inputResponses"); raw != "" {
		_ = json.Unmarshal([]byte(raw), &answers)
	}
	for key, answer := range answers {
		s.answers = append(s.answers, key+"="+string(answer))
		delete(s.open, key)
	}
	before := strings.Trim(member(req.Params, "requestState"), `"`)
	for s.final == nil && (len(s.open) == 0 || s.hasState && before == s.state()) {
		changed := s.changed
		s.mu.Unlock()
		select {
		case <-changed:
			s.mu.Lock()
		case <-ctx.Done():
			s.mu.Lock()
			return &jsonrpc.Message{ID: req.ID, Error: &jsonrpc.Error{Code: wire.CodeInternalError, Message: "ended"}}
		}
	}
	if s.final != nil {
		return s.final
	}
	var members []string
	for _, key := range s.order {
		if question, ok := s.open[key]; ok {
			members = append(members, fmt.Sprintf("%q:%s", key, question))
		}
	}
	state := ""
	if s.hasState {
		state = `,"requestState":"` + s.state() + `"`
	}
	return &jsonrpc.Message{ID: req.ID, Result: json.RawMessage(inputRequired(`"inputRequests":{` + strings.Join(members, ",") + `}` + state))}
}

// state returns the keys of the open input requests.
func (s *pendingTask) state() string { return strings.Join(slices.Sorted(maps.Keys(s.open)), ",") }

// requestTaskResult starts a tasks/result with id 1 and waits until the session is idle.
func (c *client) requestTaskResult() {
	go c.session.Handle(c.Context(), message(taskResult), c.out.write)
	synctest.Wait()
}

// wantAnswers fails the test unless the task got these input responses.
func (s *pendingTask) wantAnswers(t *testing.T, want ...string) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if got := strings.Join(s.answers, "; "); got != strings.Join(want, "; ") {
		t.Errorf("the task received %s, want %s", got, strings.Join(want, "; "))
	}
}

// Requirement: TASKD-06, TASKD-27
func TestTasksOnlyInTheirRevision(t *testing.T) {
	created := `{"resultType":"task","task":` + task + `,"_meta":{"io.modelcontextprotocol/model-immediate-response":"wait","io.modelcontextprotocol/serverInfo":{"name":"s","version":"1"}}}`
	flat := `{"resultType":"task","taskId":"t1","status":"working","createdAt":"x","lastUpdatedAt":"x","ttlMs":60000}`
	const internal = `{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"internal error"}}`
	for _, tc := range []struct{ version, result, want string }{
		{"2025-11-25", created, `{"jsonrpc":"2.0","id":1,"result":{"task":` + task + `,"_meta":{"io.modelcontextprotocol/model-immediate-response":"wait"}}}`},
		{"2025-11-25", flat, internal},
		{"2025-06-18", created, internal},
		{"2024-11-05", created, internal},
	} {
		core := &fakeCore{handle: func(_ context.Context, req *jsonrpc.Message, _ legacy.Stream) *jsonrpc.Message {
			return &jsonrpc.Message{ID: req.ID, Result: json.RawMessage(tc.result)}
		}}
		c := connect(t, tc.version, core)
		c.want(c.handle(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t","task":{"ttl":60000}}}`), tc.want)
		if got := member(core.last().Params, "task"); got != `{"ttl":60000}` {
			t.Errorf("%s: the core got the task %s", tc.version, got)
		}
	}
}

// Requirement: TASKD-12
func TestTaskMethodsReachTheCore(t *testing.T) {
	c := connect(t, "2025-11-25", &fakeCore{handle: func(_ context.Context, req *jsonrpc.Message, _ legacy.Stream) *jsonrpc.Message {
		switch req.Method {
		case "tasks/list":
			return &jsonrpc.Message{ID: req.ID, Result: json.RawMessage(`{"resultType":"complete","tasks":[` + task + `],"nextCursor":"c"}`)}
		case "tasks/result":
			return &jsonrpc.Message{ID: req.ID, Result: json.RawMessage(`{"resultType":"complete","content":[],"structuredContent":[1],"isError":true,"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"t1"}}}`)}
		case "tasks/cancel":
			return &jsonrpc.Message{ID: req.ID, Error: &jsonrpc.Error{Code: -32602, Message: "unknown task"}}
		}
		return &jsonrpc.Message{ID: req.ID, Result: json.RawMessage(`{"resultType":"complete",` + task[1:])}
	}})
	for method, want := range map[string]string{
		"tasks/get":  `"result":` + task,
		"tasks/list": `"result":{"tasks":[` + task + `],"nextCursor":"c"}`,
		"tasks/result": `"result":{"content":[{"type":"text","text":"[1]"}],"isError":true,` +
			`"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"t1"}}}`, // TASKD-12
		"tasks/cancel": `"error":{"code":-32602,"message":"unknown task"}`,
	} {
		c.want(c.handle(`{"jsonrpc":"2.0","id":1,"method":"`+method+`","params":{"taskId":"t1"}}`), `{"jsonrpc":"2.0","id":1,`+want+`}`)
	}
}

// Requirement: TASKD-14
func TestInputRequestsDuringTasksResult(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newPendingTask()
		core := &fakeCore{handle: s.serve}
		c := connect(t, "2025-11-25", core)
		c.requestTaskResult()
		c.want(c.out.take())
		time.Sleep(3 * time.Hour)
		s.addRequest("a", related(elicit))
		synctest.Wait()
		q := c.wantRequests("elicitation/create")[0]
		if got := member(q.Params, "_meta"); got != `{"io.modelcontextprotocol/related-task":{"taskId":"t1"}}` { // TASKD-13
			t.Errorf("_meta of the question is %s", got)
		}
		time.Sleep(9 * time.Hour) // the user is away
		c.want(c.out.take())
		c.reply(q, `"result":{"action":"accept","content":{},"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"t1"}}}`)
		s.wantAnswers(t, `a={"action":"accept","content":{}}`)
		if got := member(core.last().Params, "taskId"); got != `"t1"` {
			t.Errorf("answered for the task %s", got)
		}
		s.finish(`{"jsonrpc":"2.0","id":1,"result":{"resultType":"complete","content":[]}}`)
		synctest.Wait()
		c.want(c.out.take(), `{"jsonrpc":"2.0","id":1,"result":{"content":[]}}`)
	})
}

func TestTaskRoundsAreNotLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newPendingTask()
		c := connect(t, "2025-11-25", &fakeCore{handle: s.serve})
		c.requestTaskResult()
		for i := range 100 {
			s.addRequest(fmt.Sprint(i), elicit)
			synctest.Wait()
			c.reply(c.wantRequests("elicitation/create")[0], `"result":{"action":"decline"}`)
		}
		s.finish(`{"jsonrpc":"2.0","id":1,"error":{"code":-32001,"message":"failed"}}`)
		synctest.Wait()
		c.want(c.out.take(), `{"jsonrpc":"2.0","id":1,"error":{"code":-32001,"message":"failed"}}`)
	})
}

func TestTaskResponsesArePassedOnAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newPendingTask()
		c := connect(t, "2025-11-25", &fakeCore{handle: s.serve})
		s.addRequest("a\"", elicit)
		s.addRequest("b", sample)
		s.addRequest("c", roots)
		c.requestTaskResult()
		q := c.wantRequests("elicitation/create", "sampling/createMessage", "roots/list")
		c.reply(q[2], `"result":{"roots":[]}`)
		s.wantAnswers(t, `c={"roots":[]}`)
		c.reply(q[0], `"error":{"code":-32603,"message":"no screen"}`)
		s.wantAnswers(t, `c={"roots":[]}`, `a"={"action":"cancel"}`)
		time.Sleep(time.Hour)
		c.want(c.out.take()) // no request is sent twice
		c.reply(q[1], `"result":{"role":"assistant","content":{"type":"text","text":"x"},"model":"m","_meta":{"io.modelcontextprotocol/related-task":{"taskId":"t1"},"k":1}}`)
		s.wantAnswers(t, `c={"roots":[]}`, `a"={"action":"cancel"}`, `b={"role":"assistant","content":{"type":"text","text":"x"},"model":"m","_meta":{"k":1}}`)
		s.finish(`{"jsonrpc":"2.0","id":1,"result":{"content":[]}}`)
		synctest.Wait()
		c.want(c.out.take(), `{"jsonrpc":"2.0","id":1,"result":{"content":[]}}`)
	})
}

func TestInputRequestsOfAnEndedTaskAreCancelled(t *testing.T) {
	for name, end := range map[string]struct{ response, want string }{
		"cancelled": {`{"jsonrpc":"2.0","id":1,"error":{"code":-32000,"message":"cancelled"}}`, `{"jsonrpc":"2.0","id":1,"error":{"code":-32000,"message":"cancelled"}}`},
		"completed": {`{"jsonrpc":"2.0","id":1,"result":{"content":[]}}`, `{"jsonrpc":"2.0","id":1,"result":{"content":[]}}`},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newPendingTask()
				c := connect(t, "2025-11-25", &fakeCore{handle: s.serve})
				s.addRequest("a", elicit)
				s.addRequest("b", elicit)
				c.requestTaskResult()
				q := c.wantRequests("elicitation/create", "elicitation/create")
				s.removeRequest("a") // another client has responded
				s.addRequest("c", roots)
				time.Sleep(6 * time.Second)
				synctest.Wait()
				got := c.out.takeMessages()
				if len(got) != 2 || string(got[0].Params) != `{"requestId":`+q[0].ID.String()+`}` || got[1].Method != "roots/list" {
					t.Fatalf("wrote %v", got)
				}
				c.reply(q[0], `"result":{"action":"accept"}`) // too late, and ignored
				s.wantAnswers(t)
				s.finish(end.response)
				time.Sleep(6 * time.Second)
				synctest.Wait()
				lines := c.out.take()
				if len(lines) != 3 || lines[2] != end.want || !strings.Contains(lines[0]+lines[1], `"requestId":`+q[1].ID.String()) ||
					!strings.Contains(lines[0]+lines[1], `"requestId":`+got[1].ID.String()) {
					t.Errorf("wrote %q", lines)
				}
			})
		})
	}
}

// A core with request state is not polled: it returns as soon as the input requests change.
func TestInputRequestsAreCancelledAtOnceWithRequestState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newPendingTask()
		s.hasState = true
		core := &fakeCore{handle: s.serve}
		c := connect(t, "2025-11-25", core)
		s.addRequest("a", elicit)
		s.addRequest("b", elicit)
		c.requestTaskResult()
		q := c.wantRequests("elicitation/create", "elicitation/create")
		time.Sleep(time.Second)
		s.removeRequest("a")
		synctest.Wait()
		c.want(c.out.take(), `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":`+q[0].ID.String()+`}}`)
		time.Sleep(time.Hour)
		synctest.Wait()
		if s.calls != 3 {
			t.Errorf("the core received %d requests in an hour, want 3", s.calls)
		}
		c.reply(q[1], `"result":{"action":"accept"}`)
		s.wantAnswers(t, `b={"action":"accept"}`)
		s.finish(`{"jsonrpc":"2.0","id":1,"result":{"content":[]}}`)
		synctest.Wait()
		c.want(c.out.take(), `{"jsonrpc":"2.0","id":1,"result":{"content":[]}}`)
	})
}

func TestRejectionEndsTasksResultOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newPendingTask()
		c := connect(t, "2025-11-25", &fakeCore{handle: s.serve})
		s.addRequest("a", sample)
		s.addRequest("b", elicit)
		c.requestTaskResult()
		q := c.wantRequests("sampling/createMessage", "elicitation/create")
		c.session.Handle(t.Context(), message(`{"jsonrpc":"2.0","id":`+q[0].ID.String()+`,"error":{"code":-1,"message":"no"}}`), c.out.write)
		synctest.Wait()
		c.want(c.out.take(),
			`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":`+q[1].ID.String()+`}}`,
			`{"jsonrpc":"2.0","id":1,"error":{"code":-1,"message":"the client refused sampling/createMessage: no"}}`)
		s.wantAnswers(t)
		c.requestTaskResult() // again
		c.wantRequests("sampling/createMessage", "elicitation/create")
		c.session.Close(errors.New("over"))
	})
}

// Requirement: TASKX-20
func TestCancelledTasksResultKeepsTheTask(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newPendingTask()
		core := &fakeCore{handle: s.serve}
		c := connect(t, "2025-11-25", core)
		s.addRequest("a", elicit)
		c.requestTaskResult()
		q := c.wantRequests("elicitation/create")[0]
		c.handle(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`)
		synctest.Wait()
		c.reply(q, `"result":{"action":"accept"}`)
		time.Sleep(time.Minute)
		c.want(c.out.take())
		s.wantAnswers(t)
		for _, req := range core.requests {
			if req.Method != "tasks/result" {
				t.Errorf("the core got %s", req.Method)
			}
		}
		c.requestTaskResult()
		c.reply(c.wantRequests("elicitation/create")[0], `"result":{"action":"accept"}`)
		s.wantAnswers(t, `a={"action":"accept"}`)
		c.session.Close(errors.New("over"))
		synctest.Wait()
		c.want(c.out.take(), `{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"ended"}}`)
	})
}

func TestCloseEndsTasksResult(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newPendingTask()
		c := connect(t, "2025-11-25", &fakeCore{handle: s.serve})
		s.addRequest("a", elicit)
		c.requestTaskResult()
		c.wantRequests("elicitation/create")
		c.session.Close(errors.New("over"))
		synctest.Wait()
		got := c.out.takeMessages()
		if len(got) != 1 || got[0].Error == nil || got[0].Error.Code != jsonrpc.CodeInvalidRequest {
			t.Errorf("wrote %+v", got)
		}
	})
}

func TestTaskWithoutInputRequestsIsPolledSlowly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core := &fakeCore{handle: func(_ context.Context, req *jsonrpc.Message, _ legacy.Stream) *jsonrpc.Message {
			return &jsonrpc.Message{ID: req.ID, Result: json.RawMessage(inputRequired(`"requestState":"more"`))}
		}}
		c := connect(t, "2025-11-25", core)
		c.requestTaskResult()
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := len(core.requests); n < 10 || n > 15 {
			t.Errorf("the core received %d requests in a minute, want 10 to 15", n)
		}
		if got := member(core.last().Params, "requestState"); got != `"more"` {
			t.Errorf("request state is %s", got)
		}
		c.session.Close(errors.New("over"))
	})
}

func TestUnsupportedInputRequestEndsTasksResult(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newPendingTask()
		c := connect(t, "2025-11-25", &fakeCore{handle: s.serve})
		s.addRequest("a", elicit)
		c.requestTaskResult()
		q := c.wantRequests("elicitation/create")[0]
		s.addRequest("b", `{"method":"com.example/ask","params":{}}`)
		time.Sleep(6 * time.Second)
		synctest.Wait()
		got := c.out.take()
		if len(got) != 2 || !strings.Contains(got[0], `{"requestId":`+q.ID.String()+`}`) || !strings.Contains(got[1], "cannot be asked for input") {
			t.Errorf("wrote %q", got)
		}
	})
}

func TestTaskNotificationsAreForwarded(t *testing.T) {
	for version, want := range map[string][]string{
		"2025-11-25": {
			`{"jsonrpc":"2.0","method":"notifications/tasks/status","params":` + task + `}`,
			`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"of the call","progress":2,"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"t1"}}}}`,
		},
		"2025-06-18": {`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"of the call","progress":2}}`},
	} {
		c := connect(t, version, &fakeCore{handle: func(ctx context.Context, req *jsonrpc.Message, out legacy.Stream) *jsonrpc.Message {
			for _, n := range []string{
				`{"jsonrpc":"2.0","method":"notifications/tasks/status","params":` + task + `}`,
				`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"of the call","progress":2,"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"t1"}}}}`,
				`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"of the call","progress":1}}`, // of a second run
			} {
				_ = out(ctx, message(n))
			}
			return &jsonrpc.Message{ID: req.ID, Result: json.RawMessage(`{"content":[]}`)}
		}})
		method := "tasks/result"
		if version != "2025-11-25" {
			method = "tools/call"
		}
		c.want(c.handle(`{"jsonrpc":"2.0","id":1,"method":"`+method+`","params":{"taskId":"t1","name":"t"}}`),
			append(want, `{"jsonrpc":"2.0","id":1,"result":{"content":[]}}`)...)
	}
}

// A session limits its open input requests. Those of tasks wait for a free slot, and leave slots
// for calls, which cannot wait.
//
// Requirement: TASKD-11
func TestInputRequestsOfTasksAreQueued(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newPendingTask()
		c := connect(t, "2025-11-25", &fakeCore{handle: func(ctx context.Context, req *jsonrpc.Message, out legacy.Stream) *jsonrpc.Message {
			if req.Method == "tasks/result" {
				return s.serve(ctx, req, out)
			}
			if member(req.Params, "inputResponses") != "" {
				return &jsonrpc.Message{ID: req.ID, Result: json.RawMessage(`{"content":[]}`)}
			}
			return &jsonrpc.Message{ID: req.ID, Result: json.RawMessage(inputRequired(`"inputRequests":{"a":` + elicit + `}`))}
		}})
		const all = 100
		for i := range all {
			s.open[fmt.Sprint(i)] = elicit
			s.order = append(s.order, fmt.Sprint(i))
		}
		c.requestTaskResult()
		first := c.out.takeMessages()
		if len(first) != 48 {
			t.Fatalf("sent %d input requests at first, want 48", len(first))
		}
		go c.session.Handle(c.Context(), message(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"t"}}`), c.out.write)
		synctest.Wait()
		c.reply(c.wantRequests("elicitation/create")[0], `"result":{"action":"decline"}`)
		c.want(c.out.take(), `{"jsonrpc":"2.0","id":2,"result":{"content":[]}}`)

		waiting := first
		for n := len(first); n > 0; n = len(waiting) {
			answer := `{"jsonrpc":"2.0","id":` + waiting[0].ID.String() + `,"result":{"action":"decline"}}`
			c.session.Handle(c.Context(), message(answer), c.out.write) // the next input request may come at once
			synctest.Wait()
			waiting = append(waiting[1:], c.out.takeMessages()...)
		}
		if len(s.answers) != all {
			t.Errorf("%d answers, want %d", len(s.answers), all)
		}
		s.finish(`{"jsonrpc":"2.0","id":1,"result":{"content":[]}}`)
		synctest.Wait()
		c.want(c.out.take(), `{"jsonrpc":"2.0","id":1,"result":{"content":[]}}`)
	})
}

// A slot that another task of the session frees is used at once.
func TestFreedSlotIsUsedByAnotherTask(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tasks := map[string]*pendingTask{}
		c := connect(t, "2025-11-25", &fakeCore{handle: func(ctx context.Context, req *jsonrpc.Message, out legacy.Stream) *jsonrpc.Message {
			return tasks[member(req.Params, "taskId")].serve(ctx, req, out)
		}})
		const all = 60
		for i := range all {
			s := newPendingTask()
			s.hasState = true
			s.open["a"], s.order = elicit, []string{"a"}
			tasks[fmt.Sprintf(`"t%d"`, i)] = s
		}
		for i := range all {
			go c.session.Handle(c.Context(), message(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tasks/result","params":{"taskId":"t%d"}}`, i, i)), c.out.write)
		}
		synctest.Wait()
		asked := c.out.takeMessages()
		if len(asked) != 48 {
			t.Fatalf("wrote %d messages, the first %v", len(asked), asked[0])
		}
		for i := range all {
			c.reply(asked[i], `"result":{"action":"decline"}`)
			asked = append(asked, c.out.takeMessages()...)
		}
		for id, s := range tasks {
			if len(s.answers) != 1 {
				t.Errorf("task %s was answered %d times", id, len(s.answers))
			}
		}
		c.session.Close(errors.New("over"))
	})
}

// The progress token of a call is sent with every tasks/result of its task, in the same session.
// Progress only increases.
func TestProgressTokenOfATask(t *testing.T) {
	core := &fakeCore{handle: func(ctx context.Context, req *jsonrpc.Message, out legacy.Stream) *jsonrpc.Message {
		if req.Method == "tools/call" {
			return &jsonrpc.Message{ID: req.ID, Result: json.RawMessage(`{"resultType":"task","task":` + task + `}`)}
		}
		token := member([]byte(member(req.Params, "_meta")), "progressToken")
		for _, step := range []int{1, 2} {
			_ = out(ctx, message(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":%d}}`, token, step)))
		}
		return &jsonrpc.Message{ID: req.ID, Error: &jsonrpc.Error{Code: -32000, Message: "busy"}}
	}}
	c, other := connect(t, "2025-11-25", core), connect(t, "2025-11-25", core)
	c.handle(`{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"t","task":{},"_meta":{"progressToken":7}}}`)
	const busy = `{"jsonrpc":"2.0","id":1,"error":{"code":-32000,"message":"busy"}}`
	const step = `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":%d}}`
	c.want(c.handle(taskResult), fmt.Sprintf(step, "7", 1), fmt.Sprintf(step, "7", 2), busy)
	c.want(c.handle(taskResult), busy)
	other.want(other.handle(taskResult), fmt.Sprintf(step, `"p"`, 1), fmt.Sprintf(step, `"p"`, 2), busy)
}

// Once the result of a task has been sent, progress no longer carries the token of its call.
//
// Requirement: PROG-08
func TestTokenOfATaskEndsWithIt(t *testing.T) {
	ended, steps := false, 0
	core := &fakeCore{handle: func(ctx context.Context, req *jsonrpc.Message, out legacy.Stream) *jsonrpc.Message {
		if req.Method == "tools/call" {
			return &jsonrpc.Message{ID: req.ID, Result: json.RawMessage(`{"resultType":"task","task":` + task + `}`)}
		}
		token := member([]byte(member(req.Params, "_meta")), "progressToken")
		steps++
		_ = out(ctx, message(fmt.Sprintf(
			`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":%d}}`, token, steps)))
		if ended {
			return &jsonrpc.Message{ID: req.ID, Result: json.RawMessage(`{"resultType":"complete","content":[]}`)}
		}
		return &jsonrpc.Message{ID: req.ID, Error: &jsonrpc.Error{Code: 1, Message: "busy"}}
	}}
	c := connect(t, "2025-11-25", core)
	c.handle(`{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"t","task":{},"_meta":{"progressToken":7}}}`)
	token := func(token string) string { return fmt.Sprintf(`"progressToken":%s,`, token) }
	for i, want := range []string{"7", "7", `"p"`} {
		ended = i > 0
		if got := c.handle(taskResult); len(got) != 2 || !strings.Contains(got[0], token(want)) {
			t.Errorf("tasks/result number %d: got %q, want progress with the token %s", i+1, got, want)
		}
	}
}
