package mcphttp

import (
	"errors"
	"math"
	"net/http"
	"sync"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/sse"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// unflushedMax is how much a stream may have carried for its last event to go out when net/http ends the response,
// which saves a write. A peer that read nothing of more than this could hold that write for as long as it likes.
const unflushedMax = 32 << 10

// An eventStream is an HTTP response made of server-sent events. It opens with its first event. Each event is flushed,
// and fails when the client does not read it within the write timeout; then the stream is over. Comments keep a quiet
// stream open. It is safe for concurrent use, but only as long as the HTTP request is being served: whoever serves it
// closes the stream at the end.
type eventStream struct {
	w    http.ResponseWriter
	opts *Options
	call *callContext // ends when the connection is found to be gone: there is nobody left to answer; nil for none

	mu     sync.Mutex // guards the fields below, and is held while writing
	state  streamState
	opened bool
	gone   chan struct{} // closed when an open stream is over; nil while nobody has asked for it
	buf    *buffer       // what leaves with the next event
	ticker *time.Timer
	sent   int

	deadline    sync.Mutex // held while the write deadline changes; guards the fields below
	interrupted bool
	released    bool // the connection may serve others
}

type streamState uint8

const (
	streamUnopened streamState = iota
	streamOpen
	streamOver
)

func newEventStream(w http.ResponseWriter, opts *Options) *eventStream {
	return &eventStream{w: w, opts: opts}
}

// open sends the headers of the response, if they were not sent with an event, so that the client knows it is
// connected.
func (s *eventStream) open() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state == streamOpen && len(s.buf.bytes) == 0 {
		return nil
	}
	if err := s.begin(); err != nil {
		return err
	}
	return s.write()
}

// begin prepares an unopened stream. The caller holds s.mu.
func (s *eventStream) begin() error {
	switch s.state {
	case streamOver:
		return mcp.ErrDisconnected
	case streamOpen:
		return nil
	}
	head, values := s.w.Header(), []string{typeEventStream, "no-store", "no"}
	head["Content-Type"] = values[0:1:1]
	head["Cache-Control"] = values[1:2:2]
	head["X-Accel-Buffering"] = values[2:3:3] // Spec: basic/transports/streamable-http#receiving-messages
	s.w.WriteHeader(http.StatusOK)
	s.state, s.opened = streamOpen, true
	s.buf = newBuffer()
	s.ticker = time.AfterFunc(math.MaxInt64, s.tick) // not before it can be used
	s.ticker.Reset(s.opts.KeepAlive)
	return nil
}

// over gives the channel that closes when the stream is over; nil for a stream that was never opened.
func (s *eventStream) over() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.opened && s.gone == nil {
		s.gone = make(chan struct{})
		if s.state == streamOver {
			close(s.gone)
		}
	}
	return s.gone
}

// tick sends the comment that keeps the connection from looking idle. While something else is being written, it is not.
func (s *eventStream) tick() {
	if !s.mu.TryLock() {
		s.ticker.Reset(s.opts.KeepAlive)
		return
	}
	defer s.mu.Unlock()
	if s.state != streamOpen {
		return
	}
	s.buf.bytes = sse.AppendComment(s.buf.bytes, "")
	if s.write() == nil {
		s.ticker.Reset(s.opts.KeepAlive)
	}
}

// send writes an event, and opens the stream if need be.
func (s *eventStream) send(e sse.Event) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.add(e); err != nil {
		return err
	}
	return s.write()
}

// prepare has an event leave together with what is sent next, or when the stream is opened: a write for each would be
// most of what they cost.
func (s *eventStream) prepare(e sse.Event) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.add(e)
}

// add puts an event into the buffer, and opens the stream if need be. The caller holds s.mu.
func (s *eventStream) add(e sse.Event) (err error) {
	if err = s.begin(); err == nil {
		s.buf.bytes, err = sse.Append(s.buf.bytes, e)
	}
	return err
}

// write writes the buffer and flushes. The caller holds s.mu.
func (s *eventStream) write() error {
	if s.writeUnflushed() {
		err := http.NewResponseController(s.w).Flush()
		if err == nil || errors.Is(err, errors.ErrUnsupported) {
			return nil
		}
	}
	s.end()
	if s.call != nil {
		s.call.fail(mcp.ErrDisconnected)
	}
	return mcp.ErrDisconnected
}

// writeUnflushed writes the buffer and empties it, and reports whether that went well. The caller holds s.mu.
func (s *eventStream) writeUnflushed() bool {
	if !s.beginWrite() {
		return false
	}
	_, err := s.w.Write(s.buf.bytes)
	s.sent += len(s.buf.bytes)
	s.buf.bytes = s.buf.bytes[:0]
	return err == nil
}

// beginWrite gives the client until the write timeout to read what is written next. It reports whether it may be.
func (s *eventStream) beginWrite() bool {
	s.deadline.Lock()
	defer s.deadline.Unlock()
	if s.interrupted {
		return false
	}
	_ = http.NewResponseController(s.w).SetWriteDeadline(time.Now().Add(s.opts.WriteTimeout))
	return true
}

// interrupt makes the write that is going on fail now, and every later one. It waits for nothing.
func (s *eventStream) interrupt() {
	s.deadline.Lock()
	defer s.deadline.Unlock()
	s.interrupted = true
	if !s.released {
		_ = http.NewResponseController(s.w).SetWriteDeadline(time.Unix(0, 0))
	}
}

// finish writes the last event and ends the stream, if it was ever opened. Otherwise nothing can be sent from now on.
func (s *eventStream) finish(e sse.Event) (wasOpened bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state != streamOpen {
		s.state = streamOver
		return s.opened
	}
	if s.add(e) == nil && s.writeUnflushed() && s.sent > unflushedMax {
		_ = http.NewResponseController(s.w).Flush()
	}
	s.end()
	return true
}

// close ends the stream without a word. Nothing is written once it returns.
func (s *eventStream) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.end()
}

// hangUp ends the connection at once, although the request is still being served.
func (s *eventStream) hangUp() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state != streamOpen {
		return mcp.ErrDisconnected
	}
	s.end()
	control := http.NewResponseController(s.w)
	conn, _, err := control.Hijack()
	if err != nil {
		// A stream of HTTP/2 is reset when its deadline has passed.
		return control.SetWriteDeadline(time.Unix(0, 0))
	}
	defer conn.Close()
	_ = conn.SetWriteDeadline(time.Now().Add(s.opts.WriteTimeout))
	_, err = conn.Write([]byte("0\r\n\r\n")) // the end of a chunked body; to HTTP/1.0 an unknown field of the stream
	return err
}

// end makes an open stream be over. The caller holds s.mu.
func (s *eventStream) end() {
	if s.state == streamOpen {
		s.ticker.Stop()
		s.buf.free()
		s.buf = nil
		if s.gone != nil {
			close(s.gone)
		}
	}
	s.state = streamOver
	s.deadline.Lock()
	defer s.deadline.Unlock()
	if !s.released {
		s.released = true
		_ = http.NewResponseController(s.w).SetWriteDeadline(time.Time{}) // the connection may go on to serve others
	}
}
