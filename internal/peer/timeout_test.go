package peer_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/peer"
)

func TestTimeoutEndsWhenALimitIsExceeded(t *testing.T) {
	limits := peer.TimeLimits{Idle: 10 * time.Second, Total: time.Minute, Grace: 30 * time.Second}
	at := func(offset time.Duration, f func()) { time.AfterFunc(offset, f) }
	for name, test := range map[string]struct {
		use  func(limit *peer.Timeout)
		ends time.Duration
	}{
		"idle":    {func(*peer.Timeout) {}, 10 * time.Second},
		"touched": {func(l *peer.Timeout) { at(9*time.Second, l.Touch) }, 19 * time.Second},
		"paused":  {func(l *peer.Timeout) { l.Pause(); at(time.Hour, l.Resume) }, time.Hour + 10*time.Second},
		"paused twice": {func(l *peer.Timeout) {
			l.Pause()
			l.Pause()
			at(time.Hour, l.Resume)
			at(2*time.Hour, l.Resume)
		}, 2*time.Hour + 10*time.Second},
		"short grace":    {func(l *peer.Timeout) { l.BeginGrace(); at(20*time.Second, l.EndGrace) }, 30 * time.Second},
		"too long grace": {func(l *peer.Timeout) { l.BeginGrace(); at(2*time.Hour, l.EndGrace) }, 90 * time.Second},
		"total": {func(l *peer.Timeout) {
			for i := range 20 {
				at(time.Duration(i)*9*time.Second, l.Touch)
			}
		}, time.Minute},
		"total after grace periods": {func(l *peer.Timeout) {
			for i := range 20 {
				at(time.Duration(i)*10*time.Second, l.BeginGrace)
				at(time.Duration(i)*10*time.Second+9*time.Second, l.EndGrace)
			}
		}, 90 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				var limit peer.Timeout
				limit.Start(t.Context(), limits, errStop)
				test.use(&limit)
				<-limit.Done()
				if took := time.Since(began); took != test.ends || !errors.Is(context.Cause(&limit), errStop) {
					t.Errorf("ended after %v with %v, want %v with %v", took, context.Cause(&limit), test.ends, errStop)
				}
				limit.Stop()
				time.Sleep(3 * time.Hour) // until the calls of the test have been made
			})
		})
	}
}

func TestPauseTimeoutsPausesAncestors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var outer, inner peer.Timeout
		outer.Start(t.Context(), peer.TimeLimits{Total: time.Second}, errStop)
		defer outer.Stop()
		inner.Start(&outer, peer.TimeLimits{Total: time.Second}, errStop)
		defer inner.Stop()
		resume := peer.PauseTimeouts(context.WithValue(&inner, contextKey{}, ""))
		time.Sleep(time.Hour)
		if outer.Err() != nil || inner.Err() != nil {
			t.Errorf("during the pause: errors %v, %v, want none", outer.Err(), inner.Err())
		}
		resume()
		time.Sleep(999 * time.Millisecond)
		if inner.Err() != nil {
			t.Errorf("before the limit: error %v, want none", inner.Err())
		}
		time.Sleep(time.Second)
		if outer.Err() == nil || inner.Err() == nil {
			t.Errorf("after the limit: errors %v, %v, want both ended", outer.Err(), inner.Err())
		}
	})
}
