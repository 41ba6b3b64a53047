package mcphttp_test

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcphttp"
)

// A question is a request of the server.
type question struct {
	ID     json.RawMessage
	Method string
}

func (s *stream) question(version string) (q question) {
	s.t.Helper()
	s.skipFirstEvent(version)
	if e := s.next(); json.Unmarshal(e.Data, &q) != nil || q.Method != "sampling/createMessage" {
		s.t.Fatalf("got %s, want a request", e.Data)
	}
	return q
}

func answerTo(id json.RawMessage, text string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"role":"assistant","model":"m",`+
		`"content":{"type":"text","text":%q}}}`, id, text)
}

func TestBus_ResponseAtAnotherProcess(t *testing.T) {
	forEach(t, sessionRevisions, func(t *testing.T, version string) {
		f := startReplicas(t, newTestCore(), nil)
		s := f.initialize(version, "Authorization: alice")
		for n := range f.handlers {
			f.at(n)
			events := f.stream(s.post(t.Context(), callBody(3, "sample")))
			q := events.question(version)
			f.at(n + 1)
			if got := s.send(answerTo(q.ID, "Eve")); got.status != 202 || got.body != "" {
				t.Errorf("response: got %d %q, want 202 and an empty body", got.status, got.body)
			}
			e := events.next()
			if !strings.Contains(string(e.Data), "Eve") || !strings.Contains(string(e.Data), `"id":3`) {
				t.Errorf("got %s, want the result", e.Data)
			}
			events.expectEnd()
		}
	})
}

// Only the session of a request responds to it, and a response names no topic but that of a process.
func TestBus_ForgedResponses(t *testing.T) {
	forEach(t, streamableRevisions, func(t *testing.T, version string) {
		f := startReplicas(t, newTestCore(), nil)
		f.at(0)
		s := f.initialize(version, "Authorization: alice")
		same := f.initialize(version, "Authorization: alice")
		other := f.initialize(version, "Authorization: bob")
		events := f.stream(s.post(t.Context(), callBody(3, "sample")))
		q := events.question(version)
		f.at(1)
		forged := answerTo(q.ID, "Mallory")
		for _, foreign := range []*testSession{same, other} {
			if got := foreign.send(forged); got.status != 202 {
				t.Errorf("another session: got %d, want 202", got.status)
			}
		}
		if got := s.send(forged, "Authorization: bob"); got.status != 404 {
			t.Errorf("another principal: got %d, want 404", got.status)
		}
		_, random, _ := strings.Cut(string(q.ID), "-")
		published := f.store.published.Load()
		for _, process := range []string{"", "short", "lower234", "AAAA/AAA", "AAAAAAA*", "AAAAAAAAA"} {
			if got := s.send(answerTo(json.RawMessage(`"`+process+"-"+random), "Mallory")); got.status != 202 {
				t.Errorf("process %q: got %d, want 202", process, got.status)
			}
		}
		if got := f.store.published.Load() - published; got != 0 {
			t.Errorf("got %d messages for names that no process has, want none", got)
		}
		if got := s.send(answerTo(json.RawMessage(`"AAAAAAAA-`+random), "Mallory")); got.status != 202 {
			t.Errorf("a process that is gone: got %d, want 202", got.status)
		}
		s.send(answerTo(q.ID, "Eve"))
		if e := events.next(); !strings.Contains(string(e.Data), "Eve") {
			t.Errorf("got %s, want the response of the session", e.Data)
		}
	})
}

func TestBus_CancellationAtAnotherProcess(t *testing.T) {
	forEach(t, sessionRevisions, func(t *testing.T, version string) {
		core := newTestCore()
		f := startReplicas(t, core, nil)
		f.at(0)
		s, other := f.initialize(version), f.initialize(version)
		calling := f.open(s.post(t.Context(), callBody(5, "notifywait")))
		defer calling.Body.Close()
		<-core.started
		f.at(1)
		const cancel = `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":5,"reason":"enough"}}`
		other.send(cancel)
		synctest.Wait()
		if len(core.causes) > 0 {
			t.Errorf("another session cancelled the call: %v", <-core.causes)
		}
		key := sha256.Sum256([]byte(s.id))
		forged := fmt.Sprintf(`{"session":"%x","principal":"another","message":%s}`, key, cancel)
		if n, err := f.store.Memory.Publish(t.Context(), "mcphttp/every", []byte(forged)); n == 0 || err != nil {
			t.Errorf("the message reached %d processes: %v", n, err)
		}
		synctest.Wait()
		if len(core.causes) > 0 {
			t.Errorf("another principal cancelled the call: %v", <-core.causes)
		}
		if got := s.send(cancel); got.status != 202 {
			t.Errorf("got %d %s, want 202", got.status, got.body)
		}
		if cause := <-core.causes; !errors.Is(cause, mcp.ErrCancelled) || !strings.Contains(cause.Error(), "enough") {
			t.Errorf("got %v, want the cancellation with its reason", cause)
		}
	})
}

