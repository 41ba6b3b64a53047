package mcp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/patchbay-mcp/patchbay/jsonrpc"
)

const (
	// defaultMaxMessage is room for the largest content that is sensible within JSON, several times over. A larger one
	// costs its receiver more memory than a peer may ask for unasked.
	defaultMaxMessage = 32 << 20
	// keptBuffer is how much memory a stream keeps for what it writes next, and how much it gathers before it writes.
	keptBuffer = 64 << 10
)

// StreamOptions configures a stream. The zero value is right for all known peers.
type StreamOptions struct {
	// MaxMessage is the length in bytes of the longest message that is read; a longer one is refused, and the next one
	// read as ever. Default: 32 MiB.
	MaxMessage int
}

// NewStream returns a Conn over two streams of bytes, which may be the two directions of one socket. Each message is one
// line of JSON, as on standard input and output. Close closes r and w if they can be closed.
//
// Writing and reading end with their context if w and r have deadlines, as sockets and pipes of the operating system do.
// A reader without them is read from by a goroutine of the stream's own, which ends when the reader does.
//
// Spec: basic/transports/stdio (2026-07-28).
func NewStream(r io.Reader, w io.Writer, opts *StreamOptions) Conn {
	if opts == nil {
		opts = &StreamOptions{}
	}
	c := newStreamConn(r, w, opts.MaxMessage)
	if d, ok := r.(interface{ SetReadDeadline(time.Time) error }); ok && d.SetReadDeadline(time.Time{}) == nil {
		c.lines.source = &deadlineSource{r: r, setDeadline: d.SetReadDeadline, buf: make([]byte, chunkSize)}
	} else {
		c.lines.source = newPump(r, c.closed, nil)
	}
	return c
}

// A streamConn is messages as lines over two streams of bytes.
type streamConn struct {
	r     io.Reader
	lines lineReader

	writing     chan struct{} // holds a token while a message is written; guards the fields below
	w           io.Writer
	setDeadline func(time.Time) error // nil if w has no deadlines
	buf         []byte
	broken      error // why nothing can be written any more

	once   sync.Once
	closed chan struct{}
}

func newStreamConn(r io.Reader, w io.Writer, maxMessage int) *streamConn {
	if maxMessage <= 0 {
		maxMessage = defaultMaxMessage
	}
	c := &streamConn{r: r, w: w, writing: make(chan struct{}, 1), closed: make(chan struct{})}
	c.lines.limit = maxMessage
	if d, ok := w.(interface{ SetWriteDeadline(time.Time) error }); ok && d.SetWriteDeadline(time.Time{}) == nil {
		c.setDeadline = d.SetWriteDeadline
	}
	return c
}

func (c *streamConn) Read(ctx context.Context) (*jsonrpc.Message, error) {
	line, err := c.readLine(ctx)
	if err != nil {
		return nil, err
	}
	return jsonrpc.Decode(line)
}

// readLine is Read before the message is looked at.
func (c *streamConn) readLine(ctx context.Context) ([]byte, error) {
	line, err := c.lines.next(ctx)
	switch {
	case err == nil:
		return line, nil
	case errors.Is(err, errLineTooLong):
		refused := &jsonrpc.DecodeError{Err: Errorf(CodeInvalidRequest, "invalid request: longer than %d bytes", c.lines.limit)}
		return nil, fmt.Errorf("%w: %w", refused, err)
	case errors.Is(err, io.EOF), errors.Is(err, errStopped):
		return nil, io.EOF
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case isClosed(c.closed):
		return nil, ErrClosed
	}
	return nil, fmt.Errorf("%w: %w", ErrDisconnected, err)
}

// hasLine reports whether Read gives a message or refuses one without waiting.
func (c *streamConn) hasLine() bool { return c.lines.hasNext() }

func (c *streamConn) Write(ctx context.Context, m *jsonrpc.Message) error {
	if err := c.lock(ctx); err != nil {
		return err
	}
	defer c.unlock()
	c.buf = append(jsonrpc.Append(c.buf[:0], m), '\n')
	err := c.writeLocked(ctx, c.buf)
	if cap(c.buf) > keptBuffer {
		c.buf = nil
	}
	return err
}

// writeLines is Write for messages that are lines already.
func (c *streamConn) writeLines(ctx context.Context, lines []byte) error {
	if err := c.lock(ctx); err != nil {
		return err
	}
	defer c.unlock()
	return c.writeLocked(ctx, lines)
}

// lock waits until nothing else is written.
func (c *streamConn) lock(ctx context.Context) (err error) {
	select {
	case c.writing <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-c.closed:
		return ErrClosed
	}
	switch {
	case isClosed(c.closed):
		err = ErrClosed
	case c.broken != nil:
		err = c.broken
	case ctx.Err() != nil:
		err = context.Cause(ctx)
	}
	if err != nil {
		c.unlock()
	}
	return err
}

func (c *streamConn) unlock() { <-c.writing }

// isBound reports whether a write that waits ends with its context.
func (c *streamConn) isBound() bool { return c.setDeadline != nil }

