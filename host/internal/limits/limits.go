// Package limits applies the limits of callers and servers to the requests of a host: rates, the size of
// arguments, the budgets of a day, the queue of a server, and its circuit breaker.
//
// The package owns the buckets, budgets and counts behind the limits. It knows who sends a request to
// which server, but no results, views, or tasks. Each refusal is an error with the setting that caused it.
package limits

import (
	"context"
	"crypto/rand"
	"log/slog"
	"time"

	"github.com/patchbay-mcp/patchbay/host/config"
	"github.com/patchbay-mcp/patchbay/host/hosterr"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/host/state"
	"github.com/patchbay-mcp/patchbay/internal/limit"
	"github.com/patchbay-mcp/patchbay/internal/singleflight"
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
	State state.Store
	// Shared counts rates and budgets over several processes, unless it is nil.
	Shared state.LimitStore
	Logger *slog.Logger
	// Settings returns the limits of callers that are in force.
	Settings func() *config.CallerLimits
	// Done ends the waits in queues when it is closed.
	Done <-chan struct{}
}

// Limits applies the limits of a host. It is safe for concurrent use.
type Limits struct {
	opts    Options
	rates   *limit.Table[rateKey, rateGroup] // as the store of limits last reported them, if there is a store
	taking  singleflight.Group[rateKey, time.Duration]
	budgets *budgets
	state   *stateLender
	shared  *shared
}

// New returns the limits of a host. The caller must close them.
func New(o Options) *Limits {
	l := &Limits{opts: o, rates: newRateTable(), state: &stateLender{state: o.State},
		shared: &shared{store: o.Shared, process: rand.Text()}}
	l.shared.share.Store(&share{processes: 1})
	l.budgets = newBudgets(l.state, l.shared, o.Logger)
	return l
}

// Start counts the process among those that share its limits, until [Options.Done] is closed. It starts its
// goroutines with run, and calls changed each time that the share of the process changed.
func (l *Limits) Start(run func(func()), changed func()) {
	if l.shared.store == nil {
		return
	}
	l.join(run, changed)
	run(func() {
		ticker := time.NewTicker(renewEvery)
		defer ticker.Stop()
		for {
			select {
			case <-l.opts.Done:
				return
			case <-ticker.C:
				l.join(run, changed)
			}
		}
	})
}

// join reports that the process runs, and updates its share. Fewer processes after a failure may only mean that the
// others did not report again yet.
func (l *Limits) join(run func(func()), changed func()) {
	s := l.shared
	place, processes, err := s.store.Join(context.Background(), s.process, processTTL)
	failed, old := s.failed.Swap(err != nil), s.own()
	switch {
	case err != nil && !failed:
		l.opts.Logger.Warn("host: the store of limits does not answer: each process admits its share",
			"processes", old.processes, "error", err)
	case err == nil && failed:
		l.opts.Logger.Info("host: the store of limits answers again", "processes", processes)
		run(func() { l.budgets.settle(l.opts.Done) }) // may take longer than until the next join
	}
	if now := (share{place, processes}); err == nil && now != old && !(failed && processes < old.processes) {
		s.share.Store(&now)
		changed()
	}
}

// Sharing returns the number of processes that share the limits, zero if they are not shared, and whether the store
// answers.
func (l *Limits) Sharing() (processes int, answers bool) {
	if l.shared.store == nil {
		return 0, false
	}
	return l.shared.own().processes, !l.shared.failed.Load()
}

// Close returns the parts of budgets that were not used.
func (l *Limits) Close() {
	l.budgets.close()
	l.state.pruning.Wait()
	if l.shared.store != nil {
		_, _, _ = l.shared.store.Join(context.Background(), l.shared.process, 0) // else its share ends after processTTL
	}
}

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
	if err := l.AdmitCaller(ctx, r, ""); err != nil {
		return err
	}
	s := l.opts.Settings()
	if r.Kind == policy.ActionCall {
		setting, rate := "limits.perTool", s.PerTool
		if own, ok := r.Server.settings.Load().ToolRates[r.Target]; ok {
			setting, rate = "toolRates", own
		}
		key := &rateKey{r.Principal, r.Server.name, r.Target, rate}
		if err := l.checkRate(ctx, r.Server, key, setting); err != nil {
			return err
		}
	}
	if err := r.checkArguments(s); err != nil {
		return err
	}
	return l.budgets.admit(ctx, r, s, false)
}

// AdmitCaller checks the rate of the caller alone. Requests with different buckets do not refuse each
// other; the bucket of the requests to servers is empty.
func (l *Limits) AdmitCaller(ctx context.Context, r *Request, bucket string) error {
	s := l.opts.Settings()
	rate := s.PerCaller
	if r.Principal == LocalPrincipal {
		rate = s.Local
	}
	key := &rateKey{principal: r.Principal, tool: bucket, rate: rate}
	return l.checkRate(ctx, r.Server, key, "limits.perCaller")
}

// Pay charges a request that Check has admitted to the budget of the caller.
func (l *Limits) Pay(ctx context.Context, r *Request) error {
	return l.budgets.admit(ctx, r, l.opts.Settings(), true)
}

// Charge adds the bytes of a response to the budget of the caller, even over the limit.
func (l *Limits) Charge(principal string, bytes int) {
	l.budgets.charge(principal, l.opts.Settings(), bytes)
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
