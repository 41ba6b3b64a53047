package mcphttp

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"maps"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/internal/sse"
	"github.com/patchbay-mcp/patchbay/internal/wire"
	"github.com/patchbay-mcp/patchbay/jsonrpc"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// A clientExchange is an HTTP request of a client with its response. It is the context of both: it
// returns the values of the caller's context, and ends with that context, with the lifetime, or
// with the exchange. If the caller's context can be ended by the transport, the exchange borrows
// it, which saves a context of its own.
type clientExchange struct {
	context.Context
	caller   context.Context
	borrowed requestContext          // the caller's context; nil if the exchange uses its own
	cancel   context.CancelCauseFunc // of its own context
	stop     func() bool             // looking at the caller

	t       *Transport
	life    *lifetime                     // of the transport or session
	method  string                        // of the message, for errors
	batches bool                          // the revision defines batches
	others  func(m *jsonrpc.Message) bool // receives responses to other requests; returns false if unknown

	verb       string       // the HTTP method
	sent       http.Header  // of the request
	posted     bytes.Reader // its body
	res        *http.Response
	atEnd      bool // the body was read to its end
	taken      int  // messages
	unnamed    bool // the response did not contain an id
	dropLogged bool // a dropped message was logged
	draining   bool // the exchange ends in the background
}

// A streamReceiver receives a message with the context of the request on whose stream it arrived,
// nil for a stream of the session.
type streamReceiver = func(of context.Context, m *jsonrpc.Message)

// A requestContext is the context of a request that its transport may end. The contexts of an
// mcp.Client are, unless they were wrapped.
type requestContext interface {
	context.Context
	EndRequest(cause error)
}

// startExchange starts an exchange. The caller ends it.
func (t *Transport) startExchange(ctx context.Context, life *lifetime, method string) (*clientExchange, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if t.broken != nil {
		return nil, &mcp.TransportError{Method: method, Err: t.broken}
	}
	if life.ctx.Err() != nil {
		return nil, &mcp.TransportError{Method: method, Err: context.Cause(life.ctx)}
	}
	x := &clientExchange{t: t, life: life, caller: ctx, method: method}
	if t.direct != nil && !t.drains.Load() {
		x.borrowed, _ = ctx.(requestContext)
	}
	if x.borrowed != nil {
		x.Context = ctx
		if !life.borrow(x) {
			return nil, &mcp.TransportError{Method: method, Err: mcp.ErrClosed}
		}
		return x, nil
	}
	x.Context, x.cancel = context.WithCancelCause(life.ctx)
	x.stop = context.AfterFunc(ctx, func() { x.cancel(context.Cause(ctx)) })
	return x, nil
}

// Value looks in the exchange's own context first: package context finds its canceler there,
// without a goroutine.
func (x *clientExchange) Value(key any) any {
	if v := x.Context.Value(key); v != nil {
		return v
	}
	return x.caller.Value(key)
}

// end ends the exchange, unless it is being drained.
func (x *clientExchange) end() {
	if !x.draining {
		x.close()
	}
}

// close ends the exchange. If the response was not read to its end, this closes the connection or
// resets the stream of HTTP/2.
func (x *clientExchange) close() {
	if x.borrowed != nil {
		x.life.mu.Lock()
		delete(x.life.borrowers, x)
		x.life.mu.Unlock()
	} else {
		x.stop()
	}
	if x.res != nil {
		_ = x.res.Body.Close()
	}
	if x.borrowed == nil {
		x.cancel(nil)
	}
}

func (x *clientExchange) abort() {
	if x.borrowed != nil {
		_ = x.res.Body.Close() // a body of net/http may be closed during a read
		return
	}
	x.cancel(nil)
}

// notSent returns the error of a request that certainly did not run, or the cause if the caller's
// context ended.
func (x *clientExchange) notSent(err error) error {
	return x.failed(&mcp.TransportError{Method: x.method, Err: err})
}

func (x *clientExchange) unanswered(err error) error {
	return x.failed(&mcp.TransportError{Method: x.method, MayHaveRun: true, Err: err})
}

func (x *clientExchange) failed(err *mcp.TransportError) error {
	closed := context.Cause(x.life.ctx)
	ended := context.Cause(x.caller)
	if ended != nil && (x.borrowed == nil || closed == nil || !errors.Is(ended, closed)) {
		return ended
	}
	if closed != nil {
		err.Err = closed
	}
	return err
}

func (x *clientExchange) post(target *url.URL, header http.Header, m *jsonrpc.Message) error {
	const room = 72 // for the envelope of the params
	body := jsonrpc.Append(make([]byte, 0, len(m.Params)+len(m.Result)+len(m.Method)+room), m)
	posted := &x.posted
	if posted.Size() > 0 {
		posted = new(bytes.Reader) // net/http may still read the previous body, though it was refused
	}
	posted.Reset(body)
	x.traceSent(http.MethodPost, header, m)
	return x.do(&http.Request{
		Method: http.MethodPost, URL: target, Header: header, ContentLength: int64(len(body)),
		Body:    io.NopCloser(posted), // net/http recognizes both types, and sends header and body in a single write
		GetBody: func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil },
	})
}

