package mcp

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	jsonv2 "github.com/go-json-experiment/json"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/internal/legacy"
	"github.com/patchbay-mcp/patchbay/internal/peer"
	"github.com/patchbay-mcp/patchbay/internal/wire"
	"github.com/patchbay-mcp/patchbay/jsonrpc"
)

// Connect makes a client of a transport. It finds out which revision the server speaks: it asks with server/discover, and
// if that is not understood, opens a session. The context bounds the connecting alone. If that fails, the transport is
// closed. The client owns the transport from then on.
//
// A server that speaks no revision that this package speaks, or not the one that [ClientOptions.Revision] pins, gives
// [ErrNoRevision].
//
// Spec: basic/versioning (2026-07-28), Backward Compatibility.
func Connect(ctx context.Context, t Transport, opts *ClientOptions) (*Client, error) {
	c, err := newClient(t, opts)
	if err == nil {
		err = c.checkPin()
	}
	if t, ok := t.(interface{ streams() *connTransport }); ok && err == nil {
		t.streams().unrouted = func(m *jsonrpc.Message) { _ = c.logs.put(c.ctx, m.Method, paramsOf(m)) }
		t.streams().logger = cmp.Or(t.streams().logger, c.opts.Logger)
	}
	if err == nil {
		_, err = c.live(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, t.Close())
	}
	return c, nil
}

// ErrNoRevision is within the error of [Connect] if client and server have no revision in common.
var ErrNoRevision = errors.New("mcp: no common revision of the protocol")

// A connection is how a client reaches its server.
type connection struct {
	Transport  // takes requests in the modern form, whatever the server speaks
	revision   wire.Revision
	discovered *DiscoverResult
	server     Implementation
	prefix     []byte         // of the params of every request: the envelope, up to what differs
	session    *legacy.Client // nil in the modern era
	done       <-chan struct{}
}

// end ends a session.
func (conn *connection) end() {
	if conn.session != nil {
		_ = conn.session.Close()
	}
}

func (c *Client) checkPin() error {
	if c.opts.Revision == "" {
		return nil
	}
	if _, ok := wire.ParseRevision(c.opts.Revision); !ok {
		return fmt.Errorf("%w: ClientOptions.Revision is %q, want one of %s", ErrNoRevision, c.opts.Revision, spokenVersions())
	}
	return nil
}

func spokenVersions() string {
	var versions []string
	for _, r := range wire.Revisions() {
		versions = append(versions, r.String())
	}
	return strings.Join(versions, ", ")
}

