//go:build !windows

package audit

import (
	"errors"
	"os"
)

// syncDir writes the names of a folder to the disk.
func syncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
