package gatewayclient

import (
	"os"
	"syscall"
)

// checkPeerOf refuses processes of other users. Spec: unix(7), SO_PEERCRED.
func checkPeerOf(fd int) error {
	peer, err := syscall.GetsockoptUcred(fd, syscall.SOL_SOCKET, syscall.SO_PEERCRED)
	if err == nil && int64(peer.Uid) != int64(os.Geteuid()) {
		err = errOtherUser
	}
	return err
}
