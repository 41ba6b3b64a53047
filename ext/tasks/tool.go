package tasks

import (
	"context"
	stdjson "encoding/json"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/patchbay-mcp/patchbay/mcp"
)

// ToolOptions says how the calls of a tool run as tasks. The zero value is a tool whose calls are tasks wherever the client
// can take one, and ordinary calls elsewhere.
type ToolOptions struct {
	// Required makes every call a task. A client that cannot take one is refused, and one whose revision of the protocol has
	// no tasks does not see the tool.
	Required bool
	// Manual leaves it to the handler whether and when a call becomes a task: it calls [Begin].
	ManualStart bool
	// Again says that a run may be repeated if the end of the process cut it off: that the handler's effects are safe to have
	// twice, or are within [mcp.Once] ahead of a question. Without it such a task fails. Runs that cut off process after
	// process are not repeated for ever. A handler that [Server.Close] finds running is cut off if it returns the error of its
	// context; whatever else it comes to stands.
	Restartable bool
	// TTL is for how long after its creation a task of this tool is kept. A client of revision 2025-11-25 may ask for less.
	// Default: that of [Options].
	TTL time.Duration
	// PollInterval is how often clients are told to ask for a task at most. Default: that of [Options].
	PollInterval time.Duration
}

// An offer is a tool that runs as tasks.
type offer struct {
	name         string
	registration *mcp.Registration[mcp.Tool]
	ToolOptions
}

// AddTool registers a function as [mcp.AddTool] does, as a tool whose calls may run as tasks: the client is answered at once
// and asks for the result later. The function is the same in both cases. In a task,
//
//   - what it asks with [mcp.Ask] waits for as long as the task is kept. The run ends with the question and a new one begins
//     with the answer, as ever; nothing runs meanwhile, and a restart of the server does no harm.
//   - what it tells with [mcp.Progress] is the task's status message, log messages are dropped.
//   - its context ends when the client calls the task off (with the cause [mcp.ErrCancelled]), when the task's time is over, or
//     when the manager is closed ([mcp.ErrShutdown]), and never because the client has gone away.
//   - the caller is the one who made the task. Claims of its token are not there: only the names and the scopes are kept.
//
// The options may be nil. AddTool panics if the tool cannot work.
//
// Spec: tasks extension, Task Creation; basic/utilities/tasks (2025-11-25), Tool-Level Negotiation.
func AddTool[In, Out any](m *Server, t *mcp.Tool, opts *ToolOptions, f func(context.Context, In) (Out, error)) *mcp.Registration[mcp.Tool] {
	if t == nil || f == nil {
		panic("tasks: AddTool: the tool or its function is nil")
	}
	o := &offer{name: t.Name}
	if opts != nil {
		o.ToolOptions = *opts
	}
	if err := checkTimes(o.TTL, o.PollInterval); err != nil {
		panic(fmt.Sprintf("tasks: AddTool %q: %v", t.Name, err))
	}
	if o.TTL == 0 {
		o.TTL = m.opts.TTL
	}
	if o.PollInterval == 0 {
		o.PollInterval = m.opts.PollInterval
	}
	r := mcp.AddTool(m.server, t, func(ctx context.Context, in In) (Out, error) {
		if err := arrive(ctx, o); err != nil {
			var none Out
			return none, err
		}
		out, err := f(ctx, in)
		m.depart(ctx, err)
		return out, err
	})
	m.mu.Lock()
	defer m.mu.Unlock()
	o.registration = r
	m.tools[t.Name] = o
	return r
}

// offered returns the tool of a name that runs as tasks, nil if there is none any more.
func (s *Server) offered(tool string) *offer {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.tools[tool]
	if o != nil && o.registration.Removed() {
		delete(s.tools, tool)
		return nil
	}
	return o
}

// offers reports whether any tool runs as tasks.
func (s *Server) offers() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range s.tools {
		if !o.registration.Removed() {
			return true
		}
	}
	return false
}

