package mcphttp_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcphttp"
)

// skipFirstEvent reads the event with only an id with which streams of 2025-11-25 start.
func (s *stream) skipFirstEvent(version string) {
	s.t.Helper()
	if version != november2025 {
		return
	}
	if e := s.next(); len(e.Data) != 0 || !e.HasID {
		s.t.Errorf("got %q first, want an empty event with an id", e.Data)
	}
}

// Requirement: LHTTP-01, LHTTP-03, HTTP-12
func TestRequestsPrecedeTheResponseOnItsStream(t *testing.T) {
	for _, test := range []struct{ version, tool, method string }{
		{march2025, "sample", "sampling/createMessage"},
		{june2025, "sample", "sampling/createMessage"},
		{june2025, "ask", "elicitation/create"},
		{november2025, "sample", "sampling/createMessage"},
		{november2025, "ask", "elicitation/create"},
	} {
		t.Run(test.version+"/"+test.tool, func(t *testing.T) {
			f := start(t, newTestCore(), nil)
			s := f.initialize(test.version)
			events := f.stream(s.post(t.Context(), callBody(3, test.tool)))
			events.skipFirstEvent(test.version)
			var question struct {
				ID     json.RawMessage
				Method string
			}
			e := events.next()
			if err := json.Unmarshal(e.Data, &question); err != nil || question.Method != test.method || !e.HasID {
				t.Fatalf("got %s, want %s", e.Data, test.method)
			}
			reply := fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"action":"accept","content":{"name":"Eve"},`+
				`"role":"assistant","model":"m"}}`, question.ID)
			if got := f.initialize(test.version).send(reply); got.status != 202 {
				t.Errorf("response on another session: got %d, want 202", got.status)
			}
			if got := s.send(reply); got.status != 202 || got.body != "" {
				t.Errorf("response: got %d %q, want 202 and an empty body", got.status, got.body)
			}
			if e := events.next(); !strings.Contains(string(e.Data), "Eve") ||
				!strings.Contains(string(e.Data), `"id":3`) {
				t.Errorf("got %s, want the result", e.Data)
			}
			events.expectEnd()
		})
	}
}

// The connection breaks during a call. The call continues, and the client receives the rest of the
// stream when it resumes, as often as it resumes.
//
// Requirement: LHTTP-08, LHTTP-10, LHTTP-20, LHTTP-21
func TestBrokenStreamResumes(t *testing.T) {
	for _, finishFirst := range []bool{true, false} {
		forEach(t, streamableRevisions, func(t *testing.T, version string) {
			core := newTestCore()
			f := start(t, core, nil)
			s := f.initialize(version)
			ctx, disconnect := context.WithCancel(t.Context())
			before := f.stream(s.post(ctx, callBody(4, "notifywait")))
			first := before.next()
			seen := first
			if version == november2025 {
				seen = before.next()
			}
			<-core.started
			disconnect()
			synctest.Wait()
			if len(core.causes) > 0 {
				t.Errorf("the call ended with %v when the connection broke", <-core.causes)
			}
			if finishFirst {
				core.proceed <- struct{}{}
				synctest.Wait()
			}
			after := f.stream(s.get(t.Context(), "Last-Event-ID: "+seen.ID))
			if !finishFirst {
				core.proceed <- struct{}{}
			}
			e := after.next()
			if !strings.Contains(string(e.Data), `"id":4`) || !strings.Contains(string(e.Data), "done") {
				t.Errorf("got %s, want the result", e.Data)
			}
			after.expectEnd()

			again := f.stream(s.get(t.Context(), "Last-Event-ID: "+first.ID))
			if version == november2025 {
				if e := again.next(); string(e.Data) != string(seen.Data) || e.ID != seen.ID {
					t.Errorf("got %s %s, want the notification again: %s", e.ID, e.Data, seen.ID)
				}
			}
			if again := again.next(); string(again.Data) != string(e.Data) || again.ID != e.ID {
				t.Errorf("got %s %s, want the result again", again.ID, again.Data)
			}
			again.expectEnd()
		})
	}
}

// Requirement: LHTTP-22
func TestOnlyEventsOfTheSameStreamAreReplayed(t *testing.T) {
	for _, version := range streamableRevisions {
		f := start(t, newTestCore(), nil)
		ann := f.initialize(version, "Authorization: ann")
		id := f.stream(ann.post(t.Context(), callBody(1, "notify"))).next().ID
		if got := f.open(ann.get(t.Context(), "Last-Event-ID: "+id)); got.StatusCode != 200 {
			t.Fatalf("%s: owner: got %d, want 200", version, got.StatusCode)
		}
		flipped := []byte(id)
		flipped[5] ^= 1
		for name, lastEvent := range map[string]string{
			"another session": id,
			"invented":        "cAAAAAAAAAAAAAAAAAAAAAAAAAA-1",
			"malformed":       "1",
			"empty":           " ",
			"kind changed":    "s" + id[1:],
			"never sent":      id[:len(id)-1] + "99",
			"one bit changed": string(flipped),
		} {
			for principal, s := range map[string]*testSession{
				"same principal":    f.initialize(version, "Authorization: ann"),
				"another principal": f.initialize(version, "Authorization: bob"),
				"owner":             ann,
			} {
				if principal == "owner" && lastEvent == id {
					continue
				}
				got := f.do(http.MethodGet, "", append(s.headers, "Last-Event-ID: "+lastEvent)...)
				if got.status != 404 || !strings.Contains(got.body, mcphttp.ErrEventUnknown) {
					t.Errorf("%s: %s, %s: got %d %s, want 404", version, name, principal, got.status, got.body)
				}
			}
		}
	}
}

// The event with only an id, the retry field and the end of the connection come before the response.
//
// Requirement: LHTTP-03, LHTTP-04, LHTTP-05, LHTTP-20
func TestClosedStreamIsPolled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core := newTestCore()
		f := start(t, core, nil)
		s := f.initialize(november2025)
		first := f.stream(s.post(t.Context(), callBody(6, "poll")))
		initial := first.next()
		if len(initial.Data) != 0 || !initial.HasID {
			t.Fatalf("got %q first, want an empty event with an id", initial.Data)
		}
		first.expectEnd()
		if retry, ok := first.Retry(); !ok || retry != 100*time.Millisecond {
			t.Errorf("got retry %v, want 100ms", retry)
		}
		if err := <-core.polled; err != nil {
			t.Errorf("CloseStream: %v", err)
		}
		<-core.started
		second := f.stream(s.get(t.Context(), "Last-Event-ID: "+initial.ID))
		core.proceed <- struct{}{}
		if e := second.next(); !strings.Contains(string(e.Data), "polled") {
			t.Errorf("got %s, want the result", e.Data)
		}
		second.expectEnd()
	})
}

// Requirement: LHTTP-02
func TestOlderStreamsLastUntilTheResponse(t *testing.T) {
	for _, version := range []string{march2025, june2025} {
		core := newTestCore()
		f := start(t, core, nil)
		s := f.initialize(version)
		events := f.stream(s.post(t.Context(), callBody(1, "notifypoll")))
		if e := events.next(); len(e.Data) == 0 || !e.HasID {
			t.Errorf("%s: got event %q with id %t first, want a message with an id", version, e.Data, e.HasID)
		}
		if err := <-core.polled; !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("%s: CloseStream: got %v, want ErrUnsupported", version, err)
		}
		<-core.started
		core.proceed <- struct{}{}
		if e := events.next(); !strings.Contains(string(e.Data), "polled") {
			t.Errorf("%s: got %s, want the result", version, e.Data)
		}
		events.expectEnd()
	}
	core := newTestCore()
	f := start(t, core, nil)
	core.proceed <- struct{}{}
	if got := f.modern("tools/call", `"name":"poll"`); got.status != 200 {
		t.Errorf("modern: got %d %s, want 200", got.status, got.body)
	}
	if err := <-core.polled; !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("modern: CloseStream: got %v, want ErrUnsupported", err)
	}
}

// Requirement: HTTP-16, LHTTP-16, LHTTP-18, LHTTP-19, LHTTP-37
func TestConcurrentStreams(t *testing.T) {
	forEach(t, streamableRevisions, func(t *testing.T, version string) {
		core := newTestCore()
		f := start(t, core, nil)
		s := f.initialize(version)
		var streams []*stream
		streamNames, ids := map[string]bool{}, map[string]bool{}
		for n := range 3 {
			streams = append(streams, f.stream(s.post(t.Context(), callBody(n, "notifywait"))))
			streams[n].skipFirstEvent(version)
		}
		for range streams { // each value may go to any of the calls
			core.proceed <- struct{}{}
		}
		for n, events := range streams {
			var names [2]string // of the streams in the ids of the notification and the result
			for i := range names {
				e := events.next()
				if ids[e.ID] || e.ID == "" {
					t.Errorf("event id %q is not unique", e.ID)
				}
				ids[e.ID] = true
				names[i], _, _ = mcphttp.ParseEventID(e.ID)
				if i == 1 && !strings.Contains(string(e.Data), `"result"`) {
					t.Errorf("stream %d: got %s, want a result", n, e.Data)
				}
			}
			if names[0] != names[1] || streamNames[names[0]] || names[0] == "" {
				t.Errorf("event ids name the streams %q, want one stream that no other has", names)
			}
			streamNames[names[0]] = true
			events.expectEnd()
		}
	})
}

// Requirement: LHTTP-13, LHTTP-14, LHTTP-17
func TestEachMessageGoesToOneStream(t *testing.T) {
	forEach(t, streamableRevisions, func(t *testing.T, version string) {
		server, tool, proceed := newAskingServer()
		f := start(t, server, nil)
		s := f.initialize(version)
		standalone := f.stream(s.get(t.Context()))
		standalone.skipFirstEvent(version)
		synctest.Wait()
		var calls []*stream
		for token := range 3 {
			body := fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"wait",`+
				`"_meta":{"progressToken":%d}}}`, token, token)
			calls = append(calls, f.stream(s.post(t.Context(), body)))
			calls[token].skipFirstEvent(version)
		}
		close(proceed)
		for token, call := range calls {
			for range 2 {
				if m := call.nextMessage(); m.Method != "notifications/progress" || m.Params.ProgressToken != token {
					t.Errorf("call %d: got %s of token %d, want its progress", token, m.Method, m.Params.ProgressToken)
				}
			}
			if m := call.nextMessage(); m.Method != "" || string(m.ID) != fmt.Sprint(token) {
				t.Errorf("call %d: got %+v, want its response", token, m)
			}
			call.expectEnd()
		}
		tool.Update(func(t *mcp.Tool) { t.Description = "changed" })
		if m := standalone.nextMessage(); m.Method != "notifications/tools/list_changed" {
			t.Errorf("standalone stream: got %+v, want the change and nothing of the calls", m)
		}
		f.do(http.MethodDelete, "", s.headers...)
		standalone.expectEnd()
	})
}
