// Package legacy translates between the session era of the protocol and the modern form that the core speaks.
//
// A [Session] is one client that opened with initialize. What it sends is rewritten into requests that each carry their
// envelope; what the core answers is projected onto the client's revision. What a session has and the modern era has
// not, is here: questions that travel as requests of the server, pushed changes, subscriptions to one resource, a log
// level for all requests, pings and batches.
//
// A [Client] is the mirror image: the client's end of a session, which makes its server look modern.
package legacy

import (
	"context"
	stdjson "encoding/json"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/peer"
	"github.com/patchbay-mcp/patchbay/internal/wire"
	"github.com/patchbay-mcp/patchbay/jsonrpc"
)

// A Stream writes one message. It blocks while the peer is slow, and fails when ctx has ended or the peer is gone. It is
// called from several goroutines.
type Stream func(ctx context.Context, m *jsonrpc.Message) error

// Send writes a message.
func (s Stream) Send(ctx context.Context, m *jsonrpc.Message) error { return s(ctx, m) }

// Notify writes a notification. With Send it makes the stream a [Sender].
func (s Stream) Notify(ctx context.Context, method string, params stdjson.RawMessage) error {
	return s(ctx, jsonrpc.NewNotification(method, params))
}

// A Sender writes one message, as a [Stream] does.
type Sender interface {
	Send(ctx context.Context, m *jsonrpc.Message) error
	// Notify is Send for a notification. The params are not kept.
	Notify(ctx context.Context, method string, params stdjson.RawMessage) error
}

// A Notify writes one notification of a request. It blocks and fails as a [Stream] does.
type Notify = func(ctx context.Context, method string, params stdjson.RawMessage) error

// A Core serves requests in the modern form. `_meta` of their params holds the envelope, with the session's revision.
// Its methods are called from several goroutines.
type Core interface {
	// Serve answers one request; the notifications that belong to it go to its Notify before Serve returns. It appends the
	// result to dst, on one line, or gives the error, which may alias the request; else nothing of the request is kept.
	Serve(ctx context.Context, dst []byte, r Round) ([]byte, *jsonrpc.Error)
	// Listen takes a subscriptions/listen request and returns once it is registered. Its notifications go to notify until
	// stop is called or ctx ends. Stop does not wait, and may be called twice.
	Listen(ctx context.Context, req *jsonrpc.Message, notify Notify) (stop func(), err error)
}

// DefaultAnswerTimeout is how long questions wait unless [Config.AnswerTimeout] says otherwise. Who has not answered by
// then is not at the screen. It is well within the time that the core keeps the state of a request that asks.
const DefaultAnswerTimeout = 10 * time.Minute

// A Config is what sessions have in common. It is neither changed nor copied once it is in use.
type Config struct {
	// Core answers the requests.
	Core Core
	// Logger takes what goes wrong. Default: slog.Default().
	Logger *slog.Logger
	// MaxInFlight is the number of requests of one session that are worked on at once. Default:
	// [peer.DefaultMaxCalls].
	MaxInFlight int
	// AnswerTimeout is how long a request waits for what it asks its client at once. Then its questions are taken back,
	// and it is answered with an error. Default: [DefaultAnswerTimeout].
	AnswerTimeout time.Duration
	// Calls is for a stream that carries more than the one session: what is in flight on it. Ids and bounds are then
	// those of the whole stream. Default: each session has a table of its own.
	Calls *peer.Table
	// Cancelled makes the cause of a context whose request the client has cancelled. Default: an error that gives the
	// reason.
	Cancelled func(reason string) error

	changes [wire.July2026]atomic.Pointer[projectedChange] // told last, by revision
	pages   pageCache
	frame   frame
}

func (c *Config) logger() *slog.Logger {
	if c.Logger == nil {
		return slog.Default()
	}
	return c.Logger
}

func (c *Config) answerTimeout() time.Duration {
	if c.AnswerTimeout == 0 {
		return DefaultAnswerTimeout
	}
	return c.AnswerTimeout
}

func (c *Config) cancelled(reason string) error {
	if c.Cancelled == nil {
		return errors.New("cancelled by the client: " + reason)
	}
	return c.Cancelled(reason)
}

// A Session is one client of the session era, from its initialize request on. While nothing happens it costs its memory
// and nothing else. It is safe for concurrent use.
type Session struct {
	cfg    *Config
	rev    wire.Revision
	calls  *peer.Table     // what is in flight, both ways
	ctx    context.Context // of subscriptions: ends with the session
	cancel context.CancelCauseFunc

	changing  sync.Mutex // held while the subscription changes; guards the fields below
	stop      func()     // ends the subscription; nil when there is none
	heard     offers     // what it is to
	heardURIs []string
	uris      []string // resources that the client subscribed to

	mu          sync.Mutex    // guards the fields below
	envelope    envelope      // of every request
	welcomed    bool          // offers is known
	offers      offers        // not changed once it is known
	described   chan struct{} // closed when offers is known; nil while nobody waits for that
	initialized bool          // the client is ready for what it did not ask for
	changes     Stream        // where changes go; nil for nowhere
	tokens      []*taskToken  // the oldest first
}

// Revision is the revision that the session has settled on.
func (s *Session) Revision() wire.Revision { return s.rev }

