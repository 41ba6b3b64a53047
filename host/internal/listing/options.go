package listing

import (
	"context"
	"encoding/json"
	"log/slog"
	"time"

	"github.com/patchbay-mcp/patchbay/host/hosterr"
	"github.com/patchbay-mcp/patchbay/host/internal/catalogue"
	"github.com/patchbay-mcp/patchbay/host/internal/connection"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// A Source is a server whose lists are read.
type Source interface {
	// Acquire returns a connection, which must be released, and the reviewer of the connection, which
	// may be nil. If waits is set, it waits while too many processes run.
	Acquire(ctx context.Context, waits bool) (*connection.Conn, Reviewer, error)
	// Failure returns the error of a request of a connection without a valid response.
	Failure(ctx context.Context, c *connection.Conn, err error) *hosterr.Error
	// Observe records whether a connection is of use: the server lists no tools any more, or some again.
	Observe(c *connection.Conn, failed *hosterr.Error)
}

// A Reviewer compares the definitions of a server with the approved definitions. Reviewers must be
// comparable.
type Reviewer interface {
	// ReviewList returns the list without definitions that are not approved.
	ReviewList(ctx context.Context, kind catalogue.Kind, l *catalogue.List) *catalogue.List
	// ReviewAbout returns the approved texts, and reviews the lists that the server lacks. about is nil before
	// the first connection.
	ReviewAbout(ctx context.Context, about *About) Approved
	// Restore returns the approved lists of an earlier connection, which keep holds.
	Restore(ctx context.Context, keep func(catalogue.Kind, *catalogue.List) *catalogue.List) (Restored, bool)
}

// A Listener learns of changes of lists. Listeners must be comparable.
type Listener interface{ ListsChanged() }

// About contains the description that a server sends of itself.
type About struct {
	Instructions string
	ServerInfo   mcp.Implementation
	Capabilities json.RawMessage
	Revision     string
	Lacks        []catalogue.Kind // kinds that the capabilities exclude
}

// Approved contains the texts of a server that callers may see.
type Approved struct {
	Instructions string
	ServerInfo   json.RawMessage // nil without a reviewer
}

// Restored contains the lists and the description of an earlier connection.
type Restored struct {
	Approved
	Capabilities json.RawMessage
	Revision     string
	Lists        [catalogue.Kinds]*catalogue.List
}

// Options configure [Lists]. All fields but Review and Shared are required.
type Options struct {
	// Source is the server.
	Source Source
	// Review is the reviewer until the first connection.
	Review Reviewer
	// Memory holds the lists of all callers of the server.
	Memory *Memory
	// Server is the name of the server.
	Server string
	// Shared means that the lists serve several principals.
	Shared bool
	// Context is the context of everything that no request waits for.
	Context context.Context //nolint:containedctx // of the host
	// Go runs a function in a goroutine that the host waits for.
	Go func(f func())
	// StartTimeout returns how long the server may take to start.
	StartTimeout func() time.Duration
	// BeforeRead is called before a list is read.
	BeforeRead func(ctx context.Context)
	// Drift is called when a list was read again.
	Drift func(kind catalogue.Kind, before, now *catalogue.List)
	// Logger receives the ends of subscriptions.
	Logger *slog.Logger
}
