// Package linestream carries JSON-RPC messages over byte streams, a message per line.
//
// Spec: basic/transports/stdio (2026-07-28).
package linestream

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/peer"
	"github.com/patchbay-mcp/patchbay/jsonrpc"
)

// DefaultMaxMessage is several times the size of the largest content that is sensible within JSON.
const DefaultMaxMessage = 32 << 20

// ErrLineTooLong is within the error of a Read that discarded a line over the limit.
var ErrLineTooLong = errors.New("line is too long")

// A Conn reads and writes messages as lines over two byte streams. Its methods are safe for
// concurrent use, except that a single goroutine reads at a time.
type Conn struct {
	// Line, unless nil, is called with each line that is about to be written or was read, without its
	// line feed. It must be set before the first use. Then WriteLines must write single lines only.
	Line func(sent bool, text []byte)

	r     io.Reader
	lines lineReader

	writing     chan struct{} // holds a token while a message is written; guards the fields below
	w           io.Writer
	setDeadline func(time.Time) error // nil if w lacks deadlines
	broken      error                 // set once a message was written in part

	once   sync.Once
	closed chan struct{}
}

// New returns a Conn that reads from r and writes to w. A message of more than maxMessage bytes is
// refused; zero means [DefaultMaxMessage].
//
// Reads and writes end with their context if r and w support deadlines. If r does not, a separate
// goroutine reads from it; that goroutine ends when r does, or at its first read after Close.
func New(r io.Reader, w io.Writer, maxMessage int) *Conn {
	if maxMessage <= 0 {
		maxMessage = DefaultMaxMessage
	}
	c := &Conn{r: r, w: w, writing: make(chan struct{}, 1), closed: make(chan struct{})}
	c.lines.limit = maxMessage
	if d, ok := w.(interface{ SetWriteDeadline(time.Time) error }); ok && d.SetWriteDeadline(time.Time{}) == nil {
		c.setDeadline = d.SetWriteDeadline
	}
	if d, ok := r.(interface{ SetReadDeadline(time.Time) error }); ok && d.SetReadDeadline(time.Time{}) == nil {
		c.lines.read = (&deadlineSource{r: r, setDeadline: d.SetReadDeadline, buf: make([]byte, chunkSize)}).next
	} else {
		c.lines.read = (&pump{r: r, closed: c.closed, filled: make(chan []byte), free: make(chan []byte, 2)}).next
	}
	return c
}

// NewStdio returns a Conn over the standard input and output of this process, which Close leaves
// open.
func NewStdio(in, out *os.File) *Conn {
	w := struct{ io.Writer }{out}
	if polled := openPolled(in); polled != nil {
		return New(polled, w, 0)
	}
	// Standard input is not closed: on some systems Close waits for a pending read.
	return New(struct{ io.Reader }{in}, w, 0)
}

// Read returns the next message. See mcp.Conn for its errors.
func (c *Conn) Read(ctx context.Context) (*jsonrpc.Message, error) {
	line, err := c.ReadLine(ctx)
	if err != nil {
		return nil, err
	}
	return jsonrpc.Decode(line)
}

// ReadLine is like Read, but returns the message undecoded.
func (c *Conn) ReadLine(ctx context.Context) ([]byte, error) {
	line, err := c.lines.next(ctx)
	switch {
	case err == nil:
		if c.Line != nil {
			c.Line(false, line)
		}
		return line, nil
	case errors.Is(err, ErrLineTooLong):
		message := fmt.Sprintf("invalid request: longer than %d bytes", c.lines.limit)
		refused := &jsonrpc.DecodeError{Err: &jsonrpc.Error{Code: jsonrpc.CodeInvalidRequest, Message: message}}
		return nil, fmt.Errorf("%w: %w", refused, err)
	case errors.Is(err, io.EOF):
		return nil, io.EOF
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case peer.IsClosed(c.closed):
		return nil, peer.ErrClosed
	}
	return nil, fmt.Errorf("%w: %w", peer.ErrDisconnected, err)
}

// HasLine reports whether Read returns at once, with a message or a refusal. It must not be called
// during a Read.
func (c *Conn) HasLine() bool { return c.lines.hasNext() }

// Write writes a message.
func (c *Conn) Write(ctx context.Context, m *jsonrpc.Message) error {
	const overhead = 128 // of the members around params or result
	line := make([]byte, 0, len(m.Params)+len(m.Result)+overhead)
	return c.WriteLines(ctx, append(jsonrpc.Append(line, m), '\n'))
}

// HasWriteDeadline reports whether a blocked write ends with its context.
func (c *Conn) HasWriteDeadline() bool { return c.setDeadline != nil }

// InterruptWrite makes a blocked write fail, if the writer supports deadlines. No other write must
// follow.
func (c *Conn) InterruptWrite() {
	if c.setDeadline != nil {
		_ = c.setDeadline(longPast)
	}
}

// WriteLines writes messages that are encoded as lines already, in a single write.
func (c *Conn) WriteLines(ctx context.Context, lines []byte) error {
	select {
	case c.writing <- struct{}{}:
		defer func() { <-c.writing }()
	case <-ctx.Done():
	case <-c.closed:
	}
	switch {
	case peer.IsClosed(c.closed):
		return peer.ErrClosed
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case c.broken != nil:
		return c.broken
	}
	if c.Line != nil {
		c.Line(true, bytes.TrimSuffix(lines, []byte{'\n'}))
	}
	stop := interruptWith(ctx, c.setDeadline)
	n, err := c.w.Write(lines)
	stop()
	if err == nil {
		return nil
	}
	if ctx.Err() != nil && errors.Is(err, os.ErrDeadlineExceeded) {
		err = context.Cause(ctx)
	} else {
		err = fmt.Errorf("%w: %w", peer.ErrDisconnected, err)
	}
	if n == 0 {
		return &UnsentError{err}
	}
	// Part of a line was written: the peer would read whatever follows as the rest of it.
	c.broken = &UnsentError{fmt.Errorf("%w: a message was written in part", peer.ErrDisconnected)}
	return err
}

// An UnsentError reports that no byte of a message was written.
type UnsentError struct{ Err error }

// Error returns the text of the reason.
func (e *UnsentError) Error() string { return e.Err.Error() }

// Unwrap returns the reason.
func (e *UnsentError) Unwrap() error { return e.Err }

// Closed returns a channel that is closed when the Conn is.
func (c *Conn) Closed() <-chan struct{} { return c.closed }

// Close closes the reader and the writer, if they are io.Closers.
func (c *Conn) Close() error {
	var err error
	c.once.Do(func() {
		close(c.closed)
		if w, ok := c.w.(io.Closer); ok {
			err = w.Close()
		}
		if r, ok := c.r.(io.Closer); ok {
			_ = r.Close() // it may be w, and a failure to close a reader loses no data
		}
	})
	return err
}
