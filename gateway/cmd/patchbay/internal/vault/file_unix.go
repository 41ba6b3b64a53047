//go:build unix

package vault

import (
	"errors"
	"os"
	"syscall"
)

func replaceFile(from, to string) error { return os.Rename(from, to) }

// syncDir flushes a directory to disk.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	if err := d.Sync(); err != nil && !errors.Is(err, syscall.EINVAL) && !errors.Is(err, syscall.ENOTSUP) {
		return err // file systems without support return the two errors
	}
	return nil
}
