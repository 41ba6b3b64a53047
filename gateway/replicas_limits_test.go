package gateway_test

import (
	"encoding/json"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/patchbay-mcp/patchbay/gateway"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

const limitedFleet = `{"mcpServers": {"docs": {"command": "docs"}, "more": {"command": "docs"}},
	"patchbay": {"limits": {"callsPerDay": 64}, "servers": {"more": {"toolRates": {"whoami": "7/h"}}}}}`

// callers sends calls of a tool to all gateways in turn from three clients, and returns how many were admitted.
func (f *fleet) callers(key, tool string, calls int) int {
	f.t.Helper()
	var admitted atomic.Int32
	var work sync.WaitGroup
	for range 3 {
		c := f.connect(mcptest.Modern, "/mcp", key)
		work.Go(func() {
			for range calls / 3 {
				res, err := c.CallTool(f.t.Context(), tool, nil)
				if err != nil {
					f.t.Error(err)
				} else if !res.IsError {
					admitted.Add(1)
				}
			}
		})
	}
	work.Wait()
	return int(admitted.Load())
}

// Gateways count rates and budgets of a caller together, and show the same figures.
//
// Requirement: HOST-06
func TestGatewaysShareLimits(t *testing.T) {
	f := startFleet(t, limitedFleet)
	ann, bob := f.key(gateway.Key{Name: "ann"}), f.key(gateway.Key{Name: "bob"})
	if n := f.callers(ann, "more__whoami", 30); n != 7 {
		t.Errorf("%d calls were admitted, want 7", n)
	}
	if n := f.callers(ann, "docs__whoami", 90); n != 57 { // 7 of 64 were calls of the other server
		t.Errorf("%d calls were admitted, want 57", n)
	}
	if n := f.callers(bob, "docs__whoami", 30); n != 30 {
		t.Errorf("%d calls of another caller were admitted, want 30", n)
	}
	for i, p := range f.processes {
		await(t, func() error {
			var page struct {
				Processes int
				InShares  bool
				Callers   []struct {
					Subject string
					Calls   int
				}
			}
			_, text := sendInProcess(t, p.AdminClient(&mcp.Principal{Subject: "op"}), "GET", "/limits?subject=ann")
			if err := json.Unmarshal([]byte(text), &page); err != nil {
				return fmt.Errorf("%w: %s", err, text)
			}
			if page.Processes != 3 || page.InShares || len(page.Callers) != 1 || page.Callers[0].Calls != 64 {
				return fmt.Errorf("gateway %d shows %s, want 64 calls of 3 gateways", i, text)
			}
			return nil
		})
	}
}
