//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package bolt

import "os"

// unlockAndClose closes the file of a database that cannot be closed itself, and with it the lock.
func unlockAndClose(f *os.File) error { return f.Close() }
