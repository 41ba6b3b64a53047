package mcphttp_test

import (
	"bytes"
	"context"
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

	"github.com/patchbay-mcp/patchbay/jsonrpc"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcphttp"
)

// A scripted server answers the handshake, and leaves the rest to the functions that are set.
type scripted struct {
	version string
	post    http.HandlerFunc // of all but the handshake
	get     http.HandlerFunc // nil for 405
	del     http.HandlerFunc // nil for 204

	mu    sync.Mutex
	times []time.Time // of GETs
	last  []string    // Last-Event-Id of GETs, - for none
}

func (s *scripted) ServeHTTP(w http.ResponseWriter, r *http.Request) {
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
func (s *scripted) gets() (pauses []time.Duration, last []string) {
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
func hang(_ http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	<-r.Context().Done()
}

func TestLHTTP26_33_HeadersOfASession(t *testing.T) {
	for version, sent := range map[string]string{march2025: "", june2025: june2025, november2025: november2025} {
		synctest.Test(t, func(t *testing.T) {
			var mu sync.Mutex
			seen := map[string]http.Header{}
			note := func(r *http.Request) {
				mu.Lock()
				defer mu.Unlock()
				seen[r.Method] = r.Header
			}
			s := &scripted{version: version}
			s.post = func(w http.ResponseWriter, r *http.Request) { note(r); writeJSON(w, 200, result(r)) }
			s.get = func(w http.ResponseWriter, r *http.Request) { note(r); w.WriteHeader(405) }
			s.del = func(_ http.ResponseWriter, r *http.Request) { note(r) }
			c := initialized(t, serveMemory(t, s.ServeHTTP, &mcphttp.TransportOptions{Header: http.Header{"X-Key": {"k"}}}), version)
			c.ask("ping", `{}`)
			c.Close()
			for _, method := range []string{"POST", "GET", "DELETE"} {
				h := seen[method]
				if h.Get("Mcp-Session-Id") != "s1" || h.Get("Mcp-Protocol-Version") != sent || h.Get("X-Key") != "k" || h.Get("Mcp-Method") != "" {
					t.Errorf("%s, %s: got %v", version, method, h)
				}
				if accept := h.Get("Accept"); method == "GET" && accept != "text/event-stream" || method == "POST" && accept != "application/json, text/event-stream" {
					t.Errorf("%s: Accept is %q", method, accept)
				}
			}
		})
	}
}

func TestLHTTP25_SessionIDsThatAreNone(t *testing.T) {
	for _, id := range []string{"a b", "é", strings.Repeat("x", 4097), "\x7f"} {
		tr := serve(t, func(w http.ResponseWriter, r *http.Request) {
			w.Header()["Mcp-Session-Id"] = []string{id}
			writeJSON(w, 200, `{"jsonrpc":"2.0","id":`+idOf(r)+`,"result":{"protocolVersion":"2025-11-25"}}`)
		}, nil)
		if _, err := openLink(t, tr).try(t.Context(), "initialize", `{}`); err == nil || !mayHaveRun(t, err) {
			t.Errorf("%q: got %v", id, err)
		}
	}
}

func TestLHTTP06_07_RetryIsHonouredAndTheLastEventSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &scripted{}
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
		c := initialized(t, serveMemory(t, s.ServeHTTP, nil), november2025)
		if m := c.ask("tools/call", `{}`); string(m.Result) != `{"n":`+id+`}` {
			t.Errorf("got %s", m.Result)
		}
		for i := range 8 {
			c.next(fmt.Sprintf("notifications/n%d", i+1))
		}
		pauses, last := s.gets()
		if want := []string{"-", "e0", "e1", "e2", "e3", "e4", "e5", "e6", "e7", "e8"}; !slices.Equal(last, want) {
			t.Errorf("got last events %v, want %v", last, want)
		}
		if want := slices.Repeat([]time.Duration{2 * time.Second}, 8); pauses[0] != 1500*time.Millisecond || !slices.Equal(pauses[1:], want) {
			t.Errorf("got pauses %v", pauses)
		}
	})
}

