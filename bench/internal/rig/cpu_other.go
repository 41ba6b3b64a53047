//go:build !unix

package rig

import "time"

// cpuTime is unknown here: readings then hold allocations only.
func cpuTime() time.Duration { return 0 }
