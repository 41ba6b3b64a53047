package sse

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"io"
	"math/bits"
	"time"
)

const (
	// chunkBytes is the size of a read.
	chunkBytes = 16 << 10

	// maxField limits lines other than data.
	maxField = 4 << 10

	// smallEvent is the size up to which data is copied, so that the buffer can be reused.
	smallEvent = 16 << 10
)

// ErrEventTooLarge is returned for an event whose data exceeds the limit of the reader, or whose id
// or type exceeds 4 KiB. It ends the stream.
var ErrEventTooLarge = errors.New("event is too large")

// A Reader decodes an event stream. It buffers at most an event of the maximum size and 64 KiB. It
// is not safe for concurrent use.
type Reader struct {
	src      *bufio.Reader
	maxEvent int
	err      error // the error that ended the stream

	buf     []byte // the data lines of the event so far, each with its "\n", then the current line
	line    int    // the offset of the current line in buf
	afterCR bool   // a "\n" that follows belongs to the previous line
	started bool   // the first line, which may begin with a byte order mark, was read
	event   Event  // the event so far, without its data

	lastID   string
	retry    time.Duration
	hasRetry bool
}

// NewReader returns a reader of the events in r. maxEvent is the maximum size of an event's data,
// in bytes.
func NewReader(r io.Reader, maxEvent int) *Reader {
	return &Reader{src: bufio.NewReaderSize(r, chunkBytes), maxEvent: maxEvent}
}

// Next returns the next event with data. It blocks until the event is complete. The caller owns
// the data.
//
// At the end of the stream, the error is [io.EOF]; an incomplete event is discarded.
// [ErrEventTooLarge] and errors of r end the stream: every later call returns the same error.
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

// LastEventID returns the id from which to resume the stream: that of the last complete event with
// an id, with data or not. It is empty without an id.
func (r *Reader) LastEventID() string {
	return r.lastID
}

// Retry returns the last reconnection time that the stream set, and whether it set any.
func (r *Reader) Retry() (time.Duration, bool) {
	return r.retry, r.hasRetry
}

// readLine reads up to a chunk of the current line into buf, and reports whether the line
// ended.
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

// reserve makes space for n bytes: at most for an event of the maximum size and another line.
func (r *Reader) reserve(n int) error {
	limit := r.maxEvent + maxField
	need := len(r.buf) + n
	if need > limit {
		return ErrEventTooLarge
	}
	if need > cap(r.buf) {
		// Doubled as append does, but never beyond the limit.
		larger := make([]byte, len(r.buf), min(max(2*cap(r.buf), need, 512), limit))
		copy(larger, r.buf)
		r.buf = larger
	}
	return nil
}

// takeLine removes the complete line from buf. It is valid until buf grows again.
func (r *Reader) takeLine() []byte {
	line := r.buf[r.line:]
	r.buf = r.buf[:r.line]
	if !r.started {
		r.started = true
		line = bytes.TrimPrefix(line, []byte("\uFEFF"))
	}
	return line
}

// addField adds a line to the event. It ignores comments, which are fields without a name, and
// unknown fields.
func (r *Reader) addField(line []byte) error {
	name, value, _ := bytes.Cut(line, []byte{':'})
	value = bytes.TrimPrefix(value, []byte{' '})
	switch string(name) {
	case "data":
		if len(r.buf)+len(value) > r.maxEvent {
			return ErrEventTooLarge
		}
		r.buf = append(append(r.buf, value...), '\n') // moves value to the beginning of its line
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

// endEvent ends the event at a blank line. An event without data is not returned, but its id is
// kept.
func (r *Reader) endEvent() (Event, bool) {
	e := r.event
	r.event = Event{}
	if e.HasID {
		r.lastID = e.ID
	}
	if r.line == 0 {
		return Event{}, false
	}
	e.Type = cmp.Or(e.Type, DefaultType)
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
	lowBits  = 0x0101010101010101 // of each of eight bytes
	highBits = 0x8080808080808080 // of each of eight bytes
)

// lineLength returns the number of bytes before the first "\r" or "\n". It searches for both at
// once: separate searches would take quadratic time on a stream that contains only one of them.
func lineLength(chunk []byte) int {
	at := 0
	for ; at+8 <= len(chunk); at += 8 {
		x := binary.LittleEndian.Uint64(chunk[at:])
		lf := x ^ '\n'*lowBits
		cr := x ^ '\r'*lowBits
		// The lowest set bit belongs to the first match. Higher bytes may be wrong.
		if stop := ((lf-lowBits)&^lf | (cr-lowBits)&^cr) & highBits; stop != 0 {
			return at + bits.TrailingZeros64(stop)/8
		}
	}
	for ; at < len(chunk) && chunk[at] != '\n' && chunk[at] != '\r'; at++ {
	}
	return at
}
