package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/legacy"
	"github.com/patchbay-mcp/patchbay/internal/peer"
	"github.com/patchbay-mcp/patchbay/internal/wire"
	"github.com/patchbay-mcp/patchbay/jsonrpc"
)

// openSession opens a session with a server of the session era, which from then on looks like a modern one.
func (c *Client) openSession(ctx context.Context, t SessionTransport) (*connection, error) {
	pin, pinned := wire.ParseRevision(c.opts.Revision)
	session := legacy.NewClient(legacy.ClientConfig{
		Revision: pin, Pinned: pinned, Info: c.info, Capabilities: c.declared, Logger: c.opts.Logger,
		Answer: c.answerDirect, Cancelled: cancelledBecause,
		Notify: func(ctx context.Context, method string, params json.RawMessage) {
			_ = c.logs.put(ctx, method, params)
		},
	})
	var opening peer.Timeout
	opening.Start(ctx, peer.TimeLimits{Total: c.opts.Timeout}, ErrTimeout)
	defer opening.Stop()
	ctx = &opening
	link, err := t.OpenSession(ctx, session.Receive)
	if err != nil {
		_ = session.Close()
		return nil, err
	}
	raw, err := session.Open(ctx, link)
	if err != nil {
		return nil, c.sessionError(wire.MethodInitialize, err)
	}
	conn := &connection{revision: session.Revision(), session: session, done: link.Done(), prefix: c.prefix(session.Revision())}
	conn.Transport = sessionTransport{c, session}
	if err := conn.describe(RawResult(raw)); err != nil {
		_ = session.Close()
		return nil, c.invalid(wire.MethodInitialize, err)
	}
	return conn, nil
}

// A sessionTransport makes a session look modern.
type sessionTransport struct {
	client  *Client
	session *legacy.Client
}

func (t sessionTransport) RoundTrip(ctx context.Context, req *Request) (Result, error) {
	raw, err := t.session.RoundTrip(ctx, req.Method, req.Params, req.Notify)
	if err != nil {
		return nil, t.client.sessionError(req.Method, err)
	}
	return RawResult(raw), nil
}

// sessionError says of an error of the translator what it means to the caller.
func (c *Client) sessionError(method string, err error) error {
	var failed *TransportError
	switch {
	case asError(err) != nil, errors.As(err, &failed), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	case errors.Is(err, legacy.ErrMalformed):
		return c.invalid(method, err)
	case errors.Is(err, legacy.ErrEnded):
		return &TransportError{Method: method, MayHaveRun: method == wire.MethodSubscriptionsListen, Err: fmt.Errorf("%w: %w", ErrDisconnected, err)}
	case method == wire.MethodInitialize:
		return fmt.Errorf("%w: %w", ErrNoRevision, err)
	}
	return err
}

func (t sessionTransport) Close() error { return t.session.Close() }

// OpenSession uses the stream as it is: on it, a session begins with initialize.
func (t *connTransport) OpenSession(ctx context.Context, receive func(m *jsonrpc.Message)) (SessionLink, error) {
	l, _, err := t.live(ctx, wire.MethodInitialize)
	if err != nil {
		return nil, err
	}
	l.receive.Store(&receive)
	return l, nil
}

func (t *connTransport) streams() *connTransport { return t }

// memoryDrain is how long requests may take to end when their client has gone, and with it everybody who could read their
// results.
const memoryDrain = time.Millisecond

// OpenSession serves the handler on a pipe.
func (t *memoryTransport) OpenSession(_ context.Context, receive func(m *jsonrpc.Message)) (SessionLink, error) {
	client, server := Pipe()
	t.serving.Go(func() { _ = Serve(t.ctx, t.handler, server, &ServeOptions{Drain: memoryDrain}) })
	return newLink(client, slog.Default(), receive), nil
}

// RootsChanged tells the server that the folders to work in are others now. Servers since 2026-07-28 ask when they need to
// know, and are told nothing.
//
// Spec: client/roots#root-list-changes (2025-11-25).
func (c *Client) RootsChanged(ctx context.Context) error {
	conn, err := c.live(ctx)
	if err != nil || conn.session == nil {
		return err
	}
	return conn.session.RootsChanged(ctx)
}
