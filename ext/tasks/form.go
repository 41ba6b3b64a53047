package tasks

import (
	"context"
	"encoding/json"
	"iter"

	"github.com/patchbay-mcp/patchbay/mcp"
)

// A serverForm is either of the two forms of tasks on the wire, as a server speaks it: the
// extension, or the tasks of revision 2025-11-25. It is chosen once for each request.
type serverForm interface {
	// call reads a tools/call.
	call(req *mcp.Request) (*pendingCall, error)
	// discover adds the capability of the form to the result of server/discover.
	discover(req *mcp.Request, res *mcp.DiscoverResult) *mcp.DiscoverResult
	// listTools adds how each tool runs as a task to the result of tools/list.
	listTools(res *mcp.ListToolsResult) *mcp.ListToolsResult
	// created returns the result of a call that became a task.
	created(j *job) mcp.Result

	// serve serves tasks/get, tasks/update, tasks/cancel, tasks/result or tasks/list.
	serve(ctx context.Context, req *mcp.Request) (mcp.Result, error)
}

func (s *Server) form(req *mcp.Request) serverForm {
	switch v := req.Revision(); {
	case v == revision2025:
		return server2025{serverNone{s}}
	case v > revision2025: // revisions are dates
		return serverExtension{serverNone{s}}
	}
	return serverNone{s}
}

// serverNone is the form of revisions before 2025-11-25, which define no tasks. The other two embed
// it for the methods that they lack.
type serverNone struct{ server *Server }

func (serverNone) call(req *mcp.Request) (*pendingCall, error) {
	return &pendingCall{request: req, refusal: mcp.Errorf(mcp.CodeInvalidRequest,
		"this tool runs as a task only, which takes protocol revision %s or later, not %s",
		revision2025, req.Revision())}, nil
}

func (serverNone) discover(_ *mcp.Request, res *mcp.DiscoverResult) *mcp.DiscoverResult { return res }

// listTools leaves out the tools that run as tasks only.
func (f serverNone) listTools(res *mcp.ListToolsResult) *mcp.ListToolsResult {
	out := *res
	out.Tools = make([]*mcp.Tool, 0, len(res.Tools))
	for _, t := range res.Tools {
		if tool := f.server.tool(t.Name); tool == nil || !tool.Required {
			out.Tools = append(out.Tools, t)
		}
	}
	return &out
}

func (serverNone) created(*job) mcp.Result { return nil }

func (serverNone) serve(_ context.Context, req *mcp.Request) (mcp.Result, error) {
	return nil, errNoMethod(req)
}

// errNoMethod is the error with which package mcp answers an unknown method.
func errNoMethod(req *mcp.Request) error {
	return mcp.Errorf(mcp.CodeMethodNotFound, "method not found: %.128q", req.Method)
}

// A clientForm is either of the two forms of tasks on the wire, as a client speaks it. It is
// chosen once for each request or handle.
type clientForm interface {
	// decodeCreated reads the result of a call that became a task.
	decodeCreated(raw []byte) (*seenTask, error)
	// decodeTask reads a task as tasks/get returns it.
	decodeTask(raw []byte) (*seenTask, error)

	// send sends a call by means of forward. It reports whether the result may be a task.
	send(ctx context.Context, m *clientTasks, in *intent, req *mcp.Request, forward forwardFunc) (
		res mcp.Result, canBeTask bool, err error)

	// follow waits for the task until there is a result, or input requests for the client.
	follow(ctx context.Context, w *wait, req *mcp.Request) (mcp.Result, error)
	// fetchOutcome completes a final task with the result or error that tasks/get did not return.
	fetchOutcome(ctx context.Context, h *Handle, t *seenTask) error
	// answer sends input responses.
	answer(ctx context.Context, h *Handle, responses json.RawMessage) error
	// list returns the tasks of the client.
	list(ctx context.Context, c *mcp.Client) iter.Seq2[*Task, error]

	// hasNotifications reports whether a client can subscribe to the changes of a task. If not, the
	// server sends the task's progress with tasks/result.
	hasNotifications() bool
}

type forwardFunc func(req *mcp.Request) (mcp.Result, error)

func clientFormOf(revision string) clientForm {
	switch {
	case revision == revision2025:
		return client2025{}
	case revision > revision2025:
		return clientExtension{}
	}
	return clientNone{}
}

// clientNone is the form of revisions before 2025-11-25, whose calls never become tasks.
type clientNone struct{ clientExtension }

func (clientNone) send(
	_ context.Context, _ *clientTasks, _ *intent, req *mcp.Request, forward forwardFunc,
) (mcp.Result, bool, error) {
	res, err := forward(req)
	return res, false, err
}
