//go:build unix

package main

import "syscall"

// reservedFiles is the number of descriptors reserved for files other than
// streams.
const reservedFiles = 200

// openFiles returns the number of streams that a process may open. The Go
// runtime raises the soft limit to the hard limit at program start, in the
// servers too.
func openFiles() int {
	var limit syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit) != nil {
		return maxStreams
	}
	return int(min(limit.Cur, 1<<20)) - reservedFiles
}
