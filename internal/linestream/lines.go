package linestream

import (
	"bytes"
	"context"
	"errors"
	"io"

	"github.com/patchbay-mcp/patchbay/internal/readbuf"
)

// chunkSize is the size of a read. A pipe holds no more on most systems, and two chunks stay
// within the 64 KiB that a reader may hold in addition to its longest line.
const chunkSize = 32 << 10

// A lineReader splits a stream into lines. However long the lines are, it holds at most its limit
// and the buffers of its source, or four times the received part of a line where that is less than
// the limit.
type lineReader struct {
	// read returns the next bytes of the stream, which are valid until the next call. It can be
	// called again after a context ended.
	read   func(ctx context.Context) ([]byte, error)
	limit  int            // of one line, in bytes
	unread []byte         // read and not split yet
	long   readbuf.Buffer // the beginning of a line whose end was not read
	skip   bool           // discard up to the end of a line that was too long
	begun  bool           // a line was read
}

// byteOrderMark may be at the beginning of a stream, where programs on Windows write it. A reader
// may ignore it. Spec: RFC 8259, section 8.1.
var byteOrderMark = []byte("\ufeff")

// next returns the next line that is not blank, without its line feed. The caller owns the line.
// The error is ErrLineTooLong, once, for a line over the limit, and io.EOF at the end. The last
// line needs no line feed.
func (l *lineReader) next(ctx context.Context) ([]byte, error) {
	if line, err := l.cut(); line != nil || err != nil {
		return line, err
	}
	for {
		var err error
		if l.unread, err = l.read(ctx); errors.Is(err, io.EOF) {
			if line := l.join(nil); !isBlank(line) {
				return line, nil
			}
		}
		if err != nil {
			return nil, err
		}
		if line, err := l.cut(); line != nil || err != nil {
			return line, err
		}
	}
}

// cut returns the next complete line of the read bytes, or nil.
func (l *lineReader) cut() ([]byte, error) {
	for {
		part, rest, ended := bytes.Cut(l.unread, []byte{'\n'})
		l.unread = rest
		switch {
		case l.skip:
			l.skip = !ended
		case l.long.Len()+len(part) > l.limit:
			l.long.Reset()
			l.skip = !ended
			return nil, ErrLineTooLong
		case !ended:
			l.long.Limit = int64(l.limit)
			l.long.Add(part)
		default:
			if line := l.join(part); !isBlank(line) {
				return line, nil
			}
		}
		if !ended {
			return nil, nil
		}
	}
}

// hasNext reports whether next returns a line or ErrLineTooLong without reading.
func (l *lineReader) hasNext() bool {
	for l.begun && !l.skip && l.long.Len() == 0 {
		line, rest, ended := bytes.Cut(l.unread, []byte{'\n'})
		if !ended || len(line) > l.limit || !isBlank(line) {
			return ended
		}
		l.unread = rest
	}
	return false
}

// join returns a copy of the line that ends with part.
func (l *lineReader) join(part []byte) []byte {
	var line []byte
	if l.long.Len() == 0 {
		line = bytes.Clone(part)
	} else {
		l.long.Add(part)
		line = l.long.Drain()
	}
	if !l.begun {
		l.begun, line = true, bytes.TrimPrefix(line, byteOrderMark)
	}
	return line
}

// isBlank reports whether a line holds only JSON white space.
func isBlank(line []byte) bool { return len(bytes.Trim(line, " \t\r")) == 0 }
