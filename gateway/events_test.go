package gateway_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/host/event"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// A streamEvent is an event that a reader received.
type streamEvent struct {
	id, kind string
	data     struct {
		Approver                                                     string
		Type, Server, State, Target, Outcome, Request, Answer, Error string
		Missed                                                       uint64
		Detail                                                       json.RawMessage
	}
}

// An eventStream is an open response with events.
type eventStream struct {
	t     *testing.T
	body  io.ReadCloser
	lines *bufio.Scanner
}

// events reads the events after an id, or from now on.
func (a *adminTest) events(query, last string) *eventStream {
	a.t.Helper()
	req, err := http.NewRequestWithContext(a.t.Context(), "GET", "http://localhost/admin/v1/events"+query, nil)
	if err != nil {
		a.t.Fatal(err)
	}
	if last != "" {
		req.Header.Set("Last-Event-ID", last)
	}
	res, err := a.client.Do(req)
	if err != nil {
		a.t.Fatal(err)
	}
	if res.StatusCode != http.StatusOK || res.Header.Get("Content-Type") != "text/event-stream" {
		a.t.Fatalf("status %d, Content-Type %q", res.StatusCode, res.Header.Get("Content-Type"))
	}
	s := &eventStream{a.t, res.Body, bufio.NewScanner(res.Body)}
	a.t.Cleanup(func() { _ = res.Body.Close() })
	return s
}

// next returns the next event.
func (s *eventStream) next() (e streamEvent) {
	s.t.Helper()
	for s.lines.Scan() {
		name, value, _ := strings.Cut(s.lines.Text(), ": ")
		switch name {
		case "id":
			e.id = value
		case "event":
			e.kind = value
		case "data":
			if err := json.Unmarshal([]byte(value), &e.data); err != nil {
				s.t.Fatal(err)
			}
		case "":
			if e.kind != "" {
				if e.kind != e.data.Type {
					s.t.Errorf("event %s has data of the type %s", e.kind, e.data.Type)
				}
				return e
			}
		}
	}
	s.t.Fatalf("the stream has ended: %v", s.lines.Err())
	return e
}

// number returns the number in the id of an event.
func (e streamEvent) number() uint64 {
	_, text, _ := strings.Cut(e.id, "-")
	n, _ := strconv.ParseUint(text, 10, 64)
	return n
}

// untilEach returns the first event of each type. The order of types that have different sources is
// not defined.
func (s *eventStream) untilEach(kinds ...string) map[string]streamEvent {
	s.t.Helper()
	found := map[string]streamEvent{}
	for len(found) < len(kinds) {
		e := s.next()
		if _, known := found[e.kind]; !known && slices.Contains(kinds, e.kind) {
			found[e.kind] = e
		}
	}
	return found
}

// until returns the first event of a type.
func (s *eventStream) until(kind string) streamEvent {
	s.t.Helper()
	for {
		if e := s.next(); e.kind == kind {
			return e
		}
	}
}

// call calls a tool as the local user.
func (a *adminTest) call(tool string) {
	a.t.Helper()
	c, err := mcp.Connect(a.t.Context(), mcp.InMemory(a.host.For(&policy.Caller{})), nil)
	if err != nil {
		a.t.Fatal(err)
	}
	defer c.Close()
	var failed *mcp.ToolError
	if _, err := c.CallTool(a.t.Context(), tool, nil); err != nil && !errors.As(err, &failed) {
		a.t.Fatal(err)
	}
}

// A reader receives events as they happen, and continues after the last one when it connects again.
func TestEventsContinueAfterTheLastOne(t *testing.T) {
	mcptest.NoLeaks(t)
	a := newAdmin(t, twoServers, nil)
	s := a.events("", "")
	a.call("one__whoami")
	kinds := s.untilEach("server", "call") // events of servers arrive on another way than those of calls
	if e := kinds["server"]; e.data.Server == "" || e.data.State == "" {
		t.Errorf("event %+v", e)
	}
	first := kinds["call"]
	if first.data.Server != "one" || first.data.Target != "whoami" || first.data.Outcome != "ok" {
		t.Errorf("event %+v", first)
	}
	_ = s.body.Close()
	a.call("two__whoami")
	s = a.events("?types=call", first.id)
	second := s.next()
	if second.data.Server != "two" || second.number() <= first.number() {
		t.Errorf("event after %q: %+v", first.id, second)
	}
	a.call("one__whoami")
	if e := s.next(); e.data.Server != "one" {
		t.Errorf("event %+v", e)
	}
	if e := a.events("?types=call&after=0", "").next(); e.id != first.id {
		t.Errorf("first of all events: %+v, want %q", e, first.id)
	}
	a.get("POST", "/servers/one:stop", "", &struct{}{})
	s = a.events("?types=audit,server", second.id)
	for audited, stopped := false, false; !audited || !stopped; {
		switch e := s.next(); {
		case e.kind == "audit" && e.data.Server != "one":
			t.Errorf("event %+v", e)
		case e.kind == "audit":
			audited = true
		default:
			stopped = stopped || e.data.Server == "one" && e.data.State == "stopped"
		}
	}
}

