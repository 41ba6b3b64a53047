package mcphttp_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"

	"github.com/patchbay-mcp/patchbay/mcphttp"
)

// The memory for a body is bounded by its size, not by the Content-Length that the client claims.
func TestReadClaimed_ReadsWholeBodies(t *testing.T) {
	for _, size := range []int{0, 1, 4095, 4096, 4097, 16 << 10, 16<<10 + 1, 100_000, 1 << 20} {
		want := bytes.Repeat([]byte("x"), size)
		for _, claim := range []int64{-1, int64(size), 0, 10, 1 << 62, 1<<63 - 1} {
			for name, r := range map[string]io.Reader{
				"whole":  bytes.NewReader(want),
				"halves": iotest.HalfReader(bytes.NewReader(want)),
				"end":    iotest.DataErrReader(bytes.NewReader(want)),
			} {
				got, err := mcphttp.ReadClaimed(r, claim, int64(size))
				if err != nil || !bytes.Equal(got, want) {
					t.Errorf("%d bytes, %d claimed, %s: got %d bytes, %v", size, claim, name, len(got), err)
				}
				if cap(got) > 5*size+8<<10 {
					t.Errorf("%d bytes, %d claimed, %s: allocated %d bytes", size, claim, name, cap(got))
				}
			}
		}
		if _, err := mcphttp.ReadClaimed(bytes.NewReader(append(want, 'x')), -1, int64(size)); err == nil {
			t.Errorf("%d bytes with a limit of %d: got no error", size+1, size)
		}
	}
}

// The memory of a body is never reused for another body.
func TestReadClaimed_SharesNoMemory(t *testing.T) {
	var bodies [][]byte
	sizes := []int{100, 5000, 40_000, 100_000, 300_000, 1 << 20}
	for i := range 200 {
		want := bytes.Repeat([]byte{byte(i)}, sizes[i%len(sizes)])
		claim := int64(len(want))
		if i%3 == 0 {
			claim = -1
		}
		got, err := mcphttp.ReadClaimed(bytes.NewReader(want), claim, 2<<20)
		if err != nil {
			t.Fatal(err)
		}
		bodies = append(bodies, got)
		if i%5 == 0 { // a read that fails does not change the other bodies either
			_, err := mcphttp.ReadClaimed(iotest.TimeoutReader(iotest.HalfReader(bytes.NewReader(want))), claim, 2<<20)
			if err == nil && len(want) > 0 {
				t.Errorf("%d bytes, %d claimed: no error", len(want), claim)
			}
		}
	}
	for i, body := range bodies {
		if n := bytes.Count(body, []byte{byte(i)}); n != sizes[i%len(sizes)] || n != len(body) {
			t.Errorf("body %d has %d bytes, %d of them its own", i, len(body), n)
		}
	}
}

// Bodies with a length, in chunks and with trailers are followed by another request, which the
// server may already have received.
func TestBodies_ConnectionIsReusedAfterEachKind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, newTestCore(), nil)
		for era, builder := range f.requestBuilders() {
			announced := func(id, text string, headers ...string) string {
				body := builder.request(id, text)
				headers = append(headers, fmt.Sprintf("Content-Length: %d\r\n", len(body)))
				return head(append(headers, builder.headers...)...) + body
			}
			inChunks := func(id, text, trailer string, headers ...string) string {
				body := builder.request(id, text)
				headers = append(headers, "Transfer-Encoding: chunked\r\n")
				return head(append(headers, builder.headers...)...) +
					fmt.Sprintf("3\r\n%s\r\n%x\r\n%s\r\n0\r\n%s\r\n", body[:3], len(body)-3, body[3:], trailer)
			}
			conn := f.raw()
			conn.write(announced("1", "a") +
				announced("2", strings.Repeat("x", 100_000)) +
				inChunks("3", "c", "") +
				inChunks("4", "d", "X-Trailer: t\r\n", "Trailer: X-Trailer\r\n") +
				announced("5", "e", "Expect: 100-continue\r\n") +
				inChunks("6", "f", "", "Expect: 100-continue\r\n") +
				announced("7", "g"))
			for id := 1; id <= 7; id++ {
				got := conn.readResponse()
				if (id == 5 || id == 6) && got.status == http.StatusContinue {
					got = conn.readResponse()
				}
				if want := fmt.Sprintf(`"id":%d,`, id); got.status != http.StatusOK ||
					!strings.Contains(got.body, want) {
					t.Errorf("%s, request %d: got %d %.200s, want 200", era, id, got.status, got.body)
				}
				if got.header.Get("Connection") != "" {
					t.Errorf("%s, request %d: the connection is closed", era, id)
				}
			}
		}
	})
}

// A body that was read to its end is closed, so that net/http does not read from it again before it
// writes the response.
func TestBodies_AreClosedAtTheirEnd(t *testing.T) {
	for name, c := range map[string]struct {
		end    error
		closed bool
	}{"whole": {io.EOF, true}, "broken off": {io.ErrUnexpectedEOF, false}} {
		x := newRepeatedRequest(mcphttp.NewHandler(cannedCore, nil), modernBody, modernHeader())
		body := &closeRecorder{Reader: io.MultiReader(x.body, iotest.ErrReader(c.end))}
		x.request.Body = body
		x.run()
		if body.closed != c.closed {
			t.Errorf("%s: closed is %v, want %v", name, body.closed, c.closed)
		}
	}
}

type closeRecorder struct {
	io.Reader
	closed bool
}

func (b *closeRecorder) Close() error {
	b.closed = true
	return nil
}

func BenchmarkReadClaimed(b *testing.B) {
	for _, size := range []int{200, 20_000, 1 << 20} {
		body := make([]byte, size)
		b.Run(strconv.Itoa(size), func(b *testing.B) {
			b.ReportAllocs()
			r := bytes.NewReader(nil)
			for b.Loop() {
				r.Reset(body)
				if _, err := mcphttp.ReadClaimed(r, int64(size), int64(size)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// An abandonedReader returns an error and keeps the buffer, to which it may still write.
type abandonedReader struct{ buffer []byte }

func (r *abandonedReader) Read(p []byte) (int, error) {
	r.buffer = p
	return 0, io.ErrNoProgress
}

// A middleware may stop waiting for a read, which then still writes to its buffer.
func TestReadClaimed_DoesNotReuseTheBufferOfAnAbandonedRead(t *testing.T) {
	const want = "halves"
	for range 100 {
		var abandoned abandonedReader
		if _, err := mcphttp.ReadClaimed(&abandoned, -1, 100); err == nil {
			t.Fatal("got no error, want that of the reader")
		}
		first := strings.NewReader(want[:3])
		late := readFunc(func([]byte) (int, error) {
			copy(abandoned.buffer, "spoilt")
			return 0, io.EOF
		})
		got, err := mcphttp.ReadClaimed(io.MultiReader(first, late, strings.NewReader(want[3:])), -1, 100)
		if err != nil || string(got) != want {
			t.Fatalf("got %q, %v; want %q", got, err, want)
		}
	}
}

type readFunc func(p []byte) (int, error)

func (f readFunc) Read(p []byte) (int, error) { return f(p) }
