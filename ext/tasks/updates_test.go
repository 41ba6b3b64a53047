package tasks_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/ext/tasks"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// collectUpdates returns the states that Updates yields.
func collectUpdates(ctx context.Context, h *tasks.Handle) (states []string, err error) {
	for task, e := range h.Updates(ctx) {
		if e != nil {
			return states, e
		}
		states = append(states, strings.TrimSpace(string(task.Status)+" "+task.Message))
	}
	return states, nil
}

func TestUpdatesPollsWithoutSubscription(t *testing.T) {
	s := &fakeServer{responses: map[string]responder{
		"tools/call": always(createdTask(``)),
		"tasks/get": inOrder(taskState("working", ``), taskState("working", ``), taskState("working", `,"statusMessage":"half"`),
			taskState("working", `,"statusMessage":"half"`),
			taskState("input_required", `,"inputRequests":{"k":`+form("x")+`}`), taskState("failed",
				`,"error":{"code":-32603,"message":"no"}`)),
	}}
	runWithServer(t, s, nil, nil, func(t *testing.T, c *mcp.Client) {
		states, err := collectUpdates(t.Context(), start(t, c, "x"))
		if want := []string{"working", "working half", "input_required", "failed"}; err != nil ||
			!slices.Equal(states, want) {
			t.Errorf("got %q, %v; want %q", states, err, want)
		}
	})
}

func TestUpdatesEndsWithContext(t *testing.T) {
	s := &fakeServer{responses: map[string]responder{"tools/call": always(createdTask(``)), "tasks/get": always(taskState("working", ``))}}
	runWithServer(t, s, nil, nil, func(t *testing.T, c *mcp.Client) {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		states, err := collectUpdates(ctx, start(t, c, "x"))
		if err != nil || !slices.Equal(states, []string{"working"}) {
			t.Errorf("got %q, %v", states, err)
		}
		for range tasks.Resume(c, "t1").Updates(t.Context()) {
			break
		}
	})
}

func TestUpdatesEndsWithClient(t *testing.T) {
	s := &fakeServer{responses: map[string]responder{"tools/call": always(createdTask(``)), "tasks/get": always(taskState("working", ``))}}
	runWithServer(t, s, nil, nil, func(t *testing.T, c *mcp.Client) {
		h := start(t, c, "x")
		time.AfterFunc(1500*time.Millisecond, func() { c.Close() })
		began := time.Now()
		_, err := collectUpdates(t.Context(), h)
		if took := time.Since(began); !errors.Is(err, mcp.ErrClosed) || took > 3*time.Second {
			t.Errorf("after %v: %v", took, err)
		}
	})
}

func TestUpdatesEndsAfterMaxOutage(t *testing.T) {
	s := &fakeServer{responses: map[string]responder{"tasks/get": func(*mcp.Request, int) (string, error) {
		return "", &mcp.TransportError{Method: "tasks/get", Err: errors.New("connection refused")}
	}}}
	runWithServer(t, s, nil, nil, func(t *testing.T, c *mcp.Client) {
		began := time.Now()
		states, err := collectUpdates(t.Context(), tasks.Resume(c, "t1"))
		if took := time.Since(began); len(states) != 0 || err == nil || took > 3*time.Minute {
			t.Errorf("after %v: %q, %v", took, states, err)
		}
	})
}

// newNotifyingServer returns a server with a subscription. It sends the acknowledgement, and then
// one notification every ten seconds.
func newNotifyingServer(acknowledged string, notifications ...string) *fakeServer {
	s := &fakeServer{responses: map[string]responder{"tools/call": always(createdTask(``))}}
	s.responses["subscriptions/listen"] = always(`{}`)
	s.intercept = func(ctx context.Context, req *mcp.Request) error {
		if req.Method != "subscriptions/listen" {
			return nil
		}
		id, err := json.Marshal(req.ID)
		if err != nil {
			return err
		}
		meta := `"_meta":{"io.modelcontextprotocol/subscriptionId":` + string(id) + `}`
		ack := `{` + meta + `,"notifications":` + acknowledged + `}`
		if err := req.Notify(ctx, "notifications/subscriptions/acknowledged", json.RawMessage(ack)); err != nil {
			return err
		}
		for _, task := range notifications {
			time.Sleep(10 * time.Second)
			if err := req.Notify(ctx, "notifications/tasks", json.RawMessage(`{`+meta+`,`+task[1:])); err != nil {
				return err
			}
		}
		<-ctx.Done()
		return context.Cause(ctx)
	}
	return s
}

