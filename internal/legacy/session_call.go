package legacy

import (
	"bytes"
	"context"
	stdjson "encoding/json"
	"errors"
	"strconv"
	"sync"
	"unique"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/internal/peer"
	"github.com/patchbay-mcp/patchbay/internal/wire"
	"github.com/patchbay-mcp/patchbay/jsonrpc"
)

// maxRounds bounds how often one request may ask for input: a handler that asks for ever is a mistake, and a person
// would have given up before.
const maxRounds = 32

// errInternal is what a client sees of a mistake on this side; the log says more.
var errInternal = &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: "internal error"}

// An Exchange is one request of the client on its way to its response, for whoever writes the response as bytes. It begins
// with [Session.Begin], which is called once: an Exchange is not used again, for a goroutine that a handler has left behind
// may still look at it.
type Exchange struct {
	session *Session
	call    peer.Call
	request *jsonrpc.Message // as the client sent it
	method  *method
	out     Sender
	told    progress
	task    *taskToken // whose progress is told, in place of the request's own; nil for that

	// Index is that of the request's params, where it is known already: then they are not looked through once more.
	Index wire.Index
}

// AppendAnswer serves the request. It appends the response to dst, or nothing if the client has cancelled the request, whatever
// is left out then. The error is the one within the response.
func (x *Exchange) AppendAnswer(dst []byte) ([]byte, *jsonrpc.Error) {
	mark := len(dst)
	dst = append(dst, `{"jsonrpc":"2.0","id":`...)
	dst = x.request.ID.Append(dst)
	dst = append(dst, `,"result":`...)
	answer, err := x.respond(dst)
	switch {
	case !x.call.End():
		return dst[:mark], nil
	case err != nil:
		return appendError(dst[:mark], x.request.ID, err), err
	}
	return append(answer, '}'), nil
}

// appendError is apart so that a request that goes well keeps no room for a message on its stack.
//
//go:noinline
func appendError(dst []byte, id jsonrpc.ID, err *jsonrpc.Error) []byte {
	return jsonrpc.Append(dst, jsonrpc.NewErrorResponse(id, err))
}

// serve returns the response, or nil for none.
func (x *Exchange) serve() *jsonrpc.Message {
	result, err := x.respond(nil)
	if !x.call.End() {
		return nil
	}
	return &jsonrpc.Message{ID: x.request.ID, Result: result, Error: err}
}

