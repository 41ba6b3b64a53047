package filelock

import (
	"errors"
	"os"
	"syscall"
)

// errSharing is ERROR_SHARING_VIOLATION: another process opened the file.
const errSharing = syscall.Errno(32)

// Open opens a file, which it creates if it does not exist, and locks it until it is closed or the
// process ends, by opening it without sharing. It does not wait: see [ErrLocked].
func Open(path string) (*os.File, error) {
	name, err := syscall.UTF16PtrFromString(path)
	if err != nil {
		return nil, err
	}
	h, err := syscall.CreateFile(name, syscall.GENERIC_READ|syscall.GENERIC_WRITE, 0, nil, syscall.OPEN_ALWAYS,
		syscall.FILE_ATTRIBUTE_NORMAL, 0)
	if errors.Is(err, errSharing) {
		return nil, ErrLocked
	}
	if err != nil {
		return nil, &os.PathError{Op: "lock", Path: path, Err: err}
	}
	return os.NewFile(uintptr(h), path), nil
}
