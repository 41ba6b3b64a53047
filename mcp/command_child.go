package mcp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"time"

	"github.com/patchbay-mcp/patchbay/jsonrpc"
)

// How long a server may take to end before it is told so more clearly. All three together with what they leave for the
// last words are the bound of Close: 10.5 seconds.
const (
	eofPatience  = 5 * time.Second // after its standard input has ended: time to finish what is in progress
	termPatience = 3 * time.Second // after the request to terminate
	killPatience = 2 * time.Second // after it was killed; only a process that hangs in the kernel takes that long
)

const (
	// exitPatience is how long the end of a stream waits for the exit status, which usually comes within a millisecond.
	exitPatience = time.Second
	// lastWordsPatience is how long an exit status waits for the end of standard error, which another process may hold open.
	lastWordsPatience = 250 * time.Millisecond
	// maxPollPause is the longest pause between two looks at whether a group has ended; nothing tells when it has.
	maxPollPause = 50 * time.Millisecond
)

// A child is the Conn to a server that runs as a child process. Four goroutines belong to it: live waits for the process,
// oversee ends its group, one reads its standard error and one tells what is there. The last two end with Close, the
// others with the process.
type child struct {
	name   string
	cmd    *exec.Cmd
	group  *processGroup
	stream *streamConn // its reader is not its own: it is closed last, so that the server can write until it ends
	stdout *os.File
	stderr *stderrReader
	notes  *noteQueue

	reading sync.Mutex // held while something reads stdout
	garbage garbageLog // guarded by reading

	exited  chan struct{} // closed when the process has been waited for; cmd.ProcessState is set then
	ended   chan struct{} // closed when nothing of the group is left, or everything was tried
	alive   error         // what is left of the group after everything was tried; set before ended is closed
	closing sync.Once
}

// startChild starts the server of a command.
func startChild(s *ServerCommand) (*child, error) {
	c := &child{name: s.Path, cmd: s.command(), exited: make(chan struct{}), ended: make(chan struct{})}
	stdin, err1 := c.cmd.StdinPipe()
	stdout, err2 := c.cmd.StdoutPipe()
	stderr, err3 := c.cmd.StderrPipe()
	c.cmd.Err = cmp.Or(c.cmd.Err, err1, err2, err3) // Start gives it, and closes the pipes there are
	c.group = newProcessGroup(c.cmd)
	started := make(chan error)
	go c.live(started)
	if err := <-started; err != nil {
		c.group.release()
		return nil, err
	}
	c.stdout = stdout.(*os.File)
	c.stream = newStreamConn(nil, withDeadline(stdin), cmp.Or(max(s.MaxMessage, 0), childMaxMessage))
	c.stream.lines.source = c.output()
	c.notes = newNoteQueue(s.Stderr, s.log().With("server", s.Path))
	c.stderr = newStderrReader(stderr, c.notes)
	go c.oversee()
	return c, nil
}

// live starts the process and waits for it. On Linux the process is killed when the thread that has started it ends, so
// this goroutine keeps its thread for as long as the process lives.
func (c *child) live(started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := c.cmd.Start()
	if err == nil {
		c.group.adopt(c.cmd.Process)
	}
	started <- err
	if err != nil {
		return
	}
	// Not the command's Wait: that closes the pipes, and with them what was written last.
	c.cmd.ProcessState, _ = c.cmd.Process.Wait()
	close(c.exited)
}

// oversee ends what is left of the group when the server has ended or is to end.
func (c *child) oversee() {
	defer close(c.ended)
	defer c.group.release()
	select {
	case <-c.exited:
		c.endWaiting()
	case <-c.stream.closed:
		within(eofPatience, c.exited)
	}
	if c.gone() {
		return
	}
	c.notes.log(slog.LevelInfo, "mcp: processes of the server do not end by themselves: they are told to terminate")
	c.group.terminate()
	if c.goneWithin(termPatience) {
		return
	}
	c.notes.log(slog.LevelWarn, "mcp: processes of the server do not terminate: they are killed")
	c.group.kill()
	if !c.goneWithin(killPatience) {
		c.alive = fmt.Errorf("server %q: processes are left that cannot be killed", c.name)
	}
}

// gone reports whether the server has ended and everything that it has started.
func (c *child) gone() bool { return isClosed(c.exited) && c.group.gone() }

// goneWithin waits until the server has ended and everything that it has started.
func (c *child) goneWithin(d time.Duration) bool {
	begun := time.Now()
	if !within(d, c.exited) {
		return false
	}
	for pause := time.Millisecond; !c.group.gone(); pause = min(2*pause, maxPollPause) {
		if time.Since(begun) > d {
			return false
		}
		time.Sleep(pause)
	}
	return true
}

// Read returns the next message of the server.
func (c *child) Read(ctx context.Context) (*jsonrpc.Message, error) {
	c.reading.Lock()
	defer c.reading.Unlock()
	if isClosed(c.stream.closed) {
		return nil, ErrClosed
	}
	line, err := c.stream.readLine(ctx)
	if err == nil {
		m, err := jsonrpc.Decode(line)
		if err != nil {
			c.garbage.log(c.notes, line)
		}
		return m, err
	}
	if errors.Is(err, io.EOF) || errors.Is(err, ErrDisconnected) {
		return nil, c.lost(ctx, "output")
	}
	return nil, err
}

// Write sends a message to the server.
func (c *child) Write(ctx context.Context, m *jsonrpc.Message) error {
	if isClosed(c.exited) && !isClosed(c.stream.closed) {
		return &unsentError{c.lost(ctx, "input")}
	}
	err := c.stream.Write(ctx, m)
	if !errors.Is(err, ErrDisconnected) {
		return err
	}
	reason := c.lost(ctx, "input")
	if _, unsent := errors.AsType[*unsentError](err); unsent {
		return &unsentError{reason}
	}
	return reason
}

// lost says why nothing can be read from the server's output, or written to its input.
func (c *child) lost(ctx context.Context, stream string) error {
	status := time.NewTimer(exitPatience)
	defer status.Stop()
	select {
	case <-c.exited:
		within(lastWordsPatience, c.stderr.ended)
	case <-c.stream.closed:
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-status.C:
		return fmt.Errorf("%w: server %q has closed its standard %s", ErrDisconnected, c.name, stream)
	}
	if isClosed(c.stream.closed) {
		return ErrClosed
	}
	return newExitError(c.name, c.cmd.ProcessState, c.stderr.last())
}

// Close ends the server and everything that it has started, and returns within 10.5 seconds. The error is that something
// could not be killed.
func (c *child) Close() error {
	c.closing.Do(func() {
		drained := make(chan struct{})
		go func() {
			defer close(drained)
			c.drain()
		}()
		_ = c.stream.Close() // the server may have closed its end before; oversee does the rest
		<-c.ended
		_ = c.stdout.Close()
		_ = c.stderr.Close()
		<-drained
		c.notes.Close()
	})
	return c.alive
}