func TestR7_2_RetryIsClamped(t *testing.T) {
	for asked, want := range map[string]time.Duration{"0": 100 * time.Millisecond, "1": 100 * time.Millisecond, "99999999999999999999": time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			s := &scripted{}
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
			initialized(t, serveMemory(t, s.ServeHTTP, nil), november2025).ask("tools/call", `{}`)
		})
	}
}

// A stream that cannot be taken up is given up after five attempts, whatever the server does about them.
func TestR7_2_ReconnectionEnds(t *testing.T) {
	for name, get := range map[string]http.HandlerFunc{
		"status 503":       func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(503) },
		"cut":              func(w http.ResponseWriter, _ *http.Request) { writeEvents(w, ": x"); panic(http.ErrAbortHandler) },
		"an empty stream":  func(w http.ResponseWriter, _ *http.Request) { writeEvents(w) },
		"comments":         func(w http.ResponseWriter, _ *http.Request) { writeEvents(w, ": x") },
		"the same event":   func(w http.ResponseWriter, _ *http.Request) { writeEvents(w, "id: e0") },
		"only retry":       func(w http.ResponseWriter, _ *http.Request) { writeEvents(w, "retry: 1000") },
		"half of an event": func(w http.ResponseWriter, _ *http.Request) { writeEvents(w, ""); _, _ = io.WriteString(w, "data: {") },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &scripted{}
				s.post = func(w http.ResponseWriter, r *http.Request) { writeEvents(w, "id: e0\ndata:") }
				s.get = func(w http.ResponseWriter, r *http.Request) {
					if r.Header.Get("Last-Event-Id") == "" {
						w.WriteHeader(405)
						return
					}
					get(w, r)
				}
				c := initialized(t, serveMemory(t, s.ServeHTTP, nil), november2025)
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
		s := &scripted{}
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
		c := initialized(t, serveMemory(t, s.ServeHTTP, nil), november2025)
		if _, err := c.try(t.Context(), "tools/call", `{}`); err == nil || !mayHaveRun(t, err) {
			t.Errorf("got %v", err)
		}
		if n != 1+1000 {
			t.Errorf("the stream was opened %d times", n)
		}
	})
}

// What ends a stream for good is not asked for again.
func TestR7_2_NoReconnectionAfterWhatIsFinal(t *testing.T) {
	for name, test := range map[string]struct {
		post func(id string) []string
		get  int
		want error
		gets int
	}{
		"no id":                        {post: func(string) []string { return []string{"data: {}"[:0] + ": x"} }, want: io.ErrUnexpectedEOF},
		"id was taken back":            {post: func(string) []string { return []string{"id: e0\ndata:", "id\ndata:"} }, want: io.ErrUnexpectedEOF},
		"an id that no header carries": {post: func(string) []string { return []string{"id: e\x01\ndata:"} }, want: io.ErrUnexpectedEOF},
		"too large":                    {post: func(string) []string { return []string{"id: e0\ndata:", "data: " + strings.Repeat("x", 2000)} }, want: mcphttp.ErrTooLarge},
		"a bad answer": {post: func(id string) []string {
			return []string{"id: e0\ndata:", `data: {"jsonrpc":"2.0","id":` + id + `,"result":{"a":1,"a":1}}`}
		}},
		"401":                {post: func(string) []string { return []string{"id: e0\ndata:"} }, get: 401, gets: 1},
		"405":                {post: func(string) []string { return []string{"id: e0\ndata:"} }, get: 405, gets: 1},
		"200, but no stream": {post: func(string) []string { return []string{"id: e0\ndata:"} }, get: 200, gets: 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &scripted{}
				s.post = func(w http.ResponseWriter, r *http.Request) { writeEvents(w, test.post(idOf(r))...) }
				s.get = func(w http.ResponseWriter, r *http.Request) {
					if r.Header.Get("Last-Event-Id") == "" {
						w.WriteHeader(405)
						return
					}
					w.WriteHeader(test.get)
				}
				c := initialized(t, serveMemory(t, s.ServeHTTP, &mcphttp.TransportOptions{MaxEvent: 1000}), november2025)
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
			s := &scripted{}
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
			c := initialized(t, serveMemory(t, s.ServeHTTP, nil), november2025)
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
		s := &scripted{}
		s.post = func(w http.ResponseWriter, r *http.Request) { writeJSON(w, 200, result(r)) }
		var there atomic.Bool
		s.get = func(w http.ResponseWriter, r *http.Request) {
			if !there.Load() {
				w.WriteHeader(http.StatusBadGateway)
				return
			}
			writeEvents(w, `data: {"jsonrpc":"2.0","method":"notifications/a"}`)
			hang(w, r)
		}
		c := initialized(t, serveMemory(t, s.ServeHTTP, nil), november2025)
		time.Sleep(time.Hour)
		if _, last := s.gets(); len(last) != 5 {
			t.Errorf("%d attempts, want 5", len(last))
		}
		there.Store(true)
		c.ask("ping", `{}`)
		c.next("notifications/a")
		c.ask("ping", `{}`)
	})
}

