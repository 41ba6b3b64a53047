//go:build !unix

package policy_test

import "time"

func cpuTime() time.Duration { return time.Duration(time.Now().UnixNano()) }
