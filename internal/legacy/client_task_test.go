package legacy_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/patchbay-mcp/patchbay/internal/legacy"
	"github.com/patchbay-mcp/patchbay/internal/wire"
	"github.com/patchbay-mcp/patchbay/jsonrpc"
)

const serverTaskCapabilities = `{"tools":{},"tasks":{"list":{},"cancel":{},"requests":{"tools":{"call":{}}}}}`

// Requirement: TASKD-06
func TestTaskResultsHaveTheirType(t *testing.T) {
	const (
		created = `{"task":` + task + `,"_meta":{"io.modelcontextprotocol/model-immediate-response":"wait"},"resultType":"complete"}`
		direct  = `{"content":[]}`
		params  = `"name":"t","task":{"ttl":60000}`
	)
	for _, tc := range []struct{ version, capabilities, params, result, sent, want string }{
		{"2025-11-25", serverTaskCapabilities, params, created, params,
			`{"resultType":"task","task":` + task + `,"_meta":{"io.modelcontextprotocol/model-immediate-response":"wait"}}`},
		{"2025-11-25", serverTaskCapabilities, params, direct, params, `{"resultType":"complete","content":[]}`}, // TASKD-03
		{"2025-11-25", serverTaskCapabilities, params, `{"content":[],"task":"x"}`, params, `{"resultType":"complete","content":[],"task":"x"}`},
		{"2025-11-25", serverTaskCapabilities, params, `{"content":[],"resultType":"task","taskId":"t1"}`, params, `{"resultType":"complete","content":[],"taskId":"t1"}`}, // T-17
		// A member "task" in the result of an ordinary call.
		{"2025-11-25", serverTaskCapabilities, `"name":"t"`, `{"content":[],"task":{"a":1}}`, `"name":"t"`, `{"resultType":"complete","content":[],"task":{"a":1}}`},
		// A task in place of a result, although none was requested: the caller has to reject it.
		{"2025-11-25", serverTaskCapabilities, `"name":"t"`, `{"task":{"a":1}}`, `"name":"t"`, `{"resultType":"task","task":{"a":1}}`},
		{"2025-06-18", `{"tools":{}}`, params, `{"task":{"a":1}}`, `"name":"t"`, `{"resultType":"task","task":{"a":1}}`},
		{"2025-06-18", `{"tools":{}}`, `"name":"t"`, `{"task":"x"}`, `"name":"t"`, `{"resultType":"complete","task":"x"}`},
		// TASKD-02: a server without the capability gets no task-augmented request.
		{"2025-11-25", `{"tools":{},"tasks":{"requests":{"tools":{}}}}`, params, direct, `"name":"t"`, `{"resultType":"complete","content":[]}`},
		{"2025-11-25", `{"tools":{}}`, params, `{"content":[],"task":{"a":1}}`, `"name":"t"`, `{"resultType":"complete","content":[],"task":{"a":1}}`},
		{"2025-06-18", serverTaskCapabilities, params, direct, `"name":"t"`, `{"resultType":"complete","content":[]}`},
	} {
		s := &fakeServer{capabilities: tc.capabilities, serve: afterInitialize(respondWith(tc.result))}
		c := open(t, clientConfig(tc.version), s)
		got, err := c.RoundTrip(t.Context(), "tools/call", withEnvelope(tc.params, ""), nil)
		if err != nil || string(got) != tc.want {
			t.Errorf("%s %s\ngot  %s, %v\nwant %s", tc.version, tc.capabilities, got, err, tc.want)
		}
		s.wants(t, `"method":"tools/call","params":{`+tc.sent+`}`)
	}
}

