package bolt_test

import (
	"context"
	"os"
	"testing"

	"github.com/patchbay-mcp/patchbay/ext/tasks"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/stores/bolt"
)

// TestDocTasks runs the code of the package comment.
func TestDocTasks(t *testing.T) {
	t.Chdir(t.TempDir())
	server := mcp.NewServer("press", "1.0.0", nil)
	err := func() error {
		store, err := bolt.OpenTasks("tasks.db", nil)
		if err != nil {
			return err
		}
		defer store.Close()
		taskServer := tasks.NewServer(server, &tasks.Options{Store: store})
		tasks.AddTool(taskServer, &mcp.Tool{Name: "print"}, nil,
			func(context.Context, struct{}) (string, error) { return "printed", nil })
		c, err := mcp.Connect(t.Context(), mcp.InMemory(server), tasks.Declare(nil, nil))
		if err != nil {
			return err
		}
		defer c.Close()
		if text, err := mcp.CallTool[string](t.Context(), c, "print", nil); err != nil || text != "printed" {
			t.Errorf("got %q, %v", text, err)
		}
		return taskServer.Close(t.Context())
	}()
	if err != nil {
		t.Error(err)
	}
	if _, err := os.Stat("tasks.db"); err != nil {
		t.Error(err)
	}
}
