package host

import (
	"context"

	"github.com/patchbay-mcp/patchbay/host/internal/upstream"
	"github.com/patchbay-mcp/patchbay/host/status"
)

// An Upstream is a configured server. It is safe for concurrent use.
type Upstream struct{ server *upstream.Server }

// Name returns the name of the server in the configuration.
func (u *Upstream) Name() string { return u.server.Name() }

// Restart connects to the server again, for every caller with an instance, and waits until the new
// instances are ready. Only then do they replace the old instances, which end with their last
// request: after 30 seconds at the latest, but not before their suspended requests. An instance
// that cannot be replaced stays in use; the error joins the reasons. Restart also ends a delay
// after failures and the effect of [Upstream.Stop]. ctx limits the waiting only.
func (u *Upstream) Restart(ctx context.Context) error { return u.server.Restart(ctx) }

// Stop ends all instances and the requests that they serve. Until [Upstream.Restart] or
// [Host.Start], requests for the server fail. Stop returns when the processes end, within 11
// seconds.
func (u *Upstream) Stop() { u.server.Stop() }

// Stderr returns the last lines from the standard error of the server's processes, the oldest
// first: at most 256 KiB. They contain "[secret]" in place of secrets of the configuration.
func (u *Upstream) Stderr() []status.StderrLine { return u.server.Stderr() }

// Status returns the condition of the server.
func (u *Upstream) Status() *status.Server { return &u.server.Status().Server }
