package mcphttp_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcphttp"
)

// Requirement: HTTP-08, LHTTP-26, LHTTP-31, LHTTP-33
func TestEveryRequestHasTheHeadersOfTheSession(t *testing.T) {
	for version, sent := range map[string]string{march2025: "", june2025: june2025, november2025: november2025} {
		synctest.Test(t, func(t *testing.T) {
			var mu sync.Mutex
			seen := map[string]http.Header{}
			record := func(r *http.Request) {
				mu.Lock()
				defer mu.Unlock()
				seen[r.Method] = r.Header
			}
			s := &fakeServer{version: version}
			s.post = func(w http.ResponseWriter, r *http.Request) { record(r); writeJSON(w, 200, result(r)) }
			s.get = func(w http.ResponseWriter, r *http.Request) { record(r); w.WriteHeader(405) }
			s.del = func(_ http.ResponseWriter, r *http.Request) { record(r) }
			c := initialized(t, newMemTransport(t, s.ServeHTTP,
				&mcphttp.TransportOptions{Header: http.Header{"X-Key": {"k"}}}), version)
			c.mustCall("ping", `{}`)
			c.Close()
			for _, method := range []string{"POST", "GET", "DELETE"} {
				h := seen[method]
				if h.Get("Mcp-Session-Id") != "s1" || h.Get("Mcp-Protocol-Version") != sent ||
					h.Get("X-Key") != "k" || h.Get("Mcp-Method") != "" {
					t.Errorf("%s, %s: got %v, want the session, version %q and X-Key", version, method, h, sent)
				}
				if accept := h.Get("Accept"); method == "GET" && accept != "text/event-stream" || method == "POST" &&
					accept != "application/json, text/event-stream" {
					t.Errorf("%s: got Accept %q", method, accept)
				}
			}
		})
	}
}

func TestInvalidSessionIDIsAnError(t *testing.T) {
	for _, id := range []string{"a b", "é", strings.Repeat("x", 4097), "\x7f"} {
		tr := newServerTransport(t, func(w http.ResponseWriter, r *http.Request) {
			w.Header()["Mcp-Session-Id"] = []string{id}
			writeJSON(w, 200, `{"jsonrpc":"2.0","id":`+idOf(r)+`,"result":{"protocolVersion":"2025-11-25"}}`)
		}, nil)
		if _, err := openSession(t, tr).try(t.Context(), "initialize", `{}`); err == nil || !mayHaveRun(t, err) {
			t.Errorf("%q: got %v, want an error", id, err)
		}
	}
}

// Send of notifications/initialized waits up to a second for the standalone stream.
//
// Requirement: LHTTP-11
func TestInitializedWaitsForTheStream(t *testing.T) {
	for delay, want := range map[time.Duration]time.Duration{0: 0, 500 * time.Millisecond: 500 * time.Millisecond,
		time.Hour: time.Second} {
		synctest.Test(t, func(t *testing.T) {
			s := &fakeServer{}
			s.get = func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				select {
				case <-time.After(delay):
					writeEvents(w)
					w.(http.Flusher).Flush()
				case <-r.Context().Done():
				}
				waitForDisconnect(w, r)
			}
			tr := newMemTransport(t, s.ServeHTTP, nil)
			began := time.Now()
			initialized(t, tr, november2025)
			if got := time.Since(began); got != want {
				t.Errorf("stream after %v: waited %v, want %v", delay, got, want)
			}
		})
	}
}

// Requirement: LHTTP-27
func TestSessionIDIsSentToItsOriginOnly(t *testing.T) {
	for to, follows := range map[string]bool{"/other": true, "http://elsewhere.test/mcp": false,
		"https://localhost:8765/mcp": false, "http://localhost:8766/mcp": false} {
		synctest.Test(t, func(t *testing.T) {
			s := &fakeServer{}
			reached := false
			s.get = func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/other" || r.Host != "localhost:8765" {
					reached = true
					if id := r.Header.Get("Mcp-Session-Id"); id != "s1" {
						t.Errorf("got session id %q, want s1", id)
					}
					w.WriteHeader(405)
					return
				}
				http.Redirect(w, r, to, http.StatusTemporaryRedirect)
			}
			s.del = func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path != "/mcp" {
					t.Error("the redirect of DELETE was followed")
				}
				http.Redirect(w, r, to, http.StatusTemporaryRedirect)
			}
			initialized(t, newMemTransport(t, s.ServeHTTP, nil), november2025).Close()
			if reached != follows {
				t.Errorf("redirect to %s: followed %v, want %v", to, reached, follows)
			}
		})
	}
	synctest.Test(t, func(t *testing.T) { // a redirect to the same URL
		s := &fakeServer{}
		s.get = func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "/mcp", http.StatusTemporaryRedirect)
		}
		initialized(t, newMemTransport(t, s.ServeHTTP, nil), november2025)
		if _, last := s.gets(); len(last) != 6 {
			t.Errorf("%d GETs, want 6", len(last))
		}
	})
}

