package observe

import "net"

// Authority returns the host and port of an address for clients on this machine.
func Authority(addr net.Addr) string {
	tcp, ok := addr.(*net.TCPAddr)
	if !ok || !tcp.IP.IsUnspecified() {
		return addr.String()
	}
	_, port, _ := net.SplitHostPort(addr.String())
	return net.JoinHostPort("127.0.0.1", port)
}

// WithLoopbackHost adds a loopback host to an address without one: the demo is not for the network.
func WithLoopbackHost(addr string) string {
	if host, port, err := net.SplitHostPort(addr); err == nil && host == "" {
		return net.JoinHostPort("127.0.0.1", port)
	}
	return addr
}
