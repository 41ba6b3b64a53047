package mcphttp

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/internal/wire"
	"github.com/patchbay-mcp/patchbay/jsonrpc"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcp/driver"
)

const (
	// maxSessionID bounds an id that is sent with every request. Servers that put a signed token
	// into it need about this much.
	maxSessionID = 4 << 10
	// cancelTimeout is how long a cancellation may take to be posted, and cancelGracePeriod how
	// long Close waits for requests in progress.
	cancelTimeout, cancelGracePeriod = 5 * time.Second, 2 * time.Second
	// maxCancels bounds the cancellations in progress. A server that accepts so few of them acts on
	// none.
	maxCancels = 256
	// deleteTimeout is how long the DELETE of a session may take. Without it the server ends the
	// session after its idle timeout.
	deleteTimeout = 4 * time.Second
	// listenTimeout is how long the end of the handshake waits for the standalone stream to be
	// open. Later calls may cause messages on it.
	listenTimeout = time.Second
)

// OpenSession returns a connection for a new session with a server of a revision before 2026-07-28.
// The response to initialize decides its transport: Streamable HTTP, or HTTP+SSE if the server does
// not accept a POST. That is so after status 400, 404 and 405, and after other statuses 4xx if
// initialize offers 2025-03-26 or 2025-06-18, but never after 401, 403 and 429. Broken streams are
// resumed if the server supports it, at most 5 times in a row without progress.
//
// Spec: basic/transports (2025-11-25), basic/transports#backwards-compatibility
func (t *Transport) OpenSession(ctx context.Context, receive func(m *jsonrpc.Message)) (driver.SessionConn, error) {
	l := &clientSession{t: t, receive: driver.Receiver(ctx, receive), done: make(chan struct{}),
		cancelSlots: make(chan struct{}, maxCancels)}
	l.life.begin(t.life.ctx)
	l.cancels.begin(t.life.ctx)
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case t.broken != nil:
		return nil, &mcp.TransportError{Method: wire.MethodInitialize, Err: t.broken}
	case !t.keep(l):
		return nil, &mcp.TransportError{Method: wire.MethodInitialize, Err: mcp.ErrClosed}
	}
	l.header, l.postHeader = t.header, t.postHeader
	return l, nil
}

// A clientSession carries the messages of a session.
type clientSession struct {
	t           *Transport
	receive     streamReceiver
	ids         atomic.Int64
	life        lifetime
	cancels     lifetime      // of cancellations, which outlive the requests
	cancelSlots chan struct{} // holds a token for each cancellation in progress

	hasListened atomic.Bool // the standalone stream was open before
	done        chan struct{}

	mu         sync.Mutex // guards the fields below
	id         string     // of the session; may be empty
	rev        wire.Revision
	header     http.Header     // of every GET and DELETE; replaced, not modified
	postHeader http.Header     // the same for every POST
	endpoint   *endpointStream // of HTTP+SSE; nil on Streamable HTTP
	listening  listenState
	ended      error // the cause of the end; nil for an open session
}

// RoundTrip sends a request and returns the response.
func (l *clientSession) RoundTrip(ctx context.Context, req *jsonrpc.Message) (*jsonrpc.Message, error) {
	req.ID = jsonrpc.IntID(l.ids.Add(1))
	x, endpoint, err := l.startExchange(ctx, &l.life, req.Method)
	if err != nil {
		return nil, err
	}
	defer x.end()
	var m *jsonrpc.Message
	switch {
	case endpoint != nil:
		m, err = endpoint.roundTrip(x, req)
	case req.Method == wire.MethodInitialize:
		return l.initialize(x, req)
	default:
		if err = x.post(l.t.target, l.posting(), req); err == nil {
			m, err = l.response(x, req.ID)
		}
	}
	if ctx.Err() != nil && errors.Is(err, context.Cause(ctx)) {
		l.sendCancelled(ctx, req)
	}
	if err == nil {
		l.relisten()
	}
	return m, err
}

