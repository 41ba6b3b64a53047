package mcphttp_test

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/mcphttp"
)

func TestSessions_EndedOnesUseNoMemory(t *testing.T) {
	if raceDetector {
		t.Skip("the race detector changes the size of the heap")
	}
	const sessions = 5000
	f := newFanout(t)
	defer f.close()
	openAll := func() (ids []string) {
		for range sessions {
			ids = append(ids, f.session(november2025))
		}
		return ids
	}
	endAll := func(ids []string) {
		for _, id := range ids {
			f.handler.ServeHTTP(httptest.NewRecorder(), f.request(http.MethodDelete, "", "Mcp-Session-Id: "+id))
		}
	}
	endAll(openAll()) // allocates what remains, such as the table, which does not shrink
	before := heapInUse()
	endAll(openAll())
	if each := (heapInUse() - before) / sessions; each > 50 {
		t.Errorf("%d bytes of each ended session remain, want at most 50", each)
	}
}

func TestSessions_ManyIdleOnesExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFanout(t)
		f.handler = mcphttp.NewHandler(f.server, &mcphttp.Options{Logger: discardLogger})
		defer f.close()
		var ids []string
		for range 2000 {
			ids = append(ids, f.session(november2025))
		}
		status := func(id string) int {
			w := httptest.NewRecorder()
			f.handler.ServeHTTP(w, f.request(http.MethodPost, `{"jsonrpc":"2.0","id":1,"method":"ping"}`,
				"Mcp-Session-Id: "+id))
			return w.Code
		}
		time.Sleep(20 * time.Minute)
		if got := status(ids[0]); got != http.StatusOK {
			t.Fatalf("session in use: status %d, want 200", got)
		}
		time.Sleep(20 * time.Minute)
		for _, id := range ids[1:] {
			if got := status(id); got != http.StatusNotFound {
				t.Fatalf("idle session: status %d, want 404", got)
			}
		}
		if got := status(ids[0]); got != http.StatusOK {
			t.Errorf("session in use: status %d, want 200", got)
		}
		time.Sleep(time.Hour) // all sessions expire, and no timer remains in the bubble
	})
}

// Clients that do not read use a bounded amount of memory until the write timeout, and none after it.
func TestChanges_ClientsThatDoNotReadAreDisconnected(t *testing.T) {
	const each, room = 100, 64 << 10
	synctest.Test(t, func(t *testing.T) {
		f := newFanout(t)
		defer f.close()
		readers := []*streamClient{f.listen(modern), f.listen(november2025)}
		for range each {
			f.listen(modern)
			f.listen(november2025)
		}
		unread := f.listeners[len(readers):]
		synctest.Wait()
		for _, l := range unread {
			l.stopReading()
		}
		before := heapInUse()
		for range 25 { // seconds, within the write timeout
			f.change()
		}
		if grown := heapInUse() - before; grown > 2*each*room {
			t.Errorf("the heap has grown by %d bytes for each, want at most %d", grown/(2*each), room)
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		for i, l := range unread {
			if !l.isDone() {
				t.Fatalf("client %d is still served, want its stream ended", i)
			}
		}
		f.change()
		for _, l := range readers {
			if l.isDone() || l.takeChanges() != 26 {
				t.Error("a client that reads has not received every change")
			}
		}
	})
}
