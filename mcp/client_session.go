package mcp

import (
	"context"
	"fmt"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/legacy"
	"github.com/patchbay-mcp/patchbay/internal/wire"
)

// keepAlive pings the server of a session, and ends the session if the server misses several pings
// in sequence. Spec: basic/utilities/ping (2025-11-25).
func (c *Client) keepAlive(conn *connection) {
	ticker := time.NewTicker(c.opts.KeepAlive)
	defer ticker.Stop()
	for missed := 0; ; {
		select {
		case <-ticker.C:
		case <-conn.done:
			return
		case <-c.ctx.Done():
			return
		}
		err := c.ping(conn)
		if err == nil || asError(err) != nil { // an error is a response, too
			missed = 0
			continue
		}
		if missed++; missed < legacy.MaxMissedPings {
			continue
		}
		select {
		case <-conn.done:
		case <-c.ctx.Done():
		default:
			c.opts.Logger.Warn("mcp: the server does not respond to pings: ending the session", "error", err)
			conn.end()
		}
		return
	}
}

func (c *Client) ping(conn *connection) error {
	missing := fmt.Errorf("ping: %w", ErrTimeout)
	ctx, cancel := context.WithTimeoutCause(c.ctx, c.opts.KeepAlive, missing)
	defer cancel()
	req, err := c.newRequest(conn, &noCallOptions, &clientRequest{method: wire.MethodPing}, nil)
	if err != nil {
		return err
	}
	_, err = conn.RoundTrip(ctx, req)
	return err
}
