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

// asking is a script whose task always requires input.
func asking() *script {
	return &script{on: map[string]step{
		"tools/call": always(created(``)),
		"tasks/get": func(_ *mcp.Request, n int) (string, error) {
			return seen("input_required", fmt.Sprintf(`,"inputRequests":{"k%d":%s}`, n, form("who"))), nil
		},
		"tasks/update": always(`{}`),
		"tasks/cancel": always(`{}`),
	}}
}

// The task is cancelled before the call returns, because the program may exit then.
func TestEndedCallCancelsTaskBeforeItReturns(t *testing.T) {
	for name, change := range map[string]func(s *script, o *mcp.ClientOptions){
		"nobody answers":        func(_ *script, o *mcp.ClientOptions) { o.Elicit = nil },
		"it is asked too often": func(_ *script, o *mcp.ClientOptions) { o.MaxRounds = 3 },
		"the answers are refused": func(s *script, _ *mcp.ClientOptions) {
			s.on["tasks/update"] = failing(mcp.CodeInvalidParams, "that name is taken")
		},
		"the server is unwell": func(s *script, _ *mcp.ClientOptions) {
			s.on["tasks/get"] = failing(mcp.CodeInternalError, "out of order")
		},
		"the answer fails": func(_ *script, o *mcp.ClientOptions) {
			o.Elicit = func(context.Context, *mcp.ElicitRequestParams) (*mcp.ElicitResult, error) {
				return nil, errors.New("no terminal")
			}
		},
		"the user takes too long": func(_ *script, o *mcp.ClientOptions) {
			o.Elicit = func(ctx context.Context, _ *mcp.ElicitRequestParams) (*mcp.ElicitResult, error) {
				<-ctx.Done()
				return nil, ctx.Err()
			}
		},
	} {
		for _, on := range mcptest.Since(mcptest.Modern) {
			t.Run(name+" "+on.Transport, func(t *testing.T) {
				s, opts := asking(), answering(new([]string))
				change(s, opts)
				onScriptAt(t, s, on, opts, &tasks.ClientOptions{Listen: true}, func(t *testing.T, c *mcp.Client) {
					ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
					defer cancel()
					_, err := c.CallTool(ctx, "ask", nil)
					if said := s.said(); err == nil || said[len(said)-1] != "tasks/cancel t1" {
						t.Errorf("%v; the client said %q", err, said)
					}
					if err := c.Close(); err != nil {
						t.Error(err)
					}
				})
			})
		}
	}
}

// Close is like a lost connection.
func TestCloseDoesNotCancelTaskWithOpenQuestion(t *testing.T) {
	s := asking()
	opts := &mcp.ClientOptions{Elicit: func(ctx context.Context, _ *mcp.ElicitRequestParams) (*mcp.ElicitResult,
		error) {
		<-ctx.Done()
		return nil, context.Cause(ctx)
	}}
	onScript(t, s, opts, nil, func(t *testing.T, c *mcp.Client) {
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
		if said := s.said(); slices.Contains(said, "tasks/cancel t1") {
			t.Errorf("the client said %q", said)
		}
	})
}

// Refused answers are not an error if the task has them already, or has ended.
func TestRefusedDuplicateAnswersAreIgnored(t *testing.T) {
	const refused = "unknown question"
	lost := func(s *script) { // the answer to the first update
		s.on["tasks/update"] = func(_ *mcp.Request, n int) (string, error) {
			if n == 0 {
				return "", &mcp.TransportError{Method: "tasks/update", MayHaveRun: true,
					Err: errors.New("connection reset")}
			}
			return "", mcp.Errorf(mcp.CodeInvalidParams, refused)
		}
	}
	for name, test := range map[string]struct {
		change func(s *script)
		then   string // the task
		want   string
		err    string
	}{
		"it has the answers and has ended": {lost, seen("completed", hello), "hello", ""},
		"it has the answers and works":     {lost, seen("working", ``), "hello", ""},
		"it has the answers and asks for more": {lost,
			seen("input_required", `,"inputRequests":{"k2":`+form("who")+`}`), "", refused},
		"it has failed": {nil, seen("failed", `,"error":{"code":-31000,"message":"too late"}`),
			"", "too late"},
		"it was called off": {nil, seen("cancelled", ``), "", mcp.ErrCancelled.Error()},
		"it wants other answers": {nil,
			seen("input_required", `,"inputRequests":{"k":`+form("who")+`}`), "", refused},
	} {
		t.Run(name, func(t *testing.T) {
			s := asking()
			s.on["tasks/update"] = failing(mcp.CodeInvalidParams, refused)
			if test.change != nil {
				test.change(s)
			}
			s.on["tasks/get"] = inTurn(seen("input_required", `,"inputRequests":{"k":`+form("who")+`}`), test.then,
				test.then, seen("completed", hello))
			if test.err != "" {
				s.on["tasks/get"] = inTurn(seen("input_required", `,"inputRequests":{"k":`+form("who")+`}`), test.then)
			}
			onScript(t, s, answering(new([]string)), nil, func(t *testing.T, c *mcp.Client) {
				r, err := c.CallTool(t.Context(), "ask", nil)
				if test.err == "" {
					wantText(t, r, err, test.want)
				} else if err == nil || !strings.Contains(err.Error(), test.err) {
					t.Errorf("got %v, want %q", err, test.err)
				}
				last := s.said()[len(s.said())-1]
				if open := test.err == refused; (last == "tasks/cancel t1") != open {
					t.Errorf("the last that the client said is %q", last)
				}
			})
		})
	}
}
