package load

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/bench/internal/echo"
)

const (
	acknowledged = `{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{}}`
	listChanged  = `{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{}}`
)

// newStreams starts a server with one stream, on which a change sends the given
// events, and connects to it.
func newStreams(t *testing.T, acknowledgement string, events ...string) *Streams {
	changed := make(chan struct{}, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if !strings.Contains(string(body), "subscriptions/listen") {
			changed <- struct{}{}
			_, after, _ := strings.Cut(string(body), `"id":`)
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":%q}]}}`,
				after[:idDigits], echo.Message)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprintf(w, ": hello\n\ndata: %s\n\n", acknowledgement)
		http.NewResponseController(w).Flush()
		for {
			select {
			case <-changed:
			case <-r.Context().Done():
				return
			}
			for _, e := range events {
				fmt.Fprintf(w, "id: 1\ndata: %s\n\n", e)
			}
			http.NewResponseController(w).Flush()
		}
	}))
	t.Cleanup(server.Close)
	s, err := DialStreams(server.URL+"/mcp", echo.Modern, echo.ChangeTool)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func TestStreamsAreNotifiedOfEachChange(t *testing.T) {
	s := newStreams(t, acknowledged, listChanged)
	if err := s.Open(1, time.Minute); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if first, last, err := s.Change(); err != nil || first <= 0 || last < first {
			t.Fatalf("Change() = %v, %v, %v, want two durations", first, last, err)
		}
	}
}

func TestStreamsDetectWrongEvents(t *testing.T) {
	if err := newStreams(t, listChanged).Open(1, time.Minute); err == nil ||
		!strings.Contains(err.Error(), "acknowledged") {
		t.Errorf("stream without acknowledgement: %v, want an error that names it", err)
	}
	s := newStreams(t, acknowledged, `{"jsonrpc":"2.0","method":"notifications/prompts/list_changed"}`)
	if err := s.Open(1, time.Minute); err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.Change(); err == nil || !strings.Contains(err.Error(), "prompts") {
		t.Errorf("event of another list: %v, want an error with its method", err)
	}
}

func TestStreamsDetectExtraEvent(t *testing.T) {
	s := newStreams(t, acknowledged, listChanged, listChanged)
	if err := s.Open(1, time.Minute); err != nil {
		t.Fatal(err)
	}
	var err error
	// The second event directly follows the first, but the time of its read is
	// not known.
	for end := time.Now().Add(time.Minute); err == nil && time.Now().Before(end); {
		runtime.Gosched()
		_, _, err = s.Change()
	}
	if err == nil || !strings.Contains(err.Error(), "extra event") {
		t.Errorf("two events for each change: %v, want an error for the extra event", err)
	}
}

func TestStreamsRequireEventStream(t *testing.T) {
	var refused atomic.Bool
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		refused.Store(true)
		http.Error(w, "too many", http.StatusServiceUnavailable)
	}))
	defer server.Close()
	s, err := DialStreams(server.URL+"/mcp", echo.Modern, echo.ChangeTool)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.Open(1, time.Minute); err == nil || !strings.Contains(err.Error(), "status 503") || !refused.Load() {
		t.Errorf("rejected stream: %v, want an error with status 503", err)
	}
}
