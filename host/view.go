package host

import (
	"context"
	"time"

	"github.com/patchbay-mcp/patchbay/host/internal/authorize"
	"github.com/patchbay-mcp/patchbay/host/internal/call"
	"github.com/patchbay-mcp/patchbay/host/internal/round"
	"github.com/patchbay-mcp/patchbay/host/internal/routes"
	"github.com/patchbay-mcp/patchbay/host/internal/skills"
	"github.com/patchbay-mcp/patchbay/host/internal/task"
	"github.com/patchbay-mcp/patchbay/host/internal/upstream"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcp/driver"
)

const methodToolsCall = "tools/call"

// A View contains everything that a caller may use: the tools, prompts and resources of the servers
// of its profile, as one [mcp.Handler]. The name of a tool or prompt is "server__name". A View
// serves clients of every revision, is a [driver.Listener], and is safe for concurrent use.
type View struct {
	host   *Host
	caller *policy.Caller
	// principal identifies the caller to servers and limits: all callers without a principal are
	// one local user.
	principal string
	changes   *mcp.Broadcaster
	target    func(*mcp.Request, error) string // observedTarget
	observed  driver.Server[*mcp.Request, mcp.Result, mcp.Observer]
	used      time.Time // guarded by the lock of the host

	table     *routes.Table
	skills    *skills.Reader
	tasks     *task.Caller
	decisions authorize.Cache
}

// Observer returns the observer of [Options]. Transports find it by this method, for sessions and
// refused requests.
func (v *View) Observer() mcp.Observer { return v.host.opts.Observer }

// ServerFrom returns the name of the server of a request, in the contexts that [Options].Observer gets of
// requests to servers, of their questions and their sessions. It is empty for requests of callers.
func ServerFrom(ctx context.Context) string { return upstream.ServerFrom(ctx) }

// A callView is a [call.View].
type callView View

func (v *callView) Caller() *policy.Caller { return v.caller }

func (v *callView) Principal() string { return v.principal }

func (v *callView) OpenState(req *mcp.Request, c *call.Call) (st round.State, ok bool, err error) {
	if raw, ok := req.Param("inputResponses"); ok && jsonscan.Kind(raw) != '{' {
		return st, false, mcp.Errorf(mcp.CodeInvalidParams, "invalid params.inputResponses: must be an object")
	}
	text, ok, err := round.StateOf(req)
	if !ok || err != nil {
		return st, ok, err
	}
	if st, err = v.host.states.Open(v.caller, req, text); err == nil && st.Server != c.Pool.Name() {
		err = round.ErrInvalid
	}
	return st, true, err
}

func (v *callView) IsSingle() bool { return v.table.Servers().Single }

// send sends a request through the pipeline, and returns the result for the caller.
func (v *View) send(ctx context.Context, req *mcp.Request, c *call.Call) (mcp.Result, error) {
	c.View, c.Request = (*callView)(v), req
	return v.host.calls(ctx, c)
}

// serverPool returns the pool that a server of a view is.
func serverPool(s routes.Server) *upstream.Pool {
	p, _ := s.(*upstream.Pool)
	return p
}

// poolNamed returns the pool of a present server, nil for an unknown name.
func (v *View) poolNamed(server string) *upstream.Pool {
	return serverPool(v.table.Servers().Named(server))
}
