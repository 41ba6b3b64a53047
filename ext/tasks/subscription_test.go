package tasks_test

import (
	"context"
	"encoding/json"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/ext/tasks"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// The progress of a task becomes its status message. A subscription to the task gets notifications/tasks only, also if
// it has a progress token.
//
// Requirement: PROG-10
func TestSubscriptionsToTasksGetNoProgress(t *testing.T) {
	type params = map[string]any
	opts := &mcptest.Options{
		Capabilities: params{"extensions": params{tasks.ID: params{}}},
		Extension: mcptest.Extension{
			ResultTypes: []string{"task"}, Topics: map[string]string{"notifications/tasks": "taskIds"},
		},
	}
	for _, combination := range mcptest.Since(mcptest.Modern) {
		server := mcp.NewServer("test", "1", nil)
		s := tasks.NewServer(server, nil)
		tasks.AddTool(s, &mcp.Tool{Name: "count"}, nil, func(ctx context.Context, _ struct{}) (string, error) {
			for i := range 3 {
				time.Sleep(time.Second)
				mcp.Progress(ctx, float64(i+1), 3, "counting")
			}
			return "done", nil
		})
		mcptest.RunOn(t, server, []mcptest.Combination{combination}, opts, func(t *testing.T, c *mcptest.Client) {
			token := params{"progressToken": "p"}
			var task struct{ TaskID string }
			raw := c.Send("tools/call", params{"name": "count", "_meta": token}).Wait().Result
			if err := json.Unmarshal(raw, &task); err != nil || task.TaskID == "" {
				t.Fatalf("got %s, %v, want a task", raw, err)
			}
			c.Send("subscriptions/listen", params{
				"notifications": params{"taskIds": []string{task.TaskID}}, "_meta": token,
			})
			time.Sleep(time.Minute)
			synctest.Wait()
			if got := c.Notifications("notifications/tasks"); len(got) == 0 {
				t.Error("got no notifications of the task")
			}
			if got := c.Notifications("notifications/progress"); len(got) > 0 {
				t.Errorf("got progress %s, want none", got[0].Params)
			}
			if err := s.Close(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}
