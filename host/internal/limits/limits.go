// Package limits applies the limits of callers and servers to the requests of a host: rates, the size of
// arguments, the budgets of a day, the queue of a server, and its circuit breaker.
//
// The package owns the buckets, budgets and counts behind the limits. It knows who sends a request to
// which server, but no results, views, or tasks. Each refusal is an error with the setting that caused it.
package limits

import (
	"context"
	"log/slog"
	"time"

	"github.com/patchbay-mcp/patchbay/host/config"
	"github.com/patchbay-mcp/patchbay/host/hosterr"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/host/state"
	"github.com/patchbay-mcp/patchbay/internal/limit"
	"github.com/patchbay-mcp/patchbay/mcp"
)

const (
	// LocalPrincipal is the principal of the local user. It differs from the principal of every caller
	// with a name.
	LocalPrincipal = "principal "
	// RetryAfter is the time after which a request that found no place is worth sending again.
	RetryAfter = time.Second
)

// Options configure [New].
type Options struct {
	// State contains the budgets, which several processes may share.
	State  state.Store
	Logger *slog.Logger
	// Settings returns the limits of callers that are in force.
	Settings func() *config.CallerLimits
	// Done ends the waits in queues when it is closed.
	Done <-chan struct{}
}

// Limits applies the limits of a host. It is safe for concurrent use.
type Limits struct {
	opts    Options
	rates   *limit.Table[rateKey, rateGroup]
	budgets *budgets
}

// New returns the limits of a host. The caller must close them.
func New(o Options) *Limits {
	return &Limits{opts: o, rates: newRateTable(), budgets: newBudgets(o.State, o.Logger)}
}

// Close writes the budgets a last time.
func (l *Limits) Close() { l.budgets.close() }

// A Request is a request of a caller as far as limits depend on it.
type Request struct {
	Principal string // the caller as limits tell it from others
	Server    *Server
	Kind      policy.ActionKind
	Target    string // the server's own name or URI
	MCP       *mcp.Request
}

// Check checks the limits of the caller before its request is approved: a flood of requests must not ask
// a user, and a request that was approved must not be refused by its rate. Each round of a request that
// asks questions counts.
func (l *Limits) Check(ctx context.Context, r *Request) error {
	if err := l.AdmitCaller(r, ""); err != nil {
		return err
	}
	s := l.opts.Settings()
	if r.Kind == policy.ActionCall {
		setting, rate := "limits.perTool", s.PerTool
		if own, ok := r.Server.settings.Load().ToolRates[r.Target]; ok {
			setting, rate = "toolRates", own
		}
		if err := l.checkRate(r.Server, &rateKey{r.Principal, r.Server.name, r.Target, rate}, setting); err != nil {
			return err
		}
	}
	if err := r.checkArguments(s); err != nil {
		return err
	}
	return l.budgets.check(ctx, r, s)
}

// AdmitCaller checks the rate of the caller alone. Requests with different buckets do not refuse each
// other; the bucket of the requests to servers is empty.
func (l *Limits) AdmitCaller(r *Request, bucket string) error {
	s := l.opts.Settings()
	rate := s.PerCaller
	if r.Principal == LocalPrincipal {
		rate = s.Local
	}
	return l.checkRate(r.Server, &rateKey{principal: r.Principal, tool: bucket, rate: rate}, "limits.perCaller")
}

// Pay charges a request that Check has admitted to the budget of the caller.
func (l *Limits) Pay(r *Request) error { return l.budgets.spend(r, l.opts.Settings()) }

// Charge adds the bytes of a response to the budget of the caller, even over the limit.
func (l *Limits) Charge(principal string, bytes int) {
	l.budgets.charge(principal, l.opts.Settings(), usage{Bytes: int64(bytes)})
}

// usage returns the part of the budget that a request uses, without its response.
func (r *Request) usage() (u usage) {
	u.Bytes = int64(len(r.MCP.Params))
	if r.Kind == policy.ActionCall {
		u.Calls = 1
	}
	return u
}

// checkArguments checks the size of the arguments, or of the params if the method has no arguments.
func (r *Request) checkArguments(l *config.CallerLimits) error {
	size := config.Size(len(r.MCP.Params))
	if l.ArgumentBytes == 0 || size <= l.ArgumentBytes {
		return nil
	}
	if r.Kind == policy.ActionCall || r.Kind == policy.ActionGet {
		arguments, _ := r.MCP.Param("arguments")
		size = config.Size(len(arguments))
	}
	if size <= l.ArgumentBytes {
		return nil
	}
	return r.Server.Refuse(hosterr.CodeTooLarge, "limits.argumentBytes", 0,
		"the arguments have %d bytes, more than limits.argumentBytes of %v", size, l.ArgumentBytes)
}
