//go:build unix

package main

import "syscall"

// spareFiles are left for everything but streams.
const spareFiles = 200

// openFiles is how many streams a process may hold. Go has raised the limit as
// far as it may when a program starts, and so do the servers.
func openFiles() int {
	var limit syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit) != nil {
		return mostStreams
	}
	return int(min(limit.Cur, 1<<20)) - spareFiles
}
