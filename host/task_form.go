package host

import (
	"bytes"
	"encoding/json"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/internal/wire"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// extensionTasks is the extension of tasks; see package ext/tasks.
const extensionTasks = "io.modelcontextprotocol/tasks"

// A taskForm is one of the two forms of tasks. They have the same tasks with other names of members,
// other statuses and other methods. Spec: tasks extension; basic/utilities/tasks (2025-11-25).
type taskForm uint8

const (
	noTasks       taskForm = iota
	sessionTasks           // of revision 2025-11-25: the client decides which calls become tasks
	extendedTasks          // of the extension: the server decides
)

// coreTasks and isModern report whether the core of a revision has tasks, and whether it may have them
// as an extension.
func coreTasks(revision string) bool { return revisionOf(revision).Has(wire.Tasks) }
func isModern(revision string) bool  { return revisionOf(revision).Modern() }

func revisionOf(text string) wire.Revision {
	r, _ := wire.ParseRevision(text)
	return r
}

// taskFormOf returns the form of the client of a request.
func taskFormOf(req *mcp.Request) taskForm {
	switch {
	case coreTasks(req.Revision()):
		return sessionTasks
	case isModern(req.Revision()) && jsonscan.IsObject(req.Capabilities().Extensions[extensionTasks]):
		return extendedTasks
	}
	return noTasks
}

// A taskServer describes a server as it was last connected.
type taskServer struct {
	name         string
	revision     string          // empty before the first connection
	capabilities json.RawMessage // nil before the first connection
	shared       bool            // by several callers
}

// form returns the form of the server.
func (s *taskServer) form() taskForm {
	switch {
	case coreTasks(s.revision) && hasMember(s.capabilities, "tasks", "requests", "tools", "call"):
		return sessionTasks
	case isModern(s.revision) && hasMember(s.capabilities, "extensions", extensionTasks):
		return extendedTasks
	}
	return noTasks
}

// lists reports whether the server lists the tasks of its caller. A server that several callers share would
// list the tasks of all.
func (s *taskServer) lists() bool {
	return s.form() == sessionTasks && hasMember(s.capabilities, "tasks", "list") && !s.shared
}

// hasMember reports whether an object has an object at a path.
func hasMember(object []byte, path ...string) bool {
	for _, key := range path {
		if !jsonscan.IsObject(object) {
			return false
		}
		object, _ = jsonscan.Get(object, key)
	}
	return jsonscan.IsObject(object)
}

// The values of the member taskSupport of a tool.
const (
	supportOptional = "optional"
	supportRequired = "required"
)

// taskSupport returns what the definition of a tool says about tasks; "" if nothing.
func taskSupport(tool []byte) string {
	if !bytes.Contains(tool, []byte(`"taskSupport"`)) {
		return ""
	}
	execution, _ := jsonscan.Get(tool, "execution")
	return jsonscan.GetString(execution, "taskSupport")
}

// taskNames are the members of a task that have another name in the other form.
var taskNames = map[taskForm]map[string]string{
	sessionTasks:  {"ttlMs": "ttl", "pollIntervalMs": "pollInterval"},
	extendedTasks: {"ttl": "ttlMs", "pollInterval": "pollIntervalMs"},
}

// taskMembers returns the members of a task, each after a comma, in the form to, without what is not
// common to both forms.
func taskMembers(task []byte, to taskForm, handle, status string) []byte {
	b := jsonscan.AppendQuote([]byte(`,"taskId":`), handle)
	b = jsonscan.AppendQuote(append(b, `,"status":`...), status)
	for raw, value := range jsonscan.Members(task) {
		key := string(raw)
		switch key {
		case "taskId", "status", "inputRequests", "result", "error", "resultType", "_meta":
			continue
		}
		if name, ok := taskNames[to][key]; ok {
			key = name
		} else if taskNames[sessionTasks+extendedTasks-to][key] != "" {
			continue // it would have the name of the other one
		}
		b = append(append(jsonscan.AppendQuote(append(b, ','), key), ':'), value...)
	}
	return b
}

// relate returns an object whose `_meta` names a task by its handle, or no task if handle is empty.
func relate(object []byte, handle string) []byte {
	meta, ok := jsonscan.Get(object, "_meta")
	if !ok || !jsonscan.IsObject(meta) {
		if handle == "" {
			return object
		}
		meta = []byte("{}")
	}
	if handle == "" {
		if _, ok := jsonscan.Get(meta, wire.MetaRelatedTask); !ok {
			return object
		}
		return jsonscan.WithMember(object, "_meta", jsonscan.Without(meta, wire.MetaRelatedTask))
	}
	id := append(jsonscan.AppendQuote([]byte(`{"taskId":`), handle), '}')
	return jsonscan.WithMember(object, "_meta", jsonscan.WithMember(meta, wire.MetaRelatedTask, id))
}

// relateQuestions applies relate to the params of each input request of a result.
func relateQuestions(requests []byte, handle string) []byte {
	b := []byte{'{'}
	for key, request := range jsonscan.Members(requests) {
		params, ok := jsonscan.Get(request, "params")
		if !ok || !jsonscan.IsObject(params) {
			params = []byte("{}")
		}
		if len(b) > 1 {
			b = append(b, ',')
		}
		b = append(jsonscan.AppendQuote(b, string(key)), ':')
		b = append(b, jsonscan.WithMember(request, "params", relate(params, handle))...)
	}
	return append(b, '}')
}

// Statuses of tasks that the host decides on.
const (
	taskWorking       = "working"
	taskInputRequired = "input_required"
	taskCompleted     = "completed"
	taskFailed        = "failed"
	taskCancelled     = "cancelled"
)

// isFinal reports whether a task with this status has ended.
func isFinal(status string) bool {
	return status == taskCompleted || status == taskFailed || status == taskCancelled
}

// isToolError reports whether the result of a call says that the tool has failed. In revision
// 2025-11-25 such a task is failed, in the extension it is completed.
func isToolError(result json.RawMessage) bool {
	if !jsonscan.IsObject(result) {
		return false
	}
	value, _ := jsonscan.Get(result, "isError")
	return string(value) == "true"
}