// The server does not respond to any request.
func TestTransport_CloseTakesALimitedTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &fakeServer{post: waitForDisconnect, get: waitForDisconnect, del: waitForDisconnect}
		tr := newMemTransport(t, s.ServeHTTP, nil)
		c := initialized(t, tr, november2025)
		failed := make(chan error)
		go func() {
			_, err := c.try(context.Background(), "tools/call", `{}`)
			failed <- err
		}()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := c.try(ctx, "tools/call", `{}`); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want DeadlineExceeded", err)
		}
		began := time.Now()
		go tr.Close()
		if err := <-failed; !errors.Is(err, mcp.ErrClosed) || !mayHaveRun(t, err) {
			t.Errorf("got %v, want ErrClosed and MayHaveRun", err)
		}
		tr.Close()
		if d := time.Since(began); d > 10*time.Second {
			t.Errorf("Close took %v, want at most 10s", d)
		}
	})
}

// The session is closed while the cancellation is sent.
//
// Requirement: LHTTP-09
func TestCancellationArrivesBeforeTheEndOfTheSession(t *testing.T) {
	forEach(t, streamableRevisions, func(t *testing.T, version string) {
		core := newTestCore()
		f := start(t, core, nil)
		c := initialized(t, f.transport(nil), version)
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			<-core.started
			cancel()
		}()
		_, _ = c.try(ctx, "tools/call", `{"name":"wait"}`)
		c.Close()
		if cause := <-core.causes; !errors.Is(cause, mcp.ErrCancelled) {
			t.Errorf("cause at the server: got %v, want ErrCancelled", cause)
		}
	})
}

func TestCAN_InitializeIsNotCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var posts []string
		tr := newMemTransport(t, func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			posts = append(posts, string(body))
			<-r.Context().Done()
		}, nil)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := openSession(t, tr).try(ctx, "initialize", `{}`); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want DeadlineExceeded", err)
		}
		tr.Close()
		synctest.Wait()
		if len(posts) != 1 {
			t.Errorf("got %q, want initialize only", posts)
		}
	})
}

// Requirement: LHTTP-38
func TestBatchesAreAcceptedIn2025_03_26Only(t *testing.T) {
	for version, accepted := range map[string]bool{march2025: true, june2025: false, november2025: false} {
		for _, kind := range []string{"JSON", "SSE"} {
			synctest.Test(t, func(t *testing.T) {
				s := &fakeServer{version: version}
				s.post = func(w http.ResponseWriter, r *http.Request) {
					batch := `[{"jsonrpc":"2.0","method":"notifications/a"},{"jsonrpc":"2.0","id":5},` + result(r) +
						`,{"jsonrpc":"2.0","method":"notifications/b"}]`
					if kind == "JSON" {
						writeJSON(w, 200, batch)
					} else {
						writeEvents(w, "data: "+batch)
					}
				}
				c := initialized(t, newMemTransport(t, s.ServeHTTP, nil), version)
				m, err := c.try(t.Context(), "tools/call", `{}`)
				if accepted && (err != nil || string(m.Result) != `{"resultType":"complete"}` || len(c.received) != 2) {
					t.Errorf("%s, %s: got %v, %v and %d notifications, want accepted %v", version, kind, m, err,
						len(c.received), accepted)
				}
				if !accepted && (err == nil || !mayHaveRun(t, err) || len(c.received) > 0) {
					t.Errorf("%s, %s: got %v, %v and %d notifications, want accepted %v", version, kind, m, err,
						len(c.received), accepted)
				}
			})
		}
	}
}

// The server has lost the session, opens another one and stops responding. The client then ends the
// new session in the background: the call does not wait for that.
func TestCallEndsAtItsDeadlineWhileTheSessionIsReplaced(t *testing.T) {
	for _, version := range []string{march2025, june2025, november2025} {
		synctest.Test(t, func(t *testing.T) {
			var lost atomic.Bool
			tr := newMemTransport(t, func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				r.Body = io.NopCloser(strings.NewReader(string(body)))
				switch text := string(body); {
				case r.Method == http.MethodGet:
					w.WriteHeader(http.StatusMethodNotAllowed)
				case strings.Contains(text, `"initialize"`):
					w.Header().Set("Mcp-Session-Id", "s1")
					writeJSON(w, 200, `{"jsonrpc":"2.0","id":`+idOf(r)+`,"result":{"protocolVersion":"`+version+
						`","capabilities":{},"serverInfo":{"name":"fake","version":"1"}}}`)
				case lost.Load() && (r.Method == http.MethodDelete || !strings.Contains(text, `"id"`)):
					<-r.Context().Done()
				case r.Method == http.MethodDelete, !strings.Contains(text, `"id"`):
					w.WriteHeader(http.StatusAccepted)
				default:
					lost.Store(true)
					w.WriteHeader(http.StatusNotFound)
				}
			}, nil)
			c, err := mcp.Connect(t.Context(), tr, &mcp.ClientOptions{Revision: version, Logger: discardLogger})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			began := time.Now()
			if err := c.Ping(ctx); err == nil || time.Since(began) != time.Second {
				t.Errorf("%s: got %v after %v, want an error at the deadline, after a second", version, err, time.Since(began))
			}
		})
	}
}
