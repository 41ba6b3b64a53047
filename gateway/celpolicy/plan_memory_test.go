package celpolicy_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/host/policy"
)

// A caller cannot fill the memory with plans for long URIs, which it chooses.
func TestPlansForLongURIs(t *testing.T) {
	p := mustCompile(t, `{"rules": [{"name": "a", "on": ["read"], "when": "target.endsWith('secret')", "do": "deny"}]}`)
	before := heapSize()
	for n := range 100 {
		uri := fmt.Sprint("x://", n, strings.Repeat("a", 1<<20), "secret")
		d := p.Decide(t.Context(), &policy.Action{Kind: policy.ActionRead, Method: "resources/read", Server: "s", Target: uri})
		if d.Do != policy.OutcomeDeny {
			t.Fatalf("got %+v, want deny", d)
		}
	}
	if after := heapSize(); after > before+20<<20 {
		t.Errorf("%d MiB are kept after 100 decisions", (after-before)>>20)
	}
	runtime.KeepAlive(p)
}

func heapSize() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
