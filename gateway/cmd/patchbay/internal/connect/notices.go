package connect

import (
	"sync"
	"time"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/term"
)

const (

	// maxNotices bounds the notifications that are shown in each noticeInterval: a server that
	// sends more would make the prompt unusable.
	maxNotices = 20
	// noticeInterval is the time in which maxNotices may be shown.
	noticeInterval = time.Second
)

// A NoticeLimit limits the notifications and log messages that are shown.
type NoticeLimit struct {
	mu      sync.Mutex // guards the fields below
	began   time.Time  // of the interval
	shown   int        // in the interval
	omitted int
}

// Allow reports whether another notification may be shown. It shows how many were not.
func (l *NoticeLimit) Allow(s *term.Screen) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now := time.Now(); now.Sub(l.began) >= noticeInterval {
		l.began, l.shown = now, 0
	}
	if l.shown++; l.shown > maxNotices {
		l.omitted++
		return false
	}
	if l.omitted > 0 {
		s.Printf("(%d messages were not shown: they arrived too fast)", l.omitted)
		l.omitted = 0
	}
	return true
}
