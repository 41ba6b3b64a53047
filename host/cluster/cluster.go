// Package cluster connects the hosts that share the servers of config.ShareCluster: each server runs in a single
// process of all hosts, and the other hosts send their requests to the host of that process.
//
//	node, err := cluster.New(l, &cluster.Options{Leases: leases, Key: key})
//
// A [host.Options] with the node makes a host use it. The node must be closed after the host.
//
// A host runs a server while it holds the lease of the server. It renews the lease every 3 seconds. If 18 seconds
// pass without a renewal, the host ends the server within the remaining 12 seconds of the lease, so that two
// processes of a server never serve requests at the same time.
package cluster

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/limitedlog"
	"github.com/patchbay-mcp/patchbay/replica"
)

const (
	// handshakeTimeout limits the TLS handshake with another host, which may be stopped.
	handshakeTimeout = 3 * time.Second
	// dialTimeout limits connecting to another host, which is in the same network.
	dialTimeout = 2 * time.Second
	// idleTimeout is how long an unused connection to another host stays open.
	idleTimeout = 90 * time.Second
	// idleConnections is how many unused connections to another host stay open: a request needs one.
	idleConnections = 64
	// minKey is the size of the smallest key, in bytes.
	minKey = 32
)

// Options configure a [Node].
type Options struct {
	// Leases grants the leases of servers. All hosts must share it.
	Leases replica.LeaseStore
	// Key authenticates the hosts to each other: at least 32 random bytes, which all hosts share. Whoever knows
	// the key can use every server of the cluster as any caller.
	Key []byte
	// Advertise is the address as host:port by which the other hosts reach the listener. Default: the address
	// of the listener.
	Advertise string
	// Dial connects to another host. Default: a [net.Dialer].
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Logger logs failures. Default: slog.Default().
	Logger *slog.Logger
}

// A Node is the part of a host in a cluster. It is safe for concurrent use.
type Node struct {
	leases   replica.LeaseStore
	address  string // by which other hosts reach the listener
	listener net.Listener
	server   *http.Server
	client   *http.Transport
	log      *slog.Logger
	served   chan struct{} // closed when the server ended; nil before Serve
}

// New returns a node that listens for other hosts. It serves them when a host uses the node. The node closes the
// listener.
func New(l net.Listener, o *Options) (*Node, error) {
	address := o.Advertise
	if address == "" {
		address = l.Addr().String()
	}
	if host, port, err := net.SplitHostPort(address); err != nil || host == "" || port == "" {
		return nil, fmt.Errorf("cluster: invalid address %.100q: must be host:port", address)
	}
	if len(o.Key) < minKey {
		return nil, fmt.Errorf("cluster: invalid key of %d bytes: must have at least %d", len(o.Key), minKey)
	}
	config, err := tlsConfig(o.Key)
	if err != nil {
		return nil, fmt.Errorf("cluster: %w", err)
	}
	n := &Node{leases: o.Leases, address: address, log: o.Logger,
		listener: tls.NewListener(l, config)}
	if n.log == nil {
		n.log = slog.Default()
	}
	dial := o.Dial
	if dial == nil {
		dial = (&net.Dialer{Timeout: dialTimeout}).DialContext
	}
	n.client = &http.Transport{DialContext: dial, TLSClientConfig: config, TLSHandshakeTimeout: handshakeTimeout,
		MaxIdleConnsPerHost: idleConnections, IdleConnTimeout: idleTimeout}
	n.server = &http.Server{ReadHeaderTimeout: handshakeTimeout, ErrorLog: log.New(&refusals{limitedlog.Log{
		Logger: n.log, Summary: "cluster: more connections were refused", What: "connections"}}, "", 0)}
	return n, nil
}

// refusals logs what the HTTP server reports, such as connections without the certificate.
type refusals struct{ limitedlog.Log }

func (r *refusals) Write(line []byte) (int, error) {
	if r.Admit() {
		r.Logger.Warn("cluster: a connection was refused", "reason", strings.TrimSpace(string(line)))
	}
	return len(line), nil
}

// Serve begins to serve the requests of other hosts, until the node is closed. The host calls it once.
func (n *Node) Serve(h http.Handler) {
	n.server.Handler, n.served = h, make(chan struct{})
	go func() { // Close waits for it
		defer close(n.served)
		if err := n.server.Serve(n.listener); !errors.Is(err, http.ErrServerClosed) {
			n.log.Error("cluster: other hosts are not served any more", "error", err)
		}
	}()
}

// Close closes the listener and the connections. The host must be closed before.
func (n *Node) Close() error {
	err := n.server.Close()
	_ = n.listener.Close() // which the server closes only while it serves
	n.client.CloseIdleConnections()
	if n.served != nil {
		<-n.served
	}
	return err
}
