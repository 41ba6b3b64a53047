package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/internal/linestream"
	"github.com/patchbay-mcp/patchbay/internal/peer"
	"github.com/patchbay-mcp/patchbay/internal/wire"
	"github.com/patchbay-mcp/patchbay/jsonrpc"
)

const (
	// maxAwaited is the number of requests that wait for answers on one Conn. Each has a goroutine of the caller's; more
	// of them are a caller that has lost count.
	maxAwaited = 100_000
	// cancelPatience is how long a cancellation may take to be written.
	cancelPatience = 5 * time.Second
	// farewell is how long a server has to take the cancellations of what is in progress when the client closes.
	farewell = 200 * time.Millisecond
	// maxRefusedTold is the number of refused messages of which a log has to say so, lest a server fills it.
	maxRefusedTold = 8
)

// A link is a client's end of a Conn. It gives requests their ids and finds the answers to them. What nobody awaits goes
// to receive.
type link struct {
	conn  Conn
	log   *slog.Logger
	ids   atomic.Int64
	table peer.Table // of the requests that wait

	receive atomic.Pointer[func(m *jsonrpc.Message)]

	done    chan struct{} // closed when reading has ended
	err     error         // why it has; set before done is closed
	closing sync.Once
	failed  error           // of closing
	ctx     context.Context // of all that the link does by itself
	cancel  context.CancelFunc
	work    sync.WaitGroup
	refused int         // messages; the reader's
	deaf    atomic.Bool // nothing can be written any more, though reading may go on

	mu      sync.Mutex
	cancels []cancellation // that wait to be written; at most one for each request
	written chan struct{}  // closed once all of them are; nil when nobody writes them
	closed  bool           // nothing more is started
}

// A cancellation is what a server is to be told of a request that nobody waits for any more.
type cancellation struct {
	id    jsonrpc.ID
	cause error
}

// newLink begins to read.
func newLink(conn Conn, log *slog.Logger, receive func(m *jsonrpc.Message)) *link {
	l := &link{conn: conn, log: log, done: make(chan struct{})}
	l.table.MaxQuestions = maxAwaited
	l.receive.Store(&receive)
	l.ctx, l.cancel = context.WithCancel(context.Background())
	l.work.Go(l.read)
	return l
}

// RoundTrip sends a request and waits for its response.
func (l *link) RoundTrip(ctx context.Context, req *jsonrpc.Message) (*jsonrpc.Message, error) {
	return l.roundTrip(ctx, req, nil)
}

// roundTrip is RoundTrip that tells the id before the request leaves.
func (l *link) roundTrip(ctx context.Context, req *jsonrpc.Message, begun func(id jsonrpc.ID)) (*jsonrpc.Message, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	req.ID = jsonrpc.IntID(l.ids.Add(1))
	question, err := l.table.Ask(req.ID)
	if err != nil {
		return nil, &TransportError{Method: req.Method, Err: err}
	}
	if begun != nil {
		begun(req.ID)
	}
	if err := l.write(ctx, req); err != nil {
		question.Withdraw()
		if ctx.Err() != nil {
			return nil, context.Cause(ctx) // should it leave yet, write cancels it
		}
		return nil, l.unsent(req.Method, err)
	}
	response, err := question.Wait(ctx)
	switch {
	case err == nil:
		return checkResponse(req.Method, response)
	case ctx.Err() != nil:
		l.cancelRequest(req, context.Cause(ctx))
		return nil, context.Cause(ctx)
	}
	return nil, &TransportError{Method: req.Method, MayHaveRun: true, Err: err}
}

// write writes a message, and returns when ctx ends even where what is below has no deadlines: a deaf server holds up
// nobody. Then at most one goroutine is left, which waits until the server reads or the link is closed.
func (l *link) write(ctx context.Context, m *jsonrpc.Message) error {
	if c, ok := l.conn.(interface{ HasWriteDeadline() bool }); !ok || c.HasWriteDeadline() {
		return l.conn.Write(ctx, m)
	}
	copied := *m // the caller goes on with its own
	written := make(chan error, 1)
	var over atomic.Bool // the writing, or the waiting for it
	go func() {
		err := l.conn.Write(ctx, &copied)
		written <- err
		if waited := over.CompareAndSwap(false, true); !waited && err == nil && copied.Kind() == jsonrpc.Request {
			l.cancelRequest(&copied, context.Cause(ctx))
		}
	}()
	select {
	case err := <-written:
		return err
	case <-ctx.Done():
		if over.CompareAndSwap(false, true) {
			return context.Cause(ctx)
		}
		return <-written
	}
}

// checkResponse tells a response of the server from one that stands for a response that could not be read.
func checkResponse(method string, response *jsonrpc.Message) (*jsonrpc.Message, error) {
	if response.Error != nil && !response.Error.Remote() {
		return nil, &TransportError{Method: method, MayHaveRun: true, Err: fmt.Errorf("the response is refused: %s", response.Error.Message)}
	}
	return response, nil
}

