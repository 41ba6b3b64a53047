//go:build unix

package configs

import (
	"errors"
	"io/fs"
	"os"
	"syscall"
)

// keepOwner sets the owner and group of a new file to those of another file. Only root can change the owner.
func keepOwner(path string, f *os.File) error {
	old, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	now, err := f.Stat()
	if err != nil {
		return err
	}
	was, ok := old.Sys().(*syscall.Stat_t)
	is, ok2 := now.Sys().(*syscall.Stat_t)
	if !ok || !ok2 || was.Uid == is.Uid && was.Gid == is.Gid {
		return nil
	}
	if err := f.Chown(int(was.Uid), int(was.Gid)); err != nil {
		return err
	}
	return f.Chmod(old.Mode().Perm()) // a change of the owner clears bits
}