// do sends an HTTP request and waits for the header of the response.
func (x *clientExchange) do(req *http.Request) error {
	x.verb, x.sent = req.Method, req.Header
	if req.Body == nil {
		x.traceSent(req.Method, req.Header, nil)
	}
	var ctx context.Context = x
	if x.borrowed != nil {
		ctx = x.borrowed // equivalent, and shorter for each lookup
	}
	res, err := x.t.send(req.WithContext(ctx)) //nolint:bodyclose // closed at the end of the exchange
	switch {
	case err == nil:
		x.res = res
		if res.StatusCode != http.StatusOK || x.verb != http.MethodPost {
			x.traceReceived(nil)
		}
		return nil
	case isUnauthorized(err):
		return x.notSent(&authorizationError{withoutURL(err)})
	case wasNotSent(err):
		return x.notSent(withoutURL(err))
	}
	return x.unanswered(lost(withoutURL(err)))
}

func (x *clientExchange) body() io.Reader { return exchangeBody{x} }

// An exchangeBody records the end of the body: only after it the connection can be reused.
type exchangeBody struct{ *clientExchange }

func (b exchangeBody) Read(p []byte) (int, error) {
	n, err := b.res.Body.Read(p)
	if errors.Is(err, io.EOF) {
		b.atEnd = true
	}
	return n, err
}

// drain ends the exchange in the background when its response came on an event stream. The end
// of the stream comes a moment later. Reading it keeps the connection usable, and the caller need
// not wait for it.
func (x *clientExchange) drain() {
	const timeout, most = time.Second, 4 << 10 // only a faulty server sends more
	if x.atEnd || x.res.ContentLength == 0 {
		return
	}
	x.t.drains.Store(true)
	if x.borrowed != nil {
		return // its context ends now; later exchanges use their own contexts and keep their connection
	}
	x.stop()
	x.draining = x.life.run(func() {
		timer := time.AfterFunc(timeout, x.abort)
		defer timer.Stop()
		_, _ = io.CopyN(io.Discard, x.body(), most)
		x.close()
	})
}

// response reads the response to the request with an id, in any form. Other messages go to receive.
func (x *clientExchange) response(id jsonrpc.ID, receive streamReceiver) (*jsonrpc.Message, error) {
	switch {
	case x.res.StatusCode/100 != 2:
		return x.refusal(id)
	case x.isEvents():
		events := x.openEvents()
		defer events.close()
		m, err := x.events(events, id, receive)
		if err != nil {
			return nil, x.unanswered(err)
		}
		return m, nil
	case isJSON(x.contentType()):
		return x.json(id, receive)
	}
	return nil, x.unanswered(newStatusError(x.res, x.diagnosis(), "the body is neither JSON nor an event stream"))
}

func (x *clientExchange) isEvents() bool {
	contentType := x.contentType()
	if contentType == typeJSON {
		return false
	}
	mediaType, _, err := mime.ParseMediaType(contentType)
	return err == nil && mediaType == typeEventStream
}

// contentType returns the media type of the response; empty if the body uses an unexpected
// encoding.
func (x *clientExchange) contentType() string {
	if encoding := x.res.Header["Content-Encoding"]; len(encoding) > 0 && !strings.EqualFold(encoding[0], "identity") {
		return ""
	}
	contentType, _ := first(x.res.Header, "Content-Type")
	return contentType
}

// json reads a body with a single message.
func (x *clientExchange) json(id jsonrpc.ID, receive streamReceiver) (*jsonrpc.Message, error) {
	body, err := x.readBody()
	if err != nil {
		return nil, x.unanswered(err)
	}
	m, err := jsonrpc.Decode(body)
	if err != nil {
		return nil, x.unanswered(newStatusError(x.res, body, err.Error()))
	}
	if m = x.dispatch(m, id, receive); m != nil {
		return checked(x, m)
	}
	return nil, x.unanswered(newStatusError(x.res, body, "the body has no response to the request"))
}

func (x *clientExchange) readBody() ([]byte, error) {
	if x.res.ContentLength > int64(x.t.maxResponse) {
		return nil, ErrTooLarge
	}
	body, err := readClaimed(x.body(), x.res.ContentLength, int64(x.t.maxResponse), &bodyCharge{}, new(atomic.Int64))
	if err != nil {
		return nil, lost(err)
	}
	return body, nil
}

// An eventReader reads the event stream of a response.
type eventReader struct {
	*sse.Reader
	buf *bufio.Reader
}

// eventBuffers is a pool: most streams contain a single event, and far shorter than a buffer.
var eventBuffers = sync.Pool{New: func() any { return bufio.NewReaderSize(nil, eventBuffer) }}

// eventBuffer is the size from which an sse.Reader uses a buffer directly.
const eventBuffer = 16 << 10

func (x *clientExchange) openEvents() eventReader {
	buf := eventBuffers.Get().(*bufio.Reader)
	buf.Reset(x.body())
	return eventReader{sse.NewReader(buf, x.t.maxEvent), buf}
}

