package tasks

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"

	jsonv2 "github.com/go-json-experiment/json"

	"github.com/patchbay-mcp/patchbay/mcp"
)

// clientExtension is the tasks extension, in which the server decides which calls become tasks.
type clientExtension struct{}

func (clientExtension) hasNotifications() bool { return true }

func (clientExtension) send(
	_ context.Context, _ *clientTasks, _ *intent, req *mcp.Request, forward forwardFunc,
) (mcp.Result, bool, error) {
	res, err := forward(req)
	return res, true, err
}

// Spec: tasks extension, Task Creation.
func (clientExtension) decodeCreated(raw []byte) (*seenTask, error) {
	t, _, err := decodeFields(raw)
	return t, err
}

// Spec: tasks extension, Task Polling.
func (clientExtension) decodeTask(raw []byte) (*seenTask, error) {
	t, members, err := decodeFields(raw)
	if err != nil {
		return nil, err
	}
	t.isDetailed = true
	switch t.Status {
	case StatusInputRequired:
		if t.requests, err = decodeInputRequests(members.InputRequests); err != nil {
			return nil, err
		}
		t.InputRequests = make(map[string]mcp.InputRequest, len(t.requests))
		for _, q := range t.requests {
			var request mcp.InputRequest
			if err := jsonv2.Unmarshal(q.raw, &request); err != nil || request.Method == "" {
				return nil, fmt.Errorf("the input request %.64q has no method", q.key)
			}
			t.InputRequests[q.key] = request
		}
	case StatusCompleted:
		if err := checkResult(members.Result); err != nil {
			return nil, err
		}
		t.Result = members.Result
	case StatusFailed:
		if t.Error, err = decodeError(members.Error); err != nil {
			return nil, err
		}
	}
	return t, nil
}

func (clientExtension) follow(ctx context.Context, w *wait, _ *mcp.Request) (mcp.Result, error) {
	for {
		t, err := w.poller.next(ctx)
		if err != nil {
			return nil, err
		}
		w.progress.sendMessage(ctx, t.Message)
		switch t.Status {
		case StatusCompleted:
			return mcp.RawResult(t.Result), nil
		case StatusFailed:
			return nil, t.Error
		case StatusCancelled:
			return nil, cancelledError(&t.Task)
		case StatusInputRequired:
			open, pending := w.task.answered.claim(t.requests, maxRound)
			if len(open) > 0 {
				return w.inputRequired(ctx, open), nil
			}
			if pending {
				w.nothingOpen = failures{}
			} else if w.nothingOpen.lastFor(responseTimeout) {
				return nil, invalid(methodGet, fmt.Errorf(
					"task %q has required input for %v, but shows answered requests only", w.task.id, responseTimeout))
			}
		default:
			w.nothingOpen = failures{}
		}
	}
}

// fetchOutcome returns at once: tasks/get returns the outcome.
func (clientExtension) fetchOutcome(context.Context, *Handle, *seenTask) error { return nil }

// Spec: tasks extension, Task Update Requests.
func (clientExtension) answer(ctx context.Context, h *Handle, responses json.RawMessage) error {
	_, err := h.client.Do(ctx, methodUpdate, taskParams{ID: h.id, InputResponses: responses})
	return err
}

func (clientExtension) list(context.Context, *mcp.Client) iter.Seq2[*Task, error] { return noList }

// noList yields the error of a server that does not list tasks.
func noList(yield func(*Task, error) bool) {
	yield(nil, errors.New("tasks: the server does not list the tasks of this client: keep the IDs of handles instead"))
}
