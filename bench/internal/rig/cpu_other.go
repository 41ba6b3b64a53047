//go:build !unix

package rig

import "time"

// cpuTime returns zero: the CPU time is unknown on this system.
func cpuTime() time.Duration { return 0 }