// startExchange starts an exchange of the session.
func (l *clientSession) startExchange(
	ctx context.Context, life *lifetime, method string,
) (*clientExchange, *endpointStream, error) {
	l.mu.Lock()
	endpoint, ended, rev := l.endpoint, l.ended, l.rev
	l.mu.Unlock()
	if ended != nil {
		return nil, nil, &mcp.TransportError{Method: method, Err: ended}
	}
	x, err := l.t.startExchange(ctx, life, method)
	if err != nil {
		return nil, nil, err
	}
	x.batches = rev.Has(wire.Batches)
	return x, endpoint, nil
}

func (l *clientSession) posting() http.Header {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.postHeader
}

// response returns the response to a posted request. The status for an unknown session is 404, but
// some servers send 400, 401, 403, 410, 500, 503 or 200, which may also indicate another cause.
// Therefore, a ping tests whether the session exists if the response does not contain the request's
// id, or is an error that mentions a session. If the session is lost and the request has certainly
// not run, the error makes the client repeat the request in a new session.
func (l *clientSession) response(x *clientExchange, id jsonrpc.ID) (m *jsonrpc.Message, err error) {
	status := x.res.StatusCode
	switch {
	case status == http.StatusNotFound && x.sent[headerSession] != nil:
		m, _ := x.refusal(id)
		if m != nil && m.Error.Code == mcp.CodeMethodNotFound {
			return m, nil // the session exists, the method does not
		}
		l.end(driver.ErrSessionLost)
		return nil, x.notSent(driver.ErrSessionLost)
	case status/100 == 2 && x.isEvents():
		m, err = l.callStream(x, id)
	default:
		m, err = x.response(id, l.receive)
	}
	unrelated := x.unnamed || !x.isEvents() && isAnyStatus(err) || mentionsSession(m)
	if x.sent[headerSession] == nil || x.method == wire.MethodPing || !unrelated || l.exists(x.caller) {
		return m, err
	}
	l.end(driver.ErrSessionLost)
	if status/100 == 2 || newStatusError(x.res, nil, "").mayHaveRun() {
		return m, err // the next request begins a new session
	}
	return nil, x.notSent(driver.ErrSessionLost)
}

// exists reports whether the server answers a ping in the session, or is unavailable.
func (l *clientSession) exists(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, cancelTimeout)
	defer cancel()
	x, endpoint, err := l.startExchange(ctx, &l.life, wire.MethodPing)
	if err != nil || endpoint != nil {
		return !errors.Is(err, driver.ErrSessionLost)
	}
	defer x.end()
	id := jsonrpc.IntID(l.ids.Add(1))
	if x.post(l.t.target, l.posting(), &jsonrpc.Message{ID: id, Method: wire.MethodPing}) != nil {
		return true
	}
	m, err := l.response(x, id)
	status, ok := errors.AsType[*StatusError](err)
	if !ok { // the body may be a JSON-RPC error, such as of a server whose session store fails
		status = newStatusError(x.res, nil, "")
	}
	if status.isUnavailable() {
		return true
	}
	return !errors.Is(err, driver.ErrSessionLost) && !isAnyStatus(err) && !x.unnamed && !mentionsSession(m)
}

// mentionsSession reports whether a response is an error whose message contains "session".
func mentionsSession(m *jsonrpc.Message) bool {
	return m != nil && m.Error != nil && strings.Contains(strings.ToLower(m.Error.Message), "session")
}

// initialize sends the first request and records the session id and the revision in its response.
// Spec: basic/transports#session-management (2025-11-25)
func (l *clientSession) initialize(x *clientExchange, req *jsonrpc.Message) (*jsonrpc.Message, error) {
	if err := x.post(l.t.target, l.posting(), req); err != nil {
		return nil, err
	}
	if err := l.setID(x.res); err != nil {
		return nil, x.unanswered(err)
	}
	m, err := l.response(x, req.ID)
	if isFirstTransport(offeredRevision(req), x.res.StatusCode, m) {
		if e, sseErr := l.openEndpoint(x.caller); sseErr == nil {
			m, err = e.roundTrip(x, req)
		} else if m == nil {
			err = x.notSent(l.t.noServer(unwrapped(err), sseErr))
		}
	}
	if err == nil && m.Error == nil {
		l.setRevision(m)
	}
	return m, err
}

