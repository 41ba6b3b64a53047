package tasks

import (
	"context"
	stdjson "encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/patchbay-mcp/patchbay/mcp"
)

// A Handle is a task at its server, for a client that does other things meanwhile. It holds nothing open and needs no end.
// All methods are safe for concurrent use.
type Handle struct {
	client   *mcp.Client
	id, tool string
	answered *answered

	direct *mcp.ToolResult    // of a call that became no task
	raw    stdjson.RawMessage // the same as it came
}

// Start calls a tool and gives a handle as soon as the server has made a task of the call. Where the server decides to
// answer at once, the handle is done: it has no ID, and Wait gives the result. Questions that come before the task are
// answered by the client's functions, as those of any call. A server of 2025-11-25 is asked to make a task of the call if the
// tool takes it. args encodes to a JSON object, or is nil.
//
// The client has to be able to answer what the task will ask, though another process may do it: see [Declare].
//
// The client is one of [Declare]; with another one the call is a plain one, and the handle done.
func Start(ctx context.Context, c *mcp.Client, tool string, args any) (*Handle, error) {
	in := &intent{kind: intentStart}
	res, err := c.CallTool(withIntent(ctx, in), tool, args)
	switch {
	case in.handle != nil:
		return in.handle, nil // what the call ended with is not the tool's
	case err != nil:
		return nil, err
	}
	return &Handle{client: c, tool: tool, direct: res, raw: in.direct, answered: &answered{}}, nil
}

// Resume returns the handle of a task by its ID, also one that another process has started. Nothing is sent: whether the
// server knows the task is found out when it is asked. The result of such a handle is not checked against the output schema
// of its tool, whose name nobody has kept.
func Resume(c *mcp.Client, id string) *Handle {
	return &Handle{client: c, id: id, answered: &answered{}}
}

// ID names the task at its server. Keep it, to go on in another process with [Resume]: as a secret, if the server knows its
// clients by nothing else. It is empty if the call became no task.
func (h *Handle) ID() string { return h.id }

// Tool is the name of the tool that was called; empty after [Resume].
func (h *Handle) Tool() string { return h.tool }

// Get asks how the task stands. A task that the server does not know, or not any more, is an [*mcp.Error] with code
// [mcp.CodeInvalidParams]. The Task of a server of 2025-11-25 is complete too: its result is fetched if there is one.
//
// Spec: tasks extension, Task Polling; basic/utilities/tasks (2025-11-25), Getting Tasks.
func (h *Handle) Get(ctx context.Context) (*Task, error) {
	if h.direct != nil {
		return &Task{Status: StatusCompleted, Result: h.raw}, nil
	}
	s, err := h.poller().get(ctx)
	if err != nil {
		return nil, err
	}
	if err := h.complete(ctx, s); err != nil {
		return nil, err
	}
	return &s.Task, nil
}

func (h *Handle) poller() *poller {
	return &poller{
		client: h.client, form: formIn(h.client.Revision()), id: h.id, every: defaultPollInterval, began: time.Now(), isDue: true,
		options: mcp.CallOptions{NoCache: true},
	}
}

// Wait waits until the task has ended and gives the result as [mcp.Client.CallTool] does: a tool that failed is a result with
// IsError, in both forms of tasks. A task that failed otherwise is its [*mcp.Error], one that was cancelled an error that is
// [mcp.ErrCancelled]. Questions are answered by the client's functions, within the limits of one request.
//
// Several waits on one handle ask each question once. Two handles of one task, such as those of [Resume], know nothing of each
// other.
//
// When ctx ends, the task goes on; Cancel ends it. While the server is away Wait waits on, for two minutes. The client is one of
// [Declare].
func (h *Handle) Wait(ctx context.Context) (*mcp.ToolResult, error) {
	if h.direct != nil {
		res := *h.direct
		return &res, nil
	}
	probe := &intent{kind: intentProbe}
	first, err := h.poller().get(withIntent(ctx, probe))
	switch {
	case err == nil && !probe.taken, isUnheard(err) && !probe.taken:
		return nil, errors.New("tasks: the client cannot wait for tasks: create it with the options that tasks.Declare returns")
	case err != nil && (ctx.Err() != nil || !isTransient(err)):
		return nil, err
	}
	return h.client.CallTool(withIntent(ctx, &intent{kind: intentStart, resumed: h, first: first}), h.tool, nil)
}

// isUnheard reports whether err says that the server knows no tasks.
func isUnheard(err error) bool {
	var fault *mcp.Error
	return errors.As(err, &fault) && (fault.Code == mcp.CodeMethodNotFound || fault.Code == mcp.CodeMissingCapability)
}

// Answer answers open questions of the task, by the keys that they have in [Task.InputRequests]; some of them will do. Each
// answer encodes to what its question wants, such as an [*mcp.ElicitResult] or an [*mcp.SampleResult]. What was answered once
// is not asked by Wait. The server may show the questions for a moment longer.
//
// Servers of 2025-11-25 ask while Wait waits, and cannot be answered in another way.
//
// Spec: tasks extension, Task Update Requests.
func (h *Handle) Answer(ctx context.Context, answers map[string]any) error {
	switch {
	case h.direct != nil:
		return errors.New("tasks: the call became no task, and nothing of it is open")
	case formIn(h.client.Revision()).is2025:
		return fmt.Errorf("tasks: the server speaks revision %s: it asks the client itself while Wait waits for the task", h.client.Revision())
	}
	raw, err := json.Marshal(answers, json.Deterministic(true))
	if err != nil {
		return fmt.Errorf("tasks: encode answers: %w", err)
	}
	if _, err := h.client.Request(ctx, methodUpdate, taskParams{h.id, raw}); err != nil {
		return err
	}
	for key := range answers {
		h.answered.add(key)
	}
	return nil
}

// Cancel asks the server to end the task. That it agrees does not mean that the task has ended, or will: Get and Wait tell.
// A server of 2025-11-25 refuses it for a task that has ended, with [mcp.CodeInvalidParams].
//
// Spec: tasks extension, Task Cancellation; basic/utilities/tasks (2025-11-25), Cancelling Tasks.
func (h *Handle) Cancel(ctx context.Context) error {
	if h.direct != nil {
		return nil
	}
	_, err := h.client.Request(ctx, methodCancel, taskParams{ID: h.id})
	return err
}