func TestResultsOfTaskMethodsAreComplete(t *testing.T) {
	for method, tc := range map[string]struct{ result, want string }{
		"tasks/get":    {task, `{"resultType":"complete",` + task[1:]},
		"tasks/cancel": {task, `{"resultType":"complete",` + task[1:]},
		"tasks/list":   {`{"tasks":[` + task + `],"nextCursor":"c"}`, `{"resultType":"complete","tasks":[` + task + `],"nextCursor":"c"}`},
		"tasks/result": {`{"resultType":"input_required","inputRequests":{"a":{}},"requestState":"s","content":[],"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"t1"}}}`,
			`{"resultType":"complete","content":[],"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"t1"}}}`},
	} {
		s := &fakeServer{capabilities: serverTaskCapabilities, serve: afterInitialize(respondWith(tc.result))}
		c := open(t, clientConfig("2025-11-25"), s)
		got, err := c.RoundTrip(t.Context(), method, withEnvelope(`"taskId":"t1","inputResponses":{},"requestState":"s"`, ""), nil)
		if err != nil || string(got) != tc.want {
			t.Errorf("%s: got %s, %v, want %s", method, got, err, tc.want)
		}
		sent := `"taskId":"t1","inputResponses":{},"requestState":"s"`
		if method == "tasks/result" {
			sent = `"taskId":"t1"`
		}
		s.wants(t, `"method":"`+method+`","params":{`+sent+`}`)
	}
}

func TestErrorsOfTaskMethodsAreUnchanged(t *testing.T) {
	s := &fakeServer{capabilities: serverTaskCapabilities, serve: afterInitialize(failWith(-32042, "visit", `{"elicitations":[{"mode":"url","message":"m","url":"https://a.example/","elicitationId":"v"}]}`))}
	c := open(t, clientConfig("2025-11-25"), s)
	_, err := c.RoundTrip(t.Context(), "tasks/result", withEnvelope(`"taskId":"t1"`, ""), nil)
	var e *jsonrpc.Error
	if !errors.As(err, &e) || e.Code != -32042 || !e.Remote() { // a retry would fail again
		t.Errorf("error is %v", err)
	}
}

// Requirement: TASKD-14
func TestRequestsOfATaskDuringTasksResult(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		s := &fakeServer{capabilities: serverTaskCapabilities, serve: afterInitialize(func(_ context.Context, req *jsonrpc.Message) *jsonrpc.Message {
			<-release
			return &jsonrpc.Message{ID: req.ID, Result: json.RawMessage(`{"content":[]}`)}
		})}
		cfg := clientConfig("2025-11-25")
		cfg.Answer = func(context.Context, string, json.RawMessage) (json.RawMessage, *jsonrpc.Error) {
			return json.RawMessage(`{"action":"accept","content":{}}`), nil
		}
		var notified []string
		cfg.Notify = func(_ context.Context, method string, _ json.RawMessage) { notified = append(notified, method) }
		c := open(t, cfg, s)
		defer c.Close()
		var progress []string
		done := make(chan struct{})
		go func() {
			defer close(done)
			notify := func(_ context.Context, _ string, params json.RawMessage) error {
				progress = append(progress, string(params))
				return nil
			}
			got, err := c.RoundTrip(t.Context(), "tasks/result", withEnvelope(`"taskId":"t1"`, `"progressToken":7`), notify)
			if err != nil || string(got) != `{"resultType":"complete","content":[]}` {
				t.Errorf("result %s, %v", got, err)
			}
		}()
		synctest.Wait()
		s.take()
		c.Receive(message(`{"jsonrpc":"2.0","method":"notifications/tasks/status","params":` + task + `}`))
		c.Receive(message(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":7,"progress":1}}`))
		c.Receive(message(`{"jsonrpc":"2.0","id":"q","method":"elicitation/create","params":{"message":"m","requestedSchema":{"type":"object","properties":{}},"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"t1"}}}}`))
		synctest.Wait()
		s.wants(t, `"id":"q","result":{"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"t1"}},"action":"accept","content":{}}`)
		close(release)
		<-done
		if got := strings.Join(progress, ";"); got != `{"progressToken":7,"progress":1}` {
			t.Errorf("progress is %s", got)
		}
		if got := strings.Join(notified, ";"); got != "notifications/tasks/status" { // TASKD-17: passed to Notify
			t.Errorf("Notify got %s, want notifications/tasks/status", got)
		}
	})
}

// Client.modernResult relies on this.
func TestOnlyToolListsAreProjected(t *testing.T) {
	for method, changes := range legacy.ModernResults() {
		if changes != (method == wire.MethodToolsList) {
			t.Errorf("results of %s are changed: %v", method, changes)
		}
	}
}
