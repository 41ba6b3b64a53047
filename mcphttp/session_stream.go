package mcphttp

import (
	"context"
	"crypto/rand"
	"errors"
	"iter"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/sse"
	"github.com/patchbay-mcp/patchbay/internal/wire"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// Kinds of streams: the first letter of their names.
const (
	callStream       = 'c' // of one call; ends with the answer
	standaloneStream = 's' // of the session's GET; ends with the session
)

// streamNameLen is the length of a stream's name: its kind and 130 random bits. Nobody who was not sent an event can
// name its stream.
const streamNameLen = 1 + 26

// newStreamName returns a name, of the letters that [rand.Text] is made of.
func newStreamName(kind byte) string {
	var name [streamNameLen]byte
	_, _ = rand.Read(name[1:]) // never fails
	for i, random := range name {
		name[i] = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"[random%32]
	}
	name[0] = kind
	return string(name[:])
}

// A sessionStream is a stream of a session. It outlives its connections: what is sent while there is none, the client
// gets when it comes back with the id of the last event that it saw.
//
// Spec: basic/transports#resumability-and-redelivery
type sessionStream struct {
	key    StreamKey
	store  EventStore // nil if the revision has no resumption
	primes bool
	logger *slog.Logger

	mu   sync.Mutex // guards the fields below, and is held while writing
	last int64      // number of the last event
	done bool

	over atomic.Bool                 // the session has ended: nobody will come back
	conn atomic.Pointer[eventStream] // nil while there is none; may be read without the lock
}

// newStream makes a stream of the session, which remembers streams of calls for as long as they are unfinished.
func (s *session) newStream(kind byte, rev wire.Revision, opts *Options) *sessionStream {
	stream := new(sessionStream)
	s.beginStream(stream, kind, rev, opts)
	return stream
}

// beginStream is newStream for an empty stream that is part of something.
func (s *session) beginStream(stream *sessionStream, kind byte, rev wire.Revision, opts *Options) {
	stream.primes = rev.Has(wire.SSEPriming)
	stream.logger = opts.Logger
	stream.key = StreamKey{Session: s.id, Principal: digest(s.principal), Stream: newStreamName(kind)}
	if rev.Has(wire.SSEResumption) {
		stream.store = opts.Sessions.Events
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	stream.over.Store(s.ended)
	if kind == callStream {
		if s.streams == nil {
			s.streams = make(map[string]*sessionStream)
		}
		s.streams[stream.name()] = stream
	}
}

func (s *session) dropStream(stream *sessionStream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.streams, stream.name())
}

func (st *sessionStream) name() string { return st.key.Stream }

// start returns a new stream its first connection, on which the caller then sends something or opens it. Where the revision
// has it, the first event is empty: it is there for its id, with which the client can come back before there is anything
// else.
func (st *sessionStream) start(ctx context.Context, conn *eventStream) {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.conn.Store(conn)
	if st.primes && st.store != nil {
		_, _ = st.prepare(ctx, conn, []byte{}) // a connection that is gone already is no error: the stream goes on
	}
}

// send keeps a message and writes it to the connection, if there is one. It blocks while the client is slow; that the
// client is gone is no error if it may come back for the message.
func (st *sessionStream) send(ctx context.Context, data []byte) error {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.done {
		return mcp.ErrClosed
	}
	conn := st.conn.Load()
	isKept, err := st.prepare(ctx, conn, data)
	if err == nil && conn.open() == nil {
		return nil
	}
	st.conn.Store(nil)
	if !isKept {
		return mcp.ErrDisconnected
	}
	return nil
}

// prepare keeps a message and has it leave with what the connection sends next, which may be nil for none. It reports
// whether the message is kept. The caller holds st.mu.
func (st *sessionStream) prepare(ctx context.Context, conn *eventStream, data []byte) (isKept bool, err error) {
	event := sse.Event{Data: data, HasID: st.keep(ctx, data)}
	event.ID = eventID(st.name(), st.last)
	if conn == nil {
		return event.HasID, mcp.ErrDisconnected
	}
	return event.HasID, conn.prepare(event)
}

// keep returns a message a number and keeps it for later. It reports whether it is kept: else its event has no id.
func (st *sessionStream) keep(ctx context.Context, data []byte) bool {
	st.last++
	if st.store == nil || st.over.Load() {
		return false
	}
	if err := st.store.Append(ctx, st.key, st.last, data); err != nil {
		st.logger.ErrorContext(ctx, "mcphttp: event not kept", "error", err)
		return false
	}
	return true
}

// finish sends the last message and ends the stream.
func (st *sessionStream) finish(ctx context.Context, data []byte) {
	st.mu.Lock()
	defer st.mu.Unlock()
	_, _ = st.prepare(ctx, st.conn.Load(), data) // which can be interrupted while the store works
	if conn := st.conn.Swap(nil); conn != nil {
		conn.finishPrepared()
	}
	st.done = true
}

// close ends the stream without a last message.
func (st *sessionStream) close() {
	st.mu.Lock()
	defer st.mu.Unlock()
	if conn := st.conn.Swap(nil); conn != nil {
		conn.close()
	}
	st.done = true
}

// hangUp closes the connection and not the stream.
func (st *sessionStream) hangUp(retry time.Duration) error {
	st.mu.Lock()
	defer st.mu.Unlock()
	conn := st.conn.Load()
	switch {
	case conn == nil:
		return nil
	case st.last == 0:
		return errors.ErrUnsupported // without an event's id the client could not come back
	}
	st.conn.Store(nil)
	if err := conn.send(sse.Event{Retry: retry, HasRetry: true}); err != nil {
		return nil // it is closed already
	}
	return conn.hangUp()
}

// interrupt breaks the connection, without waiting for what is being written to it.
func (st *sessionStream) interrupt() {
	if conn := st.conn.Load(); conn != nil {
		conn.interrupt()
	}
}

// ring wakes whoever writes to the connection, if there is one. A connection that comes later is looked after by who
// brings it.
func (st *sessionStream) ring() {
	if conn := st.conn.Load(); conn != nil {
		conn.ring()
	}
}

// attach puts the stream on a new connection and sends what came after the given event. The connection before is
// closed: whoever knows the name of the stream is the one who read it there, and has noticed earlier than we have that
// it is gone. The error is [ErrEventGap] if something in between is lost; nothing has been written then.
func (st *sessionStream) attach(ctx context.Context, conn *eventStream, after int64) error {
	st.interrupt()
	st.mu.Lock()
	defer st.mu.Unlock()
	if before := st.conn.Swap(nil); before != nil {
		before.close()
	}
	if after > st.last {
		return ErrEventGap
	}
	if st.store == nil {
		return ErrEventGap
	}
	if err := replay(st.store.After(ctx, st.key, after), st.name(), conn, after); err != nil {
		return err
	}
	if st.done {
		conn.close()
		return nil
	}
	st.conn.Store(conn)
	return nil
}

// detach takes the stream off a connection that is gone.
func (st *sessionStream) detach(conn *eventStream) {
	st.conn.CompareAndSwap(conn, nil)
}

// replay writes the events of a stream after the given one, and opens the connection even if there are none.
func replay(events iter.Seq2[[]byte, error], stream string, conn *eventStream, after int64) error {
	for data, err := range events {
		if err != nil {
			return err
		}
		after++
		if err := conn.send(sse.Event{ID: eventID(stream, after), HasID: true, Data: data}); err != nil {
			return err
		}
	}
	return conn.open()
}

// eventID is the id of an event: the name of its stream and its number there. It means something only together with
// the session that the stream belongs to. It is short enough for the stack of who calls it and only has it written.
func eventID(stream string, n int64) string { return stream + "-" + strconv.FormatInt(n, 10) }

// parseEventID takes an event id apart. It refuses every text that eventID does not make.
func parseEventID(id string) (stream string, n int64, ok bool) {
	stream, number, _ := strings.Cut(id, "-")
	if len(stream) != streamNameLen || stream[0] != callStream && stream[0] != standaloneStream {
		return "", 0, false
	}
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil || n < 1 || strconv.FormatInt(n, 10) != number {
		return "", 0, false
	}
	return stream, n, true
}
