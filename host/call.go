package host

import (
	"context"
	"encoding/json"

	"github.com/patchbay-mcp/patchbay/host/internal/approve"
	"github.com/patchbay-mcp/patchbay/host/internal/catalogue"
	"github.com/patchbay-mcp/patchbay/host/internal/round"
	"github.com/patchbay-mcp/patchbay/host/internal/task"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// A call is one request of a caller to one server, from routing to response. It belongs to one
// goroutine. Each field names the stages that write it; the fields before request are written by routing.
type call struct {
	view   *View // the caller
	kind   policy.ActionKind
	pool   *pool           // the connections of the server; sendCall replaces a pool that was removed
	target string          // name or URI at the server; empty for a method without an item
	item   *catalogue.Item // nil without an item
	// local serves the call in the host; nil means that the server does.
	local func(ctx context.Context) (mcp.Result, error)
	// own means that the host serves its own resource, about which the policy decided before.
	own bool
	// suspended means that the call answers a question of a server that no longer lists the item.
	suspended bool
	// quarantined refuses the call after the policy: the definition of its item is not approved.
	quarantined error
	task        *task.Task // the task that the call is about; nil for other calls

	request   *mcp.Request     // replaced, never changed in place: hideArguments, approveCall
	recording *recording       // observeCall; nil without a Recorder
	policy    policy.Policy    // authorizeCall; nil without a policy
	action    *policy.Action   // authorizeCall; nil without a policy and a Recorder
	approval  *approve.Request // authorizeCall; nil without a policy
	taskCall  *task.Call       // beginTask; nil for a call that cannot become a task
	sent      *mcp.Request     // beginTask: the request in the form of the server; nil if equal to request
	served    served           // sendCall, taskResult
	earlier   *earlier         // see continues; nil for a call that begins
}

// served identifies the connection that served a call. It is zero for a call that the host served.
type served struct {
	conn      *conn
	round     round.State // what the next round of the call must know
	published bool        // the result is in the form of the caller already
}

// isRaw reports whether a result is in the form of the server.
func (s *served) isRaw() bool { return s.conn != nil && !s.published }

// earlier is the earlier round that a request continues, decrypted once for each form of the request.
type earlier struct {
	request *mcp.Request
	state   round.State
	ok      bool
	err     error
}

// A next runs the rest of the pipeline.
type next func(ctx context.Context, c *call) (mcp.Result, error)

// A stage wraps the rest of the pipeline. It works on the request before it calls next, and must not
// change a result: only steps do.
type stage func(next next) next

// A step treats the result or the error of a call. It must ignore the types of results that it does not
// treat.
type step func(ctx context.Context, c *call, res mcp.Result, failed error) (mcp.Result, error)

// chain returns the pipeline of stages before a last function.
func chain(last next, stages ...stage) next {
	for n := len(stages) - 1; n >= 0; n-- {
		last = stages[n](last)
	}
	return last
}

// definition returns the definition as the server sent it, or nil without an item.
func (c *call) definition() json.RawMessage {
	if c.item == nil {
		return nil
	}
	return c.item.Raw
}

// continues returns the earlier round of the call. ok is false for a call that begins.
func (c *call) continues() (st round.State, ok bool, err error) {
	if !round.Continues(c.request) {
		return st, false, nil
	}
	if e := c.earlier; e == nil || e.request != c.request {
		c.earlier = &earlier{request: c.request}
		c.earlier.state, c.earlier.ok, c.earlier.err = c.view.openState(c.request, c)
	}
	return c.earlier.state, c.earlier.ok, c.earlier.err
}

// hideArguments removes arguments that the configuration hides from callers.
func (h *Host) hideArguments(next next) next {
	return func(ctx context.Context, c *call) (mcp.Result, error) {
		if c.item != nil {
			c.request = withoutHidden(c.request, c.item)
		}
		return next(ctx, c)
	}
}

// withoutHidden returns the request without the arguments that the configuration hides.
func withoutHidden(req *mcp.Request, item *catalogue.Item) *mcp.Request {
	hidden := item.HiddenArguments()
	arguments, ok := req.Param("arguments")
	if !ok || len(hidden) == 0 {
		return req
	}
	for _, name := range hidden {
		arguments = jsonscan.Without(arguments, name)
	}
	inner := *req
	inner.Params = jsonscan.WithMember(req.Params, "arguments", arguments)
	return &inner
}

// mustJSON returns the JSON of a value of this package.
func mustJSON(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // no such type is used
	}
	return b
}
