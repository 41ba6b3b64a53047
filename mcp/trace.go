package mcp

import (
	"context"
	"encoding/json"
	"sync"

	"github.com/patchbay-mcp/patchbay/jsonrpc"
)

// A Frame is a message, or an HTTP request or response without a message. The function of [Trace]
// must not change or keep it. Spec: basic (2026-07-28), Messages.
type Frame struct {
	Sent    bool                // by the client; otherwise the client received it
	Message *jsonrpc.Message    // never a batch; nil for an HTTP request or response without a message
	Method  string              // of HTTP, also for a response
	Status  int                 // of an HTTP response
	Header  map[string][]string // of HTTP; values are "[hidden]" unless known to be public
}

// Trace calls f for every valid message that t sends or receives, and returns t, which must be
// unused. Calls of f do not overlap; each delays its message, and must not use the client. Messages
// are complete, with the secrets in them. A later Trace of the same transport adds a function, which
// is called after the functions before. Trace panics unless t is a transport of mcp or mcphttp,
// embeds such a transport, or implements a method Trace(func(Frame)).
func Trace(t Transport, f func(Frame)) Transport {
	var mu sync.Mutex
	var before tracer
	locked := func(frame Frame) {
		mu.Lock()
		defer mu.Unlock()
		if before != nil {
			before(frame)
		}
		f(frame)
	}
	switch t := t.(type) {
	case interface{ streams() *connTransport }:
		before, t.streams().trace = t.streams().trace, locked
	case *memoryTransport:
		before, t.trace = t.trace, locked
	default:
		t.(interface{ Trace(f func(Frame)) }).Trace(locked)
	}
	return t
}

type tracer func(Frame) // of Trace, or nil

func (f tracer) message(sent bool, m *jsonrpc.Message) {
	if kind := m.Kind(); f != nil && kind != jsonrpc.Batch && kind != jsonrpc.Invalid {
		f(Frame{Sent: sent, Message: m})
	}
}

// traced is RoundTrip with the messages that a stream would carry.
func (t *memoryTransport) traced(ctx context.Context, req *Request) (Result, error) {
	id, copied := jsonrpc.IntID(t.ids.Add(1)), *req
	t.trace.message(true, &jsonrpc.Message{ID: id, Method: req.Method, Params: req.Params})
	if req.Notify != nil {
		copied.Notify = func(ctx context.Context, method string, params json.RawMessage) error {
			t.trace.message(false, &jsonrpc.Message{Method: method, Params: params})
			return req.Notify(ctx, method, params)
		}
	}
	res, err := (&memoryTransport{handler: t.handler, ctx: t.ctx}).RoundTrip(ctx, &copied)
	raw, _ := res.(RawResult)
	t.trace.message(false, &jsonrpc.Message{ID: id, Result: json.RawMessage(raw), Error: asError(err)})
	return res, err
}
