// Package minheap makes the garbage collector run less often in programs whose live memory is
// small.
package minheap

import (
	"os"
	"sync"
)

// size is the allocation that the collector waits for besides the live memory. A gateway with a few
// servers uses 5 to 10 MiB of live memory: without this, the collector runs more than ten times a
// second under load, and takes a sixth of the CPU.
const size = 32 << 20

// reserve is counted as live memory. It is never written, so that the system provides no pages for
// it.
var reserve = sync.OnceValue(func() []byte { return make([]byte, size) })

// Set makes the collector wait until 32 MiB more than the live memory were allocated since it ran.
// It leaves the process unchanged if the environment sets GOGC or GOMEMLIMIT: the operator decided.
// It is safe for concurrent use.
func Set() {
	if os.Getenv("GOGC") == "" && os.Getenv("GOMEMLIMIT") == "" {
		reserve()
	}
}
