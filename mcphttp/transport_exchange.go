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
	"strings"
	"sync"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/internal/sse"
	"github.com/patchbay-mcp/patchbay/jsonrpc"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// A trip is one HTTP request of a client, with its response. It is the context of both, with the values of its caller's:
// it ends when the caller's does, when what it belongs to is closed, and when the trip is over. Where that is enough, the
// caller's is lent for it.
type clientExchange struct {
	context.Context
	caller   context.Context
	borrowed requestContext          // the caller, if its context is lent; nil if the trip has its own
	cancel   context.CancelCauseFunc // of its own context
	stop     func() bool             // looking at the caller

	before, after *clientExchange // among those of life whose contexts are lent; guarded by its lock

	t       *Transport
	life    *lifetime                     // of what the trip belongs to
	method  string                        // of the message, for errors
	batches bool                          // the revision has them
	others  func(m *jsonrpc.Message) bool // takes responses to other requests, if they belong here

	sent       http.Header  // of the request
	posted     bytes.Reader // its body
	res        *http.Response
	atEnd      bool // the body was read to its end
	taken      int  // messages
	dropLogged bool // that something was dropped
	draining   bool // the trip ends by itself
}

// A lender is the context of a request that its transport may end. Those of an mcp.Client are, unless something was made
// of them on the way.
type requestContext interface {
	context.Context
	EndRequest(cause error)
}

// depart begins a trip. The caller ends it.
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

// Value returns the values of the trip's own context first: by one of them package context finds its way, without a
// goroutine.
func (x *clientExchange) Value(key any) any {
	if v := x.Context.Value(key); v != nil {
		return v
	}
	return x.caller.Value(key)
}

// end ends the trip, unless it has been left to itself.
func (x *clientExchange) end() {
	if !x.draining {
		x.close()
	}
}

