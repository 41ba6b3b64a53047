// Package childproc runs a server as a child process and exchanges messages with it over its
// standard input and output.
//
// Spec: basic/transports/stdio (2026-07-28).
package childproc

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

	"github.com/patchbay-mcp/patchbay/internal/linestream"
	"github.com/patchbay-mcp/patchbay/internal/peer"
	"github.com/patchbay-mcp/patchbay/jsonrpc"
)

// Time limits of the shutdown sequence. Together with logTimeout they bound Close at 10.5 seconds.
const (
	eofTimeout  = 5 * time.Second // after standard input ended: time to finish the requests in progress
	termTimeout = 3 * time.Second // after the request to terminate
	killTimeout = 2 * time.Second // after the kill; only a process that hangs in the kernel takes that long
)

const (
	// exitTimeout is how long the end of a stream waits for the exit status, which usually comes
	// within a millisecond.
	exitTimeout = time.Second
	// stderrTimeout is how long an exit status waits for the end of standard error. Another process
	// may hold it open.
	stderrTimeout = 250 * time.Millisecond
	// maxPollInterval is the longest interval between two checks of whether a group ended: no
	// event reports it.
	maxPollInterval = 50 * time.Millisecond
)

// Options configures [Start].
type Options struct {
	// Name is the name of the program, for errors and the log.
	Name string
	// Stderr receives the lines of standard error; nil means the log.
	Stderr io.Writer
	// Logger logs problems of the process.
	Logger *slog.Logger
	// MaxMessage is the largest message that is read, in bytes.
	MaxMessage int
	// ExitError makes the error of a process that exited. It wraps [peer.ErrDisconnected].
	ExitError func(Exit) error
	// Line receives each line that is about to be written (sent) or was read, one at a time. It must
	// not block. Default: lines are not reported.
	Line func(sent bool, text []byte)
}

// An Exit describes how a process ended.
type Exit struct {
	Code   int    // -1 if a signal ended the process
	Signal string // the signal that ended the process, or ""
	Stderr string // the last lines of standard error
}

// A Process is a child process. It implements mcp.Conn. Four goroutines belong to it: wait waits
// for the process, supervise ends its group, and two read and log its standard error. The last two
// end with Close, the first two with the process.
type Process struct {
	opts   Options
	cmd    *exec.Cmd
	group  *processGroup
	stream *linestream.Conn // does not close stdout: that is closed last, so that the process can write until it ends
	stdout *os.File
	stderr *stderrReader
	log    *logQueue

	reading sync.Mutex // held by the reader of stdout
	invalid int        // output lines that were not messages; guarded by reading

	exited   chan struct{} // closed after the process was waited for; cmd.ProcessState is set then
	ended    chan struct{} // closed when the group ended, or every step of the shutdown was tried
	closeErr error         // reports processes that could not be killed; set before ended is closed
	closing  sync.Once
}

// Start starts the process of a command whose standard streams are not set.
func Start(cmd *exec.Cmd, opts Options) (*Process, error) {
	p := &Process{opts: opts, cmd: cmd, exited: make(chan struct{}), ended: make(chan struct{})}
	stdin, err1 := cmd.StdinPipe()
	stdout, err2 := cmd.StdoutPipe()
	stderr, err3 := cmd.StderrPipe()
	cmd.Err = cmp.Or(cmd.Err, err1, err2, err3) // cmd.Start returns it, and closes the pipes
	p.group = newProcessGroup(cmd)
	started := make(chan error)
	go p.wait(started)
	if err := <-started; err != nil {
		p.group.release()
		return nil, err
	}
	p.stdout = stdout.(*os.File)
	p.stream = linestream.New(p.output(), WithDeadline(stdin), opts.MaxMessage)
	if opts.Line != nil {
		var calling sync.Mutex // held during a call
		p.stream.Line = func(sent bool, text []byte) {
			calling.Lock()
			defer calling.Unlock()
			opts.Line(sent, text)
		}
	}
	p.log = newLogQueue(opts.Stderr, opts.Logger.With("server", opts.Name))
	p.stderr = &stderrReader{r: stderr, log: p.log, ended: make(chan struct{})}
	go p.stderr.run()
	go p.supervise()
	return p, nil
}

// ID returns the id of the process.
func (p *Process) ID() int { return p.cmd.Process.Pid }

