//go:build !(darwin || dragonfly || freebsd || illumos || linux || netbsd || openbsd || windows)

package filelock

import (
	"errors"
	"os"
)

// Open returns [errors.ErrUnsupported]: this system has no locks.
func Open(string) (*os.File, error) { return nil, errors.ErrUnsupported }
