package mcphttp_test

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcphttp"
)

// burstCore sends notifications, and calls sent after each.
func burstCore(t *testing.T, notes int, sent func(n int)) mcp.Handler {
	return mcp.HandlerFunc(func(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
		for n := range notes {
			if err := req.Notify(ctx, "notifications/message", fmt.Appendf(nil, `{"level":"info","data":%d}`,
				n)); err != nil {
				t.Errorf("notification %d: %v", n, err)
			}
			sent(n)
		}
		return mcp.RawResult(`{"resultType":"complete","content":[{"type":"text","text":"done"}]}`), nil
	})
}

// A burstWriter holds each write but the first until 100 more notifications have been sent, or the
// last one. It does not hold a write of 32 KiB, which the sender may make itself.
type burstWriter struct {
	writeRecorder
	written int // events
	last    int // number of the last notification

	mu   sync.Mutex // guards the fields below
	more sync.Cond  // broadcast when sent changes
	sent int        // number of the newest notification
}

func (w *burstWriter) Write(b []byte) (int, error) {
	w.written += bytes.Count(b, []byte("\n\n"))
	if len(w.writes) > 0 && len(b) < 32<<10 {
		w.mu.Lock()
		for end := min(w.written+100, w.last); w.sent < end; {
			w.more.Wait()
		}
		w.mu.Unlock()
	}
	return w.writeRecorder.Write(b)
}

func (w *burstWriter) send(n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sent = n
	w.more.Broadcast()
}

// The first notification is written and flushed before Notify returns. Those that are sent during a
// write share the next one. In the bubble no pause divides the burst.
func TestBurst_SharesWritesAndKeepsItsOrder(t *testing.T) {
	synctest.Test(t, testBurst)
}

func testBurst(t *testing.T) {
	const notes = 1000
	w := &burstWriter{writeRecorder: writeRecorder{ResponseRecorder: httptest.NewRecorder()}, last: notes - 1}
	w.more.L = &w.mu
	core := burstCore(t, notes, func(n int) {
		if n == 0 && (len(w.writes) != 1 || w.flushed != 1) {
			t.Errorf("%d writes and %d flushed after the first notification, want 1 and 1", len(w.writes), w.flushed)
		}
		w.send(n)
	})
	x := newRepeatedRequest(mcphttp.NewHandler(core, nil), modernBody, modernHeader())
	x.handler.ServeHTTP(w, x.request)
	if len(w.writes) > notes/50 {
		t.Errorf("%d notifications took %d writes, want at most %d", notes, len(w.writes), notes/50)
	}
	events := strings.Split(strings.TrimSuffix(w.Body.String(), "\n\n"), "\n\n")
	if len(events) != notes+1 || !strings.Contains(events[len(events)-1], `"text":"done"`) {
		t.Fatalf("got %d events, the last %.200q; want %d and the response", len(events), events[len(events)-1],
			notes+1)
	}
	for n, event := range events[:notes] {
		if !strings.Contains(event, fmt.Sprintf(`"data":%d}`, n)) {
			t.Fatalf("event %d: got %q, want notification %d", n, event, n)
		}
	}
}

// An event that is appended during a write is flushed although no event follows.
func TestBurst_LastNotificationIsFlushed(t *testing.T) {
	proceed := make(chan struct{})
	const notes = 10
	core := burstCore(t, notes, func(n int) {
		if n == notes-1 {
			<-proceed
		}
	})
	f := start(t, core, &mcphttp.Options{KeepAlive: time.Hour})
	events := f.modernStream(t.Context(), "tools/call", `"name":"burst"`)
	for n := range notes {
		if e := events.next(); !strings.Contains(string(e.Data), fmt.Sprintf(`"data":%d}`, n)) {
			t.Fatalf("event %d: got %q, want notification %d", n, e.Data, n)
		}
	}
	close(proceed)
	if e := events.next(); !strings.Contains(string(e.Data), `"text":"done"`) {
		t.Errorf("got %q, want the response", e.Data)
	}
}

// The write fails after Notify has returned.
func TestBurst_FailedWriteEndsTheCall(t *testing.T) {
	ended := make(chan error, 1)
	core := mcp.HandlerFunc(func(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
		var err error
		for err == nil {
			err = req.Notify(ctx, "notifications/message", []byte(`{"level":"info","data":"x"}`))
		}
		<-ctx.Done()
		ended <- context.Cause(ctx)
		return nil, err
	})
	x := newRepeatedRequest(mcphttp.NewHandler(core, nil), modernBody, modernHeader())
	x.handler.ServeHTTP(&failingWriter{ResponseRecorder: httptest.NewRecorder(), writes: 2}, x.request)
	if err := <-ended; err == nil {
		t.Error("the context of the call has no cause")
	}
}

// A failingWriter fails after some writes.
type failingWriter struct {
	*httptest.ResponseRecorder
	writes int
}

func (w *failingWriter) Write(b []byte) (int, error) {
	if w.writes--; w.writes < 0 {
		return 0, http.ErrHandlerTimeout
	}
	return len(b), nil
}
