package tasks

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/patchbay-mcp/patchbay/mcp"
)

// ToolOptions configures how the calls of a tool run as tasks. With the zero value a call is a task
// if the client can take a task, and an ordinary call otherwise.
type ToolOptions struct {
	// Required makes every call a task. A client that cannot take tasks gets an error, and the tool
	// is not listed for a client whose revision of the protocol lacks tasks.
	Required bool
	// ManualStart leaves it to the handler whether and when a call becomes a task: the handler
	// calls [Begin].
	ManualStart bool
	// Restartable allows [Server.Recover] to run the handler again, a few times at most, if the end
	// of the process interrupted it: its effects may happen twice. Without it an interrupted task
	// fails. A handler that is running when [Server.Close] is called counts as interrupted if it
	// returns the error of its context.
	Restartable bool
	// TTL is how long after its creation a task of this tool is kept. A client of revision
	// 2025-11-25 may ask for less. Default: that of [Options].
	TTL time.Duration
	// PollInterval is the shortest interval at which clients are asked to poll a task. Default:
	// that of [Options].
	PollInterval time.Duration
}

// A taskTool is a tool whose calls run as tasks.
type taskTool struct {
	name         string
	registration *mcp.Registration[mcp.Tool]
	ToolOptions
}

// AddTool registers a function as [mcp.AddTool] does, as a tool whose calls may run as tasks: the
// client gets a response at once and fetches the result later. The same function serves ordinary
// calls. In a task:
//
//   - A question asked with [mcp.Ask] waits for as long as the task is kept. The run ends with the
//     question and a new run begins with the answer. The server may restart meanwhile.
//   - Progress reported with [mcp.Progress] becomes the task's status message. Log messages are
//     dropped.
//   - The context ends when the client cancels the task (with the cause [mcp.ErrCancelled]), when
//     the task's time to live is over, or when the [Server] is closed ([mcp.ErrShutdown]). It does
//     not end when the client disconnects.
//   - The principal is the caller whose call created the task, with its names and scopes but without
//     the claims of its token.
//
// The options may be nil. AddTool panics if the options are invalid, and where [mcp.AddTool] does.
//
// Spec: tasks extension, Task Creation; basic/utilities/tasks (2025-11-25), Tool-Level Negotiation.
func AddTool[In, Out any](
	s *Server, t *mcp.Tool, opts *ToolOptions, f func(context.Context, In) (Out, error),
) *mcp.Registration[mcp.Tool] {
	if t == nil || f == nil {
		panic("tasks: AddTool: the tool or its function is nil")
	}
	tool := &taskTool{name: t.Name}
	if opts != nil {
		tool.ToolOptions = *opts
	}
	if err := checkTimes(tool.TTL, tool.PollInterval); err != nil {
		panic(fmt.Sprintf("tasks: AddTool %q: %v", t.Name, err))
	}
	tool.TTL = cmp.Or(tool.TTL, s.opts.TTL)
	tool.PollInterval = cmp.Or(tool.PollInterval, s.opts.PollInterval)
	r := mcp.AddTool(s.server, t, func(ctx context.Context, in In) (Out, error) {
		if err := startHandler(ctx, tool); err != nil {
			var zero Out
			return zero, err
		}
		out, err := f(ctx, in)
		s.endHandler(ctx, err)
		return out, err
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	tool.registration = r
	s.tools[t.Name] = tool
	return r
}

// tool returns the tool of that name if it runs as tasks, and nil otherwise.
func (s *Server) tool(name string) *taskTool {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.tools[name]
	if t != nil && t.registration.Removed() {
		delete(s.tools, name)
		return nil
	}
	return t
}

func (s *Server) hasTools() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.tools {
		if !t.registration.Removed() {
			return true
		}
	}
	return false
}

var errBegun = errors.New("tasks: the call becomes a task; the handler has to return this error")

// Begin makes a task of the call that ctx belongs to, in a handler of a tool with
// [ToolOptions.ManualStart]. It returns an error, which the handler must return. The handler then
// runs again within the task, where Begin returns nil. The code before Begin therefore runs more
// than once, as with [mcp.Ask]: keep it free of effects, or use [mcp.Once]. Answers to questions
// asked before Begin are available in the task.
//
// If the client cannot take a task, Begin returns nil and the call goes on as an ordinary call. If
// the call was cancelled, Begin returns the cause of ctx.
func Begin(ctx context.Context) error {
	if runFrom(ctx) != nil {
		return nil
	}
	c := callFrom(ctx)
	switch {
	case c == nil || c.tool.Load() == nil:
		return errors.New("tasks: Begin was called outside a handler registered with tasks.AddTool")
	case !c.canBeTask:
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	c.begun.Store(true)
	return errBegun
}

// IDFrom returns the id of the task whose handler ctx belongs to, or "" outside a task. Anyone with
// the same principal who knows the id can read the task: protect it like the principal's data.
func IDFrom(ctx context.Context) string {
	if r := runFrom(ctx); r != nil {
		return r.id
	}
	return ""
}

// A pendingCall is a tools/call that may become a task.
type pendingCall struct {
	request    *mcp.Request
	form       serverForm
	canBeTask  bool                     // the client can take a task
	mustBeTask bool                     // the client asked for a task, which only revision 2025-11-25 allows
	refusal    *mcp.Error               // for a tool that is Required, if not canBeTask
	ttl        time.Duration            // that the client asked for; 0 if not set
	requested  *taskTool                // the tool, if mustBeTask
	tool       atomic.Pointer[taskTool] // the tool, once its handler was reached
	begun      atomic.Bool
}

type pendingCallKey struct{}

// callFrom returns the call that ctx belongs to directly. A handler may call another server in the
// same process with its own context.
func callFrom(ctx context.Context) *pendingCall {
	c, _ := ctx.Value(pendingCallKey{}).(*pendingCall)
	if c == nil || mcp.RequestFrom(ctx) != c.request {
		return nil
	}
	return c
}

type runKey struct{}

// runFrom returns the run that ctx belongs to directly, as callFrom does.
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

// startHandler is called before the function of a tool. By then the caller is known to be allowed
// to call the tool, and the arguments are valid. An error replaces the function's.
func startHandler(ctx context.Context, t *taskTool) error {
	if runFrom(ctx) != nil {
		return nil
	}
	c := callFrom(ctx)
	if c == nil { // other middleware replaced the request
		if t.Required {
			return fmt.Errorf("tool %q runs as a task only, and cannot be called in this way", t.name)
		}
		return nil
	}
	c.tool.Store(t)
	switch {
	case t.Required && !c.canBeTask:
		return c.refusal
	case t.ManualStart:
		return nil
	}
	return Begin(ctx)
}

// endHandler is called after the function of a tool, with its error.
func (s *Server) endHandler(ctx context.Context, err error) {
	if r := runFrom(ctx); r != nil {
		cause := context.Cause(ctx)
		r.interrupted.Store(err != nil && cause != nil && (errors.Is(err, cause) || errors.Is(err, context.Canceled)))
		return
	}
	if c := callFrom(ctx); c != nil && c.begun.Load() && err == nil {
		s.log.WarnContext(ctx, "tasks: a handler did not return the error of Begin; it runs a second time, in the task",
			"tool", c.tool.Load().name)
	}
}