// When the standalone stream is opened again and cannot go on where it was, messages may have been missed.
func TestSUB11_AStandaloneStreamThatBeginsAnewSaysSo(t *testing.T) {
	for name, id := range map[string]string{"with an event id": "id: 1\n", "without": ""} {
		synctest.Test(t, func(t *testing.T) {
			s := &scripted{}
			s.post = func(w http.ResponseWriter, r *http.Request) { writeJSON(w, 200, result(r)) }
			var opened atomic.Int64
			s.get = func(w http.ResponseWriter, r *http.Request) {
				writeEvents(w, id+`data: {"jsonrpc":"2.0","method":"notifications/a"}`)
				if opened.Add(1) == 2 {
					hang(w, r)
				}
			}
			c := initialized(t, serveMemory(t, s.ServeHTTP, nil), november2025)
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
		s := &scripted{}
		s.post = func(w http.ResponseWriter, r *http.Request) { writeJSON(w, 200, result(r)) }
		s.get = func(w http.ResponseWriter, r *http.Request) { writeEvents(w) }
		c := initialized(t, serveMemory(t, s.ServeHTTP, nil), november2025)
		for range 10 {
			time.Sleep(time.Hour)
			c.ask("ping", `{}`)
		}
		if _, last := s.gets(); len(last) != 5 {
			t.Errorf("%d attempts, want 5", len(last))
		}
	})
}

// The handshake waits for the stream, but not for long.
func TestLHTTP11_HandshakeWaitsForTheStream(t *testing.T) {
	for answer, want := range map[time.Duration]time.Duration{0: 0, 500 * time.Millisecond: 500 * time.Millisecond, time.Hour: time.Second} {
		synctest.Test(t, func(t *testing.T) {
			s := &scripted{}
			s.get = func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				select {
				case <-time.After(answer):
					writeEvents(w)
					w.(http.Flusher).Flush()
				case <-r.Context().Done():
				}
				hang(w, r)
			}
			tr := serveMemory(t, s.ServeHTTP, nil)
			began := time.Now()
			initialized(t, tr, november2025)
			if got := time.Since(began); got != want {
				t.Errorf("a server that takes %v: waited %v, want %v", answer, got, want)
			}
		})
	}
}

func TestR7_3_14_SessionIDStaysWithinTheOrigin(t *testing.T) {
	for to, follows := range map[string]bool{"/other": true, "http://elsewhere.test/mcp": false, "https://localhost:8765/mcp": false, "http://localhost:8766/mcp": false} {
		synctest.Test(t, func(t *testing.T) {
			s := &scripted{}
			reached := false
			s.get = func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/other" || r.Host != "localhost:8765" {
					reached = true
					if id := r.Header.Get("Mcp-Session-Id"); id != "s1" {
						t.Errorf("the session id is %q", id)
					}
					w.WriteHeader(405)
					return
				}
				http.Redirect(w, r, to, http.StatusTemporaryRedirect)
			}
			s.del = func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path != "/mcp" {
					t.Error("DELETE was redirected")
				}
				http.Redirect(w, r, to, http.StatusTemporaryRedirect)
			}
			initialized(t, serveMemory(t, s.ServeHTTP, nil), november2025).Close()
			if reached != follows {
				t.Errorf("%s: followed is %v, want %v", to, reached, follows)
			}
		})
	}
	synctest.Test(t, func(t *testing.T) { // round in circles
		s := &scripted{}
		s.get = func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "/mcp", http.StatusTemporaryRedirect)
		}
		initialized(t, serveMemory(t, s.ServeHTTP, nil), november2025)
		if _, last := s.gets(); len(last) != 6 {
			t.Errorf("%d GETs, want 6", len(last))
		}
	})
}

