package legacy

import (
	"encoding/json"
	"fmt"
	"sync"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/internal/wire"
	"github.com/patchbay-mcp/patchbay/jsonrpc"
)

// modernResults returns the projections, by method, that remove from results the members that the
// modern era lacks.
var modernResults = sync.OnceValue(func() map[string]*projection {
	results := map[string]*projection{}
	for method, fields := range resultShapes() {
		results[method] = project(wire.Latest(), &shape{fields: fields})
	}
	return results
})

// modernResult turns the result of a session's server into the result of a modern server: complete,
// and not cacheable. It drops members that only the modern era defines, since a server of a session
// cannot mean them. It keeps the statements of 2025-11-25 tools about tasks. It reports whether the
// result contains a member "task". Spec: basic#responses (2026-07-28)
func modernResult(rev wire.Revision, method string, result []byte) (modern json.RawMessage, hasTask bool, err error) {
	if jsonscan.Kind(result) != '{' {
		return nil, false, fmt.Errorf("%s: %w: it is not an object", method, ErrMalformed)
	}
	m, _ := wire.Latest().Method(method)
	const room = 64 // for the added members
	dst := append(make([]byte, 0, len(result)+room), `{"resultType":"complete",`...)
	if m.Cacheable {
		dst = append(dst, `"ttlMs":0,"cacheScope":"private",`...)
	}
	p := modernResults()[method]
	if rev.Has(wire.ToolExecution) {
		p = nil
	}
	for key, value := range jsonscan.Members(result) {
		if isModernMember(method, string(key)) {
			continue
		}
		hasTask = hasTask || string(key) == "task"
		if p != nil {
			if f := p.find(key); f != nil {
				before := len(dst)
				if dst = f.append(dst, value); len(dst) > before {
					dst = append(dst, ',')
				}
				continue
			}
		}
		dst = append(appendMember(dst, key, value), ',')
	}
	return closeWith(dst, '}'), hasTask, nil
}

// isModernMember reports whether the modern era added the member to results of the method.
func isModernMember(method, member string) bool {
	switch member {
	case "resultType":
		return true
	case "ttlMs", "cacheScope":
		m, _ := wire.Latest().Method(method)
		return m.Cacheable
	case "inputRequests", "requestState":
		return mayAskInput(method)
	}
	return false
}

// modernError turns the error of a session's server into the error of a modern server, or into an
// input_required result. It remains remote. Spec: server/resources#error-handling (2026-07-28)
func (c *Client) modernError(method string, params []byte, e *jsonrpc.Error) (json.RawMessage, error) {
	switch {
	case e.Code == wire.CodeResourceNotFoundLegacy && method == wire.MethodResourcesRead:
		modern := *e
		modern.Code = wire.CodeInvalidParams
		if uri, ok := jsonscan.Get(params, "uri"); ok && !namesURI(e.Data) {
			modern.Data = append(appendMember([]byte{'{'}, []byte("uri"), uri), '}')
		}
		return nil, &modern
	case e.Code == wire.CodeURLElicitationRequired:
		if result := c.elicitationsRequired(method, e.Data); result != nil {
			return result, nil
		}
	}
	return nil, e
}

// makesTasks reports whether the server supports task-augmented tool calls. Spec:
// basic/utilities/tasks#capability-negotiation (2025-11-25)
func (c *Client) makesTasks() bool {
	return hasCapability(c.capabilities, "tasks", "requests", "tools", "call")
}

// isNewTask reports whether a result is a task: the request that was sent asked for a task, and the
// result contains a task. A task that was not asked for also counts if the result contains no
// content, so that it is not taken for an empty result. Spec: basic/utilities/tasks#creating-tasks
// (2025-11-25)
func isNewTask(method string, sent, result []byte) bool {
	if task, _ := jsonscan.Get(result, "task"); method != wire.MethodToolsCall || jsonscan.Kind(task) != '{' {
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
	return closeWith(appendOthers(dst, result, "resultType"), '}')
}

// relatedTaskOf returns the related task that the `_meta` of a request of the server names, or nil.
func (c *Client) relatedTaskOf(params []byte) []byte {
	meta, _ := jsonscan.Get(params, "_meta")
	task, _ := jsonscan.Get(meta, wire.MetaRelatedTask)
	if !c.isOpen() || !c.rev.Has(wire.Tasks) || jsonscan.Kind(task) != '{' {
		return nil
	}
	return task
}

// withRelatedTask returns a result whose `_meta` names the related task. A nil task changes
// none. Spec: basic/utilities/tasks#associating-task-related-messages (2025-11-25)
func withRelatedTask(answer, task []byte) json.RawMessage {
	if task == nil {
		return answer
	}
	meta, _ := jsonscan.Get(answer, "_meta")
	dst := append(make([]byte, 0, len(answer)+len(task)+64), `{"_meta":{`...)
	dst = appendOthers(dst, meta, wire.MetaRelatedTask)
	dst = append(appendMember(dst, []byte(wire.MetaRelatedTask), task), "},"...)
	return closeWith(appendOthers(dst, answer, "_meta"), '}')
}
