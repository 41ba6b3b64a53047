//go:build unix

package vault

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// checkOwner returns an error if other users own or can access a file.
func checkOwner(path string, info fs.FileInfo) error {
	if status, ok := info.Sys().(*syscall.Stat_t); ok && int(status.Uid) != os.Geteuid() {
		return fmt.Errorf("%s: %w: owned by another user", path, ErrExposed)
	}
	if mode := info.Mode().Perm(); mode&0o077 != 0 {
		return fmt.Errorf("%s: %w: mode %#o (run chmod go= %[1]s)", path, ErrExposed, mode)
	}
	return nil
}

func replaceFile(from, to string) error { return os.Rename(from, to) }

// syncDir flushes a directory to disk.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	if err := d.Sync(); err != nil && !errors.Is(err, syscall.EINVAL) && !errors.Is(err, syscall.ENOTSUP) {
		return err // the two errors are of file systems without support
	}
	return nil
}
