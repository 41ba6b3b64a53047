package tasks

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
	"time"

	jsonv2 "github.com/go-json-experiment/json"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcp/driver"
)

// A Handle refers to a task at its server, for a client that does not wait for the result at once.
// It holds no resources. Its methods are safe for concurrent use.
type Handle struct {
	client   *mcp.Client
	id, tool string
	answered *answeredKeys

	direct *mcp.CallToolResult // the result of a call that became no task
	raw    json.RawMessage     // direct, as received
}

// Start calls a tool and returns a handle as soon as the server made a task of the call. The
// client must be created with the options that [Declare] returns. args must encode to a JSON
// object, or be nil.
//
// If the server returns a result at once, the handle contains no ID, and Wait returns the result.
// Input requests that come before the task are answered by the client's functions. The client must
// declare the input that the task will ask for, even if another process is to answer: see
// [Declare].
//
// A server of revision 2025-11-25 says in its list of tools which tools run as tasks. If the list
// cannot be fetched now, Start returns an [*mcp.TransportError] and does not call the tool.
func Start(ctx context.Context, c *mcp.Client, tool string, args any) (*Handle, error) {
	in := &intent{kind: intentStart}
	res, err := c.CallTool(withIntent(ctx, in), tool, args)
	switch {
	case in.handle != nil:
		return in.handle, nil // res is not the tool's
	case err != nil:
		return nil, err
	}
	return &Handle{client: c, tool: tool, direct: res, raw: in.direct, answered: newAnsweredKeys()}, nil
}

// Resume returns a handle for a task by its ID, also for a task that another process started.
// It sends no request: an unknown ID makes the methods of the handle fail. Results are not checked
// against the tool's output schema, because the tool is not known.
func Resume(c *mcp.Client, id string) *Handle {
	return &Handle{client: c, id: id, answered: newAnsweredKeys()}
}

// ID returns the id of the task at its server, or "" if the call became no task. Store it to
// continue in another process with [Resume]. If the server does not authenticate its clients, the
// id is a secret: it gives access to the task.
func (h *Handle) ID() string { return h.id }

// Tool returns the name of the tool that was called, or "" after [Resume].
func (h *Handle) Tool() string { return h.tool }

// Get fetches the current state of the task. For a task that the server does not know, or
// deleted, it returns an [*mcp.Error] with code [mcp.CodeInvalidParams]. With a server of revision
// 2025-11-25, a second request fetches the result.
//
// Spec: tasks extension, Task Polling; basic/utilities/tasks (2025-11-25), Getting Tasks.
func (h *Handle) Get(ctx context.Context) (*Task, error) {
	if h.direct != nil {
		return &Task{Status: StatusCompleted, Result: h.raw}, nil
	}
	t, err := h.poller().get(ctx)
	if err != nil {
		return nil, err
	}
	if err := h.form().fetchOutcome(ctx, h, t); err != nil {
		return nil, err
	}
	return &t.Task, nil
}

func (h *Handle) form() clientForm { return clientFormOf(h.client.Revision()) }

func (h *Handle) poller() *poller {
	return &poller{
		client: h.client, form: h.form(), id: h.id, defaultInterval: defaultPollInterval, began: time.Now(),
		immediate: true, options: mcp.CallOptions{NoCache: true},
	}
}

// Wait waits until the task ended and returns the result as [mcp.Client.CallTool] does. A tool
// error is a result with IsError, in both forms of tasks. A task that failed otherwise returns its
// [*mcp.Error], and a cancelled task an error that satisfies errors.Is with [mcp.ErrCancelled]. The
// client's functions answer input requests, within the limits of a request. The client must be
// created with the options that [Declare] returns.
//
// Concurrent calls of Wait on the same handle ask each question once. Separate handles for the same
// task do not coordinate.
//
// When ctx ends, the task continues; Cancel ends it. While the server cannot be reached, Wait waits
// for two minutes.
func (h *Handle) Wait(ctx context.Context) (*mcp.CallToolResult, error) {
	if h.direct != nil {
		res := *h.direct
		return &res, nil
	}
	probe := &intent{kind: intentProbe}
	first, err := h.poller().get(withIntent(ctx, probe))
	switch {
	case !probe.taken.Load() && (err == nil || isUnsupported(err)):
		return nil, errors.New("tasks: the client does not support tasks: create it with the options of tasks.Declare")
	case err != nil && (ctx.Err() != nil || !isTransient(err)):
		return nil, err
	}
	return h.client.CallTool(withIntent(ctx, &intent{kind: intentStart, resumed: h, first: first}), h.tool, nil)
}

