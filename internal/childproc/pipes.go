package childproc

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/peer"
)

const (
	// outputTimeout is how long a read waits for more output after the process exited. All of
	// its output is in the pipe by then; but if another process holds the pipe open, no end of file
	// follows.
	outputTimeout = 250 * time.Millisecond
	// maxLateOutput is the most output that is read after the exit: more than a pipe holds on any
	// system. Anything beyond it comes from other processes.
	maxLateOutput = 1 << 20
)

// output returns the reader of the process's standard output. It lacks a Close method.
func (p *Process) output() io.Reader {
	if p.stdout.SetReadDeadline(time.Time{}) != nil {
		// Windows: all processes that could hold the pipe open are in the job that ends with the
		// process.
		return struct{ io.Reader }{p.stdout}
	}
	return &outputReader{file: p.stdout, exited: p.exited, left: maxLateOutput}
}

// An outputReader returns io.EOF once the process exited and its output was read, even if
// other processes still hold the pipe open.
type outputReader struct {
	file   *os.File
	exited <-chan struct{}
	left   int // bytes that may still be read after the exit

	mu          sync.Mutex
	interrupted bool // the reader's own deadline passed; guarded by mu
}

// SetReadDeadline supports two times: zero, and a time in the past.
func (r *outputReader) SetReadDeadline(t time.Time) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.interrupted = !t.IsZero()
	return r.file.SetReadDeadline(t)
}

// setExitDeadline bounds the next read after the exit. It reports false if the reader's own
// deadline passed.
func (r *outputReader) setExitDeadline() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.interrupted {
		_ = r.file.SetReadDeadline(time.Now().Add(outputTimeout))
	}
	return !r.interrupted
}

func (r *outputReader) isInterrupted() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.interrupted
}

func (r *outputReader) Read(p []byte) (int, error) {
	for {
		exited := peer.IsClosed(r.exited)
		if exited {
			switch {
			case r.left <= 0:
				return 0, io.EOF
			case !r.setExitDeadline():
				return 0, os.ErrDeadlineExceeded
			}
		}
		n, err := r.file.Read(p)
		switch {
		case exited && err == nil:
			r.left -= n
		case errors.Is(err, os.ErrDeadlineExceeded) && peer.IsClosed(r.exited) && !r.isInterrupted():
			if !exited {
				continue // supervise set the deadline, perhaps before this read began
			}
			err = io.EOF
		}
		return n, err
	}
}

// discardOutput takes over from the reader after Close, and reads until the process ends: a process
// that blocks in a write would not end by itself.
func (p *Process) discardOutput() {
	<-p.stream.Closed()
	_ = p.stdout.SetReadDeadline(time.Unix(1, 0)) // ends a pending Read
	p.reading.Lock()
	defer p.reading.Unlock()
	_ = p.stdout.SetReadDeadline(time.Time{})
	_, _ = io.Copy(io.Discard, p.stdout)
}

const (
	// maxInvalidShown is the part of an invalid line that is logged: enough to recognize what
	// printed it.
	maxInvalidShown = 200
	// maxInvalidLines is the number of invalid lines that are logged. A few are a banner; more are
	// a server that prints to the wrong stream.
	maxInvalidLines = 8
)

// logInvalid logs an output line that is not a message.
func (p *Process) logInvalid(line []byte) {
	if p.invalid++; p.invalid <= maxInvalidLines {
		quoted := slog.String("line", fmt.Sprintf("%q", line[:min(len(line), maxInvalidShown)]))
		p.log.add(slog.LevelWarn, "mcp: the server's standard output has a line that is not a message", quoted)
	}
}

// WithDeadline returns a pipe whose writes support deadlines. On Windows the pipes to a child do
// not, and a process that does not read would block its writer.
func WithDeadline(pipe io.WriteCloser) io.WriteCloser {
	if d, ok := pipe.(interface{ SetWriteDeadline(time.Time) error }); ok && d.SetWriteDeadline(time.Time{}) == nil {
		return pipe
	}
	return &asyncWriter{WriteCloser: pipe, expired: make(chan struct{})}
}

// An asyncWriter runs each write on a goroutine of its own and stops waiting for it when the
// deadline passes. The goroutine ends when the pipe is closed or its reader ends.
type asyncWriter struct {
	io.WriteCloser

	mu      sync.Mutex // guards the fields below
	expired chan struct{}
	broken  bool // a write was abandoned: no write must follow it
}

// errAbandoned is the error of writes after an abandoned write.
var errAbandoned = errors.New("an earlier write has not ended")

// Write must not be called concurrently.
func (w *asyncWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	expired, broken := w.expired, w.broken
	w.mu.Unlock()
	if broken {
		return 0, errAbandoned
	}
	var n int
	written := make(chan error, 1)
	data := bytes.Clone(p) // the caller may reuse p after Write returns
	go func() {
		var err error
		n, err = w.WriteCloser.Write(data)
		written <- err
	}()
	select {
	case err := <-written:
		return n, err
	case <-expired:
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.broken = true
	return len(p), os.ErrDeadlineExceeded // the number of bytes that will be written is unknown, but not zero
}

// SetWriteDeadline supports two times: zero, and a time in the past.
func (w *asyncWriter) SetWriteDeadline(t time.Time) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if peer.IsClosed(w.expired) {
		w.expired = make(chan struct{})
	}
	if !t.IsZero() {
		close(w.expired)
	}
	return nil
}
