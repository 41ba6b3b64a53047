//go:build unix

package private

import (
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

func checkOwner(path string, info fs.FileInfo) error {
	if !isOwn(info) {
		return fmt.Errorf("%s: %w: owned by another user", path, ErrExposed)
	}
	if mode := info.Mode().Perm(); mode&0o077 != 0 {
		return fmt.Errorf("%s: %w: mode %#o (run chmod go= %[1]s)", path, ErrExposed, mode)
	}
	return nil
}

func checkWriters(path string, info fs.FileInfo) error {
	if !isOwn(info) {
		return fmt.Errorf("%s: %w: owned by another user: remove it, or use another path", path, ErrExposed)
	}
	if mode := info.Mode().Perm(); mode&0o022 != 0 {
		return fmt.Errorf("%s: %w: mode %#o lets other users write: run chmod go-w %[1]s", path, ErrExposed, mode)
	}
	return nil
}

func isOwn(info fs.FileInfo) bool {
	status, ok := info.Sys().(*syscall.Stat_t)
	return !ok || int(status.Uid) == os.Geteuid()
}
