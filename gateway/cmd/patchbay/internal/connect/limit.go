package connect

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/exit"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/target"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcp/driver"
	"github.com/patchbay-mcp/patchbay/mcp/driver/command"
	"github.com/patchbay-mcp/patchbay/oauth/oauthclient"
)

// bridgeTimeout returns how long a request may take without progress. By default that is for the
// client to decide, which cancels its requests; the limit is for clients that do not.
func bridgeTimeout(flag time.Duration) time.Duration {
	if flag == DefaultTimeout {
		return time.Hour
	}
	return flag
}

// ErrTimeLimit is the cause of a context that --timeout ended.
var ErrTimeLimit = fmt.Errorf("the time limit of --timeout has passed: %w", context.DeadlineExceeded)

// Within calls f with a context that ends after a time, not counting the time of logins. It returns
// late(err) for an error of f after that time.
func Within(
	ctx context.Context, most time.Duration, f func(ctx context.Context) error, late func(err error) error,
) error {
	limit := driver.StartTimeout(ctx, most, ErrTimeLimit)
	defer limit.Stop()
	err := f(limit)
	var explained *exit.Error // set if an inner limit passed
	if err == nil || !errors.Is(context.Cause(limit), ErrTimeLimit) || errors.As(err, &explained) {
		return err
	}
	return &exit.Error{Code: exit.Timeout, Err: late(err)}
}

// Bounded calls f with a context that ends after --timeout. The time in which the user logs in or
// answers a question is not counted, that in which a task is awaited is.
func (d *Dialer) Bounded(ctx context.Context, t *target.Target, name string, f func(ctx context.Context) error) error {
	most := d.Flags.Timeout
	if most <= 0 {
		return f(ctx) // an error
	}
	if start := d.StartLimit(t); start > most {
		most += start
	}
	limit := driver.StartTimeout(ctx, most, ErrTimeLimit) // not a parent, so that waiting for a task does not pause it
	defer limit.Stop()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(limit, func() { cancel(context.Cause(limit)) })()
	d.Ask.Limit.Store(limit)
	defer d.Ask.Limit.Store(nil)
	err := f(ctx)
	var explained *exit.Error
	if err == nil || !errors.Is(context.Cause(ctx), ErrTimeLimit) || errors.As(err, &explained) {
		return err
	}
	text := fmt.Sprintf("%s: not complete within %v (--timeout)", name, most)
	var lost *mcp.TransportError
	if errors.As(err, &lost) && lost.MayHaveRun {
		text += "; the server may have run " + lost.Method
	}
	return &exit.Error{Code: exit.Timeout, Err: errors.New(text)}
}

// DefaultTimeout equals the default of mcp.ClientOptions.Timeout.
const DefaultTimeout = 60 * time.Second

// StartLimit returns the time within which a connection must be established: --timeout, or by
// default a longer time for a server that may be downloaded first, or whose startTimeout is longer.
func (d *Dialer) StartLimit(t *target.Target) time.Duration {
	limit := d.Flags.Timeout
	if limit != DefaultTimeout {
		return limit
	}
	if len(t.Command) > 0 && command.IsPackageRunner(t.Command[0]) {
		limit = command.RunnerTimeout
	}
	const longest = 24 * time.Hour // of startTimeout, because other limits are added to it
	return max(limit, min(time.Duration(t.StartTimeout), longest))
}

// LimitStart returns the StartLimit of a target, and adds it to the options of its client.
func (d *Dialer) LimitStart(t *target.Target, opts *mcp.ClientOptions) time.Duration {
	limit := d.StartLimit(t)
	if opts.Revision != "" {
		opts.ProbeTimeout = limit // no other revision is tried
	}
	if t.StartTimeout > 0 {
		opts.Timeout = max(opts.Timeout, limit) // of initialize: calls have limits of their own
	}
	return limit
}

// explainNoAnswer replaces an error of connecting by NoAnswer's error if the server was too slow.
func (d *Dialer) explainNoAnswer(ctx context.Context, t *target.Target, err error) error {
	var explained *exit.Error
	if exit.Code(ctx, err) != exit.Timeout || errors.Is(err, oauthclient.ErrLoginTimeout) || errors.As(err,
		&explained) {
		return err
	}
	return &exit.Error{Code: exit.Timeout, Err: d.NoAnswer(t)}
}

// NoAnswer returns the error of a server that did not answer in time. It names variables that a
// command did not inherit, because they may be the reason.
func (d *Dialer) NoAnswer(t *target.Target) error {
	text := fmt.Sprintf("no answer of an MCP server within %v (--timeout)", d.StartLimit(t))
	if len(t.Command) == 0 {
		return errors.New(text)
	}
	if names := command.Withheld(t.Environment, d.CommandStderr.String()); len(names) > 0 {
		text += fmt.Sprintf("; the command did not inherit %s: set the variables that it needs with --env",
			strings.Join(names, ", "))
	}
	return errors.New(text)
}
