package host_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/host"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// A staticPolicy decides by the item only, so that its decisions are kept.
type staticPolicy struct{ policyFunc }

func (staticPolicy) Needs(policy.ActionKind) policy.Fields { return 0 }

// A caller cannot fill the memory with decisions about long URIs, which it chooses.
func TestDecisionsAboutLongURIs(t *testing.T) {
	allow := staticPolicy{func(*policy.Action) policy.Decision { return policy.Decision{Do: policy.OutcomeAllow} }}
	c := client(t, newHostWith(t, map[string]mcp.Handler{"a": serverOf("a", "")}, host.Options{Policy: allow}), &policy.Caller{})
	before := heapSize()
	for n := range 100 {
		if _, err := c.ReadResource(t.Context(), fmt.Sprint("x://", n, strings.Repeat("a", 1<<20))); err == nil {
			t.Fatal("a resource that does not exist was read")
		}
	}
	if after := heapSize(); after > before+20<<20 {
		t.Errorf("%d MiB are kept after 100 reads", (after-before)>>20)
	}
}

func heapSize() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
