package mcp

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/internal/peer"
	"github.com/patchbay-mcp/patchbay/internal/wire"
	"github.com/patchbay-mcp/patchbay/mcp/driver"
)

// An Observer receives the begin and the end of each request, for traces and metrics. It does not
// see or change results, which are cached and sent as without an Observer: see [Middleware] for a
// function that does. Set it with [ServerOptions].Observer and [ClientOptions].Observer. Package
// otelmcp contains an Observer.
//
// Begin is called before the handler of a server and before the transport of a client, which
// receive the context that it returns. A request that asks for input is observed once for each
// round, and each run of a task once. A client also observes how it answers questions of the
// server. Messages that transports send themselves are not observed: pings, the level of logs, and
// subscriptions of sessions.
//
// End is called exactly once for each Begin, with the same context; for subscriptions/listen when
// the subscription ends. Both must be fast and safe for concurrent use. A panic in them fails the
// request.
//
// An Observer with a method Detached(ctx context.Context, req *Request) receives the request that
// [Request.Detach] returns, with the context of that call, and may call SetMeta: the runs of a
// task, perhaps in another process, then carry a trace context with the span that created the task.
type Observer interface {
	Begin(ctx context.Context, req *Request) context.Context
	End(ctx context.Context, req *Request, o Outcome)
}

// An Outcome is the end of a request for an [Observer].
type Outcome struct {
	// Err is the error of the request: an [*Error] that the peer sees, or a [*TransportError].
	Err error
	// ToolError reports a result of tools/call with isError; InputRequired reports a result that
	// asks for input.
	ToolError, InputRequired bool
	// Target is the tool or prompt of the request. It is empty for a name that the server does not
	// know or refused, so that servers limit the number of values, for labels of metrics; clients
	// do not limit it.
	Target string
}

// sentOnStream is the driver.Carrier of clients whose transport is no Carrier.
type sentOnStream struct{}

func (sentOnStream) Via() driver.Via { return driver.Via{Sent: true, Network: "pipe"} }

// Via describes how the request arrived at the server, or how the client sends it.
func (r *Request) Via() driver.Via {
	if r.env.Carrier == nil {
		return driver.Via{Network: "pipe"}
	}
	return r.env.Carrier.Via()
}

// SetMeta sets a member of `_meta` to a JSON value, such as traceparent. It is for [Observer].Begin
// and [Middleware] of clients, and for detached requests: the params are copied once, and the bytes
// of the old params do not change. It panics if key is a member that the protocol defines, other
// than the trace context, or value is not JSON.
func (r *Request) SetMeta(key string, value []byte) {
	if checkMetaKey(key) != nil || jsonscan.Valid(value, jsonscan.Limits{}) != nil {
		panic("mcp: SetMeta: invalid member " + key)
	}
	meta := r.env.Meta
	if meta == nil {
		meta = []byte("{}")
	}
	r.env.Meta = jsonscan.WithMember(meta, key, value)
	r.Params = jsonscan.WithMember(r.Params, "_meta", r.env.Meta)
}

var errNoReturn = errors.New("the handler has panicked or ended its goroutine")

// observe serves a request between the two calls of an observer. known returns the outcome's
// Target.
func observe(
	ctx context.Context, o Observer, h Handler, req *Request, known func(*Request, error) string,
) (Result, error) {
	if _, own := req.env.Carrier.(ownRequest); own || req.listen != nil && req.listen.detached {
		return h.ServeMCP(ctx, req)
	}
	began := o.Begin(ctx, req)
	end := Outcome{Err: errNoReturn}
	goesOn := false
	defer func() {
		if !goesOn {
			end.Target = known(req, end.Err)
			o.End(began, req, end)
		}
	}()
	res, err := h.ServeMCP(began, req)
	if l := req.listen; err == nil && l != nil && l.push != nil {
		l.ended = func() { o.End(began, req, Outcome{}) }
		goesOn = true
		return res, nil
	}
	end = Outcome{Err: err}
	switch res := res.(type) {
	case *CallToolResult:
		end.ToolError = res.IsError
	case *InputRequiredResult:
		end.InputRequired = true
	case RawResult:
		end.ToolError, end.InputRequired = res.isError(), res.ResultType() == driver.ResultInputRequired
	}
	return res, err
}

