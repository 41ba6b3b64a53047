package tasks

import (
	"encoding/json"
	"time"

	"github.com/patchbay-mcp/patchbay/mcp"
)

// ID is the identifier of the extension, under which clients and servers declare it (SEP-2663).
//
// Spec: tasks extension, Extension Identifier.
const ID = "io.modelcontextprotocol/tasks"

// A Status is the status of a task.
//
// Spec: tasks extension, Task Status.
type Status string

// The statuses of a task. The last three are final.
const (
	StatusWorking       Status = "working"        // queued or running
	StatusInputRequired Status = "input_required" // waiting for input responses
	StatusCompleted     Status = "completed"      // there is a result
	StatusFailed        Status = "failed"         // there is an error
	StatusCancelled     Status = "cancelled"      // cancelled by the client
)

// Final reports whether the status of a task can no longer change.
func (s Status) Final() bool {
	return s == StatusCompleted || s == StatusFailed || s == StatusCancelled
}

// A Task is the state of a task as its server returned it.
//
// A tool result with IsError gives the task [StatusFailed] in revision 2025-11-25 and
// [StatusCompleted] in the extension. Status contains the value that the server sent.
//
// Spec: tasks extension, Tasks; basic/utilities/tasks (2025-11-25), Task.
type Task struct {
	// ID identifies the task at its server.
	ID string
	// Status is the task's status.
	Status Status
	// Message describes the status for people; it may be empty.
	Message string
	// Created and Updated are the times of the task's creation and of its last change.
	Created, Updated time.Time
	// TTL is how long after Created the server keeps the task; 0 if it does not say, or sets no
	// limit.
	TTL time.Duration
	// PollInterval is the shortest interval at which the server wants to be polled; 0 if it does
	// not say.
	PollInterval time.Duration
	// InputRequests are the open input requests of a task with [StatusInputRequired], by their
	// keys. Servers of revision 2025-11-25 do not return them.
	InputRequests map[string]mcp.InputRequest
	// Result is the result of a completed task as JSON. In revision 2025-11-25 a task with
	// [StatusFailed] carries it, too, if the result has IsError.
	Result json.RawMessage
	// Error is the error of a task with [StatusFailed], if the server returned it.
	Error *mcp.Error
}
