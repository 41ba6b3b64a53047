package upstream

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/patchbay-mcp/patchbay/host/cluster"
	"github.com/patchbay-mcp/patchbay/host/config"
	"github.com/patchbay-mcp/patchbay/host/hosterr"
	"github.com/patchbay-mcp/patchbay/host/internal/connection"
	"github.com/patchbay-mcp/patchbay/host/internal/round"
	"github.com/patchbay-mcp/patchbay/host/status"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcp/driver"
	"github.com/patchbay-mcp/patchbay/mcphttp"
)

const (
	// maxPeerMessage limits a message between hosts, in bytes: the 32 MiB of a message on stdio, and the members
	// that a host adds.
	maxPeerMessage = 33 << 20
	// peerInterval is how often a host checks that the other host still runs the server.
	peerInterval = 3 * time.Second
	// peerPatience is how much longer than the settings permit a host waits for another host, whose error says
	// more than a timeout.
	peerPatience = 5 * time.Second
)

// Headers of requests to the host that runs a server. Names and principals are encoded with base64.
const (
	headerServer    = "Patchbay-Server"
	headerLease     = "Patchbay-Lease"     // the token of the lease
	headerInstance  = "Patchbay-Instance"  // the connection of the other host to the server; empty for the present
	headerPrincipal = "Patchbay-Principal" // the caller; absent for requests of the host itself
)

// inCluster reports whether the server runs in one process of all hosts.
func (u *Server) inCluster() bool { return u.env.Cluster != nil && u.sharing == config.ShareCluster }

// isElsewhere reports whether the server of a cluster does not run in this host, which then cannot have ended it.
func (s *Conn) isElsewhere() bool { return s.in.pool.up.inCluster() && s.lease == nil }

// A place says where the server of a connection runs: in this host with a lease, at a peer, or neither for a
// server outside a cluster. It is set before the connection is used.
type place struct {
	lease *cluster.Lease
	peer  *peerConn
}

// A peerConn is the connection to the host that runs a server. It sends the requests of the connection.
type peerConn struct {
	*cluster.Peer
	conn     *Conn
	instance atomic.Pointer[string] // the ID of the connection of the other host to the server
}

