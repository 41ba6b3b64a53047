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

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcphttp"
)

// A scripted server answers the handshake, and leaves the rest to the functions that are set.
type fakeServer struct {
	version string
	post    http.HandlerFunc // of all but the handshake
	get     http.HandlerFunc // nil for 405
	del     http.HandlerFunc // nil for 204

	mu    sync.Mutex
	times []time.Time // of GETs
	last  []string    // Last-Event-Id of GETs, - for none
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
		writeJSON(w, 200, `{"jsonrpc":"2.0","id":`+idOf(r)+`,"result":{"protocolVersion":"`+version+`","capabilities":{}}}`)
	case !strings.Contains(string(body), `"id"`):
		w.WriteHeader(http.StatusAccepted)
	default:
		s.post(w, r)
	}
}

// gets returns the times between GETs, and the ids that they began after.
func (s *fakeServer) gets() (pauses []time.Duration, last []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, at := range s.times[1:] {
		pauses = append(pauses, at.Sub(s.times[i]))
	}
	return pauses, slices.Clone(s.last)
}

// eventResult is the event that answers request n.
func eventResult(id string) string {
	return `data: {"jsonrpc":"2.0","id":` + id + `,"result":{"n":` + id + `}}`
}

// hang holds a request until its client goes.
func waitForDisconnect(_ http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	<-r.Context().Done()
}

func TestLHTTP06_07_RetryIsHonouredAndTheLastEventSent(t *testing.T) {
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
			case n <= 8: // more often than attempts in vain
				writeEvents(w, fmt.Sprintf("id: e%d\nretry: 2000\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/n%d\"}", n, n))
			default:
				writeEvents(w, eventResult(id))
			}
		}
		c := initialized(t, newMemTransport(t, s.ServeHTTP, nil), november2025)
		if m := c.mustCall("tools/call", `{}`); string(m.Result) != `{"n":`+id+`}` {
			t.Errorf("got %s", m.Result)
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
			t.Errorf("got pauses %v", pauses)
		}
	})
}

func TestR7_2_RetryIsClamped(t *testing.T) {
	for asked, want := range map[string]time.Duration{"0": 100 * time.Millisecond, "1": 100 * time.Millisecond,
		"99999999999999999999": time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			s := &fakeServer{}
			var id string
			var at time.Time
			s.post = func(w http.ResponseWriter, r *http.Request) {
				id, at = idOf(r), time.Now()
				writeEvents(w, "id: e0\nretry: "+asked+"\ndata:")
			}
			s.get = func(w http.ResponseWriter, r *http.Request) {
				if r.Header.Get("Last-Event-Id") == "" {
					w.WriteHeader(405)
					return
				}
				if got := time.Since(at); got != want {
					t.Errorf("retry %s: waited %v, want %v", asked, got, want)
				}
				writeEvents(w, eventResult(id))
			}
			initialized(t, newMemTransport(t, s.ServeHTTP, nil), november2025).mustCall("tools/call", `{}`)
		})
	}
}

// A stream that cannot be taken up is given up after five attempts, whatever the server does about them.
func TestR7_2_ReconnectionEnds(t *testing.T) {
	for name, get := range map[string]http.HandlerFunc{
		"status 503": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(503) },
		"cut": func(w http.ResponseWriter, _ *http.Request) {
			writeEvents(w,
				": x")
			panic(http.ErrAbortHandler)
		},
		"an empty stream": func(w http.ResponseWriter, _ *http.Request) { writeEvents(w) },
		"comments":        func(w http.ResponseWriter, _ *http.Request) { writeEvents(w, ": x") },
		"the same event":  func(w http.ResponseWriter, _ *http.Request) { writeEvents(w, "id: e0") },
		"only retry":      func(w http.ResponseWriter, _ *http.Request) { writeEvents(w, "retry: 1000") },
		"half of an event": func(w http.ResponseWriter, _ *http.Request) {
			writeEvents(w, "")
			_,
				_ = io.WriteString(w, "data: {")
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
				if err == nil || !mayHaveRun(t, err) || errors.Is(err, mcp.ErrSessionLost) {
					t.Errorf("got %v", err)
				}
				pauses, last := s.gets()
				if len(last) != 1+5 {
					t.Errorf("%d attempts, want 5", len(last)-1)
				}
				for i, pause := range pauses[1:] { // the first is since the handshake
					least := time.Second << (i + 1)
					if name == "only retry" {
						least = time.Second << i
					}
					if pause < least || pause > 30*time.Second {
						t.Errorf("pauses are %v", pauses)
					}
				}
			})
		})
	}
}

// Even a stream that always brings something new comes to an end.
func TestR7_2_EndlessStreamEnds(t *testing.T) {
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
			t.Errorf("got %v", err)
		}
		if n != 1+1000 {
			t.Errorf("the stream was opened %d times", n)
		}
	})
}

