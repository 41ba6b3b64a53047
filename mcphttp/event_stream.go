package mcphttp

import (
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/peer"
	"github.com/patchbay-mcp/patchbay/internal/sse"
	"github.com/patchbay-mcp/patchbay/mcp"
)

const (
	// maxUnflushed is how much a stream may have carried for its last event to be flushed by
	// net/http at the end of the response, which saves a write. After more than this, a peer that
	// does not read could block that write without a limit of time.
	maxUnflushed = 32 << 10
	// maxPending is how many bytes of events may wait for a write. The sender of more waits.
	maxPending = 32 << 10
	// burstGap is the longest pause between two events of a burst; see flushSoon.
	burstGap = time.Millisecond
)

// An eventStream is an HTTP response made of server-sent events. The first event opens it. Events
// are appended to a buffer of pending events, and written and flushed together. A write fails when
// the client does not read within the write timeout; then the stream is over. Comments keep an idle
// stream open.
//
// An eventStream is safe for concurrent use, but only while the HTTP request is being served: the
// handler of the request must close it.
type eventStream struct {
	w       http.ResponseWriter
	handler *Handler
	caller  caller
	call    *callContext  // canceled when a write fails; may be nil
	notify  chan struct{} // receives a token after wake, and when an open stream is over; may be nil

	mu         sync.Mutex // guards the fields below
	state      streamState
	opened     bool
	gone       chan struct{} // closed when an open stream is over; nil until it is needed
	pending    *buffer       // events that were not written; may be nil
	isWriting  bool          // a goroutine writes to w, without holding mu
	isFlushing bool          // flushPending runs
	written    sync.Cond     // broadcast when isWriting becomes false
	writtenAt  time.Time     // start of the last write; zero before the first
	keepAlive  *deadline[*eventStream]
	sent       int // bytes

	deadlineMu  sync.Mutex // held while the write deadline changes; guards the fields below
	interrupted bool
	released    bool // the connection may serve other requests
}

type streamState uint8

const (
	streamUnopened streamState = iota
	streamOpen
	streamClosing // the last write is in progress
	streamOver
)

func newEventStream(w http.ResponseWriter, h *Handler, c caller) *eventStream {
	s := &eventStream{w: w, handler: h, caller: c}
	s.written.L = &s.mu
	return s
}

// Header values that all streams share. Their capacity is 1, so that appending copies them.
var (
	eventContent = []string{typeEventStream}[:1:1]
	notStored    = []string{"no-store"}[:1:1]
	notBuffered  = []string{"no"}[:1:1]
)

// begin opens an unopened stream, without a write. The caller holds s.mu.
func (s *eventStream) begin() error {
	switch s.state {
	case streamClosing, streamOver:
		return mcp.ErrDisconnected
	case streamOpen:
		return nil
	}
	header := s.w.Header()
	header["Content-Type"] = eventContent
	header["Cache-Control"] = notStored
	// Spec: basic/transports/streamable-http#receiving-messages
	header["X-Accel-Buffering"] = notBuffered
	s.w.WriteHeader(http.StatusOK)
	clearWriteDeadline(s.w)
	s.state, s.opened = streamOpen, true
	s.keepAlive = s.handler.keepAlives.add(s, time.Now())
	return nil
}

// send appends an event and flushes it soon.
func (s *eventStream) send(e sse.Event) error {
	if err := s.append(e); err != nil {
		return err
	}
	return s.flushSoon()
}

// append adds an event to the pending events, which leave with the next flush. It writes them if
// they have become too many.
func (s *eventStream) append(e sse.Event) (err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.add(e); err != nil {
		return err
	}
	if len(s.pending.bytes) < maxPending {
		return nil
	}
	return s.writePending()
}

// add opens the stream if necessary, and adds an event to the pending events. The caller holds
// s.mu.
func (s *eventStream) add(e sse.Event) (err error) {
	if err = s.begin(); err != nil {
		return err
	}
	if s.pending == nil {
		s.pending = s.handler.sizes.newBuffer()
	}
	s.pending.bytes, err = sse.Append(s.pending.bytes, e)
	return err
}

// flush writes the pending events before it returns. If the stream is unopened it writes the
// headers of the response even without events, so that the client knows that it is connected.
func (s *eventStream) flush() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state == streamUnopened {
		if err := s.begin(); err != nil {
			return err
		}
		return s.write()
	}
	return s.writePending()
}

// flushSoon sends the pending events. The first event after a pause is written before flushSoon
// returns. In a burst a goroutine writes, so that events that come meanwhile share its next write:
// a system call for each event would be most of its cost.
func (s *eventStream) flushSoon() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.state == streamOver || s.state == streamClosing:
		return mcp.ErrDisconnected
	case s.pending == nil || s.isWriting || s.isFlushing:
		return nil // a write that ends looks for pending events
	case s.writtenAt.IsZero() || time.Since(s.writtenAt) > burstGap:
		return s.write()
	}
	s.isFlushing = true
	go s.flushPending() // ends when there are no pending events
	return nil
}

func (s *eventStream) flushPending() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.writePending() == nil && s.pending != nil {
	}
	s.isFlushing = false
}

// writePending waits for a write of another goroutine, and writes the pending events. The caller
// holds s.mu.
func (s *eventStream) writePending() error {
	s.awaitWrite()
	switch {
	case s.state != streamOpen:
		return mcp.ErrDisconnected
	case s.pending == nil:
		return nil
	}
	return s.write()
}

func (s *eventStream) awaitWrite() {
	for s.isWriting {
		s.written.Wait()
	}
}