// close ends the trip. When there was more to read that closes its connection, or resets its stream of HTTP/2.
func (x *clientExchange) close() {
	if x.borrowed != nil {
		x.life.endBorrow(x)
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

// abort ends the reading of the response.
func (x *clientExchange) abort() {
	if x.borrowed != nil {
		_ = x.res.Body.Close() // those of net/http may be closed while they are read
		return
	}
	x.cancel(nil)
}

// notSent is the error of a request that has certainly not run, unless nobody waits for it any more.
func (x *clientExchange) notSent(err error) error {
	return x.failed(&mcp.TransportError{Method: x.method, Err: err})
}

// unanswered is the error of a request that may have run.
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

// refusedBy is the error of a request that was answered with an HTTP status alone.
func (x *clientExchange) refusedBy(err *StatusError) error {
	if err.mayHaveRun() {
		return x.unanswered(err)
	}
	return x.notSent(err)
}

// post sends a message.
func (x *clientExchange) post(target *url.URL, header http.Header, m *jsonrpc.Message) error {
	const room = 128 // for what is around the params
	body := jsonrpc.Append(make([]byte, 0, len(m.Params)+len(m.Result)+len(m.Method)+room), m)
	posted := &x.posted
	if posted.Size() > 0 {
		posted = new(bytes.Reader) // net/http may read the one before still, though it was refused
	}
	posted.Reset(body)
	return x.do(&http.Request{
		Method: http.MethodPost, URL: target, Header: header, ContentLength: int64(len(body)),
		Body:    io.NopCloser(posted), // net/http knows both, and sends header and body in one piece
		GetBody: func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil },
	})
}

// do sends an HTTP request and waits for the header of the response.
func (x *clientExchange) do(req *http.Request) error {
	x.sent = req.Header
	var ctx context.Context = x
	if x.borrowed != nil {
		ctx = x.borrowed // all of the trip's context, which would only be a longer way to it
	}
	res, err := x.t.send(req.WithContext(ctx)) //nolint:bodyclose // whoever ends the trip closes it
	switch {
	case err == nil:
		x.res = res
		return nil
	case wasNotSent(err), isUnauthorized(err):
		return x.notSent(withoutURL(err))
	}
	return x.unanswered(lost(withoutURL(err)))
}

// body is what the trip reads of the response.
func (x *clientExchange) body() io.Reader { return exchangeBody{x} }

// A exchangeBody takes note of the body's end: a connection is of use again when it was seen.
type exchangeBody struct{ *clientExchange }

func (b exchangeBody) Read(p []byte) (int, error) {
	n, err := b.res.Body.Read(p)
	if errors.Is(err, io.EOF) {
		b.atEnd = true
	}
	return n, err
}

// linger lets the trip end by itself when its answer has come on an event stream. The end of the stream comes a moment
// later; waiting for it keeps the connection for others, and is nothing that the caller should have to do.
func (x *clientExchange) drain() {
	const timeout, most = time.Second, 4 << 10 // a server that still says something has misunderstood
	if x.atEnd || x.res.ContentLength == 0 {
		return
	}
	x.t.drains.Store(true)
	if x.borrowed != nil {
		return // its context ends now: this connection is lost, no later one is
	}
	x.stop()
	x.draining = x.life.run(func() {
		timer := time.AfterFunc(timeout, x.abort)
		defer timer.Stop()
		_, _ = io.CopyN(io.Discard, x.body(), most)
		x.close()
	})
}

// answer reads the response to the request with that id, whatever form it has. Other messages go to take.
func (x *clientExchange) answer(id jsonrpc.ID, take func(m *jsonrpc.Message)) (*jsonrpc.Message, error) {
	switch {
	case x.res.StatusCode/100 != 2:
		return x.refusal(id)
	case x.isEvents():
		events := x.openEvents()
		defer events.close()
		m, err := x.events(events, id, take)
		if err != nil {
			return nil, x.unanswered(err)
		}
		return m, nil
	case x.isJSON():
		return x.json(id, take)
	}
	return nil, x.noAnswer("neither JSON nor an event stream")
}

func (x *clientExchange) isJSON() bool { return isJSON(x.contentType()) }

func (x *clientExchange) isEvents() bool {
	contentType := x.contentType()
	switch contentType {
	case typeEventStream:
		return true
	case typeJSON:
		return false
	}
	mediaType, _, err := mime.ParseMediaType(contentType)
	return err == nil && mediaType == typeEventStream
}

// contentType is none when the body has an encoding that was not asked for.
func (x *clientExchange) contentType() string {
	if encoding := x.res.Header["Content-Encoding"]; len(encoding) > 0 && !strings.EqualFold(encoding[0], "identity") {
		return ""
	}
	contentType, _ := first(x.res.Header, "Content-Type")
	return contentType
}

// json reads a body that is one message.
func (x *clientExchange) json(id jsonrpc.ID, take func(m *jsonrpc.Message)) (*jsonrpc.Message, error) {
	body, err := x.readBody()
	if err != nil {
		return nil, x.unanswered(err)
	}
	m, err := jsonrpc.Decode(body)
	if err != nil {
		return nil, x.unanswered(newStatusError(x.res, body, err.Error()))
	}
	if m = x.sort(m, id, take); m != nil {
		if err := checkAnswer(m); err != nil {
			return nil, x.unanswered(err)
		}
		return m, nil
	}
	return nil, x.unanswered(newStatusError(x.res, body, "no answer to the request in it"))
}

// readBody reads a whole body.
func (x *clientExchange) readBody() ([]byte, error) {
	if x.res.ContentLength > int64(x.t.maxResponse) {
		return nil, ErrTooLarge
	}
	body, err := readClaimed(x.body(), x.res.ContentLength, int64(x.t.maxResponse))
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

// eventBuffers holds buffers between streams: most of these are one event long, and far shorter than a buffer.
var eventBuffers = sync.Pool{New: func() any { return bufio.NewReaderSize(nil, eventBuffer) }}

// eventBuffer is the size with which an sse.Reader takes a buffer as its own.
const eventBuffer = 16 << 10

func (x *clientExchange) openEvents() eventReader {
	buf := eventBuffers.Get().(*bufio.Reader)
	buf.Reset(x.body())
	return eventReader{sse.NewReader(buf, x.t.maxEvent), buf}
}

// close returns the buffer back, when nothing more is read.
func (r eventReader) close() {
	r.buf.Reset(nil)
	eventBuffers.Put(r.buf)
}

// events reads events until the answer.
func (x *clientExchange) events(events eventReader, id jsonrpc.ID, take func(m *jsonrpc.Message)) (*jsonrpc.Message, error) {
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
				x.drop("it is refused", err)
				continue
			}
		}
		if m = x.sort(m, id, take); m != nil {
			return m, checkAnswer(m)
		}
	}
}

