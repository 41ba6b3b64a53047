//go:build unix

package bolt

import (
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// checkOwner returns an error if other users own or can access a file or directory.
func checkOwner(path string, info fs.FileInfo) error {
	if status, ok := info.Sys().(*syscall.Stat_t); ok && int(status.Uid) != os.Geteuid() {
		return fmt.Errorf("%s: accessible to other users: owned by another user", path)
	}
	if mode := info.Mode().Perm(); mode&0o077 != 0 {
		return fmt.Errorf("%s: accessible to other users: mode %#o (run chmod go= %[1]s)", path, mode)
	}
	return nil
}
