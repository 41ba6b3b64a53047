package mcphttp_test

import (
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcphttp"
)

// The requests of a batch count one by one.
func TestLimits_RequestsOfABatchCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const limit = 4
		core := newTestCore()
		f := start(t, core, &mcphttp.Options{MaxInFlightPerPrincipal: limit})
		s := f.initialize(march2025, "Authorization: ann")
		var calls sync.WaitGroup
		batch := func(n int, tool string) string {
			var bodies []string
			for id := range n {
				bodies = append(bodies, callBody(id+1, tool))
			}
			return "[" + strings.Join(bodies, ",") + "]"
		}
		if got := s.send(batch(limit+1, "echo")); got.status != 429 || got.code() != mcp.CodeBusy {
			t.Errorf("batch of %d: got %d %s, want 429", limit+1, got.status, got.body)
		}
		calls.Go(func() {
			if got := s.send(batch(limit, "wait")); got.status != 200 {
				t.Errorf("batch of %d: got %d %s, want 200", limit, got.status, got.body)
			}
		})
		synctest.Wait()
		if got := f.modern("tools/call", `"name":"echo"`, "Authorization: ann"); got.status != 429 {
			t.Errorf("call during a batch of %d: got %d, want 429", limit, got.status)
		}
		for range limit {
			core.proceed <- struct{}{}
		}
		calls.Wait()
		for range 10 { // none of the slots is lost or doubled
			if got := s.send(batch(limit, "echo")); got.status != 200 {
				t.Errorf("batch of %d: got %d %s, want 200", limit, got.status, got.body)
			}
			if got := s.send(batch(limit+1, "echo")); got.status != 429 {
				t.Errorf("batch of %d: got %d %s, want 429", limit+1, got.status, got.body)
			}
		}
	})
}
