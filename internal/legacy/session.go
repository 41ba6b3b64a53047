// Package legacy translates between the session era of the protocol and the modern form, which is
// the only era that package mcp implements.
//
// A [Session] is the server's end of a session, from its initialize request on. It rewrites each
// request of the client into a request that carries its own envelope, and projects each result onto
// the client's revision. It also implements the features that only sessions offer: requests from
// the server to the client, pushed changes, subscriptions to single resources, a log level for all
// requests, pings and batches.
//
// A [Client] is the client's end of a session. It makes the server look like a modern server.
package legacy

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/peer"
	"github.com/patchbay-mcp/patchbay/internal/wire"
	"github.com/patchbay-mcp/patchbay/jsonrpc"
)

// A Stream writes a message. It blocks while the peer is slow. It returns an error when ctx has
// ended or the peer is gone. It may be called from several goroutines.
type Stream func(ctx context.Context, m *jsonrpc.Message) error

// Send writes a message.
func (s Stream) Send(ctx context.Context, m *jsonrpc.Message) error { return s(ctx, m) }

// Notify writes a notification. With Send, it makes the stream a [Sender].
func (s Stream) Notify(ctx context.Context, method string, params json.RawMessage) error {
	return s(ctx, &jsonrpc.Message{Method: method, Params: params})
}

// A Sender writes messages, as a [Stream] does.
type Sender interface {
	Send(ctx context.Context, m *jsonrpc.Message) error
	// Notify writes a notification. It does not retain params.
	Notify(ctx context.Context, method string, params json.RawMessage) error
}

// A Notify writes a notification of a request. It blocks and fails as a [Stream] does.
type Notify = func(ctx context.Context, method string, params json.RawMessage) error

// A Core serves requests in the modern form: `_meta` of their params holds the envelope, with the
// session's revision. Its methods may be called from several goroutines.
type Core interface {
	// Serve serves a request. It sends the notifications that belong to the request to notify
	// before it returns. It appends the result to dst, on a single line, or returns the error,
	// which may alias the request. It reports whether it projected the result.
	Serve(ctx context.Context, dst []byte, req wire.Request, notify Notify) (
		result []byte, isProjected bool, err *jsonrpc.Error)
	// Listen serves a subscriptions/listen request and returns once the subscription is registered.
	// Its notifications go to notify until stop is called or ctx ends. stop does not wait, and may
	// be called twice.
	Listen(ctx context.Context, req wire.Request, notify Notify) (stop func(), err error)
}

// DefaultAnswerTimeout is the default of [Config.AnswerTimeout]. It is well below the time for
// which the core keeps the state of a request that asks for input.
const DefaultAnswerTimeout = 10 * time.Minute

// A Config configures sessions, which share it. It must not be changed or copied once it is in use.
type Config struct {
	// Core serves the requests.
	Core Core
	// Logger receives failures. Default: slog.Default().
	Logger *slog.Logger
	// MaxInFlight is the number of requests that a session serves at once. Default:
	// [peer.DefaultMaxCalls].
	MaxInFlight int
	// AnswerTimeout is how long a request waits for the client's responses to the input requests of
	// a round. After it, they are cancelled and the request fails. Default:
	// [DefaultAnswerTimeout].
	AnswerTimeout time.Duration
	// Calls holds the requests in flight of a stream that carries more than this session. Ids and
	// limits then apply to the whole stream. Default: a table for each session.
	Calls *peer.Table
	// Revisions are the revisions that the core accepts, oldest first. Default: all.
	Revisions []wire.Revision
	// Stateless: initialize declares no capability that needs a session, see [OpenStateless].
	Stateless bool
	// RootsChanged is called when a client announced that its roots changed, with the context
	// of the notification; not concurrently for the same session. Default: not called.
	RootsChanged func(ctx context.Context)
	// Reserve reserves n bytes for the resources that the session of a context subscribes to, and
	// reports whether there is room; a negative n releases them. Default: each session is allowed
	// all bytes.
	Reserve func(ctx context.Context, n int) bool
	// Changed is called when the record of a session has changed, with the context of the client's
	// message, before its response; see [Session.Record]. An error fails a request. If Changed is set,
	// the roots of a client are not cached, since another process may learn of their change. Default:
	// not called.
	Changed func(ctx context.Context) error
	// Process begins the ids of requests to clients, and identifies this process. Default: nothing.
	Process string
	// Elsewhere is called with a response or a cancellation whose request is not in progress here, which
	// another process may know; see [Session.Deliver]. Default: such messages are ignored.
	Elsewhere func(ctx context.Context, m *jsonrpc.Message)
	// Cancelled returns the cause of a context whose request the client cancelled. Default: an
	// error with the reason.
	Cancelled func(reason string) error

	changes [wire.July2026]atomic.Pointer[projectedChange] // the last change sent, by revision
	pages   pageCache
}

