package sse_test

import (
	"bytes"
	"errors"
	"io"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/patchbay-mcp/patchbay/internal/sse"
)

const maxEvent = 1 << 20

// readAll reads all events and returns the error that ended the stream.
func readAll(r *sse.Reader) (events []sse.Event, err error) {
	for {
		e, err := r.Next()
		if err != nil {
			return events, err
		}
		events = append(events, e)
	}
}

func message(data string) sse.Event {
	return sse.Event{Type: "message", Data: []byte(data)}
}

// Requirement: HTTP-17
func TestReaderDecodesEvents(t *testing.T) {
	second := message("b")
	second.ID, second.HasID = "2", true
	tests := []struct {
		name   string
		stream string
		want   []sse.Event
		lastID string
	}{
		{"empty stream", "", nil, ""},
		{"one event", "data: a\n\n", []sse.Event{message("a")}, ""},
		{"only the first space is removed", "data:a\n\ndata:  b\n\ndata:\tc\n\n",
			[]sse.Event{message("a"), message(" b"), message("\tc")}, ""},
		// Requirement: HTTP-17
		{"lines of data are joined", "data: a\ndata\ndata: b\n\n", []sse.Event{message("a\n\nb")}, ""},
		{"empty data", "data\n\ndata:\n\ndata: \n\n", []sse.Event{message(""), message(""), message("")}, ""},
		{"two empty lines", "data\ndata\n\n", []sse.Event{message("\n")}, ""},
		{"no blank line at the end", "data: a\n\ndata: b\n", []sse.Event{message("a")}, ""},
		{"end in a line", "data: a\n\ndata: b", []sse.Event{message("a")}, ""},
		// Requirement: HTTP-17
		{"CR", "data: a\rdata: b\r\rdata: c\r\r", []sse.Event{message("a\nb"), message("c")}, ""},
		// Requirement: HTTP-17
		{"CR, then LF", "data: a\rdata: b\n\n", []sse.Event{message("a\nb")}, ""},
		// Requirement: HTTP-17
		{"CRLF", "data: a\r\ndata: b\r\n\r\ndata: c\r\n\r\n", []sse.Event{message("a\nb"), message("c")}, ""},
		{"mixed line ends", "data: a\r\n\ndata: b\n\r\ndata: c\r\r\n\n", // Requirement: HTTP-17
			[]sse.Event{message("a"), message("b"), message("c")}, ""},
		// Requirement: HTTP-17
		{"comments", ": hello\n\n:\ndata: a\n:data: x\n\n", []sse.Event{message("a")}, ""},
		// Requirement: HTTP-17
		{"unknown fields", "datum: x\nDATA: x\n data: x\ndata : x\ndata: a\n\n", []sse.Event{message("a")}, ""},
		{"colons in the value", "data: {\"a\":1}\n\n", []sse.Event{message(`{"a":1}`)}, ""},
		// Requirement: HTTP-17
		{"byte order mark", "\uFEFFdata: a\n\n\uFEFFdata: b\n\n", []sse.Event{message("a")}, ""},
		{"only one byte order mark", "\uFEFF\uFEFFdata: a\n\ndata: b\n\n", []sse.Event{message("b")}, ""},
		{"byte order mark alone", "\uFEFF\n\n", nil, ""},
		{"type", "event: endpoint\ndata: /m\n\n", []sse.Event{{Type: "endpoint", Data: []byte("/m")}}, ""},
		{"last type is used", "event: a\nevent\ndata: x\n\n", []sse.Event{message("x")}, ""},
		{"type is reset", "event: a\n\ndata: x\n\n", []sse.Event{message("x")}, ""},
		{"id without data", "id: 1\n\n", nil, "1"},
		{"id of an incomplete event", "id: 1\ndata: a\n\nid: 2\ndata: b\n",
			[]sse.Event{{ID: "1", HasID: true, Type: "message", Data: []byte("a")}}, "1"},
		{"id is kept", "id: 2\ndata: b\n\ndata: c\n\n", []sse.Event{second, message("c")}, "2"},
		{"id with NUL", "id: 1\n\nid: a\x00b\ndata: c\n\n", []sse.Event{message("c")}, "1"},
		{"empty id", "id: 1\n\nid\ndata: c\n\n", []sse.Event{{HasID: true, Type: "message", Data: []byte("c")}}, ""},
		{"retry", "retry: 15\ndata: a\n\n", []sse.Event{{Type: "message", Data: []byte("a"),
			Retry: 15 * time.Millisecond, HasRetry: true}}, ""},
		{"invalid retry", "retry: 1.5\nretry: -1\nretry: 1s\nretry\nretry: 0x1\nretry:  1\nretry: ١\ndata: a\n\n",
			[]sse.Event{message("a")}, ""},
		{"bytes that are not UTF-8", "data: \xff\n\n", []sse.Event{message("\xff")}, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for name, src := range map[string]io.Reader{
				"in one piece":     strings.NewReader(tt.stream),
				"byte by byte":     iotest.OneByteReader(strings.NewReader(tt.stream)),
				"error at the end": iotest.DataErrReader(strings.NewReader(tt.stream)),
			} {
				r := sse.NewReader(src, maxEvent)
				got, err := readAll(r)
				if err != io.EOF {
					t.Errorf("%s: %v", name, err)
				}
				if diff := cmp.Diff(tt.want, got); diff != "" {
					t.Errorf("%s: -want +got\n%s", name, diff)
				}
				if r.LastEventID() != tt.lastID {
					t.Errorf("%s: last id %q, want %q", name, r.LastEventID(), tt.lastID)
				}
			}
		})
	}
}

