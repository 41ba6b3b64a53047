package task

import (
	"encoding/base64"
	"encoding/json"
	"fmt"

	"github.com/patchbay-mcp/patchbay/host/hosterr"
	"github.com/patchbay-mcp/patchbay/host/internal/catalogue"
	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// maxHandle bounds the id of a task that a caller receives, in bytes. Clients send it in a header.
const maxHandle = 1024

// ErrUnknown is the only answer to an ID that this host has not issued to the caller. It must not
// reveal the reason.
var ErrUnknown = mcp.Errorf(mcp.CodeInvalidParams, "invalid params.taskId: unknown task")

// A Ref is the content of the ID of a task, as the caller knows it.
type Ref struct {
	Server string `json:"s"`
	Class  string `json:"c,omitzero"` // of the instance
	ID     string `json:"i,omitzero"` // at the server
	// Instance identifies the connection, if each call uses its own connection.
	Instance string `json:"n,omitzero"`
	Kept     string `json:"k,omitzero"` // of a result that the host keeps; see [keptTasks]
	// Tool is the name of the tool at the server, and Digest the digest of its definition. They are
	// empty in IDs of older versions, and for tasks that only the list of the server contains.
	Tool   string `json:"t,omitzero"`
	Digest string `json:"d,omitzero"` // in base64
}

// A Task is a task that the caller may use.
type Task struct {
	Ref
	Sender
	Handle string // the ID as the caller knows it
}

func (c *Caller) bound() []string { return []string{"task", c.Principal} }

// newTask returns the task of a caller with an id of a server.
func (c *Caller) newTask(s Sender, server string, id Ref) (*Task, error) {
	id.Server = server
	plain, err := json.Marshal(id)
	if err != nil {
		return nil, err
	}
	handle := c.Ring.SealTextStable(plain, c.bound()...)
	if len(handle) > maxHandle && id.Tool != "" { // the call ran, so rules must treat its tool as unknown
		id.Tool, id.Digest = "", ""
		return c.newTask(s, server, id)
	}
	if id.ID == "" && id.Kept == "" || len(handle) > maxHandle {
		return nil, &hosterr.Error{Code: hosterr.CodeInvalidResult, Server: server, MayHaveRun: true,
			Err: fmt.Errorf("the id of a task has %d bytes, want 1 to about 600", len(id.ID))}
	}
	return &Task{id, s, handle}, nil
}

// Open returns the task with an ID that this host issued to the caller, if the caller may use its
// server.
func (c *Caller) Open(handle string) (*Task, error) {
	if len(handle) > maxHandle {
		return nil, ErrUnknown
	}
	plain, _, err := c.Ring.OpenText(handle, c.bound()...)
	found := &Task{Handle: handle}
	if err != nil || json.Unmarshal(plain, &found.Ref) != nil {
		return nil, ErrUnknown
	}
	if found.Sender = c.Sender(found.Server); found.Sender == nil {
		return nil, ErrUnknown
	}
	return found, nil
}

// DigestText returns the digest of a definition as a Ref contains it.
func DigestText(item *catalogue.Item) string {
	return base64.RawStdEncoding.EncodeToString(item.Digest[:])
}

const (
	// maxIssuedTasks limits the tasks of a principal that the table holds.
	maxIssuedTasks = 200
	// maxIssuers limits the principals with such tasks.
	maxIssuers = 1000
)

// listKey returns the part of the id that is known from a list of the server.
func (id Ref) listKey() Ref { return Ref{Server: id.Server, Class: id.Class, ID: id.ID, Kept: id.Kept} }

// issuedRef returns the id that note recorded for a listed task of the caller, or else listed. In
// lists, a task must keep the ID that the response to the call contained, because the ID contains
// the tool.
func (c *Caller) issuedRef(listed Ref) Ref {
	c.mu.Lock()
	defer c.mu.Unlock()
	if own := c.issued.Get(c.Principal); own != nil {
		if k := own.Get(listed.listKey()); k != nil {
			return k.ref
		}
	}
	return listed
}

// Named returns the task that a request names.
func (c *Caller) Named(req *mcp.Request) (*Task, error) {
	raw, _ := req.Param("taskId")
	handle, err := jsonscan.Unquote(raw)
	if err != nil {
		return nil, ErrUnknown
	}
	return c.Open(handle)
}
