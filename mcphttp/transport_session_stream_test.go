package mcphttp_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/mcp/driver"
	"github.com/patchbay-mcp/patchbay/mcphttp"
)

// A fakeServer serves initialize and the notifications. Its functions serve the other requests.
type fakeServer struct {
	version string
	post    http.HandlerFunc // of requests other than initialize
	get     http.HandlerFunc // nil for 405
	del     http.HandlerFunc // nil for 204

	mu    sync.Mutex
	times []time.Time // of GETs
	last  []string    // Last-Event-Id of GETs, "-" for no header
}

func (s *fakeServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.Method {
	case http.MethodGet:
		s.mu.Lock()
		s.times = append(s.times, time.Now())
		s.last = append(s.last, strings.Join(append(r.Header["Last-Event-Id"], "-")[:1], ""))
		s.mu.Unlock()
		if s.get == nil {
			w.WriteHeader(http.StatusMethodNotAllowed)
			return
		}
		s.get(w, r)
		return
	case http.MethodDelete:
		if s.del != nil {
			s.del(w, r)
		}
		return
	}
	body, _ := io.ReadAll(r.Body)
	r.Body = io.NopCloser(strings.NewReader(string(body)))
	switch {
	case strings.Contains(string(body), `"initialize"`):
		w.Header().Set("Mcp-Session-Id", "s1")
		version := s.version
		if version == "" {
			version = november2025
		}
		writeJSON(w, 200, `{"jsonrpc":"2.0","id":`+idOf(r)+`,"result":{"protocolVersion":"`+version+
			`","capabilities":{}}}`)
	case !strings.Contains(string(body), `"id"`):
		w.WriteHeader(http.StatusAccepted)
	default:
		s.post(w, r)
	}
}

// gets returns the times between GETs, and their Last-Event-Id.
func (s *fakeServer) gets() (pauses []time.Duration, last []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, at := range s.times[1:] {
		pauses = append(pauses, at.Sub(s.times[i]))
	}
	return pauses, slices.Clone(s.last)
}

// eventResult returns an event with the response to a request.
func eventResult(id string) string {
	return `data: {"jsonrpc":"2.0","id":` + id + `,"result":{"n":` + id + `}}`
}

// waitForDisconnect serves a request until the client disconnects.
func waitForDisconnect(_ http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	<-r.Context().Done()
}

// Requirement: LHTTP-06, LHTTP-07, LHTTP-20
func TestRetryAndTheLastEventIDAreUsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &fakeServer{}
		var id string
		s.post = func(w http.ResponseWriter, r *http.Request) {
			id = idOf(r)
			writeEvents(w, "id: e0\nretry: 1500\ndata:")
		}
		n := 0
		s.get = func(w http.ResponseWriter, r *http.Request) {
			switch n++; {
			case r.Header.Get("Last-Event-Id") == "":
				w.WriteHeader(405) // the standalone stream
				n = 0
			case n <= 8: // more than the limit of failed attempts
				writeEvents(w, fmt.Sprintf("id: e%d\nretry: 2000\ndata: "+
					`{"jsonrpc":"2.0","method":"notifications/n%d"}`, n, n))
			default:
				writeEvents(w, eventResult(id))
			}
		}
		c := initialized(t, newMemTransport(t, s.ServeHTTP, nil), november2025)
		if m := c.mustCall("tools/call", `{}`); string(m.Result) != `{"n":`+id+`}` {
			t.Errorf("got %s, want the result", m.Result)
		}
		for i := range 8 {
			c.next(fmt.Sprintf("notifications/n%d", i+1))
		}
		pauses, last := s.gets()
		if want := []string{"-", "e0", "e1", "e2", "e3", "e4", "e5", "e6", "e7", "e8"}; !slices.Equal(last, want) {
			t.Errorf("got last events %v, want %v", last, want)
		}
		if want := slices.Repeat([]time.Duration{2 * time.Second}, 8); pauses[0] != 1500*time.Millisecond ||
			!slices.Equal(pauses[1:], want) {
			t.Errorf("got pauses %v, want 1.5s and then %v", pauses, want)
		}
	})
}

