package gatewayclient

import (
	"errors"
	"io/fs"

	"golang.org/x/sys/windows"
)

// hasModes reports whether the modes of files keep other users out. Here the folder of the user does.
const hasModes = false

// isOwn reports whether a file belongs to this user. The permissions of the folder ensure this.
func isOwn(fs.FileInfo) bool { return true }

// isRefusedSocket reports whether no process listens on a socket.
func isRefusedSocket(err error) bool { return errors.Is(err, windows.WSAECONNREFUSED) }
