package legacy

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/internal/wire"
	"github.com/patchbay-mcp/patchbay/jsonrpc"
)

// All responses about tasks are valid in their revision.
func TestClientTasksAreValid(t *testing.T) {
	const rev = wire.November2025
	c := openClient(t, rev, &echoConn{})
	answer := json.RawMessage(`{"action":"accept","content":{"a":1}}`)
	var refusal *jsonrpc.Error
	c.cfg.Answer = func(context.Context, string, json.RawMessage) (json.RawMessage, *jsonrpc.Error) {
		return answer, refusal
	}
	respond := func(definition, method, params string) *clientTask {
		t.Helper()
		result, task, err := c.respond(t.Context(), &jsonrpc.Message{ID: jsonrpc.IntID(1), Method: method, Params: json.RawMessage(params)})
		if err != nil {
			t.Fatal(err)
		}
		mustValidate(t, rev, definition, result)
		return task
	}
	const question = `{"message":"m","requestedSchema":{"type":"object","properties":{}},"task":{"ttl":1000000}}`
	first := respond("CreateTaskResult", wire.MethodElicitationCreate, question)
	second := respond("CreateTaskResult", wire.MethodElicitationCreate, question)
	respond("GetTaskResult", wire.MethodTasksGet, `{"taskId":"`+first.id+`"}`)
	c.runTask(first, &jsonrpc.Message{ID: jsonrpc.IntID(1), Method: wire.MethodElicitationCreate, Params: json.RawMessage(question)})
	respond("ElicitResult", wire.MethodTasksResult, `{"taskId":"`+first.id+`"}`)
	respond("CancelTaskResult", wire.MethodTasksCancel, `{"taskId":"`+second.id+`"}`)
	refusal = &jsonrpc.Error{Code: -1, Message: strings.Repeat("é", 500)}
	third := respond("CreateTaskResult", wire.MethodElicitationCreate, question)
	c.runTask(third, &jsonrpc.Message{ID: jsonrpc.IntID(1), Method: wire.MethodElicitationCreate, Params: json.RawMessage(question)})
	respond("GetTaskResult", wire.MethodTasksGet, `{"taskId":"`+third.id+`"}`)
	respond("ListTasksResult", wire.MethodTasksList, `{}`)
}

// FuzzClientTasks creates a task and then sends requests about it. ID is replaced by its id in the
// params.
func FuzzClientTasks(f *testing.F) {
	for _, task := range []string{`{}`, `null`, `{"ttl":60000}`, `{"ttl":null}`, `{"ttl":-0.0}`, `{"ttl":1e999}`, `{"ttl":"1"}`, `{"ttl":-1}`, `[]`, `{"\u0074tl":5}`} {
		for _, params := range []string{`{"taskId":"ID"}`, `{"task\u0049d":"ID","_meta":{}}`, `{"taskId":"\ud800"}`, `{"cursor":"c"}`, `{}`, `[]`, `7`} {
			f.Add([]byte(task), params)
		}
	}
	f.Fuzz(func(t *testing.T, task []byte, params string) {
		if jsonscan.Valid(task, jsonscan.Limits{}) != nil || jsonscan.Valid([]byte(params), jsonscan.Limits{}) != nil {
			return
		}
		asked := 0
		c := openClient(t, wire.November2025, &echoConn{})
		defer c.Close()
		c.cfg.Answer = func(context.Context, string, json.RawMessage) (json.RawMessage, *jsonrpc.Error) {
			asked++
			return json.RawMessage(`{"action":"cancel"}`), nil
		}
		question := &jsonrpc.Message{ID: jsonrpc.IntID(1), Method: wire.MethodElicitationCreate, Params: append(appendMember([]byte(`{"message":"m",`), []byte("task"), task), '}')}
		result, newTask, refusal := c.respond(t.Context(), question)
		switch kind := jsonscan.Kind(task); {
		case kind == 'n':
			if newTask != nil || refusal != nil || asked != 1 {
				t.Fatalf("a null task: created %v, Answer called %d times: %v", newTask, asked, refusal)
			}
			return
		case refusal != nil:
			if newTask != nil || asked != 0 || refusal.Code != wire.CodeInvalidParams || c.tasks.all != nil {
				t.Fatalf("refused: created %v, Answer called %d times: %v", newTask, asked, refusal)
			}
			return
		case kind != '{' || newTask == nil || asked != 0 || newTask.ttl < leastTaskTTL || newTask.ttl > maxTaskTTL:
			t.Fatalf("created %+v from %s, Answer called %d times", newTask, task, asked)
		}
		created, _ := jsonscan.Get(result, "task")
		if jsonscan.GetString(created, "taskId") != newTask.id || jsonscan.GetString(created, "status") != "working" {
			t.Fatalf("created %s", result)
		}
		c.runTask(newTask, question)
		if asked != 1 {
			t.Fatalf("Answer was called %d times, want once", asked)
		}
		params = strings.ReplaceAll(params, "ID", newTask.id)
		isTask := jsonscan.Kind([]byte(params)) == '{' && jsonscan.GetString([]byte(params), "taskId") == newTask.id
		for _, method := range []string{wire.MethodTasksGet, wire.MethodTasksResult, wire.MethodTasksCancel, wire.MethodTasksList} {
			result, created, err := c.respond(t.Context(), &jsonrpc.Message{ID: jsonrpc.IntID(1), Method: method, Params: json.RawMessage(params)})
			switch {
			case created != nil:
				t.Fatalf("%s created a task", method)
			case err != nil && err.Code != wire.CodeInvalidParams:
				t.Fatalf("%s: %v", method, err)
			case err == nil && jsonscan.Valid(result, jsonscan.Limits{}) != nil:
				t.Fatalf("%s: %s", method, result)
			case method == wire.MethodTasksCancel && err == nil, method != wire.MethodTasksCancel && method != wire.MethodTasksList && (err == nil) != isTask:
				t.Fatalf("%s with %s: %s, %v", method, params, result, err)
			}
		}
	})
}