// Requirement: TASKX-22
func TestUpdatesSubscribes(t *testing.T) {
	for _, on := range mcptest.Since(mcptest.Modern) {
		t.Run(on.Transport, func(t *testing.T) {
			s := newNotifyingServer(`{"taskIds":["t1"]}`, taskState("working", `,"statusMessage":"half"`),
				strings.Replace(taskState("failed", `,"error":{"code":1,"message":"not ours"}`), "t1", "t2",
					1), taskState("completed", helloResult))
			s.responses["tasks/get"] = always(taskState("working", ``))
			runWithServerOn(t, s, on, nil, nil, func(t *testing.T, c *mcp.Client) {
				states, err := collectUpdates(t.Context(), start(t, c, "x"))
				if want := []string{"working", "working half", "completed"}; err != nil || !slices.Equal(states, want) {
					t.Errorf("got %q, %v; want %q", states, err, want)
				}
				// One at the start, and one after the acknowledgement, since changes may have been
				// missed in between.
				s.wantRequests(t, "tools/call x", "tasks/get t1", "subscriptions/listen", "tasks/get t1")
			})
		})
	}
}

func TestCallSubscribesWithListen(t *testing.T) {
	s := newNotifyingServer(`{"taskIds":["t1"]}`, taskState("input_required", `,"inputRequests":{"k":`+form("x")+`}`),
		taskState("working", ``), taskState("completed", helloResult))
	s.responses["tasks/get"] = always(taskState("working", ``))
	s.responses["tasks/update"] = always(`{}`)
	var asked []string
	runWithServer(t, s, answerForms(&asked), &tasks.ClientOptions{Listen: true}, func(t *testing.T, c *mcp.Client) {
		began := time.Now()
		r, err := c.CallTool(t.Context(), "x", nil)
		wantText(t, r, err, "hello")
		if took := time.Since(began); len(asked) != 1 || took != 30*time.Second {
			t.Errorf("after %v: elicitations %q", took, asked)
		}
		if at := s.requestTimes("tasks/get"); len(at) > 2 {
			t.Errorf("tasks/get at %v, want at most 2 with notifications", at)
		}
	})
}

// Without a subscription the task is polled, whatever the reason.
func TestSubscribedTaskIsStillPolled(t *testing.T) {
	for name, s := range map[string]*fakeServer{
		"refused":                  {responses: map[string]responder{"tools/call": always(createdTask(``))}},
		"not acknowledged":         newNotifyingServer(`{}`),
		"other ids acknowledged":   newNotifyingServer(`{"taskIds":["t2"]}`),
		"invalid ids acknowledged": newNotifyingServer(`{"taskIds":"t1"}`),
		"invalid notification":     newNotifyingServer(`{"taskIds":["t1"]}`, `{"taskId":"t1","status":"new"}`),
	} {
		t.Run(name, func(t *testing.T) {
			s.responses["tasks/get"] = inOrder(taskState("working", ``), taskState("working", ``), taskState("completed", helloResult))
			runWithServer(t, s, nil, &tasks.ClientOptions{Listen: true}, func(t *testing.T, c *mcp.Client) {
				began := time.Now()
				r, err := c.CallTool(t.Context(), "x", nil)
				wantText(t, r, err, "hello")
				if took := time.Since(began); took > 45*time.Second {
					t.Errorf("took %v, want at most 45s", took)
				}
				states, err := collectUpdates(t.Context(), tasks.Resume(c, "t1"))
				if err != nil || fmt.Sprint(states) != "[completed]" {
					t.Errorf("got %q, %v", states, err)
				}
			})
		})
	}
}

// An invalid notification causes a poll, but not more often than the poll interval.
func TestManyNotificationsDoNotCauseManyRequests(t *testing.T) {
	for name, wake := range map[string]string{
		"invalid status":             `{"taskId":"t1","status":"nonsense"}`,
		"completed without a result": `{"taskId":"t1","status":"completed"}`,
	} {
		t.Run(name, func(t *testing.T) {
			s := newNotifyingServer(`{"taskIds":["t1"]}`)
			first := s.intercept
			s.intercept = func(ctx context.Context, req *mcp.Request) error {
				if req.Method == "subscriptions/listen" {
					notify := req.Notify
					go func() {
						for range 1000 {
							time.Sleep(10 * time.Millisecond)
							_ = notify(ctx, "notifications/tasks", json.RawMessage(wake))
						}
					}()
				}
				return first(ctx, req)
			}
			s.responses["tasks/get"] = always(taskState("working", `,"pollIntervalMs":4000`))
			runWithServer(t, s, nil, nil, func(t *testing.T, c *mcp.Client) {
				ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
				defer cancel()
				if _, err := collectUpdates(ctx, start(t, c, "x")); err != nil {
					t.Error(err)
				}
				want := []time.Duration{0, 0, 4 * time.Second, 8 * time.Second, 12 * time.Second}
				if at := s.requestTimes("tasks/get"); !slices.Equal(at, want) {
					t.Errorf("asked after %v, want %v", at, want)
				}
			})
		})
	}
}
