package metrics

import (
	"fmt"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/page"
)

func TestSeriesHoldTheirWindows(t *testing.T) {
	began := time.Date(2026, 11, 29, 10, 0, 0, 0, time.UTC)
	s := newStore(began)
	call := page.Event{Type: "call", Server: "fs", Method: "tools/call", Outcome: "ok", Millis: 8}
	for second := range 100 {
		at := began.Add(time.Duration(second) * time.Second)
		s.add(&call, at)
		if second%10 == 0 {
			failed := call
			failed.Outcome, failed.Millis = "error", 900
			s.add(&failed, at)
		}
	}
	now := began.Add(100 * time.Second)
	minute, ok := s.read(subject{}, 0, now)
	if !ok || len(minute) != 59 || !minute[58].Start.Equal(now.Add(-time.Second)) || minute[0].Calls == 0 {
		t.Fatalf("got %d samples, last %+v", len(minute), minute[len(minute)-1])
	}
	quarter, _ := s.read(subject{"server", "fs"}, 1, now)
	last := quarter[len(quarter)-1]
	if last.Calls != 11 || last.Failed != 1 || last.perSecond(last.Calls) != 1.1 || quarter[0].Span != 0 {
		t.Errorf("got %+v, first %+v", last, quarter[0])
	}
	if p, ok := last.percentile(.5); !ok || p != 10*time.Millisecond {
		t.Errorf("p50: got %v, %t, want 10ms", p, ok)
	}
	if p, _ := last.percentile(.99); p != time.Second {
		t.Errorf("p99: got %v, want 1s", p)
	}
	if day, _ := s.read(subject{}, 2, now); day[len(day)-1].Calls != 110 || day[len(day)-1].Span != now.Sub(began) {
		t.Errorf("before a complete step: got %+v", day[len(day)-1])
	}
	later, _ := s.read(subject{}, 0, now.Add(time.Hour))
	for _, one := range later {
		if one.Calls != 0 {
			t.Fatalf("an old point is part of the window: %+v", one)
		}
	}
}

// Callers choose methods, and configurations contain many servers: the memory is bounded.
func TestSeriesAreBounded(t *testing.T) {
	s := newStore(time.Unix(0, 0))
	for i := range 1000 {
		s.add(&page.Event{Server: fmt.Sprint("s", i), Method: fmt.Sprint("m", i)}, time.Unix(1001, 0))
	}
	if n := len(s.subjects()); n > maxNames+2 {
		t.Errorf("got %d series, want at most %d", n, maxNames+2)
	}
	if all, ok := s.read(subject{"method", other}, 0, time.Unix(1003, 0)); !ok || all[len(all)-2].Calls != 1000 {
		t.Errorf("other methods: got %v", ok)
	}
}
