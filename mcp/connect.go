package mcp

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

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
		_, err := c.live(ctx)
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
		return c.failedStart(err)
	case <-ctx.Done():
		if over.CompareAndSwap(false, true) {
			return c.failedStart(context.Cause(ctx))
		}
		return c.failedStart(<-connected)
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

// live returns the current connection, or connects if there is no open connection.
func (c *Client) live(ctx context.Context) (*connection, error) {
	if conn := c.connection.Load(); conn.isOpen() && c.ctx.Err() == nil {
		return conn, nil
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(c.ctx, func() { cancel(ErrClosed) })()
	select {
	case c.connecting <- struct{}{}:
		defer func() { <-c.connecting }()
	case <-ctx.Done():
	}
	switch {
	case c.ctx.Err() != nil:
		return nil, &TransportError{Method: wire.MethodDiscover, Err: ErrClosed}
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	}
	last := c.connection.Load()
	if last.isOpen() {
		return last, nil
	}
	if last != nil {
		c.closeWithin(ctx, last.end)
		c.cache.clear()
	}
	conn, err := c.negotiate(ctx)
	switch {
	case err != nil && c.ctx.Err() != nil:
		return nil, &TransportError{Method: wire.MethodDiscover, Err: ErrClosed}
	case err != nil:
		return nil, err
	}
	c.connection.Store(conn)
	if c.ctx.Err() != nil { // Close may have run before the Store
		conn.end()
		return nil, &TransportError{Method: wire.MethodDiscover, Err: ErrClosed}
	}
	c.sessionBegan(ctx, conn)
	if conn.session != nil && c.opts.KeepAlive > 0 {
		go c.keepAlive(conn) // ends with the session or the client
	}
	return conn, nil
}

// exchange is the innermost handler of a client: it sends the request on the connection. If the
// request did not run because the server lost the session or changed its revision, exchange
// connects again and sends it once more.
func (c *Client) exchange(ctx context.Context, req *Request) (Result, error) {
	conn, err := c.live(ctx)
	if err != nil {
		return nil, err
	}
	res, err := conn.RoundTrip(ctx, req)
	if err == nil || !c.isStale(conn, err) {
		return res, err
	}
	again, err2 := c.live(ctx)
	if err2 != nil {
		return nil, err
	}
	return again.RoundTrip(ctx, req.forConnection(conn, again))
}

// forConnection returns a request with the envelope of another connection and its revision.
func (r *Request) forConnection(from, to *connection) *Request {
	rest, ok := bytes.CutPrefix(r.Params, from.prefix)
	if !ok || from.revision == to.revision {
		return r
	}
	other := *r
	other.Params = slices.Concat(to.prefix, rest)
	other.env.Envelope = driver.Envelope{} // parsed by open
	_ = other.open()                       // cannot fail: the request was well-formed
	return &other
}

// restarted drops the cached knowledge about a server that was started again, because it may be
// another version. The next request sends server/discover again.
func (c *Client) restarted() {
	c.cache.clear()
	c.known.clear()
	if conn := c.connection.Load(); conn != nil && conn.session == nil {
		c.markStale(conn)
	}
}

func (c *Client) markStale(conn *connection) {
	stale := *conn
	stale.stale = true
	c.connection.CompareAndSwap(conn, &stale)
}

// isStale reports whether err shows that the connection is no longer usable and the request did not
// run. It marks the connection as ended.
func (c *Client) isStale(conn *connection, err error) bool {
	var failed *TransportError
	response := asError(err)
	errors.As(err, &failed)
	lost := failed != nil && (errors.Is(err, driver.ErrSessionLost) || connectionEnd(err) != nil && conn.session != nil)
	unsupported := response != nil && response.Remote() && response.Code == wire.CodeUnsupportedVersion
	changed := conn.session == nil && !isUnauthorized(err) && (failed != nil && isEraSignal(err) || unsupported)
	if !lost && !changed || c.ctx.Err() != nil {
		return false
	}
	c.markStale(conn)
	return failed == nil || !failed.MayHaveRun
}

// negotiate connects. No other function decides which era the server belongs to. Spec:
// basic/versioning (2026-07-28), Backward Compatibility; basic/transports.
func (c *Client) negotiate(ctx context.Context) (*connection, error) {
	sessions, dual := c.transport.(SessionTransport)
	pin, pinned := wire.ParseRevision(c.opts.Revision)
	pinnedLegacy := pinned && !pin.Modern()
	if pinnedLegacy && !dual {
		return nil, fmt.Errorf("%w: the transport does not support sessions, which revision %s requires",
			ErrNoCommonRevision, pin)
	}
	if pinnedLegacy || dual && !pinned && c.isKnownLegacy() {
		conn, err := c.openSession(ctx, sessions)
		if err == nil || pinnedLegacy || ctx.Err() != nil {
			return conn, err
		}
		c.rememberLegacy(false)
	}
	conn, mayBeLegacy, probed := c.probe(ctx)
	if probed == nil {
		c.rememberLegacy(false)
		return conn, nil
	}
	switch {
	case ctx.Err() != nil, !mayBeLegacy:
		return nil, probed
	case !dual, pinned:
		return nil, fmt.Errorf("%w: the server does not respond as revision %s requires: %w",
			ErrNoCommonRevision, wire.Latest(), probed)
	}
	if c.isRunner() && errors.Is(probed, ErrTimeout) {
		c.opts.Logger.Warn("mcp: the server has not responded yet, it may still be downloaded: waiting",
			"upTo", c.startTimeout())
	}
	conn, err := c.openSession(ctx, sessions)
	if isUnsupportedVersion(err) && errors.Is(probed, ErrTimeout) {
		// The server does not support sessions: it only took longer to start than the probe waited.
		conn, _, err = c.probe(ctx)
	}
	if err != nil {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return nil, afterProbe(err, probed)
	}
	if conn.session == nil {
		return conn, nil
	}
	if !errors.Is(probed, ErrTimeout) && (httpStatus(probed) == 0 || isEraSignal(probed)) {
		c.rememberLegacy(true) // after another failure, the server may only be slow or overloaded
	}
	return conn, nil
}

// probe sends server/discover. On failure, mayBeLegacy reports whether to try a session.
func (c *Client) probe(ctx context.Context) (conn *connection, mayBeLegacy bool, err error) {
	revision := wire.Latest()
	conn = &connection{Transport: c.transport, revision: revision, prefix: c.appendPrefix(nil, revision, c.declared)}
	var probing peer.Timeout
	probing.Start(ctx, peer.TimeLimits{Total: c.probeTimeout()}, ErrTimeout)
	defer probing.Stop()
	raw, err := c.discover(&probing, conn)
	if isUnsupportedVersion(err) && slices.Contains(supportedVersions(asError(err)), revision.String()) {
		// An intermediary refused the revision, or the server was updated just now.
		raw, err = c.discover(&probing, conn)
	}
	switch {
	case err == nil:
	case ctx.Err() != nil:
		return nil, false, context.Cause(ctx)
	default:
		mayBeLegacy, err = c.judge(err)
		return nil, mayBeLegacy, err
	}
	if err := conn.describe(raw); err != nil {
		return nil, true, invalidResult(wire.MethodDiscover, err)
	}
	if versions := conn.discovered.SupportedVersions; !slices.Contains(versions, revision.String()) {
		mayBeLegacy, err = noCommon(versions)
		return nil, mayBeLegacy, err
	}
	return conn, false, nil
}

func (c *Client) discover(ctx context.Context, conn *connection) (RawResult, error) {
	req, err := c.newRequest(conn, &noCallOptions, &clientRequest{method: wire.MethodDiscover}, nil)
	if err != nil {
		return nil, err
	}
	res, err := c.transport.RoundTrip(ctx, req)
	if err != nil {
		return nil, err
	}
	return rawResult(res)
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

func (c *Client) appendPrefix(b []byte, r wire.Revision, capabilities []byte) []byte {
	b = append(append(b, `{"_meta":{"`+wire.MetaProtocolVersion+`":"`...), r.String()...)
	b = append(b, `","`+wire.MetaClientInfo+`":`...)
	b = append(b, c.info...)
	b = append(b, `,"`+wire.MetaClientCapabilities+`":`...)
	return append(b, capabilities...)
}

// afterProbe returns the error of opening a session, joined with the error of the probe if they
// differ.
func afterProbe(err, probed error) error {
	var first, second *TransportError
	switch {
	case errors.As(probed, &first) && errors.As(err, &second) && first.Err.Error() == second.Err.Error(),
		httpStatus(err) != 0 && httpStatus(err) == httpStatus(probed),
		errors.Is(probed, ErrDisconnected) && errors.Is(err, ErrDisconnected): // the server has exited twice
		return err
	}
	return fmt.Errorf("%w (%s before that: %v)", err, wire.MethodDiscover, probed) //nolint:errorlint // wraps err
}

// legacyServers caches until when servers, by their ServerKey, count as supporting only sessions.
// Spec: basic/versioning (2026-07-28): clients cache the result of the probe.
var legacyServers struct {
	sync.Mutex
	until map[string]time.Time
}

const (
	maxLegacyServers = 1000      // more than a process connects to
	legacyTTL        = time.Hour // after that, an update of the server to a modern revision is noticed
)

func (c *Client) isKnownLegacy() bool {
	keyed, ok := c.transport.(driver.IdentifiedTransport)
	if !ok {
		return false
	}
	legacyServers.Lock()
	defer legacyServers.Unlock()
	return time.Now().Before(legacyServers.until[keyed.ServerKey()])
}

func (c *Client) rememberLegacy(legacy bool) {
	keyed, ok := c.transport.(driver.IdentifiedTransport)
	if !ok {
		return
	}
	legacyServers.Lock()
	defer legacyServers.Unlock()
	if len(legacyServers.until) >= maxLegacyServers {
		clear(legacyServers.until)
	}
	if delete(legacyServers.until, keyed.ServerKey()); legacy {
		put(&legacyServers.until, keyed.ServerKey(), time.Now().Add(legacyTTL))
	}
}

// judge decides whether an error of the probe may come from a server of the session era. Spec:
// basic/versioning (2026-07-28): fallback does not depend on a single error code.
func (c *Client) judge(err error) (mayBeLegacy bool, _ error) {
	switch e, status := asError(err), httpStatus(err); {
	case status == 401, status == 407:
		return false, err // authorized clients may get another response
	case e != nil && e.Code == CodeBusy:
		return false, err // such as a server of any revision that restarts
	case e != nil && e.Code == wire.CodeUnsupportedVersion:
		return noCommon(supportedVersions(e))
	case e != nil:
		modern := e.Code == wire.CodeHeaderMismatch || e.Code == wire.CodeMissingCapability
		return !modern, err
	case errors.Is(err, ErrTimeout), errors.Is(err, ErrInvalidResult), status != 0:
		return true, err // older servers answer unknown methods with 403, 429, 500 or 501, too
	}
	_, stream := c.transport.(interface{ streams() *connTransport })
	end := connectionEnd(err) // if the request made the server exit, the server will be started again
	return stream && end != nil && end.MayHaveRun, err
}

func httpStatus(err error) int {
	var status interface{ HTTPStatus() int }
	if errors.As(err, &status) {
		return status.HTTPStatus()
	}
	return 0
}

func isUnauthorized(err error) bool {
	status := httpStatus(err)
	return status == 401 || status == 403
}

// isEraSignal reports whether an HTTP status shows that the server does not support the request,
// rather than that it is overloaded or requires authorization.
func isEraSignal(err error) bool {
	switch s := httpStatus(err); s {
	case 401, 403, 407, 408, 413, 425, 429, 431, 451:
		return false
	default:
		return s/100 == 2 || s/100 == 4
	}
}

// noCommon returns the error for a server that does not support the modern revision, and reports
// whether the server supports an earlier revision.
func noCommon(versions []string) (mayBeLegacy bool, _ error) {
	const shown = 20 // the list comes from the server
	mayBeLegacy = slices.ContainsFunc(versions, func(v string) bool {
		r, ok := wire.ParseRevision(v)
		return ok && !r.Modern()
	})
	return mayBeLegacy, fmt.Errorf("%w: the server supports %.64q, this client %s",
		ErrNoCommonRevision, versions[:min(len(versions), shown)], supportedHere())
}

func isUnsupportedVersion(err error) bool {
	e := asError(err)
	return e != nil && !isUnauthorized(err) && e.Code == wire.CodeUnsupportedVersion
}

func supportedVersions(e *Error) []string {
	var data struct {
		Supported []string `json:"supported"`
	}
	_ = jsonv2.Unmarshal(e.Data, &data) // invalid data lists no revision
	return data.Supported
}

func (c *Client) openSession(ctx context.Context, t SessionTransport) (*connection, error) {
	pin, pinned := wire.ParseRevision(c.opts.Revision)
	session := legacy.NewClient(legacy.ClientConfig{
		Revision: pin, Pinned: pinned, Info: c.info, Capabilities: c.declared, Logger: c.opts.Logger,
		Answer: c.questions.answerDirect, Cancelled: cancelledBecause, Notify: c.unrouted,
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

// closeWithin calls a function that closes a session. If that takes longer than ctx lasts, it
// continues in the background: ending a session at a server that does not respond takes seconds. A
// stream is always closed before closeWithin returns.
func (c *Client) closeWithin(ctx context.Context, closing func()) {
	if _, stream := c.transport.(interface{ streams() *connTransport }); stream {
		closing()
		return
	}
	done := make(chan struct{})
	go func() { // ends with the closing, which bounds itself
		defer close(done)
		closing()
	}()
	select {
	case <-done:
	case <-ctx.Done():
	}
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

func (c *Client) sessionConnection(
	session *legacy.Client, opened driver.SessionConn, raw json.RawMessage,
) (*connection, error) {
	conn := &connection{
		Transport: sessionTransport{session}, revision: session.Revision(), session: session,
		prefix: c.appendPrefix(nil, session.Revision(), c.declared), done: opened.Done(),
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

// RootsChanged notifies the server that the list of roots changed. Servers of revisions since
// 2026-07-28 request the list when they need it, and receive no notification.
//
// Spec: client/roots#root-list-changes (2025-11-25).
func (c *Client) RootsChanged(ctx context.Context) error {
	conn, err := c.live(ctx)
	if err != nil || conn.session == nil {
		return err
	}
	return conn.session.RootsChanged(ctx)
}
