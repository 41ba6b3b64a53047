package mcphttp

import (
	"context"
	"crypto/rand"
	"errors"
	"iter"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/sse"
	"github.com/patchbay-mcp/patchbay/internal/wire"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// Kinds of streams; the first letter of their names.
const (
	callStream       = 'c' // of a call; ends with the response
	standaloneStream = 's' // of a GET; ends with the session
)

// streamNameLen is the length of a stream's name: its kind and 130 random bits, so that only a
// client that received an event of the stream can name it. The names of calls that other processes
// can follow continue; see [sessions.callSuffix].
const streamNameLen = 1 + 26

// newStreamName returns a name with a single allocation, unlike [rand.Text].
func newStreamName(kind byte) string {
	var name [streamNameLen]byte
	_, _ = rand.Read(name[1:]) // never fails
	for i, random := range name {
		name[i] = base32[random%32]
	}
	name[0] = kind
	return string(name[:])
}

// A sessionStream is a stream of a session. It continues without a connection: the events that are
// sent meanwhile are replayed when the client resumes with the id of the last event that it
// received. Spec: basic/transports#resumability-and-redelivery
type sessionStream struct {
	key    StreamKey
	store  *sessionEventLog // nil if the revision lacks resumption
	primes bool             // the first event is empty

	mu   sync.Mutex // guards the field below, and is held while writing
	last int64      // number of the last event

	done         atomic.Bool                 // changes under the lock
	lost         atomic.Bool                 // a response was due and is not stored
	stored       atomic.Int64                // number of the last stored event
	followers    atomic.Pointer[followers]   // at other processes; nil before the first
	sessionEnded atomic.Bool                 // no client can resume the stream
	conn         atomic.Pointer[eventStream] // nil without a connection; read without the lock
}

// newStream returns a new stream of the session. The stream of a call is in s.streams until it is
// dropped.
func (s *session) newStream(name string, rev wire.Revision, store *sessionEventLog) *sessionStream {
	stream := &sessionStream{
		key:    StreamKey{Session: s.id, Principal: s.digest, Stream: name},
		primes: rev.Has(wire.SSEPriming),
	}
	if rev.Has(wire.SSEResumption) {
		stream.store = store
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	stream.sessionEnded.Store(s.ended && !s.dropped)
	if name[0] == callStream {
		if s.streams == nil {
			s.streams = make(map[string]*sessionStream)
		}
		s.streams[stream.name()] = stream
	}
	return stream
}

// remove removes the stream of a call that is over. A stream that other processes may follow is kept as
// lost if its response is not stored.
func (s *session) remove(stream *sessionStream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.streams, stream.name())
	if stream.lost.Load() && len(stream.name()) > streamNameLen {
		s.lost = append(s.lost[max(0, len(s.lost)+1-maxLost):], stream)
	}
}

// find returns the stream of the name that this process ran or runs, or nil. The caller holds s.mu.
func (s *session) find(name string) *sessionStream {
	if stream := s.streams[name]; stream != nil {
		return stream
	}
	others := append([]*sessionStream{s.left}, s.lost...)
	if s.standalone != nil {
		others = append(others, s.standalone.stream)
	}
	for _, stream := range others {
		if stream != nil && stream.name() == name {
			return stream
		}
	}
	return nil
}

func (st *sessionStream) name() string { return st.key.Stream }

// start sets the first connection of a new stream. The caller then sends an event or flushes. If
// the revision uses priming, the first event is empty: with its id the client can resume the stream
// before any other event.
func (st *sessionStream) start(ctx context.Context, conn *eventStream) {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.conn.Store(conn)
	if st.primes && st.store != nil {
		_, _ = st.append(ctx, conn, []byte{}) // without a connection the stream continues
	}
}

// send stores a message and sends it if there is a connection. It blocks while the client is slow.
// It returns no error for a lost connection if the client may resume.
func (st *sessionStream) send(ctx context.Context, data []byte) error {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.done.Load() {
		return mcp.ErrClosed
	}
	conn := st.conn.Load()
	stored, err := st.append(ctx, conn, data)
	if err == nil && conn.flushSoon() == nil {
		return nil
	}
	st.conn.Store(nil)
	if !stored {
		return mcp.ErrDisconnected
	}
	return nil
}

func (st *sessionStream) sendAll(ctx context.Context, messages [][]byte) {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.done.Load() {
		return
	}
	conn := st.conn.Load()
	for _, data := range messages {
		if _, err := st.append(ctx, conn, data); err != nil {
			conn = nil
		}
	}
	if conn == nil || conn.flush() != nil {
		st.conn.Store(nil)
	}
}

// append stores a message and adds it to the pending events of the connection, which may be nil. It
// reports whether the message is stored. The caller holds st.mu.
func (st *sessionStream) append(ctx context.Context, conn *eventStream, data []byte) (stored bool, err error) {
	stored = st.storeEvent(ctx, data)
	if conn == nil {
		return stored, mcp.ErrDisconnected
	}
	return stored, conn.append(sse.Event{ID: eventID(st.name(), st.last), HasID: stored, Data: data})
}

// storeEvent numbers a message and stores it. It reports whether it is stored: otherwise its event
// carries no id.
func (st *sessionStream) storeEvent(ctx context.Context, data []byte) bool {
	st.last++
	if st.store == nil || st.sessionEnded.Load() {
		return false
	}
	if err := st.store.Append(ctx, st.key, st.last, data); err != nil {
		st.store.log.error(ctx, "mcphttp: event not stored", err)
		return false
	}
	if st.sessionEnded.Load() { // meanwhile: its events may have been deleted before this event was stored
		st.store.delete(sessionKey{st.key.Session, st.key.Principal})
		return false
	}
	st.stored.Store(st.last)
	st.followers.Load().changed()
	return true
}

func (st *sessionStream) finish(ctx context.Context, data []byte) {
	st.mu.Lock()
	defer st.mu.Unlock()
	// The connection is loaded again: it may be interrupted while the store works.
	stored, _ := st.append(ctx, st.conn.Load(), data)
	st.lost.Store(!stored)
	st.end()
}

func (st *sessionStream) close() {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.end()
}

// leave ends a stream that another process may continue. Lost messages count as an event that no process
// finds in the store.
func (st *sessionStream) leave(lost bool) {
	st.mu.Lock()
	defer st.mu.Unlock()
	if lost {
		st.last++
	}
	st.stored.Store(st.last)
	st.end()
}

// end closes the connection and refuses later messages. The caller holds st.mu.
func (st *sessionStream) end() {
	if conn := st.conn.Swap(nil); conn != nil {
		conn.close()
	}
	st.done.Store(true)
	st.followers.Load().changed()
}

// hangUp closes the connection. The stream continues.
func (st *sessionStream) hangUp(retry time.Duration) error {
	st.mu.Lock()
	defer st.mu.Unlock()
	conn := st.conn.Load()
	switch {
	case conn == nil:
		return nil
	case st.last == 0:
		return errors.ErrUnsupported // without the id of an event the client could not resume
	}
	st.conn.Store(nil)
	if conn.append(sse.Event{Retry: retry, HasRetry: true}) != nil || conn.flush() != nil {
		return nil // it is closed already
	}
	return conn.hangUp()
}

// interrupt breaks the connection without waiting for a write in progress.
func (st *sessionStream) interrupt() {
	if conn := st.conn.Load(); conn != nil {
		conn.interrupt()
	}
}

// wake wakes the goroutine that writes to the connection, if there is one. A goroutine that
// attaches a connection later looks for messages first.
func (st *sessionStream) wake() {
	if conn := st.conn.Load(); conn != nil {
		conn.wake()
	}
}

// attach moves the stream to a new connection and replays the events after the given one. The
// connection before is closed: only a client that read from it knows the name of the stream, and
// that client found it broken. If an event in between is lost the error is [ErrEventGap] and
// no event has been written. A client that read all events can resume even if none is stored.
func (st *sessionStream) attach(ctx context.Context, conn *eventStream, after int64) error {
	st.interrupt()
	st.mu.Lock()
	defer st.mu.Unlock()
	if before := st.conn.Swap(nil); before != nil {
		before.close()
	}
	if after > st.last || st.store == nil {
		return ErrEventGap
	}
	var missed iter.Seq2[[]byte, error] = func(func([]byte, error) bool) {}
	if after < st.last {
		missed = st.store.After(ctx, st.key, after)
	}
	if _, _, err := replay(missed, st.name(), conn, after); err != nil {
		return err
	}
	if st.done.Load() {
		conn.close()
		return nil
	}
	st.conn.Store(conn)
	return nil
}

func (st *sessionStream) detach(conn *eventStream) {
	st.conn.CompareAndSwap(conn, nil)
}

// replay writes the events of a stream after the given one, and opens the connection even if there
// are none. It returns the number of the last event, and its data unless there are none.
func replay(events iter.Seq2[[]byte, error], stream string, conn *eventStream, after int64) (
	last int64, data []byte, err error,
) {
	for data, err = range events {
		if err != nil {
			return after, nil, err
		}
		after++
		if err := conn.append(sse.Event{ID: eventID(stream, after), HasID: true, Data: data}); err != nil {
			return after, nil, err
		}
	}
	return after, data, conn.flush()
}

// eventID returns the id of an event: the name of its stream and its number there. It identifies an
// event only within the session of the stream.
func eventID(stream string, n int64) string { return stream + "-" + strconv.FormatInt(n, 10) }

// parseEventID splits an event id. It accepts exactly the ids that eventID returns.
func parseEventID(id string) (stream string, n int64, ok bool) {
	stream, number, _ := strings.Cut(id, "-")
	if len(stream) != streamNameLen && len(stream) < streamNameLen+nameLen || len(stream) > maxStreamName ||
		stream[0] != callStream && stream[0] != standaloneStream {
		return "", 0, false
	}
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil || n < 1 || strconv.FormatInt(n, 10) != number {
		return "", 0, false
	}
	return stream, n, true
}
