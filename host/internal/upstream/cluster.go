package upstream

import (
	"context"
	"encoding/base64"
	"errors"
	"net/http"
	"slices"
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
	// moveTime limits how long a call looks for the next host of its server: the 12 seconds in which a host ends its
	// requests, and the end of the process.
	moveTime = 15 * time.Second
)

// Headers of requests to the host that runs a server. Names and principals are encoded with base64.
const (
	headerServer    = "Patchbay-Server"
	headerLease     = "Patchbay-Lease"     // the token of the lease
	headerInstance  = "Patchbay-Instance"  // the connection of the other host to the server; empty for the present
	headerPrincipal = "Patchbay-Principal" // the caller; absent for requests of the host itself
	headerContinues = "Patchbay-Continues" // present if only the named instance can serve the request
	headerDigest    = "Patchbay-Digest"    // of the configuration; see server.Server.Digest
)

// errNoCluster is the error of a server of a cluster in a host that is alone, which must not start a second instance.
var errNoCluster = hosterr.Public{Err: errors.New("the server runs once for all gateways of a store (\"share\": " +
	"\"cluster\"), and this process is not connected to them: use the server through a gateway over HTTP, whose " +
	"settings must have \"cluster\": {\"listen\": \"HOST:PORT\"} and a \"store\" in Redis from its start")}

// errOtherConfig is the error of requests from hosts whose configuration of the server differs.
var errOtherConfig = hosterr.Public{Err: errors.New("another process runs the server with another entry or other " +
	"settings of the same name: give the server the same configuration in all gateways, and reload them")}

// inCluster reports whether a server runs in one process of all hosts.
func inCluster(u *Server) bool { return u.env.Cluster != nil && u.sharing == config.ShareCluster }

// isElsewhere reports whether the server of a cluster does not run in this host, which then cannot have ended it.
func (s *Conn) isElsewhere() bool { return inCluster(s.in.pool.up) && s.lease == nil }

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
	refused  atomic.Bool            // by the host: the server does not run there any more
}

// locate takes the lease of the server, or finds the host that holds it.
func (s *Conn) locate(ctx context.Context) error {
	u := s.in.pool.up
	if !inCluster(u) {
		return nil
	}
	lease, at, err := u.env.seat(u.name).take(ctx)
	switch {
	case errors.Is(err, cluster.ErrLost):
		return clusterError(u, cluster.ErrLost, 0)
	case err != nil:
		return u.Errorf(hosterr.CodeUnavailable, "the store does not say which process runs the server")
	case at != nil && at.IsSelf():
		return clusterError(u, errOwnAddress, at.Left)
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if at != nil {
		s.peer = &peerConn{Peer: at, conn: s}
		return nil
	}
	if s.counted, err = s.in.countProcess(); err != nil {
		u.env.seat(u.name).leave()
		return err
	}
	s.lease = lease
	return nil
}

var errOwnAddress = errors.New("the server runs in an earlier process at the address of this process; it starts here " +
	"when the lease of that process ends. If this error stays, another process advertises the same address: give " +
	"each its own")

// clusterError returns the error of a request that no process serves now.
func clusterError(u *Server, err error, retry time.Duration) *hosterr.Error {
	e := u.Errorf(hosterr.CodeUnavailable, "%w", err)
	e.RetryAfter = retry
	return e
}

// endConnections ends the connections with a lease, whose server another host may run.
func (s *Servers) endConnections(l *cluster.Lease) {
	for _, u := range s.All() {
		for _, c := range u.conns() {
			if c.at().lease == l {
				c.lost(clusterError(u, cluster.ErrLost, 0))
			}
		}
	}
}

// at returns where the server of the connection runs.
func (s *Conn) at() place {
	s.in.pool.up.mu.Lock()
	defer s.in.pool.up.mu.Unlock()
	return s.place
}

// endLeases ends the leases of servers that do not run, so that the next request at any host starts them.
func (s *Servers) endLeases() {
	all := s.All()
	for _, t := range s.allSeats() {
		keeps := func(u *Server) bool { return u.name == t.name && keepsLease(u) }
		if t.unused() != nil && !slices.ContainsFunc(all, keeps) {
			s.Go(t.end)
		}
	}
}

// keepsLease reports whether the start of a server of a cluster is delayed after a failure: the requests of all hosts
// must get the same error.
func keepsLease(u *Server) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if !inCluster(u) || u.env.left.Load() || u.closed || u.removed || u.stopped {
		return false
	}
	for _, p := range u.pools {
		for _, i := range p.instances {
			switch i.state {
			case status.Backoff, status.CrashLoop, status.Auth, status.Config:
				return i.err == nil || i.err.Code != hosterr.CodeLimited // by the processes of this host
			}
		}
	}
	return false
}

