package task

import (
	"bytes"
	"encoding/json"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/internal/wire"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// Extension is the extension of tasks; see package ext/tasks.
const Extension = "io.modelcontextprotocol/tasks"

// A Form identifies a form of tasks. The forms represent the same tasks with different names of
// members, statuses and methods. Spec: tasks extension; basic/utilities/tasks (2025-11-25).
type Form uint8

// Forms of tasks.
const (
	None     Form = iota
	Session       // of revision 2025-11-25: the client decides which calls become tasks
	Extended      // of the extension: the server decides
)

// coreTasks reports whether the core of a revision contains tasks.
func coreTasks(revision string) bool { return revisionOf(revision).Has(wire.Tasks) }

// IsModern reports whether tasks are an extension of a revision.
func IsModern(revision string) bool { return revisionOf(revision).Modern() }

func revisionOf(text string) wire.Revision {
	r, _ := wire.ParseRevision(text)
	return r
}

// FormOf returns the form of the client of a request.
func FormOf(req *mcp.Request) Form {
	switch {
	case coreTasks(req.Revision()):
		return Session
	case IsModern(req.Revision()) && jsonscan.IsObject(req.Capabilities().Extensions[Extension]):
		return Extended
	}
	return None
}

// A Server describes a server as it was last connected.
type Server struct {
	Name         string
	Revision     string          // empty before the first connection
	Capabilities json.RawMessage // nil before the first connection
	Shared       bool            // by several callers
}

// Form returns the form of the server.
func (s *Server) Form() Form {
	switch {
	case coreTasks(s.Revision) && jsonscan.HasObject(s.Capabilities, "tasks", "requests", "tools", "call"):
		return Session
	case IsModern(s.Revision) && jsonscan.HasObject(s.Capabilities, "extensions", Extension):
		return Extended
	}
	return None
}

// Lists reports whether the server lists the tasks of its caller. A server that several callers share would
// list the tasks of all.
func (s *Server) Lists() bool {
	return s.Form() == Session && jsonscan.HasObject(s.Capabilities, "tasks", "list") && !s.Shared
}

// The values of the member Support of a tool.
const (
	SupportOptional = "optional"
	supportRequired = "required"
)

// Support returns the support for tasks that the definition of a tool declares, or "".
func Support(tool []byte) string {
	if !bytes.Contains(tool, []byte(`"taskSupport"`)) {
		return ""
	}
	execution, _ := jsonscan.Get(tool, "execution")
	return jsonscan.GetString(execution, "taskSupport")
}

// taskNames maps the members of a task to their names in the other form, if the names differ.
var taskNames = map[Form]map[string]string{
	Session:  {"ttlMs": "ttl", "pollIntervalMs": "pollInterval"},
	Extended: {"ttl": "ttlMs", "pollInterval": "pollIntervalMs"},
}

// taskMembers returns the members of a task, each after a comma, in the form to. It omits members
// that the forms do not share.
func taskMembers(task []byte, to Form, handle, status string) []byte {
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
		} else if taskNames[Session+Extended-to][key] != "" {
			continue // it would take the name of the other member
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
	return jsonscan.Edit(requests, func(key, request []byte) ([]byte, []byte) {
		params, ok := jsonscan.Get(request, "params")
		if !ok || !jsonscan.IsObject(params) {
			params = []byte("{}")
		}
		return key, jsonscan.WithMember(request, "params", relate(params, handle))
	})
}

// Statuses of tasks that the host decides on.
const (
	taskWorking       = "working"
	taskInputRequired = "input_required"
	taskCompleted     = "completed"
	taskFailed        = "failed"
	taskCancelled     = "cancelled"
	taskUnknown       = "unknown" // to its server; for operators only
)

// isFinal reports whether the status means that the task ended.
func isFinal(status string) bool {
	return status == taskCompleted || status == taskFailed || status == taskCancelled
}

// isToolError reports whether the result of a call contains a failure of the tool. In revision
// 2025-11-25 such a task is failed, in the extension it is completed.
func isToolError(result json.RawMessage) bool {
	if !jsonscan.IsObject(result) {
		return false
	}
	value, _ := jsonscan.Get(result, "isError")
	return string(value) == "true"
}
