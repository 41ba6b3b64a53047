package mcp

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// Stdio returns the Conn to the client that started this process: messages on standard input and output. It is for
// [Server.Run], and called once.
//
// From then on os.Stdout is os.Stderr, so that what the program prints goes to the client's log and not between the
// messages. The stream ends with standard input, and just so when the process is told to end by SIGINT or SIGTERM:
// requests in progress are answered, then [Server.Run] returns. A second signal ends the process at once.
//
// It panics if standard output is given away already.
//
// Spec: basic/transports/stdio.
func Stdio() Conn {
	in, out := os.Stdin, os.Stdout
	if out == os.Stderr {
		panic("mcp: Stdio: os.Stdout is os.Stderr: Stdio was called before")
	}
	os.Stdout = os.Stderr
	signalled, release := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(signalled, release)
	c := newStreamConn(nil, out, 0) // standard input is not closed: on some systems that waits for a read to end
	c.lines.source = newPump(in, c.closed, signalled.Done())
	if polled := openPolled(in); polled != nil {
		c.r = polled
		c.lines.source = &deadlineSource{
			r: polled, setDeadline: polled.SetReadDeadline, stopped: signalled.Done(), buf: make([]byte, chunkSize),
		}
		context.AfterFunc(signalled, func() { _ = polled.SetReadDeadline(time.Unix(1, 0)) }) // long past
	}
	return &stdioConn{streamConn: c, release: release}
}

// A stdioConn listens to signals as long as it is open.
type stdioConn struct {
	*streamConn
	release func()
}

func (c *stdioConn) Close() error {
	c.release()
	return c.streamConn.Close()
}
