package mcphttp

import (
	stdjson "encoding/json"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/sse"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// unflushedMax is how much a stream may have carried for its last event to go out when net/http ends the response,
// which saves a write. A peer that read nothing of more than this could hold that write for as long as it likes.
const unflushedMax = 32 << 10

// streamStack is more stack than is used between the serving of a POST and net/http's first write of an event stream.
const streamStack = 9 << 10

// growStack makes the stack large enough for an event stream by being called: the runtime sees to it that a function finds
// room for all that it declares. What stands on a stack that grows is moved, call by call. Within a tool that costs
// several times as much as here, and it recurs, since each garbage collection shrinks the stacks of connections.
//
//go:noinline
func growStack(touched int) {
	if touched == 0 {
		return
	}
	var room [streamStack]byte
	if room[touched] != 0 { // it has to be used to be declared
		panic("unreachable")
	}
}

// An eventStream is an HTTP response made of server-sent events. It opens with its first event. Each event is flushed,
// and fails when the client does not read it within the write timeout; then the stream is over. Comments keep a quiet
// stream open. It is safe for concurrent use, but only as long as the HTTP request is being served: whoever serves it
// closes the stream at the end.
type eventStream struct {
	w       http.ResponseWriter
	handler *Handler
	call    *callContext  // ends when the connection is found to be gone: there is nobody left to answer; nil for none
	bell    chan struct{} // holds a token once somebody has rung, and when an open stream is over; nil for none

	mu     sync.Mutex // guards the fields below, and is held while writing
	state  streamState
	opened bool
	gone   chan struct{} // closed when an open stream is over; nil while nobody has asked for it
	buf    *buffer       // what leaves with the next event; nil while there is nothing
	alive  *waiting[*eventStream]
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

func newEventStream(w http.ResponseWriter, h *Handler) *eventStream {
	return &eventStream{w: w, handler: h}
}

// open sends what is prepared, and the headers of the response even if that is nothing, so that the client knows it is
// connected.
func (s *eventStream) open() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state == streamOpen && s.buf == nil {
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
	head := s.w.Header()
	head["Content-Type"] = eventContent
	head["Cache-Control"] = notStored
	head["X-Accel-Buffering"] = notBuffered // Spec: basic/transports/streamable-http#receiving-messages
	s.w.WriteHeader(http.StatusOK)
	ownTime(s.w)
	s.state, s.opened = streamOpen, true
	s.alive = s.handler.quiet.start(s)
	return nil
}

// Values of headers that all streams share. Whoever adds to them gets a copy.
var (
	eventContent = []string{typeEventStream}[:1:1]
	notStored    = []string{"no-store"}[:1:1]
	notBuffered  = []string{"no"}[:1:1]
)

// over returns the channel that closes when the stream is over; nil for a stream that was never opened.
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

// isOver reports whether nothing more can be sent.
func (s *eventStream) isOver() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state == streamOver
}

// ring wakes whoever waits for the bell.
func (s *eventStream) ring() {
	select {
	case s.bell <- struct{}{}:
	default:
	}
}

// keepAlive has a comment sent, again and again for as long as the stream is open.
func (s *eventStream) keepAlive() (again bool) {
	go s.sendComment() // ends at the latest when the client has had its time to read it
	return true
}

// sendComment sends the comment that keeps the connection from looking idle. While something else is being written, it
// is not.
func (s *eventStream) sendComment() {
	if !s.mu.TryLock() {
		return
	}
	defer s.mu.Unlock()
	if s.state != streamOpen {
		return
	}
	buf := s.unsent()
	buf.bytes = sse.AppendComment(buf.bytes, "")
	_ = s.write() // or the stream is over
}

// send writes an event, and opens the stream if need be.
func (s *eventStream) send(e sse.Event) error {
	if err := s.prepare(e); err != nil {
		return err
	}
	return s.open()
}

// prepare has an event leave together with what is sent next, or when the stream is opened: a write for each would be
// most of what they cost.
func (s *eventStream) prepare(e sse.Event) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.add(e)
}