func (c *Config) logger() *slog.Logger {
	if c.Logger == nil {
		return slog.Default()
	}
	return c.Logger
}

// negotiate returns the revision of a session whose client requests a version: that revision if it
// offers sessions and is accepted, otherwise the newest such revision.
//
// Spec: basic/lifecycle#version-negotiation
func (c *Config) negotiate(version string) (wire.Revision, *jsonrpc.Error) {
	accepted := c.Revisions
	if accepted == nil {
		accepted = wire.Revisions()
	}
	if rev, known := wire.ParseRevision(version); known && !rev.Modern() && slices.Contains(accepted, rev) {
		return rev, nil
	}
	for _, rev := range slices.Backward(accepted) {
		if !rev.Modern() {
			return rev, nil
		}
	}
	return 0, wire.UnsupportedVersion(version, accepted)
}

func (c *Config) cancelled(reason string) error {
	if c.Cancelled == nil {
		return errors.New("cancelled by the client: " + reason)
	}
	return c.Cancelled(reason)
}

// A Session is the server's end of a session. It starts no goroutine while it is idle. It is safe
// for concurrent use.
type Session struct {
	cfg   *Config
	calls *peer.Table      // in flight, in both directions
	own   peer.Table       // calls, unless the sessions of a stream share a table
	ctx   peer.LazyContext // of subscriptions; ends with the session
	roots sessionRoots

	subMu     sync.Mutex // held while the subscription changes; guards the fields below
	listening *listening // the open subscription; may be nil
	uris      []string   // resources that the client subscribed to
	checked   wire.CheckedURIs

	mu          sync.Mutex     // guards the fields below, except rev
	envelope    sharedEnvelope // of every request
	rev         wire.Revision  // never changes
	hasServer   bool           // server is set
	initialized bool           // the client sent notifications/initialized
	server      capabilitySet  // not changed once it is set
	serverKnown chan struct{}  // closed when server is set; nil while no goroutine waits for it
	changes     Stream         // where changes are sent; nil for nowhere
	tokens      []*taskToken   // oldest first
}

// A listening is an open subscription of a session.
type listening struct {
	stop func()
	to   capabilitySet // lists
	uris []string
}

// Revision returns the negotiated revision.
func (s *Session) Revision() wire.Revision { return s.rev }

// Handle handles a message of the client. It serves a request: it writes the request's
// notifications and input requests and then the response to out, no message after the client
// cancelled the request, and returns when done. Any other message takes effect at once. The
// responses to a batch form a batch.
//
// The request ends when ctx does. A request that may outlive its connection needs a context that
// does.
func (s *Session) Handle(ctx context.Context, m *jsonrpc.Message, out Stream) {
	respond := func(reply *jsonrpc.Message) {
		if reply == nil {
			return
		}
		if err := out(ctx, reply); err != nil {
			s.cfg.logger().DebugContext(ctx, "mcp: response not delivered", "id", reply.ID, "error", err)
		}
	}
	reply, work := s.Accept(ctx, m, out)
	if work != nil {
		work(respond)
	} else {
		respond(reply)
	}
}

// Work is the part of handling a message that may wait. It calls respond once, with the reply to
// write, or nil, even if a handler ends the goroutine with [runtime.Goexit].
type Work func(respond func(reply *jsonrpc.Message))

// Accept is the first half of [Session.Handle], for a reader that must not wait. Messages must be
// accepted in the order of their arrival. It returns a reply to write, or work to run on another
// goroutine. Each of them may be nil.
func (s *Session) Accept(ctx context.Context, m *jsonrpc.Message, out Stream) (reply *jsonrpc.Message, work Work) {
	switch m.Kind() {
	case jsonrpc.Request:
		x := new(Exchange)
		if reply := s.Begin(ctx, x, m, out); reply != nil {
			return reply, nil
		}
		return nil, x.respondTo
	case jsonrpc.Notification:
		return nil, s.acceptNotification(ctx, m)
	case jsonrpc.Response:
		s.deliver(ctx, m)
		return nil, nil
	case jsonrpc.Batch:
		return s.acceptBatch(ctx, m.Batch, out)
	}
	if m.Refused == nil {
		return nil, nil
	}
	return m.Refused.Response(), nil
}

