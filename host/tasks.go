package host

import (
	"strconv"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/mcp"
)

const (
	// maxTaskTime is how long a task keeps its connection, also if the server keeps it longer.
	maxTaskTime = 24 * time.Hour
	// maxTasks bounds the tasks that are known of a connection. Further ones do not keep it.
	maxTasks = 1000
	// maxTaskID bounds the id of such a task, in bytes.
	maxTaskID = 1 << 10
)

// tasks are the tasks that a connection has created, by id, with the time when they expire. They run
// in the process of the server, perhaps long after the request that created them.
type tasks map[string]time.Time

// running reports whether a task may still run.
func (t tasks) running(now time.Time) bool {
	running := false
	for id, until := range t {
		if now.After(until) {
			delete(t, id)
			continue
		}
		running = true
	}
	return running
}

// noteTask records the task that a result has created, or that it reports as ended. Spec: tasks
// extension (2026-07-28); basic/utilities/tasks (2025-11-25).
func (s *start) noteTask(res mcp.RawResult) {
	task := []byte(res)
	created, _ := jsonscan.Get(res, "task")
	if jsonscan.IsObject(created) && res.ResultType() == resultTask { // of 2025-11-25
		task = created
	}
	raw, ok := jsonscan.Get(task, "taskId")
	if !ok {
		return
	}
	id, err := jsonscan.Unquote(raw)
	status, _ := jsonscan.Get(task, "status")
	if err != nil || status == nil || len(id) > maxTaskID {
		return
	}
	keep := maxTaskTime
	ttl, ok := jsonscan.Get(task, "ttlMs")
	if !ok {
		ttl, _ = jsonscan.Get(task, "ttl") // of 2025-11-25
	}
	if ms, err := strconv.ParseInt(string(ttl), 10, 64); err == nil && ms >= 0 {
		keep = min(keep, time.Duration(min(ms, int64(maxTaskTime/time.Millisecond)))*time.Millisecond)
	}
	u := s.in.pool.up
	u.mu.Lock()
	defer u.mu.Unlock()
	switch string(status) {
	case `"completed"`, `"failed"`, `"cancelled"`:
		delete(s.tasks, id)
	default:
		if s.tasks == nil {
			s.tasks = tasks{}
		}
		if _, known := s.tasks[id]; known || len(s.tasks) < maxTasks {
			s.tasks[id] = time.Now().Add(keep)
		}
	}
}