// prepareNotification is prepare for a notification. What it needs of the stack is free again when that is written, which
// takes a lot of it.
func (s *eventStream) prepareNotification(method string, params stdjson.RawMessage) error {
	buf := encodeNotification(method, params)
	defer buf.free()
	return s.prepare(sse.Event{Data: buf.bytes})
}

// add puts an event into the buffer, and opens the stream if need be. The caller holds s.mu.
func (s *eventStream) add(e sse.Event) (err error) {
	if err = s.begin(); err != nil {
		return err
	}
	buf := s.unsent()
	buf.bytes, err = sse.Append(buf.bytes, e)
	return err
}

// unsent returns the buffer of what leaves next. The caller holds s.mu.
func (s *eventStream) unsent() *buffer {
	if s.buf == nil {
		s.buf = s.handler.sizes.newBuffer()
	}
	return s.buf
}

// write writes what is unsent and flushes. The caller holds s.mu.
func (s *eventStream) write() error {
	defer s.handler.events.stop(s.handler.events.start(s))
	if s.writeUnflushed() && s.flush() {
		return nil
	}
	s.end()
	if s.call != nil {
		s.call.fail(mcp.ErrDisconnected)
	}
	return mcp.ErrDisconnected
}

// writeUnflushed writes what is unsent and reports whether that went well. The caller holds s.mu.
func (s *eventStream) writeUnflushed() bool {
	if s.isInterrupted() {
		return false
	}
	buf := s.buf
	if buf == nil {
		return true
	}
	s.buf = nil
	defer buf.free()
	_, err := s.w.Write(buf.bytes)
	s.sent += len(buf.bytes)
	return err == nil
}

// flush has what was written leave, and reports whether that went well.
func (s *eventStream) flush() bool {
	err := http.NewResponseController(s.w).Flush()
	return err == nil || errors.Is(err, errors.ErrUnsupported)
}

func (s *eventStream) isInterrupted() bool {
	s.deadline.Lock()
	defer s.deadline.Unlock()
	return s.interrupted
}

// breakOff ends a write that takes too long.
func (s *eventStream) breakOff() (again bool) {
	s.interrupt()
	return false
}

// interrupt makes the write that is going on fail now, and every later one. It waits for nothing.
func (s *eventStream) interrupt() {
	s.deadline.Lock()
	defer s.deadline.Unlock()
	s.interrupted = true
	if !s.released {
		_ = http.NewResponseController(s.w).SetWriteDeadline(past)
	}
}

// finish writes the last event and ends the stream, if it was ever opened. Otherwise nothing can be sent from now on.
func (s *eventStream) finish(e sse.Event) (wasOpened bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.end()
	if s.state != streamOpen || s.add(e) != nil {
		return s.opened
	}
	s.writeLast()
	return true
}

// finishPrepared is finish for a last event that was prepared.
func (s *eventStream) finishPrepared() {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.end()
	if s.state == streamOpen {
		s.writeLast()
	}
}

// writeLast writes what is unsent, which leaves when net/http ends the response. The caller holds s.mu.
func (s *eventStream) writeLast() {
	defer s.handler.events.stop(s.handler.events.start(s))
	if s.writeUnflushed() && s.sent > unflushedMax {
		s.flush()
	}
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
		return control.SetWriteDeadline(past)
	}
	defer conn.Close()
	_ = conn.SetWriteDeadline(time.Now().Add(s.handler.opts.WriteTimeout))
	_, err = conn.Write([]byte("0\r\n\r\n")) // the end of a chunked body; to HTTP/1.0 an unknown field of the stream
	return err
}

// end makes an open stream be over. The caller holds s.mu.
func (s *eventStream) end() {
	if s.state == streamOpen {
		s.handler.quiet.stop(s.alive)
		if s.buf != nil {
			s.buf.free()
			s.buf = nil
		}
		if s.gone != nil {
			close(s.gone)
		}
		s.ring()
	}
	s.state = streamOver
	s.deadline.Lock()
	defer s.deadline.Unlock()
	if s.interrupted && !s.released {
		_ = http.NewResponseController(s.w).SetWriteDeadline(time.Time{}) // the connection may go on to serve others
	}
	s.released = true
}