// A response that is too large for the bus ends the call, which would otherwise wait for minutes.
func TestBus_LargeResponse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := startReplicas(t, newTestCore(), nil)
		f.at(0)
		s := f.initialize(june2025)
		events := f.stream(s.post(t.Context(), callBody(3, "sample")))
		q := events.question(june2025)
		f.at(1)
		if got := s.send(answerTo(q.ID, strings.Repeat("x", 1<<20))); got.status != 202 {
			t.Errorf("got %d, want 202", got.status)
		}
		if e := events.next(); !strings.Contains(string(e.Data), "1 MiB") {
			t.Errorf("got %.300s, want an error", e.Data)
		}
	})
}

func TestBus_NeedsAStore(t *testing.T) {
	defer func() {
		if got := fmt.Sprint(recover()); !strings.Contains(got, "needs a Store") {
			t.Errorf("got %s, want a panic", got)
		}
	}()
	mcphttp.NewHandler(newTestCore(), &mcphttp.Options{Sessions: mcphttp.SessionOptions{Bus: &testStore{}}})
}

func TestBus_Fails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := startReplicas(t, newTestCore(), nil)
		f.store.busFails.Store(true)
		if got := f.do(http.MethodPost, initializeBody(june2025)); got.status != 503 {
			t.Errorf("initialize: got %d %s, want 503", got.status, got.body)
		}
		f.store.busFails.Store(false)
		f.at(0)
		s := f.initialize(june2025)
		events := f.stream(s.post(t.Context(), callBody(3, "sample")))
		q := events.question(june2025)
		f.at(1)
		s.send(callBody(4, "echo"))
		f.store.busFails.Store(true)
		if got := s.send(answerTo(q.ID, "Eve")); got.status != 202 {
			t.Errorf("response: got %d %s, want 202", got.status, got.body)
		}
		f.store.busFails.Store(false)
		s.send(answerTo(q.ID, "Bob"))
		if e := events.next(); !strings.Contains(string(e.Data), "Bob") {
			t.Errorf("got %s, want the second response", e.Data)
		}
	})
}

// Responses that get lost between processes arrive later, if either process reports the loss or the
// bus works again.
func TestBus_LostResponse(t *testing.T) {
	const asking, sending = 0, 1
	causes := map[string]func(s *testStore){
		"at the process that asked":    func(s *testStore) { s.report(asking) },
		"at the process that responds": func(s *testStore) { s.report(sending) },
		"while the bus fails":          func(s *testStore) { s.busFails.Store(false) },
		"while the bus fails for long": func(s *testStore) { <-time.After(30 * time.Second); s.busFails.Store(false) },
	}
	for cause, repair := range causes {
		t.Run(cause, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := startReplicas(t, newTestCore(), nil)
				f.at(asking)
				s := f.initialize(june2025)
				lost := f.stream(s.post(t.Context(), callBody(3, "sample")))
				open := f.stream(s.post(t.Context(), callBody(4, "sample")))
				q, other := lost.question(june2025), open.question(june2025)
				f.at(sending)
				s.send(callBody(5, "echo"))
				fails := strings.Contains(cause, "fails")
				f.store.busFails.Store(fails)
				f.store.drops.Store(!fails)
				if got := s.send(answerTo(q.ID, "Eve")); got.status != 202 {
					t.Errorf("response: got %d %s, want 202", got.status, got.body)
				}
				f.store.drops.Store(false)
				begin := time.Now()
				repair(f.store)
				if e := lost.next(); !strings.Contains(string(e.Data), "Eve") {
					t.Errorf("got %s, want the result", e.Data)
				}
				if waited := time.Since(begin); waited > time.Minute {
					t.Errorf("the result came after %v", waited)
				}
				// A question that was not answered is still open.
				s.send(answerTo(other.ID, "Bob"))
				if e := open.next(); !strings.Contains(string(e.Data), "Bob") {
					t.Errorf("got %s, want the result of the other call", e.Data)
				}
			})
		})
	}
}

