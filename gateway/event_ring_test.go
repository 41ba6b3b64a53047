package gateway_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/gateway"
	"github.com/patchbay-mcp/patchbay/host/event"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// Events of any size arrive in their order, without a gap after the first one that is left.
func TestEventsOfDifferentSizesStayInOrder(t *testing.T) {
	mcptest.NoLeaks(t)
	a := newAdmin(t, twoServers, nil)
	const most = 9000
	for n := range most {
		size := n * 7919 % 3000
		if n/1000%2 == 1 { // many small ones after large ones: the log grows again
			size = 1
		}
		detail := fmt.Appendf(nil, `{"n":%d,"text":%q}`, n, strings.Repeat("x", size))
		_ = a.recorder.Record(&event.Record{Event: event.Admin, Start: time.Now(), Detail: detail})
	}
	s := a.events("?types=audit&after=0", "")
	if e := s.next(); e.kind != "gap" {
		t.Fatalf("got %+v, want a gap", e)
	}
	last, count := -1, 0
	for last < most-1 {
		var detail struct{ N int }
		if err := json.Unmarshal(s.next().data.Detail, &detail); err != nil || last >= 0 && detail.N != last+1 {
			t.Fatalf("event %d after %d, %v", detail.N, last, err)
		}
		last, count = detail.N, count+1
	}
	if count < 1000 || count > 4096 {
		t.Errorf("%d events are left", count)
	}
}

// BenchmarkRecorder measures what the events of a gateway without readers cost for a call.
func BenchmarkRecorder(b *testing.B) {
	r := gateway.NewEventLog().Recorder(nil)
	record := &event.Record{Event: event.End, Call: "abcdefghijkl-1", Start: time.Now(), Duration: time.Millisecond,
		Action: policy.Action{Kind: policy.ActionCall, Server: "files", Target: "read_file", Caller: &policy.Caller{}}}
	b.ReportAllocs()
	for b.Loop() {
		if err := r.Record(record); err != nil {
			b.Fatal(err)
		}
	}
}