func TestTransport_LimitsRetry(t *testing.T) {
	for retry, want := range map[string]time.Duration{"0": 100 * time.Millisecond, "1": 100 * time.Millisecond,
		"99999999999999999999": time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			s := &fakeServer{}
			var id string
			var at time.Time
			s.post = func(w http.ResponseWriter, r *http.Request) {
				id, at = idOf(r), time.Now()
				writeEvents(w, "id: e0\nretry: "+retry+"\ndata:")
			}
			s.get = func(w http.ResponseWriter, r *http.Request) {
				if r.Header.Get("Last-Event-Id") == "" {
					w.WriteHeader(405)
					return
				}
				if got := time.Since(at); got != want {
					t.Errorf("retry %s: waited %v, want %v", retry, got, want)
				}
				writeEvents(w, eventResult(id))
			}
			initialized(t, newMemTransport(t, s.ServeHTTP, nil), november2025).mustCall("tools/call", `{}`)
		})
	}
}

func TestTransport_StopsAfterFiveFailedReconnections(t *testing.T) {
	for name, get := range map[string]http.HandlerFunc{
		"status 503": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(503) },
		"broken": func(w http.ResponseWriter, _ *http.Request) {
			writeEvents(w, ": x")
			panic(http.ErrAbortHandler)
		},
		"an empty stream": func(w http.ResponseWriter, _ *http.Request) { writeEvents(w) },
		"comments":        func(w http.ResponseWriter, _ *http.Request) { writeEvents(w, ": x") },
		"the same event":  func(w http.ResponseWriter, _ *http.Request) { writeEvents(w, "id: e0") },
		"only retry":      func(w http.ResponseWriter, _ *http.Request) { writeEvents(w, "retry: 1000") },
		"half of an event": func(w http.ResponseWriter, _ *http.Request) {
			writeEvents(w, "")
			_, _ = io.WriteString(w, "data: {")
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &fakeServer{}
				s.post = func(w http.ResponseWriter, r *http.Request) { writeEvents(w, "id: e0\ndata:") }
				s.get = func(w http.ResponseWriter, r *http.Request) {
					if r.Header.Get("Last-Event-Id") == "" {
						w.WriteHeader(405)
						return
					}
					get(w, r)
				}
				c := initialized(t, newMemTransport(t, s.ServeHTTP, nil), november2025)
				_, err := c.try(t.Context(), "tools/call", `{}`)
				if err == nil || !mayHaveRun(t, err) || errors.Is(err, driver.ErrSessionLost) {
					t.Errorf("got %v, want an error with MayHaveRun", err)
				}
				pauses, last := s.gets()
				if len(last) != 1+5 {
					t.Errorf("%d attempts, want 5", len(last)-1)
				}
				for i, pause := range pauses[1:] { // the first one is since initialize
					least := time.Second << (i + 1)
					if name == "only retry" {
						least = time.Second << i
					}
					if pause < least || pause > 30*time.Second {
						t.Errorf("got pauses %v, want at least %v and at most 30s", pauses, least)
					}
				}
			})
		})
	}
}

// The stream has a new event after each reconnection.
func TestTransport_LimitsReconnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &fakeServer{}
		n := 0
		next := func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodGet && r.Header.Get("Last-Event-Id") == "" {
				w.WriteHeader(405)
				return
			}
			n++
			writeEvents(w, fmt.Sprintf("id: e%d\nretry: 1\ndata:", n))
		}
		s.post, s.get = next, next
		c := initialized(t, newMemTransport(t, s.ServeHTTP, nil), november2025)
		if _, err := c.try(t.Context(), "tools/call", `{}`); err == nil || !mayHaveRun(t, err) {
			t.Errorf("got %v, want an error with MayHaveRun", err)
		}
		if n != 1+1000 {
			t.Errorf("the stream was opened %d times, want 1001", n)
		}
	})
}

