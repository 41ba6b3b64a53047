//go:build !unix

package main

// openFiles returns the number of streams that a process may open. The limit is
// unknown on this system.
func openFiles() int { return maxStreams }
