package host

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"sync"

	"github.com/patchbay-mcp/patchbay/host/internal/catalogue"
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
	taskSender
	handle string // the id as the caller knows it
}

func (c *callerTasks) bound() []string { return []string{"task", c.principal} }

// newTask returns the task of a caller with an id of a server.
func (c *callerTasks) newTask(s taskSender, server string, id taskID) (*task, error) {
	id.Server = server
	plain, err := json.Marshal(id)
	if err != nil {
		return nil, err
	}
	handle := c.ring.SealTextStable(plain, c.bound()...)
	if len(handle) > maxHandle && id.Tool != "" { // the call has run: rules treat its tool as unknown
		id.Tool, id.Digest = "", ""
		return c.newTask(s, server, id)
	}
	if id.ID == "" && id.Kept == "" || len(handle) > maxHandle {
		return nil, &Error{Code: CodeInvalidResult, Server: server, MayHaveRun: true,
			Err: fmt.Errorf("the id of a task has %d bytes, want 1 to about 600", len(id.ID))}
	}
	return &task{id, s, handle}, nil
}

// open returns the task with an id that this host has issued to the caller, if the caller may
// use its server.
func (c *callerTasks) open(handle string) (*task, error) {
	if len(handle) > maxHandle {
		return nil, errUnknownTask
	}
	plain, _, err := c.ring.OpenText(handle, c.bound()...)
	found := &task{handle: handle}
	if err != nil || json.Unmarshal(plain, &found.taskID) != nil {
		return nil, errUnknownTask
	}
	if found.taskSender = c.sender(found.Server); found.taskSender == nil {
		return nil, errUnknownTask
	}
	return found, nil
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

// named returns the task that a request names.
func (c *callerTasks) named(req *mcp.Request) (*task, error) {
	raw, _ := req.Param("taskId")
	handle, err := jsonscan.Unquote(raw)
	if err != nil {
		return nil, errUnknownTask
	}
	return c.open(handle)
}