// The responses of a session displace no response of another session, and copies that get lost too
// do not cause more copies forever.
func TestBus_CopiesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := startReplicas(t, newTestCore(), nil)
		f.at(0)
		s, noisy := f.initialize(june2025), f.initialize(june2025)
		events := f.stream(s.post(t.Context(), callBody(3, "sample")))
		q := events.question(june2025)
		f.at(1)
		f.store.drops.Store(true)
		s.send(answerTo(q.ID, "Eve"))
		large := answerTo(json.RawMessage(`"AAAAAAAA-`+strings.Repeat("A", 26)+`"`), strings.Repeat("x", 900<<10))
		for range 20 { // of which one is kept
			noisy.send(large)
		}
		before := f.store.published.Load()
		for range 20 {
			f.store.report(1)
			<-time.After(2 * time.Second)
		}
		const requests, copies = 20, 2 * 8
		if got := f.store.published.Load() - before; got != requests+copies {
			t.Errorf("got %d messages, want %d requests for copies and %d copies", got, requests, copies)
		}
		f.store.drops.Store(false)
	})
}

// A process keeps responses for copies within the bounds of all sessions and of a principal, and for as
// long as a process waits for them.
func TestBus_KeptResponsesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := startReplicas(t, newTestCore(), nil)
		f.at(1)
		quiet := f.initialize(june2025, "Authorization: quiet")
		unknown := json.RawMessage(`"AAAAAAAA-` + strings.Repeat("A", 26) + `"`)
		f.store.drops.Store(true)
		quiet.send(answerTo(unknown, "quiet"))
		large := answerTo(unknown, strings.Repeat("x", 900<<10))
		respond := func(principal string, sessions int) {
			for range sessions {
				f.initialize(june2025, "Authorization: "+principal).send(large)
			}
		}
		copies := func() int32 {
			before := f.store.published.Load()
			f.store.report(0) // the only process that used the bus
			<-time.After(2 * time.Second)
			return f.store.published.Load() - before - 1 // the request for copies
		}
		const each = 4 // of a principal, in 4 MiB
		respond("noisy", 2*each)
		if got := copies(); got != 1+each {
			t.Errorf("got %d copies, want 1 of the quiet principal and %d of the noisy principal", got, each)
		}
		for _, principal := range []string{"another", "third"} {
			respond(principal, each)
		}
		if got := copies(); got != 2*each+1 {
			t.Errorf("got %d copies, want the %d that fit into 8 MiB", got, 2*each+1)
		}
		<-time.After(10 * time.Minute)
		if got := copies(); got != 0 {
			t.Errorf("got %d copies after 10 minutes, want none", got)
		}
		f.store.drops.Store(false)
	})
}

// report reports to a process that messages may have been lost. Processes count in the order in which
// they used the bus.
func (s *testStore) report(process int) {
	s.mu.Lock()
	receivers := slices.Clone(s.receivers)
	s.mu.Unlock()
	n := -1
	for _, r := range receivers {
		if strings.HasPrefix(r.topic, "mcphttp/process/") { // the first topic of each process
			n++
		}
		if n == process {
			r.receive(nil)
		}
	}
}

func (s *testStore) Publish(ctx context.Context, topic string, payload []byte) (n int, err error) {
	s.published.Add(1)
	if s.busFails.Load() {
		return 0, errStoreFails
	}
	if s.drops.Load() {
		return 1, nil
	}
	return s.Memory.Publish(ctx, topic, payload)
}

func (s *testStore) Subscribe(ctx context.Context, topic string, receive func([]byte)) (stop func(), err error) {
	if s.busFails.Load() {
		return nil, errStoreFails
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.receivers = append(s.receivers, subscribed{topic, receive})
	return s.Memory.Subscribe(ctx, topic, receive)
}