// errBegun ends the run of a handler that goes on within a task.
var errBegun = errors.New("tasks: the call becomes a task; the handler returns this error and is entered again in the task")

// Begin makes a task of the call of ctx, in a handler of a tool with [ToolOptions.ManualStart]. It returns an error that the
// handler returns in turn; then the client is told of the task, and the handler is entered again, within it, where Begin
// returns nil. So what comes before Begin runs more than once, as with [mcp.Ask]: keep it free of effects, or put it into
// [mcp.Once]. Questions before it belong to the call, and their answers are there in the task. A call that was given up
// becomes no task: Begin returns the cause of ctx.
//
// If the client cannot take a task, Begin returns nil and the call goes on as it is.
func Begin(ctx context.Context) error {
	if runFrom(ctx) != nil {
		return nil
	}
	c := callingFrom(ctx)
	switch {
	case c == nil || c.tool.Load() == nil:
		return errors.New("tasks: only a handler of a tool of this package begins a task")
	case !c.takes:
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	c.begun.Store(true)
	return errBegun
}

// IDFrom returns the id of the task whose handler ctx belongs to, empty if it is none. Whoever knows it, and is the same
// principal, can read the task: treat it like the principal's data.
func IDFrom(ctx context.Context) string {
	if r := runFrom(ctx); r != nil {
		return r.id
	}
	return ""
}

// A calling is a client's tools/call that may become a task.
type calling struct {
	request *mcp.Request
	takes   bool                  // the client can take a task
	wants   bool                  // the client asked for one
	refusal *mcp.Error            // of a tool that runs as a task only, if not
	ttl     time.Duration         // that the client wishes; 0 for none
	offer   *offer                // that the client asked for as a task, nil if it did not
	tool    atomic.Pointer[offer] // whose handler was reached
	begun   atomic.Bool
}

type callingKey struct{}

// callingFrom returns the calling that ctx belongs to, and not one further out: a handler may call another server within
// the process, with its own context.
func callingFrom(ctx context.Context) *calling {
	c, _ := ctx.Value(callingKey{}).(*calling)
	if c == nil || mcp.RequestFrom(ctx) != c.request {
		return nil
	}
	return c
}

type runKey struct{}

// runFrom returns the run that ctx belongs to, and not one further out.
func runFrom(ctx context.Context) *run {
	r, _ := ctx.Value(runKey{}).(*run)
	if r == nil {
		return nil
	}
	if req := mcp.RequestFrom(ctx); req == nil || req.Detached() != r.detached {
		return nil
	}
	return r
}

// arrive is the first thing that happens in the handler of a tool that runs as tasks: by then the caller may see the tool,
// and the arguments fit.
func arrive(ctx context.Context, o *offer) error {
	if runFrom(ctx) != nil {
		return nil
	}
	c := callingFrom(ctx)
	if c == nil { // middleware has put another request in its place
		if o.Required {
			return fmt.Errorf("tool %q runs as a task only, and cannot be called in this way", o.name)
		}
		return nil
	}
	c.tool.Store(o)
	switch {
	case o.Required && !c.takes:
		return c.refusal
	case o.ManualStart:
		return nil
	}
	return Begin(ctx)
}

// depart is the last thing that happens in the handler of a tool that runs as tasks.
func (s *Server) depart(ctx context.Context, err error) {
	if r := runFrom(ctx); r != nil {
		cause := context.Cause(ctx)
		r.gaveUp.Store(err != nil && cause != nil && (errors.Is(err, cause) || errors.Is(err, context.Canceled)))
		return
	}
	if c := callingFrom(ctx); c != nil && c.begun.Load() && err == nil {
		s.log.WarnContext(ctx, "tasks: a handler did not return the error of Begin: what it did is done again, in the task",
			"tool", c.tool.Load().name)
	}
}

// capability is the extension as clients declare it, for those that did not.
var capability = stdjson.RawMessage(`{"extensions":{"` + ID + `":{}}}`)
