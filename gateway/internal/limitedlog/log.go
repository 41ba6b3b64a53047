// Package limitedlog bounds the log lines that clients can cause.
package limitedlog

import (
	"bytes"
	"log/slog"
	"strings"
	"sync"
	"time"
)

// Limits of the lines: enough to find the sender, and few enough that a client cannot fill a disk.
const (
	MaxLines = 10 // in one interval
	Interval = 10 * time.Second
)

// A Log counts lines. At the end of an interval it logs the number of lines that were left out. It
// is safe for concurrent use.
type Log struct {
	Logger  *slog.Logger
	Summary string // the message with that number
	What    string // its attribute

	mu      sync.Mutex // guards the fields below
	lines   int        // in this interval; 0 before the first interval
	omitted int
}

// Admit reports whether there is room for a line. The first line begins an interval.
func (l *Log) Admit() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lines == MaxLines {
		l.omitted++
		return false
	}
	if l.lines == 0 {
		time.AfterFunc(Interval, l.endInterval)
	}
	l.lines++
	return true
}

// Write logs a line of an http.Server. It limits lines about failed handshakes of TLS, which clients
// cause at will, so that they hide no other line.
func (l *Log) Write(line []byte) (int, error) {
	if !bytes.HasPrefix(line, []byte("http: TLS handshake error")) || l.Admit() {
		l.Logger.Warn(strings.TrimSuffix(string(line), "\n"))
	}
	return len(line), nil
}

func (l *Log) endInterval() {
	l.mu.Lock()
	omitted := l.omitted
	l.lines, l.omitted = 0, 0
	l.mu.Unlock()
	if omitted > 0 {
		l.Logger.Warn(l.Summary, l.What, omitted, "interval", Interval)
	}
}
