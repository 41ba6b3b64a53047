package sse

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math/bits"
	"time"
)

const (
	// chunkBytes is how much is read at a time.
	chunkBytes = 16 << 10

	// maxField bounds the lines other than data: an id goes back in a header, and a type is a word.
	maxField = 4 << 10

	// smallEvent is up to which size data is copied out, so that the buffer can be used again.
	smallEvent = 16 << 10
)

// ErrEventTooLarge ends a stream with an event that is larger than its reader allows, or has an id or type of more
// than 4 KiB.
var ErrEventTooLarge = errors.New("event is too large")

// A Reader takes an event stream apart. It holds at most one event of the size that it was given, and 64 KiB.
// It is not safe for concurrent use.
type Reader struct {
	src      *bufio.Reader
	maxEvent int
	err      error // what ended the stream

	buf     []byte // the data lines of the event so far, each with its "\n", then the line that is being read
	line    int    // where in buf that line begins
	afterCR bool   // a "\n" would still belong to the line before
	started bool   // the first line is behind, and with it the place of a byte order mark
	event   Event  // the event so far, but for its data

	lastID   string
	retry    time.Duration
	hasRetry bool
}

// NewReader returns a reader of the events in r. maxEvent is the largest size of an event's data, in bytes.
func NewReader(r io.Reader, maxEvent int) *Reader {
	return &Reader{src: bufio.NewReaderSize(r, chunkBytes), maxEvent: maxEvent}
}

// Next returns the next event that has data. It blocks until the event is complete, and no longer. The data belongs to
// the caller.
//
// At the end of the stream the error is [io.EOF], also when an event was cut short, which is then as if it had never
// begun. [ErrEventTooLarge] and errors of the stream itself end the stream: every later call returns the same.
func (r *Reader) Next() (Event, error) {
	for r.err == nil {
		ended, err := r.readLine()
		if !ended || err != nil {
			r.err = err
			continue
		}
		line := r.takeLine()
		if len(line) == 0 {
			if e, ok := r.endEvent(); ok {
				return e, nil
			}
			continue
		}
		r.err = r.addField(line)
	}
	r.buf = nil
	return Event{}, r.err
}

// LastEventID returns the id to resume the stream after: of the last complete event that had one, with data or not.
// It is empty when there was none.
func (r *Reader) LastEventID() string {
	return r.lastID
}

// Retry returns the reconnection time that the stream asked for last, and whether it ever did.
func (r *Reader) Retry() (time.Duration, bool) {
	return r.retry, r.hasRetry
}

// readLine reads on in the line that stands at the end of buf, by one chunk at most, and reports whether it ended.
func (r *Reader) readLine() (ended bool, err error) {
	if _, err := r.src.Peek(1); err != nil {
		return false, err
	}
	chunk, _ := r.src.Peek(r.src.Buffered())
	if r.afterCR && chunk[0] == '\n' {
		r.afterCR = false
		_, err = r.src.Discard(1)
		return false, err
	}
	n := lineLength(chunk)
	if err := r.reserve(n); err != nil {
		return false, err
	}
	r.buf = append(r.buf, chunk[:n]...)
	r.afterCR = false
	if n < len(chunk) {
		ended = true
		r.afterCR = chunk[n] == '\r'
		n++
	}
	_, err = r.src.Discard(n)
	return ended, err
}

// reserve makes room for n bytes. Beside an event of full size there is room for one other line.
func (r *Reader) reserve(n int) error {
	limit := r.maxEvent + maxField
	need := len(r.buf) + n
	if need > limit {
		return ErrEventTooLarge
	}
	if need > cap(r.buf) {
		// Doubled as append would do it, but never past the limit.
		larger := make([]byte, len(r.buf), min(max(2*cap(r.buf), need, 512), limit))
		copy(larger, r.buf)
		r.buf = larger
	}
	return nil
}

// takeLine takes the line that has ended off buf. It stays as it is until buf grows again.
func (r *Reader) takeLine() []byte {
	line := r.buf[r.line:]
	r.buf = r.buf[:r.line]
	if !r.started {
		r.started = true
		line = bytes.TrimPrefix(line, []byte("\uFEFF"))
	}
	return line
}

// addField adds a line to the event. Comments are fields without a name, and like all unknown fields they are ignored.
func (r *Reader) addField(line []byte) error {
	name, value, _ := bytes.Cut(line, []byte{':'})
	value = bytes.TrimPrefix(value, []byte{' '})
	switch string(name) {
	case "data":
		if len(r.buf)+len(value) > r.maxEvent {
			return ErrEventTooLarge
		}
		r.buf = append(append(r.buf, value...), '\n') // moves value to the front of its own line
		r.line = len(r.buf)
	case "event":
		if len(value) > maxField {
			return ErrEventTooLarge
		}
		r.event.Type = string(value)
	case "id":
		if len(value) > maxField {
			return ErrEventTooLarge
		}
		if bytes.IndexByte(value, 0) < 0 {
			r.event.ID, r.event.HasID = string(value), true
		}
	case "retry":
		if d, ok := parseRetry(value); ok {
			r.event.Retry, r.event.HasRetry = d, true
			r.retry, r.hasRetry = d, true
		}
	}
	return nil
}

func parseRetry(digits []byte) (d time.Duration, ok bool) {
	for _, c := range digits {
		if c < '0' || c > '9' {
			return 0, false
		}
		d = min(10*d+time.Duration(c-'0')*time.Millisecond, MaxRetry)
	}
	return d, len(digits) > 0
}

// endEvent ends the event at its blank line. Without data it is none, but its id counts.
func (r *Reader) endEvent() (Event, bool) {
	e := r.event
	r.event = Event{}
	if e.HasID {
		r.lastID = e.ID
	}
	if r.line == 0 {
		return Event{}, false
	}
	if e.Type == "" {
		e.Type = DefaultType
	}
	data := r.buf[:r.line-1]
	r.buf, r.line = r.buf[:0], 0
	if len(data) <= smallEvent {
		e.Data = bytes.Clone(data)
	} else {
		e.Data = data[:len(data):len(data)]
		r.buf = nil
	}
	return e, true
}

const (
	lowBits  = 0x0101010101010101 // the lowest bit of each of eight bytes
	highBits = 0x8080808080808080 // the highest bit of each of eight bytes
)

// lineLength returns the number of bytes before the first "\r" or "\n". It looks for both at once: one after the other
// would take quadratic time on a stream that has only one of them.
func lineLength(chunk []byte) int {
	at := 0
	for ; at+8 <= len(chunk); at += 8 {
		x := binary.LittleEndian.Uint64(chunk[at:])
		lf := x ^ '\n'*lowBits
		cr := x ^ '\r'*lowBits
		// The lowest bit that is set belongs to the first zero byte of either. Bytes above it may be wrong.
		if stop := ((lf-lowBits)&^lf | (cr-lowBits)&^cr) & highBits; stop != 0 {
			return at + bits.TrailingZeros64(stop)/8
		}
	}
	for ; at < len(chunk) && chunk[at] != '\n' && chunk[at] != '\r'; at++ {
	}
	return at
}
