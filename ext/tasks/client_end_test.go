package tasks_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/ext/tasks"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// newAskingServer returns a server whose task always requires input.
func newAskingServer() *fakeServer {
	return &fakeServer{responses: map[string]responder{
		"tools/call": always(createdTask(``)),
		"tasks/get": func(_ *mcp.Request, n int) (string, error) {
			return taskState("input_required", fmt.Sprintf(`,"inputRequests":{"k%d":%s}`, n, form("who"))), nil
		},
		"tasks/update": always(`{}`),
		"tasks/cancel": always(`{}`),
	}}
}

// The task is cancelled before the call returns, because the program may exit then.
func TestEndedCallCancelsTaskBeforeItReturns(t *testing.T) {
	for name, change := range map[string]func(s *fakeServer, o *mcp.ClientOptions){
		"no Elicit function": func(_ *fakeServer, o *mcp.ClientOptions) { o.Elicit = nil },
		"too many rounds":    func(_ *fakeServer, o *mcp.ClientOptions) { o.MaxRounds = 3 },
		"answers refused": func(s *fakeServer, _ *mcp.ClientOptions) {
			s.responses["tasks/update"] = failWith(mcp.CodeInvalidParams, "that name is taken")
		},
		"server error": func(s *fakeServer, _ *mcp.ClientOptions) {
			s.responses["tasks/get"] = failWith(mcp.CodeInternalError, "out of order")
		},
		"Elicit fails": func(_ *fakeServer, o *mcp.ClientOptions) {
			o.Elicit = func(context.Context, *mcp.ElicitRequestParams) (*mcp.ElicitResult, error) {
				return nil, errors.New("no terminal")
			}
		},
		"Elicit times out": func(_ *fakeServer, o *mcp.ClientOptions) {
			o.Elicit = func(ctx context.Context, _ *mcp.ElicitRequestParams) (*mcp.ElicitResult, error) {
				<-ctx.Done()
				return nil, ctx.Err()
			}
		},
	} {
		for _, on := range mcptest.Since(mcptest.Modern) {
			t.Run(name+" "+on.Transport, func(t *testing.T) {
				s, opts := newAskingServer(), answerForms(new([]string))
				change(s, opts)
				runWithServerOn(t, s, on, opts, &tasks.ClientOptions{Listen: true}, func(t *testing.T, c *mcp.Client) {
					ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
					defer cancel()
					_, err := c.CallTool(ctx, "ask", nil)
					if requests := s.requests(); err == nil || requests[len(requests)-1] != "tasks/cancel t1" {
						t.Errorf("error %v, requests %q, want tasks/cancel at the end", err, requests)
					}
					if err := c.Close(); err != nil {
						t.Error(err)
					}
				})
			})
		}
	}
}

// Close has the effect of a lost connection.
func TestCloseDoesNotCancelTaskWithOpenQuestion(t *testing.T) {
	s := newAskingServer()
	opts := &mcp.ClientOptions{Elicit: func(ctx context.Context, _ *mcp.ElicitRequestParams) (*mcp.ElicitResult,
		error) {
		<-ctx.Done()
		return nil, context.Cause(ctx)
	}}
	runWithServer(t, s, opts, nil, func(t *testing.T, c *mcp.Client) {
		ended := make(chan error, 1)
		go func() {
			_, err := c.CallTool(t.Context(), "ask", nil)
			ended <- err
		}()
		time.Sleep(5 * time.Second)
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		if err := <-ended; !errors.Is(err, mcp.ErrClosed) {
			t.Errorf("got %v", err)
		}
		synctest.Wait()
		if requests := s.requests(); slices.Contains(requests, "tasks/cancel t1") {
			t.Errorf("requests %q", requests)
		}
	})
}

// Refused answers are not an error if the task has them already, or has ended.
func TestRefusedDuplicateAnswersAreIgnored(t *testing.T) {
	const refused = "unknown question"
	lost := func(s *fakeServer) { // the answer to the first update
		s.responses["tasks/update"] = func(_ *mcp.Request, n int) (string, error) {
			if n == 0 {
				return "", &mcp.TransportError{Method: "tasks/update", MayHaveRun: true,
					Err: errors.New("connection reset")}
			}
			return "", mcp.Errorf(mcp.CodeInvalidParams, refused)
		}
	}
	for name, test := range map[string]struct {
		change func(s *fakeServer)
		then   string // the task
		want   string
		err    string
	}{
		"answered and completed": {lost, taskState("completed", helloResult), "hello", ""},
		"answered and working":   {lost, taskState("working", ``), "hello", ""},
		"answered and asks again": {lost,
			taskState("input_required", `,"inputRequests":{"k2":`+form("who")+`}`), "", refused},
		"failed": {nil, taskState("failed", `,"error":{"code":-31000,"message":"too late"}`),
			"", "too late"},
		"cancelled": {nil, taskState("cancelled", ``), "", mcp.ErrCancelled.Error()},
		"still asks the same": {nil,
			taskState("input_required", `,"inputRequests":{"k":`+form("who")+`}`), "", refused},
	} {
		t.Run(name, func(t *testing.T) {
			s := newAskingServer()
			s.responses["tasks/update"] = failWith(mcp.CodeInvalidParams, refused)
			if test.change != nil {
				test.change(s)
			}
			s.responses["tasks/get"] = inOrder(taskState("input_required", `,"inputRequests":{"k":`+form("who")+`}`), test.then,
				test.then, taskState("completed", helloResult))
			if test.err != "" {
				s.responses["tasks/get"] = inOrder(taskState("input_required", `,"inputRequests":{"k":`+form("who")+`}`), test.then)
			}
			runWithServer(t, s, answerForms(new([]string)), nil, func(t *testing.T, c *mcp.Client) {
				r, err := c.CallTool(t.Context(), "ask", nil)
				if test.err == "" {
					wantText(t, r, err, test.want)
				} else if err == nil || !strings.Contains(err.Error(), test.err) {
					t.Errorf("got %v, want %q", err, test.err)
				}
				last := s.requests()[len(s.requests())-1]
				if open := test.err == refused; (last == "tasks/cancel t1") != open {
					t.Errorf("last request %q, want tasks/cancel: %t", last, open)
				}
			})
		})
	}
}
