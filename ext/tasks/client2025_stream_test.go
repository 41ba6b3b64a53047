package tasks_test

import (
	"context"
	"encoding/json"
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

// A proxy that cuts long requests does not fail the task, which may take days.
//
// Requirement: TASKD-24
func TestResultIsRequestedAgainAfterEachCutStream(t *testing.T) {
	for _, status := range []string{"working", "input_required"} {
		t.Run(status, func(t *testing.T) {
			s := newFakeServer2025()
			began := time.Now()
			isOver := func() bool { return time.Since(began) > 3*time.Hour }
			s.responses["tasks/get"] = func(*mcp.Request, int) (string, error) {
				if isOver() {
					return taskState2025("completed"), nil
				}
				return taskState2025(status), nil
			}
			cuts := 0
			proxy := &mcp.ClientOptions{Middleware: []mcp.Middleware{func(next mcp.Handler) mcp.Handler {
				return mcp.HandlerFunc(func(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
					if req.Method != "tasks/result" || isOver() {
						return next.ServeMCP(ctx, req)
					}
					select {
					case <-time.After(time.Minute):
						cuts++
						return nil, &mcp.TransportError{Method: req.Method, MayHaveRun: true,
							Err: errors.New("the proxy cut the stream")}
					case <-ctx.Done():
						return nil, ctx.Err()
					}
				})
			}}}
			runWithServerOn(t, s, combination2025(mcptest.InMemory), proxy, nil, func(t *testing.T, c *mcp.Client) {
				began = time.Now()
				ctx := mcp.WithCallOptions(t.Context(), mcp.CallOptions{Progress: func(mcp.ProgressUpdate) {}})
				r, err := c.CallTool(ctx, "must", nil)
				wantText(t, r, err, "hello")
				if cuts < 100 {
					t.Errorf("%d cut tasks/result requests, want at least 100", cuts)
				}
			})
		})
	}
}

// A task result without a task is invalid, not an empty result.
//
// Requirement: TASKD-06
func TestUnrequestedTaskIsInvalid(t *testing.T) {
	unrequested := strings.Replace(createdTask2025(), `"resultType":"task",`, ``, 1)
	for name, opts := range map[string]*mcp.ClientOptions{"with tasks": tasks.Declare(nil, nil), "without": nil} {
		for _, on := range mcptest.Combinations() {
			if on.Revision != "2025-11-25" {
				continue
			}
			t.Run(name+" "+on.Transport, func(t *testing.T) {
				s := &fakeServer{capabilities: `{"tools":{}}`, responses: map[string]responder{"tools/call": always(unrequested)}}
				synctest.Test(t, func(t *testing.T) {
					_, err := mcptest.Dial(t, s, on, opts).CallTool(t.Context(), "x", nil)
					wantInvalid(t, err)
				})
			})
		}
	}
}

// The server's progress has numbers and messages of its own; status messages are not added to it.
func TestProgressOf2025IsForwardedUnchanged(t *testing.T) {
	s := newFakeServer2025()
	runWithServerOn(t, s, combination2025(mcptest.InMemory), nil, nil, func(t *testing.T, c *mcp.Client) {
		blocking(s, time.Hour, func(ctx context.Context, req *mcp.Request) error {
			token, _ := req.Meta("progressToken")
			for i := range 3 {
				time.Sleep(5 * time.Minute)
				if err := req.Notify(ctx, "notifications/progress",
					json.RawMessage(fmt.Sprintf(`{"progressToken":%s,"progress":%d,"message":"step %d"}`, token, 10*i,
						i))); err != nil {
					return err
				}
			}
			return nil
		})
		get := s.responses["tasks/get"]
		s.responses["tasks/get"] = func(req *mcp.Request, n int) (string, error) {
			raw, err := get(req, n)
			return fmt.Sprintf(`%s,"statusMessage":"look %d"}`, raw[:len(raw)-1], n), err
		}
		var notes []string
		ctx := mcp.WithCallOptions(t.Context(),
			mcp.CallOptions{Progress: func(u mcp.ProgressUpdate) {
				notes = append(notes,
					fmt.Sprintf("%v %s", u.Progress, u.Message))
			}})
		r, err := c.CallTool(ctx, "must", nil)
		wantText(t, r, err, "hello")
		if want := []string{"0 step 0", "10 step 1", "20 step 2"}; !slices.Equal(notes, want) {
			t.Errorf("got %q, want %q", notes, want)
		}
	})
}
