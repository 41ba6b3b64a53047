package legacy

import (
	"encoding/json"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/internal/wire"
)

// makesTasks reports whether the server supports task-augmented tool calls.
//
// Spec: basic/utilities/tasks#capability-negotiation (2025-11-25)
func (c *Client) makesTasks() bool {
	return hasCapability(c.capabilities, "tasks", "requests", "tools", "call")
}

// isNewTask reports whether a result is a task: the request that was sent asked for one, and the
// result has one. A task that was not asked for also counts if the result has no content, so that
// it is not taken for an empty result.
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

// modernTask returns a task result with the result type of a task. The task itself keeps the form
// of the server's revision.
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

// relatedTaskOf returns the related task that the `_meta` of a request of the server names, or nil.
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

// withRelatedTask returns a result whose `_meta` names the related task. A nil task changes
// nothing.
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