// An answerFunc answers a question of the server.
type answerFunc = func(ctx context.Context, method string, params json.RawMessage) (json.RawMessage, error)

// answerBy answers a question with a function. An observer receives the values of the request that the
// question belongs to, as far as that is known.
func (q *questions) answerBy(
	ctx context.Context, method string, params json.RawMessage, answer answerFunc,
) (raw json.RawMessage, err error) {
	defer recovered(ctx, q.opts.Logger, method, &err)
	if q.opts.Observer == nil {
		return answer(ctx, method, params)
	}
	req := &Request{Method: method, Params: params}
	req.env.Carrier = asked{q.via}
	req.env.Meta, _ = jsonscan.Get(params, "_meta")
	if conn := q.connection.Load(); conn != nil { // a session may ask before it is open here
		req.env.VersionText = conn.revision.String()
	}
	serve := func(ctx context.Context, _ *Request) (Result, error) {
		raw, err = answer(ctx, method, params)
		return RawResult(raw), err
	}
	ctx = peer.WithValuesOf(ctx, q.requests.askedFor(ctx))
	_, err = observe(ctx, q.opts.Observer, HandlerFunc(serve), req, acceptedTarget)
	return raw, err
}

// ownRequest is the driver.Carrier of a subscription that a session of a stream opens itself. Such
// a subscription is not observed, and neither is a subscription with listenCall.detached.
type ownRequest struct{}

func (ownRequest) Via() driver.Via { return driver.Via{Network: "pipe"} }

// asked is the driver.Carrier of questions of a server.
type asked struct{ driver.Carrier }

func (a asked) Via() driver.Via {
	v := a.Carrier.Via()
	v.Sent = false
	return v
}

// askedFor returns the context of the request that a question belongs to: the request on whose
// stream the question arrived, or the only request in progress.
func (s *requestSet) askedFor(ctx context.Context) context.Context {
	if of := peer.ArrivalFrom(ctx).Of; of != nil {
		return of
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.requests) == 1 {
		for r := range s.requests {
			return r
		}
	}
	return ctx
}

// isError reports whether the member isError is true.
func (r RawResult) isError() bool {
	v, _ := jsonscan.Get(r, "isError")
	return string(v) == "true"
}

// knownTarget returns the name of the registered tool or prompt that a request uses, or "".
func knownTarget(r *Request, _ error) string {
	name, ok := r.Param("name")
	switch {
	case !ok:
	case r.Method == wire.MethodToolsCall:
		return r.knownTool(name)
	case r.Method == wire.MethodPromptsGet:
		return knownName(&r.server.prompts, name)
	}
	return ""
}

// acceptedTarget returns the name of the tool or prompt that a server used, or "".
func acceptedTarget(r *Request, err error) string {
	if err != nil || r.Method != wire.MethodToolsCall && r.Method != wire.MethodPromptsGet {
		return ""
	}
	quoted, _ := r.Param("name")
	name, _ := unquoteAtMost(quoted, maxURI)
	return name
}

// observerOf returns the observer of the server that h is or wraps. A Handler that observes its
// requests itself, without a server, must implement a method Observer.
func observerOf(h Handler) Observer {
	for h != nil {
		if s := serverOf(h); s != nil {
			return s.opts.Observer
		}
		if o, ok := h.(interface{ Observer() Observer }); ok {
			return o.Observer()
		}
		outer, ok := h.(interface{ Unwrap() Handler })
		if !ok {
			return nil
		}
		h = outer.Unwrap()
	}
	return nil
}
