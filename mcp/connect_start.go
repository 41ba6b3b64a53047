package mcp

import (
	"context"
	"errors"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/childproc"
)

// A startingTransport is a Transport that may download the server before it starts.
type startingTransport interface {
	isRunner() bool
	withheld(stderr string) []string
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

// failedStart adds the variables that a server did not inherit to the error of a server that exited
// or did not respond in time: behind a proxy, a package runner without HTTPS_PROXY times out.
func (c *Client) failedStart(err error) error {
	exit := &ExitError{}
	t, ok := c.transport.(startingTransport)
	if !ok || !errors.As(err, &exit) && !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	if names := t.withheld(exit.Stderr); len(names) > 0 {
		return &childproc.WithheldError{Err: err, Names: names}
	}
	return err
}
