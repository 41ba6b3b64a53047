package mcp

import (
	"context"
	"errors"
	"io"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"

	"github.com/patchbay-mcp/patchbay/internal/linestream"
)

// StreamConnOptions configures [NewStreamConn]. The zero value is right for all known clients and
// servers.
type StreamConnOptions struct {
	// MaxMessage limits the size of a message that is read, in bytes. A longer message is refused,
	// and reading continues with the next. Default: 32 MiB.
	MaxMessage int
}

// NewStreamConn returns a Conn over two byte streams, which may be the two directions of one
// socket. Each message is a line of JSON, as on standard input and output. Close closes r and w if
// they are io.Closers.
//
// Reads and writes end with their context if r and w support deadlines, as sockets and pipes of the
// operating system do. Otherwise a goroutine of the Conn reads from r; it ends when r does.
//
// Spec: basic/transports/stdio (2026-07-28).
func NewStreamConn(r io.Reader, w io.Writer, opts *StreamConnOptions) Conn {
	if opts == nil {
		opts = &StreamConnOptions{}
	}
	return linestream.New(r, w, opts.MaxMessage)
}

// Stdio returns the Conn to the client that started this process. Messages travel over standard
// input and output. Pass it to [Server.Run] or [Serve].
//
// While it is served, os.Stdout is os.Stderr, so that output of the program goes to the client's
// log and does not corrupt the protocol, and SIGINT and SIGTERM end the stream like the end of
// standard input does: requests in progress are answered, then Serve returns. A second signal ends
// the process at once. When Serve returns, os.Stdout and the signal handling are restored; standard
// input and output stay open.
//
// Serve fails if standard input and output are being served already.
//
// Spec: basic/transports/stdio.
func Stdio() Conn {
	return &stdioConn{Conn: linestream.NewStdio(os.Stdin, os.Stdout), stdout: os.Stdout}
}

type stdioConn struct {
	*linestream.Conn
	stdout *os.File
}

// stdioServed is set while a stdioConn is served: the standard streams belong to the process.
var stdioServed atomic.Bool

// beginServing redirects os.Stdout to standard error and ends the returned context on the first
// signal. release undoes both.
func (c *stdioConn) beginServing(ctx context.Context) (reading context.Context, release func(), err error) {
	if !stdioServed.CompareAndSwap(false, true) {
		return nil, nil, errors.New("mcp: standard input and output are being served already")
	}
	os.Stdout = os.Stderr
	reading, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(reading, stop) // the next signal ends the process
	return reading, func() {
		stop()
		os.Stdout = c.stdout
		stdioServed.Store(false)
	}, nil
}