// Whatever a server holds back, closing does not wait for it for long.
func TestTransport_CloseIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &scripted{post: hang, get: hang, del: hang}
		tr := serveMemory(t, s.ServeHTTP, nil)
		c := initialized(t, tr, november2025)
		failed := make(chan error)
		go func() {
			_, err := c.try(context.Background(), "tools/call", `{}`)
			failed <- err
		}()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := c.try(ctx, "tools/call", `{}`); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		began := time.Now()
		go tr.Close()
		if err := <-failed; !errors.Is(err, mcp.ErrClosed) || !mayHaveRun(t, err) {
			t.Errorf("got %v", err)
		}
		tr.Close()
		if d := time.Since(began); d > 10*time.Second {
			t.Errorf("closing took %v", d)
		}
	})
}

// A cancellation is on its way when the session is closed: it arrives before the session's end.
func TestLHTTP09_CancellationArrivesBeforeTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core := newTestCore()
		f := start(t, core, nil)
		c := initialized(t, f.transport(nil), november2025)
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			<-core.started
			cancel()
		}()
		_, _ = c.try(ctx, "tools/call", `{"name":"wait"}`)
		c.Close()
		if cause := <-core.causes; !errors.Is(cause, mcp.ErrCancelled) {
			t.Errorf("the server saw %v, want the cancellation", cause)
		}
	})
}

func TestCAN_InitializeIsNotCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var posts []string
		tr := serveMemory(t, func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			posts = append(posts, string(body))
			<-r.Context().Done()
		}, nil)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := openLink(t, tr).try(ctx, "initialize", `{}`); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		tr.Close()
		synctest.Wait()
		if len(posts) != 1 {
			t.Errorf("got %q, want the one request", posts)
		}
	})
}

// An array is taken apart where the revision has batches, and nowhere else.
func TestLHTTP38_Batches(t *testing.T) {
	for version, taken := range map[string]bool{march2025: true, june2025: false} {
		for _, kind := range []string{"JSON", "SSE"} {
			synctest.Test(t, func(t *testing.T) {
				s := &scripted{version: version}
				s.post = func(w http.ResponseWriter, r *http.Request) {
					batch := `[{"jsonrpc":"2.0","method":"notifications/a"},{"jsonrpc":"2.0","id":5},` + result(r) + `,{"jsonrpc":"2.0","method":"notifications/b"}]`
					if kind == "JSON" {
						writeJSON(w, 200, batch)
					} else {
						writeEvents(w, "data: "+batch)
					}
				}
				c := initialized(t, serveMemory(t, s.ServeHTTP, nil), version)
				m, err := c.try(t.Context(), "tools/call", `{}`)
				if taken && (err != nil || string(m.Result) != `{"resultType":"complete"}` || len(c.received) != 2) {
					t.Errorf("%s, %s: got %v, %v and %d others", version, kind, m, err, len(c.received))
				}
				if !taken && (err == nil || !mayHaveRun(t, err) || len(c.received) > 0) {
					t.Errorf("%s, %s: got %v, %v and %d others", version, kind, m, err, len(c.received))
				}
			})
		}
	}
}