func TestTransport_DoesNotReconnectAfterFinalErrors(t *testing.T) {
	for name, test := range map[string]struct {
		post func(id string) []string
		get  int
		want error
		gets int
	}{
		"no id": {post: func(string) []string { return []string{": x"} },
			want: io.ErrUnexpectedEOF},
		"empty id": {post: func(string) []string {
			return []string{"id: e0\ndata:", "id\ndata:"}
		}, want: io.ErrUnexpectedEOF},
		"id that is not a header value": {post: func(string) []string { return []string{"id: e\x01\ndata:"} },
			want: io.ErrUnexpectedEOF},
		"too large": {post: func(string) []string {
			return []string{"id: e0\ndata:", "data: " + strings.Repeat("x", 2000)}
		}, want: mcphttp.ErrTooLarge},
		"invalid response": {post: func(id string) []string {
			return []string{"id: e0\ndata:", `data: {"jsonrpc":"2.0","id":` + id + `,"result":{"a":1,"a":1}}`}
		}},
		"401":                  {post: func(string) []string { return []string{"id: e0\ndata:"} }, get: 401, gets: 1},
		"405":                  {post: func(string) []string { return []string{"id: e0\ndata:"} }, get: 405, gets: 1},
		"200 without a stream": {post: func(string) []string { return []string{"id: e0\ndata:"} }, get: 200, gets: 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &fakeServer{}
				s.post = func(w http.ResponseWriter, r *http.Request) { writeEvents(w, test.post(idOf(r))...) }
				s.get = func(w http.ResponseWriter, r *http.Request) {
					if r.Header.Get("Last-Event-Id") == "" {
						w.WriteHeader(405)
						return
					}
					w.WriteHeader(test.get)
				}
				c := initialized(t, newMemTransport(t, s.ServeHTTP, &mcphttp.TransportOptions{MaxEvent: 1000}),
					november2025)
				_, err := c.try(t.Context(), "tools/call", `{}`)
				if err == nil || !mayHaveRun(t, err) || test.want != nil && !errors.Is(err, test.want) {
					t.Errorf("got %v, want %v", err, test.want)
				}
				if _, last := s.gets(); len(last) != 1+test.gets {
					t.Errorf("got GETs %v, want %d after the first", last, test.gets)
				}
			})
		})
	}
}

// A GET with status 404 is followed by a ping, which shows whether the session or only the stream is
// unknown.
func TestResume_UnknownStreamOrUnknownSession(t *testing.T) {
	for _, known := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			s := &fakeServer{}
			calls := 0
			s.post = func(w http.ResponseWriter, r *http.Request) {
				if calls++; calls == 1 {
					writeEvents(w, "id: e0\ndata:")
				} else if known {
					writeJSON(w, 200, result(r))
				} else {
					w.WriteHeader(404)
				}
			}
			s.get = func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(404) }
			c := initialized(t, newMemTransport(t, s.ServeHTTP, nil), november2025)
			_, err := c.try(t.Context(), "tools/call", `{}`)
			if err == nil || !mayHaveRun(t, err) || errors.Is(err, driver.ErrSessionLost) == known {
				t.Errorf("got %v, want ErrSessionLost %v", err, !known)
			}
			select {
			case <-c.Done():
				if known {
					t.Error("the session ended with the stream")
				}
			default:
				if !known {
					t.Error("the session has not ended")
				}
			}
		})
	}
}

// A session works without its standalone stream, which is opened again when a request succeeds.
//
// Requirement: LHTTP-15
func TestStandaloneStreamIsReopened(t *testing.T) {
	forEach(t, streamableRevisions, func(t *testing.T, version string) {
		s := &fakeServer{version: version}
		s.post = func(w http.ResponseWriter, r *http.Request) { writeJSON(w, 200, result(r)) }
		var available atomic.Bool
		s.get = func(w http.ResponseWriter, r *http.Request) {
			if !available.Load() {
				w.WriteHeader(http.StatusBadGateway)
				return
			}
			writeEvents(w, `data: {"jsonrpc":"2.0","method":"notifications/a"}`)
			waitForDisconnect(w, r)
		}
		c := initialized(t, newMemTransport(t, s.ServeHTTP, nil), version)
		time.Sleep(time.Hour)
		if _, last := s.gets(); len(last) != 5 {
			t.Errorf("%d attempts, want 5", len(last))
		}
		available.Store(true)
		c.mustCall("ping", `{}`)
		c.next("notifications/a")
		c.mustCall("ping", `{}`)
	})
}