// Handle takes one message of the client. It serves a request: it writes the request's notifications and questions and
// then the one response to out, nothing after the client has cancelled it, and returns when done. Any other message takes
// effect at once. The responses to a batch are one batch.
//
// What ends ctx ends the request. A request that may outlive its connection needs a context that does.
func (s *Session) Handle(ctx context.Context, m *jsonrpc.Message, out Stream) {
	reply, work := s.Accept(ctx, m, out)
	if work != nil {
		reply = work()
	}
	if reply == nil {
		return
	}
	if err := out(ctx, reply); err != nil {
		s.cfg.logger().DebugContext(ctx, "mcp: response not delivered", "id", reply.ID, "error", err)
	}
}

// Accept is the first half of [Session.Handle], for a reader that must not wait. Messages are accepted in the order of
// their arrival. It returns what is left to do: a reply to write, or work to do on another goroutine, whose result is
// the reply to write. Every one of them may be nil.
func (s *Session) Accept(ctx context.Context, m *jsonrpc.Message, out Stream) (reply *jsonrpc.Message, work func() *jsonrpc.Message) {
	switch m.Kind() {
	case jsonrpc.Request:
		return s.acceptRequest(ctx, m, out)
	case jsonrpc.Notification:
		return nil, s.acceptNotification(m)
	case jsonrpc.Response:
		if !s.calls.Answer(m) {
			s.cfg.logger().DebugContext(ctx, "mcp: answer to no question", "id", m.ID)
		}
		return nil, nil
	case jsonrpc.Batch:
		return s.acceptBatch(ctx, m.Batch, out)
	}
	if m.Refused == nil {
		return nil, nil
	}
	return m.Refused.Response(), nil
}

func (s *Session) acceptRequest(ctx context.Context, m *jsonrpc.Message, out Stream) (*jsonrpc.Message, func() *jsonrpc.Message) {
	x := new(Exchange)
	if reply := s.Begin(ctx, x, m, out); reply != nil {
		return reply, nil
	}
	return nil, x.serve
}

// Begin is [Session.Accept] for a request whose response its caller writes as bytes. It returns the reply, if there is
// nothing to do for it, or nil: then x serves the request, on any goroutine, by [Exchange.AppendAnswer].
func (s *Session) Begin(ctx context.Context, x *Exchange, m *jsonrpc.Message, out Sender) (reply *jsonrpc.Message) {
	method := methodOf(s.rev, m.Method)
	switch {
	case m.Method == wire.MethodPing:
		return jsonrpc.NewResponse(m.ID, emptyResult)
	case m.Method == wire.MethodInitialize:
		return refuse(m.ID, jsonrpc.CodeInvalidRequest, "the session is initialized already")
	case !method.served:
		return refuse(m.ID, jsonrpc.CodeMethodNotFound, "method not found")
	}
	if err := s.calls.Enter(ctx, &x.call, m.ID); err != nil {
		return jsonrpc.NewErrorResponse(m.ID, err)
	}
	x.session, x.request, x.method, x.out = s, m, method, out
	return nil
}

// acceptNotification lets a notification take effect. Of the others there are progress, which nobody waits for, and
// changed roots, of which nothing is kept.
func (s *Session) acceptNotification(m *jsonrpc.Message) (work func() *jsonrpc.Message) {
	switch m.Method {
	case wire.NotificationCancelled:
		if id, reason, ok := peer.ParseCancelled(m.Params); ok {
			s.calls.Cancel(id, s.cfg.cancelled(reason))
		}
	case wire.NotificationInitialized:
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.initialized {
			return nil
		}
		s.initialized = true
		return func() *jsonrpc.Message {
			s.resume()
			return nil
		}
	}
	return nil
}

// acceptBatch accepts each message of a batch. Its requests are served side by side and answered together.
//
// Spec: basic#batching (2025-03-26)
func (s *Session) acceptBatch(ctx context.Context, batch []*jsonrpc.Message, out Stream) (*jsonrpc.Message, func() *jsonrpc.Message) {
	if !s.rev.Has(wire.Batches) {
		return refuse(jsonrpc.ID{}, jsonrpc.CodeInvalidRequest, "this protocol revision has no batches"), nil
	}
	var replies []*jsonrpc.Message
	var works []func() *jsonrpc.Message
	for _, m := range batch {
		reply, work := s.Accept(ctx, m, out)
		if reply != nil {
			replies = append(replies, reply)
		}
		if work != nil {
			works = append(works, work)
		}
	}
	if len(works) == 0 {
		return batchOf(replies), nil
	}
	return nil, func() *jsonrpc.Message {
		done := make([]*jsonrpc.Message, len(works))
		var wg sync.WaitGroup
		for i, work := range works {
			wg.Go(func() { done[i] = work() })
		}
		wg.Wait()
		return batchOf(append(replies, done...))
	}
}

// batchOf returns one message of the responses that are not nil, or nil.
func batchOf(responses []*jsonrpc.Message) *jsonrpc.Message {
	batch := &jsonrpc.Message{}
	for _, m := range responses {
		if m != nil {
			batch.Batch = append(batch.Batch, m)
		}
	}
	if batch.Batch == nil {
		return nil
	}
	return batch
}

// Close ends the session: everything in flight and every waiting question, with the cause. What is in flight is still
// answered.
func (s *Session) Close(cause error) {
	s.calls.Close(cause)
	s.cancel(cause)
	s.resume()
}

// emptyResult says that a request was carried out.
var emptyResult = []byte(`{}`)

func refuse(id jsonrpc.ID, code int, message string) *jsonrpc.Message {
	return jsonrpc.NewErrorResponse(id, &jsonrpc.Error{Code: code, Message: message})
}