// writeLocked writes lines, with the lock held.
func (c *streamConn) writeLocked(ctx context.Context, lines []byte) error {
	end := endWith(ctx, c.setDeadline)
	n, err := c.w.Write(lines)
	end()
	if err == nil {
		return nil
	}
	if ctx.Err() != nil && errors.Is(err, os.ErrDeadlineExceeded) {
		err = context.Cause(ctx)
	} else {
		err = fmt.Errorf("%w: %w", ErrDisconnected, err)
	}
	if n == 0 {
		return &unsentError{err}
	}
	// Part of a line is out: what followed would be read as the rest of it.
	c.broken = &unsentError{fmt.Errorf("%w: a message was cut off", ErrDisconnected)}
	return err
}

// An unsentError says that nothing of a message has left.
type unsentError struct{ err error }

func (e *unsentError) Error() string { return e.err.Error() }
func (e *unsentError) Unwrap() error { return e.err }

func (c *streamConn) Close() error {
	var err error
	c.once.Do(func() {
		close(c.closed)
		if w, ok := c.w.(io.Closer); ok {
			err = w.Close()
		}
		if r, ok := c.r.(io.Closer); ok {
			_ = r.Close() // it may be w; and that nothing more can be read is no failure
		}
	})
	return err
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// endWith makes reads and writes under a deadline end with ctx, until the returned function is called.
func endWith(ctx context.Context, setDeadline func(time.Time) error) (stop func()) {
	if setDeadline == nil || ctx.Done() == nil {
		return func() {}
	}
	moved := make(chan struct{})
	cancel := context.AfterFunc(ctx, func() {
		_ = setDeadline(time.Unix(1, 0)) // long past
		close(moved)
	})
	return func() {
		if !cancel() {
			<-moved
			_ = setDeadline(time.Time{})
		}
	}
}

// A deadlineSource reads in the goroutine that wants to read.
type deadlineSource struct {
	r           io.Reader
	setDeadline func(time.Time) error
	stopped     <-chan struct{} // ends reading before the reader does, by a deadline that passes then; nil for never
	buf         []byte
}

func (s *deadlineSource) bind(ctx context.Context) (release func()) {
	return endWith(ctx, s.setDeadline)
}

func (s *deadlineSource) next(ctx context.Context) ([]byte, error) {
	n, err := s.read(ctx, s.buf)
	return s.buf[:n], err
}

func (s *deadlineSource) read(ctx context.Context, p []byte) (int, error) {
	switch {
	case ctx.Err() != nil:
		return 0, context.Cause(ctx)
	case isClosed(s.stopped):
		return 0, errStopped
	}
	n, err := readSome(s.r, p)
	if err != nil && isClosed(s.stopped) {
		return 0, errStopped
	}
	return n, err
}

// readSome reads at least one byte, or gives the error.
func readSome(r io.Reader, p []byte) (int, error) {
	const tries = 100 // of a reader that gives neither bytes nor an error
	for range tries {
		if n, err := r.Read(p); n > 0 {
			return n, nil
		} else if err != nil {
			return 0, err
		}
	}
	return 0, io.ErrNoProgress
}

// A pump reads in a goroutine of its own, because nothing can end a read that waits. It starts with the first read and
// ends with the reader, or at the first read after closed.
type pump struct {
	r       io.Reader
	closed  <-chan struct{} // of the stream
	stopped <-chan struct{} // ends reading before the reader does; nil for never
	start   sync.Once
	filled  chan []byte
	free    chan []byte // two buffers: one is read into while the other is looked at
	lent    []byte      // the one that is looked at
	err     error       // why filled was closed
}

func newPump(r io.Reader, closed, stopped <-chan struct{}) *pump {
	return &pump{r: r, closed: closed, stopped: stopped, filled: make(chan []byte), free: make(chan []byte, 2)}
}

// bind has nothing to do: next looks at its context.
func (p *pump) bind(context.Context) (release func()) { return func() {} }

func (p *pump) next(ctx context.Context) ([]byte, error) {
	p.start.Do(func() {
		p.free <- make([]byte, chunkSize)
		p.free <- make([]byte, chunkSize)
		go p.run()
	})
	if p.lent != nil {
		p.free <- p.lent
		p.lent = nil
	}
	if isClosed(p.stopped) {
		return nil, errStopped
	}
	select {
	case b, ok := <-p.filled:
		if !ok {
			return nil, p.err
		}
		p.lent = b[:cap(b)]
		return b, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-p.stopped:
		return nil, errStopped
	case <-p.closed:
		return nil, ErrClosed
	}
}

func (p *pump) run() {
	defer close(p.filled)
	p.err = ErrClosed
	for {
		var buf []byte
		select {
		case buf = <-p.free:
		case <-p.closed:
			return
		}
		n, err := readSome(p.r, buf)
		if err != nil {
			p.err = err
			return
		}
		select {
		case p.filled <- buf[:n]:
		case <-p.closed:
			return
		}
	}
}