func TestReader_RetryIsLimited(t *testing.T) {
	for stream, want := range map[string]time.Duration{
		"retry: 20\n":                                         20 * time.Millisecond,
		"retry: 20\n\nretry: x\nretry: 30\n\n":                30 * time.Millisecond,
		"retry: 0\n\n":                                        0,
		"retry: 00007\n\n":                                    7 * time.Millisecond,
		"retry: 86400001\n\n":                                 sse.MaxRetry,
		"retry: " + strings.Repeat("9", 1000) + "\n\n":        sse.MaxRetry,
		"retry: 18446744073709551617\n\ndata: overflow\n\n\n": sse.MaxRetry,
	} {
		r := sse.NewReader(strings.NewReader(stream), maxEvent)
		if _, ok := r.Retry(); ok {
			t.Error("Retry before anything was read: got true")
		}
		_, _ = readAll(r)
		if got, ok := r.Retry(); got != want || !ok {
			t.Errorf("%.40q: got retry %v, %t; want %v", stream, got, ok, want)
		}
	}
}

// The stream stays open after the event.
func TestReader_ReturnsAnEventAtOnce(t *testing.T) {
	for _, stream := range []string{"data: a\n\n", "data: a\r\r", "data: a\r\n\r"} {
		client, server := io.Pipe()
		written := make(chan struct{})
		go func() {
			defer close(written)
			_, _ = io.WriteString(server, stream)
		}()
		if e, err := sse.NewReader(client, maxEvent).Next(); err != nil || string(e.Data) != "a" {
			t.Errorf("%q: got %+v, %v; want data a", stream, e, err)
		}
		<-written
	}
}