// If the standalone stream is opened again without Last-Event-ID, messages may have been missed.
//
// Requirement: SUB-11
func TestReopenedStandaloneStreamReportsAGap(t *testing.T) {
	for name, id := range map[string]string{"with an event id": "id: 1\n", "without": ""} {
		synctest.Test(t, func(t *testing.T) {
			s := &fakeServer{}
			s.post = func(w http.ResponseWriter, r *http.Request) { writeJSON(w, 200, result(r)) }
			var opened atomic.Int64
			s.get = func(w http.ResponseWriter, r *http.Request) {
				writeEvents(w, id+`data: {"jsonrpc":"2.0","method":"notifications/a"}`)
				if opened.Add(1) == 2 {
					waitForDisconnect(w, r)
				}
			}
			c := initialized(t, newMemTransport(t, s.ServeHTTP, nil), november2025)
			time.Sleep(time.Minute)
			var got []string
			for len(c.received) > 0 {
				what := "missed"
				if m := <-c.received; m != nil {
					what = m.Method
				}
				got = append(got, what)
			}
			want := "[notifications/a missed notifications/a]"
			if id != "" {
				want = "[notifications/a notifications/a]"
			}
			if fmt.Sprint(got) != want {
				t.Errorf("%s: received %v, want %s", name, got, want)
			}
		})
	}
}

// The server ends every standalone stream at once.
//
// Requirement: LHTTP-15
func TestEmptyStandaloneStreamIsNotReopened(t *testing.T) {
	forEach(t, streamableRevisions, func(t *testing.T, version string) {
		s := &fakeServer{version: version}
		s.post = func(w http.ResponseWriter, r *http.Request) { writeJSON(w, 200, result(r)) }
		s.get = func(w http.ResponseWriter, r *http.Request) { writeEvents(w) }
		c := initialized(t, newMemTransport(t, s.ServeHTTP, nil), version)
		for range 10 {
			time.Sleep(time.Hour)
			c.mustCall("ping", `{}`)
		}
		if _, last := s.gets(); len(last) != 5 {
			t.Errorf("%d attempts, want 5", len(last))
		}
	})
}

func TestStandaloneStream_ResponsesAreDropped(t *testing.T) {
	forEach(t, streamableRevisions, func(t *testing.T, version string) {
		s := &fakeServer{version: version}
		s.get = func(w http.ResponseWriter, r *http.Request) {
			writeEvents(w, eventResult("2"), `data: {"jsonrpc":"2.0","id":2,"result":{"a":1,"a":2}}`,
				`data: {"jsonrpc":"2.0","error":{"code":1,"message":"x"}}`)
			waitForDisconnect(w, r)
		}
		s.post = func(w http.ResponseWriter, r *http.Request) {
			time.Sleep(time.Second)
			writeJSON(w, 200, result(r))
		}
		c := initialized(t, newMemTransport(t, s.ServeHTTP, nil), version)
		if m := c.mustCall("ping", `{}`); string(m.Result) != `{"resultType":"complete"}` {
			t.Errorf("got %s, want the result of the POST", m.Result)
		}
		if len(c.received) != 0 {
			t.Errorf("%d messages were received, want none", len(c.received))
		}
	})
}

// A syncBuffer is a buffer that several goroutines may use.
type syncBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// Servers without a standalone stream respond with several statuses.
func TestStandaloneStream_RefusalIsNotLoggedAsAWarning(t *testing.T) {
	for status, want := range map[int]string{204: "", 400: "level=INFO", 404: "level=INFO", 405: "", 501: "level=WARN"} {
		synctest.Test(t, func(t *testing.T) {
			var log syncBuffer
			s := &fakeServer{get: func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }}
			initialized(t, newMemTransport(t, s.ServeHTTP,
				&mcphttp.TransportOptions{Logger: slog.New(slog.NewTextHandler(&log, nil))}), november2025)
			time.Sleep(time.Hour)
			if got := log.String(); !strings.Contains(got, want) ||
				strings.Contains(got, "level=WARN") != (want == "level=WARN") || want == "" && got != "" {
				t.Errorf("%d: logged %q, want %q", status, got, want)
			}
		})
	}
}
