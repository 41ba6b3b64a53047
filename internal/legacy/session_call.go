package legacy

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"sync"
	"unique"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/internal/peer"
	"github.com/patchbay-mcp/patchbay/internal/wire"
	"github.com/patchbay-mcp/patchbay/jsonrpc"
)

// maxRounds limits how often a request may ask for input, so that a handler that never stops
// asking fails.
const maxRounds = 32

// errInternal replaces an error that the client must not see. The log contains the error itself.
var errInternal = &jsonrpc.Error{Code: wire.CodeInternalError, Message: "internal error"}

// An Exchange serves a request of the client, for a caller that writes the response as bytes.
// [Session.Begin] starts it. An Exchange is not reused: a goroutine that a handler left running
// may still refer to it.
type Exchange struct {
	session  *Session
	call     peer.Call
	request  request
	method   *method
	out      Sender
	progress progress
	roots    *rootsAnswer // the client's last answer, until the core accepted it; may be nil
	visits   []string     // the ids of elicitations whose pages the user agreed to visit
	task     *taskToken   // receives the progress instead of the request's own; may be nil
}

// AppendResponse serves the request and appends the response to dst. It returns dst unchanged if
// the client cancelled the request. The error is the error within the response.
func (x *Exchange) AppendResponse(dst []byte) ([]byte, *jsonrpc.Error) {
	mark := len(dst)
	dst = append(dst, `{"jsonrpc":"2.0","id":`...)
	dst = append(dst, x.request.id.String()...)
	dst = append(dst, `,"result":`...)
	answer, err := x.respond(dst)
	switch {
	case !x.call.End():
		return dst[:mark], nil
	case err != nil:
		return jsonrpc.Append(dst[:mark], &jsonrpc.Message{ID: x.request.id, Error: err}), err
	}
	return append(answer, '}'), nil
}

// Response serves the request and returns the response, or nil if the client cancelled the
// request.
func (x *Exchange) Response() *jsonrpc.Message {
	result, err := x.respond(nil)
	if !x.call.End() {
		return nil
	}
	return &jsonrpc.Message{ID: x.request.id, Result: result, Error: err}
}

// Exited ends the exchange after its handler ended the goroutine with [runtime.Goexit], and
// returns the response as Response does. The caller is a deferred function of that goroutine.
func (x *Exchange) Exited() *jsonrpc.Message {
	x.session.cfg.logger().Error("mcp: the handler has ended its goroutine", "method", x.request.method)
	if !x.call.End() {
		return nil
	}
	return &jsonrpc.Message{ID: x.request.id, Error: errInternal}
}

// respond appends the result to dst, or returns the error.
func (x *Exchange) respond(dst []byte) ([]byte, *jsonrpc.Error) {
	var result json.RawMessage
	var err *jsonrpc.Error
	ctx, params := x.call.Context(), x.request.params
	switch x.request.method {
	case wire.MethodLoggingSetLevel:
		result, err = x.session.setLevel(ctx, params)
	case wire.MethodResourcesSubscribe:
		result, err = x.session.subscribe(ctx, params)
	case wire.MethodResourcesUnsubscribe:
		result, err = x.session.unsubscribe(ctx, params)
	case wire.MethodTasksResult:
		return x.relayTask(ctx, dst)
	default:
		return x.relay(ctx, dst)
	}
	if err == nil && x.session.cfg.Changed != nil {
		if failed := x.session.cfg.Changed(ctx); failed != nil {
			err = x.session.failure(ctx, "session not stored", failed)
		}
	}
	if err != nil {
		return nil, err
	}
	return append(dst, result...), nil
}

// relay lets the core serve the request, with a further round for each result that asks for input,
// and appends the final result to dst.
func (x *Exchange) relay(ctx context.Context, dst []byte) ([]byte, *jsonrpc.Error) {
	s := x.session
	var retry *retryParams
	for range maxRounds {
		answer, isProjected, err := s.serve(ctx, dst, &x.request, retry, x.notify)
		if err != nil {
			return nil, projectError(s.rev, x.request.method, err)
		}
		s.roots.store(x.roots)
		if isProjected {
			return answer, nil
		}
		result, next, err := x.finishRound(ctx, answer, len(dst))
		if err == nil && result != nil {
			x.completeElicitations(ctx, result[len(dst):])
		}
		if result != nil || err != nil {
			return result, err
		}
		retry = next
	}
	s.cfg.logger().ErrorContext(ctx, "mcp: request exceeds the limit of rounds",
		"method", x.request.method, "name", jsonscan.GetString(x.request.params, "name"), "rounds", maxRounds)
	return nil, errInternal
}