func TestReader_LimitsEvents(t *testing.T) {
	const limit = 100
	many := func(lines int) string { return strings.Repeat("data:\n", lines) + "\n" }
	tests := []struct {
		name     string
		at, over string
	}{
		{"one line", "data: " + strings.Repeat("x", limit) + "\n\n", "data: " + strings.Repeat("x", limit+1) + "\n\n"},
		{"line ends are counted", many(limit + 1), many(limit + 2)},
		{"long line after others", "data: 1234\ndata: " + strings.Repeat("x", limit-5) + "\n\n",
			"data: 1234\ndata: " + strings.Repeat("x", limit-4) + "\n\n"},
		{"comment", ":" + strings.Repeat("c", 4<<10) + "\ndata\n\n", ":" + strings.Repeat("c", limit+4<<10) +
			"\ndata\n\n"},
		{"unknown field", strings.Repeat("f", 4<<10) + "\ndata\n\n", strings.Repeat("f", limit+4<<10+1) + "\ndata\n\n"},
		{"comment in an event of the largest size", "data: " + strings.Repeat("x", limit) + "\n:" +
			strings.Repeat("c", 4000) + "\n\n", strings.Repeat("c", 5000)},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if events, err := readAll(sse.NewReader(strings.NewReader(tt.at), limit)); len(events) != 1 ||
				err != io.EOF {
				t.Errorf("at the limit: got %d events, %v; want 1", len(events), err)
			}
			r := sse.NewReader(strings.NewReader(tt.over), limit)
			if events, err := readAll(r); len(events) != 0 || err != sse.ErrEventTooLarge {
				t.Errorf("over the limit: got %d events, %v; want ErrEventTooLarge", len(events), err)
			}
			if _, err := r.Next(); err != sse.ErrEventTooLarge {
				t.Errorf("Next after the error: got %v, want ErrEventTooLarge", err)
			}
		})
	}
}

func TestReader_LimitsIDAndType(t *testing.T) {
	for _, field := range []string{"id", "event"} {
		for size, want := range map[int]error{4 << 10: io.EOF, 4<<10 + 1: sse.ErrEventTooLarge} {
			stream := field + ": " + strings.Repeat("x", size) + "\ndata: a\n\n"
			if _, err := readAll(sse.NewReader(strings.NewReader(stream), maxEvent)); err != want {
				t.Errorf("%s of %d bytes: got %v, want %v", field, size, err, want)
			}
		}
	}
}

// An endlessReader repeats the same text.
type endlessReader struct {
	text string
	at   int
	read int64
}

func (e *endlessReader) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = e.text[e.at%len(e.text)]
		e.at++
	}
	e.read += int64(len(p))
	return len(p), nil
}

func TestReader_StopsReadingAnEndlessEvent(t *testing.T) {
	for _, text := range []string{"x", ":", "data:x\n", "data: xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\r",
		"data\n"} {
		src := &endlessReader{text: text}
		if _, err := sse.NewReader(src, maxEvent).Next(); err != sse.ErrEventTooLarge {
			t.Errorf("%q: got %v, want ErrEventTooLarge", text, err)
		}
		if most := int64(len(text)) * (maxEvent + 64<<10); src.read > most {
			t.Errorf("%q: %d bytes were read, want at most %d", text, src.read, most)
		}
	}
	src := &endlessReader{text: "data: xxxxxxxxxxxx"}
	_, _ = sse.NewReader(src, maxEvent).Next()
	if src.read > maxEvent+64<<10 {
		t.Errorf("%d bytes of one line were read, want at most %d", src.read, maxEvent+64<<10)
	}
}

// A callbackReader returns n bytes of text and calls done before the end of the stream.
type callbackReader struct {
	text endlessReader
	n    int64
	done func()
}

func (a *callbackReader) Read(p []byte) (int, error) {
	if left := a.n - a.text.read; left <= int64(len(p)) {
		p = p[:left]
	}
	if len(p) == 0 {
		a.done()
		return 0, io.EOF
	}
	return a.text.Read(p)
}

// The heap is measured while a Reader has read the largest event.
func TestReader_MemoryIsBounded(t *testing.T) {
	heap := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	for _, text := range []string{"data: " + strings.Repeat("x", 3000) + "\n", "data: " +
		strings.Repeat("x", maxEvent), ":" + strings.Repeat("x", maxEvent)} {
		var before, held int64
		src := &callbackReader{text: endlessReader{text: text}, n: maxEvent, done: func() { held = heap() - before }}
		r := sse.NewReader(src, maxEvent)
		before = heap()
		if _, err := r.Next(); err != io.EOF {
			t.Fatal(err)
		}
		if held < maxEvent/2 || held > maxEvent+64<<10 {
			t.Errorf("%.10q: %d bytes are in use, want about %d", text, held, maxEvent)
		}
	}
}

