package host_test

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// A command that exits at once is started with a delay that its sessions and callers share. A start that
// succeeds ends the delay for all.
func TestFailedStartsDelayAllSessions(t *testing.T) {
	for _, share := range []string{"session", "caller", "call"} {
		t.Run(share, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := &fakeProcess{handler: simpleServer("calc"), fail: errBroken}
				h := openFakes(t, map[string]*fakeProcess{"calc": p}, fmt.Sprintf(`{"servers": {"calc": {"share": %q}}}`, share))
				var sessions sync.WaitGroup
				connect := func(n int) {
					session := fmt.Sprint(n)
					c, err := mcp.Connect(t.Context(),
						mcp.InMemory(h.For(&policy.Caller{Session: session, Principal: principal(session)})), nil)
					if err != nil {
						return
					}
					defer c.Close()
					_, _ = mcp.Collect(c.Tools(t.Context()))
				}
				for n := range 120 {
					sessions.Go(func() { connect(n) })
					time.Sleep(50 * time.Millisecond)
				}
				if got := len(p.started()); got > 8 {
					t.Errorf("120 sessions started %d processes within 6 s, want at most 8", got)
				}
				sessions.Wait()
				time.Sleep(time.Minute)
				p.setFail(nil)
				before := len(p.started())
				for n := range 3 {
					c := client(t, h, &policy.Caller{Session: fmt.Sprint("later ", n), Principal: principal(fmt.Sprint("later ", n))})
					if f, text := failureOf(t, c, "calc__name"); f != nil || text != "calc" {
						t.Errorf("session %d after the repair: got %+v, %q", n, f, text)
					}
				}
				if got := len(p.started()) - before; got < 3 {
					t.Errorf("got %d starts after the repair, want 3 or more", got)
				}
			})
		})
	}
}