// A server that fills the standalone stream holds up nothing, and its answers there are nobody's.
func TestR7_3_13_AnswersOnTheStandaloneStreamAreDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &scripted{}
		s.get = func(w http.ResponseWriter, r *http.Request) {
			writeEvents(w, eventResult("2"), `data: {"jsonrpc":"2.0","id":2,"result":{"a":1,"a":2}}`, `data: {"jsonrpc":"2.0","error":{"code":1,"message":"x"}}`)
			hang(w, r)
		}
		s.post = func(w http.ResponseWriter, r *http.Request) {
			time.Sleep(time.Second)
			writeJSON(w, 200, result(r))
		}
		c := initialized(t, serveMemory(t, s.ServeHTTP, nil), november2025)
		if m := c.ask("ping", `{}`); string(m.Result) != `{"resultType":"complete"}` {
			t.Errorf("got %s", m.Result)
		}
		if len(c.received) != 0 {
			t.Errorf("%d messages were received", len(c.received))
		}
	})
}

func TestSSE06_EndpointsThatAreNotTaken(t *testing.T) {
	for name, test := range map[string]struct {
		get  http.HandlerFunc
		took time.Duration
	}{
		"another host": {get: func(w http.ResponseWriter, r *http.Request) {
			writeEvents(w, "event: endpoint\ndata: http://elsewhere.test/mcp")
			hang(w, r)
		}},
		"another port": {get: func(w http.ResponseWriter, r *http.Request) {
			writeEvents(w, "event: endpoint\ndata: //localhost:1/mcp")
			hang(w, r)
		}},
		"another scheme": {get: func(w http.ResponseWriter, r *http.Request) {
			writeEvents(w, "event: endpoint\ndata: file:///etc/passwd")
			hang(w, r)
		}},
		"no URL": {get: func(w http.ResponseWriter, r *http.Request) {
			writeEvents(w, "event: endpoint\ndata: http://[::1/")
			hang(w, r)
		}},
		"too long": {get: func(w http.ResponseWriter, r *http.Request) {
			writeEvents(w, "event: endpoint\ndata: /"+strings.Repeat("x", 9000))
			hang(w, r)
		}},
		"none":      {get: func(w http.ResponseWriter, r *http.Request) { writeEvents(w, "data: {}"); hang(w, r) }, took: 10 * time.Second},
		"no answer": {get: hang, took: 10 * time.Second},
		"an end":    {get: func(w http.ResponseWriter, _ *http.Request) { writeEvents(w, "data: {}") }},
		"405":       {get: func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(405) }},
		"a page":    {get: func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<html>") }},
	} {
		for _, body := range []string{"not here", `{"jsonrpc":"2.0","id":1,"error":{"code":-32600,"message":"not here"}}`} {
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					tr := serveMemory(t, func(w http.ResponseWriter, r *http.Request) {
						switch {
						case r.Method == http.MethodGet:
							test.get(w, r)
						case r.URL.Path == "/mcp" && r.Host == "localhost:8765":
							writeJSON(w, 405, body)
						default:
							t.Errorf("a POST to %s%s", r.Host, r.URL)
						}
					}, nil)
					began := time.Now()
					m, err := openLink(t, tr).try(t.Context(), "initialize", `{}`)
					if body[0] == '{' {
						if err != nil || m.Error == nil || m.Error.Message != "not here" {
							t.Errorf("got %v, %v, want the server's own error", m, err)
						}
					} else if mayHaveRun(t, err) || !strings.Contains(err.Error(), "not here") {
						t.Errorf("got %v", err)
					}
					if got := time.Since(began); got != test.took {
						t.Errorf("it took %v, want %v", got, test.took)
					}
				})
			})
		}
	}
}

func TestSSE10_ModernErrorsAreNoReasonToGet(t *testing.T) {
	for body, status := range map[string]int{
		`{"jsonrpc":"2.0","id":1,"error":{"code":-32022,"message":"no","data":{"supported":["2026-07-28"]}}}`: 400,
		`{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"no"}}`:                                     404,
		`unauthorized`: 401,
		`broken`:       500,
	} {
		tr := serve(t, func(w http.ResponseWriter, r *http.Request) {
			if r.Method != http.MethodPost {
				t.Errorf("%d: %s", status, r.Method)
			}
			writeJSON(w, status, body)
		}, nil)
		if m, err := openLink(t, tr).try(t.Context(), "initialize", `{}`); err == nil && m.Error == nil {
			t.Errorf("%d: got %v", status, m)
		}
	}
}

