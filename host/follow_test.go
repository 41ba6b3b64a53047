package host_test

import (
	"context"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// Nothing follows the changes of a server that was stopped, also if its subscription was interrupted
// and waits to be renewed.
func TestStopEndsAnInterruptedSubscription(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := simpleServer("s")
		p := &fakeProcess{handler: mcp.HandlerFunc(func(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
			if req.Method == "subscriptions/listen" { // the server ends it at once
				return mcp.RawResult(`{"resultType":"complete"}`), nil
			}
			return s.ServeMCP(ctx, req)
		})}
		h := openFakes(t, map[string]*fakeProcess{"s": p}, "{}")
		c := client(t, h, &policy.Caller{})
		if f, text := failureOf(t, c, "s__name"); f != nil {
			t.Fatalf("got %+v, %q", f, text)
		}
		follows := func() bool {
			synctest.Wait()
			stacks := make([]byte, 1<<20)
			return strings.Contains(string(stacks[:runtime.Stack(stacks, true)]), ".followChanges(")
		}
		if !follows() {
			t.Fatal("the subscription has ended, and not only paused")
		}
		upstream(t, h, "s").Stop()
		if follows() {
			t.Error("the subscription goes on after Stop")
		}
	})
}
