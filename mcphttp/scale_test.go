package mcphttp_test

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/mcphttp"
)

func TestEndedSessionsHoldNoMemory(t *testing.T) {
	if raceDetector {
		t.Skip("the heap is another one under the race detector")
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
	endAll(openAll()) // what is made once, and the table, which does not shrink
	before := heapInUse()
	endAll(openAll())
	if each := (heapInUse() - before) / sessions; each > 50 {
		t.Errorf("%d bytes of heap are left of each session", each)
	}
}

func TestManyIdleSessionsExpireTogether(t *testing.T) {
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
			t.Fatalf("a session in use: status %d", got)
		}
		time.Sleep(20 * time.Minute)
		for _, id := range ids[1:] {
			if got := status(id); got != http.StatusNotFound {
				t.Fatalf("an idle session: status %d, want 404", got)
			}
		}
		if got := status(ids[0]); got != http.StatusOK {
			t.Errorf("the one in use: status %d", got)
		}
		time.Sleep(time.Hour) // and no timer is left
	})
}

// Clients that do not read hold a bounded amount of memory until the write timeout, and none after
// it. A session can resume its stream.
func TestListenersThatDoNotReadAreDisconnected(t *testing.T) {
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
				t.Fatalf("listener %d is still served", i)
			}
		}
		f.change()
		for _, l := range readers {
			if l.isDone() || l.takeChanges() != 26 {
				t.Error("one who reads was not told of every change")
			}
		}
	})
}
