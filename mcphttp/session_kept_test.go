package mcphttp_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/mcphttp"
)

// A packer keeps streams of one event, each of a call that is over.
type packer struct {
	*testing.T
	store interface {
		mcphttp.EventStore
		Kept() (size, sessions int)
	}
}

func newPacker(t *testing.T) *packer { return &packer{t, mcphttp.NewMemoryEvents()} }

func (p *packer) pack(n int, data string) {
	p.Helper()
	put, end := mcphttp.Hold(p.store, streamKey(n))
	if err := put(context.Background(), 1, []byte(data)); err != nil {
		p.Fatal(err)
	}
	end()
}

// want checks the last event of a stream; "" is for one that is not kept.
func (p *packer) want(n int, want string) {
	p.Helper()
	got := ""
	for data, err := range p.store.After(context.Background(), streamKey(n), 0) {
		if got = string(data); err != nil && (want != "" || !errors.Is(err, mcphttp.ErrEventGap)) {
			p.Errorf("stream %d: got %v, want %.10q", n, err, want)
		}
	}
	if got != want {
		p.Errorf("stream %d: got %.10q, want %.10q", n, got, want)
	}
}

// Streams that are over are forgotten when they are too old, and no others with them.
func TestMemoryEvents_AgeOfStreamsThatAreOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPacker(t)
		put := mcphttp.KeepIn(p.store, streamKey(9)) // one that lasts, of the same session
		if err := put(t.Context(), 1, []byte("early")); err != nil {
			t.Fatal(err)
		}
		p.pack(0, strings.Repeat("a", 3000))
		p.pack(1, "b")
		time.Sleep(2 * time.Minute)
		p.pack(2, "c")
		p.pack(0, "again") // as another whose name has the same tag
		p.want(0, "again")
		p.want(1, "b")
		time.Sleep(8*time.Minute - 1)
		p.want(1, "b")
		if err := put(t.Context(), 2, []byte("late")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(1)
		p.want(1, "")
		before, _ := p.store.Kept()
		p.pack(3, "d")
		if after, _ := p.store.Kept(); after > before-3000 {
			t.Errorf("%d bytes are kept, and before the first streams were too old %d", after, before)
		}
		p.want(0, "again")
		p.want(1, "")
		p.want(2, "c")
		p.want(3, "d")
		if n, err := kept(p.store, streamKey(9), 1); n != 1 || err != nil {
			t.Errorf("of the stream that lasts %d events are kept, error %v; want 1", n, err)
		}
		time.Sleep(9 * time.Minute)
		p.pack(4, "e")
		time.Sleep(time.Minute) // the stream that lasts is too old as well
		p.pack(5, "f")
		for n, want := range []string{"", "", "", "", "e", "f"} {
			p.want(n, want)
		}
		if err := p.store.EndSession("session", "principal"); err != nil {
			t.Fatal(err)
		}
		p.want(4, "")
		if size, sessions := p.store.Kept(); size != 0 || sessions != 0 {
			t.Errorf("after the session %d bytes are kept, of %d sessions", size, sessions)
		}
	})
}

// Which stream of a pack is over first says nothing of which is the oldest.
func TestMemoryEvents_StreamsEndInAnyOrder(t *testing.T) {
	for name, laterFirst := range map[string]bool{"the earlier first": false, "the later first": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPacker(t)
				putEarly, endEarly := mcphttp.Hold(p.store, streamKey(0))
				_ = putEarly(t.Context(), 1, []byte("early"))
				if !laterFirst {
					endEarly()
				}
				time.Sleep(30 * time.Second)
				p.pack(1, "late")
				if laterFirst {
					endEarly()
				}
				time.Sleep(10*time.Minute - 20*time.Second)
				p.pack(2, "last")
				p.want(0, "")
				p.want(1, "late")
			})
		})
	}
}

// What is kept of streams that are over is counted. If it is too much, those that were over first are forgotten, some at a
// time.
func TestMemoryEvents_RoomOfStreamsThatAreOver(t *testing.T) {
	store := mcphttp.NewMemoryEvents()
	p := &packer{t, store}
	const streams, size = 100, 1000
	for n := range streams {
		p.pack(n, strings.Repeat("x", size))
	}
	if got, _ := store.Kept(); got < streams*size || got > 2*streams*size {
		t.Errorf("%d bytes are counted for %d events of %d", got, streams, size)
	}
	for n := streams; ; n++ {
		if got, _ := store.Kept(); got > 230<<20 {
			break
		}
		fill(store, streamKey(n), 1, 1<<20)
	}
	for {
		if _, err := kept(store, streamKey(0), 0); err != nil {
			break
		}
		if !store.Lend() {
			t.Fatal("nothing is forgotten")
		}
	}
	p.want(streams-1, strings.Repeat("x", size))
}

// A stream is known by its name, not by what it is looked for by.
func TestMemoryEvents_AnotherNameWithTheSameTag(t *testing.T) {
	store := mcphttp.NewMemoryEvents()
	p := &packer{t, store}
	p.pack(0, "a")
	store.Collide(streamKey(1), streamKey(0).Stream)
	p.want(0, "a")
	p.want(1, "")
}

// What a stream that lasts has said is let go of when it is too old, though the stream goes on.
func TestMemoryEvents_AgeOfAStreamThatLasts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := mcphttp.NewMemoryEvents()
		put := mcphttp.KeepIn(store, streamKey(0))
		_ = put(t.Context(), 1, make([]byte, 5000))
		time.Sleep(5 * time.Minute)
		fill(store, streamKey(1), 1, 1) // silent for longer, and not too old
		time.Sleep(5 * time.Minute)
		_ = put(t.Context(), 2, []byte("late"))
		if size, _ := store.Kept(); size > 5000 {
			t.Errorf("%d bytes are kept", size)
		}
		if n, err := kept(store, streamKey(0), 1); n != 1 || err != nil {
			t.Errorf("%d events are kept, error %v; want 1", n, err)
		}
	})
}

// What is too much for the room of a call is kept at once, with what the room holds.
func TestMemoryEvents_MoreThanACallHolds(t *testing.T) {
	store := mcphttp.NewMemoryEvents()
	for stream, sizes := range [][]int{{5000, 1}, {1, 5000, 1}, {1000, 1000, 1000, 1000, 1000, 1000}} {
		put, end := mcphttp.Hold(store, streamKey(stream))
		for i, size := range sizes {
			_ = put(t.Context(), int64(i+1), make([]byte, size))
			if held := store.Lent(); held > 0 && size == 5000 {
				t.Errorf("%d: %d bytes are held of an event of %d", stream, held, size)
			}
		}
		end()
		if n, err := kept(store, streamKey(stream), 0); n != len(sizes) || err != nil || store.Lent() != 0 {
			t.Errorf("%d: %d events are kept, %d bytes held, error %v", stream, n, store.Lent(), err)
		}
	}
	_ = store.EndSession("session", "principal")
	if size, sessions := store.Kept(); size != 0 || sessions != 0 {
		t.Errorf("after the session %d bytes are kept, of %d sessions", size, sessions)
	}
}
