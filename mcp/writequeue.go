package mcp

import (
	"context"

	"github.com/patchbay-mcp/patchbay/internal/linestream"
	"github.com/patchbay-mcp/patchbay/internal/peer"
	"github.com/patchbay-mcp/patchbay/jsonrpc"
)

// enqueue queues the response to a call, which may be nil. A nil response is ignored.
func (s *stream) enqueue(call *peer.Call, response *jsonrpc.Message) {
	switch {
	case response == nil:
	case s.lines == nil:
		s.queue.Add(linestream.Response{Call: call, Message: response})
	default:
		s.enqueueLine(call, jsonrpc.Append(s.queue.NewLine(), response))
	}
}

// enqueueLine is like enqueue for a response that is encoded already.
func (s *stream) enqueueLine(call *peer.Call, response []byte) {
	s.queue.Add(linestream.Response{Call: call, Line: append(response, '\n')})
}

// flush writes the queue, unless another goroutine is about to.
func (s *stream) flush() {
	if s.queue.Claim() {
		s.writeQueued(s.ctx)
	}
}

// writeQueued writes the queue. Ending a call and writing its response are a single step under the
// write lock: a client may reuse the id after it reads the response, and must not receive a
// response to a request that it cancelled before that.
func (s *stream) writeQueued(ctx context.Context) {
	locked := s.lock(ctx) == nil
	var lines []byte
	if locked {
		defer s.unlock()
		lines = s.written[:0]
	} else if s.ctx.Err() == nil {
		return // the goroutines that added the responses write them
	}
	responses := s.queue.RemoveAll()
	defer s.queue.Recycle(responses)
	for _, r := range responses {
		switch wanted := r.Call == nil || r.Call.End(); {
		case !wanted:
		case r.Message != nil:
			_ = s.send(r.Message) // fails only if the stream has ended
		default:
			lines = append(lines, r.Line...)
		}
	}
	if locked && cap(lines) <= 2*linestream.MaxBatch {
		s.written = lines
	}
	if len(lines) == 0 || s.ctx.Err() != nil {
		return
	}
	if err := s.lines.WriteLines(s.ctx, lines); err != nil {
		_ = s.fail(err)
	}
}
