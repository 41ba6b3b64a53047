package mcphttp

import (
	"log/slog"
	"net/http"
	"sync"
	"time"
)

// Limits of the log lines about refused requests: enough to find the sender, and few enough that a
// client cannot fill a disk.
const (
	maxRefusalLines = 10 // in one interval
	refusalInterval = 10 * time.Second
)

// A refusalLog logs refused requests. At the end of an interval it logs the number of those that it
// has left out.
type refusalLog struct {
	log *slog.Logger

	mu      sync.Mutex // guards the fields below
	lines   int        // in this interval; 0 before the first refusal
	omitted int
}

func (l *refusalLog) write(r *http.Request, why string) {
	if l.admit() {
		l.log.WarnContext(r.Context(), "mcphttp: request refused", "reason", why,
			"method", r.Method, "host", r.Host, "origin", r.Header.Get("Origin"), "remote", r.RemoteAddr)
	}
}

// admit reports whether there is room for a line. The first line begins an interval.
func (l *refusalLog) admit() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lines == maxRefusalLines {
		l.omitted++
		return false
	}
	if l.lines == 0 {
		time.AfterFunc(refusalInterval, l.endInterval)
	}
	l.lines++
	return true
}

func (l *refusalLog) endInterval() {
	l.mu.Lock()
	omitted := l.omitted
	l.lines, l.omitted = 0, 0
	l.mu.Unlock()
	if omitted > 0 {
		l.log.Warn("mcphttp: more requests refused", "requests", omitted, "interval", refusalInterval)
	}
}