// live returns the connection, and makes a new one if there is none or the last one has ended.
func (c *Client) live(ctx context.Context) (*connection, error) {
	if conn := c.connection.Load(); conn != nil && !peer.IsClosed(conn.done) && c.ctx.Err() == nil {
		return conn, nil
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(c.ctx, func() { cancel(ErrClosed) })()
	select {
	case c.turn <- struct{}{}:
		defer func() { <-c.turn }()
	case <-ctx.Done():
	}
	switch {
	case c.ctx.Err() != nil:
		return nil, &TransportError{Method: wire.MethodDiscover, Err: ErrClosed}
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	}
	last := c.connection.Load()
	if last != nil && !peer.IsClosed(last.done) {
		return last, nil
	}
	if last != nil {
		last.end()
		c.cache.clear()
	}
	conn, err := c.find(ctx)
	switch {
	case err != nil && c.ctx.Err() != nil:
		return nil, &TransportError{Method: wire.MethodDiscover, Err: ErrClosed}
	case err != nil:
		return nil, err
	}
	c.connection.Store(conn)
	if c.ctx.Err() != nil { // Close may not have seen it
		conn.end()
		return nil, &TransportError{Method: wire.MethodDiscover, Err: ErrClosed}
	}
	return conn, nil
}

// exchange is the innermost handler of a client: it gives the request to the connection. What certainly has not run,
// because the server has forgotten the session or is not what it was, is sent again once on a new connection.
func (c *Client) exchange(ctx context.Context, req *Request) (Result, error) {
	conn, err := c.live(ctx)
	if err != nil {
		return nil, err
	}
	res, err := conn.RoundTrip(ctx, req)
	if err == nil || !c.outlived(conn, err) {
		return res, err
	}
	again, err2 := c.live(ctx)
	if err2 != nil {
		return nil, err
	}
	return again.RoundTrip(ctx, req.speaking(conn, again))
}

// speaking returns a request that was made for one connection to another one, which may speak another revision.
func (r *Request) speaking(from, to *connection) *Request {
	rest, ok := bytes.CutPrefix(r.Params, from.prefix)
	if !ok || from.revision == to.revision {
		return r
	}
	other := *r
	other.Params = slices.Concat(to.prefix, rest)
	other.env = wire.Envelope{} // to be opened again
	_ = other.open()            // it was well-formed
	return &other
}

// outlived reports whether err says that what is known of the server no longer holds, so that the request has not run. It
// then forgets the connection.
func (c *Client) outlived(conn *connection, err error) bool {
	var failed *TransportError
	said := asError(err)
	errors.As(err, &failed)
	lost := failed != nil && (errors.Is(err, ErrSessionLost) || ended(err) && conn.session != nil)
	changed := conn.session == nil && !isUnauthorized(err) && (failed != nil && isEraSignal(err) || said != nil && said.Remote() && said.Code == CodeUnsupportedVersion)
	if !lost && !changed || c.ctx.Err() != nil {
		return false
	}
	if c.connection.Load() == conn {
		gone := *conn
		closed := make(chan struct{})
		close(closed)
		gone.done = closed
		c.connection.CompareAndSwap(conn, &gone)
	}
	return failed == nil || !failed.MayHaveRun
}

// find connects. It is the only place that decides which era the server is of.
//
// Spec: basic/versioning (2026-07-28), Backward Compatibility; basic/transports.
func (c *Client) find(ctx context.Context) (*connection, error) {
	sessions, dual := c.transport.(SessionTransport)
	pin, pinned := wire.ParseRevision(c.opts.Revision)
	pinnedLegacy := pinned && !pin.Modern()
	if pinnedLegacy && !dual {
		return nil, fmt.Errorf("%w: the transport cannot carry %s", ErrNoRevision, pin)
	}
	remembered := c.verdict() == eraLegacy && !pinned && dual
	if remembered || pinnedLegacy {
		conn, err := c.openSession(ctx, sessions)
		if err == nil || pinnedLegacy || ctx.Err() != nil {
			return conn, err
		}
		c.remember(eraUnknown)
	}
	conn, probed := c.probe(ctx)
	if probed == nil {
		c.remember(eraModern)
		return conn, nil
	}
	switch {
	case ctx.Err() != nil, !mayBeLegacy(probed):
		return nil, probed
	case !dual, pinned:
		return nil, fmt.Errorf("%w: the server does not answer as one that speaks %s: %w", ErrNoRevision, wire.Latest(), probed)
	}
	conn, err := c.openSession(ctx, sessions)
	if err != nil {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return nil, afterProbe(err, probed)
	}
	if !errors.Is(probed, ErrTimeout) { // silence may have been slowness
		c.remember(eraLegacy)
	}
	return conn, nil
}

// notModern is the error of a probe whose answer is no proof of the modern era.
type notModern struct{ err error }

func (e *notModern) Error() string { return e.err.Error() }
func (e *notModern) Unwrap() error { return e.err }

func mayBeLegacy(err error) bool {
	var not *notModern
	return errors.As(err, &not)
}

// probe asks the server to describe itself in the modern way.
func (c *Client) probe(ctx context.Context) (*connection, error) {
	revision := wire.Latest()
	conn := &connection{Transport: c.transport, revision: revision, prefix: c.prefix(revision)}
	var probing peer.Timeout
	probing.Start(ctx, peer.TimeLimits{Total: c.opts.ProbeTimeout}, ErrTimeout)
	defer probing.Stop()
	raw, err := c.discover(&probing, conn)
	if e := asError(err); e != nil && !isUnauthorized(err) && e.Code == CodeUnsupportedVersion && slices.Contains(supportedVersions(e), revision.String()) {
		raw, err = c.discover(&probing, conn) // it does speak it: something on the way did not, or it has just begun to
	}
	if err != nil {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return nil, c.judge(err)
	}
	if err := conn.describe(raw); err != nil {
		return nil, &notModern{c.invalid(wire.MethodDiscover, err)}
	}
	versions := conn.discovered.SupportedVersions
	if !slices.Contains(versions, revision.String()) {
		return nil, c.noCommon(versions)
	}
	return conn, nil
}

func (c *Client) discover(ctx context.Context, conn *connection) (RawResult, error) {
	req, err := c.newRequest(conn, &noCallOptions, &ask{method: wire.MethodDiscover}, nil)
	if err != nil {
		return nil, err
	}
	res, err := c.transport.RoundTrip(ctx, req)
	if err != nil {
		return nil, err
	}
	return rawResult(res)
}

// describe takes what the server says of itself.
func (conn *connection) describe(raw RawResult) error {
	if t := raw.ResultType(); t != ResultComplete {
		return fmt.Errorf("server/discover has result type %.64q", t)
	}
	if versions, ok := jsonscan.Get(raw, "supportedVersions"); !ok || jsonscan.Kind(versions) != '[' {
		return errors.New("the result of server/discover has no supportedVersions")
	}
	conn.discovered = &DiscoverResult{}
	if err := jsonv2.Unmarshal(raw, conn.discovered); err != nil {
		return fmt.Errorf("the result of server/discover cannot be read: %w", err)
	}
	meta, _ := jsonscan.Get(raw, "_meta")
	if info, ok := jsonscan.Get(meta, wire.MetaServerInfo); ok {
		_ = jsonv2.Unmarshal(info, &conn.server) // a server that names itself badly is only less well named
	}
	return nil
}

// prefix is how the params of every request begin.
func (c *Client) prefix(r wire.Revision) []byte {
	b := []byte(`{"_meta":{"` + wire.MetaProtocolVersion + `":"` + r.String() + `","` + wire.MetaClientInfo + `":`)
	b = append(b, c.info...)
	b = append(b, `,"`+wire.MetaClientCapabilities+`":`...)
	return append(b, c.declared...)
}

// afterProbe is the error of a session that could not be opened either. The probe's is told too if it says something else.
func afterProbe(err, probed error) error {
	var first, second *TransportError
	if errors.As(probed, &first) && errors.As(err, &second) && first.Err.Error() == second.Err.Error() {
		return err
	}
	if errors.Is(probed, ErrDisconnected) && errors.Is(err, ErrDisconnected) {
		return err // the same server has died twice
	}
	return fmt.Errorf("%w (%s before that: %s)", err, wire.MethodDiscover, probed.Error())
}