// write writes the pending events and flushes them. The caller holds s.mu, which is unlocked
// meanwhile, and has waited for other writes.
func (s *eventStream) write() error {
	if !s.writeUnlocked(true) {
		s.end()
		if s.call != nil {
			s.call.fail(mcp.ErrDisconnected)
		}
		return mcp.ErrDisconnected
	}
	if s.pending != nil && !s.isFlushing {
		s.isFlushing = true
		go s.flushPending() // ends when there are no pending events
	}
	return nil
}

// writeUnlocked writes the pending events, flushes them if flushed is set, and reports whether that
// succeeded. The caller holds s.mu, which is unlocked meanwhile.
func (s *eventStream) writeUnlocked(flushed bool) bool {
	buf := s.pending
	s.pending, s.isWriting = nil, true
	if buf != nil {
		s.sent += len(buf.bytes)
	}
	s.mu.Unlock()
	at := time.Now()
	d := s.handler.eventWrites.add(s, at)
	defer func() {
		s.handler.eventWrites.remove(d)
		s.mu.Lock()
		s.isWriting, s.writtenAt = false, at
		s.written.Broadcast()
	}()
	if s.isInterrupted() {
		return false
	}
	if buf != nil {
		defer buf.free()
		if len(buf.bytes) > minUnread {
			o := &output{caller: s.caller, cut: s.interrupt}
			s.handler.unread.add(o, int64(cap(buf.bytes)))
			defer s.handler.unread.remove(o)
		}
		if _, err := s.w.Write(buf.bytes); err != nil {
			return false
		}
	}
	if !flushed {
		return true
	}
	err := http.NewResponseController(s.w).Flush()
	return err == nil || errors.Is(err, errors.ErrUnsupported)
}

// over returns a channel that is closed when the stream is over; nil for a stream that was never
// opened.
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

func (s *eventStream) isOver() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state == streamOver
}

// wake puts a token into notify.
func (s *eventStream) wake() {
	peer.Wake(s.notify)
}

// sendComment sends a comment, so that proxies do not close an idle connection. It returns if
// events are being sent.
func (s *eventStream) sendComment() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state != streamOpen || s.isWriting || s.pending != nil {
		return
	}
	s.pending = newBuffer()
	s.pending.bytes = sse.AppendComment(s.pending.bytes, "")
	_ = s.write() // if it fails the stream is over
}

func (s *eventStream) isInterrupted() bool {
	s.deadlineMu.Lock()
	defer s.deadlineMu.Unlock()
	return s.interrupted
}

// interrupt makes the current write and every later write fail. It does not block.
func (s *eventStream) interrupt() {
	s.deadlineMu.Lock()
	defer s.deadlineMu.Unlock()
	s.interrupted = true
	if !s.released {
		_ = http.NewResponseController(s.w).SetWriteDeadline(aLongTimeAgo)
	}
}

// finish writes the last event and ends the stream, if it was ever opened. Otherwise nothing can be
// sent afterwards.
func (s *eventStream) finish(e sse.Event) (wasOpened bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.awaitWrite()
	if s.state == streamOpen && s.add(e) == nil {
		s.writeLast()
	}
	s.end()
	return s.opened
}

// close writes the pending events and ends the stream. No write follows.
func (s *eventStream) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.awaitWrite()
	s.writeLast()
	s.end()
}

// writeLast writes the pending events; net/http flushes them at the end of the response. The caller
// holds s.mu and has waited for other writes.
func (s *eventStream) writeLast() {
	if s.state == streamOpen && s.pending != nil {
		s.state = streamClosing
		s.writeUnlocked(s.sent+len(s.pending.bytes) > maxUnflushed)
	}
}

// hangUp writes the pending events and closes the connection, although the request is still being
// served.
func (s *eventStream) hangUp() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.writePending(); err != nil {
		return err
	}
	s.end()
	control := http.NewResponseController(s.w)
	conn, _, err := control.Hijack()
	if err != nil {
		// A stream of HTTP/2 is reset when its deadline passed.
		return control.SetWriteDeadline(aLongTimeAgo)
	}
	defer conn.Close()
	_ = conn.SetWriteDeadline(time.Now().Add(s.handler.opts.WriteTimeout))
	// The end of a chunked body. In an HTTP/1.0 response it is an unknown field of the stream.
	_, err = conn.Write([]byte("0\r\n\r\n"))
	return err
}

// abort closes the connection without the end of the response, so that the client sees an error.
func (s *eventStream) abort() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.awaitWrite()
	if s.state != streamOpen {
		return
	}
	s.end()
	control := http.NewResponseController(s.w)
	if conn, _, err := control.Hijack(); err == nil {
		_ = conn.Close()
		return
	}
	_ = control.SetWriteDeadline(aLongTimeAgo) // resets a stream of HTTP/2
}

// end makes an open stream over. The caller holds s.mu and has waited for other writes.
func (s *eventStream) end() {
	if s.state == streamOpen || s.state == streamClosing {
		s.handler.keepAlives.remove(s.keepAlive)
		if s.pending != nil {
			s.pending.free()
			s.pending = nil
		}
		if s.gone != nil {
			close(s.gone)
		}
		s.wake()
	}
	s.state = streamOver
	s.deadlineMu.Lock()
	defer s.deadlineMu.Unlock()
	if s.interrupted && !s.released {
		_ = http.NewResponseController(s.w).SetWriteDeadline(time.Time{}) // for the next request
	}
	s.released = true
}
