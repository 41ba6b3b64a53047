// Package call contains the value that passes through the stages of a call, and the types of stages.
//
// A stage knows the call and the values that it was made with. A stage that needs more of the server or of the
// caller's view than [Pool] and [View] declares an interface of its own, which the value in the call must
// implement: so no stage knows another stage, and no package below a stage knows the call.
package call

import (
	"context"
	"encoding/json"

	"github.com/patchbay-mcp/patchbay/host/event"
	"github.com/patchbay-mcp/patchbay/host/internal/catalogue"
	"github.com/patchbay-mcp/patchbay/host/internal/round"
	"github.com/patchbay-mcp/patchbay/host/internal/server"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// Methods and a type of results of extensions, whose requests and results stages tell apart.
const (
	MethodSkillList     = "skills/list"
	MethodSkillGet      = "skills/get"
	MethodDirectoryRead = "resources/directory/read"
	MethodEventsPoll    = "events/poll"
	ResultTask          = "task" // the result of a call that became a task
)

// A View is the caller's side of a call.
type View interface {
	// Caller returns who asks.
	Caller() *policy.Caller
	// Principal identifies the caller for limits and servers: all callers without a principal are
	// the same local user.
	Principal() string
	// OpenState returns the earlier round that a request continues. ok is false for a request that begins
	// a call.
	OpenState(req *mcp.Request, c *Call) (st round.State, ok bool, err error)
}

// A Pool contains the connections to a server that serve the caller.
type Pool interface {
	// Name returns the name of the server in the configuration.
	Name() string
	// Entry returns the configuration of the server. A reload may replace it during a call.
	Entry() *server.Server
}

// A Call is a request of a caller to a server, from routing to response. It belongs to a single
// goroutine. Each field must be written only by the package that its comment names.
type Call struct {
	View   View              // routing
	Pool   Pool              // routing; forwarding replaces the pool of a server that was removed
	Kind   policy.ActionKind // routing
	Target string            // routing: the name or URI at the server; empty for a method without an item
	Item   *catalogue.Item   // routing; nil without an item
	// Local serves the call in the host; nil means that the server does. Written by routing.
	Local func(ctx context.Context) (mcp.Result, error)
	// Own means that the host serves its own resource, about which the policy decided before. Written by
	// routing.
	Own bool
	// Suspended means that the call answers a question of a server that no longer lists the item. Written
	// by routing.
	Suspended bool
	// Quarantined refuses the call after the policy: the definition of its item is not approved. Written by
	// routing.
	Quarantined error
	// About is the task that the call is about; nil for other calls. Written by routing.
	About *Task

	Request *mcp.Request // replaced, never changed in place

	Record    *event.Record    // observe; nil without a Recorder
	IDs       IDs              // observe: makes the ID of a call that begins
	Policy    policy.Policy    // authorize; nil without a policy
	Server    *server.Server   // authorize: the configuration about which the policy decided; nil without a policy
	Action    *policy.Action   // authorize; nil without a policy and a Recorder
	Decision  *policy.Decision // authorize; nil without a policy
	Approval  Approval         // approve; zero without an approval
	Task      TaskCall         // task; nil for a call that cannot become a task
	Sent      *mcp.Request     // task: the request in the form of the server; nil if equal to Request
	Served    Served           // forwarding
	Intended  bool             // observe: the Recorder stored the intent
	Published bool             // task: the result is in the form of the caller already

	earlier *earlier // see Continues
}

// IDs make the IDs of calls.
type IDs interface{ Next() string }

// A Task identifies a task, and the tool that was called.
type Task struct {
	Server, Tool string
	Digest       string // of the tool's definition, as package task writes it
}

// An Approval is the approval of a call by a user or a grant.
type Approval struct {
	Binding string // identifies the request that is approved
	Nonce   string // identifies the approval, which is for one request; empty without an approval
	// Begins means that the request contains an answer for the host: the server never received any part of
	// it.
	Begins bool
}

// A TaskCall is a call that may become a task. Package task implements it.
type TaskCall interface {
	// DeclaresTasks reports whether the host must declare the tasks extension to the server.
	DeclaresTasks() bool
}

// Served identifies the connection that served a call. It is zero for a call that the host served.
type Served struct {
	ID      string   // identifies the connection
	Class   string   // the class of connections that a next round requires
	Roots   []string // the questions of the round that the configuration answers
	Session bool     // the connection has a session
	Single  bool     // the connection serves this call only
}

// earlier is the earlier round that a request continues, decrypted once for each form of the request.
type earlier struct {
	request *mcp.Request
	state   round.State
	ok      bool
	err     error
}

// A Next runs the rest of the pipeline.
type Next func(ctx context.Context, c *Call) (mcp.Result, error)

// A Stage wraps the rest of the pipeline. It works on the request before it calls next, and must not
// change a result: only steps do.
type Stage func(next Next) Next

// A Step treats the result or the error of a call. It must ignore the types of results that it does not
// treat.
type Step func(ctx context.Context, c *Call, res mcp.Result, failed error) (mcp.Result, error)

// Chain returns the pipeline of stages before a last function.
func Chain(last Next, stages ...Stage) Next {
	for n := len(stages) - 1; n >= 0; n-- {
		last = stages[n](last)
	}
	return last
}

// SetRequest replaces the request: by a request without hidden arguments, or with the arguments that a user
// approved. A request must not be changed in place.
func (c *Call) SetRequest(req *mcp.Request) { c.Request = req }

// Apply returns a stage that runs steps on the result or the error of a call.
func Apply(steps ...Step) Stage {
	return func(next Next) Next {
		return func(ctx context.Context, c *Call) (mcp.Result, error) {
			res, err := next(ctx, c)
			for _, step := range steps {
				res, err = step(ctx, c, res, err)
			}
			return res, err
		}
	}
}

// IsRaw reports whether the result of the call is in the form of the server.
func (c *Call) IsRaw() bool { return c.Served.ID != "" && !c.Published }

// Definition returns the definition as the server sent it, or nil without an item.
func (c *Call) Definition() json.RawMessage {
	if c.Item == nil {
		return nil
	}
	return c.Item.Raw
}

// ID returns the ID that all rounds of the call share in records, or "" without a Recorder.
func (c *Call) ID() string {
	if c.Record == nil {
		return ""
	}
	if c.Record.Call == "" {
		if st, _, err := c.Continues(); err == nil {
			c.Record.Call = st.Call
		}
	}
	if c.Record.Call == "" {
		c.Record.Call = c.IDs.Next()
	}
	return c.Record.Call
}

// Continues returns the earlier round of the call. ok is false for a call that begins.
func (c *Call) Continues() (st round.State, ok bool, err error) {
	if !round.Continues(c.Request) {
		return st, false, nil
	}
	if e := c.earlier; e == nil || e.request != c.Request {
		c.earlier = &earlier{request: c.Request}
		c.earlier.state, c.earlier.ok, c.earlier.err = c.View.OpenState(c.Request, c)
	}
	return c.earlier.state, c.earlier.ok, c.earlier.err
}
