//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package cli

import "golang.org/x/sys/unix"

// setKeyMode lets a terminal send each key at once, without showing it, and drops what was typed
// before. Ctrl-C stays a signal. The returned function restores the terminal.
func setKeyMode(fd uintptr) (restore func(), err error) {
	before, err := unix.IoctlGetTermios(int(fd), ioctlGetTermios)
	if err != nil {
		return nil, err
	}
	mode := *before
	mode.Lflag &^= unix.ICANON | unix.ECHO
	mode.Cc[unix.VMIN], mode.Cc[unix.VTIME] = 1, 0
	if err := unix.IoctlSetTermios(int(fd), ioctlSetAndDrop, &mode); err != nil {
		return nil, err
	}
	return func() { _ = unix.IoctlSetTermios(int(fd), ioctlSetTermios, before) }, nil
}