// Begin is [Session.Accept] for a request whose response the caller writes as bytes. If the request
// needs no work, it returns the reply. Otherwise it returns nil, and [Exchange.AppendResponse]
// serves the request, on any goroutine.
func (s *Session) Begin(ctx context.Context, x *Exchange, m *jsonrpc.Message, out Sender) (reply *jsonrpc.Message) {
	method := methodOf(s.rev, m.Method)
	switch {
	case m.Method == wire.MethodPing:
		return &jsonrpc.Message{ID: m.ID, Result: emptyResult}
	case m.Method == wire.MethodInitialize:
		return errorResponse(m.ID, jsonrpc.CodeInvalidRequest, "the session is initialized already")
	case !method.served:
		return errorResponse(m.ID, wire.CodeMethodNotFound, "method not found")
	}
	if err := s.calls.Enter(ctx, &x.call, m.ID); err != nil {
		return &jsonrpc.Message{ID: m.ID, Error: err}
	}
	x.session, x.request, x.method, x.out = s, request{m.ID, m.Method, m.Params}, method, out
	return nil
}

// Deliver applies a response or a cancellation, which may have arrived at another process. It reports
// whether the request is in progress here. It does not wait.
func (s *Session) Deliver(m *jsonrpc.Message) bool {
	if m.Kind() == jsonrpc.Response {
		return s.calls.Answer(m)
	}
	id, reason, ok := peer.ParseCancelled(m.Params)
	if !ok || m.Method != wire.NotificationCancelled || !s.calls.Cancel(id, s.cfg.cancelled(reason)) {
		return false
	}
	s.cfg.logger().DebugContext(&s.ctx, "mcp: request cancelled", "id", id, "reason", reason)
	return true
}

func (s *Session) deliver(ctx context.Context, m *jsonrpc.Message) {
	if !s.Deliver(m) && s.cfg.Elsewhere != nil {
		s.cfg.Elsewhere(ctx, m)
	}
}

// newID returns the id of a request to the client.
func (s *Session) newID() jsonrpc.ID { return jsonrpc.StringID(s.cfg.Process + rand.Text()) }

// acceptNotification applies a notification. It ignores progress, which no request asks for.
func (s *Session) acceptNotification(ctx context.Context, m *jsonrpc.Message) Work {
	switch m.Method {
	case wire.NotificationRootsListChanged:
		return s.rootsChanged(ctx)
	case wire.NotificationCancelled:
		s.deliver(ctx, m)
	case wire.NotificationInitialized:
		s.mu.Lock()
		again := s.initialized
		s.initialized = true
		s.mu.Unlock()
		if again && s.cfg.Changed == nil {
			return nil
		}
		return func(respond func(*jsonrpc.Message)) {
			_ = s.RefreshSubscription() // it logged the error
			if s.cfg.Changed != nil {   // also for a repetition, since the first change may not be stored
				_ = s.cfg.Changed(ctx) // which reports the error, since a notification has no response
			}
			respond(nil)
		}
	}
	return nil
}

// acceptBatch accepts each message of a batch. Its requests are served concurrently and answered
// together. Spec: basic#batching (2025-03-26)
func (s *Session) acceptBatch(ctx context.Context, batch []*jsonrpc.Message,
	out Stream) (*jsonrpc.Message, Work) {
	if !s.rev.Has(wire.Batches) {
		return errorResponse(jsonrpc.ID{}, jsonrpc.CodeInvalidRequest, "this protocol revision has no batches"), nil
	}
	var replies []*jsonrpc.Message
	var works []Work
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
	return nil, func(respond func(*jsonrpc.Message)) {
		done := make([]*jsonrpc.Message, len(works))
		var wg sync.WaitGroup
		for i, work := range works {
			wg.Go(func() { work(func(reply *jsonrpc.Message) { done[i] = reply }) })
		}
		wg.Wait()
		respond(batchOf(append(replies, done...)))
	}
}

// batchOf returns a batch of the responses that are not nil, or nil.
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

// Close ends the session. It cancels all requests in flight, in both directions, with the cause.
// The client's requests still get a response. Calls of [Config.Calls], which is shared, are not
// affected.
func (s *Session) Close(cause error) {
	if s.cfg.Calls == nil {
		s.calls.Close(cause)
	}
	s.ctx.End(cause)
	_ = s.RefreshSubscription() // closes it, which does not fail
	s.subMu.Lock()
	defer s.subMu.Unlock()
	s.reserve(-uriBytes(s.uris))
	s.uris = nil
}

// emptyResult is the result of a request without a result.
var emptyResult = []byte(`{}`)

func errorResponse(id jsonrpc.ID, code int, message string) *jsonrpc.Message {
	return &jsonrpc.Message{ID: id, Error: &jsonrpc.Error{Code: code, Message: message}}
}