// respond appends the result to dst, or gives the error.
func (x *Exchange) respond(dst []byte) ([]byte, *jsonrpc.Error) {
	var result stdjson.RawMessage
	var err *jsonrpc.Error
	ctx, params := x.call.Context(), x.request.Params
	switch x.request.Method {
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
	if err != nil {
		return nil, err
	}
	return append(dst, result...), nil
}

// relay has the core answer the request, as often as it needs answers from the client, and appends the result to dst.
func (x *Exchange) relay(ctx context.Context, dst []byte) ([]byte, *jsonrpc.Error) {
	s := x.session
	round := Round{Notify: x.notify, session: s, request: x.request, index: &x.Index}
	for range maxRounds {
		answer, err := s.cfg.Core.Serve(ctx, dst, round)
		if err != nil {
			return nil, projectError(s.rev, x.request.Method, err)
		}
		result, further, err := x.settle(ctx, answer, len(dst))
		if result != nil || err != nil {
			return result, err
		}
		round.answers = further
	}
	s.cfg.logger().ErrorContext(ctx, "mcp: request asks for input without end", "method", x.request.Method, "rounds", maxRounds)
	return nil, errInternal
}

// settle makes the result that answer ends with, from the offset on, one for the session; left is what the core has left
// out of it. In place of one that asks for input it gives what the client has answered: members for the request's next
// round. It is apart so that relay, within which the core works, needs little of the stack.
func (x *Exchange) settle(ctx context.Context, answer []byte, from int) (settled, further []byte, err *jsonrpc.Error) {
	s, key := x.session, pageKey{x.session.rev, x.request.Method}
	if projected, ok := s.cfg.pages.find(key, answer[from:]); ok {
		return append(answer[:from], projected...), nil, nil
	}
	var modern []byte
	if isCacheable(key, answer[from:]) {
		modern = bytes.Clone(answer[from:])
	}
	answer, complete := s.cfg.frame.takeOff(answer, from)
	if !complete { // few are not: the others are not read for it
		result := answer[from:]
		switch typ, _ := jsonscan.Get(result, "resultType"); {
		case isString(typ, "input_required"):
			further, err = s.ask(ctx, bytes.Clone(result), x.out)
			return nil, further, err
		case isString(typ, "task"):
			if !fitsTask(s.rev, result) {
				s.cfg.logger().ErrorContext(ctx, "mcp: request became a task of a form that the session does not have", "method", x.request.Method)
				return nil, nil, errInternal
			}
			x.keepToken(result)
		}
	}
	answer = x.method.result.replace(answer, from)
	if modern != nil {
		s.cfg.pages.put(key, page{modern, bytes.Clone(answer[from:])})
	}
	return answer, nil, nil
}

// notify writes a notification of the request. It keeps silent once the client has cancelled the request.
func (x *Exchange) notify(ctx context.Context, method string, params stdjson.RawMessage) error {
	if x.call.Over() {
		return context.Cause(x.call.Context())
	}
	told := &x.told
	if x.task != nil {
		told = &x.task.told
	}
	if method == wire.NotificationProgress && x.method.mayAskInput && !told.rises(params) {
		return nil
	}
	p, known := notificationProjection(x.session.rev, method)
	if !known {
		return nil
	}
	if p.concerns(params) {
		params = p.apply(params)
	}
	return x.out.Notify(ctx, method, params)
}

func asksForInput(result []byte) bool {
	typ, ok := jsonscan.Get(result, "resultType")
	return ok && isString(typ, "input_required")
}

// A Round is a request as the core gets it: in the modern form, with the session's envelope, and with what the client has
// answered in the rounds before.
type Round struct {
	Notify Notify // takes the notifications that belong to the request

	session *Session
	request *jsonrpc.Message // as the client sent it
	index   *wire.Index      // of its params, if known
	answers []byte           // members that the params have in addition, each with a comma behind
}

// ID is the id of the request.
func (r Round) ID() jsonrpc.ID { return r.request.ID }

// Method is the method of the request.
func (r Round) Method() string { return r.request.Method }

// Open returns the params, and reads their envelope into env, which is empty.
func (r Round) Open(env *wire.Envelope) (stdjson.RawMessage, *jsonrpc.Error) {
	return r.session.modernParams(env, r.request.Params, r.index, r.answers)
}

// modernParams returns the params of a client's request, whose own index may be known, with the envelope of the session and
// with further members, each with a comma behind, and reads the envelope into env, which is empty. What a client of a session
// cannot know of is left out: it would be taken for the session's own. An envelope comes first, for it is what is looked for
// first, unless the params have a `_meta`.
func (s *Session) modernParams(env *wire.Envelope, params []byte, own *wire.Index, further []byte) (stdjson.RawMessage, *jsonrpc.Error) {
	s.mu.Lock()
	envelope := s.envelope.Value()
	s.mu.Unlock()
	if further == nil {
		if joined, ok := envelope.Join(env, params, own); ok {
			return joined, nil
		}
	}
	rewritten, err := rewriteParams(envelope.Meta(), params, further)
	if err != nil {
		return nil, err
	}
	return rewritten, env.Open(rewritten)
}

// rewriteParams returns such params member by member.
func rewriteParams(envelope string, params, further []byte) (stdjson.RawMessage, *jsonrpc.Error) {
	if params != nil && jsonscan.Kind(params) != '{' {
		return nil, invalidParams("params: want an object")
	}
	meta, has := jsonscan.Get(params, "_meta")
	if has && jsonscan.Kind(meta) != '{' {
		return nil, invalidParams("params._meta: want an object")
	}
	dst := make([]byte, 0, len(`{"_meta":,`)+len(envelope)+len(params)+len(further))
	dst = appendMeta(append(dst, `{"_meta":`...), envelope, meta)
	dst = append(dst, ',')
	for key, value := range jsonscan.Members(params) {
		switch string(key) {
		case "_meta", "inputResponses", "requestState":
		default:
			dst = append(appendMember(dst, key, value), ',')
		}
	}
	return closeWith(append(dst, further...), '}'), nil
}

// appendMeta appends the session's envelope together with what a request has in its own `_meta`.
func appendMeta(dst []byte, envelope string, meta []byte) []byte {
	if meta == nil {
		return append(dst, envelope...)
	}
	dst = append(append(dst, envelope[:len(envelope)-1]...), ',')
	for key, value := range jsonscan.Members(meta) {
		switch string(key) {
		case wire.MetaProtocolVersion, wire.MetaClientInfo, wire.MetaClientCapabilities, wire.MetaLogLevel:
		default:
			dst = append(appendMember(dst, key, value), ',')
		}
	}
	return closeWith(dst, '}')
}

// progress is how far a request has told to be. The core starts anew with each round, but to the client all rounds are
// one request, whose progress only rises.
//
// Spec: basic/utilities/progress#behavior-requirements
type progress struct {
	mu   sync.Mutex // guards the fields below
	told bool
	last float64
}

func (p *progress) rises(params []byte) bool {
	raw, _ := jsonscan.Get(params, "progress")
	value, err := strconv.ParseFloat(string(raw), 64)
	if err != nil {
		return true // not ours to judge
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.told && value <= p.last {
		return false
	}
	p.told, p.last = true, value
	return true
}

// setLevel changes the lowest level of the log messages that later requests send.
//
// Spec: server/utilities/logging#setting-log-level
func (s *Session) setLevel(ctx context.Context, params []byte) (stdjson.RawMessage, *jsonrpc.Error) {
	has, err := s.offered(ctx)
	if err != nil {
		return nil, errInternal
	}
	if !has.logging {
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound, Message: "this server sends no log messages"}
	}
	if jsonscan.Kind(params) != '{' {
		return nil, invalidParams("params: want an object")
	}
	level := text(params, "level")
	if _, ok := wire.LogSeverity(level); !ok {
		return nil, invalidParams("params.level: want a log level, from debug to emergency")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.envelope = unique.Make(s.envelope.Value().WithLogLevel(level))
	return emptyResult, nil
}

// failure returns what a client may see of an error on this side.
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
