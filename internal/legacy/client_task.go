package legacy

import (
	"encoding/json"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/internal/wire"
)

// makesTasks reports whether the server makes tasks of calls of tools when it is asked to. One that does not is not asked.
//
// Spec: basic/utilities/tasks#capability-negotiation (2025-11-25)
func (c *Client) makesTasks() bool {
	return hasCapability(c.capabilities, "tasks", "requests", "tools", "call")
}

// isNewTask reports whether a result is a task: the request, as it was sent, asked for one, and here it is. One that nobody asked
// for is a task too where there is nothing else that could be a result, so that it is not taken for an empty one.
//
// Spec: basic/utilities/tasks#creating-tasks (2025-11-25)
func isNewTask(method string, sent, result []byte) bool {
	if method != wire.MethodToolsCall {
		return false
	}
	if jsonscan.Kind(result) != '{' {
		return false
	}
	if task, _ := jsonscan.Get(result, "task"); jsonscan.Kind(task) != '{' {
		return false
	}
	if asked, _ := jsonscan.Get(sent, "task"); jsonscan.Kind(asked) == '{' {
		return true
	}
	_, isResult := jsonscan.Get(result, "content")
	return !isResult
}

// modernTask returns a result that is a task the type that says so. The task stays as the server's revision has it.
func modernTask(result []byte) json.RawMessage {
	const mark = `{"resultType":"task",`
	dst := append(make([]byte, 0, len(mark)+len(result)), mark...)
	for key, value := range jsonscan.Members(result) {
		if string(key) != "resultType" {
			dst = append(appendMember(dst, key, value), ',')
		}
	}
	return closeWith(dst, '}')
}

// relatedTask returns the task that a request of the server belongs to, as its `_meta` has it, or nil.
func (c *Client) relatedTaskOf(params []byte) []byte {
	if !c.isOpen() || !c.rev.Has(wire.Tasks) || jsonscan.Kind(params) != '{' {
		return nil
	}
	meta, _ := jsonscan.Get(params, "_meta")
	if jsonscan.Kind(meta) != '{' {
		return nil
	}
	task, _ := jsonscan.Get(meta, wire.MetaRelatedTask)
	if jsonscan.Kind(task) != '{' {
		return nil
	}
	return task
}

// withRelatedTask says in the `_meta` of an answer which task it belongs to; nil is none.
//
// Spec: basic/utilities/tasks#associating-task-related-messages (2025-11-25)
func withRelatedTask(answer, task []byte) json.RawMessage {
	if task == nil {
		return answer
	}
	meta, _ := jsonscan.Get(answer, "_meta")
	dst := append(make([]byte, 0, len(answer)+len(task)+64), `{"_meta":{`...)
	if jsonscan.Kind(meta) == '{' {
		for key, value := range jsonscan.Members(meta) {
			if string(key) != wire.MetaRelatedTask {
				dst = append(appendMember(dst, key, value), ',')
			}
		}
	}
	dst = append(appendMember(dst, []byte(wire.MetaRelatedTask), task), "},"...)
	for key, value := range jsonscan.Members(answer) {
		if string(key) != "_meta" {
			dst = append(appendMember(dst, key, value), ',')
		}
	}
	return closeWith(dst, '}')
}
