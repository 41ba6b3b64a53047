package cmdutil

import (
	"fmt"
	"net"

	"github.com/patchbay-mcp/patchbay/gateway/internal/netx"
)

// IsLoopbackAddr reports whether only this machine reaches an address.
func IsLoopbackAddr(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	return err == nil && netx.IsLocalHost(host)
}

// CheckNoAuth refuses addresses that other machines reach.
func CheckNoAuth(addr string) error {
	if !IsLoopbackAddr(addr) {
		return fmt.Errorf("invalid address %q with --insecure-no-auth: must be host:port with a loopback address", addr)
	}
	return nil
}
