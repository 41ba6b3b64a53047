package mcp_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/mcp"
)

// acknowledge sends the acknowledgement of a subscription.
func acknowledge(ctx context.Context, req *mcp.Request) {
	_ = req.Notify(ctx, "notifications/subscriptions/acknowledged",
		json.RawMessage(`{"notifications":{"toolsListChanged":true}}`))
}

func TestListenReportsDroppedEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newScriptedClient(t, nil, func(ctx context.Context, req *mcp.Request) (string, error) {
			acknowledge(ctx, req)
			for i := range 5000 {
				_ = req.Notify(ctx, "notifications/resources/updated",
					json.RawMessage(fmt.Sprintf(`{"uri":"a:%d"}`, i)))
			}
			_ = req.Notify(ctx, "notifications/tools/list_changed", json.RawMessage(`{}`))
			<-ctx.Done()
			return "", ctx.Err()
		})
		got := map[mcp.EventKind]int{}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		for e, err := range c.Listen(ctx, mcp.SubscriptionFilter{ToolsListChanged: true,
			ResourceSubscriptions: []string{"a:"}}) {
			if err != nil {
				t.Fatal(err)
			}
			if got[e.Kind]++; e.Kind == mcp.EventListening {
				time.Sleep(time.Second)
			}
			if e.Kind == mcp.EventChangesMissed && (e.Filter == nil || !e.Filter.ToolsListChanged) {
				t.Errorf("got EventChangesMissed with filter %+v, want the tools", e.Filter)
			}
		}
		if got[mcp.EventToolsChanged] != 1 || got[mcp.EventChangesMissed] == 0 || got[mcp.EventResourceUpdated] > 2100 {
			t.Errorf("got events %v, want one of tools, missed changes and at most 2100 of resources", got)
		}
	})
}

// Requirement: SUB-03
func TestMissingAcknowledgementTimesOut(t *testing.T) {
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
			t.Errorf("got %v, want ErrTimeout", last)
		}
	})
}

// Requirement: SUB-03
func TestNoTimeoutAfterTheAcknowledgement(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		started := 0
		c := newScriptedClient(t, nil, func(ctx context.Context, req *mcp.Request) (string, error) {
			started++
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
		if started != 1 {
			t.Errorf("got %d subscriptions, want 1", started)
		}
	})
}

// Requirement: SUB-11
func TestShortSubscriptionsAreRenewedWithBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		started, missed := 0, 0
		c := newScriptedClient(t, nil, func(ctx context.Context, req *mcp.Request) (string, error) {
			started++
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
				missed++
			}
		}
		if started > 600 || started < 60 || missed != started-1 {
			t.Errorf("got %d subscriptions and %d missed changes within an hour, want 60 to 600 and one less",
				started, missed)
		}
	})
}

// A queued EventChangesMissed has the filter of the last acknowledgement.
//
// Requirement: SUB-06
func TestChangesMissedHasTheLastFilter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		started := 0
		c := newScriptedClient(t, nil, func(ctx context.Context, req *mcp.Request) (string, error) {
			if started++; started <= 2 {
				acknowledge(ctx, req)
				return `{"resultType":"complete"}`, nil
			}
			_ = req.Notify(ctx, "notifications/subscriptions/acknowledged",
				json.RawMessage(`{"notifications":{"promptsListChanged":true}}`))
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
			t.Errorf("got last filter %+v, want prompts only", last)
		}
	})
}

func TestPanicOfMiddlewareEndsListen(t *testing.T) {
	opts := &mcp.ClientOptions{Middleware: []mcp.Middleware{func(mcp.Handler) mcp.Handler {
		return mcp.HandlerFunc(func(context.Context, *mcp.Request) (mcp.Result, error) { panic("failed") })
	}}}
	c := newScriptedClient(t, opts, func(context.Context, *mcp.Request) (string, error) { return "", nil })
	var last error
	for _, err := range c.Listen(t.Context(), mcp.SubscriptionFilter{ToolsListChanged: true}) {
		last = err
	}
	if last == nil {
		t.Error("Listen ended without an error")
	}
}

// A server that restarts refuses renewals as busy for a while. A first subscription is not repeated.
func TestListenOutlivesABusyServer(t *testing.T) {
	for _, c := range []struct {
		name             string
		accepts, refuses int // the first requests are accepted, the next ones refused
		want             []mcp.EventKind
		fails            bool
	}{
		{"restart", 1, 3, []mcp.EventKind{mcp.EventListening, mcp.EventChangesMissed}, false},
		{"too long", 1, 100, []mcp.EventKind{mcp.EventListening}, true},
		{"at first", 0, 1, nil, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				requests := 0
				client := newScriptedClient(t, nil, func(ctx context.Context, req *mcp.Request) (string, error) {
					switch requests++; {
					case requests > c.accepts && requests <= c.accepts+c.refuses:
						return "", mcp.Errorf(mcp.CodeBusy, "server is shutting down")
					case requests <= c.accepts:
						acknowledge(ctx, req)
						return `{}`, nil // the server ends the subscription
					}
					acknowledge(ctx, req)
					<-ctx.Done()
					return "", context.Cause(ctx)
				})
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				defer cancel()
				var got []mcp.EventKind
				var last error
				for e, err := range client.Listen(ctx, mcp.SubscriptionFilter{ToolsListChanged: true}) {
					if last = err; err == nil {
						got = append(got, e.Kind)
					}
				}
				if !slices.Equal(got, c.want) || (last != nil) != c.fails {
					t.Errorf("got events %v and error %v, want %v and an error: %t", got, last, c.want, c.fails)
				}
			})
		})
	}
}

// Servers of older revisions use this code when they are busy. In 2026-07-28 it has no meaning.
//
// Requirement: RPC-28
func TestListenEndsWithAnImplementationCode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		requests := 0
		client := newScriptedClient(t, nil, func(ctx context.Context, req *mcp.Request) (string, error) {
			if requests++; requests == 2 {
				return "", &mcp.Error{Code: -32000, Message: "busy", Data: []byte(`{"retryAfterMs":1000}`)}
			}
			acknowledge(ctx, req)
			return `{}`, nil // the server ends the subscription
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		var last error
		for _, err := range client.Listen(ctx, mcp.SubscriptionFilter{ToolsListChanged: true}) {
			last = err
		}
		if got, ok := errors.AsType[*mcp.Error](last); !ok || got.Code != -32000 || requests != 2 {
			t.Errorf("got %v after %d requests, want code -32000 after 2", last, requests)
		}
	})
}