// A reader that was away for too long, or whose last event is that of another process, receives an
// event gap, and then what is left.
func TestEventsReportGaps(t *testing.T) {
	mcptest.NoLeaks(t)
	a := newAdmin(t, twoServers, nil)
	a.call("one__whoami")
	first := a.events("?types=call&after=0", "").next()
	for _, id := range []string{"otherprocess-1", "x", "-", first.id + "0000000000", "-18446744073709551616"} {
		s := a.events("?types=call", id)
		if e := s.next(); e.kind != "gap" || e.id != "" || e.data.Missed != 0 {
			t.Errorf("after %q: %+v, want a gap", id, e)
		}
		if e := s.next(); e.id != first.id {
			t.Errorf("after %q and the gap: %+v, want %q", id, e, first.id)
		}
	}
	const most = 4096
	for range most + 100 {
		_ = a.recorder.Record(&event.Record{Event: event.Admin, Start: time.Now()})
	}
	s := a.events("", first.id)
	gap := s.next()
	_, text, _ := strings.Cut(first.id, "-")
	last, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	next := s.next()
	_, text, _ = strings.Cut(next.id, "-")
	number, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	if gap.kind != "gap" || gap.data.Missed != number-last-1 || gap.data.Missed == 0 {
		t.Errorf("gap %+v, then %q", gap, next.id)
	}
}

// A slow reader does not delay calls, and receives an event gap when it reads again.
func TestSlowReaderOfEventsReceivesAGap(t *testing.T) {
	mcptest.NoLeaks(t)
	a := newAdmin(t, twoServers, nil)
	s := a.events("", "") // does not read
	detail := json.RawMessage(fmt.Sprintf(`{"text":%q}`, strings.Repeat("x", 4<<10)))
	begun := time.Now()
	for range 5000 { // 20 MB: more than the log and the buffers of a socket
		_ = a.recorder.Record(&event.Record{Event: event.Admin, Start: time.Now(), Detail: detail})
	}
	if took := time.Since(begun); took > 20*time.Second { // the reader would delay them for the 30 seconds of a write
		t.Errorf("records took %v", took)
	}
	for {
		if e := s.next(); e.kind == "gap" {
			if e.data.Missed == 0 {
				t.Errorf("gap %+v", e)
			}
			return
		}
	}
}

// Of 1,000 readers, 64 are served, and the others are refused at once. Their ends free the places.
func TestReadersOfEventsAreBounded(t *testing.T) {
	mcptest.NoLeaks(t)
	a := newAdmin(t, twoServers, nil)
	var mu sync.Mutex
	var served []io.Closer
	refused := 0
	var wait sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for range 1000 {
		wait.Go(func() {
			req, err := http.NewRequestWithContext(ctx, "GET", "http://localhost/admin/v1/events", nil)
			if err != nil {
				t.Error(err)
				return
			}
			res, err := a.client.Do(req)
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			if res.StatusCode == http.StatusOK {
				served = append(served, res.Body)
				return
			}
			refused++
			_ = res.Body.Close()
			if res.StatusCode != http.StatusServiceUnavailable || res.Header.Get("Retry-After") == "" {
				t.Errorf("status %d", res.StatusCode)
			}
		})
	}
	wait.Wait()
	if len(served) != 64 || refused != 936 {
		t.Errorf("%d readers are served and %d refused, want 64 and 936", len(served), refused)
	}
	var status struct{ Readers int }
	a.get("GET", "/status", "", &status)
	if status.Readers != 64 {
		t.Errorf("status: %d readers", status.Readers)
	}
	for _, body := range served {
		_ = body.Close()
	}
	for begun := time.Now(); ; {
		if a.get("GET", "/status", "", &status); status.Readers == 0 {
			break
		}
		if time.Since(begun) > time.Minute {
			t.Fatalf("%d readers after the end of all", status.Readers)
		}
	}
	a.events("", "")
}
