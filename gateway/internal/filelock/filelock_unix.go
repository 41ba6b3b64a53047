//go:build darwin || dragonfly || freebsd || illumos || linux || netbsd || openbsd

package filelock

import (
	"errors"
	"os"
	"syscall"
)

// Open opens a file, which it creates if it does not exist, and locks it until it is closed or the
// process ends. It does not wait: see [ErrLocked]. The file must not be removed: two processes
// could then lock different files. Where the system lacks locks, the error is
// [errors.ErrUnsupported].
func Open(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err = flock(f); err == nil {
		return f, nil
	}
	_ = f.Close()
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, ErrLocked
	}
	return nil, &os.PathError{Op: "lock", Path: path, Err: err}
}

func flock(f *os.File) error {
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}
