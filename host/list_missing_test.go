package host_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// A list waits for servers whose items are unknown, and sends progress meanwhile. It names servers whose items
// are missing.
func TestListIsCompleteOrNamesMissingServers(t *testing.T) {
	for _, revision := range []string{"2025-11-25", "2026-07-28"} {
		t.Run(revision, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := openFakes(t, map[string]*fakeProcess{
					"calc": {handler: simpleServer("calc")},
					"slow": {handler: simpleServer("slow"), startup: 20 * time.Second},
					"bad":  {handler: simpleServer("bad"), fail: errors.New("failed to start")},
				}, "{}")
				c := clientWith(t, h, &policy.Caller{}, &mcp.ClientOptions{Revision: revision})
				progress := 0
				ctx := mcp.WithCallOptions(t.Context(), mcp.CallOptions{
					Progress: func(mcp.ProgressUpdate) { progress++ }})
				begun := time.Now()
				raw, err := c.Do(ctx, "tools/list", nil)
				if err != nil {
					t.Fatal(err)
				}
				if text := string(raw); !strings.Contains(text, "calc__name") || !strings.Contains(text, "slow__name") {
					t.Errorf("after %v: got %s", time.Since(begun), text)
				}
				synctest.Wait()
				if progress == 0 {
					t.Error("got no progress")
				}
				meta, _ := jsonscan.Get(raw, "_meta")
				missing, _ := jsonscan.Get(meta, "dev.patchbay/missing")
				const want = `{"of":3,"starting":0,"failed":1,"servers":[{"server":"bad","code":"unavailable"}]}`
				if string(missing) != want {
					t.Errorf("got %s, want %s", missing, want)
				}
			})
		})
	}
}

// If a client goes away, the host still reads the list, and the next caller gets the list at once.
func TestListIsReadAlsoWithoutItsCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &fakeProcess{handler: simpleServer("slow"), startup: 100 * time.Second}
		h := openFakes(t, map[string]*fakeProcess{"slow": p, "calc": {handler: simpleServer("calc")}}, "{}")
		c := client(t, h, &policy.Caller{})
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		if _, err := c.Do(ctx, "tools/list", nil); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want the end of the context", err)
		}
		time.Sleep(80 * time.Second)
		begun := time.Now()
		tools, err := mcp.Collect(c.Tools(t.Context()))
		if took := time.Since(begun); err != nil || len(tools) != 8 || took != 0 || len(p.started()) != 1 {
			t.Errorf("got %d tools, %v after %v and %d starts", len(tools), err, took, len(p.started()))
		}
	})
}
