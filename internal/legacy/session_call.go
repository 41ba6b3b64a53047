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

// serve answers one request that has begun.
func (s *Session) serve(call *peer.Call, m *jsonrpc.Message, out Stream) (stdjson.RawMessage, *jsonrpc.Error) {
	ctx := call.Context()
	switch m.Method {
	case wire.MethodLoggingSetLevel:
		return s.setLevel(ctx, m.Params)
	case wire.MethodResourcesSubscribe:
		return s.subscribe(ctx, m.Params)
	case wire.MethodResourcesUnsubscribe:
		return s.unsubscribe(ctx, m.Params)
	}
	return s.relay(ctx, m, s.notificationsOf(call, m.Method, out), out)
}

// relay has the core answer the request, as often as it needs answers from the client.
func (s *Session) relay(ctx context.Context, m *jsonrpc.Message, notifications, questions Stream) (stdjson.RawMessage, *jsonrpc.Error) {
	var answers []byte // members that the retried request has in addition, each with a comma behind
	for range maxRounds {
		params, err := s.modernParams(m.Params, answers)
		if err != nil {
			return nil, err
		}
		response := s.cfg.Core.Serve(ctx, jsonrpc.NewRequest(m.ID, m.Method, params), notifications)
		if response.Error != nil {
			return nil, projectError(s.rev, m.Method, response.Error)
		}
		if !asksForInput(response.Result) {
			return projectResult(s.rev, m.Method, response.Result), nil
		}
		if answers, err = s.ask(ctx, response.Result, questions); err != nil {
			return nil, err
		}
	}
	s.cfg.logger().ErrorContext(ctx, "mcp: request asks for input without end", "method", m.Method, "rounds", maxRounds)
	return nil, errInternal
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
	dst = append(append(dst, s.envelope...), ',')
	dst = appendMember(dst, []byte(wire.MetaLogLevel), jsonscan.AppendQuote(nil, logLevel))
	return append(dst, "}}"...), nil
}

// notificationsOf is the stream of a request's notifications. It keeps silent once the client has cancelled the request.
func (s *Session) notificationsOf(call *peer.Call, method string, out Stream) Stream {
	rising := func(*jsonrpc.Message) bool { return true }
	if m, _ := wire.Latest().Method(method); m.MayAskInput {
		rising = new(progress).rises
	}
	return func(ctx context.Context, m *jsonrpc.Message) error {
		if call.Cancelled() {
			return context.Cause(call.Context())
		}
		if m.Method == wire.NotificationProgress && !rising(m) {
			return nil
		}
		projected := projectNotification(s.rev, m)
		if projected == nil {
			return nil
		}
		return out(ctx, projected)
	}
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
