//go:build unix

package bolt

import (
	"io/fs"
	"syscall"

	bolterrors "go.etcd.io/bbolt/errors"
)

// fullErrors are reasons of [ErrFull], readOnlyErrors are reasons of [ErrReadOnly].
var (
	fullErrors     = []error{syscall.ENOSPC, syscall.EDQUOT, syscall.EFBIG}
	readOnlyErrors = []error{syscall.EROFS, fs.ErrPermission, bolterrors.ErrDatabaseReadOnly}
)
