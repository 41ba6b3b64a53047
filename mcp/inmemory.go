package mcp

import (
	"bytes"
	"context"
	"sync"

	"github.com/patchbay-mcp/patchbay/jsonrpc"
)

// InMemory returns the Transport to a handler, such as a [*Server], within the process. Requests and results cross it in
// their encoded form, so that neither side can change what the other holds, and the handler is called on the goroutine
// of its caller: one that does not heed its context holds the caller up.
func InMemory(h Handler) Transport {
	t := &memoryTransport{handler: h}
	t.ctx, t.close = context.WithCancelCause(context.Background())
	return t
}

type memoryTransport struct {
	handler Handler
	ctx     context.Context // ends with the transport
	close   context.CancelCauseFunc
	serving sync.WaitGroup // streams of the session era
}

// RoundTrip has the handler answer.
func (t *memoryTransport) RoundTrip(ctx context.Context, req *Request) (Result, error) {
	if t.ctx.Err() != nil {
		return nil, &TransportError{Method: req.Method, Err: ErrClosed}
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	served := newServed()
	served.Method, served.ID, served.Params = req.Method, memoryID, req.Params
	served.Principal, served.Notify = PrincipalFrom(ctx), req.Notify
	if req.isAsMade() {
		served.env = req.env
	} else if err := served.open(); err != nil {
		return nil, err
	}
	if err := served.env.Complete(); err != nil {
		return nil, remoteError(err)
	}
	const room = 256 // for small results
	body, err := appendResult(make([]byte, 0, room), ctx, t.handler, served)
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case err != nil:
		return nil, remoteError(err)
	}
	return RawResult(body), nil
}

// isAsMade reports whether the envelope of a request is the one that its params begin with, so that it need not be read
// again: that of a request of a [Client], unless its middleware has changed it. The log level is its caller's, unchecked.
func (r *Request) isAsMade() bool {
	const before = `{"_meta":`
	return r.env.Meta != nil && r.env.LogLevel == "" && len(r.Params) > len(before) &&
		string(r.Params[:len(before)]) == before && bytes.HasPrefix(r.Params[len(before):], r.env.Meta)
}

// memoryID is the id of all requests in memory: nothing has to be told apart by it.
var memoryID = jsonrpc.IntID(1)

// remoteError returns the error as the client of a stream would read it.
func remoteError(err *Error) error {
	m, refused := jsonrpc.Decode(jsonrpc.Append(nil, jsonrpc.NewErrorResponse(memoryID, err)))
	if refused != nil {
		return refused
	}
	return m.Error
}

// Close refuses further requests. Those in progress end with their contexts.
func (t *memoryTransport) Close() error {
	t.close(ErrClosed)
	t.serving.Wait()
	return nil
}
