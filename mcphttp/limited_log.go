package mcphttp

import (
	"context"
	"log/slog"
	"net/http"
	"sync"
	"time"
)

// Limits of the lines: enough to find the sender, and few enough that a client cannot fill a disk.
const (
	maxLogLines = 10 // in one interval
	logInterval = 10 * time.Second
)

// A limitedLog logs what clients can cause, up to a number of lines. At the end of an interval it logs
// the number of lines that were left out. It is safe for concurrent use.
type limitedLog struct {
	logger  *slog.Logger
	summary string // the message with that number
	what    string // its attribute

	mu      sync.Mutex // guards the fields below
	lines   int        // in this interval; 0 before the first interval
	omitted int
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
		l.logger.Warn(l.summary, l.what, omitted, "interval", logInterval)
	}
}

func (l *limitedLog) refused(r *http.Request, why string) {
	if l.admit() {
		l.logger.WarnContext(r.Context(), "mcphttp: request refused", "reason", why,
			"method", r.Method, "host", r.Host, "origin", r.Header.Get("Origin"), "remote", r.RemoteAddr)
	}
}

func (l *limitedLog) error(ctx context.Context, message string, err error) {
	if l.admit() {
		l.logger.ErrorContext(ctx, message, "error", err)
	}
}
