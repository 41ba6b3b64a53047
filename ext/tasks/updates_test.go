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

// watched returns the states that Updates yields.
func watched(ctx context.Context, h *tasks.Handle) (states []string, err error) {
	for task, e := range h.Updates(ctx) {
		if e != nil {
			return states, e
		}
		states = append(states, strings.TrimSpace(string(task.Status)+" "+task.Message))
	}
	return states, nil
}

func TestUpdatesPollsWithoutSubscription(t *testing.T) {
	s := &script{on: map[string]step{
		"tools/call": always(created(``)),
		"tasks/get": inTurn(seen("working", ``), seen("working", ``), seen("working", `,"statusMessage":"half"`),
			seen("working", `,"statusMessage":"half"`),
			seen("input_required", `,"inputRequests":{"k":`+form("x")+`}`), seen("failed",
				`,"error":{"code":-32603,"message":"no"}`)),
	}}
	onScript(t, s, nil, nil, func(t *testing.T, c *mcp.Client) {
		states, err := watched(t.Context(), start(t, c, "x"))
		if want := []string{"working", "working half", "input_required", "failed"}; err != nil ||
			!slices.Equal(states, want) {
			t.Errorf("got %q, %v; want %q", states, err, want)
		}
	})
}

func TestUpdatesEndsWithContext(t *testing.T) {
	s := &script{on: map[string]step{"tools/call": always(created(``)), "tasks/get": always(seen("working", ``))}}
	onScript(t, s, nil, nil, func(t *testing.T, c *mcp.Client) {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		states, err := watched(ctx, start(t, c, "x"))
		if err != nil || !slices.Equal(states, []string{"working"}) {
			t.Errorf("got %q, %v", states, err)
		}
		for range tasks.Resume(c, "t1").Updates(t.Context()) {
			break
		}
	})
}

func TestUpdatesEndsWithClient(t *testing.T) {
	s := &script{on: map[string]step{"tools/call": always(created(``)), "tasks/get": always(seen("working", ``))}}
	onScript(t, s, nil, nil, func(t *testing.T, c *mcp.Client) {
		h := start(t, c, "x")
		time.AfterFunc(1500*time.Millisecond, func() { c.Close() })
		began := time.Now()
		_, err := watched(t.Context(), h)
		if took := time.Since(began); !errors.Is(err, mcp.ErrClosed) || took > 3*time.Second {
			t.Errorf("after %v: %v", took, err)
		}
	})
}

func TestUpdatesEndsAfterMaxOutage(t *testing.T) {
	s := &script{on: map[string]step{"tasks/get": func(*mcp.Request, int) (string, error) {
		return "", &mcp.TransportError{Method: "tasks/get", Err: errors.New("connection refused")}
	}}}
	onScript(t, s, nil, nil, func(t *testing.T, c *mcp.Client) {
		began := time.Now()
		states, err := watched(t.Context(), tasks.Resume(c, "t1"))
		if took := time.Since(began); len(states) != 0 || err == nil || took > 3*time.Minute {
			t.Errorf("after %v: %q, %v", took, states, err)
		}
	})
}

// telling returns a script with a subscription: say returns the notification after each second, the
// first with the acknowledgement.
func telling(acknowledged string, say ...string) *script {
	s := &script{on: map[string]step{"tools/call": always(created(``))}}
	s.on["subscriptions/listen"] = always(`{}`)
	s.waits = func(ctx context.Context, req *mcp.Request) error {
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
		for _, task := range say {
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

func TestTASKX22_UpdatesSubscribes(t *testing.T) {
	for _, on := range mcptest.Since(mcptest.Modern) {
		t.Run(on.Transport, func(t *testing.T) {
			s := telling(`{"taskIds":["t1"]}`, seen("working", `,"statusMessage":"half"`),
				strings.Replace(seen("failed", `,"error":{"code":1,"message":"not ours"}`), "t1", "t2",
					1), seen("completed", hello))
			s.on["tasks/get"] = always(seen("working", ``))
			onScriptAt(t, s, on, nil, nil, func(t *testing.T, c *mcp.Client) {
				states, err := watched(t.Context(), start(t, c, "x"))
				if want := []string{"working", "working half", "completed"}; err != nil || !slices.Equal(states, want) {
					t.Errorf("got %q, %v; want %q", states, err, want)
				}
				// Once to begin with, once because something may have been missed, and then it is
				// told.
				s.wantSaid(t, "tools/call x", "tasks/get t1", "subscriptions/listen", "tasks/get t1")
			})
		})
	}
}

func TestCallSubscribesWithListen(t *testing.T) {
	s := telling(`{"taskIds":["t1"]}`, seen("input_required", `,"inputRequests":{"k":`+form("x")+`}`),
		seen("working", ``), seen("completed", hello))
	s.on["tasks/get"] = always(seen("working", ``))
	s.on["tasks/update"] = always(`{}`)
	var asked []string
	onScript(t, s, answering(&asked), &tasks.ClientOptions{Listen: true}, func(t *testing.T, c *mcp.Client) {
		began := time.Now()
		r, err := c.CallTool(t.Context(), "x", nil)
		wantText(t, r, err, "hello")
		if took := time.Since(began); len(asked) != 1 || took != 30*time.Second {
			t.Errorf("after %v: asked %q", took, asked)
		}
		if at := s.saidAt("tasks/get"); len(at) > 2 {
			t.Errorf("it polled after %v in spite of the notification", at)
		}
	})
}

// Without a subscription the task is polled, whatever the reason.
func TestSubscribedTaskIsStillPolled(t *testing.T) {
	for name, s := range map[string]*script{
		"refused":          {on: map[string]step{"tools/call": always(created(``))}},
		"not agreed":       telling(`{}`),
		"agreed to others": telling(`{"taskIds":["t2"]}`),
		"agreed to no ids": telling(`{"taskIds":"t1"}`),
		"told nonsense":    telling(`{"taskIds":["t1"]}`, `{"taskId":"t1","status":"new"}`),
	} {
		t.Run(name, func(t *testing.T) {
			s.on["tasks/get"] = inTurn(seen("working", ``), seen("working", ``), seen("completed", hello))
			onScript(t, s, nil, &tasks.ClientOptions{Listen: true}, func(t *testing.T, c *mcp.Client) {
				began := time.Now()
				r, err := c.CallTool(t.Context(), "x", nil)
				wantText(t, r, err, "hello")
				if took := time.Since(began); took > 45*time.Second {
					t.Errorf("it took %v", took)
				}
				states, err := watched(t.Context(), tasks.Resume(c, "t1"))
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
		"that cannot be read":     `{"taskId":"t1","status":"nonsense"}`,
		"with a broken statement": `{"taskId":"t1","status":"completed"}`,
	} {
		t.Run(name, func(t *testing.T) {
			s := telling(`{"taskIds":["t1"]}`)
			first := s.waits
			s.waits = func(ctx context.Context, req *mcp.Request) error {
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
			s.on["tasks/get"] = always(seen("working", `,"pollIntervalMs":4000`))
			onScript(t, s, nil, nil, func(t *testing.T, c *mcp.Client) {
				ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
				defer cancel()
				if _, err := watched(ctx, start(t, c, "x")); err != nil {
					t.Error(err)
				}
				want := []time.Duration{0, 0, 4 * time.Second, 8 * time.Second, 12 * time.Second}
				if at := s.saidAt("tasks/get"); !slices.Equal(at, want) {
					t.Errorf("asked after %v, want %v", at, want)
				}
			})
		})
	}
}