// finishRound projects the result that begins at an offset of answer, and returns answer with it.
// If the result asks for input, it sends the input requests to the client instead, and returns the
// members that the retried request contains in addition.
func (x *Exchange) finishRound(ctx context.Context, answer []byte,
	from int) (projected []byte, retry *retryParams, err *jsonrpc.Error) {
	s, key := x.session, pageKey{rev: x.session.rev, method: x.request.method}
	if projected, ok := s.cfg.pages.appendKnown(answer, from, key); ok {
		return projected, nil, nil
	}
	result, end := answer[from:], len(answer)
	if !x.method.result.affects(result) { // a complete result, since it lacks a resultType
		return answer, nil, nil
	}
	switch typ, _ := jsonscan.Get(result, "resultType"); {
	case jsonscan.IsString(typ, "input_required"):
		retry, err = x.askInput(ctx, bytes.Clone(result))
		return nil, retry, err
	case jsonscan.IsString(typ, "task"):
		if !isSessionTask(s.rev, result) {
			s.cfg.logger().ErrorContext(ctx, "mcp: unsupported form of task in a session", "method", x.request.method)
			return nil, nil, errInternal
		}
		x.saveTaskToken(result)
	}
	answer = x.method.result.appendObject(answer, answer[from:]) // behind its source
	s.cfg.pages.add(key, answer[from:end], answer[end:])
	return append(answer[:from], answer[end:]...), nil, nil
}

// respondTo is the [Work] of a request.
func (x *Exchange) respondTo(respond func(reply *jsonrpc.Message)) {
	returned := false
	defer func() {
		if !returned {
			respond(x.Exited())
		}
	}()
	reply := x.Response()
	returned = true
	respond(reply)
}

// notify writes a notification of the request, unless the client cancelled the request.
func (x *Exchange) notify(ctx context.Context, method string, params json.RawMessage) error {
	if x.call.Over() {
		return context.Cause(x.call.Context())
	}
	last := &x.progress
	if x.task != nil {
		last = &x.task.progress
	}
	if method == wire.NotificationProgress && x.method.mayAskInput && !last.advance(params) {
		return nil
	}
	p, known := notificationProjection(x.session.rev, method)
	if !known {
		return nil
	}
	if p.affects(params) {
		params = p.apply(params)
	}
	return x.out.Notify(ctx, method, params)
}

func asksForInput(result []byte) bool {
	typ, ok := jsonscan.Get(result, "resultType")
	return ok && jsonscan.IsString(typ, "input_required")
}

// progress is the last progress that was sent for a request. Each round of the core begins at zero,
// but to the client all rounds form a single request, whose progress only increases. Spec:
// basic/utilities/progress#behavior-requirements
type progress struct {
	mu   sync.Mutex // guards the fields below
	sent bool
	last float64
}

func (p *progress) advance(params []byte) bool {
	raw, _ := jsonscan.Get(params, "progress")
	value, err := strconv.ParseFloat(string(raw), 64)
	if err != nil {
		return true // left to the client to reject
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.sent && value <= p.last {
		return false
	}
	p.sent, p.last = true, value
	return true
}

// setLevel sets the minimum log level of later requests. Spec:
// server/utilities/logging#setting-log-level
func (s *Session) setLevel(ctx context.Context, params []byte) (json.RawMessage, *jsonrpc.Error) {
	has, err := s.awaitServer(ctx)
	if err != nil {
		return nil, errInternal
	}
	if !has.logging {
		return nil, &jsonrpc.Error{Code: wire.CodeMethodNotFound, Message: "this server sends no log messages"}
	}
	if jsonscan.Kind(params) != '{' {
		return nil, invalidParams("params: want an object")
	}
	level := jsonscan.GetString(params, "level")
	if _, ok := wire.LogSeverity(level); !ok {
		return nil, invalidParams("params.level: want a log level, from debug to emergency")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.setEnvelopeLevel(level)
	return emptyResult, nil
}

// setEnvelopeLevel sets the log level of later requests. The caller holds s.mu.
func (s *Session) setEnvelopeLevel(level string) {
	envelope := s.envelope.Value()
	envelope.logLevel = level
	s.envelope = unique.Make(envelope)
}

// failure returns the part of an error that the client may see, and logs the rest.
func (s *Session) failure(ctx context.Context, what string, err error) *jsonrpc.Error {
	var e *jsonrpc.Error
	if errors.As(err, &e) {
		return e
	}
	if ctx.Err() == nil {
		s.cfg.logger().ErrorContext(ctx, "mcp: "+what, "error", err)
	}
	return errInternal
}
