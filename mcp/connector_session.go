package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/legacy"
	"github.com/patchbay-mcp/patchbay/internal/peer"
	"github.com/patchbay-mcp/patchbay/internal/wire"
	"github.com/patchbay-mcp/patchbay/mcp/driver"
)

func (c *connector) openSession(ctx context.Context, t SessionTransport) (*connection, error) {
	pin, pinned := wire.ParseRevision(c.opts.Revision)
	session := legacy.NewClient(legacy.ClientConfig{
		Revision: pin, Pinned: pinned, Info: c.identity.info, Capabilities: c.identity.declared, Logger: c.opts.Logger,
		Answer: c.answer, Cancelled: cancelledBecause, Notify: c.unrouted,
	})
	var opening peer.Timeout
	opening.Start(ctx, peer.TimeLimits{Total: c.startTimeout()}, ErrTimeout)
	defer opening.Stop()
	ctx = &opening
	opened, err := t.OpenSession(driver.WithReceiver(ctx, session.ReceiveOn), session.Receive)
	if err != nil {
		_ = session.Close()
		return nil, err
	}
	conn := &openingConn{SessionConn: opened, kept: true}
	raw, err := session.Open(ctx, conn)
	conn.kept = false
	if err != nil {
		c.closeWithin(ctx, func() { conn.giveUp(err) })
		return nil, sessionError(wire.MethodInitialize, err)
	}
	return c.sessionConnection(session, opened, raw)
}

// An openingConn is the SessionConn of a session that is being opened. While kept is set, Close
// does not end it: giveUp decides, by the error, whether the stream stays open.
type openingConn struct {
	driver.SessionConn
	kept bool
}

func (c *openingConn) Close() error {
	if c.kept {
		return nil
	}
	return c.SessionConn.Close()
}

// giveUp closes the connection of a session that could not be opened, or keeps the stream of a
// server that does not support sessions.
func (c *openingConn) giveUp(err error) {
	if stream, ok := c.SessionConn.(*clientConn); ok && isUnsupportedVersion(err) {
		stream.receive.Store(&stream.fallback)
		return
	}
	_ = c.SessionConn.Close()
}

func (c *connector) sessionConnection(
	session *legacy.Client, opened driver.SessionConn, raw json.RawMessage,
) (*connection, error) {
	conn := &connection{
		Transport: sessionTransport{session}, revision: session.Revision(), session: session,
		prefix: c.identity.appendPrefix(nil, session.Revision(), c.identity.declared), done: opened.Done(),
	}
	if err := conn.describe(RawResult(raw)); err != nil {
		_ = session.Close()
		return nil, invalidResult(wire.MethodInitialize, err)
	}
	return conn, nil
}

// A sessionTransport sends modern requests on a session.
type sessionTransport struct{ session *legacy.Client }

func (t sessionTransport) RoundTrip(ctx context.Context, req *Request) (Result, error) {
	raw, err := t.session.RoundTrip(ctx, req.Method, req.Params, req.Notify)
	if err != nil {
		return nil, sessionError(req.Method, err)
	}
	return RawResult(raw), nil
}

// sessionError converts an error of the translator to an error of this package.
func sessionError(method string, err error) error {
	var failed *TransportError
	switch {
	case asError(err) != nil, errors.As(err, &failed),
		errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	case errors.Is(err, legacy.ErrMalformed):
		return invalidResult(method, err)
	case errors.Is(err, legacy.ErrEnded):
		err = fmt.Errorf("%w: %w", ErrDisconnected, err)
		return &TransportError{Method: method, MayHaveRun: method == wire.MethodSubscriptionsListen, Err: err}
	case method == wire.MethodInitialize:
		return fmt.Errorf("%w: %w", ErrNoCommonRevision, err)
	}
	return err
}

func (t sessionTransport) Close() error { return t.session.Close() }

// keepAlive pings the server of a session, and ends the session if the server misses several pings
// in sequence. Spec: basic/utilities/ping (2025-11-25).
func (c *connector) keepAlive(conn *connection) {
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

func (c *connector) ping(conn *connection) error {
	missing := fmt.Errorf("ping: %w", ErrTimeout)
	ctx, cancel := context.WithTimeoutCause(c.ctx, c.opts.KeepAlive, missing)
	defer cancel()
	req, err := c.identity.newRequest(conn, &noCallOptions, &clientRequest{method: wire.MethodPing}, nil)
	if err != nil {
		return err
	}
	_, err = conn.RoundTrip(ctx, req)
	return err
}

// sessionBegan reports the session of a connection to a server and its end.
func (c *connector) sessionBegan(ctx context.Context, conn *connection) {
	o, ok := c.opts.Observer.(driver.SessionObserver)
	if !ok || conn.session == nil {
		return
	}
	ended := o.SessionBegan(ctx, c.identity.via.Via())
	go func() { // ends with the session
		<-conn.done
		ended(context.Cause(c.ctx))
	}()
}
