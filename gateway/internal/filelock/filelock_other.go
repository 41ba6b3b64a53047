//go:build !(darwin || dragonfly || freebsd || illumos || linux || netbsd || openbsd || windows)

package filelock

import (
	"errors"
	"os"
)

// Open returns [errors.ErrUnsupported]: this system lacks locks.
func Open(string) (*os.File, error) { return nil, errors.ErrUnsupported }
