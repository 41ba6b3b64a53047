package mcphttp_test

import (
	"bytes"
	"io"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/patchbay-mcp/patchbay/mcphttp"
)

// Bodies of every size arrive whole, whatever they claim and in whatever pieces they come, and a claim alone costs little.
func TestReadClaimed(t *testing.T) {
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
					t.Errorf("%d bytes, %d claimed, %s: took %d bytes", size, claim, name, cap(got))
				}
			}
		}
		if _, err := mcphttp.ReadClaimed(bytes.NewReader(append(want, 'x')), -1, int64(size)); err == nil {
			t.Errorf("%d bytes were taken where %d are the most", size+1, size)
		}
	}
}

// What has arrived stands in no memory that is used again, however the next ones are read.
func TestReadClaimedSharesNothing(t *testing.T) {
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
		if i%5 == 0 { // one that breaks off leaves nothing in them either
			_, err := mcphttp.ReadClaimed(iotest.TimeoutReader(iotest.HalfReader(bytes.NewReader(want))), claim, 2<<20)
			if err == nil && len(want) > 0 {
				t.Errorf("%d bytes, %d claimed: no error", len(want), claim)
			}
		}
	}
	for i, body := range bodies {
		if n := bytes.Count(body, []byte{byte(i)}); n != sizes[i%len(sizes)] || n != len(body) {
			t.Errorf("body %d of %d bytes has %d of its own", i, len(body), n)
		}
	}
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

// A leaver gives up, and leaves a read behind.
type leaver struct{ left []byte }

func (r *leaver) Read(p []byte) (int, error) {
	r.left = p
	return 0, io.ErrNoProgress
}

// Bodies may come from readers of middleware that stop waiting for a read: what that one writes when it comes to its end
// is in no other body.
func TestReadClaimedGivesNobodyTheRoomOfAReadLeftBehind(t *testing.T) {
	const want = "halves"
	for range 100 {
		var before leaver
		if _, err := mcphttp.ReadClaimed(&before, -1, 100); err == nil {
			t.Fatal("no error")
		}
		first := strings.NewReader(want[:3])
		late := readFunc(func([]byte) (int, error) {
			copy(before.left, "spoilt")
			return 0, io.EOF
		})
		got, err := mcphttp.ReadClaimed(io.MultiReader(first, late, strings.NewReader(want[3:])), -1, 100)
		if err != nil || string(got) != want {
			t.Fatalf("got %q, %v", got, err)
		}
	}
}

type readFunc func(p []byte) (int, error)

func (f readFunc) Read(p []byte) (int, error) { return f(p) }
