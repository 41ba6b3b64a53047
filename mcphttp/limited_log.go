package mcphttp

import (
	"context"
	"log/slog"
	"net/http"
	"sync"
	"time"
)

// Limits of the log lines that clients can cause: enough to find the sender, and few enough that a
// client cannot fill a disk.
const (
	maxLogLines = 10 // in one interval
	logInterval = 10 * time.Second
)

// A limitedLog logs what clients can cause. At the end of an interval it logs the number of lines
// that it has left out.
type limitedLog struct {
	log     *slog.Logger
	summary string // the message with that number
	what    string // its attribute

	mu      sync.Mutex // guards the fields below
	lines   int        // in this interval; 0 before the first one
	omitted int
}

func (l *limitedLog) refused(r *http.Request, why string) {
	if l.admit() {
		l.log.WarnContext(r.Context(), "mcphttp: request refused", "reason", why,
			"method", r.Method, "host", r.Host, "origin", r.Header.Get("Origin"), "remote", r.RemoteAddr)
	}
}

func (l *limitedLog) error(ctx context.Context, message string, err error) {
	if l.admit() {
		l.log.ErrorContext(ctx, message, "error", err)
	}
}

// admit reports whether there is room for a line. The first line begins an interval.
func (l *limitedLog) admit() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lines == maxLogLines {
		l.omitted++
		return false
	}
	if l.lines == 0 {
		time.AfterFunc(logInterval, l.endInterval)
	}
	l.lines++
	return true
}

func (l *limitedLog) endInterval() {
	l.mu.Lock()
	omitted := l.omitted
	l.lines, l.omitted = 0, 0
	l.mu.Unlock()
	if omitted > 0 {
		l.log.Warn(l.summary, l.what, omitted, "interval", logInterval)
	}
}
