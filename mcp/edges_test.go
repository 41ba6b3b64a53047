package mcp_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

func TestDisableIsNotUndoneByAnUpdateThatRuns(t *testing.T) {
	s := mcp.NewServer("test", "1", nil)
	r := mcp.AddTool(s, &mcp.Tool{Name: "switch"}, func(context.Context, struct{}) (string, error) { return "ran", nil })
	mcp.AddTool(s, &mcp.Tool{Name: "other"}, func(context.Context, struct{}) (string, error) { return "", nil })
	changing, disabled, updated := make(chan struct{}, 2), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(updated)
		r.Update(func(t *mcp.Tool) {
			changing <- struct{}{}
			<-disabled
			t.Title = "new"
		})
	}()
	<-changing
	r.Disable()
	close(disabled)
	<-updated
	c := mcptest.Connect(t, s, mcptest.Combination{Transport: mcptest.InMemory, Revision: mcptest.Modern}, nil)
	if _, err := c.Try("tools/call", map[string]any{"name": "switch"}); err == nil {
		t.Error("the tool was called after Disable had returned")
	}
	r.Enable()
	if list := string(c.Call("tools/list", nil)); !strings.Contains(list, `"title":"new"`) {
		t.Errorf("the update was lost: %s", list)
	}
}

func TestPROG04_NothingFollowsTheResultOnAnyTransport(t *testing.T) {
	type late struct{ err chan error }
	for _, on := range mcptest.Combinations() {
		t.Run(on.Transport+"/"+on.Revision, func(t *testing.T) {
			l, answered := late{make(chan error, 1)}, make(chan struct{})
			s := mcp.NewServer("test", "1", nil)
			mcp.AddTool(s, &mcp.Tool{Name: "leave"}, func(ctx context.Context, _ struct{}) (string, error) {
				req := mcp.RequestFrom(ctx)
				go func() {
					<-answered
					l.err <- req.Notify(context.Background(), "notifications/progress", json.RawMessage(`{"progressToken":1,"progress":1}`))
				}()
				return "left", nil
			})
			c := mcptest.Connect(t, s, on, nil)
			c.Call("tools/call", map[string]any{"name": "leave"})
			close(answered)
			if err := <-l.err; err == nil {
				t.Error("a notification was taken after the result")
			}
			c.Call("tools/list", nil)
			if n := c.Notifications("notifications/progress"); len(n) > 0 {
				t.Errorf("%d notifications after the result", len(n))
			}
		})
	}
}

func TestRPC20_EveryResultHasItsType(t *testing.T) {
	s := mcp.NewServer("test", "1", nil)
	s.HandleMethod("x/raw", mcp.HandlerFunc(func(context.Context, *mcp.Request) (mcp.Result, error) {
		return mcp.RawResult(`{"a":1}`), nil
	}))
	c := mcptest.Connect(t, s, mcptest.Combination{Transport: mcptest.InMemory, Revision: mcptest.Modern}, nil)
	if got := string(c.Call("x/raw", nil)); got != `{"resultType":"complete","a":1}` {
		t.Errorf("got %s", got)
	}
}

func TestTOOL13_AnOutputSchemaNeedsStructuredOutput(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("a tool that can never keep its promise was registered")
		}
	}()
	s := mcp.NewServer("test", "1", nil)
	mcp.AddTool(s, &mcp.Tool{Name: "text", OutputSchema: json.RawMessage(`{"type":"object"}`)},
		func(context.Context, struct{}) (string, error) { return "", errors.ErrUnsupported })
}