// standIn returns what stands for a message that is refused, if that may be an answer somebody waits for: no other will
// come. It is an error that is not the server's.
func refusedResponse(err error) *jsonrpc.Message {
	var refused *jsonrpc.DecodeError
	if !errors.As(err, &refused) || refused.Kind == jsonrpc.Request || refused.Kind == jsonrpc.Notification {
		return nil
	}
	return jsonrpc.NewErrorResponse(refused.ID, &jsonrpc.Error{Code: refused.Err.Code, Message: refused.Err.Message})
}

// sort returns m back if it is the answer to id, an error that names no request included. It hands requests and
// notifications to take, and drops the rest.
func (x *clientExchange) sort(m *jsonrpc.Message, id jsonrpc.ID, take func(m *jsonrpc.Message)) (answer *jsonrpc.Message) {
	switch m.Kind() {
	case jsonrpc.Request, jsonrpc.Notification:
		x.taken++
		take(m)
	case jsonrpc.Response:
		if !id.IsZero() && (m.ID == id || m.ID.IsZero()) {
			m.ID = id
			return m
		}
		if x.others == nil || !x.others(m) {
			x.drop("it answers another request", nil)
		}
	case jsonrpc.Batch:
		if !x.batches {
			x.drop("the revision has no batches", nil)
			return nil
		}
		for _, m := range m.Batch {
			if a := x.sort(m, id, take); a != nil {
				answer = a
			}
		}
	case jsonrpc.Invalid:
		if stands := refusedResponse(m.Refused); stands != nil {
			return x.sort(stands, id, take)
		}
		x.drop("it is refused", m.Refused)
	}
	return answer
}

// drop makes a note of a message that nothing comes of. One note is enough for a trip: a server could fill the log.
func (x *clientExchange) drop(why string, err error) {
	if x.dropLogged {
		return
	}
	x.dropLogged = true
	x.t.log.Warn("mcphttp: dropped a message of the server: "+why, "method", x.method, "error", err)
}

// refusal reads a response whose status is an error. It is an answer if a JSON-RPC error is in it, unless the status says
// that it depends on who asks: that is for whoever sees to authorization, whatever else the server says.
//
// Spec: basic/authorization#error-handling
func (x *clientExchange) refusal(id jsonrpc.ID) (*jsonrpc.Message, error) {
	body := x.diagnosis()
	status := newStatusError(x.res, body, "")
	if jsonscan.Kind(body) == '{' {
		m, err := jsonrpc.Decode(body)
		if err == nil && m.Error != nil && (m.ID == id || m.ID.IsZero()) {
			if !status.isUnauthorized() {
				m.ID = id
				return m, nil
			}
			status.rpcErr = m.Error
		}
	}
	return nil, x.refusedBy(status)
}

// noAnswer is the error for a response that promised one.
func (x *clientExchange) noAnswer(reason string) error {
	return x.unanswered(newStatusError(x.res, x.diagnosis(), reason))
}

// diagnosis reads the beginning of a body that explains a failure, as far as it comes in time.
func (x *clientExchange) diagnosis() []byte {
	timer := time.AfterFunc(diagnosisTime, x.abort)
	defer timer.Stop()
	body, _ := io.ReadAll(io.LimitReader(x.body(), maxDiagnosis)) // what cannot be read is not quoted
	return body
}

// with returns a copy of a header with more in it.
func with(header http.Header, name string, values []string) http.Header {
	header = maps.Clone(header)
	header[name] = values
	return header
}
