package mcphttp_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcphttp"
)

// What calls hold while they go on counts as kept: for it, what was silent for longest is forgotten. But they may not hold
// all there is.
func TestMemoryEvents_RoomOfCallsIsCounted(t *testing.T) {
	store := mcphttp.NewMemoryEvents()
	const streams = 70 // of nearly 4 MiB: more than is kept
	for n := range streams {
		fill(store, streamKey(n), 1000, 4000)
	}
	find := func() (found int) {
		for n := range streams {
			if _, err := kept(store, streamKey(n), 999); err == nil {
				found++
			}
		}
		return found
	}
	before := find()
	for n := range mcphttp.MaxLentRooms {
		if !store.Lend() {
			t.Fatalf("only %d calls may hold events", n)
		}
	}
	if store.Lend() {
		t.Errorf("more than %d calls may hold events", mcphttp.MaxLentRooms)
	}
	if after := find(); after > before*3/4+1 || after == 0 {
		t.Errorf("%d streams are kept beside what calls hold, %d without", after, before)
	}
	store.TakeBack()
	if !store.Lend() {
		t.Error("what was given back is lent no more")
	}
}

// However a call ends, it holds nothing afterwards. One that comes when too much is held has its events kept all the same.
func TestACallGivesItsRoomBack(t *testing.T) {
	for name, test := range map[string]struct {
		note       string
		full, ends bool // too much is held; the session ends while the call goes on
		lent       bool // while it goes on
	}{
		"short":             {note: "short", lent: true},
		"long":              {note: strings.Repeat("x", 5000)},
		"full":              {note: "short", full: true},
		"session has ended": {note: "short", ends: true, lent: true},
	} {
		t.Run(name, func(t *testing.T) {
			store := mcphttp.NewMemoryEvents()
			before := 0
			for test.full && store.Lend() {
				before = store.Lent()
			}
			s := mcp.NewServer("s", "1", &mcp.ServerOptions{Logger: quiet})
			h := mcphttp.NewHandler(s, &mcphttp.Options{Logger: quiet, Sessions: mcphttp.SessionOptions{Events: store}})
			header := sessionHeader(t, h)
			mcp.AddTool(s, &mcp.Tool{Name: "echo"}, func(ctx context.Context, in struct {
				Message string `json:"message"`
			}) (string, error) {
				mcp.Progress(ctx, 1, 2, test.note)
				if lent := store.Lent() > before; lent != test.lent {
					t.Errorf("the call holds room: %v, want %v", lent, test.lent)
				}
				if test.ends {
					end := newRerun(h, "", header)
					end.request.Method = http.MethodDelete
					end.run()
				}
				return in.Message, nil
			})
			x := newRerun(h, sessionProgressBody, header)
			x.run()
			if got := store.Lent(); got != before {
				t.Errorf("%d bytes are held after the call, %d were before", got, before)
			}
			if test.ends {
				if size, sessions := store.Kept(); size != 0 || sessions != 0 {
					t.Errorf("%d bytes are kept of %d sessions that have ended", size, sessions)
				}
				return
			}
			x.check(t, "hello")
			name, _, _ := strings.Cut(strings.TrimPrefix(string(x.writer.last), "id: "), "-")
			key := mcphttp.StreamKey{Session: header.Get("Mcp-Session-Id"), Stream: name}
			if n, err := kept(store, key, 1); n != 2 || errors.Is(err, mcphttp.ErrEventGap) {
				t.Errorf("%d events are kept after the first, error %v; want the note and the answer", n, err)
			}
		})
	}
}

// One who has written to a stream before writes to it also when it was forgotten meanwhile.
func TestAForgottenStreamIsBegunAgain(t *testing.T) {
	store := mcphttp.NewMemoryEvents()
	key := streamKey(-1)
	put := mcphttp.KeepIn(store, key)
	for n := range int64(2) {
		if err := put(t.Context(), n+1, []byte("early")); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := kept(store, key, 0); got != 2 || err != nil {
		t.Fatalf("%d events are kept, error %v", got, err)
	}
	for n := range 70 {
		fill(store, streamKey(n), 1000, 4000)
	}
	if _, err := kept(store, key, 0); !errors.Is(err, mcphttp.ErrEventGap) {
		t.Fatalf("got %v, want it forgotten", err)
	}
	if err := put(t.Context(), 3, []byte("late")); err != nil {
		t.Fatal(err)
	}
	if got, err := kept(store, key, 2); got != 1 || err != nil {
		t.Errorf("%d events are kept after it was forgotten, error %v", got, err)
	}
	if _, err := kept(store, key, 1); !errors.Is(err, mcphttp.ErrEventGap) {
		t.Errorf("got %v, want a gap where events were forgotten", err)
	}
}
