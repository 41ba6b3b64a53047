package mcp

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"
)

const (
	// maxNotes is how much waits to be written or logged, in bytes: a burst of some ten thousand lines.
	maxNotes = 1 << 20
	// noteCost is counted for a note beside its text, so that empty lines are not free.
	noteCost = 128
	// notesPatience is how long Close waits for a writer to take the last lines. The bound of a child's Close has room for it.
	notesPatience = 200 * time.Millisecond
)

// A noteQueue writes and logs what there is to tell about a server, in a goroutine of its own: neither the server nor who
// speaks with it waits for a writer or a logger.
type noteQueue struct {
	out io.Writer // takes the server's lines; nil if the log does
	to  *slog.Logger

	wake    chan struct{} // holds a token when there is something to do
	stopped chan struct{} // closed when nothing more is to be told
	ended   chan struct{} // closed when the goroutine has ended

	mu      sync.Mutex // guards the fields below
	notes   []note
	size    int // of the notes
	dropped int // notes that did not fit, after those that are there
	closed  bool
}

// A note is a line of the server, or a record for the log, which has a message.
type note struct {
	line    []byte
	level   slog.Level
	message string
	attrs   []slog.Attr
}

func newNoteQueue(out io.Writer, to *slog.Logger) *noteQueue {
	q := &noteQueue{out: out, to: to, wake: make(chan struct{}, 1), stopped: make(chan struct{}), ended: make(chan struct{})}
	go q.run()
	return q
}

// line tells a line of the server's standard error.
func (q *noteQueue) line(text []byte) {
	if q.out != nil || q.to.Enabled(context.Background(), slog.LevelDebug) {
		q.add(note{line: text}, maxNotes)
	}
}

// log tells something else, which has room where lines have no more. The attributes are short.
func (q *noteQueue) log(level slog.Level, message string, attrs ...slog.Attr) {
	q.add(note{level: level, message: message, attrs: attrs}, 2*maxNotes)
}

// add queues a note if there is room for it. Once a line was dropped no other is taken before that is told.
func (q *noteQueue) add(n note, room int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.size+len(n.line)+noteCost > room || q.dropped > 0 && n.message == "" {
		q.dropped++
		return
	}
	n.line = bytes.Clone(n.line)
	q.notes = append(q.notes, n)
	q.size += len(n.line) + noteCost
	q.signal()
}

func (q *noteQueue) signal() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// Close waits a moment until everything is told. A writer or logger that has not taken it by then is called no more: it may
// be gone, and it may be what everything else is told to as well. The goroutine ends when that call returns.
func (q *noteQueue) Close() {
	q.mu.Lock()
	q.closed = true
	q.mu.Unlock()
	q.signal()
	within(notesPatience, q.ended)
	close(q.stopped)
}

func (q *noteQueue) run() {
	defer close(q.ended)
	for closed := false; !closed; {
		<-q.wake
		q.mu.Lock()
		notes, dropped := q.notes, q.dropped
		closed = q.closed
		q.notes, q.size, q.dropped = nil, 0, 0
		q.mu.Unlock()
		for _, n := range notes {
			if isClosed(q.stopped) {
				return
			}
			q.tell(n)
		}
		if dropped > 0 {
			q.tellDropped(dropped)
		}
	}
}

// tell writes or logs one note.
func (q *noteQueue) tell(n note) {
	switch {
	case n.message != "":
		q.to.LogAttrs(context.Background(), n.level, n.message, n.attrs...)
	case q.out == nil:
		q.to.Debug("mcp: the server says", "stderr", string(n.line))
	default:
		_, _ = q.out.Write(append(n.line, '\n')) // what cannot be written has nobody who reads it
	}
}

// tellDropped puts the number of lines that are missing where the lines would be.
func (q *noteQueue) tellDropped(n int) {
	if q.out == nil {
		q.to.Warn("mcp: lines of the server are dropped: they come too fast", "lines", n)
		return
	}
	q.tell(note{line: fmt.Appendf(nil, "[%d lines dropped: they came too fast]", n)})
}