// isFirstTransport reports whether a server with this response to initialize may support only
// HTTP+SSE. An error code of the newest revision shows that it does not. Spec:
// basic/transports/streamable-http#backward-compatibility (2026-07-28)
func isFirstTransport(offered wire.Revision, status int, m *jsonrpc.Message) bool {
	if !suggestsFirstTransport(offered, status) {
		return false
	}
	if m == nil {
		return true
	}
	switch m.Error.Code {
	case driver.CodeHeaderMismatch, driver.CodeMissingRequiredClientCapability, driver.CodeUnsupportedProtocolVersion:
		return false
	case mcp.CodeMethodNotFound:
		return status != http.StatusNotFound
	}
	return true
}

// suggestsFirstTransport reports whether a client that offers a revision tries HTTP+SSE after a
// status. In revisions 2025-03-26 and 2025-06-18 every status 4xx suggests it, in later revisions
// only 400, 404 and 405. Statuses 401, 403 and 429 do not show that the server is older. Spec:
// basic/transports#backwards-compatibility (2025-03-26, 2025-11-25)
func suggestsFirstTransport(offered wire.Revision, status int) bool {
	switch status {
	case http.StatusBadRequest, http.StatusNotFound, http.StatusMethodNotAllowed:
		return true
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusTooManyRequests:
		return false
	}
	return status/100 == 4 && (offered == wire.March2025 || offered == wire.June2025)
}

// offeredRevision returns the revision that an initialize request offers.
func offeredRevision(req *jsonrpc.Message) wire.Revision {
	version := jsonscan.GetString(req.Params, "protocolVersion")
	rev, _ := wire.ParseRevision(version)
	return rev
}

