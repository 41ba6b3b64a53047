package sse_test

import (
	"bytes"
	"io"
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/patchbay-mcp/patchbay/internal/sse"
)

// referenceRead decodes a whole stream in the steps of the HTML standard.
func referenceRead(stream string) (events []sse.Event, lastID string) {
	stream = strings.TrimPrefix(stream, "\uFEFF")
	stream = strings.ReplaceAll(strings.ReplaceAll(stream, "\r\n", "\n"), "\r", "\n")
	lines := strings.Split(stream, "\n")
	var data string
	var event sse.Event
	for _, line := range lines[:len(lines)-1] {
		if line == "" {
			if event.HasID {
				lastID = event.ID
			}
			if data != "" {
				event.Data = []byte(strings.TrimSuffix(data, "\n"))
				if event.Type == "" {
					event.Type = "message"
				}
				events = append(events, event)
			}
			data, event = "", sse.Event{}
			continue
		}
		field, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch field {
		case "data":
			data += value + "\n"
		case "event":
			event.Type = value
		case "id":
			if !strings.Contains(value, "\x00") {
				event.ID, event.HasID = value, true
			}
		case "retry":
			if value != "" && strings.Trim(value, "0123456789") == "" {
				ms, _ := new(big.Int).SetString(value, 10)
				if most := big.NewInt(sse.MaxRetry.Milliseconds()); ms.Cmp(most) > 0 {
					ms = most
				}
				event.Retry, event.HasRetry = time.Duration(ms.Int64())*time.Millisecond, true
			}
		}
	}
	return events, lastID
}

// A chunkReader returns a stream in pieces of pseudo-random sizes.
type chunkReader struct {
	rest []byte
	seed uint32
}

func (c *chunkReader) Read(p []byte) (int, error) {
	if len(c.rest) == 0 {
		return 0, io.EOF
	}
	c.seed = c.seed*1664525 + 1013904223
	n := copy(p, c.rest[:min(len(c.rest), 1+int(c.seed>>24)%7)])
	c.rest = c.rest[n:]
	return n, nil
}

// FuzzReader compares a Reader with referenceRead: on the whole stream, in chunks, and truncated at
// every byte.
func FuzzReader(f *testing.F) {
	for _, stream := range []string{
		"data: a\n\n", "\uFEFFid: 1\r\nevent: e\r\ndata: a\r\ndata: b\r\n\r\n", "data: a\r\rdata\r\n\n",
		": c\n\nretry: 10\n\n",
		"id: a\x00b\ndata: x\n\n", "retry: 99999999999999999999\ndata\n\n", "id: 1\n\nid\n\n",
		"\uFEFF\uFEFFdata: a\n\n",
		"data:\n\ndata\n\n", "data: \xff\n\n", "event: a\nevent\ndata:x:y\n\n",
		"retry: -1\nretry:1\ndata: \n\n", "\r\n\r\r\n\n",
	} {
		f.Add([]byte(stream), uint32(1))
	}
	f.Fuzz(func(t *testing.T, stream []byte, seed uint32) {
		if len(stream) > 500 {
			return // quadratic
		}
		want, wantID := referenceRead(string(stream))
		compareRead(t, "chunks", &chunkReader{rest: stream, seed: seed}, want, wantID)
		for cut := range len(stream) + 1 {
			want, wantID := referenceRead(string(stream[:cut]))
			compareRead(t, "whole", bytes.NewReader(stream[:cut]), want, wantID)
			rest := io.MultiReader(bytes.NewReader(stream[:cut]), bytes.NewReader(stream[cut:]))
			want, wantID = referenceRead(string(stream))
			compareRead(t, "two pieces", rest, want, wantID)
		}
	})
}

func compareRead(t *testing.T, how string, src io.Reader, want []sse.Event, wantID string) {
	t.Helper()
	r := sse.NewReader(src, 1<<20)
	got, err := readAll(r)
	if err != io.EOF || r.LastEventID() != wantID {
		t.Fatalf("%s: last id %q, want %q (%v)", how, r.LastEventID(), wantID, err)
	}
	if len(want) != len(got) || len(want) > 0 && !cmp.Equal(want, got) {
		t.Fatalf("%s: -want +got\n%s", how, cmp.Diff(want, got))
	}
}

// FuzzReaderLimit reads with a small limit: no event is larger, and the error is ErrEventTooLarge
// only if one would be.
func FuzzReaderLimit(f *testing.F) {
	f.Add("data: 12345678\n\n", 8)
	f.Add("data: 1234\ndata: 123\n\ndata: 1234\ndata: 1234\n\n", 8)
	f.Add(":"+strings.Repeat("c", 5000)+"\n\n", 8)
	f.Fuzz(func(t *testing.T, stream string, limit int) {
		if limit < 0 || limit > 1<<16 {
			return
		}
		got, err := readAll(sse.NewReader(strings.NewReader(stream), limit))
		want, _ := referenceRead(stream)
		for i, e := range got {
			if len(e.Data) > limit || !cmp.Equal(e, want[i]) {
				t.Fatalf("event %d: got %+v, want %+v of at most %d bytes", i, e, want[i], limit)
			}
		}
		switch err {
		case io.EOF:
			if len(got) != len(want) {
				t.Fatalf("%d events, want %d", len(got), len(want))
			}
		case sse.ErrEventTooLarge:
			if len(stream) <= limit {
				t.Fatalf("%d bytes are too large for a limit of %d", len(stream), limit)
			}
		default:
			t.Fatal(err)
		}
	})
}

// FuzzAppend decodes what Append has encoded, unless Append has rejected it.
func FuzzAppend(f *testing.F) {
	for _, s := range []string{"", "a", " a ", "a\nb", "\n", "a\rb", "\r\n", "\x00", "\uFEFFa", ":", "data: x",
		"\xff", "e: 😀"} {
		f.Add(s, s, s, int64(len(s)))
	}
	f.Fuzz(func(t *testing.T, id, kind, data string, retry int64) {
		if len(id) > 4<<10 || len(kind) > 4<<10 {
			return
		}
		ms := retry % sse.MaxRetry.Milliseconds()
		e := sse.Event{ID: id, HasID: true, Type: kind, Data: []byte(data),
			Retry: time.Duration(ms) * time.Millisecond, HasRetry: true}
		stream, err := sse.Append(nil, e)
		bad := strings.ContainsAny(id, "\x00\r\n") || strings.ContainsAny(kind, "\x00\r\n") ||
			strings.Contains(data, "\r") || ms < 0
		if bad != (err != nil) {
			t.Fatalf("%+v: got %v, want an error %t", e, err, bad)
		}
		if bad {
			return
		}
		stream = sse.AppendComment(stream, data)
		stream, err = sse.Append(stream, e)
		if err != nil {
			t.Fatal(err)
		}
		if e.Type == "" {
			e.Type = sse.DefaultType
		}
		compareRead(t, "written", bytes.NewReader(stream), []sse.Event{e, e}, id)
	})
}
