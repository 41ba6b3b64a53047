package tasks_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/ext/tasks"
	"github.com/patchbay-mcp/patchbay/mcp"
)

func start(t *testing.T, c *mcp.Client, tool string) *tasks.Handle {
	t.Helper()
	h, err := tasks.Start(t.Context(), c, tool, nil)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func TestStartReturnsHandleAtOnce(t *testing.T) {
	s := &fakeServer{responses: map[string]responder{
		"tools/call": always(createdTask(``)),
		"tasks/get": inOrder(taskState("working", `,"statusMessage":"on it","pollIntervalMs":3000`), taskState("working", ``),
			taskState("completed", helloResult)),
	}}
	runWithServer(t, s, nil, nil, func(t *testing.T, c *mcp.Client) {
		h := start(t, c, "x")
		s.wantRequests(t, "tools/call x")
		task, err := h.Get(t.Context())
		created := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
		if err != nil || task.ID != "t1" || task.Status != tasks.StatusWorking || task.Message != "on it" ||
			task.PollInterval != 3*time.Second ||
			task.TTL != 0 || !task.Created.Equal(created) || !task.Updated.Equal(created.Add(1500*time.Millisecond)) {
			t.Errorf("got %+v, %v", task, err)
		}
		r, err := h.Wait(t.Context())
		wantText(t, r, err, "hello")
		task, err = tasks.Resume(c, h.ID()).Get(t.Context())
		if err != nil || task.Status != tasks.StatusCompleted || !strings.Contains(string(task.Result), "hello") {
			t.Errorf("got %+v, %v", task, err)
		}
		r, err = tasks.Resume(c, h.ID()).Wait(t.Context())
		wantText(t, r, err, "hello")
		s.wantRequests(t, "tools/call x", "tasks/get t1", "tasks/get t1", "tasks/get t1", "tasks/get t1", "tasks/get t1")
	})
}

func TestHandleOfCallWithoutTask(t *testing.T) {
	s := &fakeServer{responses: map[string]responder{"tools/call": always(`{"content":[{"type":"text","text":"at once"}],"isError":true}`)}}
	runWithServer(t, s, nil, nil, func(t *testing.T, c *mcp.Client) {
		h := start(t, c, "x")
		r, err := h.Wait(t.Context())
		wantText(t, r, err, "at once")
		task, err := h.Get(t.Context())
		if h.ID() != "" || !r.IsError || err != nil || task.Status != tasks.StatusCompleted ||
			!strings.Contains(string(task.Result), "at once") {
			t.Errorf("got %+v, %+v, %v", h, task, err)
		}
		if err := h.Cancel(t.Context()); err != nil {
			t.Error(err)
		}
		if err := h.Answer(t.Context(), nil); err == nil {
			t.Error("Answer succeeded for a call without a task")
		}
		for task, err := range h.Updates(t.Context()) {
			if err != nil || !task.Status.Final() {
				t.Errorf("got %+v, %v", task, err)
			}
		}
		s.wantRequests(t, "tools/call x")
	})
}

func TestHandleAnswer(t *testing.T) {
	s := &fakeServer{responses: map[string]responder{"tools/call": always(createdTask(``)), "tasks/update": always(`{}`)}}
	s.responses["tasks/get"] = func(_ *mcp.Request, n int) (string, error) {
		if n < 3 {
			return taskState("input_required", `,"inputRequests":{"k":`+form("who")+`}`), nil
		}
		return taskState("completed", helloResult), nil
	}
	var asked []string
	runWithServer(t, s, answerForms(&asked), nil, func(t *testing.T, c *mcp.Client) {
		h := start(t, c, "x")
		task, err := h.Get(t.Context())
		if q := task.InputRequests["k"]; err != nil || q.Method != "elicitation/create" ||
			!strings.Contains(string(q.Params), "who") {
			t.Fatalf("got %+v, %v", task, err)
		}
		answers := map[string]any{"k": &mcp.ElicitResult{Action: mcp.ElicitAccept, Content: []byte(`{"name":"me"}`)}}
		if err := h.Answer(t.Context(), answers); err != nil {
			t.Fatal(err)
		}
		r, err := h.Wait(t.Context())
		wantText(t, r, err, "hello")
		if len(asked) != 0 {
			t.Errorf("elicitations %q for answered input requests, want none", asked)
		}
		s.wantRequests(t, "tools/call x", "tasks/get t1",
			`tasks/update t1 {"k":{"action":"accept","content":{"name":"me"}}}`, "tasks/get t1", "tasks/get t1", "tasks/get t1")
	})
}

// The end of a wait does not end the task.
func TestEndedWaitDoesNotCancelTask(t *testing.T) {
	s := &fakeServer{responses: map[string]responder{"tools/call": always(createdTask(``)), "tasks/get": always(taskState("working", ``)),
		"tasks/cancel": always(`{}`)}}
	runWithServer(t, s, nil, nil, func(t *testing.T, c *mcp.Client) {
		h := start(t, c, "x")
		ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
		defer cancel()
		if _, err := h.Wait(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		s.wantRequests(t, "tools/call x", "tasks/get t1", "tasks/get t1")
		if err := h.Cancel(t.Context()); err != nil {
			t.Error(err)
		}
		s.wantRequests(t, "tools/call x", "tasks/get t1", "tasks/get t1", "tasks/cancel t1")
	})
}

func TestFailedAnswerInWaitDoesNotCancelTask(t *testing.T) {
	s := &fakeServer{responses: map[string]responder{
		"tools/call": always(createdTask(``)), "tasks/cancel": always(`{}`),
		"tasks/get": always(taskState("input_required", `,"inputRequests":{"k":`+form("who")+`}`)),
	}}
	runWithServer(t, s, nil, nil, func(t *testing.T, c *mcp.Client) {
		h := start(t, c, "x")
		if _, err := h.Wait(t.Context()); err == nil {
			t.Error("got a result")
		}
		time.Sleep(time.Second)
		s.wantRequests(t, "tools/call x", "tasks/get t1")
	})
}

// Concurrent waits ask a question once. If the first does not answer, another one asks.
//
// Requirement: TASKX-14
func TestConcurrentWaitsShareQuestions(t *testing.T) {
	for name, test := range map[string]struct {
		firstFails bool
		asked      int
	}{"answered": {false, 1}, "second wait asks": {true, 2}} {
		t.Run(name, func(t *testing.T) {
			s := &fakeServer{responses: map[string]responder{"tools/call": always(createdTask(``)), "tasks/update": always(`{}`)}}
			s.responses["tasks/get"] = func(*mcp.Request, int) (string, error) {
				s.mu.Lock()
				defer s.mu.Unlock()
				if s.count["tasks/update"] > 0 {
					return taskState("completed", helloResult), nil
				}
				return taskState("input_required", `,"inputRequests":{"k":`+form("pay 100?")+`}`), nil
			}
			var asked atomic.Int32
			opts := &mcp.ClientOptions{Elicit: func(context.Context, *mcp.ElicitRequestParams) (*mcp.ElicitResult,
				error) {
				n := asked.Add(1)
				time.Sleep(5 * time.Minute) // longer than a server may take to act on answers
				if n == 1 && test.firstFails {
					return nil, errors.New("no terminal")
				}
				return &mcp.ElicitResult{Action: mcp.ElicitDecline}, nil
			}}
			runWithServer(t, s, opts, nil, func(t *testing.T, c *mcp.Client) {
				h := start(t, c, "x")
				var failed atomic.Int32
				var waits sync.WaitGroup
				for range 2 {
					waits.Go(func() {
						r, err := h.Wait(t.Context())
						if err != nil && test.firstFails {
							failed.Add(1)
							return
						}
						wantText(t, r, err, "hello")
					})
				}
				waits.Wait()
				if int(asked.Load()) != test.asked || int(failed.Load()) != test.asked-1 ||
					len(s.requestTimes("tasks/update")) != 1 {
					t.Errorf("%d elicitations, %d failed waits, requests %q", asked.Load(), failed.Load(), s.requests())
				}
			})
		})
	}
}

func TestWaitSurvivesInitialErrors(t *testing.T) {
	s := &fakeServer{responses: map[string]responder{
		"tools/call": always(createdTask(``)),
		"tasks/get": func(_ *mcp.Request, n int) (string, error) {
			if n < 3 {
				return "", &mcp.TransportError{Method: "tasks/get", Err: mcp.ErrDisconnected}
			}
			return taskState("completed", helloResult), nil
		},
	}}
	runWithServer(t, s, nil, nil, func(t *testing.T, c *mcp.Client) {
		r, err := start(t, c, "x").Wait(t.Context())
		wantText(t, r, err, "hello")
	})
}

func TestUnknownTaskReturnsServerError(t *testing.T) {
	s := &fakeServer{responses: map[string]responder{"tasks/get": failWith(-32602, "no"), "tasks/update": failWith(-32602, "no"),
		"tasks/cancel": failWith(-32602, "no")}}
	runWithServer(t, s, nil, nil, func(t *testing.T, c *mcp.Client) {
		h := tasks.Resume(c, "t9")
		_, getErr := h.Get(t.Context())
		_, waitErr := h.Wait(t.Context())
		var updatesErr error
		for _, updatesErr = range h.Updates(t.Context()) {
		}
		for name, err := range map[string]error{"get": getErr, "wait": waitErr, "updates": updatesErr,
			"answer": h.Answer(t.Context(), nil), "cancel": h.Cancel(t.Context())} {
			var fault *mcp.Error
			if !errors.As(err, &fault) || fault.Code != mcp.CodeInvalidParams {
				t.Errorf("%s: got %v", name, err)
			}
		}
	})
}

func TestExtensionHasNoList(t *testing.T) {
	s := &fakeServer{}
	runWithServer(t, s, nil, nil, func(t *testing.T, c *mcp.Client) {
		for task, err := range tasks.List(t.Context(), c) {
			if task != nil || err == nil || !strings.Contains(err.Error(), "does not list") {
				t.Errorf("got %v, %v", task, err)
			}
		}
		s.wantRequests(t)
	})
}
