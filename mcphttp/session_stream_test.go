package mcphttp_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// A writeRecorder records each write to a response.
type writeRecorder struct {
	*httptest.ResponseRecorder
	writes  []string
	flushed int // number of writes before the last flush
}

func (w *writeRecorder) Write(b []byte) (int, error) {
	w.writes = append(w.writes, string(b))
	return w.ResponseRecorder.Write(b)
}

func (w *writeRecorder) Flush() { w.flushed = len(w.writes) }

// Requirement: LHTTP-03
func TestFirstEventSharesTheWriteOfTheNext(t *testing.T) {
	f := start(t, newTestCore(), nil)
	s := f.initialize(november2025)
	w := &writeRecorder{ResponseRecorder: httptest.NewRecorder()}
	f.handler.ServeHTTP(w, s.post(t.Context(), callBody(1, "notify")))
	if len(w.writes) < 2 || len(w.writes) > 3 || w.flushed < 1 {
		t.Fatalf("got %d writes and the last flush after %d, want 2 or 3 writes and a flush: %q",
			len(w.writes), w.flushed, w.writes)
	}
	if id, rest, _ := strings.Cut(w.writes[0], "-1\ndata: \n\n"); !strings.HasPrefix(id, "id: c") ||
		!strings.Contains(rest, `"data":1`) {
		t.Errorf("got %q first, want an empty event and a notification", w.writes[0])
	}
}

// The first event, which has only an id, is written before there is a notification.
//
// Requirement: LHTTP-03
func TestFirstEventOpensTheStandaloneStream(t *testing.T) {
	f := start(t, newTestCore(), nil)
	s := f.initialize(november2025)
	events := f.stream(s.get(t.Context()))
	if e := events.next(); len(e.Data) != 0 || !strings.HasSuffix(e.ID, "-1") {
		t.Errorf("got %q with id %s first, want an empty event", e.Data, e.ID)
	}
	if got := f.do(http.MethodDelete, "", s.headers...); got.status != 204 {
		t.Errorf("DELETE: got %d, want 204", got.status)
	}
}
