package connect

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/term"
)

func TestNotificationsAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b strings.Builder
		s := &term.Screen{W: &b, Width: func() int { return 80 }}
		var l NoticeLimit
		allowed := 0
		for range 10 * maxNotices {
			if l.Allow(s) {
				allowed++
			}
		}
		if allowed != maxNotices || b.String() != "" {
			t.Errorf("%d notifications were allowed, %q, want %d", allowed, b.String(), maxNotices)
		}
		time.Sleep(noticeInterval)
		if want := fmt.Sprintf("(%d messages were not shown", 9*maxNotices); !l.Allow(s) ||
			!strings.HasPrefix(b.String(), want) {
			t.Errorf("after the interval: %q, want %q", b.String(), want)
		}
	})
}