// unsent says of a failure to write what it means. The reason why the stream ended is a better one than that nothing can
// be written any more.
func (l *link) unsent(method string, err error) error {
	var unsent *linestream.UnsentError
	if errors.Is(err, ErrDisconnected) {
		l.deaf.Store(true)
	}
	never := errors.As(err, &unsent) || errors.Is(err, ErrClosed) && !errors.Is(err, ErrDisconnected)
	select {
	case <-l.done:
		err = l.err
	default:
	}
	return &TransportError{Method: method, MayHaveRun: !never, Err: err}
}

// cancelRequest tells the server that nobody waits for the answer any more. It does not hold up the caller: the server may be
// deaf.
//
// Spec: basic/patterns/cancellation (2026-07-28); basic/utilities/cancellation#behavior-requirements (2025-11-25).
func (l *link) cancelRequest(req *jsonrpc.Message, cause error) {
	if req.Method == wire.MethodInitialize || req.Method == wire.MethodDiscover {
		return // these open the conversation, and what has to come next is not this
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return
	}
	l.cancels = append(l.cancels, cancellation{req.ID, cause})
	if l.written == nil {
		l.written = make(chan struct{})
		l.work.Go(l.writeCancels)
	}
}

// writeCancels writes the cancellations that wait. A server that does not read one of them does not act on the others
// either.
func (l *link) writeCancels() {
	for {
		waiting := l.takeCancels()
		if len(waiting) == 0 {
			return
		}
		for _, c := range waiting {
			ctx, cancel := context.WithTimeout(l.ctx, cancelPatience)
			err := l.write(ctx, cancelledNote(c.id, c.cause))
			cancel()
			if err != nil {
				break
			}
		}
	}
}

// takeCancels returns the cancellations that wait. If there are none, nobody writes them any more.
func (l *link) takeCancels() []cancellation {
	l.mu.Lock()
	defer l.mu.Unlock()
	waiting := l.cancels
	l.cancels = nil
	if len(waiting) == 0 {
		close(l.written)
		l.written = nil
	}
	return waiting
}

// cancelledNote tells a server of the end of a request: of its kind and nothing of its text, which is not meant for others.
func cancelledNote(id jsonrpc.ID, cause error) *jsonrpc.Message {
	reason := `,"reason":"cancelled"}`
	switch {
	case errors.Is(cause, context.DeadlineExceeded):
		reason = `,"reason":"timeout"}`
	case errors.Is(cause, ErrClosed):
		reason = `,"reason":"disconnecting"}`
	}
	params := append(id.Append([]byte(`{"requestId":`)), reason...)
	return jsonrpc.NewNotification(wire.NotificationCancelled, params)
}

// Send sends a notification or a response.
func (l *link) Send(ctx context.Context, m *jsonrpc.Message) error {
	if err := l.write(ctx, m); err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return l.unsent(m.Method, err)
	}
	return nil
}

// isOver reports whether no request can be answered any more. Whoever has heard of the end from a request sees it here at
// once: done is closed a moment after the waiting has ended.
func (l *link) isOver() bool { return l.deaf.Load() || l.table.HungUp() != nil }

// Done is closed when nothing can be read any more.
func (l *link) Done() <-chan struct{} { return l.done }

// Close closes the Conn.
func (l *link) Close() error {
	l.closing.Do(func() {
		l.mu.Lock()
		l.closed = true
		written := l.written
		l.mu.Unlock()
		l.abandon(written)
		l.failed = l.conn.Close() // what the server still says is read meanwhile, so that it does not wait for that
		l.cancel()
		l.work.Wait()
	})
	return l.failed
}

// abandon ends all waiting. The server is told, so that it does not finish what nobody wants before it ends; what it is
// being told already is waited for.
func (l *link) abandon(written <-chan struct{}) {
	waiting := l.table.Waiting()
	l.table.Hangup(ErrClosed)
	ctx, cancel := context.WithTimeout(l.ctx, farewell)
	defer cancel()
	if written != nil {
		select {
		case <-written:
		case <-ctx.Done():
			return
		}
	}
	for _, id := range waiting {
		if l.write(ctx, cancelledNote(id, ErrClosed)) != nil {
			return
		}
	}
}

// read takes messages until the Conn ends. Nothing that it calls blocks, so an answer is always heard.
func (l *link) read() {
	defer close(l.done)
	for {
		m, err := l.conn.Read(l.ctx)
		if err == nil {
			l.take(m)
			continue
		}
		var refused *jsonrpc.DecodeError
		switch {
		case errors.As(err, &refused):
			l.refuse(refused, errors.Is(err, linestream.ErrLineTooLong))
			continue
		case l.ctx.Err() != nil:
			l.err = ErrClosed
		case errors.Is(err, io.EOF):
			l.err = fmt.Errorf("%w: the server has ended the stream", ErrDisconnected)
		default:
			l.err = disconnected(err)
		}
		l.table.Hangup(l.err)
		return
	}
}

