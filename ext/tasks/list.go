package tasks

import (
	"context"
	"iter"

	"github.com/patchbay-mcp/patchbay/mcp"
)

// List returns the tasks of the client at its server, without their results. It fetches one page
// after the other as the iteration proceeds. The iteration ends with the first error.
//
// Only servers of revision 2025-11-25 list tasks, and only if they declare it; a [Server] lists the
// tasks of authenticated callers. For other servers the iteration yields an error that says so, and
// clients have to keep the IDs of their tasks.
//
// Spec: basic/utilities/tasks (2025-11-25), Listing Tasks.
func List(ctx context.Context, c *mcp.Client) iter.Seq2[*Task, error] {
	return clientFormOf(c.Revision()).list(ctx, c)
}
