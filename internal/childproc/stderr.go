package childproc

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/peer"
)

const (
	// maxStderrLine is the length at which a line of standard error is cut.
	maxStderrLine = 64 << 10
	// maxLastLines and maxLastBytes limit the part of standard error that an [Exit] contains: about
	// a screen.
	maxLastLines = 16
	maxLastBytes = 4 << 10
)

// A stderrReader reads standard error as fast as the process writes it, so that the process never
// blocks.
type stderrReader struct {
	r     io.ReadCloser
	log   *logQueue
	ended chan struct{} // closed at the end of standard error

	mu    sync.Mutex // guards lines
	lines [][]byte   // the last lines that are not empty, at most maxLastLines
}

func (s *stderrReader) run() {
	defer close(s.ended)
	in := bufio.NewReaderSize(s.r, maxStderrLine)
	for {
		line, err := in.ReadSlice('\n')
		if text := bytes.TrimRight(line, "\r\n"); len(text) > 0 || err == nil {
			s.keep(text)
			s.log.addLine(text)
		}
		for errors.Is(err, bufio.ErrBufferFull) {
			_, err = in.ReadSlice('\n')
		}
		if err != nil {
			return
		}
	}
}

func (s *stderrReader) close() {
	_ = s.r.Close()
	<-s.ended
}

func (s *stderrReader) keep(line []byte) {
	if len(line) == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lines = append(s.lines, bytes.Clone(line[:min(len(line), maxLastBytes)]))
	s.lines = s.lines[max(0, len(s.lines)-maxLastLines):]
}

// last returns the last lines, as many as fit into maxLastBytes.
func (s *stderrReader) last() (text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, raw := range slices.Backward(s.lines) {
		line := strings.ToValidUTF8(string(raw), "\uFFFD")
		if text != "" {
			line += "\n"
		}
		if len(line)+len(text) > maxLastBytes {
			break
		}
		text = line + text
	}
	return text
}

const (
	// maxQueued is the size of a logQueue in bytes: a burst of some ten thousand lines.
	maxQueued = 1 << 20
	// entryCost is added to the length of each entry, so that empty lines count as well.
	entryCost = 128
	// logTimeout is how long Close waits for the last entries to be written.
	logTimeout = 200 * time.Millisecond
)

// A logQueue writes lines of standard error and log records on a goroutine of its own, so that
// neither the process nor its callers wait for a slow writer or logger.
type logQueue struct {
	out    io.Writer // receives lines of standard error; nil if the logger does
	logger *slog.Logger

	wake    chan struct{} // holds a token when there is something to do
	stopped chan struct{} // closed when no further entry must be written
	ended   chan struct{} // closed when the goroutine ended

	mu      sync.Mutex // guards the fields below
	entries []func()   // each writes an entry
	size    int        // of the entries
	dropped int        // lines that did not fit, after the queued lines
	closed  bool
}

func newLogQueue(out io.Writer, logger *slog.Logger) *logQueue {
	q := &logQueue{
		out: out, logger: logger,
		wake: make(chan struct{}, 1), stopped: make(chan struct{}), ended: make(chan struct{}),
	}
	go q.run()
	return q
}

// addLine queues a line of standard error. After a dropped line, no line is queued until the number
// of dropped lines was written.
func (q *logQueue) addLine(text []byte) {
	if q.out == nil && !q.logger.Enabled(context.Background(), slog.LevelDebug) {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.dropped > 0 || q.size+len(text)+entryCost > maxQueued {
		q.dropped++
		return
	}
	line := bytes.Clone(text)
	q.push(len(line), func() { q.writeLine(line) })
}

// add queues a log record. Records still fit into the queue when lines no longer do.
func (q *logQueue) add(level slog.Level, message string, attrs ...slog.Attr) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.size+entryCost <= 2*maxQueued {
		q.push(0, func() { q.logger.LogAttrs(context.Background(), level, message, attrs...) })
	}
}

// push queues an entry. The caller holds the mutex.
func (q *logQueue) push(size int, write func()) {
	q.entries = append(q.entries, write)
	q.size += size + entryCost
	peer.Wake(q.wake)
}

// close waits up to logTimeout until all entries were written. Later entries are discarded:
// the writer or logger may have been closed by then. The goroutine ends when its current call
// returns.
func (q *logQueue) close() {
	q.mu.Lock()
	q.closed = true
	q.mu.Unlock()
	peer.Wake(q.wake)
	peer.ClosedWithin(q.ended, logTimeout)
	close(q.stopped)
}

func (q *logQueue) run() {
	defer close(q.ended)
	for closed := false; !closed; {
		<-q.wake
		q.mu.Lock()
		entries, dropped := q.entries, q.dropped
		closed = q.closed
		q.entries, q.size, q.dropped = nil, 0, 0
		q.mu.Unlock()
		for _, write := range entries {
			if peer.IsClosed(q.stopped) {
				return
			}
			write()
		}
		switch {
		case dropped == 0:
		case q.out == nil:
			q.logger.Warn("mcp: lines of standard error were dropped: they arrived too fast", "lines", dropped)
		default:
			q.writeLine(fmt.Appendf(nil, "[%d lines dropped: they arrived too fast]", dropped))
		}
	}
}

func (q *logQueue) writeLine(line []byte) {
	if q.out == nil {
		q.logger.Debug("mcp: standard error of the server", "stderr", string(line))
		return
	}
	_, _ = q.out.Write(append(line, '\n')) // an error could not be reported
}