// setID records the id of the session, if the response contains an id.
func (l *clientSession) setID(res *http.Response) error {
	values := res.Header[headerSession]
	if len(values) == 0 || res.StatusCode/100 != 2 {
		return nil
	}
	id := values[0]
	isInvalid := func(c rune) bool { return c < '!' || c > '~' }
	if len(values) > 1 || id == "" || len(id) > maxSessionID || strings.ContainsFunc(id, isInvalid) {
		return fmt.Errorf("invalid session id: must be at most %d visible ASCII characters", maxSessionID)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.id = id
	l.header = with(l.header, headerSession, []string{id})
	l.postHeader = with(l.postHeader, headerSession, []string{id})
	return nil
}

// setRevision records the revision that the server chose. The caller validates it. Spec:
// basic/transports#protocol-version-header (2025-11-25)
func (l *clientSession) setRevision(m *jsonrpc.Message) {
	version := jsonscan.GetString(m.Result, "protocolVersion")
	rev, _ := wire.ParseRevision(version)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rev = rev
	if rev.Has(wire.ProtocolVersionHeader) {
		l.header = with(l.header, headerVersion, []string{version})
		l.postHeader = with(l.postHeader, headerVersion, []string{version})
	}
}

// Send sends a notification or a response. A response whose connection breaks is sent again: the
// server waits for it, and ignores the second of two. After notifications/initialized, Send also
// opens the standalone stream, and waits up to a second for it.
func (l *clientSession) Send(ctx context.Context, m *jsonrpc.Message) error {
	err := l.send(ctx, &l.life, m)
	var at position
	for m.Kind() == jsonrpc.Response && isBreak(err) && at.wait(ctx, l.done) == nil {
		at.failures++
		err = l.send(ctx, &l.life, m)
	}
	if err != nil {
		return err
	}
	if m.Method != wire.NotificationInitialized {
		return nil
	}
	opened := l.listen()
	timer := time.NewTimer(listenTimeout)
	defer timer.Stop()
	select {
	case <-opened:
	case <-timer.C:
	case <-ctx.Done():
	}
	return nil
}

// send posts a message without a response.
func (l *clientSession) send(ctx context.Context, life *lifetime, m *jsonrpc.Message) error {
	x, endpoint, err := l.startExchange(ctx, life, m.Method)
	if err != nil {
		return err
	}
	defer x.end()
	if endpoint != nil {
		return endpoint.post(x, m)
	}
	if err := x.post(l.t.target, l.posting(), m); err != nil {
		return err
	}
	return l.accepted(x, m.ID)
}

// accepted reads the HTTP response to a message that is not answered on this connection. An error
// with the message's id is returned all the same. Spec:
// basic/transports#sending-messages-to-the-server (2025-11-25)
func (l *clientSession) accepted(x *clientExchange, id jsonrpc.ID) error {
	switch status := x.res.StatusCode; {
	case status/100 == 2:
		x.drain() // usually the body is empty
		return nil
	case status == http.StatusNotFound && x.sent[headerSession] != nil:
		l.end(driver.ErrSessionLost)
		return x.notSent(driver.ErrSessionLost)
	}
	m, err := x.refusal(id)
	if err != nil {
		return err
	}
	return m.Error
}

// sendCancelled notifies the server that a request is cancelled. A closed connection does not
// cancel it. Spec: basic/utilities/cancellation (2025-11-25)
func (l *clientSession) sendCancelled(ctx context.Context, req *jsonrpc.Message) {
	reason := `"cancelled"` // the cause is not disclosed to the server
	if errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
		reason = `"timeout"`
	}
	params := append([]byte(`{"requestId":`+req.ID.String()), `,"reason":`+reason+`}`...)
	select {
	case l.cancelSlots <- struct{}{}:
	default:
		l.t.log.Warn("mcphttp: cancellation not sent: too many are in progress", "method", req.Method)
		return
	}
	started := l.cancels.run(func() {
		defer func() { <-l.cancelSlots }()
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cancelTimeout)
		defer cancel()
		cancelled := &jsonrpc.Message{Method: wire.NotificationCancelled, Params: params}
		if err := l.send(ctx, &l.cancels, cancelled); err != nil {
			l.t.log.Info("mcphttp: cancellation not sent", "method", req.Method, "error", err)
		}
	})
	if !started {
		<-l.cancelSlots
	}
}

// Done returns a channel that is closed when the session ended.
func (l *clientSession) Done() <-chan struct{} { return l.done }

func (l *clientSession) end(cause error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended == nil {
		l.ended = cause
		close(l.done)
	}
}

func (l *clientSession) endCause() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ended
}

// Close ends the requests in progress, and the session at the server.
func (l *clientSession) Close() error {
	l.life.close(func() {
		l.cancels.end(cancelGracePeriod)
		l.mu.Lock()
		ends := l.id != "" && l.ended == nil
		l.mu.Unlock()
		l.end(mcp.ErrClosed)
		l.life.end(0)
		if ends {
			l.delete()
		}
		l.t.forget(l)
	})
	return nil
}

// delete ends the session at the server, which may refuse. Spec:
// basic/transports#session-management (2025-11-25)
func (l *clientSession) delete() {
	ctx, cancel := context.WithTimeout(context.Background(), deleteTimeout)
	defer cancel()
	x, err := l.t.startExchange(ctx, &l.t.life, http.MethodDelete)
	if err != nil {
		return
	}
	defer x.end()
	l.mu.Lock()
	header := l.header
	l.mu.Unlock()
	if err = x.do(&http.Request{Method: http.MethodDelete, URL: l.t.target, Header: header}); err == nil {
		switch status := x.res.StatusCode; {
		case status/100 == 2, status == http.StatusMethodNotAllowed, status == http.StatusNotFound:
			_ = x.diagnosis() // so that the connection can be reused
		default:
			err = newStatusError(x.res, x.diagnosis(), "")
		}
	}
	if err != nil {
		l.t.log.Info("mcphttp: session not ended at the server", "error", err)
	}
}
