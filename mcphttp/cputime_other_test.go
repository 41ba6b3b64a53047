//go:build !unix

package mcphttp_test

import "time"

// cpuTime is unknown here; benchmarks that compare it say nothing.
func cpuTime() time.Duration { return 0 }