var errLeft = errors.New("this process is shutting down: send the request again, which another process serves")

// leaveCluster ends the servers of the cluster that run in this host, each after its last request. They do not start
// here any more.
func (s *Servers) leaveCluster() {
	s.left.Store(true)
	for _, u := range s.All() {
		u.mu.Lock()
		for c := range u.connections {
			c.leaveLocked()
		}
		u.mu.Unlock()
	}
	s.Wake() // ends leases without a connection
}

// leaveLocked ends a connection with a lease after its last request.
func (s *Conn) leaveLocked() {
	switch {
	case s.peer != nil || !inCluster(s.in.pool.up):
	case !s.IsConnected():
		s.stopLocked()
	default:
		if s.in.current == s {
			s.in.disconnected(s, status.Stopped, nil)
		}
		s.drainLocked()
	}
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

// continuesKey is the key of a context whose request continues a call.
type continuesKey struct{}

// RoundTrip implements [http.RoundTripper].
func (p *peerConn) RoundTrip(r *http.Request) (*http.Response, error) {
	u := p.conn.in.pool.up
	out := r.Clone(r.Context())
	out.Header.Set(headerServer, base64.URLEncoding.EncodeToString([]byte(u.name)))
	out.Header.Set(headerLease, strconv.FormatUint(p.Token, 10))
	out.Header.Set(headerDigest, p.conn.digest())
	if instance := p.instance.Load(); instance != nil {
		out.Header.Set(headerInstance, *instance)
	}
	if principal, ok := r.Context().Value(principalKey{}).(string); ok {
		out.Header.Set(headerPrincipal, base64.URLEncoding.EncodeToString([]byte(principal)))
	}
	if r.Context().Value(continuesKey{}) != nil {
		out.Header.Set(headerContinues, "true")
	}
	res, err := p.Peer.RoundTrip(out)
	switch {
	case err != nil && r.Context().Err() == nil:
		p.conn.moved(err)
	case err == nil && (res.StatusCode == http.StatusMisdirectedRequest ||
		res.StatusCode == http.StatusServiceUnavailable): // the host began to shut down meanwhile
		p.refused.Store(true)
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
	if errors.Is(err, errMoved) && !s.in.pool.isWatched() { // a subscription needs another connection now
		s.in.disconnected(s, status.Stopped, nil)
	} else {
		s.in.failed(s, peerError(u, s.peer, err))
	}
	if errors.Is(err, errMoved) {
		s.drainLocked()
	} else if s.Retire() { // requests in progress may still be answered
		u.event(s, status.Draining, nil)
	}
}

// peerError returns the error of requests whose server runs at a host that does not answer.
func peerError(u *Server, p *peerConn, err error) *hosterr.Error {
	if e, ok := errors.AsType[*hosterr.Error](hosterr.FromPeer(err, u.name)); ok {
		return e
	}
	if p.refused.Load() {
		return clusterError(u, errMoved, 0)
	}
	u.env.Logger.Warn("host: the process that runs the server does not answer", "server", u.name, "url", p.URL(),
		"error", err)
	if errors.Is(err, cluster.ErrOtherKey) {
		return clusterError(u, cluster.ErrOtherKey, p.Left)
	}
	return clusterError(u, errSilent, p.Left)
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
			if s.peer.Holds(s.Context(), u.name) {
				continue
			}
			u.mu.Lock()
			if _, idle := s.IdleSince(time.Now()); idle && !s.in.pool.isWatched() { // nothing is lost
				s.stopLocked()
			}
			u.mu.Unlock()
			s.lost(clusterError(u, errMoved, 0))
			return
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
func (s *Conn) binds() bool { return s.HasSession() || s.in.calls || inCluster(s.in.pool.up) }

// resume returns the connection to the server that another host may have begun. The error says that the host does not
// know the present connection, or that it is another.
func (p *Pool) resume(ctx context.Context, id string) (*Conn, error) {
	c, err := p.Acquire(ctx, AnyClass)
	if err != nil {
		return nil, err
	}
	defer c.Release()
	if c.ServedID() != id || !c.Resume() {
		return nil, p.lostCall()
	}
	return c, nil
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
	return s.whileValid(func() (mcp.Result, error) { return s.exchange(ctx, req, o) })
}

// whileValid sends a request unless another host may run the server, and drops an answer that may be outdated.
func (s *Conn) whileValid(send func() (mcp.Result, error)) (mcp.Result, error) {
	u := s.in.pool.up
	if !s.lease.IsValid() {
		return nil, clusterError(u, cluster.ErrLost, 0)
	}
	res, err := send()
	if !s.lease.IsValid() {
		e := clusterError(u, cluster.ErrLost, 0)
		e.MayHaveRun = true
		return nil, e
	}
	return res, err
}
