package cli

import "golang.org/x/sys/unix"

// Requests for the mode of a terminal.
const (
	ioctlGetTermios = unix.TCGETS
	ioctlSetTermios = unix.TCSETS
	ioctlSetAndDrop = unix.TCSETSF
)
