//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package gatewayclient

import (
	"io/fs"
	"os"
	"syscall"
)

// hasModes reports whether the modes of files keep other users out.
const hasModes = true

// isOwn reports whether a file belongs to this user.
func isOwn(info fs.FileInfo) bool {
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && int64(stat.Uid) == int64(os.Geteuid())
}

// isRefusedSocket reports whether no process listens on a socket, by an error of this system only.
func isRefusedSocket(error) bool { return false }
