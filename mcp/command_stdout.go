package mcp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"
)

const (
	// outputPatience is how long a read waits for more of what a server has written before it ended. All of that is in the
	// pipe, so nothing has to be waited for; but another process may hold the pipe open, and then nothing tells its end.
	outputPatience = 250 * time.Millisecond
	// outputLeft is how much of it there can be: more than a pipe holds on any system. What comes after is of other
	// processes.
	outputLeft = 1 << 20
)

// output returns the bytes that the server writes.
func (c *child) output() source {
	if c.stdout.SetReadDeadline(time.Time{}) != nil {
		// All processes that could hold the pipe open are in the job that ends with the server.
		return newPump(c.stdout, c.stream.closed, nil)
	}
	return &childOutput{
		from:   deadlineSource{r: c.stdout, setDeadline: c.stdout.SetReadDeadline, buf: make([]byte, chunkSize)},
		exited: c.exited,
		left:   outputLeft,
	}
}

// A childOutput ends when the server has ended and what it has written is read, though other processes may hold its output
// open.
type childOutput struct {
	from   deadlineSource
	exited <-chan struct{}
	left   int // bytes that may be read after the end of the server
}

func (o *childOutput) bind(ctx context.Context) (release func()) { return o.from.bind(ctx) }

func (o *childOutput) next(ctx context.Context) ([]byte, error) {
	n, err := o.read(ctx, o.from.buf)
	return o.from.buf[:n], err
}

func (o *childOutput) read(ctx context.Context, p []byte) (int, error) {
	for {
		exited := isClosed(o.exited)
		if exited {
			if o.left <= 0 {
				return 0, io.EOF
			}
			_ = o.from.setDeadline(time.Now().Add(outputPatience))
		}
		n, err := o.from.read(ctx, p)
		switch {
		case exited && err == nil:
			o.left -= n
		case ctx.Err() == nil && errors.Is(err, os.ErrDeadlineExceeded) && isClosed(o.exited):
			if !exited {
				continue // the deadline is endWaiting's, and this read may have come after it
			}
			err = io.EOF
		}
		return n, err
	}
}

// endWaiting makes a Read that waits return soon after the end of the server, and a Write at once, though other processes
// may hold the pipes open.
func (c *child) endWaiting() {
	_ = c.stdout.SetReadDeadline(time.Now().Add(outputPatience))
	if c.stream.setDeadline != nil {
		_ = c.stream.setDeadline(time.Unix(1, 0)) // long past; no other write begins
	}
}

// drain takes the place of whoever has read, and reads what is not wanted any more, so that the server can write it and end.
func (c *child) drain() {
	<-c.stream.closed
	_ = c.stdout.SetReadDeadline(time.Unix(1, 0)) // long past: ends a Read that waits
	c.reading.Lock()
	defer c.reading.Unlock()
	_ = c.stdout.SetReadDeadline(time.Time{})
	_, _ = io.Copy(io.Discard, c.stdout)
}

const (
	// garbageShown is how much of a line that is no message is logged: enough to see what printed it.
	garbageShown = 200
	// garbageLines is the number of such lines that are logged in a garbagePeriod. A few are a banner; more are a server
	// that prints to the wrong stream.
	garbageLines  = 8
	garbagePeriod = 10 * time.Second
)

// A garbageLog logs lines that are no messages, some of them.
type garbageLog struct {
	begun  time.Time // of the period
	logged int       // lines in the period
	more   int       // lines that were not logged
}

func (g *garbageLog) log(notes *noteQueue, line []byte) {
	if now := time.Now(); now.Sub(g.begun) > garbagePeriod {
		g.begun, g.logged = now, 0
	}
	if g.logged == garbageLines {
		g.more++
		return
	}
	g.logged++
	attrs := []slog.Attr{slog.String("line", fmt.Sprintf("%q", line[:min(len(line), garbageShown)]))}
	if g.more > 0 {
		attrs = append(attrs, slog.Int("more", g.more))
		g.more = 0
	}
	notes.log(slog.LevelWarn, "mcp: the server writes what is no message to its standard output", attrs...)
}
