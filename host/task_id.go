package host

import (
	"encoding/json"
	"fmt"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// maxHandle bounds the id of a task that a caller receives, in bytes. Clients send it in a header.
const maxHandle = 512

// errUnknownTask is the only answer to an id that this host has not issued to the caller. It does not
// say what is wrong.
var errUnknownTask = mcp.Errorf(mcp.CodeInvalidParams, "invalid params.taskId: unknown task")

// A taskID is the content of the id of a task, as a caller knows it. Nothing else is stored.
type taskID struct {
	Server string `json:"s"`
	Class  string `json:"c,omitzero"` // of the instance
	ID     string `json:"i,omitzero"` // at the server
	// Instance is the id of the connection, if each call has one of its own.
	Instance string `json:"n,omitzero"`
	Kept     string `json:"k,omitzero"` // of a result that the host keeps; see [keptTasks]
}

// A task is a task that a caller may use.
type task struct {
	taskID
	pool   *pool
	handle string // the id as the caller knows it
}

func taskBound(c *Caller) []string { return []string{"task", c.principal()} }

// newTask returns the task of a caller with an id of a server.
func (v *View) newTask(p *pool, id taskID) (*task, error) {
	id.Server = p.up.name
	plain, err := json.Marshal(id)
	if err != nil {
		return nil, err
	}
	handle := v.host.states.ring.SealTextStable(plain, taskBound(v.caller)...)
	if id.ID == "" && id.Kept == "" || len(handle) > maxHandle {
		return nil, &Error{Code: CodeInvalidResult, Server: p.up.name, MayHaveRun: true,
			Err: fmt.Errorf("the id of a task has %d bytes, want 1 to about 250", len(id.ID))}
	}
	return &task{id, p, handle}, nil
}

// openTask returns the task with an id that this host has issued to the caller, if the caller may
// use its server.
func (v *View) openTask(handle string) (*task, error) {
	if len(handle) > maxHandle {
		return nil, errUnknownTask
	}
	plain, _, err := v.host.states.ring.OpenText(handle, taskBound(v.caller)...)
	t := &task{handle: handle}
	if err != nil || json.Unmarshal(plain, &t.taskID) != nil {
		return nil, errUnknownTask
	}
	for _, p := range v.pools() {
		if p.up.name == t.Server {
			t.pool = p
			return t, nil
		}
	}
	return nil, errUnknownTask
}

// taskOf returns the task that a request names.
func (v *View) taskOf(req *mcp.Request) (*task, error) {
	raw, _ := req.Param("taskId")
	handle, err := jsonscan.Unquote(raw)
	if err != nil {
		return nil, errUnknownTask
	}
	return v.openTask(handle)
}
