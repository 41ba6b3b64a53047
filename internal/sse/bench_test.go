package sse_test

import (
	"bytes"
	"io"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/internal/sse"
)

// A repeatReader repeats the same bytes indefinitely.
type repeatReader struct {
	data []byte
	rest []byte
}

func (a *repeatReader) Read(p []byte) (int, error) {
	if len(a.rest) == 0 {
		a.rest = a.data
	}
	n := copy(p, a.rest)
	a.rest = a.rest[n:]
	return n, nil
}

func BenchmarkReader(b *testing.B) {
	for name, data := range map[string]string{
		"300 B": strings.Repeat("x", 300),
		"1 MiB": strings.Repeat("x", 1<<20),
	} {
		b.Run(name, func(b *testing.B) {
			stream, err := sse.Append(nil, sse.Event{ID: "1", HasID: true, Type: "message", Data: []byte(data)})
			if err != nil {
				b.Fatal(err)
			}
			r := sse.NewReader(&repeatReader{data: stream}, 16<<20)
			b.SetBytes(int64(len(stream)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := r.Next(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	// Streams with one kind of line end must not take quadratic time.
	for name, end := range map[string]string{"only LF": "\n", "only CR": "\r"} {
		b.Run(name, func(b *testing.B) {
			stream := strings.Repeat(end, 1<<20)
			b.SetBytes(int64(len(stream)))
			for b.Loop() {
				if _, err := sse.NewReader(strings.NewReader(stream), 1<<20).Next(); err != io.EOF {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkAppend(b *testing.B) {
	e := sse.Event{Type: "message", Data: bytes.Repeat([]byte("x"), 300)}
	buf := make([]byte, 0, 1024)
	b.ReportAllocs()
	for b.Loop() {
		var err error
		if buf, err = sse.Append(buf[:0], e); err != nil {
			b.Fatal(err)
		}
	}
}