// wait starts the process and waits for it. On Linux, the process is killed when the thread that
// started it ends, so this goroutine is locked to its thread for the life of the process.
func (p *Process) wait(started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := p.cmd.Start()
	if err == nil {
		p.group.add(p.cmd.Process)
	}
	started <- err
	if err != nil {
		return
	}
	// cmd.Wait would close the pipes and lose the last output.
	p.cmd.ProcessState, _ = p.cmd.Process.Wait()
	close(p.exited)
}

// supervise ends the group when the process exited or the Process is closed. Spec:
// basic/transports/stdio#shutdown (2026-07-28).
func (p *Process) supervise() {
	defer close(p.ended)
	defer p.group.release()
	select {
	case <-p.exited:
		// Other processes may hold the pipes open: end a pending Read and Write.
		_ = p.stdout.SetReadDeadline(time.Now().Add(outputTimeout))
		p.stream.InterruptWrite()
	case <-p.stream.Closed():
		peer.ClosedWithin(p.exited, eofTimeout)
	}
	if peer.IsClosed(p.exited) && p.group.hasEnded() {
		return
	}
	p.log.add(slog.LevelInfo, "mcp: the server's processes have not exited: terminating them")
	p.group.terminate()
	if p.endsWithin(termTimeout) {
		return
	}
	p.log.add(slog.LevelWarn, "mcp: the server's processes have not terminated: killing them")
	p.group.kill()
	if !p.endsWithin(killTimeout) {
		p.closeErr = fmt.Errorf("server %q: some processes could not be killed", p.opts.Name)
	}
}

// endsWithin waits until the process and its group ended, or d passed.
func (p *Process) endsWithin(d time.Duration) bool {
	begun := time.Now()
	if !peer.ClosedWithin(p.exited, d) {
		return false
	}
	for interval := time.Millisecond; !p.group.hasEnded(); interval = min(2*interval, maxPollInterval) {
		if time.Since(begun) > d {
			return false
		}
		time.Sleep(interval)
	}
	return true
}

// Read returns the next message of the process.
func (p *Process) Read(ctx context.Context) (*jsonrpc.Message, error) {
	p.reading.Lock()
	defer p.reading.Unlock()
	if peer.IsClosed(p.stream.Closed()) {
		return nil, peer.ErrClosed
	}
	line, err := p.stream.ReadLine(ctx)
	if err == nil {
		m, err := jsonrpc.Decode(line)
		if err != nil {
			p.logInvalid(line)
		}
		return m, err
	}
	if errors.Is(err, io.EOF) || errors.Is(err, peer.ErrDisconnected) {
		err = p.endError(ctx, "output")
	}
	return nil, err
}

// Write sends a message to the process.
func (p *Process) Write(ctx context.Context, m *jsonrpc.Message) error {
	if peer.IsClosed(p.exited) && !peer.IsClosed(p.stream.Closed()) {
		return &linestream.UnsentError{Err: p.endError(ctx, "input")}
	}
	err := p.stream.Write(ctx, m)
	_, unsent := errors.AsType[*linestream.UnsentError](err)
	if errors.Is(err, peer.ErrDisconnected) {
		err = p.endError(ctx, "input")
		if unsent {
			err = &linestream.UnsentError{Err: err}
		}
	}
	return err
}

// endError returns the reason why a standard stream of the process ended.
func (p *Process) endError(ctx context.Context, stream string) error {
	timer := time.NewTimer(exitTimeout)
	defer timer.Stop()
	select {
	case <-p.exited:
		peer.ClosedWithin(p.stderr.ended, stderrTimeout)
	case <-p.stream.Closed():
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return fmt.Errorf("%w: server %q has closed its standard %s", peer.ErrDisconnected, p.opts.Name, stream)
	}
	if peer.IsClosed(p.stream.Closed()) {
		return peer.ErrClosed
	}
	exit := Exit{Code: -1, Stderr: p.stderr.last()}
	if state := p.cmd.ProcessState; state != nil {
		exit.Code, exit.Signal = state.ExitCode(), signalOf(state)
	}
	return p.opts.ExitError(exit)
}

// Close ends the process and its group, and returns within 10.5 seconds. The error reports
// processes that could not be killed.
func (p *Process) Close() error {
	p.closing.Do(func() {
		var discarding sync.WaitGroup
		discarding.Go(p.discardOutput)
		_ = p.stream.Close() // the process may have closed its end before; supervise does the rest
		<-p.ended
		_ = p.stdout.Close()
		p.stderr.close()
		discarding.Wait()
		p.log.close()
	})
	return p.closeErr
}