// close returns the buffer to the pool.
func (r eventReader) close() {
	r.buf.Reset(nil)
	eventBuffers.Put(r.buf)
}

// events reads events until the response.
func (x *clientExchange) events(
	events eventReader, id jsonrpc.ID, receive streamReceiver,
) (*jsonrpc.Message, error) {
	for {
		e, err := events.Next()
		if err != nil {
			return nil, lost(err)
		}
		if x.caller.Err() != nil {
			return nil, context.Cause(x.caller)
		}
		if e.Type != sse.DefaultType || len(e.Data) == 0 {
			continue
		}
		m, err := jsonrpc.Decode(e.Data)
		if err != nil {
			if m = refusedResponse(err); m == nil {
				x.drop("invalid message", err)
				continue
			}
		}
		if m = x.dispatch(m, id, receive); m != nil {
			return m, checkAnswer(m)
		}
	}
}

// refusedResponse returns an error response in place of a message that was refused but may be a
// response, since no other response will come. Its error is not the server's.
func refusedResponse(err error) *jsonrpc.Message {
	refused, ok := errors.AsType[*jsonrpc.DecodeError](err)
	if !ok || refused.Kind == jsonrpc.Request || refused.Kind == jsonrpc.Notification {
		return nil
	}
	return &jsonrpc.Message{ID: refused.ID, Error: &jsonrpc.Error{Code: refused.Err.Code, Message: refused.Err.Message}}
}

// dispatch returns m if it is the response to id, or an error without an id. It passes requests and
// notifications to receive, and drops the rest.
func (x *clientExchange) dispatch(
	m *jsonrpc.Message, id jsonrpc.ID, receive streamReceiver,
) (answer *jsonrpc.Message) {
	if kind := m.Kind(); kind != jsonrpc.Batch && kind != jsonrpc.Invalid {
		x.traceReceived(m)
	}
	switch m.Kind() {
	case jsonrpc.Request, jsonrpc.Notification:
		x.taken++
		of := x.caller
		if id.IsZero() || x.method == wire.MethodInitialize {
			of = nil // the stream is that of the session
		}
		receive(of, m)
	case jsonrpc.Response:
		if m.Repaired {
			x.t.log.Warn("mcphttp: the response contains a lone surrogate, replaced with U+FFFD",
				"method", x.method)
		}
		if !id.IsZero() && (m.ID == id || m.ID.IsZero()) {
			x.unnamed, m.ID = m.ID.IsZero(), id
			return m
		}
		if quoted := strconv.Quote(id.String()); !id.IsZero() && m.ID.String() == quoted {
			return &jsonrpc.Message{ID: id, Error: &jsonrpc.Error{Code: jsonrpc.CodeInvalidRequest,
				Message: "the id of the response is the string " + quoted + ", but the id of the request is a number"}}

		}
		if x.others == nil || !x.others(m) {
			x.drop("response to another request", nil)
		}
	case jsonrpc.Batch:
		if !x.batches {
			x.drop("the revision does not support batches", nil)
			return nil
		}
		for _, m := range m.Batch {
			if a := x.dispatch(m, id, receive); a != nil {
				answer = a
			}
		}
	case jsonrpc.Invalid:
		if response := refusedResponse(m.Refused); response != nil {
			return x.dispatch(response, id, receive)
		}
		x.drop("invalid message", m.Refused)
	}
	return answer
}

// drop logs a dropped message. It logs once for each exchange, so that a server cannot fill the
// log.
func (x *clientExchange) drop(reason string, err error) {
	if x.dropLogged {
		return
	}
	x.dropLogged = true
	x.t.log.Warn("mcphttp: dropped a message of the server: "+reason, "method", x.method, "error", err)
}

// refusal reads a response with an error status. A JSON-RPC error in the body is the response,
// unless the status is 401 or 403: these are for the authorization of the client, whatever the body
// is. Spec: basic/authorization#error-handling
func (x *clientExchange) refusal(id jsonrpc.ID) (*jsonrpc.Message, error) {
	body := x.diagnosis()
	status := newStatusError(x.res, body, "")
	if jsonscan.Kind(body) == '{' {
		m, err := jsonrpc.Decode(body)
		if err == nil && m.Error != nil && (m.ID == id || m.ID.IsZero()) {
			x.traceReceived(m)
			if !isUnauthorized(status) {
				x.unnamed, m.ID = m.ID.IsZero(), id
				return m, nil
			}
			status.rpcErr = m.Error
		}
	}
	if status.mayHaveRun() {
		return nil, x.unanswered(status)
	}
	return nil, x.notSent(status)
}

// diagnosis reads the beginning of a body that explains a failure, as far as it arrives in time.
func (x *clientExchange) diagnosis() []byte {
	timer := time.AfterFunc(diagnosisTime, x.abort)
	defer timer.Stop()
	body, _ := io.ReadAll(io.LimitReader(x.body(), maxDiagnosis)) // a partial body is quoted as well
	return body
}

func with(header http.Header, name string, values []string) http.Header {
	header = maps.Clone(header)
	header[name] = values
	return header
}
