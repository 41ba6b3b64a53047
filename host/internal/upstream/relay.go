package upstream

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/patchbay-mcp/patchbay/host/hosterr"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcp/driver"
	"github.com/patchbay-mcp/patchbay/mcphttp"
)

// maxRelayed limits the requests and subscriptions of other hosts: their callers are limited there.
const maxRelayed = 100_000

// A Relay serves the requests of other hosts for the servers that run in this host.
type Relay struct {
	servers *Servers
	handler *mcphttp.Handler
	public  func(err error) (text string, ok bool)
}

// A relayed is a request of another host.
type relayed struct {
	conn      *Conn
	principal string // empty for requests of the host itself
	err       error  // without a connection
}

type relayedKey struct{}

// Relay returns the handler of requests of other hosts. public returns the reason of a failure that callers may see.
func (s *Servers) Relay(public func(err error) (text string, ok bool)) *Relay {
	r := &Relay{servers: s, public: public}
	r.handler = mcphttp.NewHandler(mcp.HandlerFunc(r.serve), &mcphttp.Options{MaxBody: maxPeerMessage,
		InsecureAnyHost: true, // only other hosts of the cluster can connect
		MaxInFlight:     maxRelayed, MaxInFlightPerPrincipal: maxRelayed,
		MaxListens: maxRelayed, MaxListensPerPrincipal: maxRelayed, Logger: s.Logger})
	return r
}

// Shutdown refuses new requests with the status 421, so that the other hosts look for the server again. It waits until
// the requests in progress have ended, and cancels them shortly before the deadline of ctx. Each server ends after its
// last request, and then another host can start it.
func (r *Relay) Shutdown(ctx context.Context) error {
	r.servers.leaveCluster()
	return r.handler.Shutdown(ctx)
}

// ServeHTTP serves a request with the connection that it names, or begins a connection. If the server does not run here
// any more, the status is 421.
func (r *Relay) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	name, err1 := base64.URLEncoding.DecodeString(req.Header.Get(headerServer))
	principal, err2 := base64.URLEncoding.DecodeString(req.Header.Get(headerPrincipal))
	token, err3 := strconv.ParseUint(req.Header.Get(headerLease), 10, 64)
	if err := errors.Join(err1, err2, err3); err != nil {
		http.Error(w, "invalid headers", http.StatusBadRequest)
		return
	}
	c := &relayed{principal: string(principal)}
	release := func() {}
	digest := req.Header.Get(headerDigest)
	if !r.servers.left.Load() && r.servers.seat(string(name)).holds(token) {
		if id := req.Header.Get(headerInstance); id != "" {
			c.conn, release = r.connection(string(name), id, req.Header.Get(headerContinues) != "")
		} else {
			c.conn, release, c.err = r.connect(req.Context(), string(name), digest)
		}
	}
	defer release()
	if c.conn != nil && c.conn.digest() != digest {
		c.err = c.conn.in.pool.up.Errorf(hosterr.CodeConfigError, "%w", errOtherConfig)
	}
	if c.conn == nil && c.err == nil {
		http.Error(w, "the server does not run here", http.StatusMisdirectedRequest)
		return
	}
	if c.conn != nil {
		w.Header().Set(headerInstance, c.conn.ID())
	}
	ctx := mcp.WithPrincipal(req.Context(), &mcp.Principal{Subject: "host " + c.principal})
	r.handler.ServeHTTP(w, req.WithContext(context.WithValue(ctx, relayedKey{}, c)))
}

// connection returns the connection with an ID to a server, or nil. A request that does not continue a call must use
// the present connection.
func (r *Relay) connection(server, id string, continues bool) (c *Conn, release func()) {
	for _, u := range r.servers.All() {
		if u.name != server {
			continue
		}
		for _, s := range u.conns() {
			switch at := s.at(); {
			case s.ID() != id || at.lease == nil:
			case continues && s.Resume():
				return s, s.ReleaseResumed
			case !continues && s.useCurrent():
				return s, s.Release
			}
		}
	}
	return nil, func() {}
}

// useCurrent adds a request if the connection is the present connection of its instance.
func (s *Conn) useCurrent() bool {
	s.in.pool.up.mu.Lock()
	defer s.in.pool.up.mu.Unlock()
	if s.in.current != s || !s.IsConnected() {
		return false
	}
	s.Use()
	return true
}

// connect returns the present connection to a server, or begins a connection. It returns no connection and no error if
// the server runs at another host.
func (r *Relay) connect(ctx context.Context, server, digest string) (c *Conn, release func(), err error) {
	release = func() {}
	u := r.servers.Current().Named(server)
	switch {
	case u == nil || !inCluster(u):
		return nil, release, nil
	case u.entry().Digest() != digest:
		return nil, release, u.Errorf(hosterr.CodeConfigError, "%w", errOtherConfig)
	}
	p := u.Pool(&policy.Caller{}) // of all callers
	if c, err = p.AcquireCall(ctx, AnyClass, ""); err != nil {
		return nil, release, p.up.RequestError(ctx, err)
	}
	if c.peer != nil {
		c.Release()
		return nil, release, nil
	}
	return c, c.Release, nil
}

// serve forwards a request to the server.
func (r *Relay) serve(ctx context.Context, req *mcp.Request) (res mcp.Result, err error) {
	c, ok := ctx.Value(relayedKey{}).(*relayed)
	switch {
	case !ok:
		return nil, mcp.Errorf(mcp.CodeInternalError, "no connection")
	case c.err != nil:
		return nil, r.error(c.err)
	case req.Method == "server/discover" || req.Method == "subscriptions/listen":
		res, err = c.conn.whileValid(func() (mcp.Result, error) { return c.conn.Forwarder().ServeMCP(ctx, req) })
	case c.principal == "":
		res, err = c.conn.whileValid(func() (mcp.Result, error) { return c.conn.relayOwn(ctx, req) })
	default:
		if err = c.conn.checkBreaker(); err != nil {
			break
		}
		res, err = c.conn.send(ctx, req, &driver.ForwardOptions{Principal: c.principal, Caller: c.principal})
	}
	if err != nil {
		return nil, r.error(c.conn.in.pool.up.RequestError(ctx, err))
	}
	return res, nil
}

// relayOwn sends a request of another host itself, such as for a list. It belongs to no principal, so that it does not
// take the questions of a session from the only principal.
func (s *Conn) relayOwn(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
	params := json.RawMessage(jsonscan.Without(req.Params, "_meta"))
	raw, err := s.Client().Do(mcp.WithCallOptions(ctx, mcp.CallOptions{NoCache: true}), req.Method, params)
	return mcp.RawResult(raw), err
}

// checkBreaker returns the error of requests while the server does not respond.
func (s *Conn) checkBreaker() error {
	s.in.pool.up.mu.Lock()
	defer s.in.pool.up.mu.Unlock()
	return s.in.breaker.Check(time.Now())
}

// error returns an error for another host.
func (r *Relay) error(err error) error {
	public := ""
	if e, ok := errors.AsType[*hosterr.Error](err); ok {
		public, _ = r.public(e.Err)
	}
	return hosterr.ForPeer(err, public)
}
