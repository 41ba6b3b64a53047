package host

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"sync"

	"github.com/patchbay-mcp/patchbay/internal/catalogue"
	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/internal/lru"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// maxHandle bounds the id of a task that a caller receives, in bytes. Clients send it in a header.
const maxHandle = 1024

// errUnknownTask is the only answer to an id that this host has not issued to the caller. It does not
// say what is wrong.
var errUnknownTask = mcp.Errorf(mcp.CodeInvalidParams, "invalid params.taskId: unknown task")

// A taskID is the content of the id of a task, as a caller knows it.
type taskID struct {
	Server string `json:"s"`
	Class  string `json:"c,omitzero"` // of the instance
	ID     string `json:"i,omitzero"` // at the server
	// Instance is the id of the connection, if each call has one of its own.
	Instance string `json:"n,omitzero"`
	Kept     string `json:"k,omitzero"` // of a result that the host keeps; see [keptTasks]
	// Tool is the name of the tool at the server, and Digest the digest of its definition. They are
	// empty in ids that older versions have issued, and for tasks that only the server has listed.
	Tool   string `json:"t,omitzero"`
	Digest string `json:"d,omitzero"` // in base64
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
	if len(handle) > maxHandle && id.Tool != "" { // the call has run: rules treat its tool as unknown
		id.Tool, id.Digest = "", ""
		return v.newTask(p, id)
	}
	if id.ID == "" && id.Kept == "" || len(handle) > maxHandle {
		return nil, &Error{Code: CodeInvalidResult, Server: p.up.name, MayHaveRun: true,
			Err: fmt.Errorf("the id of a task has %d bytes, want 1 to about 600", len(id.ID))}
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

// resultAction returns the action about the result of a request. If the request is about a task, the action
// names the tool that was called, with the tool's definition unless the definition has changed.
func (v *View) resultAction(ctx context.Context, a *Action, t *task) *Action {
	if t == nil {
		return a
	}
	about := *a
	about.Target, about.Definition, about.Digest = t.Tool, nil, [32]byte{}
	m := v.latest()
	if m == nil { // after a restart
		m, _ = v.current(ctx) // if this fails, the definition is unknown
	}
	if m != nil && t.Tool != "" {
		item := m.catalogue.Original(catalogue.Tools, t.Server, t.Tool)
		if item != nil && digestText(item) == t.Digest {
			about.Definition, about.Digest = item.Raw, item.Digest
		}
	}
	return &about
}

func digestText(item *catalogue.Item) string {
	return base64.RawStdEncoding.EncodeToString(item.Digest[:])
}

const (
	// maxIssuedTasks limits the tasks of one principal that issuedTasks holds.
	maxIssuedTasks = 200
	// maxIssuers limits the principals with such tasks: 200,000 tasks occupy about 100 MB.
	maxIssuers = 1000
)

// issuedTasks holds the tasks that calls have created, so that a task in a list has the same id as in the
// response to its call, which contains the tool. The tool of other listed tasks is unknown. It is safe for
// concurrent use.
type issuedTasks struct {
	mu sync.Mutex // guards by
	by lru.Map[string, lru.Map[taskID, taskID]]
}

// listKey returns the part of the id that is known from a list of the server.
func (id taskID) listKey() taskID { return taskID{Server: id.Server, Class: id.Class, ID: id.ID} }

// add adds a task of a principal.
func (a *issuedTasks) add(principal string, id taskID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	own := a.by.Get(principal)
	if own == nil {
		a.by.Max, own = maxIssuers, &lru.Map[taskID, taskID]{Max: maxIssuedTasks}
		a.by.Put(principal, own)
	}
	own.Put(id.listKey(), &id)
}

// find returns the id that add recorded for a listed task of a principal, or else listed.
func (a *issuedTasks) find(principal string, listed taskID) taskID {
	a.mu.Lock()
	defer a.mu.Unlock()
	if own := a.by.Get(principal); own != nil {
		if id := own.Get(listed.listKey()); id != nil {
			return *id
		}
	}
	return listed
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
