package mcp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"

	jsonv2 "github.com/go-json-experiment/json"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/internal/legacy"
	"github.com/patchbay-mcp/patchbay/internal/peer"
	"github.com/patchbay-mcp/patchbay/internal/wire"
	"github.com/patchbay-mcp/patchbay/jsonrpc"
	"github.com/patchbay-mcp/patchbay/mcp/driver"
)

// Connect connects to a server and returns a client, which owns the transport. Connect first sends
// server/discover; if the server does not support it, Connect opens a session with initialize. If
// [ClientOptions.Revision] is older than 2026-07-28, it opens a session at once. ctx limits the
// connecting, not the life of the client. If Connect fails, it closes the transport. If it fails
// because ctx ended, it returns at once and closes the transport in the background; a program that
// is about to exit must call t.Close, which waits for that.
//
// The error wraps [ErrNoCommonRevision] if the server supports no revision that this package
// supports, or does not support the required [ClientOptions.Revision].
//
// Spec: basic/versioning (2026-07-28), Backward Compatibility.
func Connect(ctx context.Context, t Transport, opts *ClientOptions) (*Client, error) {
	c, err := newClient(t, opts)
	if err == nil {
		err = c.opts.checkRevision()
	}
	if t, ok := t.(interface{ streams() *connTransport }); ok && err == nil {
		t.streams().unrouted = func(m *jsonrpc.Message) { c.unrouted(c.ctx, m.Method, paramsOf(m)) }
		t.streams().restarted = c.restarted
		t.streams().logger = cmp.Or(t.streams().logger, c.opts.Logger)
	}
	if err != nil {
		return nil, errors.Join(err, t.Close())
	}
	if err := c.connect(ctx); err != nil {
		return nil, err
	}
	return c, nil
}

// connect makes the first connection, or closes the client. It returns when ctx ends, even if the
// attempt or the closing takes longer: a child process may take seconds to exit, and a handler in
// memory may ignore its context.
func (c *Client) connect(ctx context.Context) error {
	connected := make(chan error, 1)
	var over atomic.Bool // set by the attempt or by the caller, the first that ends
	go func() {          // ends with the attempt, which ctx bounds, and with Close, which bounds itself
		_, err := c.connector.live(ctx)
		if err != nil {
			err = errors.Join(err, c.Close())
		}
		if over.CompareAndSwap(false, true) {
			connected <- err
			return
		}
		if err == nil {
			err = c.Close()
		}
		c.opts.Logger.Debug("mcp: closed the transport after the context of Connect had ended", "error", err)
	}()
	select {
	case err := <-connected:
		return c.connector.failedStart(err)
	case <-ctx.Done():
		if over.CompareAndSwap(false, true) {
			return c.connector.failedStart(context.Cause(ctx))
		}
		return c.connector.failedStart(<-connected)
	}
}

// ErrNoCommonRevision is within the error of [Connect] if the client and the server support no
// common revision.
var ErrNoCommonRevision = errors.New("mcp: no common protocol revision")

// A connection is a modern connection or a session.
type connection struct {
	Transport  // accepts requests in the modern form, in both eras
	revision   wire.Revision
	discovered *DiscoverResult
	server     Implementation
	prefix     []byte          // the beginning of the params of every request: the constant part of the envelope
	session    *legacy.Client  // nil in the modern era
	done       <-chan struct{} // closed at the end of the session
	stale      bool            // the server lost the session or changed its era
}

func (conn *connection) isOpen() bool { return conn != nil && !conn.stale && !peer.IsClosed(conn.done) }

func (conn *connection) end() {
	if conn.session != nil {
		_ = conn.session.Close()
	}
}

func (o *ClientOptions) checkRevision() error {
	if _, ok := wire.ParseRevision(o.Revision); ok || o.Revision == "" {
		return nil
	}
	return fmt.Errorf("%w: invalid ClientOptions.Revision %q: must be one of %s",
		ErrNoCommonRevision, o.Revision, supportedHere())
}

func supportedHere() string {
	var versions []string
	for _, r := range wire.Revisions() {
		versions = append(versions, r.String())
	}
	return strings.Join(versions, ", ")
}

// restarted drops the cached knowledge about a server that was started again, because it may be
// another version. The next request sends server/discover again.
func (c *Client) restarted() {
	c.cache.clear()
	c.known.clear()
	if conn := c.connector.connection.Load(); conn != nil && conn.session == nil {
		c.connector.markStale(conn)
	}
}

// describe stores the result of server/discover.
func (conn *connection) describe(raw RawResult) error {
	if t := raw.ResultType(); t != driver.ResultComplete {
		return fmt.Errorf("invalid resultType %.64q of server/discover: must be \"complete\"", t)
	}
	if versions, ok := jsonscan.Get(raw, "supportedVersions"); !ok || jsonscan.Kind(versions) != '[' {
		return errors.New("the result of server/discover has no supportedVersions")
	}
	conn.discovered = &DiscoverResult{}
	if err := jsonv2.Unmarshal(raw, conn.discovered); err != nil {
		return fmt.Errorf("the result of server/discover cannot be read: %w", err)
	}
	conn.discovered.Cache = decodeCache(raw)
	meta, _ := jsonscan.Get(raw, "_meta")
	if info, ok := jsonscan.Get(meta, wire.MetaServerInfo); ok {
		_ = jsonv2.Unmarshal(info, &conn.server) // invalid fields stay empty
	}
	return nil
}

// RootsChanged notifies the server that the list of roots changed. Servers of revisions since
// 2026-07-28 request the list when they need it, and receive no notification.
//
// Spec: client/roots#root-list-changes (2025-11-25).
func (c *Client) RootsChanged(ctx context.Context) error {
	conn, err := c.connector.live(ctx)
	if err != nil || conn.session == nil {
		return err
	}
	return conn.session.RootsChanged(ctx)
}