// locate takes the lease of the server, or finds the host that holds it.
func (s *Conn) locate(ctx context.Context) error {
	u := s.in.pool.up
	if !u.inCluster() {
		return nil
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.lease != nil && u.lease.IsValid() {
		s.lease = u.lease
		return nil
	}
	if u.lease != nil {
		return u.clusterError(cluster.ErrLost, 0)
	}
	u.claim = cmp.Or(u.claim, rand.Text())
	claim := u.claim
	u.mu.Unlock()
	lease, at, err := u.env.Cluster.Take(ctx, u.name, claim)
	u.mu.Lock()
	switch {
	case err != nil:
		return u.Errorf(hosterr.CodeUnavailable, "the store does not say which process runs the server")
	case at != nil:
		s.peer = &peerConn{Peer: at, conn: s}
		return nil
	}
	if u.lease == nil {
		u.lease = lease
		u.env.Go(func() {
			if lease.Keep(u.env.Context) != nil {
				u.leaseLost(lease)
			}
		})
	}
	s.lease = u.lease
	return nil
}

// clusterError returns the error of a request that no process serves now.
func (u *Server) clusterError(err error, retry time.Duration) *hosterr.Error {
	e := u.Errorf(hosterr.CodeUnavailable, "%w", err)
	e.RetryAfter = retry
	return e
}

// leaseLost ends the server, which another host may run.
func (u *Server) leaseLost(l *cluster.Lease) {
	u.mu.Lock()
	if u.lease == l {
		u.lease, u.claim = nil, ""
	}
	u.mu.Unlock()
	for _, s := range u.conns() {
		if s.at().lease == l {
			s.lost(u.clusterError(cluster.ErrLost, 0))
		}
	}
}

// at returns where the server of the connection runs.
func (s *Conn) at() place {
	s.in.pool.up.mu.Lock()
	defer s.in.pool.up.mu.Unlock()
	return s.place
}

// releaseLocked ends the lease of a server that does not run, so that the next request at any host starts it. While a
// start is delayed after a failure, the host keeps the lease: the requests of all hosts must get the same error.
func (u *Server) releaseLocked() {
	if u.lease == nil {
		return
	}
	for s := range u.connections {
		if s.peer == nil {
			return
		}
	}
	ended := u.closed || u.removed || u.stopped
	for _, p := range u.pools {
		for _, i := range p.instances {
			switch i.state {
			case status.Backoff, status.CrashLoop, status.Auth, status.Config:
				if !ended {
					return
				}
			}
		}
	}
	lease := u.lease
	u.lease, u.claim = nil, ""
	u.env.Go(lease.Release)
}

// peerOptions changes the options of a client for another host.
func (s *Conn) peerOptions(setup *connection.Setup) {
	if s.peer == nil {
		return
	}
	patience := peerPatience + time.Duration(s.in.pool.up.entry().Settings.QueueTimeout)
	o := setup.Client
	if o.Timeout > 0 {
		o.Timeout += patience
	}
	if o.MaxTimeout > 0 {
		o.MaxTimeout += patience
	}
	setup.Era, setup.Limits = config.EraModern, config.Limits{}
}

// dial returns the transport to the server, or to the host that runs the server.
func (s *Conn) dial(ctx context.Context, server *config.Server) (mcp.Transport, error) {
	if s.peer == nil {
		return s.in.pool.up.env.Dial(ctx, server)
	}
	return mcphttp.NewTransport(s.peer.URL(), &mcphttp.TransportOptions{Client: &http.Client{Transport: s.peer},
		MaxResponse: maxPeerMessage, MaxEvent: maxPeerMessage, Logger: s.in.pool.up.env.Logger}), nil
}

// principalKey is the key of a context with the principal on whose behalf a request is sent to a peer.
type principalKey struct{}

// RoundTrip implements [http.RoundTripper].
func (p *peerConn) RoundTrip(r *http.Request) (*http.Response, error) {
	u := p.conn.in.pool.up
	out := r.Clone(r.Context())
	out.Header.Set(headerServer, base64.URLEncoding.EncodeToString([]byte(u.name)))
	out.Header.Set(headerLease, strconv.FormatUint(p.Token, 10))
	if instance := p.instance.Load(); instance != nil {
		out.Header.Set(headerInstance, *instance)
	}
	if principal, ok := r.Context().Value(principalKey{}).(string); ok {
		out.Header.Set(headerPrincipal, base64.URLEncoding.EncodeToString([]byte(principal)))
	}
	res, err := p.Peer.RoundTrip(out)
	switch {
	case err != nil && r.Context().Err() == nil:
		p.conn.moved(err)
	case err == nil && res.StatusCode == http.StatusMisdirectedRequest:
		p.conn.moved(errMoved)
	case err == nil && p.instance.Load() == nil && res.Header.Get(headerInstance) != "":
		instance := res.Header.Get(headerInstance)
		p.instance.CompareAndSwap(nil, &instance)
	}
	return res, err
}

// isUnsentByPeer reports whether a request did not reach the server because its host ended it or cannot be reached.
func isUnsentByPeer(err error) bool {
	failed, ok := errors.AsType[*mcp.TransportError](err)
	return ok && !failed.MayHaveRun
}

// errMoved reports that a host no longer runs the server, or started it again.
var errMoved = errors.New("the process that ran the server ended it; the next request starts it")

// moved makes the next request look for the server again. Requests in progress continue.
func (s *Conn) moved(err error) {
	u := s.in.pool.up
	u.mu.Lock()
	defer u.mu.Unlock()
	if s.in.current != s || !s.IsConnected() { // connected records the failure of an attempt
		return
	}
	s.in.failed(s, u.peerError(s.peer, err))
	s.drainLocked()
}

// peerError returns the error of requests whose server runs at a host that does not answer.
func (u *Server) peerError(p *peerConn, err error) *hosterr.Error {
	if e, ok := errors.AsType[*hosterr.Error](hosterr.FromPeer(err, u.name)); ok {
		return e
	}
	u.env.Logger.Warn("host: the process that runs the server does not answer", "server", u.name, "url", p.URL(),
		"error", err)
	switch {
	case errors.Is(err, errMoved):
		return u.clusterError(errMoved, 0)
	case errors.Is(err, cluster.ErrOtherKey):
		return u.clusterError(cluster.ErrOtherKey, p.Left)
	}
	return u.clusterError(errSilent, p.Left)
}

var errSilent = errors.New("the process that runs the server does not answer; unless it returns, another process " +
	"starts the server when the lease ends")

// followPeer ends a connection when the other host lost the lease: its server may not answer any more.
func (s *Conn) followPeer() {
	u := s.in.pool.up
	ticker := time.NewTicker(peerInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			if !s.peer.Holds(s.Context(), u.name) {
				s.lost(u.clusterError(errMoved, 0))
				return
			}
		case <-s.Context().Done():
			return
		}
	}
}

// ServedID returns the identity of the connection to the server itself, which is the same at all hosts.
func (s *Conn) ServedID() string {
	if s.peer != nil {
		if instance := s.peer.instance.Load(); instance != nil {
			return *instance
		}
	}
	return s.ID()
}

// binds reports whether only the same connection can continue a call.
func (s *Conn) binds() bool { return s.HasSession() || s.in.calls || s.in.pool.up.inCluster() }

// resume returns a connection to the server that another host may have begun.
func (p *Pool) resume(ctx context.Context, id string) *Conn {
	c, err := p.Acquire(ctx, AnyClass)
	if err != nil {
		return nil
	}
	defer c.Release()
	if c.ServedID() != id || !c.Resume() {
		return nil
	}
	return c
}

// serve sends a request to the server of a cluster, in its turn if the server runs here.
func (s *Conn) serve(ctx context.Context, req *mcp.Request, o *driver.ForwardOptions) (mcp.Result, error) {
	u := s.in.pool.up
	if s.peer != nil {
		res, err := s.exchange(context.WithValue(ctx, principalKey{}, o.Principal), req, o)
		return res, hosterr.FromPeer(err, u.name)
	}
	if o.Principal != "" {
		if round.Continues(req) {
			u.requests.Force(o.Principal)
		} else if err := u.requests.Enter(ctx, o.Principal); err != nil {
			return nil, err
		}
		defer u.requests.Leave(o.Principal)
	}
	if !s.lease.IsValid() {
		return nil, u.clusterError(cluster.ErrLost, 0)
	}
	res, err := s.exchange(ctx, req, o)
	if !s.lease.IsValid() { // another host may run the server, so this answer may be outdated
		e := u.clusterError(cluster.ErrLost, 0)
		e.MayHaveRun = true
		return nil, e
	}
	return res, err
}
