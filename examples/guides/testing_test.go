package guides

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

func newLibrary() *mcp.Server {
	s := mcp.NewServer("library", "1.0.0", nil)
	mcp.AddTool(s, &mcp.Tool{Name: "find", Description: "Find books by words of their titles."}, find)
	mcp.AddTool(s, &mcp.Tool{Name: "reserve", Description: "Reserve a table."}, reserve)
	return s
}

func TestFind(t *testing.T) {
	c, err := mcp.Connect(t.Context(), mcp.InMemory(newLibrary()), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	got, err := mcp.CallTool[hits](t.Context(), c, "find", search{Query: "go", Limit: 3})
	if err != nil || got.Total != 3 {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestFindInEveryRevision(t *testing.T) {
	mcptest.RunClient(t, newLibrary(), nil, func(t *testing.T, c *mcp.Client) {
		res, err := c.CallTool(t.Context(), "find", search{Query: "go", Limit: 3})
		if err != nil || !strings.Contains(res.Text(), "go by rank") {
			t.Errorf("got %+v, %v", res, err)
		}
	})
}

func TestReserve(t *testing.T) {
	opts := &mcptest.Options{Answer: func(_ string, params json.RawMessage) (any, error) {
		if strings.Contains(string(params), "how many") {
			return map[string]any{"action": "accept", "content": map[string]any{"number": 4}}, nil
		}
		return map[string]any{"action": "decline"}, nil
	}}
	mcptest.RunOn(t, newLibrary(), mcptest.Since("2025-06-18"), opts, func(t *testing.T, c *mcptest.Client) {
		got := string(c.Call("tools/call", map[string]any{"name": "reserve"}))
		if !strings.Contains(got, "Nothing was reserved.") {
			t.Errorf("got %s", got)
		}
	})
}

// Each combination uses a new server, because the test changes the tools of the server.
func TestRemovedToolIsUnknown(t *testing.T) {
	for _, on := range mcptest.Combinations() {
		s := newLibrary()
		mcptest.RunOn(t, s, []mcptest.Combination{on}, nil, func(t *testing.T, c *mcptest.Client) {
			defer c.Listen(mcp.SubscriptionFilter{ToolsListChanged: true})()
			if tool, ok := mcp.Registered[mcp.Tool](s, "find"); ok {
				tool.Remove()
			}
			c.Await(1, "notifications/tools/list_changed")
			_, err := c.Try("tools/call", map[string]any{"name": "find"})
			if err == nil || err.Code != mcp.CodeInvalidParams {
				t.Errorf("got %v, want invalid params", err)
			}
		})
	}
}

func TestReserveByClient(t *testing.T) {
	opts := &mcp.ClientOptions{Elicit: func(context.Context, *mcp.ElicitRequestParams) (*mcp.ElicitResult, error) {
		return &mcp.ElicitResult{Action: mcp.ElicitCancel}, nil
	}}
	for _, on := range mcptest.Since("2025-06-18") {
		t.Run(on.String(), func(t *testing.T) {
			c := mcptest.Dial(t, newLibrary(), on, opts)
			_, err := mcp.CallTool[string](t.Context(), c, "reserve", nil)
			if _, failed := errors.AsType[*mcp.ToolError](err); !failed {
				t.Errorf("got %v, want a tool error", err)
			}
		})
	}
}

func TestScanTimesOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // time is fake: the test takes no second
		s := mcp.NewServer("scanner", "1.0.0", nil)
		mcp.AddTool(s, &mcp.Tool{Name: "scan"}, func(ctx context.Context, _ struct{}) (string, error) {
			<-ctx.Done()
			return "", context.Cause(ctx)
		})
		c, err := mcp.Connect(t.Context(), mcp.InMemory(s), &mcp.ClientOptions{Timeout: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := c.CallTool(t.Context(), "scan", nil); !errors.Is(err, mcp.ErrTimeout) {
			t.Errorf("got %v, want a timeout", err)
		}
	})
}
