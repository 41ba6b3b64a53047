//go:build unix

package host_test

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/host"
	"github.com/patchbay-mcp/patchbay/host/config"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// During a thousand reloads under load, a server that none of them changes keeps its process, and each of its
// calls has its result. No process is left.
func TestReloadStorm(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	mcptest.NoLeaks(t)
	stable, stableStarts := processEntry(t, "server")
	other, otherStarts := processEntry(t, "server")
	parse := func(n int) *config.File {
		servers := map[string]any{"stable": stable}
		if n%20 > 0 {
			servers["other"] = map[string]any{"command": other["command"], "env": other["env"],
				"args": []string{fmt.Sprint(n % 7)}}
		}
		text, err := json.Marshal(map[string]any{"mcpServers": servers})
		if err != nil {
			t.Fatal(err)
		}
		f, err := config.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	h, err := host.Open(t.Context(), parse(0), &host.Options{Logger: noLog})
	if err != nil {
		t.Fatal(err)
	}
	c := client(t, h, &policy.Caller{})
	_, pid := failureOfProcess(t, c, "stable__pid")
	ctx, cancel := context.WithCancel(t.Context())
	var load sync.WaitGroup
	var calls atomic.Int64
	for range 4 {
		load.Go(func() {
			for ctx.Err() == nil {
				if f, got := failureOf(t, c, "stable__pid"); f != nil || got != pid {
					t.Errorf("call during reloads: %+v, %q, want the process %s", f, got, pid)
					return
				}
				calls.Add(1)
			}
		})
		load.Go(func() {
			for ctx.Err() == nil {
				_, _ = c.CallTool(ctx, "other__pid", nil) // fails while the server is removed
			}
		})
	}
	pause := time.NewTicker(2 * time.Millisecond)
	defer pause.Stop()
	for n := range 1000 {
		if _, err := h.Reload(ctx, parse(n)); err != nil {
			t.Fatal(err)
		}
		<-pause.C
	}
	cancel()
	load.Wait()
	if n := len(stableStarts()); n != 1 {
		t.Errorf("%d processes of the server that did not change, want 1", n)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if err := h.Close(); err != nil {
		t.Error(err)
	}
	for _, pid := range append(stableStarts(), otherStarts()...) {
		waitUntil(t, "process "+pid+" still runs", func() bool { return !isRunning(pid) })
	}
	t.Logf("%d calls, %d processes of the other server", calls.Load(), len(otherStarts()))
}
