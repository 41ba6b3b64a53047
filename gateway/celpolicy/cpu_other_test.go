//go:build !unix

package celpolicy_test

import "time"

func cpuTime() time.Duration { return time.Duration(time.Now().UnixNano()) }