// A firstTransport is a server of HTTP+SSE. It answers the handshake, and every POST with a body, as some servers do; the
// rest is left to the function that is set.
type firstTransport struct {
	post   http.HandlerFunc // of all but the handshake
	events chan string      // to be sent on the stream
	once   sync.Once
}

func (f *firstTransport) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.once.Do(func() { f.events = make(chan string, 100) })
	body, _ := io.ReadAll(r.Body)
	r.Body = io.NopCloser(bytes.NewReader(body))
	switch {
	case r.Method == http.MethodGet:
		writeEvents(w, "event: endpoint\ndata: post")
		for {
			select {
			case e := <-f.events:
				writeEvents(w, e)
			case <-r.Context().Done():
				return
			}
		}
	case r.URL.Path != "/post":
		w.WriteHeader(405)
		return
	case bytes.Contains(body, []byte(`"initialize"`)):
		f.events <- `data: {"jsonrpc":"2.0","id":` + idOf(r) + `,"result":{"protocolVersion":"2024-11-05"}}`
	case !bytes.Contains(body, []byte("notifications/initialized")):
		f.post(w, r)
		return
	}
	accepted(w)
}

// accepted is how the TypeScript SDK takes a message.
func accepted(w http.ResponseWriter) {
	w.WriteHeader(http.StatusAccepted)
	_, _ = io.WriteString(w, "Accepted")
}

// A 404 of the message endpoint is the loss of the session, whatever stands in its body, but for an unknown method.
func TestSSE04_AnEndpointThatIsGoneIsALostSession(t *testing.T) {
	for _, code := range []int{mcp.CodeInvalidRequest, mcp.CodeMethodNotFound} {
		synctest.Test(t, func(t *testing.T) {
			f := &firstTransport{}
			f.post = func(w http.ResponseWriter, r *http.Request) {
				writeJSON(w, http.StatusNotFound, fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":{"code":%d,"message":"no"}}`, idOf(r), code))
			}
			c := initialized(t, serveMemory(t, f.ServeHTTP, nil), november2024)
			m, err := c.try(t.Context(), "tools/call", `{"name":"echo"}`)
			if code == mcp.CodeMethodNotFound {
				if err != nil || m.Error == nil || m.Error.Code != code {
					t.Errorf("an unknown method: %v, %v", m, err)
				}
				return
			}
			if !errors.Is(err, mcp.ErrSessionLost) || mayHaveRun(t, err) {
				t.Errorf("got %v, %v, want the loss of the session", m, err)
			}
			<-c.Done()
		})
	}
}

// A body in the response that says only that a message was taken does no harm.
func TestSSE04_AcceptedWithABody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &firstTransport{}
		f.post = func(w http.ResponseWriter, r *http.Request) {
			f.events <- eventResult(idOf(r))
			accepted(w)
		}
		c := initialized(t, serveMemory(t, f.ServeHTTP, nil), november2024)
		for range 3 {
			if m := c.ask("ping", `{}`); m.Error != nil || !strings.Contains(string(m.Result), `"n"`) {
				t.Errorf("got %v", m)
			}
		}
	})
}

