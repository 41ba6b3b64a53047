//go:build unix

package private

import (
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

func checkOwner(path string, info fs.FileInfo) error {
	if status, ok := info.Sys().(*syscall.Stat_t); ok && int(status.Uid) != os.Geteuid() {
		return fmt.Errorf("%s: %w: owned by another user", path, ErrExposed)
	}
	if mode := info.Mode().Perm(); mode&0o077 != 0 {
		return fmt.Errorf("%s: %w: mode %#o (run chmod go= %[1]s)", path, ErrExposed, mode)
	}
	return nil
}
