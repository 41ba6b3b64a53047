package mcphttp_test

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/mcp"
)

// A client that does not read for longer than a process may be silent receives the result, and no error.
func TestFollow_SlowClient(t *testing.T) {
	forEach(t, streamableRevisions, func(t *testing.T, version string) {
		const count = 4
		begun, proceed := make(chan struct{}), make(chan struct{})
		server := mcp.NewServer("test", "1", nil)
		mcp.AddTool(server, &mcp.Tool{Name: "count"}, func(ctx context.Context, _ struct{}) (string, error) {
			for n := range count {
				mcp.Progress(ctx, float64(n+1), count, strings.Repeat("x", 64<<10))
			}
			close(begun)
			<-proceed
			return "counted", nil
		})
		f, _ := startResuming(t, server)
		f.at(0)
		s := f.initialize(version)
		lastEvent := f.breakCount(s, version)
		<-begun
		f.at(1)
		events := f.stream(s.get(t.Context(), lastEvent))
		<-time.After(20 * time.Second)
		for range count - 1 {
			if e := events.next(); !strings.Contains(string(e.Data), "notifications/progress") {
				t.Fatalf("got %s, want a progress notification", e.Data)
			}
		}
		<-time.After(20 * time.Second)
		close(proceed)
		if e := events.next(); !strings.Contains(string(e.Data), "counted") {
			t.Errorf("got %s, want the result", e.Data)
		}
		events.expectEnd()
	})
}

// The shutdown of the process of a call cancels the call, and the client receives the response from the
// process that follows the stream.
func TestFollow_ProcessOfTheCallShutsDown(t *testing.T) {
	forEach(t, streamableRevisions, func(t *testing.T, version string) {
		core := newTestCore()
		f, _ := startResuming(t, core)
		s := f.initialize(version)
		lastEvent := f.breakCall(core, s, version, callBody(4, "notifywait"))
		events := f.stream(s.get(t.Context(), lastEvent))
		synctest.Wait()
		begin := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		if err := f.handlers[0].Shutdown(ctx); err != nil {
			t.Error(err)
		}
		if e := events.next(); !strings.Contains(string(e.Data), `"id":4`) ||
			strings.Contains(string(e.Data), "may have run") {
			t.Errorf("got %s, want the response of the canceled call", e.Data)
		}
		events.expectEnd()
		if waited := time.Since(begin); waited >= 4*time.Second {
			t.Errorf("the response came after %v, want less than 4s", waited)
		}
	})
}

// A client that has received the response waits for no process, also if the process of the call is gone.
func TestFollow_EndsAfterTheResponse(t *testing.T) {
	forEach(t, streamableRevisions, func(t *testing.T, version string) {
		core := newTestCore()
		f, _ := startResuming(t, core)
		s := f.initialize(version)
		lastEvent := f.breakCall(core, s, version, callBody(4, "notifywait"))
		events := f.stream(s.get(t.Context(), lastEvent))
		synctest.Wait()
		core.proceed <- struct{}{}
		for range 2 {
			begin := time.Now()
			if e := events.next(); !strings.Contains(string(e.Data), "done") {
				t.Errorf("got %s, want the result", e.Data)
			}
			events.expectEnd()
			if waited := time.Since(begin); waited > 0 {
				t.Errorf("the stream ended after %v, want at once", waited)
			}
			f.store.drops.Store(true)
			events = f.stream(s.get(t.Context(), lastEvent))
		}
		events.next()
		f.store.drops.Store(false)
	})
}

// A canceled call ends without a response, so its client receives no error and need not resume.
func TestFollow_CanceledCall(t *testing.T) {
	forEach(t, streamableRevisions, func(t *testing.T, version string) {
		core := newTestCore()
		f, _ := startResuming(t, core)
		s := f.initialize(version)
		lastEvent := f.breakCall(core, s, version, callBody(4, "notifywait"))
		streams := []*stream{f.stream(s.get(t.Context(), lastEvent))} // while the call runs
		synctest.Wait()
		begin := time.Now()
		f.do(http.MethodPost, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":4}}`,
			s.headers...)
		<-core.causes
		synctest.Wait()
		for process := range f.handlers {
			f.at(process)
			streams = append(streams, f.stream(s.get(t.Context(), lastEvent)))
		}
		for _, events := range streams {
			events.expectEnd()
			if retry, ok := events.Retry(); ok && events != streams[1] { // the process of the call knows no follower
				t.Errorf("the client must resume after %v, want the end of the call", retry)
			}
		}
		if waited := time.Since(begin); waited > 0 {
			t.Errorf("the streams ended after %v, want at once", waited)
		}
	})
}

