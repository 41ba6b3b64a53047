package legacy

import (
	"context"
	stdjson "encoding/json"
	"errors"
	"strconv"
	"sync"

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

// An exchange is one request of the client on its way to its response. It is a [Stream] for the notifications of the
// request: [exchange.notify].
type exchange struct {
	session *Session
	call    *peer.Call
	request *jsonrpc.Message // as the client sent it
	out     Stream
	told    progress
	task    *taskToken // whose progress is told, in place of the request's own; nil for that

	asked    jsonrpc.Message // the request as the core gets it
	response jsonrpc.Message
}

// serve gives the response, or nil for none.
func (x *exchange) serve() *jsonrpc.Message {
	result, err := x.respond()
	if !x.call.End() {
		return nil
	}
	x.response = jsonrpc.Message{ID: x.request.ID, Result: result, Error: err}
	return &x.response
}

func (x *exchange) respond() (stdjson.RawMessage, *jsonrpc.Error) {
	ctx, params := x.call.Context(), x.request.Params
	switch x.request.Method {
	case wire.MethodLoggingSetLevel:
		return x.session.setLevel(ctx, params)
	case wire.MethodResourcesSubscribe:
		return x.session.subscribe(ctx, params)
	case wire.MethodResourcesUnsubscribe:
		return x.session.unsubscribe(ctx, params)
	case wire.MethodTasksResult:
		return x.relayTask(ctx)
	}
	return x.relay(ctx)
}

// relay has the core answer the request, as often as it needs answers from the client.
func (x *exchange) relay(ctx context.Context) (stdjson.RawMessage, *jsonrpc.Error) {
	s, method := x.session, x.request.Method
	var answers []byte // members that the retried request has in addition, each with a comma behind
	for range maxRounds {
		room := rooms.Get().(*room) // stays with errors and questions, which may alias it
		params, err := s.modernParams(x.request.Params, answers)
		if err != nil {
			return nil, err
		}
		x.asked = jsonrpc.Message{ID: x.request.ID, Method: method, Params: params}
		result, err := s.cfg.Core.Serve(ctx, room.result[:0], &x.asked, x.notify)
		if err != nil {
			return nil, projectError(s.rev, method, err)
		}
		room.result = result
		if !asksForInput(result) {
			if isTask(result) {
				if !fitsTask(s.rev, result) {
					s.cfg.logger().ErrorContext(ctx, "mcp: request became a task of a form that the session does not have", "method", method)
					return nil, errInternal
				}
				x.keepToken(result)
			}
			projected := appendResult(make([]byte, 0, len(result)), s.rev, method, result)
			room.free()
			return projected, nil
		}
		if answers, err = s.ask(ctx, result, x.out); err != nil {
			return nil, err
		}
	}
	s.cfg.logger().ErrorContext(ctx, "mcp: request asks for input without end", "method", method, "rounds", maxRounds)
	return nil, errInternal
}

// notify writes a notification of the request. It keeps silent once the client has cancelled the request.
func (x *exchange) notify(ctx context.Context, m *jsonrpc.Message) error {
	if x.call.Over() {
		return context.Cause(x.call.Context())
	}
	told := &x.told
	if x.task != nil {
		told = &x.task.told
	}
	if m.Method == wire.NotificationProgress && x.mayAskInput() && !told.rises(m) {
		return nil
	}
	projected := projectNotification(x.session.rev, m)
	if projected == nil {
		return nil
	}
	return x.out(ctx, projected)
}

// mayAskInput reports whether the core may be asked more than once.
func (x *exchange) mayAskInput() bool { return mayAskInput(x.request.Method) }

// mayAskInput reports whether the modern form of a method's result may be that it asks for input.
func mayAskInput(method string) bool {
	m, _ := wire.Latest().Method(method)
	return m.MayAskInput || method == wire.MethodTasksResult
}

func asksForInput(result []byte) bool {
	typ, ok := jsonscan.Get(result, "resultType")
	return ok && isString(typ, "input_required")
}

// A room holds what the answer is in the modern form, which nobody but this package sees. It is used again for other
// requests. The params are not: a goroutine that a handler has left behind may still read them.
type room struct{ result []byte }

var rooms = sync.Pool{New: func() any { return new(room) }}

// maxRoom is the largest room that is kept: most requests are far smaller, and a few large ones must not pin their size.
const maxRoom = 64 << 10

// free gives the room back. Nothing may alias it any more.
func (r *room) free() {
	if cap(r.result) <= maxRoom {
		rooms.Put(r)
	}
}

// modernParams gives the params of a client's request with the envelope of the session, and with further members,
// each with a comma behind. What a client of a session cannot know of is left out: it would be taken for the session's
// own. The envelope comes first, for it is what is looked for first.
func (s *Session) modernParams(params, further []byte) ([]byte, *jsonrpc.Error) {
	if params != nil && jsonscan.Kind(params) != '{' {
		return nil, invalidParams("params: want an object")
	}
	s.mu.Lock()
	logLevel := s.logLevel
	s.mu.Unlock()

	meta, _ := jsonscan.Get(params, "_meta")
	if meta != nil && jsonscan.Kind(meta) != '{' {
		return nil, invalidParams("params._meta: want an object")
	}
	const brackets = 128 // for the log level too
	dst := make([]byte, 0, len(params)+len(further)+len(s.envelope)+brackets)
	dst = append(append(dst, `{"_meta":{`...), s.envelope...)
	dst = append(dst, `,"`+wire.MetaLogLevel+`":`...)
	dst = jsonscan.AppendQuote(dst, logLevel)
	for key, value := range jsonscan.Members(meta) {
		switch string(key) {
		case wire.MetaProtocolVersion, wire.MetaClientInfo, wire.MetaClientCapabilities, wire.MetaLogLevel:
		default:
			dst = appendMember(append(dst, ','), key, value)
		}
	}
	dst = append(dst, "},"...)
	for key, value := range jsonscan.Members(params) {
		switch string(key) {
		case "_meta", "inputResponses", "requestState":
		default:
			dst = append(appendMember(dst, key, value), ',')
		}
	}
	return closeWith(append(dst, further...), '}'), nil
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

func (p *progress) rises(m *jsonrpc.Message) bool {
	raw, _ := jsonscan.Get(m.Params, "progress")
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
	s.logLevel = level
	return emptyResult, nil
}

// failure gives what a client may see of an error on this side.
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
