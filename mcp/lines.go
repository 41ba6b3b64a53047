package mcp

import (
	"bytes"
	"context"
	"errors"
	"io"

	"github.com/patchbay-mcp/patchbay/internal/gather"
)

// chunkSize is how much is read at once: as much as a pipe holds on most systems is of no further use. Two of them stay
// within the 64 KiB that a reader may hold beside its longest line.
const chunkSize = 32 << 10

var (
	errLineTooLong = errors.New("line is too long")
	// errStopped ends a source before the peer does. A line that is not whole by then never will be, and is no message.
	errStopped = errors.New("stopped")
)

// A source gives the bytes of a stream, some at a time. It may be asked again after its context has ended.
type source interface {
	// next returns bytes that are valid until the next call.
	next(ctx context.Context) ([]byte, error)
	// bind makes what is asked for end with ctx, until it is released.
	bind(ctx context.Context) (release func())
}

// A directSource can read into its caller's memory as well.
type directSource interface {
	source
	read(ctx context.Context, p []byte) (int, error)
}

// A lineReader cuts a stream into lines. It holds no more than its limit and what its source holds, however long the
// lines are, or four times what has arrived of a line where that is less than the limit.
type lineReader struct {
	source source
	limit  int           // bytes of a line
	rest   []byte        // given by the source and not looked at
	long   gather.Buffer // the beginning of a line that ends further on
	skip   bool          // up to the end of a line that was too long
}

// next returns the next line that is not blank, without its end. The line is the caller's. The error is errLineTooLong,
// once, for a line that is over the limit, and io.EOF at the end; a last line needs no end.
func (l *lineReader) next(ctx context.Context) ([]byte, error) {
	if line, err := l.cut(); line != nil || err != nil {
		return line, err
	}
	defer l.source.bind(ctx)()
	for {
		if err := l.read(ctx); err != nil {
			if errors.Is(err, io.EOF) {
				if line := l.take(nil); !blank(line) {
					return line, nil
				}
			}
			return nil, err
		}
		if line, err := l.cut(); line != nil || err != nil {
			return line, err
		}
	}
}

// cut returns the next line that ends in what is read already, nil if there is none.
func (l *lineReader) cut() ([]byte, error) {
	for {
		part, rest, ended := bytes.Cut(l.rest, []byte{'\n'})
		l.rest = rest
		switch {
		case l.skip:
			l.skip = !ended
		case l.long.Len()+len(part) > l.limit:
			l.long.Drop()
			l.skip = !ended
			return nil, errLineTooLong
		case !ended:
			l.long.Limit = int64(l.limit)
			l.long.Add(part)
		default:
			if line := l.take(part); !blank(line) {
				return line, nil
			}
		}
		if !ended {
			return nil, nil
		}
	}
}

// read asks the source once. The middle of a long line goes straight to its beginning.
func (l *lineReader) read(ctx context.Context) (err error) {
	direct, ok := l.source.(directSource)
	left := l.limit - l.long.Len()
	if !ok || l.long.Len() == 0 || left == 0 {
		l.rest, err = l.source.next(ctx)
		return err
	}
	space := l.long.Space(-1)
	space = space[:min(len(space), left, chunkSize)]
	n, err := direct.read(ctx, space)
	if err != nil {
		return err
	}
	if end := bytes.IndexByte(space[:n], '\n'); end >= 0 {
		l.rest = bytes.Clone(space[end:n]) // what follows is not the line's
		n = end
	}
	l.long.Filled(n)
	return nil
}

// hasNext reports whether next gives a line, or refuses one, without asking the source.
func (l *lineReader) hasNext() bool {
	for !l.skip && l.long.Len() == 0 {
		line, rest, ended := bytes.Cut(l.rest, []byte{'\n'})
		if !ended || len(line) > l.limit || !blank(line) {
			return ended
		}
		l.rest = rest
	}
	return false
}

// take returns the line that ends with the part, in memory of its own.
func (l *lineReader) take(part []byte) []byte {
	if l.long.Len() == 0 {
		return bytes.Clone(part)
	}
	l.long.Add(part)
	return l.long.Take()
}

// blank reports whether a line holds nothing but what JSON takes for white space.
func blank(line []byte) bool { return len(bytes.Trim(line, " \t\r")) == 0 }
