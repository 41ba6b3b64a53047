//go:build unix

package proclimit

import "syscall"

const (
	resourceData  = syscall.RLIMIT_DATA
	resourceFiles = syscall.RLIMIT_NOFILE
)

// hardLimit returns the largest limit of a resource that a process can set.
func hardLimit(resource int) (uint64, bool) {
	var l syscall.Rlimit
	if syscall.Getrlimit(resource, &l) != nil {
		return 0, false
	}
	return uint64(l.Max), true //nolint:unconvert // it is signed on FreeBSD
}
