// Package private checks that files and directories are accessible to the user only.
package private

import (
	"errors"
	"io/fs"
)

// ErrExposed is returned for a file or directory that other users can access.
var ErrExposed = errors.New("accessible to other users")

// CheckOwner returns an error that wraps ErrExposed if other users own or can access a file or
// directory. info is that of path. It checks nothing on systems other than Unix.
func CheckOwner(path string, info fs.FileInfo) error { return checkOwner(path, info) }
