package mcp_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcp/driver"
)

// Timers are reused between requests; each request still has its own timeout.
func TestEveryRequestHasItsOwnTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := mcp.NewServer("s", "1", &mcp.ServerOptions{Logger: discardLogger()})
		mcp.AddTool(s, &mcp.Tool{Name: "sleep"}, func(ctx context.Context, in struct {
			For  int64 `json:"for"` // nanoseconds
			User int64 `json:"user"`
		}) (string, error) {
			done := driver.PauseTimeouts(ctx) // the handler's context is the client's: they are in one process
			time.Sleep(time.Duration(in.User))
			done()
			select {
			case <-time.After(time.Duration(in.For)):
				return "slept", nil
			case <-ctx.Done():
				return "", context.Cause(ctx)
			}
		})
		c, err := mcp.Connect(t.Context(), mcp.InMemory(s), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		ctx := mcp.WithCallOptions(t.Context(), mcp.CallOptions{Timeout: time.Second})
		for round := range 4 {
			for _, test := range []struct {
				user, rest, took time.Duration
				err              error
			}{
				{0, 900 * time.Millisecond, 900 * time.Millisecond, nil},
				{0, 2 * time.Second, time.Second, mcp.ErrTimeout},
				{time.Minute, 900 * time.Millisecond, time.Minute + 900*time.Millisecond, nil},
				{time.Minute, 2 * time.Second, time.Minute + time.Second, mcp.ErrTimeout},
			} {
				began := time.Now()
				_, err := c.CallTool(ctx, "sleep", map[string]int64{"for": int64(test.rest), "user": int64(test.user)})
				if took := time.Since(began); took != test.took || !errors.Is(err, test.err) {
					t.Errorf("round %d, %v after a pause of %v: got %v after %v, want %v after %v", round, test.rest, test.user, err, took, test.err, test.took)
				}
			}
		}
	})
}