func TestReader_ReturnsTheErrorOfItsSource(t *testing.T) {
	broken := errors.New("broken")
	r := sse.NewReader(io.MultiReader(strings.NewReader("data: a\n\ndata: b\n"), iotest.ErrReader(broken)), maxEvent)
	for range 3 {
		events, err := readAll(r)
		if err != broken || len(events) > 1 {
			t.Errorf("got %d events, %v; want at most 1 and %v", len(events), err, broken)
		}
	}
}

func TestReader_DoesNotReuseData(t *testing.T) {
	for _, size := range []int{1, 100, 16 << 10, 16<<10 + 1, 100_000} {
		first, second := strings.Repeat("a", size), strings.Repeat("b", size)
		r := sse.NewReader(strings.NewReader("data: "+first+"\n\ndata: "+second+"\n\n"), maxEvent)
		a, err := r.Next()
		if err != nil {
			t.Fatal(err)
		}
		if b, err := r.Next(); err != nil || string(b.Data) != second {
			t.Fatalf("second event of %d bytes: %v", size, err)
		}
		if string(a.Data) != first {
			t.Errorf("first event of %d bytes was overwritten", size)
		}
	}
}

func TestAppend_EncodesEvents(t *testing.T) {
	tests := []struct {
		name  string
		event sse.Event
		want  string
	}{
		{"data", sse.Event{Data: []byte(`{"a":1}`)}, "data: {\"a\":1}\n\n"},
		{"everything", sse.Event{ID: "7", HasID: true, Type: "message", Data: []byte("a\nb"),
			Retry: 1500 * time.Millisecond, HasRetry: true},
			"id: 7\nevent: message\nretry: 1500\ndata: a\ndata: b\n\n"},
		{"empty id and data", sse.Event{HasID: true, Data: []byte{}}, "id: \ndata: \n\n"},
		{"no data", sse.Event{ID: "7", HasID: true}, "id: 7\n\n"},
		{"id and retry that are not set", sse.Event{ID: "a\nb", Retry: -1, Data: []byte("x")}, "data: x\n\n"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := sse.Append([]byte("x"), tt.event)
			if err != nil || string(got) != "x"+tt.want {
				t.Errorf("got %q, %v; want %q", got, err, "x"+tt.want)
			}
		})
	}
}

func TestAppend_RejectsInvalidEvents(t *testing.T) {
	data := []byte("x")
	for want, events := range map[error][]sse.Event{
		sse.ErrBadID: {{ID: "a\n", HasID: true, Data: data}, {ID: "\r", HasID: true, Data: data},
			{ID: "a\x00", HasID: true, Data: data}},
		sse.ErrBadType:  {{Type: "a\ndata: b", Data: data}, {Type: "a\r", Data: data}, {Type: "\x00", Data: data}},
		sse.ErrBadData:  {{Data: []byte("a\rb")}, {Data: []byte("a\r\nb")}},
		sse.ErrBadRetry: {{Retry: -1, HasRetry: true}},
	} {
		for _, e := range events {
			if got, err := sse.Append([]byte("dst"), e); err != want || string(got) != "dst" {
				t.Errorf("%+v: got %q, %v; want %v", e, got, err, want)
			}
		}
	}
}

func TestAppendComment_IsIgnoredByTheReader(t *testing.T) {
	for text, want := range map[string]string{
		"": ": \n\n", "ping": ": ping\n\n", "a\nb\r\nc\rd": ": a\n: b\n: c\n: d\n\n",
	} {
		got := sse.AppendComment(nil, text)
		if string(got) != want {
			t.Errorf("comment %q: got %q, want %q", text, got, want)
		}
		if events, err := readAll(sse.NewReader(bytes.NewReader(got), maxEvent)); len(events) != 0 || err != io.EOF {
			t.Errorf("comment %q: read %v, %v; want no events", text, events, err)
		}
	}
}
