//go:build !unix

package proclimit

const resourceData, resourceFiles = 0, 0

// hardLimit reports that there are no resource limits.
func hardLimit(int) (uint64, bool) { return 0, false }
