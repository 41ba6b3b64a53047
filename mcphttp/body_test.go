package mcphttp_test

import (
	"bytes"
	"io"
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
