// Package private checks that files and directories are accessible to the user only.
package private

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// ErrExposed is returned for a file or directory that other users can access.
var ErrExposed = errors.New("accessible to other users")

// CheckOwner returns an error that wraps ErrExposed if other users own or can access a file or
// directory. info must describe path. It returns nil on systems other than Unix.
func CheckOwner(path string, info fs.FileInfo) error { return checkOwner(path, info) }

// CheckWriters returns an error that wraps ErrExposed if another user owns or can write a file or
// directory, and so may have written its contents. Others may read it. info must describe path. It
// returns nil on systems other than Unix.
func CheckWriters(path string, info fs.FileInfo) error { return checkWriters(path, info) }

// MkdirAll creates a directory with its parents, with mode 0700, and checks the directory, which
// may exist already, with [CheckWriters].
func MkdirAll(path string) error {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return err
	}
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return fmt.Errorf("%s: not a directory", path)
	}
	return CheckWriters(path, info)
}
