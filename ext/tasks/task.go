package tasks

import (
	"encoding/json"
	"time"

	"github.com/patchbay-mcp/patchbay/mcp"
)

// ID is the name of the extension, under which both sides declare it.
//
// Spec: tasks extension, Extension Identifier.
const ID = "io.modelcontextprotocol/tasks"

// A Status says where a task stands.
//
// Spec: tasks extension, Task Status.
type Status string

// The states of a task. The last three are final.
const (
	StatusWorking       Status = "working"        // its handler runs, or is about to
	StatusInputRequired Status = "input_required" // it waits for answers
	StatusCompleted     Status = "completed"      // its result is there
	StatusFailed        Status = "failed"         // it ended with an error
	StatusCancelled     Status = "cancelled"      // the client called it off
)

// Final reports whether a task with this status never gets another one.
func (s Status) Final() bool {
	return s == StatusCompleted || s == StatusFailed || s == StatusCancelled
}

// A Task is what a server says of a task at one moment.
//
// In revision 2025-11-25 a tool result with IsError makes the task fail, in the extension it completes it. Neither is turned
// into the other: Status is the server's word.
//
// Spec: tasks extension, Tasks; basic/utilities/tasks (2025-11-25), Task.
type Task struct {
	// ID names the task at its server, for its owner alone.
	ID string
	// Status is the task's status.
	Status Status
	// Message describes the status for people; it may be empty.
	Message string
	// Created and Updated are when the task was made and when it was last changed, to the millisecond.
	Created, Updated time.Time
	// TTL is for how long after Created the server keeps the task; 0 when it says nothing or keeps it for good.
	TTL time.Duration
	// PollInterval is how often the server wants to be asked at most; 0 when it does not say.
	PollInterval time.Duration
	// InputRequests are the open questions of a task with [StatusInputRequired], by their keys. Tasks of 2025-11-25 do not
	// show them.
	InputRequests map[string]mcp.InputRequest
	// Result is the result of a completed task as JSON. Tasks of 2025-11-25 have it with [StatusFailed] too, if a tool result
	// with IsError is why.
	Result json.RawMessage
	// Error is why a task failed, if the server says so.
	Error *mcp.Error
}
