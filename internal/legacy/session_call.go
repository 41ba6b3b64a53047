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
}

// serve gives the response, or nil for none.
func (x *exchange) serve() *jsonrpc.Message {
	response, err := x.respond()
	switch {
	case !x.call.End():
		return nil
	case err != nil:
		return jsonrpc.NewErrorResponse(x.request.ID, err)
	}
	return response
}

func (x *exchange) respond() (response *jsonrpc.Message, err *jsonrpc.Error) {
	ctx, params := x.call.Context(), x.request.Params
	var result stdjson.RawMessage
	switch x.request.Method {
	case wire.MethodLoggingSetLevel:
		result, err = x.session.setLevel(ctx, params)
	case wire.MethodResourcesSubscribe:
		result, err = x.session.subscribe(ctx, params)
	case wire.MethodResourcesUnsubscribe:
		result, err = x.session.unsubscribe(ctx, params)
	default:
		return x.relay(ctx)
	}
	return jsonrpc.NewResponse(x.request.ID, result), err
}

// relay has the core answer the request, as often as it needs answers from the client.
func (x *exchange) relay(ctx context.Context) (*jsonrpc.Message, *jsonrpc.Error) {
	s, id, method := x.session, x.request.ID, x.request.Method
	var answers []byte // members that the retried request has in addition, each with a comma behind
	for range maxRounds {
		params, err := s.modernParams(x.request.Params, answers)
		if err != nil {
			return nil, err
		}
		response := s.cfg.Core.Serve(ctx, jsonrpc.NewRequest(id, method, params), x.notify)
		if response.Error != nil {
			return nil, projectError(s.rev, method, response.Error)
		}
		if !asksForInput(response.Result) {
			response.Result = projectResult(s.rev, method, response.Result)
			return response, nil
		}
		if answers, err = s.ask(ctx, response.Result, x.out); err != nil {
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
	if m.Method == wire.NotificationProgress && x.mayAskInput() && !x.told.rises(m) {
		return nil
	}
	projected := projectNotification(x.session.rev, m)
	if projected == nil {
		return nil
	}
	return x.out(ctx, projected)
}

// mayAskInput reports whether the core may be asked more than once.
func (x *exchange) mayAskInput() bool {
	m, _ := wire.Latest().Method(x.request.Method)
	return m.MayAskInput
}

func asksForInput(result []byte) bool {
	typ, ok := jsonscan.Get(result, "resultType")
	return ok && isString(typ, "input_required")
}

// modernParams gives the params of a client's request the envelope of the session, and further members, each with a comma
// behind. What a client of a session cannot know of is left out: it would be taken for the session's own.
func (s *Session) modernParams(params, further []byte) (stdjson.RawMessage, *jsonrpc.Error) {
	if params != nil && jsonscan.Kind(params) != '{' {
		return nil, invalidParams("params: want an object")
	}
	s.mu.Lock()
	logLevel := s.logLevel
	s.mu.Unlock()

	const room = 128 // for the log level and the brackets
	dst := append(make([]byte, 0, len(params)+len(further)+len(s.envelope)+room), '{')
	var meta []byte
	for key, value := range jsonscan.Members(params) {
		switch string(key) {
		case "_meta":
			if jsonscan.Kind(value) != '{' {
				return nil, invalidParams("params._meta: want an object")
			}
			meta = value
		case "inputResponses", "requestState":
		default:
			dst = append(appendMember(dst, key, value), ',')
		}
	}
	dst = append(dst, further...)
	dst = append(dst, `"_meta":{`...)
	for key, value := range jsonscan.Members(meta) {
		switch string(key) {
		case wire.MetaProtocolVersion, wire.MetaClientInfo, wire.MetaClientCapabilities, wire.MetaLogLevel:
		default:
			dst = append(appendMember(dst, key, value), ',')
		}
	}
	dst = append(append(dst, s.envelope...), `,"`+wire.MetaLogLevel+`":`...)
	return append(jsonscan.AppendQuote(dst, logLevel), "}}"...), nil
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
