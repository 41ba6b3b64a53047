package bolt

import (
	"io/fs"
	"syscall"

	bolterrors "go.etcd.io/bbolt/errors"
)

// fullErrors are reasons of [ErrFull], readOnlyErrors those of [ErrReadOnly]:
// ERROR_HANDLE_DISK_FULL, ERROR_DISK_FULL, and ERROR_WRITE_PROTECT.
var (
	fullErrors     = []error{syscall.Errno(39), syscall.Errno(112)}
	readOnlyErrors = []error{syscall.Errno(19), fs.ErrPermission, bolterrors.ErrDatabaseReadOnly}
)
