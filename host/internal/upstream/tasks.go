package upstream

import (
	"time"

	"github.com/patchbay-mcp/patchbay/host/internal/call"
	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/mcp"
)

const (
	// maxTaskTime is how long a task keeps its connection, also if the server keeps it longer.
	maxTaskTime = 24 * time.Hour
	// maxTaskID bounds the id of such a task, in bytes.
	maxTaskID = 1 << 10
)

// noteTask records a task that a result creates or reports as ended. Spec: tasks extension
// (2026-07-28); basic/utilities/tasks (2025-11-25).
func (s *Conn) noteTask(res mcp.RawResult) {
	object := []byte(res)
	created, _ := jsonscan.Get(res, "task")
	if jsonscan.IsObject(created) && res.ResultType() == call.ResultTask { // of 2025-11-25
		object = created
	}
	raw, ok := jsonscan.Get(object, "taskId")
	if !ok {
		return
	}
	id, err := jsonscan.Unquote(raw)
	status, _ := jsonscan.Get(object, "status")
	if err != nil || status == nil || len(id) > maxTaskID {
		return
	}
	keep := maxTaskTime
	ttl, ok := jsonscan.Get(object, "ttlMs")
	if !ok {
		ttl, _ = jsonscan.Get(object, "ttl") // of 2025-11-25
	}
	if d, err := time.ParseDuration(string(ttl) + "ms"); err == nil && d >= 0 {
		keep = min(keep, d)
	}
	switch string(status) {
	case `"completed"`, `"failed"`, `"cancelled"`:
		s.EndTask(id)
	default:
		s.KeepForTask(id, time.Now().Add(keep))
	}
}
