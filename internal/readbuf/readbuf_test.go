package readbuf_test

import (
	"bytes"
	"testing"

	"github.com/patchbay-mcp/patchbay/internal/readbuf"
)

func TestDrain_ReturnsMemoryThatIsNotReused(t *testing.T) {
	var drained [][]byte
	sizes := []int{0, 1, 100, 4095, 4096, 5000, 40_000, 100_000, 300_000, 1 << 20, 5 << 20}
	for i := range 8 * len(sizes) {
		want := bytes.Repeat([]byte{byte(i)}, sizes[i%len(sizes)])
		var b readbuf.Buffer
		b.Add(want)
		if i%3 == 0 {
			b.Reset()
			b.Add(want)
		}
		if b.Len() != len(want) {
			t.Errorf("got Len %d, want %d", b.Len(), len(want))
		}
		drained = append(drained, b.Drain())
		if b.Len() != 0 {
			t.Errorf("got Len %d after Drain, want 0", b.Len())
		}
	}
	for i, got := range drained {
		if n := bytes.Count(got, []byte{byte(i)}); n != sizes[i%len(sizes)] || n != len(got) {
			t.Errorf("got %d bytes, %d of them unchanged, want %d", len(got), n, sizes[i%len(sizes)])
		}
	}
}

func TestSpace_IsBoundedByTheBytesThatHaveArrived(t *testing.T) {
	for _, claim := range []int64{-1, 0, 10, 4095, 100_000, 1 << 20, 10 << 20, 1 << 62, 1<<63 - 1} {
		var b readbuf.Buffer
		for arrived := 0; arrived < 6<<20; {
			space := b.Space(claim)
			if room := arrived + len(space); len(space) == 0 || room > 5*arrived+readbuf.FirstChunk {
				t.Errorf("%d claimed, %d arrived: got room for %d, want at most %d", claim, arrived, room,
					5*arrived+readbuf.FirstChunk)
			}
			if small := claim >= 0 && claim < readbuf.FirstChunk; small && arrived == 0 &&
				int64(len(space)) != claim+1 {
				t.Errorf("%d claimed: got space for %d, want one more than claimed", claim, len(space))
			}
			if fifth := claim / 5; fifth > readbuf.FirstChunk && int64(arrived) == claim-1 && len(space) != 2 {
				t.Errorf("%d claimed, all but one arrived: got space for %d, want 2", claim, len(space))
			}
			n := (len(space) + 1) / 2
			b.Filled(n)
			arrived += n
		}
		b.Reset()
	}
}

func TestSpace_IsBoundedByTheLimit(t *testing.T) {
	for _, limit := range []int64{5 << 10, 70 << 10, 300 << 10, 1100 << 10, 9 << 20} {
		b := readbuf.Buffer{Limit: limit}
		for int64(b.Len()) < limit {
			space := b.Space(-1)
			if room := int64(b.Len() + len(space)); room > limit {
				t.Errorf("limit %d: got room for %d", limit, room)
			}
			b.Filled(len(space))
		}
		b.Reset()
	}
}
