package gatewayclient

import (
	"os"

	"golang.org/x/sys/unix"
)

// checkPeerOf refuses processes of other users. Spec: unix(4), LOCAL_PEERCRED.
func checkPeerOf(fd int) error {
	peer, err := unix.GetsockoptXucred(fd, unix.SOL_LOCAL, unix.LOCAL_PEERCRED)
	if err == nil && int64(peer.Uid) != int64(os.Geteuid()) {
		err = errOtherUser
	}
	return err
}
