package host

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
	"github.com/patchbay-mcp/patchbay/host/internal/connection"
	"github.com/patchbay-mcp/patchbay/host/internal/limits"
	"github.com/patchbay-mcp/patchbay/host/internal/listing"
	"github.com/patchbay-mcp/patchbay/host/internal/login"
	"github.com/patchbay-mcp/patchbay/host/internal/server"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// An Upstream is a configured server. It is safe for concurrent use.
type Upstream struct {
	host    *Host
	name    string
	command bool         // see isCommand
	sharing config.Share // see share
	current atomic.Pointer[entry]
	schemas toolSchemas
	lists   *listing.Memory // of all pools, connections and views
	// requests has those of all callers, unless each has processes of its own: see [pool.queue].
	requests *limits.Queue
	limits   *limits.Server
	counts   upstreamCounts
	stderr   connection.Stderr

	logins     *login.Server
	usesCaller atomic.Bool // a connection was made with CallerFrom

	secretsMu sync.Mutex // guards secrets
	secrets   []string   // of the expanded entry

	mu          sync.Mutex            // guards the fields below, instances and connections
	pools       map[string]*pool      // by poolKey
	connections map[*conn]struct{}    // that have not ended
	modern      bool                  // the last connection had no session
	delay       connection.StartDelay // of the starts of all callers
	delayed     *hosterr.Error        // why the last of these starts has failed
	stopped     bool                  // by Stop
	closed      bool
	removed     bool               // from the configuration
	wanted      server.Fingerprint // of connections; zero before the first reload
}

func newUpstream(h *Host, name string, e *entry) *Upstream {
	u := &Upstream{host: h, name: name, command: e.IsCommand(), sharing: e.Share(),
		pools: map[string]*pool{}, connections: map[*conn]struct{}{}}
	u.lists = listing.NewMemory(name, h.opts.Logger, func() { u.dropLists(0) })
	u.current.Store(e)
	u.logins = u.newLogins()
	u.limits = h.limits.NewServer(name, e.Settings)
	u.requests = u.limits.NewQueue(true)
	return u
}

// entry returns what the configuration says about the server now.
func (u *Upstream) entry() *entry { return u.current.Load() }

// Name returns the name of the server in the configuration.
func (u *Upstream) Name() string { return u.name }

// A StderrLine is a line that a process of a server has written to its standard error.
type StderrLine struct {
	// Number is the number of the line among all of the server, from 1.
	Number uint64
	Time   time.Time
	// Instance is the id of the instance that has written it; see [InstanceStatus].
	Instance string
	// Text is the line, with control and other invisible characters in the form of Go strings, such
	// as \x1b: it comes from the server and must not be trusted. Lines of more than 16 KiB are cut.
	Text string
}

// Stderr returns the last lines that processes of the server have written to their standard error,
// the oldest first: at most 256 KiB. They have "[secret]" in place of secrets of the configuration.
func (u *Upstream) Stderr() []StderrLine {
	var lines []StderrLine
	for _, l := range u.stderr.Lines() {
		lines = append(lines, StderrLine{Number: l.Number, Time: l.Time, Instance: l.ConnID, Text: u.mask(l.Text)})
	}
	return lines
}

