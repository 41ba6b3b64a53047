package routes

import (
	"context"
	"log/slog"
	"sync"

	"github.com/patchbay-mcp/patchbay/host/internal/catalogue"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/internal/seal"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// A Filter reports whether the caller may see an item. It must not change its answer within an epoch.
type Filter func(item *catalogue.Item) bool

// Options configure a [Table]. All fields but Instructions are required.
type Options struct {
	// Caller is the caller whose lists are merged.
	Caller *policy.Caller
	// Servers returns the caller's servers in the present configuration. It must return last unless the
	// configuration has changed; last is nil at first.
	Servers func(last *Servers) *Servers
	// Filters returns the filters of all lists, searches and subscriptions: an item that any of them
	// rejects does not exist for the caller.
	Filters func() []Filter
	// Epoch identifies the policy that Filters returns, and HasPolicy reports whether there is a policy. The
	// instructions of a server are hidden if the policy hides all its items.
	Epoch     func() uint64
	HasPolicy func() bool
	// Webhooks reports whether the caller may receive events at a URL. It must not change its answer.
	Webhooks func() bool
	// Instructions precede the instructions of the servers.
	Instructions string
	// Send sends an event to the subscriptions of the caller, and Watch learns when the first of them
	// begins and the last one ends.
	Send  func(e mcp.Event)
	Watch func(subscribed bool)
	// Elsewhere reports whether the caller may have read its lists at another process: the first
	// subscription reads the lists, and then announces all of them unless this process knew lists of
	// the caller before.
	Elsewhere bool
	// Call calls a tool that the caller found by a search.
	Call func(ctx context.Context, req *mcp.Request, s Server, item *catalogue.Item) (mcp.Result, error)
	// Ring seals the positions in lists.
	Ring *seal.KeyRing
	// Misnamed is shared by the tables of a host.
	Misnamed *Misnamed
	// Context is the context of everything that no request waits for.
	Context context.Context //nolint:containedctx // of the host
	Logger  *slog.Logger
}

// maxMisnamed limits the items with equal names that are logged, because servers choose their names.
const maxMisnamed = 100

// Misnamed holds the problems with names that were logged. The zero value is empty, and it is safe for
// concurrent use.
type Misnamed struct {
	mu   sync.Mutex // guards seen
	seen map[catalogue.Problem]bool
}

// isFirst reports whether a problem must be logged: it is new, and few others were logged.
func (m *Misnamed) isFirst(p catalogue.Problem) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.seen[p] || len(m.seen) >= maxMisnamed {
		return false
	}
	if m.seen == nil {
		m.seen = map[catalogue.Problem]bool{}
	}
	m.seen[p] = true
	return true
}
