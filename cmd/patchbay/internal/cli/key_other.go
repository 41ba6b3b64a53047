//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd || windows)

package cli

import "errors"

// setKeyMode is not supported here: questions are answered by a line.
func setKeyMode(uintptr) (restore func(), err error) { return nil, errors.ErrUnsupported }
