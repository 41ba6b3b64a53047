package mcphttp

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/netx"
	"github.com/patchbay-mcp/patchbay/jsonrpc"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcp/driver"
)

const (
	// endpointTimeout is how long a server may take to send its endpoint.
	endpointTimeout = 10 * time.Second
	// maxEndpoint bounds the URL of the endpoint.
	maxEndpoint = 8 << 10
)

// An endpointStream is the event stream of HTTP+SSE, which is the session, with the endpoint for
// the messages of the client.
type endpointStream struct {
	session *clientSession
	ready   chan error // receives a value when the address is known, or will not be
	target  *url.URL   // set before that

	mu      sync.Mutex // guards the fields below
	waiting map[jsonrpc.ID]chan<- *jsonrpc.Message
	over    bool
}

var (
	errEndpointLate   = fmt.Errorf("the server sent no endpoint in %v", endpointTimeout)
	errEndpointOrigin = errors.New("invalid endpoint: must have the origin of the server")
	errEndpointURL    = errors.New("invalid endpoint: must be a URL")
)

// openEndpoint opens the event stream and waits for the endpoint. The stream lasts as long as the
// session. Spec: basic/transports#http-with-sse (2024-11-05)
func (l *clientSession) openEndpoint(ctx context.Context) (*endpointStream, error) {
	x, _, err := l.startExchange(context.WithoutCancel(ctx), &l.life, http.MethodGet)
	if err != nil {
		return nil, unwrapped(err)
	}
	e := &endpointStream{session: l, ready: make(chan error, 1), waiting: map[jsonrpc.ID]chan<- *jsonrpc.Message{}}
	if !l.life.run(func() { e.run(x) }) {
		x.end()
		return nil, mcp.ErrClosed
	}
	timer := time.NewTimer(endpointTimeout)
	defer timer.Stop()
	select {
	case err = <-e.ready:
	case <-timer.C:
		err = errEndpointLate
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	if err != nil {
		x.cancel(err)
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.endpoint = e
	return e, nil
}

func (e *endpointStream) run(x *clientExchange) {
	defer x.end()
	e.end(e.read(x))
}

func (e *endpointStream) read(x *clientExchange) error {
	err := x.do(&http.Request{Method: http.MethodGet, URL: e.session.t.target, Header: e.session.t.header})
	switch {
	case err != nil:
		return unwrapped(err)
	case x.res.StatusCode != http.StatusOK || !x.isEvents():
		return newStatusError(x.res, x.diagnosis(), "the body is not an event stream")
	}
	events := x.openEvents()
	defer events.close()
	if err := e.readEndpoint(x, events); err != nil {
		return err
	}
	e.ready <- nil
	x.others = e.deliver
	_, err = x.events(events, jsonrpc.ID{}, e.session.receive)
	return err
}

// readEndpoint reads the first event, the endpoint. It is resolved against the URL of the stream
// and must be of the same origin: otherwise a server could redirect messages, and their headers, to
// another server.
func (e *endpointStream) readEndpoint(x *clientExchange, events eventReader) error {
	for {
		event, err := events.Next()
		switch {
		case err != nil:
			return lost(err)
		case event.Type != "endpoint":
			continue
		case len(event.Data) > maxEndpoint:
			return errEndpointURL
		}
		base := e.session.t.target
		if x.res.Request != nil && x.res.Request.URL != nil { // the request may have been redirected
			base = x.res.Request.URL
		}
		target, err := base.Parse(string(event.Data))
		switch {
		case err != nil:
			return errEndpointURL
		case !netx.SameOrigin(e.session.t.target, target):
			return errEndpointOrigin
		}
		target.User, target.Fragment, target.RawFragment = e.session.t.target.User, "", ""
		e.target = target
		return nil
	}
}

// deliver passes a response to the request that waits for it. An error without an id belongs to the
// only waiting request.
func (e *endpointStream) deliver(m *jsonrpc.Message) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	id := m.ID
	if id.IsZero() && len(e.waiting) == 1 {
		for id = range e.waiting {
		}
	}
	waiting := e.waiting[id]
	if waiting == nil {
		return e.isLate(id)
	}
	delete(e.waiting, id)
	m.ID = id
	waiting <- m // buffered (1)
	return true
}

// isLate reports whether a response answers an earlier request of this session. It crossed the
// cancellation, and is not worth a warning.
func (e *endpointStream) isLate(id jsonrpc.ID) bool {
	n, err := strconv.ParseInt(id.String(), 10, 64)
	late := err == nil && n > 0 && n <= e.session.ids.Load()
	if late {
		e.session.t.log.Debug("mcphttp: late response", "id", n)
	}
	return late
}

func (e *endpointStream) end(err error) {
	e.mu.Lock()
	e.over = true
	e.mu.Unlock()
	select {
	case e.ready <- err:
	default: // openEndpoint returned
	}
	if e.target != nil {
		e.session.end(fmt.Errorf("%w: the session's stream has ended: %w", mcp.ErrDisconnected, err))
	}
}

// roundTrip posts a request and waits for the response, which comes on the stream.
func (e *endpointStream) roundTrip(x *clientExchange, req *jsonrpc.Message) (*jsonrpc.Message, error) {
	answer := make(chan *jsonrpc.Message, 1)
	e.mu.Lock()
	over := e.over
	e.waiting[req.ID] = answer
	e.mu.Unlock()
	defer func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		delete(e.waiting, req.ID)
	}()
	if over {
		return nil, x.notSent(mcp.ErrDisconnected)
	}
	if err := e.post(x, req); err != nil {
		select {
		case m := <-answer: // despite the error
			return checked(x, m)
		default:
		}
		var refused *mcp.Error
		var status *StatusError
		if errors.As(err, &refused) && refused.Remote() && !errors.As(err, &status) {
			return &jsonrpc.Message{ID: req.ID, Error: refused}, nil
		}
		return nil, err
	}
	select {
	case m := <-answer:
		return checked(x, m)
	case <-x.caller.Done(): // x itself ends with the HTTP response to its POST
		return nil, x.unanswered(context.Cause(x.caller))
	case <-e.session.done:
	}
	select {
	case m := <-answer: // the last event of the stream
		return checked(x, m)
	default:
		return nil, x.unanswered(e.session.endCause())
	}
}

func checked(x *clientExchange, m *jsonrpc.Message) (*jsonrpc.Message, error) {
	if err := checkAnswer(m); err != nil {
		return nil, x.unanswered(err)
	}
	return m, nil
}

// post posts a message. Its response comes on the stream.
func (e *endpointStream) post(x *clientExchange, m *jsonrpc.Message) error {
	if err := x.post(e.target, e.session.posting(), m); err != nil {
		return err
	}
	if x.res.StatusCode != http.StatusNotFound {
		return e.session.accepted(x, m.ID)
	}
	if refused, _ := x.refusal(m.ID); refused != nil && refused.Error.Code == mcp.CodeMethodNotFound {
		return refused.Error // the endpoint exists, the method does not
	}
	e.session.end(driver.ErrSessionLost)
	return x.notSent(driver.ErrSessionLost)
}
