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

func TestDisableDuringAnUpdateIsKept(t *testing.T) {
	s := mcp.NewServer("test", "1", nil)
	r := addTool(s, "switch", func(context.Context) (string, error) { return "done", nil })
	addTool(s, "other", func(context.Context) (string, error) { return "", nil })
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
		t.Error("call after Disable: got no error")
	}
	r.Enable()
	if list := string(c.Call("tools/list", nil)); !strings.Contains(list, `"title":"new"`) {
		t.Errorf("got %s, want the updated title", list)
	}
}

// Requirement: PROG-04
func TestNotifyAfterTheResultFails(t *testing.T) {
	for _, on := range mcptest.Combinations() {
		t.Run(on.String(), func(t *testing.T) {
			lateErr, answered := make(chan error, 1), make(chan struct{})
			s := mcp.NewServer("test", "1", nil)
			mcp.AddTool(s, &mcp.Tool{Name: "leave"}, func(ctx context.Context, _ struct{}) (string, error) {
				req := mcp.RequestFrom(ctx)
				go func() {
					<-answered
					params := json.RawMessage(`{"progressToken":1,"progress":1}`)
					lateErr <- req.Notify(context.Background(), "notifications/progress", params)
				}()
				return "done", nil
			})
			c := mcptest.Connect(t, s, on, nil)
			c.Call("tools/call", map[string]any{"name": "leave"})
			close(answered)
			if err := <-lateErr; err == nil {
				t.Error("Notify after the result: got no error")
			}
			c.Call("tools/list", nil)
			if n := c.Notifications("notifications/progress"); len(n) > 0 {
				t.Errorf("got %d notifications after the result, want none", len(n))
			}
		})
	}
}

// Requirement: RPC-20
func TestRawResultsGetAResultType(t *testing.T) {
	s := mcp.NewServer("test", "1", nil)
	s.HandleMethod("x/raw", mcp.HandlerFunc(func(context.Context, *mcp.Request) (mcp.Result, error) {
		return mcp.RawResult(`{"a":1}`), nil
	}))
	c := mcptest.Connect(t, s, mcptest.Combination{Transport: mcptest.InMemory, Revision: mcptest.Modern}, nil)
	if got := string(c.Call("x/raw", nil)); got != `{"resultType":"complete","a":1}` {
		t.Errorf("got %s, want resultType complete", got)
	}
}

// Requirement: TOOL-13
func TestOutputSchemaRequiresStructuredOutput(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("AddTool of a tool without structured output did not panic")
		}
	}()
	s := mcp.NewServer("test", "1", nil)
	mcp.AddTool(s, &mcp.Tool{Name: "text", OutputSchema: json.RawMessage(`{"type":"object"}`)},
		func(context.Context, struct{}) (string, error) { return "", errors.ErrUnsupported })
}
