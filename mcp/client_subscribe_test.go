package mcp_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/mcp"
)

// acknowledge sends the acknowledgement of a subscription.
func acknowledge(ctx context.Context, req *mcp.Request) {
	_ = req.Notify(ctx, "notifications/subscriptions/acknowledged", json.RawMessage(`{"notifications":{"toolsListChanged":true}}`))
}

// Dropped events are reported.
func TestSUB_TooManyEventsBecomeChangesMissed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newScriptedClient(t, nil, func(ctx context.Context, req *mcp.Request) (string, error) {
			acknowledge(ctx, req)
			for i := range 5000 {
				_ = req.Notify(ctx, "notifications/resources/updated", json.RawMessage(fmt.Sprintf(`{"uri":"a:%d"}`, i)))
			}
			_ = req.Notify(ctx, "notifications/tools/list_changed", json.RawMessage(`{}`))
			<-ctx.Done()
			return "", ctx.Err()
		})
		got := map[mcp.EventKind]int{}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		for e, err := range c.Listen(ctx, mcp.SubscriptionFilter{ToolsListChanged: true, ResourceSubscriptions: []string{"a:"}}) {
			if err != nil {
				t.Fatal(err)
			}
			if got[e.Kind]++; e.Kind == mcp.EventListening {
				time.Sleep(time.Second)
			}
			if e.Kind == mcp.EventChangesMissed && (e.Filter == nil || !e.Filter.ToolsListChanged) {
				t.Errorf("the filter of a resync is %+v", e.Filter)
			}
		}
		if got[mcp.EventToolsChanged] != 1 || got[mcp.EventChangesMissed] == 0 || got[mcp.EventResourceUpdated] > 2100 {
			t.Errorf("got %v", got)
		}
	})
}

// A server that never acknowledges is an error after the timeout.
func TestSUB03_MissingAcknowledgementTimesOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newScriptedClient(t, nil, func(ctx context.Context, _ *mcp.Request) (string, error) {
			<-ctx.Done()
			return "", context.Cause(ctx)
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		var last error
		for _, err := range c.Listen(ctx, mcp.SubscriptionFilter{ToolsListChanged: true}) {
			last = err
		}
		if !errors.Is(last, mcp.ErrTimeout) {
			t.Errorf("got %v", last)
		}
	})
}

// A subscription that is acknowledged has no timeout.
func TestSUB03_NoTimeoutAfterTheAcknowledgement(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := 0
		c := newScriptedClient(t, nil, func(ctx context.Context, req *mcp.Request) (string, error) {
			begun++
			acknowledge(ctx, req)
			<-ctx.Done()
			return "", context.Cause(ctx)
		})
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Hour)
		defer cancel()
		for _, err := range c.Listen(ctx, mcp.SubscriptionFilter{ToolsListChanged: true}) {
			if err != nil {
				t.Error(err)
			}
		}
		if begun != 1 {
			t.Errorf("subscribed %d times", begun)
		}
	})
}

// The delay grows if a server ends each subscription at once.
func TestSUB11_ShortSubscriptionsAreRenewedWithBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun, resyncs := 0, 0
		c := newScriptedClient(t, nil, func(ctx context.Context, req *mcp.Request) (string, error) {
			begun++
			acknowledge(ctx, req)
			return `{"resultType":"complete"}`, nil
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		for e, err := range c.Listen(ctx, mcp.SubscriptionFilter{ToolsListChanged: true}) {
			if err != nil {
				t.Fatal(err)
			}
			if e.Kind == mcp.EventChangesMissed {
				resyncs++
			}
		}
		if begun > 600 || begun < 60 || resyncs != begun-1 {
			t.Errorf("subscribed %d times within an hour, %d resyncs", begun, resyncs)
		}
	})
}

// A queued EventChangesMissed has the filter of the last acknowledgement.
func TestSUB06_ChangesMissedHasTheLastFilter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := 0
		c := newScriptedClient(t, nil, func(ctx context.Context, req *mcp.Request) (string, error) {
			if begun++; begun == 1 {
				acknowledge(ctx, req)
				return `{"resultType":"complete"}`, nil
			}
			if begun == 2 {
				acknowledge(ctx, req)
				return `{"resultType":"complete"}`, nil
			}
			_ = req.Notify(ctx, "notifications/subscriptions/acknowledged", json.RawMessage(`{"notifications":{"promptsListChanged":true}}`))
			<-ctx.Done()
			return "", ctx.Err()
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		var last *mcp.SubscriptionFilter
		for e, err := range c.Listen(ctx, mcp.SubscriptionFilter{ToolsListChanged: true, PromptsListChanged: true}) {
			if err != nil {
				t.Fatal(err)
			}
			if e.Kind == mcp.EventListening {
				time.Sleep(30 * time.Minute)
			}
			last = e.Filter
		}
		if last == nil || !last.PromptsListChanged || last.ToolsListChanged {
			t.Errorf("the last filter is %+v", last)
		}
	})
}

// Middleware that panics while a subscription is open ends the loop, not the process.
func TestR7_3_7_PanicOfMiddlewareInListen(t *testing.T) {
	opts := &mcp.ClientOptions{Middleware: []mcp.Middleware{func(mcp.Handler) mcp.Handler {
		return mcp.HandlerFunc(func(context.Context, *mcp.Request) (mcp.Result, error) { panic("ouch") })
	}}}
	c := newScriptedClient(t, opts, func(context.Context, *mcp.Request) (string, error) { return "", nil })
	var last error
	for _, err := range c.Listen(t.Context(), mcp.SubscriptionFilter{ToolsListChanged: true}) {
		last = err
	}
	if last == nil {
		t.Error("no error")
	}
}
