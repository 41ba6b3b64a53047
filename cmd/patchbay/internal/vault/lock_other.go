//go:build !(darwin || dragonfly || freebsd || illumos || linux || netbsd || openbsd || windows)

package vault

import (
	"errors"
	"os"
)

func tryLock(*os.File) error { return errors.ErrUnsupported }