// Restart connects to the server again, for every caller that it has an instance for, and waits
// until the new instances are ready. Only then do they replace the others, which end with their last
// request: after 30 seconds at the latest, but not before their suspended requests. An instance that
// cannot be replaced stays in use; the error joins the reasons. Restart also ends a delay after
// failures and the effect of [Upstream.Stop]. ctx bounds the waiting only.
func (u *Upstream) Restart(ctx context.Context) error {
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

func (u *Upstream) restart() (started []*conn, err error) {
	local := u.pool(&policy.Caller{})
	u.mu.Lock()
	defer u.mu.Unlock()
	u.stopped = false
	u.endDelayLocked()
	var again []*instance
	for _, p := range u.pools {
		for _, i := range p.instances {
			if !i.calls && (i.current != nil || i.state != StateOff && i.state != StateStopped) {
				again = append(again, i)
			}
			i.backoff = connection.Backoff{}
			i.wake()
		}
	}
	if len(again) == 0 {
		again = append(again, local.instance(anyClass, false))
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
func (u *Upstream) Stop() {
	u.recordAdmin("stop")
	u.stop(func() { u.stopped = true })
}

// close is like Stop, and final.
func (u *Upstream) close() {
	u.stop(func() {
		u.closed = true
		for _, p := range u.pools {
			p.lists.Close()
		}
	})
}

// resume ends the effect of Stop.
func (u *Upstream) resume() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.stopped = false
}

func (u *Upstream) stop(mark func()) {
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

var errStoppedByUser = errors.New("the server was stopped; restart it to use it again")

// refuses returns why no connection can be made, or nil. The lock is held.
func (u *Upstream) refuses() error {
	switch {
	case u.closed || u.host.ctx.Err() != nil:
		return &hosterr.Error{Code: hosterr.CodeUnavailable, Server: u.name, Err: mcp.ErrClosed}
	case u.removed:
		return &hosterr.Error{Code: hosterr.CodeUnavailable, Server: u.name, Err: errRemoved}
	case u.stopped:
		return &hosterr.Error{Code: hosterr.CodeUnavailable, Server: u.name, Err: errStoppedByUser}
	}
	return nil
}

// isCommand reports whether the server is a command, so that each connection is a process.
func (u *Upstream) isCommand() bool { return u.command }

// share returns the sharing mode. An instance serves one caller unless the configuration says
// otherwise.
func (u *Upstream) share() config.Share { return u.sharing }

// usesWorkspace reports whether an instance depends on [Caller.Workspace].
func (u *Upstream) usesWorkspace() bool {
	server := u.entry().Config
	return u.command && u.share() != config.ShareShared && server != nil && !server.Project
}

// poolKey returns the key of the pool that serves a caller.
func (u *Upstream) poolKey(c *policy.Caller) string {
	switch u.share() {
	case config.ShareShared:
		return ""
	case config.ShareSession:
		return joinKey(c.Key(), c.Session)
	}
	if c.Workspace != "" && u.usesWorkspace() {
		return joinKey(c.Key(), "workspace", c.Workspace)
	}
	return joinKey(c.Key())
}

// pool returns the pool of a caller.
func (u *Upstream) pool(c *policy.Caller) *pool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.poolOf(c)
}

func (u *Upstream) poolOf(c *policy.Caller) *pool {
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
func (u *Upstream) present(p *pool) *pool {
	q := u.pools[p.key]
	if q == nil {
		q = u.poolOf(p.caller)
		q.requests = p.requests // views have the other pool
	}
	q.used = time.Now()
	return q
}

func (u *Upstream) errorf(code hosterr.Code, format string, args ...any) *hosterr.Error {
	return &hosterr.Error{Code: code, Server: u.name, Err: hosterr.Public{Err: fmt.Errorf(format, args...)}}
}

// event reports a change of an instance.
func (u *Upstream) event(s *conn, state State, err *hosterr.Error) {
	e := Event{Server: u.name, Instance: s.ID(), State: state}
	if err != nil {
		e.Err = err
	}
	u.recordLogin(&e, s.in.pool.caller)
	u.host.events.send(e)
}

// conns returns the connections that have not ended.
func (u *Upstream) conns() []*conn {
	u.mu.Lock()
	defer u.mu.Unlock()
	return slices.Collect(maps.Keys(u.connections))
}

// allPools returns the pools of all callers.
func (u *Upstream) allPools() []*pool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return slices.Collect(maps.Values(u.pools))
}

// poolOfConnection returns the pool of the connection with an ID, nil if the connection has ended.
func (u *Upstream) poolOfConnection(id string) *pool {
	for _, s := range u.conns() {
		if s.ID() == id {
			return s.in.pool
		}
	}
	return nil
}

// recordLogin records that a server requires a login.
func (u *Upstream) recordLogin(e *Event, c *policy.Caller) {
	if e.State == StateAuth {
		u.host.recordChange(event.Login, c, u.name, map[string]string{"outcome": "required"})
	}
}

// recordAdmin records an action of the operator on a server.
func (u *Upstream) recordAdmin(action string) {
	u.host.recordChange(event.Admin, nil, u.name, map[string]string{"action": action})
}
