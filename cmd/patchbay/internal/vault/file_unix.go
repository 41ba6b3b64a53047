//go:build unix

package vault

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// checkOwner refuses what is another user's, or can be reached by others.
func checkOwner(path string, info fs.FileInfo) error {
	if status, ok := info.Sys().(*syscall.Stat_t); ok && int(status.Uid) != os.Geteuid() {
		return fmt.Errorf("%s: %w: it belongs to another user", path, ErrExposed)
	}
	if mode := info.Mode().Perm(); mode&0o077 != 0 {
		return fmt.Errorf("%s: %w: its mode is %#o (chmod go= %[1]s)", path, ErrExposed, mode)
	}
	return nil
}

func replaceFile(from, to string) error { return os.Rename(from, to) }

// syncDir makes a change of names last.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	if err := d.Sync(); err != nil && !errors.Is(err, syscall.EINVAL) && !errors.Is(err, syscall.ENOTSUP) {
		return err // some file systems have nothing to do here, and say so in these ways
	}
	return nil
}
