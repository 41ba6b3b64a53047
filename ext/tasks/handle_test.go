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
	s := &script{on: map[string]step{
		"tools/call": always(created(``)),
		"tasks/get": inTurn(seen("working", `,"statusMessage":"on it","pollIntervalMs":3000`), seen("working", ``),
			seen("completed", hello)),
	}}
	onScript(t, s, nil, nil, func(t *testing.T, c *mcp.Client) {
		h := start(t, c, "x")
		s.wantSaid(t, "tools/call x")
		task, err := h.Get(t.Context())
		made := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
		if err != nil || task.ID != "t1" || task.Status != tasks.StatusWorking || task.Message != "on it" ||
			task.PollInterval != 3*time.Second ||
			task.TTL != 0 || !task.Created.Equal(made) || !task.Updated.Equal(made.Add(1500*time.Millisecond)) {
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
		s.wantSaid(t, "tools/call x", "tasks/get t1", "tasks/get t1", "tasks/get t1", "tasks/get t1", "tasks/get t1")
	})
}

func TestHandleOfCallWithoutTask(t *testing.T) {
	s := &script{on: map[string]step{"tools/call": always(`{"content":[{"type":"text","text":"at once"}],"isError":true}`)}}
	onScript(t, s, nil, nil, func(t *testing.T, c *mcp.Client) {
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
			t.Error("it can be answered")
		}
		for task, err := range h.Updates(t.Context()) {
			if err != nil || !task.Status.Final() {
				t.Errorf("got %+v, %v", task, err)
			}
		}
		s.wantSaid(t, "tools/call x")
	})
}

func TestHandleAnswer(t *testing.T) {
	s := &script{on: map[string]step{"tools/call": always(created(``)), "tasks/update": always(`{}`)}}
	s.on["tasks/get"] = func(_ *mcp.Request, n int) (string, error) {
		if n < 3 {
			return seen("input_required", `,"inputRequests":{"k":`+form("who")+`}`), nil
		}
		return seen("completed", hello), nil
	}
	var asked []string
	onScript(t, s, answering(&asked), nil, func(t *testing.T, c *mcp.Client) {
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
			t.Errorf("the user was asked %q, which was answered", asked)
		}
		s.wantSaid(t, "tools/call x", "tasks/get t1",
			`tasks/update t1 {"k":{"action":"accept","content":{"name":"me"}}}`, "tasks/get t1", "tasks/get t1", "tasks/get t1")
	})
}

// The end of a wait does not end the task.
func TestEndedWaitDoesNotCancelTask(t *testing.T) {
	s := &script{on: map[string]step{"tools/call": always(created(``)), "tasks/get": always(seen("working", ``)),
		"tasks/cancel": always(`{}`)}}
	onScript(t, s, nil, nil, func(t *testing.T, c *mcp.Client) {
		h := start(t, c, "x")
		ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
		defer cancel()
		if _, err := h.Wait(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		s.wantSaid(t, "tools/call x", "tasks/get t1", "tasks/get t1")
		if err := h.Cancel(t.Context()); err != nil {
			t.Error(err)
		}
		s.wantSaid(t, "tools/call x", "tasks/get t1", "tasks/get t1", "tasks/cancel t1")
	})
}

func TestFailedAnswerInWaitDoesNotCancelTask(t *testing.T) {
	s := &script{on: map[string]step{
		"tools/call": always(created(``)), "tasks/cancel": always(`{}`),
		"tasks/get": always(seen("input_required", `,"inputRequests":{"k":`+form("who")+`}`)),
	}}
	onScript(t, s, nil, nil, func(t *testing.T, c *mcp.Client) {
		h := start(t, c, "x")
		if _, err := h.Wait(t.Context()); err == nil {
			t.Error("got a result")
		}
		time.Sleep(time.Second)
		s.wantSaid(t, "tools/call x", "tasks/get t1")
	})
}

// Concurrent waits ask a question once. If the first does not answer, another one asks.
func TestTASKX14_ConcurrentWaitsShareQuestions(t *testing.T) {
	for name, test := range map[string]struct {
		firstFails bool
		asked      int
	}{"answered": {false, 1}, "left to the other": {true, 2}} {
		t.Run(name, func(t *testing.T) {
			s := &script{on: map[string]step{"tools/call": always(created(``)), "tasks/update": always(`{}`)}}
			s.on["tasks/get"] = func(*mcp.Request, int) (string, error) {
				s.mu.Lock()
				defer s.mu.Unlock()
				if s.count["tasks/update"] > 0 {
					return seen("completed", hello), nil
				}
				return seen("input_required", `,"inputRequests":{"k":`+form("pay 100?")+`}`), nil
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
			onScript(t, s, opts, nil, func(t *testing.T, c *mcp.Client) {
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
					len(s.saidAt("tasks/update")) != 1 {
					t.Errorf("asked %d times, %d failed; the client said %q", asked.Load(), failed.Load(), s.said())
				}
			})
		})
	}
}

func TestWaitSurvivesInitialErrors(t *testing.T) {
	s := &script{on: map[string]step{
		"tools/call": always(created(``)),
		"tasks/get": func(_ *mcp.Request, n int) (string, error) {
			if n < 3 {
				return "", &mcp.TransportError{Method: "tasks/get", Err: mcp.ErrDisconnected}
			}
			return seen("completed", hello), nil
		},
	}}
	onScript(t, s, nil, nil, func(t *testing.T, c *mcp.Client) {
		r, err := start(t, c, "x").Wait(t.Context())
		wantText(t, r, err, "hello")
	})
}

func TestTASKX18_UnknownTaskReturnsServerError(t *testing.T) {
	s := &script{on: map[string]step{"tasks/get": failing(-32602, "no"), "tasks/update": failing(-32602, "no"),
		"tasks/cancel": failing(-32602, "no")}}
	onScript(t, s, nil, nil, func(t *testing.T, c *mcp.Client) {
		h := tasks.Resume(c, "t9")
		_, getErr := h.Get(t.Context())
		_, waitErr := h.Wait(t.Context())
		var watchErr error
		for _, watchErr = range h.Updates(t.Context()) {
		}
		for name, err := range map[string]error{"get": getErr, "wait": waitErr, "watch": watchErr,
			"answer": h.Answer(t.Context(), nil), "cancel": h.Cancel(t.Context())} {
			var fault *mcp.Error
			if !errors.As(err, &fault) || fault.Code != mcp.CodeInvalidParams {
				t.Errorf("%s: got %v", name, err)
			}
		}
	})
}

func TestExtensionHasNoList(t *testing.T) {
	s := &script{}
	onScript(t, s, nil, nil, func(t *testing.T, c *mcp.Client) {
		for task, err := range tasks.List(t.Context(), c) {
			if task != nil || err == nil || !strings.Contains(err.Error(), "does not list") {
				t.Errorf("got %v, %v", task, err)
			}
		}
		s.wantSaid(t)
	})
}
