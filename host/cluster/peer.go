package cluster

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"time"
)

func leaseName(server string) string { return "server " + server }

// A Peer is another host that runs a server.
type Peer struct {
	// Token is the token of the lease of the host.
	Token uint64
	// Left is the time until the lease ends, unless the host renews it.
	Left    time.Duration
	address string
	node    *Node
}

// URL returns the URL at which the host serves the requests of other hosts.
func (p *Peer) URL() string { return "https://" + p.address + "/" }

// IsSelf reports whether the address is that of the node itself: an earlier process had it, or two processes advertise
// the same.
func (p *Peer) IsSelf() bool { return p.address == p.node.address }

// RoundTrip sends an HTTP request to the host. The connection fails unless the host has the same key.
func (p *Peer) RoundTrip(r *http.Request) (*http.Response, error) {
	res, err := p.node.client.RoundTrip(r)
	if _, other := errors.AsType[*tls.CertificateVerificationError](err); other {
		err = fmt.Errorf("%w: %w", ErrOtherKey, err)
	}
	return res, err
}

// Holds reports whether the host still holds its lease of a server. An error of the store is no change.
func (p *Peer) Holds(ctx context.Context, server string) bool {
	h, err := p.node.leases.Find(ctx, leaseName(server))
	return err != nil || h.Token == p.Token
}

// Errors of leases and of other hosts.
var (
	// ErrLost reports that a host lost the lease of a server.
	ErrLost = errors.New("the lease of the server ended: another process may run the server")
	// ErrOtherKey reports that a program at the address of a host does not have the key of the cluster.
	ErrOtherKey = errors.New("the program at the address of the process that runs the server has another key")
)
