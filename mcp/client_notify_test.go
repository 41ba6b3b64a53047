package mcp_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/mcp"
)

// Log messages of concurrent requests are handled one at a time.
func TestLogHandlerIsNotCalledConcurrently(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var at, seen atomic.Int32
		opts := &mcp.ClientOptions{Log: func(context.Context, *mcp.LoggingMessage) {
			if at.Add(1) > 1 {
				t.Error("two log messages at once")
			}
			time.Sleep(time.Millisecond)
			at.Add(-1)
			seen.Add(1)
		}}
		c := newScriptedClient(t, opts, func(ctx context.Context, req *mcp.Request) (string, error) {
			for range 3 {
				_ = req.Notify(ctx, "notifications/message", json.RawMessage(`{"level":"info","data":"x"}`))
			}
			return emptyContent, nil
		})
		var calls sync.WaitGroup
		for range 4 {
			calls.Go(func() {
				if _, err := c.CallTool(t.Context(), "x", nil); err != nil {
					t.Error(err)
				}
			})
		}
		calls.Wait()
		c.Close()
		if seen.Load() != 12 {
			t.Errorf("got %d messages, want 12", seen.Load())
		}
	})
}

// The handler's call causes another log message.
func TestLogHandlerMayCallTheClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c *mcp.Client
		inner := make(chan error, 1)
		opts := &mcp.ClientOptions{Log: func(_ context.Context, m *mcp.LoggingMessage) {
			if m.Text() == "outer" {
				_, err := c.CallTool(t.Context(), "inner", nil)
				inner <- err
			}
		}}
		c = newScriptedClient(t, opts, func(ctx context.Context, req *mcp.Request) (string, error) {
			text := memberOf(t, req.Params, "name")
			return emptyContent, req.Notify(ctx, "notifications/message",
				json.RawMessage(`{"level":"info","data":`+text+`}`))
		})
		began := time.Now()
		if _, err := c.CallTool(t.Context(), "outer", nil); err != nil {
			t.Error(err)
		}
		if err := <-inner; err != nil || time.Since(began) != 0 {
			t.Errorf("inner call: got error %v after %v, want none at once", err, time.Since(began))
		}
	})
}

// Queued updates are dropped when the request returns.
//
// Requirement: PROG-04
func TestNoProgressAfterTheRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newScriptedClient(t, nil, func(ctx context.Context, req *mcp.Request) (string, error) {
			for i := range 100 {
				_ = req.Notify(ctx, "notifications/progress",
					json.RawMessage(fmt.Sprintf(`{"progressToken":1,"progress":%d}`, i)))
			}
			<-ctx.Done()
			_ = req.Notify(ctx, "notifications/progress", json.RawMessage(`{"progressToken":1,"progress":1000}`))
			return "", ctx.Err()
		})
		ctx, cancel := context.WithTimeout(t.Context(), 10500*time.Millisecond)
		defer cancel()
		var returned atomic.Bool
		ctx = mcp.WithCallOptions(ctx, mcp.CallOptions{Progress: func(mcp.ProgressUpdate) {
			if returned.Load() {
				t.Error("Progress was called after the request returned")
			}
			time.Sleep(time.Second)
		}})
		_, err := c.CallTool(ctx, "x", nil)
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		returned.Store(true)
		time.Sleep(time.Minute)
	})
}

// Requirement: PROG-07
func TestProgressIsOptional(t *testing.T) {
	notifications := ""
	c := newScriptedClient(t, nil, func(ctx context.Context, req *mcp.Request) (string, error) {
		for params := range strings.FieldsSeq(notifications) {
			token := meta(t, req.Params, "progressToken")
			_ = req.Notify(ctx, "notifications/progress", json.RawMessage(strings.Replace(params, "TOKEN", token, 1)))
		}
		return emptyContent, nil
	})
	for _, test := range []struct{ name, notifications, want string }{
		{"no notifications", "", "[]"},
		{"no total", `{"progressToken":TOKEN,"progress":0.5}`, "[0.5/?]"},
		{"one with a total", `{"progressToken":TOKEN,"progress":1} {"progressToken":TOKEN,"progress":2,"total":3}`,
			"[1/? 2/3]"},
	} {
		notifications = test.notifications
		got := []string{}
		ctx := mcp.WithCallOptions(t.Context(), mcp.CallOptions{Progress: func(p mcp.ProgressUpdate) {
			total := "?"
			if p.Total != nil {
				total = fmt.Sprint(*p.Total)
			}
			got = append(got, fmt.Sprint(p.Progress)+"/"+total)
		}})
		if _, err := c.CallTool(ctx, "x", nil); err != nil || fmt.Sprint(got) != test.want {
			t.Errorf("%s: got %v, %v, want %s", test.name, got, err, test.want)
		}
	}
}

func TestInvalidLogLevelCannotAddEnvelopeMembers(t *testing.T) {
	got := ""
	c := newScriptedClient(t, &mcp.ClientOptions{LogLevel: `info","x":"y`},
		func(_ context.Context, req *mcp.Request) (string, error) {
			got = memberOf(t, req.Params, "_meta")
			return emptyContent, nil
		})
	if _, err := c.CallTool(t.Context(), "x", nil); err == nil && strings.Contains(got, `"x":"y"`) {
		t.Errorf("got _meta %s, want no member x", got)
	}
}