// An answer that has crossed the cancellation of its request is nothing to warn of, and hides no later warning.
func TestCAN_LateAnswerOfTheFirstTransport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &firstTransport{}
		slow := make(chan string, 1)
		f.post = func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			r.Body = io.NopCloser(bytes.NewReader(body))
			if bytes.Contains(body, []byte(`"slow"`)) {
				slow <- idOf(r)
			}
			accepted(w)
		}
		var log syncBuffer
		logger := slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
		c := initialized(t, serveMemory(t, f.ServeHTTP, &mcphttp.TransportOptions{Logger: logger}), november2024)
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			synctest.Wait()
			cancel()
		}()
		if _, err := c.try(ctx, "slow", `{}`); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
		synctest.Wait()
		f.events <- eventResult(<-slow)
		synctest.Wait()
		if got := log.String(); strings.Count(got, "level=DEBUG") != 1 || strings.Contains(got, "level=WARN") {
			t.Errorf("after a late answer: %s", got)
		}
		f.events <- eventResult("999")
		f.events <- eventResult(`"1"`)
		synctest.Wait()
		if got := log.String(); strings.Count(got, "level=WARN") != 1 {
			t.Errorf("after two answers to nothing: %s", got)
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
			s := &scripted{get: func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }}
			initialized(t, serveMemory(t, s.ServeHTTP, &mcphttp.TransportOptions{Logger: slog.New(slog.NewTextHandler(&log, nil))}), november2025)
			time.Sleep(time.Hour)
			if got := log.String(); !strings.Contains(got, want) || strings.Contains(got, "level=WARN") != (want == "level=WARN") || want == "" && got != "" {
				t.Errorf("%d: logged %q, want %q", status, got, want)
			}
		})
	}
}

// The old transport's answers are found by their ids, in whatever order they come.
func TestSSE04_AnswersOfTheFirstTransport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		events := make(chan string, 100)
		tr := serveMemory(t, func(w http.ResponseWriter, r *http.Request) {
			switch {
			case r.Method == http.MethodGet:
				writeEvents(w, "event: endpoint\ndata: post?x=1")
				for {
					select {
					case e := <-events:
						if e == "" {
							return
						}
						writeEvents(w, e)
					case <-r.Context().Done():
						return
					}
				}
			case r.URL.Path != "/post":
				w.WriteHeader(404)
			case r.Header.Get("X-Refuse") != "":
			default:
				body, _ := io.ReadAll(r.Body)
				id := idOf(&http.Request{Body: io.NopCloser(strings.NewReader(string(body)))})
				switch {
				case strings.Contains(string(body), `"initialize"`):
					events <- "event: message\ndata: " + `{"jsonrpc":"2.0","id":` + id + `,"result":{"protocolVersion":"2024-11-05"}}`
				case strings.Contains(string(body), `"refused"`):
					writeJSON(w, 400, `{"jsonrpc":"2.0","id":`+id+`,"error":{"code":1,"message":"no"}}`)
					return
				case strings.Contains(string(body), `"malformed"`):
					events <- `data: {"jsonrpc":"2.0","id":` + id + `,"result":{"a":1,"a":2}}`
				case strings.Contains(string(body), `"anonymous"`):
					events <- `data: {"jsonrpc":"2.0","id":null,"error":{"code":7,"message":"no"}}`
				case strings.Contains(string(body), `"end"`):
					events <- ""
				case strings.Contains(string(body), `"pair"`):
					events <- eventResult(id)
				}
				w.WriteHeader(http.StatusAccepted)
			}
		}, nil)
		c := initialized(t, tr, november2024)
		done := make(chan string)
		for range 10 {
			go func() {
				req := jsonrpc.NewRequest(jsonrpc.ID{}, "pair", nil)
				m, err := c.RoundTrip(t.Context(), req)
				if err != nil || string(m.Result) != `{"n":`+req.ID.String()+`}` {
					t.Errorf("request %s: got %v, %v", req.ID, m, err)
				}
				done <- ""
			}()
		}
		for range 10 {
			<-done
		}
		if m := c.ask("refused", `{}`); m.Error == nil || m.Error.Code != 1 || !m.Error.Remote() {
			t.Errorf("got %v", m)
		}
		if _, err := c.try(t.Context(), "malformed", `{}`); !mayHaveRun(t, err) {
			t.Errorf("got %v", err)
		}
		if m := c.ask("anonymous", `{}`); m.Error == nil || m.Error.Code != 7 {
			t.Errorf("got %v", m)
		}
		if _, err := c.try(t.Context(), "end", `{}`); !errors.Is(err, mcp.ErrClosed) || !mayHaveRun(t, err) {
			t.Errorf("got %v", err)
		}
		<-c.Done()
	})
}