func (l *link) take(m *jsonrpc.Message) {
	switch m.Kind() {
	case jsonrpc.Response:
		if !l.table.Answer(m) {
			l.log.Debug("mcp: response to no request that waits", "id", m.ID)
		}
	case jsonrpc.Batch:
		for _, m := range m.Batch {
			l.take(m)
		}
	case jsonrpc.Invalid:
		l.refuse(m.Refused, false)
	default:
		(*l.receive.Load())(m)
	}
}

// refuse answers the request whose response is unreadable. What is no message is none of them, such as the words that a
// server prints as it starts. The id of a message that is too long was not read: if one request waits, it is meant; of
// several none can be told, and they wait on.
func (l *link) refuse(refused *jsonrpc.DecodeError, tooLong bool) {
	level := slog.LevelWarn
	if l.refused++; l.refused > maxRefusedTold {
		level = slog.LevelDebug
	}
	l.log.Log(l.ctx, level, "mcp: message of the server refused", "error", refused)
	response := &jsonrpc.Message{ID: refused.ID, Error: &jsonrpc.Error{Code: refused.Err.Code, Message: refused.Err.Message}}
	switch {
	case refused.Kind == jsonrpc.Request, refused.Kind == jsonrpc.Notification:
		return
	case tooLong:
		response.ID, _ = l.table.Alone()
	}
	if !response.ID.IsZero() {
		l.table.Answer(response)
	}
}

// routes lead the notifications of a link to the requests that they belong to.
type routes struct {
	mu sync.Mutex
	to map[string]*Request // by what a notification names: a progress token or a subscription's id, as JSON
}

func (r *routes) add(key string, req *Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	put(&r.to, key, req)
}

func (r *routes) remove(key string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.to, key)
}

func (r *routes) find(key string) []*Request {
	r.mu.Lock()
	defer r.mu.Unlock()
	if req := r.to[key]; req != nil {
		return []*Request{req}
	}
	return nil
}

// subscriptions returns all that are open.
func (r *routes) subscriptions() (all []*Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, req := range r.to {
		if req.Method == wire.MethodSubscriptionsListen {
			all = append(all, req)
		}
	}
	return all
}

// routeKeys of progress and of subscriptions differ, since the values they hold may not.
func progressRoute(token []byte) string  { return "p" + string(token) }
func subscriptionRoute(id []byte) string { return "s" + string(id) }

// notified returns a notification to the request that it names. It reports false if it names none.
//
// Spec: basic/transports/stdio (2026-07-28); basic/patterns/subscriptions (2026-07-28).
func (r *routes) notified(ctx context.Context, m *jsonrpc.Message) bool {
	var to []*Request
	switch m.Method {
	case wire.NotificationMessage:
		return false
	case wire.NotificationProgress:
		token, _ := jsonscan.Get(m.Params, "progressToken")
		to = r.find(progressRoute(token))
	case wire.NotificationToolsListChanged, wire.NotificationPromptsListChanged, wire.NotificationResourcesListChanged,
		wire.NotificationResourcesUpdated, wire.NotificationSubscriptionsAcknowledged:
		meta, _ := jsonscan.Get(m.Params, "_meta")
		if id, ok := jsonscan.Get(meta, wire.MetaSubscriptionID); ok {
			to = r.find(subscriptionRoute(id))
		} else {
			to = r.subscriptions() // some servers forget to say which
		}
	default:
		meta, _ := jsonscan.Get(m.Params, "_meta")
		id, ok := jsonscan.Get(meta, wire.MetaSubscriptionID)
		if !ok {
			return false
		}
		to = r.find(subscriptionRoute(id)) // it is of an extension's topic
	}
	for _, req := range to {
		_ = req.Notify(ctx, m.Method, m.Params) // it cannot fail for a receiver
	}
	return true // a late one belongs to nobody, and nobody else wants it
}

// roundTripModern sends a request in the modern form.
func (l *link) roundTripModern(ctx context.Context, req *Request, r *routes) (Result, error) {
	var begun func(id jsonrpc.ID)
	if req.Notify != nil {
		if token := req.env.ProgressToken; token != nil {
			r.add(progressRoute(token), req)
			defer r.remove(progressRoute(token))
		}
		if req.Method == wire.MethodSubscriptionsListen {
			key := ""
			begun = func(id jsonrpc.ID) {
				key = subscriptionRoute([]byte(id.String()))
				r.add(key, req)
			}
			defer func() { r.remove(key) }()
		}
	}
	response, err := l.roundTrip(ctx, jsonrpc.NewRequest(jsonrpc.ID{}, req.Method, req.Params), begun)
	if err != nil {
		return nil, err
	}
	if response.Error != nil {
		return nil, response.Error
	}
	return RawResult(response.Result), nil
}

// paramsOf returns the raw params of a notification as an object, empty when it has none.
func paramsOf(m *jsonrpc.Message) json.RawMessage {
	if jsonscan.Kind(m.Params) != '{' {
		return json.RawMessage(`{}`)
	}
	return m.Params
}
