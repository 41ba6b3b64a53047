//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package boltstore

import "os"

// abandon closes the file of a database that cannot be closed itself, and with it the lock.
func abandon(f *os.File) error { return f.Close() }
