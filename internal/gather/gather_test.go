package gather_test

import (
	"bytes"
	"testing"

	"github.com/patchbay-mcp/patchbay/internal/gather"
)

// What is taken stands in no memory that is used again.
func TestTakenBytesAreNobodyElses(t *testing.T) {
	var taken [][]byte
	sizes := []int{0, 1, 100, 4095, 4096, 5000, 40_000, 100_000, 300_000, 1 << 20, 5 << 20}
	for i := range 8 * len(sizes) {
		want := bytes.Repeat([]byte{byte(i)}, sizes[i%len(sizes)])
		var b gather.Buffer
		b.Add(want)
		if i%3 == 0 { // dropped, and gathered again
			b.Drop()
			b.Add(want)
		}
		if b.Len() != len(want) {
			t.Errorf("%d bytes, Len is %d", len(want), b.Len())
		}
		taken = append(taken, b.Take())
		if b.Len() != 0 {
			t.Errorf("%d bytes are left after Take", b.Len())
		}
	}
	for i, got := range taken {
		if n := bytes.Count(got, []byte{byte(i)}); n != sizes[i%len(sizes)] || n != len(got) {
			t.Errorf("%d bytes were taken, %d of them their own, want %d", len(got), n, sizes[i%len(sizes)])
		}
	}
}

// A claim costs nothing until a fifth of it is there, and then there is room for all.
func TestSpaceFollowsWhatArrives(t *testing.T) {
	for _, claim := range []int64{-1, 0, 10, 4095, 100_000, 1 << 20, 10 << 20, 1 << 62, 1<<63 - 1} {
		var b gather.Buffer
		for arrived := 0; arrived < 6<<20; {
			space := b.Space(claim)
			if room := arrived + len(space); len(space) == 0 || room > 5*arrived+gather.FirstRoom {
				t.Errorf("%d claimed, %d arrived: room for %d", claim, arrived, room)
			}
			if small := claim >= 0 && claim < gather.FirstRoom; small && arrived == 0 && int64(len(space)) != claim+1 {
				t.Errorf("%d claimed: room for %d", claim, len(space))
			}
			if fifth := claim / 5; fifth > gather.FirstRoom && int64(arrived) == claim-1 && len(space) != 2 {
				t.Errorf("%d claimed, all but one arrived: room for %d more", claim, len(space))
			}
			n := (len(space) + 1) / 2
			b.Filled(n)
			arrived += n
		}
		b.Drop()
	}
}

// What can arrive has its room, and hardly anything has more.
func TestSpaceKeepsToTheLimit(t *testing.T) {
	for _, limit := range []int64{5 << 10, 70 << 10, 300 << 10, 1100 << 10, 9 << 20} {
		b := gather.Buffer{Limit: limit}
		for int64(b.Len()) < limit {
			space := b.Space(-1)
			if room := int64(b.Len() + len(space)); room > limit {
				t.Errorf("limit %d: room for %d", limit, room)
			}
			b.Filled(len(space))
		}
		b.Drop()
	}
}

// A long line or body costs its own memory and no more, once there were others.
func TestGatheringCostsOneCopy(t *testing.T) {
	if raceDetector {
		t.Skip("with the race detector, pools lose things at random")
	}
	text := bytes.Repeat([]byte("x"), 300_000)
	if n := testing.AllocsPerRun(100, func() {
		var b gather.Buffer
		b.Add(text)
		b.Take()
	}); n > 1 {
		t.Errorf("%v allocations, want 1", n)
	}
}
