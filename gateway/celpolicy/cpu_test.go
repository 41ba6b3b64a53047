//go:build unix

package celpolicy_test

import (
	"syscall"
	"time"
)

// cpuTime returns the time of processors that this process has used: other processes do not change it.
func cpuTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
