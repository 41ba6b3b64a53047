package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcp/driver"
	"github.com/patchbay-mcp/patchbay/mcp/driver/command"
	"github.com/patchbay-mcp/patchbay/oauth/oauthclient"
)

// errTimeLimit is the cause of a context that --timeout has ended.
var errTimeLimit = fmt.Errorf("the time limit of --timeout has passed: %w", context.DeadlineExceeded)

// within calls f with a context that ends after a time, not counting the time of logins. It returns
// late(err) for an error of f after that time.
func within(
	ctx context.Context, most time.Duration, f func(ctx context.Context) error, late func(err error) error,
) error {
	limit := driver.StartTimeout(ctx, most, errTimeLimit)
	defer limit.Stop()
	err := f(limit)
	var explained *coded // by a limit within this one
	if err == nil || !errors.Is(context.Cause(limit), errTimeLimit) || errors.As(err, &explained) {
		return err
	}
	return &coded{exitTimeout, late(err)}
}

// bounded calls f with a context that ends after --timeout. The time in which the user logs in or
// answers a question is not counted, that in which a task is awaited is.
func (d *dialer) bounded(ctx context.Context, t *target, name string, f func(ctx context.Context) error) error {
	most := d.Flags.timeout
	if most <= 0 {
		return f(ctx) // an error
	}
	if start := d.startLimit(t); start > most {
		most += start
	}
	limit := driver.StartTimeout(ctx, most, errTimeLimit) // not a parent, so that waiting for a task does not pause it
	defer limit.Stop()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(limit, func() { cancel(context.Cause(limit)) })()
	d.Ask.limit.Store(limit)
	defer d.Ask.limit.Store(nil)
	err := f(ctx)
	var explained *coded
	if err == nil || !errors.Is(context.Cause(ctx), errTimeLimit) || errors.As(err, &explained) {
		return err
	}
	text := fmt.Sprintf("%s: not complete within %v (--timeout)", name, most)
	var lost *mcp.TransportError
	if errors.As(err, &lost) && lost.MayHaveRun {
		text += "; the server may have run " + lost.Method
	}
	return &coded{exitTimeout, errors.New(text)}
}

// pauseLimit pauses the time of bounded, while the user decides, until resume is called.
func (a *asker) pauseLimit() (resume func()) {
	limit := a.limit.Load()
	if limit == nil {
		return func() {}
	}
	limit.Pause()
	return limit.Resume
}

// defaultTimeout is that of mcp.ClientOptions.
const defaultTimeout = 60 * time.Second

// startLimit returns how long connecting to a target may take in total: --timeout, or longer by
// default for a server that may have to be downloaded.
func (d *dialer) startLimit(t *target) time.Duration {
	isRunner := len(t.command) > 0 && command.IsPackageRunner(t.command[0])
	if isRunner && d.Flags.timeout == defaultTimeout {
		return command.RunnerTimeout
	}
	return d.Flags.timeout
}

// explainNoAnswer returns the error of noAnswer in place of err if the server has not responded in
// time. err is the error of connecting.
func (d *dialer) explainNoAnswer(ctx context.Context, t *target, err error) error {
	var explained *coded
	if exitCode(ctx, err) != exitTimeout || errors.Is(err, oauthclient.ErrLoginTimeout) || errors.As(err, &explained) {
		return err
	}
	return &coded{exitTimeout, d.noAnswer(t)}
}

// noAnswer returns the error of a server that has not responded in time. It names the variables
// that a command did not inherit, which may be the reason.
func (d *dialer) noAnswer(t *target) error {
	text := fmt.Sprintf("no answer of an MCP server within %v (--timeout)", d.startLimit(t))
	if len(t.command) == 0 {
		return errors.New(text)
	}
	if names := command.Withheld(t.environment, d.commandStderr.String()); len(names) > 0 {
		text += fmt.Sprintf("; the command did not inherit %s: set with --env what it needs", strings.Join(names, ", "))
	}
	return errors.New(text)
}
