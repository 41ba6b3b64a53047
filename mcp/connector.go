package mcp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	jsonv2 "github.com/go-json-experiment/json"

	"github.com/patchbay-mcp/patchbay/internal/childproc"
	"github.com/patchbay-mcp/patchbay/internal/peer"
	"github.com/patchbay-mcp/patchbay/internal/wire"
	"github.com/patchbay-mcp/patchbay/mcp/driver"
)

// A connector holds the connection of a client. It decides which revision the server implements, and
// connects again when the connection has ended.
type connector struct {
	transport Transport
	opts      *ClientOptions
	identity  *identity
	ctx       context.Context // of the client: ends with Client.Close

	connecting chan struct{} // holds a token while a connection is made
	connection atomic.Pointer[connection]

	// answer and unrouted receive the questions and the other notifications of a session. replaced is
	// called before another connection is made.
	answer   func(ctx context.Context, method string, params json.RawMessage) (json.RawMessage, *Error)
	unrouted func(ctx context.Context, method string, params json.RawMessage)
	replaced func()
}

// live returns the current connection, or connects if there is no open connection.
func (c *connector) live(ctx context.Context) (*connection, error) {
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
		c.replaced()
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
func (c *connector) exchange(ctx context.Context, req *Request) (Result, error) {
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

func (c *connector) markStale(conn *connection) {
	stale := *conn
	stale.stale = true
	c.connection.CompareAndSwap(conn, &stale)
}

// isStale reports whether err shows that the connection is no longer usable and the request did not
// run. It marks the connection as ended.
func (c *connector) isStale(conn *connection, err error) bool {
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
func (c *connector) negotiate(ctx context.Context) (*connection, error) {
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
func (c *connector) probe(ctx context.Context) (conn *connection, mayBeLegacy bool, err error) {
	revision := wire.Latest()
	conn = &connection{Transport: c.transport, revision: revision,
		prefix: c.identity.appendPrefix(nil, revision, c.identity.declared)}
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

func (c *connector) discover(ctx context.Context, conn *connection) (RawResult, error) {
	req, err := c.identity.newRequest(conn, &noCallOptions, &clientRequest{method: wire.MethodDiscover}, nil)
	if err != nil {
		return nil, err
	}
	res, err := c.transport.RoundTrip(ctx, req)
	if err != nil {
		return nil, err
	}
	return rawResult(res)
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

func (c *connector) isKnownLegacy() bool {
	keyed, ok := c.transport.(driver.IdentifiedTransport)
	if !ok {
		return false
	}
	legacyServers.Lock()
	defer legacyServers.Unlock()
	return time.Now().Before(legacyServers.until[keyed.ServerKey()])
}

func (c *connector) rememberLegacy(legacy bool) {
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
func (c *connector) judge(err error) (mayBeLegacy bool, _ error) {
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

// closeWithin calls a function that closes a session. If that takes longer than ctx lasts, it
// continues in the background: ending a session at a server that does not respond takes seconds. A
// stream is always closed before closeWithin returns.
func (c *connector) closeWithin(ctx context.Context, closing func()) {
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

// A startingTransport is a Transport that may download the server before it starts.
type startingTransport interface {
	isRunner() bool
	withheld(stderr string) []string
}

func (c *connector) isRunner() bool {
	t, ok := c.transport.(startingTransport)
	return ok && t.isRunner()
}

// startTimeout returns how long a server may take to respond to initialize.
func (c *connector) startTimeout() time.Duration {
	if c.isRunner() && c.opts.Timeout == defaultTimeout {
		return childproc.RunnerTimeout
	}
	return c.opts.Timeout
}

// probeTimeout returns how long a server may take to respond to server/discover. If no session can
// follow, there is no reason to give up early.
func (c *connector) probeTimeout() time.Duration {
	if c.isRunner() && c.opts.Revision != "" && c.opts.ProbeTimeout == defaultProbeTimeout {
		return childproc.RunnerTimeout
	}
	return c.opts.ProbeTimeout
}

// failedStart adds the variables that a server did not inherit to the error of a server that exited
// or did not respond in time: behind a proxy, a package runner without HTTPS_PROXY times out.
func (c *connector) failedStart(err error) error {
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
