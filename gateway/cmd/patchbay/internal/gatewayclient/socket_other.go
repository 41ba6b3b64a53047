//go:build !(linux || darwin)

package gatewayclient

// checkPeerOf accepts every process: the directory of the socket is that of the user.
func checkPeerOf(int) error { return nil }
