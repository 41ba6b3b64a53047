package tasks_test

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/patchbay-mcp/patchbay/ext/tasks"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// TestDocTasks runs the code of the package comment: a server whose tool runs as a task, and its
// client.
func TestDocTasks(tt *testing.T) {
	synctest.Test(tt, func(tt *testing.T) {
		type bookIn struct {
			Title string `json:"title"`
		}
		print := func(ctx context.Context, in bookIn) (string, error) {
			color, err := mcp.Ask[string](ctx, "color", "Which color?", nil)
			return in.Title + " in " + color, err
		}
		s := mcp.NewServer("press", "1.0.0", nil)
		t := tasks.NewServer(s, nil)
		tasks.AddTool(t, &mcp.Tool{Name: "print"}, nil, print)

		ask := func(context.Context, *mcp.ElicitRequestParams) (*mcp.ElicitResult, error) {
			return &mcp.ElicitResult{Action: mcp.ElicitAccept, Content: []byte(`{"value":"blue"}`)}, nil
		}
		ctx, transport, book := tt.Context(), mcp.InMemory(s), bookIn{"Emma"}
		c, err := mcp.Connect(ctx, transport, tasks.Declare(&mcp.ClientOptions{Elicit: ask}, nil))
		text, err := mcp.CallTool[string](ctx, c, "print", book) // waits, and answers the task's questions
		h, err := tasks.Start(ctx, c, "print", book)             // does not wait
		result, err := tasks.Resume(c, h.ID()).Wait(ctx)         // later, in any process
		if err != nil || text != "Emma in blue" || result.Text() != text {
			tt.Errorf("got %q and %+v, %v", text, result, err)
		}
		c.Close()
		if err := t.Close(ctx); err != nil {
			tt.Error(err)
		}
	})
}
