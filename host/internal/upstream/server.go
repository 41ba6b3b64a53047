package upstream

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/patchbay-mcp/patchbay/host/config"
	"github.com/patchbay-mcp/patchbay/host/event"
	"github.com/patchbay-mcp/patchbay/host/hosterr"
	"github.com/patchbay-mcp/patchbay/host/internal/catalogue"
	"github.com/patchbay-mcp/patchbay/host/internal/connection"
	"github.com/patchbay-mcp/patchbay/host/internal/limits"
	"github.com/patchbay-mcp/patchbay/host/internal/listing"
	"github.com/patchbay-mcp/patchbay/host/internal/login"
	"github.com/patchbay-mcp/patchbay/host/internal/server"
	"github.com/patchbay-mcp/patchbay/host/pin"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// A Server is a configured server. It is safe for concurrent use.
type Server struct {
	servers *Servers
	name    string
	command bool         // see isCommand
	sharing config.Share // see share
	current atomic.Pointer[entry]
	schemas catalogue.Schemas
	lists   *listing.Memory // of all pools, connections and views
	// requests has those of all callers, unless each has processes of its own: see [Pool.queue].
	requests *limits.Queue
	limits   *limits.Server
	counts   upstreamCounts
	stderr   connection.Stderr

	logins     *login.Server
	usesCaller atomic.Bool // a connection was made with CallerFrom

	secrets atomic.Pointer[[]string] // of the expanded entries; see keepSecrets

	mu          sync.Mutex            // guards the fields below, instances and connections
	pools       map[string]*Pool      // by poolKey
	connections map[*Conn]struct{}    // that have not ended
	modern      bool                  // the last connection had no session
	delay       connection.StartDelay // of the starts of all callers
	delayed     *hosterr.Error        // why the last of these starts has failed
	stopped     bool                  // by Stop
	closed      bool
	removed     bool               // from the configuration
	wanted      server.Fingerprint // of connections; zero before the first reload
}

func newServer(s *Servers, name string, e *entry) *Server {
	u := &Server{servers: s, name: name, command: e.IsCommand(), sharing: e.Share(),
		pools: map[string]*Pool{}, connections: map[*Conn]struct{}{}}
	u.lists = listing.NewMemory(name, s.Logger, func() { u.dropLists(0) })
	u.current.Store(e)
	u.logins = u.newLogins()
	u.limits = s.Limits.NewServer(name, e.Settings)
	u.requests = u.limits.NewQueue(true)
	return u
}

// entry returns what the configuration says about the server now.
func (u *Server) entry() *entry { return u.current.Load() }

// Name returns the name of the server in the configuration.
func (u *Server) Name() string { return u.name }

// Stderr returns the last lines that processes of the server have written to their standard error.
func (u *Server) Stderr() []connection.Line {
	lines := u.stderr.Lines()
	for n := range lines {
		lines[n].Text = u.Mask(lines[n].Text)
	}
	return lines
}

// Connect connects the local user to the server and ends the effect of Stop.
func (u *Server) Connect(ctx context.Context) error {
	u.resume()
	s, err := u.Pool(&policy.Caller{}).Acquire(ctx, AnyClass)
	if err == nil {
		s.Release()
	}
	return err
}

// Restart connects to the server again, for every caller that it has an instance for, and waits
// until the new instances are ready. Only then do they replace the others, which end with their last
// request: after 30 seconds at the latest, but not before their suspended requests. An instance that
// cannot be replaced stays in use; the error joins the reasons. Restart also ends a delay after
// failures and the effect of [Upstream.Stop]. ctx bounds the waiting only.
func (u *Server) Restart(ctx context.Context) error {
	u.recordAdmin("restart")
	started, err := u.restart()
	errs := []error{err}
	for _, s := range started {
		if err := s.Wait(ctx); err != nil {
			return err
		}
		if err := s.Err(); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func (u *Server) restart() (started []*Conn, err error) {
	local := u.Pool(&policy.Caller{})
	u.mu.Lock()
	defer u.mu.Unlock()
	u.stopped = false
	u.endDelayLocked()
	var again []*instance
	for _, p := range u.pools {
		for _, i := range p.instances {
			if !i.calls && (i.current != nil || i.state != connection.StateOff && i.state != connection.StateStopped) {
				again = append(again, i)
			}
			i.backoff = connection.Backoff{}
			i.wake()
		}
	}
	if len(again) == 0 {
		again = append(again, local.instance(AnyClass, false))
	}
	var errs []error
	for _, i := range again {
		s, err := i.restart()
		if err != nil {
			errs = append(errs, err)
			continue
		}
		started = append(started, s)
	}
	return started, errors.Join(errs...)
}

// Stop ends all instances and the requests that they serve. Until [Upstream.Restart] or [Host.Start],
// requests for the server fail. Stop returns when the processes have ended, within 11 seconds.
func (u *Server) Stop() {
	u.recordAdmin("stop")
	u.stop(func() { u.stopped = true })
}

// Close is like Stop, and final.
func (u *Server) Close() {
	u.stop(func() {
		u.closed = true
		for _, p := range u.pools {
			p.lists.Close()
		}
	})
}

// resume ends the effect of Stop.
func (u *Server) resume() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.stopped = false
}

func (u *Server) stop(mark func()) {
	u.mu.Lock()
	mark()
	var ended []<-chan struct{}
	for s := range u.connections {
		s.stopLocked()
		ended = append(ended, s.Ended())
	}
	u.mu.Unlock()
	for _, e := range ended {
		<-e
	}
}

// ErrStoppedByUser reports that the operator has stopped the server.
var ErrStoppedByUser = errors.New("the server was stopped; restart it to use it again")

// refuses returns why no connection can be made, or nil. The lock is held.
func (u *Server) refuses() error {
	switch {
	case u.closed || u.servers.Context.Err() != nil:
		return &hosterr.Error{Code: hosterr.CodeUnavailable, Server: u.name, Err: mcp.ErrClosed}
	case u.removed:
		return &hosterr.Error{Code: hosterr.CodeUnavailable, Server: u.name, Err: ErrRemoved}
	case u.stopped:
		return &hosterr.Error{Code: hosterr.CodeUnavailable, Server: u.name, Err: ErrStoppedByUser}
	}
	return nil
}

// isCommand reports whether the server is a command, so that each connection is a process.
func (u *Server) isCommand() bool { return u.command }

// Share returns the sharing mode. An instance serves one caller unless the configuration says
// otherwise.
func (u *Server) Share() config.Share { return u.sharing }

// usesWorkspace reports whether an instance depends on [Caller.Workspace].
func (u *Server) usesWorkspace() bool {
	server := u.entry().Config
	return u.command && u.Share() != config.ShareShared && server != nil && !server.Project
}

// poolKey returns the key of the pool that serves a caller.
func (u *Server) poolKey(c *policy.Caller) string {
	switch u.Share() {
	case config.ShareShared:
		return ""
	case config.ShareSession:
		return server.JoinKey(c.Key(), c.Session)
	}
	if c.Workspace != "" && u.usesWorkspace() {
		return server.JoinKey(c.Key(), "workspace", c.Workspace)
	}
	return server.JoinKey(c.Key())
}

// Pool returns the pool of a caller.
func (u *Server) Pool(c *policy.Caller) *Pool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.poolOf(c)
}