// A process ignores an answer about a stream unless the answer names the principal of the session, and
// reports nothing about the stream to a process that names another principal.
func TestFollow_ReportOfAnotherPrincipal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core := newTestCore()
		f, _ := startResuming(t, core)
		s := f.initialize(june2025, "Authorization: ann")
		for range f.handlers {
			s.send(callBody(9, "echo"))
		}
		reports := f.reports()
		for n, forged := range []func(*report){
			func(r *report) { r.Principal = strings.Repeat("0", len(r.Principal)) },
			func(r *report) { r.Principal = "" },
			func(*report) {}, // which ends the stream
		} {
			lastEvent := f.breakCall(core, s, june2025, callBody(n, "notifywait"))
			ctx, cancel := context.WithTimeout(t.Context(), maxMissing)
			defer cancel()
			events := f.stream(s.get(ctx, lastEvent))
			synctest.Wait()
			question, answer := <-reports, <-reports
			if question.Stream.From == "" { // the bus delivers to the process before the test
				question, answer = answer, question
			}
			if question.Stream.From == "" || answer.Stream.From != "" || answer.Stream.Last != 1 {
				t.Fatalf("got %+v and %+v, want a question and its answer", question, answer)
			}
			forged(&question)
			question.Stream.From = "AAAAAAAA"
			f.publish(question)
			hasPrincipal := question.Principal == answer.Principal
			if got := <-reports; got.topic != "mcphttp/process/AAAAAAAA-" || got.Stream.Over == hasPrincipal ||
				(got.Stream.Last == 1) != hasPrincipal {
				t.Errorf("report %d: got %+v", n, got)
			}
			forged(&answer)
			answer.Stream.Over = true
			f.publish(answer)
			if !hasPrincipal {
				core.proceed <- struct{}{}
				if e := events.next(); !strings.Contains(string(e.Data), "done") {
					t.Errorf("report %d: got %s, want the result", n, e.Data)
				}
			}
			events.expectEnd()
			synctest.Wait()
			for len(reports) > 0 {
				<-reports
			}
		}
		core.proceed <- struct{}{}
	})
}

// A report is a message about a stream.
type report struct {
	topic     string
	Session   string `json:"session"`
	Principal string `json:"principal"`
	Stream    struct {
		Name string `json:"name"`
		From string `json:"from,omitempty"`
		Last int64  `json:"last,omitempty"`
		Over bool   `json:"over,omitempty"`
	} `json:"stream"`
}

// reports returns later reports to the processes that use the bus, and to the process AAAAAAAA.
func (r *replicas) reports() <-chan report {
	reports := make(chan report, 10000)
	r.store.mu.Lock()
	defer r.store.mu.Unlock()
	for _, to := range append(r.store.receivers, subscribed{topic: "mcphttp/process/AAAAAAAA-"}) {
		if !strings.HasPrefix(to.topic, "mcphttp/process/") {
			continue
		}
		stop, err := r.store.Memory.Subscribe(r.t.Context(), to.topic, func(payload []byte) {
			got := report{topic: to.topic}
			if bytes.Contains(payload, []byte(`"stream":`)) && json.Unmarshal(payload, &got) == nil {
				reports <- got
			}
		})
		if err != nil {
			r.t.Fatal(err)
		}
		r.t.Cleanup(stop)
	}
	return reports
}

// publish sends a report to its topic, past the subscriptions of the test.
func (r *replicas) publish(m report) {
	r.t.Helper()
	data, err := json.Marshal(m)
	if err != nil {
		r.t.Fatal(err)
	}
	r.store.mu.Lock()
	defer r.store.mu.Unlock()
	for _, to := range r.store.receivers {
		if to.topic == m.topic {
			to.receive(data)
		}
	}
	synctest.Wait()
}
