//go:build unix

package postgres_test

import (
	"context"
	"testing"

	"github.com/patchbay-mcp/patchbay/ext/tasks"
	"github.com/patchbay-mcp/patchbay/stores/internal/takeover"
	"github.com/patchbay-mcp/patchbay/stores/postgres"
)

// serveTasks serves tasks if a test started the process.
func serveTasks() bool { return takeover.Main(openTasks) }

func openTasks(ctx context.Context, url, name string) (tasks.SharedStore, func(), error) {
	s, err := postgres.Open(ctx, url, calm())
	if err != nil {
		return nil, nil, err
	}
	return s.Tasks(name), s.Close, nil
}

// Tasks of a process that is killed or suspended move to another process, and run once at a time.
func TestTakeover(t *testing.T) {
	t.Parallel()
	takeover.Run(t, need(t).url())
}