func (u *Server) poolOf(c *policy.Caller) *Pool {
	key := u.poolKey(c)
	p := u.pools[key]
	if p == nil {
		if len(u.pools) >= maxPools {
			u.evictPool()
		}
		p = newPool(u, c)
		p.key, p.used = key, time.Now()
		u.pools[key] = p
	}
	return p
}

// present returns the pool in place of one that was removed because it was not used. The lock is
// held.
func (u *Server) present(p *Pool) *Pool {
	q := u.pools[p.key]
	if q == nil {
		q = u.poolOf(p.caller)
		q.requests = p.requests // views have the other pool
	}
	q.used = time.Now()
	return q
}

func (u *Server) errorf(code hosterr.Code, format string, args ...any) *hosterr.Error {
	return &hosterr.Error{Code: code, Server: u.name, Err: hosterr.Public{Err: fmt.Errorf(format, args...)}}
}

// event reports a change of an instance.
func (u *Server) event(s *Conn, state connection.State, err *hosterr.Error) {
	c := &Change{Server: u.name, Conn: s.ID(), State: state}
	if err != nil {
		c.Err = err
	}
	if state == connection.StateAuth {
		u.servers.Record(event.Login, s.in.Pool.caller, u.name, map[string]string{"outcome": "required"})
	}
	u.servers.Notify(c)
}

// conns returns the connections that have not ended.
func (u *Server) conns() []*Conn {
	u.mu.Lock()
	defer u.mu.Unlock()
	return slices.Collect(maps.Keys(u.connections))
}

// AllPools returns the pools of all callers.
func (u *Server) AllPools() []*Pool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return slices.Collect(maps.Values(u.pools))
}

// PoolOfConnection returns the pool of the connection with an ID, nil if the connection has ended.
func (u *Server) PoolOfConnection(id string) *Pool {
	for _, s := range u.conns() {
		if s.ID() == id {
			return s.in.Pool
		}
	}
	return nil
}

// recordAdmin records an action of the operator on a server.
func (u *Server) recordAdmin(action string) {
	u.servers.Record(event.Admin, nil, u.name, map[string]string{"action": action})
}

// Connected returns the pools that have connections.
func (u *Server) Connected() map[*Pool]struct{} {
	pools := map[*Pool]struct{}{}
	for _, s := range u.conns() {
		pools[s.in.Pool] = struct{}{}
	}
	return pools
}

// Entry returns the configuration of the server.
func (u *Server) Entry() *server.Server { return u.entry().Server }

// Logins returns the credentials for the server.
func (u *Server) Logins() *login.Server { return u.logins }

// EndDelays lets delayed starts begin at once, except in a crash loop.
func (u *Server) EndDelays() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.delay.Until = time.Time{}
	for _, p := range u.pools {
		for _, i := range p.instances {
			if i.state != connection.StateCrashLoop {
				i.backoff.Until = time.Time{}
			}
		}
	}
}

// ListBytes returns the size of the lists of all callers.
func (u *Server) ListBytes() int { return u.lists.Bytes() }

// Inspect connects the local user to the server, and records and returns its definitions. ok is false if
// the definitions of the server are not compared with approved definitions.
func (u *Server) Inspect(ctx context.Context) (found []*pin.Pin, ok bool, err error) {
	u.resume()
	s, err := u.Pool(&policy.Caller{}).Acquire(ctx, AnyClass)
	if err != nil {
		return nil, false, err
	}
	defer s.Release()
	if s.pins == nil {
		return nil, false, nil
	}
	found, err = s.reviewer().Inspect(ctx)
	return found, true, err
}
