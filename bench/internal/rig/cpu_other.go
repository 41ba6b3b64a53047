//go:build !unix

package rig

import "time"

// CPUTime returns zero: the CPU time is unknown on this system.
func CPUTime() time.Duration { return 0 }
