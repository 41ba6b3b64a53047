package mcp

import (
	"bytes"
	"errors"
	"io"
	"os"
	"sync"
	"time"
)

// withDeadline returns a pipe that writing to ends with its context: on Windows the pipes to a child know no deadlines, and
// a server that does not read would hold up whoever writes.
func withDeadline(pipe io.WriteCloser) io.WriteCloser {
	if d, ok := pipe.(interface{ SetWriteDeadline(time.Time) error }); ok && d.SetWriteDeadline(time.Time{}) == nil {
		return pipe
	}
	return &detachedWriter{WriteCloser: pipe, expired: make(chan struct{})}
}

// A detachedWriter writes in a goroutine of its own. When its deadline has passed it waits no longer; the goroutine ends
// when the pipe is closed or its reader ends.
type detachedWriter struct {
	io.WriteCloser

	mu      sync.Mutex // guards the fields below
	expired chan struct{}
	broken  bool // a write was given up: nothing may follow what it still writes
}

// errGivenUp is the error of what is written after a write that was given up.
var errGivenUp = errors.New("a write before this one has not ended")

// Write is not called by two goroutines at once.
func (w *detachedWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	expired, broken := w.expired, w.broken
	w.mu.Unlock()
	if broken {
		return 0, errGivenUp
	}
	type result struct {
		n   int
		err error
	}
	written := make(chan result, 1)
	data := bytes.Clone(p) // p is the caller's again when Write returns
	go func() {
		n, err := w.WriteCloser.Write(data)
		written <- result{n, err}
	}()
	select {
	case r := <-written:
		return r.n, r.err
	case <-expired:
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.broken = true
	return len(p), os.ErrDeadlineExceeded // how much will have left is not known; not nothing
}

// SetWriteDeadline ends the Write that waits if the time has passed, and lets others wait if it is zero. No other times are
// in use.
func (w *detachedWriter) SetWriteDeadline(t time.Time) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if isClosed(w.expired) {
		w.expired = make(chan struct{})
	}
	if !t.IsZero() {
		close(w.expired)
	}
	return nil
}
