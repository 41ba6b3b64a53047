package mcphttp_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/sse"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// A talkingCore answers each call after some notes of some length.
type talkingCore struct {
	*testCore
	notes, length int
}

func (c *talkingCore) ServeMCP(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
	if req.Method != "tools/call" {
		return c.testCore.ServeMCP(ctx, req)
	}
	for n := range c.notes {
		note := fmt.Appendf(nil, `{"level":"info","data":"%d %s"}`, n, strings.Repeat("x", c.length))
		if err := req.Notify(ctx, "notifications/message", note); err != nil {
			return nil, err
		}
	}
	return text("done"), nil
}

// all gives the events of a stream that ends.
func (s *stream) all() (events []sse.Event) {
	for e, err := s.Next(); err == nil; e, err = s.Next() {
		events = append(events, e)
	}
	return events
}

func isSameEvent(a, b sse.Event) bool { return a.ID == b.ID && string(a.Data) == string(b.Data) }

// The streams of calls that are over can be read again after each of their events, by their session alone, for ten
// minutes: many short ones, and ones of any length.
func TestLHTTP20_StreamsOfCallsThatAreOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core := &talkingCore{testCore: newTestCore()}
		f := start(t, core, nil)
		s, other := f.initialize(november2025), f.initialize(november2025)
		var streams [][]sse.Event
		for i := range 300 {
			core.notes, core.length = 1+i%3, 10
			if i%25 == 0 {
				core.notes, core.length = 1+i/25, 1500*(i/25%4)
			}
			events := f.stream(s.post(t.Context(), callBody(i, "talk"))).all()
			if len(events) != core.notes+2 {
				t.Fatalf("call %d: got %d events, want %d", i, len(events), core.notes+2)
			}
			streams = append(streams, events)
			time.Sleep(time.Second)
		}
		for i, events := range streams {
			for n, e := range events {
				if i%25 != 0 && n > 0 {
					break
				}
				got := f.stream(s.get(t.Context(), "Last-Event-ID: "+e.ID)).all()
				if !slices.EqualFunc(got, events[n+1:], isSameEvent) {
					t.Fatalf("call %d after event %d: got %d events, want %d", i, n, len(got), len(events)-n-1)
				}
			}
			if got := f.do(http.MethodGet, "", append(other.headers, "Last-Event-ID: "+events[0].ID)...); got.status != 404 {
				t.Fatalf("another session got %d", got.status)
			}
		}
		time.Sleep(10*time.Minute - time.Duration(len(streams)+1)*time.Second)
		for i, events := range streams {
			time.Sleep(time.Second) // the events are ten minutes old now
			if got := f.do(http.MethodGet, "", append(s.headers, "Last-Event-ID: "+events[0].ID)...); got.status != 404 {
				t.Fatalf("call %d after ten minutes: got %d, want 404", i, got.status)
			}
			if i+1 < len(streams) {
				f.stream(s.get(t.Context(), "Last-Event-ID: "+streams[i+1][0].ID)).all()
			}
		}
	})
}

// A client that comes back while its call goes on gets what it missed, however little or much it was.
func TestLHTTP20_StreamOfACallThatGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core := newTestCore()
		f := start(t, core, nil)
		s := f.initialize(november2025)
		first := f.stream(s.post(t.Context(), callBody(1, "notifywait")))
		primer, note := first.next(), first.next()
		<-core.started
		again := f.stream(s.get(t.Context(), "Last-Event-ID: "+primer.ID))
		if e := again.next(); !isSameEvent(e, note) {
			t.Errorf("got %s %s, want %s %s", e.ID, e.Data, note.ID, note.Data)
		}
		core.proceed <- struct{}{}
		answer := again.next()
		again.ends()
		first.ends()
		if got := f.stream(s.get(t.Context(), "Last-Event-ID: "+primer.ID)).all(); len(got) != 2 || !isSameEvent(got[1], answer) {
			t.Errorf("got %v afterwards, want the note and %s", got, answer.Data)
		}
	})
}