func isUnsupported(err error) bool {
	var fault *mcp.Error
	return errors.As(err, &fault) &&
		(fault.Code == mcp.CodeMethodNotFound || fault.Code == driver.CodeMissingRequiredClientCapability)
}

// Answer answers open input requests of the task, all or some of them, by their keys in
// [Task.InputRequests]. Each answer must encode to the result of its request, such as an
// [*mcp.ElicitResult] or an [*mcp.CreateMessageResult]. Wait does not repeat an answered question.
// The server may show answered requests for a moment longer.
//
// A server of revision 2025-11-25 asks while Wait waits, and Answer returns an error.
//
// Spec: tasks extension, Task Update Requests.
func (h *Handle) Answer(ctx context.Context, answers map[string]any) error {
	if h.direct != nil {
		return errors.New("tasks: the call became no task and requires no input")
	}
	raw, err := jsonv2.Marshal(answers, jsonv2.Deterministic(true))
	if err != nil {
		return fmt.Errorf("tasks: encode answers: %w", err)
	}
	if err := h.form().answer(ctx, h, raw); err != nil {
		return err
	}
	for key := range answers {
		h.answered.add(key)
	}
	return nil
}

// Cancel asks the server to end the task. A nil error does not mean that the task ended, or
// will: use Get or Wait to find out. A server of revision 2025-11-25 returns
// [mcp.CodeInvalidParams] for a task that ended.
//
// Spec: tasks extension, Task Cancellation; basic/utilities/tasks (2025-11-25), Cancelling Tasks.
func (h *Handle) Cancel(ctx context.Context) error {
	if h.direct != nil {
		return nil
	}
	_, err := h.client.Do(ctx, methodCancel, taskParams{ID: h.id})
	return err
}

// Updates returns an iterator over the states of the task: the current state, and a new state
// whenever the task changed, up to its final status. It subscribes to the task where the server
// supports it, and polls otherwise. It does not answer questions: call Answer or Wait for a task
// with [StatusInputRequired].
//
// The iteration ends with the first error. A server that cannot be reached is tried for two
// minutes. When ctx ends, the iteration ends without an error.
//
// Spec: tasks extension, Task Status Notifications; basic/utilities/tasks (2025-11-25), Getting
// Tasks.
func (h *Handle) Updates(ctx context.Context) iter.Seq2[*Task, error] {
	return func(yield func(*Task, error) bool) {
		if h.direct != nil {
			yield(h.Get(ctx))
			return
		}
		p := h.poller()
		defer func() { p.unsubscribe() }()
		var last *Task
		for {
			t, err := p.next(ctx)
			if err == nil && t.Status.Final() {
				err = p.retry(ctx,
					func() error { return p.form.fetchOutcome(mcp.WithCallOptions(ctx, p.options), h, t) })
			}
			switch {
			case ctx.Err() != nil:
				return
			case err != nil:
				yield(nil, err)
				return
			}
			if last == nil || hasChanged(last, &t.Task) {
				yielded := t.Task // a copy, since the caller may change its copy
				last = &yielded
				if !yield(&t.Task, nil) {
					return
				}
			}
			if t.Status.Final() {
				return
			}
			if p.subscription == nil {
				p.subscribe(ctx)
			}
		}
	}
}

func hasChanged(before, after *Task) bool {
	same := func(a, b mcp.InputRequest) bool { return a.Method == b.Method && string(a.Params) == string(b.Params) }
	return before.Status != after.Status || before.Message != after.Message || !before.Updated.Equal(after.Updated) ||
		!maps.EqualFunc(before.InputRequests, after.InputRequests, same)
}

// List returns the tasks of the client at its server, without their results. It fetches a page
// after the other as the iteration proceeds. The iteration ends with the first error.
//
// Only servers of revision 2025-11-25 list tasks, and only if they declare it; a [Server] lists the
// tasks of authenticated callers. For other servers the iteration yields an error that says so, and
// clients must keep the IDs of their tasks.
//
// Spec: basic/utilities/tasks (2025-11-25), Listing Tasks.
func List(ctx context.Context, c *mcp.Client) iter.Seq2[*Task, error] {
	return clientFormOf(c.Revision()).list(ctx, c)
}