// What ends a stream for good is not asked for again.
func TestR7_2_NoReconnectionAfterFinalErrors(t *testing.T) {
	for name, test := range map[string]struct {
		post func(id string) []string
		get  int
		want error
		gets int
	}{
		"no id": {post: func(string) []string { return []string{"data: {}"[:0] + ": x"} },
			want: io.ErrUnexpectedEOF},
		"id was taken back": {post: func(string) []string {
			return []string{"id: e0\ndata:",
				"id\ndata:"}
		}, want: io.ErrUnexpectedEOF},
		"an id that no header carries": {post: func(string) []string { return []string{"id: e\x01\ndata:"} },
			want: io.ErrUnexpectedEOF},
		"too large": {post: func(string) []string {
			return []string{"id: e0\ndata:",
				"data: " + strings.Repeat("x", 2000)}
		}, want: mcphttp.ErrTooLarge},
		"a bad answer": {post: func(id string) []string {
			return []string{"id: e0\ndata:", `data: {"jsonrpc":"2.0","id":` + id + `,"result":{"a":1,"a":1}}`}
		}},
		"401":                {post: func(string) []string { return []string{"id: e0\ndata:"} }, get: 401, gets: 1},
		"405":                {post: func(string) []string { return []string{"id: e0\ndata:"} }, get: 405, gets: 1},
		"200, but no stream": {post: func(string) []string { return []string{"id: e0\ndata:"} }, get: 200, gets: 1},
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
					t.Errorf("got GETs %v, want %d more than the first", last, test.gets)
				}
			})
		})
	}
}

// A server that does not know a stream may know the session, or not even that.
func TestLHTTP22_UnknownStreamOrUnknownSession(t *testing.T) {
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
			if err == nil || !mayHaveRun(t, err) || errors.Is(err, mcp.ErrSessionLost) == known {
				t.Errorf("got %v", err)
			}
			select {
			case <-c.Done():
				if known {
					t.Error("the session has ended with the stream")
				}
			default:
				if !known {
					t.Error("the session has not ended")
				}
			}
		})
	}
}

// A session works without its standalone stream, and gets it back when the server does.
func TestLHTTP15_StandaloneStreamFailsApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &fakeServer{}
		s.post = func(w http.ResponseWriter, r *http.Request) { writeJSON(w, 200, result(r)) }
		var there atomic.Bool
		s.get = func(w http.ResponseWriter, r *http.Request) {
			if !there.Load() {
				w.WriteHeader(http.StatusBadGateway)
				return
			}
			writeEvents(w, `data: {"jsonrpc":"2.0","method":"notifications/a"}`)
			waitForDisconnect(w, r)
		}
		c := initialized(t, newMemTransport(t, s.ServeHTTP, nil), november2025)
		time.Sleep(time.Hour)
		if _, last := s.gets(); len(last) != 5 {
			t.Errorf("%d attempts, want 5", len(last))
		}
		there.Store(true)
		c.mustCall("ping", `{}`)
		c.next("notifications/a")
		c.mustCall("ping", `{}`)
	})
}

// When the standalone stream is opened again and cannot go on where it was, messages may have been missed.
func TestSUB11_ReopenedStandaloneStreamReportsAGap(t *testing.T) {
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

// A server that takes the standalone stream and ends it at once has none, as it were.
func TestLHTTP15_EmptyStandaloneStreamIsNotAskedForAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &fakeServer{}
		s.post = func(w http.ResponseWriter, r *http.Request) { writeJSON(w, 200, result(r)) }
		s.get = func(w http.ResponseWriter, r *http.Request) { writeEvents(w) }
		c := initialized(t, newMemTransport(t, s.ServeHTTP, nil), november2025)
		for range 10 {
			time.Sleep(time.Hour)
			c.mustCall("ping", `{}`)
		}
		if _, last := s.gets(); len(last) != 5 {
			t.Errorf("%d attempts, want 5", len(last))
		}
	})
}

// A server that fills the standalone stream holds up nothing, and its answers there are nobody's.
func TestR7_3_13_AnswersOnTheStandaloneStreamAreDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &fakeServer{}
		s.get = func(w http.ResponseWriter, r *http.Request) {
			writeEvents(w, eventResult("2"), `data: {"jsonrpc":"2.0","id":2,"result":{"a":1,"a":2}}`,
				`data: {"jsonrpc":"2.0","error":{"code":1,"message":"x"}}`)
			waitForDisconnect(w, r)
		}
		s.post = func(w http.ResponseWriter, r *http.Request) {
			time.Sleep(time.Second)
			writeJSON(w, 200, result(r))
		}
		c := initialized(t, newMemTransport(t, s.ServeHTTP, nil), november2025)
		if m := c.mustCall("ping", `{}`); string(m.Result) != `{"resultType":"complete"}` {
			t.Errorf("got %s", m.Result)
		}
		if len(c.received) != 0 {
			t.Errorf("%d messages were received", len(c.received))
		}
	})
}

// A syncBuffer may be written and read by several goroutines.
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

// Servers have several ways to say that they have no standalone stream. None of them is worth a warning.
func TestLHTTP15_RefusedStandaloneStreamIsNoWarning(t *testing.T) {
	for status, want := range map[int]string{400: "level=INFO", 404: "level=INFO", 405: "", 501: "level=WARN"} {
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
