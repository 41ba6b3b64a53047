//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package bolt

import (
	"errors"
	"os"
	"syscall"
)

// unlockAndClose closes the file of a database that cannot be closed itself. It releases the lock
// first: otherwise the lock would stay with the mapped memory.
func unlockAndClose(f *os.File) error {
	return errors.Join(syscall.Flock(int(f.Fd()), syscall.LOCK_UN), f.Close())
}
