//go:build !unix

package mcphttp_test

import "time"

// cpuTime returns 0: the benchmarks that compare CPU times work on Unix only.
func cpuTime() time.Duration { return 0 }
