package mcp

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/childproc"
)

// A startingTransport is a Transport that may have to download the server before it starts.
type startingTransport interface {
	isRunner() bool
	withheld() []string
}

func (c *Client) isRunner() bool {
	t, ok := c.transport.(startingTransport)
	return ok && t.isRunner()
}

// startTimeout returns how long a server may take to respond to initialize.
func (c *Client) startTimeout() time.Duration {
	if c.isRunner() && c.opts.Timeout == defaultTimeout {
		return childproc.RunnerTimeout
	}
	return c.opts.Timeout
}

// probeTimeout returns how long a server may take to respond to server/discover. If no session can
// follow, there is no reason to give up early.
func (c *Client) probeTimeout() time.Duration {
	if c.isRunner() && c.opts.Revision != "" && c.opts.ProbeTimeout == defaultProbeTimeout {
		return childproc.RunnerTimeout
	}
	return c.opts.ProbeTimeout
}

// slowStart adds to the error of a server that has not responded in time which variables it did not
// inherit: behind a proxy, a package runner without them waits until its timeout.
func (c *Client) slowStart(err error) error {
	t, ok := c.transport.(startingTransport)
	if !ok || !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	if names := t.withheld(); len(names) > 0 {
		return &slowStartError{err, names}
	}
	return err
}

type slowStartError struct {
	err   error
	names []string
}

func (e *slowStartError) Error() string {
	return fmt.Sprintf("%v (variables that the server did not inherit, see CommandTransport.Env: %s)",
		e.err, strings.Join(e.names, ", "))
}

func (e *slowStartError) Unwrap() error { return e.err }

// Withheld returns the names of the variables, for errors.As.
func (e *slowStartError) Withheld() []string { return e.names }
