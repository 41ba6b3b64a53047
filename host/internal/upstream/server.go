package upstream

import (
	"errors"
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
	"github.com/patchbay-mcp/patchbay/host/internal/observe"
	"github.com/patchbay-mcp/patchbay/host/internal/pins"
	"github.com/patchbay-mcp/patchbay/host/internal/server"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/host/status"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// AnyClass is the class of requests that do not depend on capabilities.
const AnyClass = ""

// A Server is a configured server. It is safe for concurrent use.
type Server struct {
	*failures
	*counts
	command bool         // see isCommand
	sharing config.Share // of the configuration; see Share
	current atomic.Pointer[entry]
	lists   *listing.Memory // of all pools, connections and views
	// requests queues the calls of all callers of a shared server: see [Pool.Queue].
	requests *limits.Queue
	limits   *limits.Server
	stderr   connection.Stderr

	usesCaller atomic.Bool // a connection was made with CallerFrom

	mu          sync.Mutex            // guards the fields below, instances and connections
	pools       map[string]*Pool      // by poolKey
	connections map[*Conn]struct{}    // open or ending
	modern      bool                  // the last connection had no session
	delay       connection.StartDelay // of the starts of all callers
	delayed     *hosterr.Error        // the failure of the last of these starts
	stopped     bool                  // by Stop
	closed      bool
	removed     bool               // from the configuration
	wanted      server.Fingerprint // of connections; zero before the first reload
}

// A Pool holds the connections of a server for a caller, or for all callers of a shared server, and
// the lists that they offer.
type Pool struct {
	*failures
	up     *Server
	caller *policy.Caller
	key    string // see [Server.poolKey]
	lists  *listing.Lists

	// The lock of the upstream guards instances, used and latest.
	instances map[string]*instance
	used      time.Time // by a request
	latest    string    // the class of the latest request, for servers with classes

	requests *limits.Queue // see queue

	forwarded login.Forwarded
}

// An instance holds the connection of a pool for a class of requests. It connects when a request
// needs it, and again after the connection ends. The lock of the server guards it, and all methods
// except options and declared require the lock.
type instance struct {
	pool  *Pool
	class string // the capabilities that are declared to a server of the session era
	calls bool   // each call uses a separate connection; current is always nil

	current *Conn // connecting or connected; may be nil
	last    *Conn // ended, perhaps not quite
	next    *Conn // replaces current when it is connected; may be nil
	backoff connection.Backoff
	breaker limits.Breaker
	state   status.State   // if current is nil
	since   time.Time      // of state
	err     *hosterr.Error // the last failure
	starts  int            // all
	changed chan struct{}  // closed with the next start, for requests that wait for it; may be nil

	swapped    time.Time // the last attempt to replace current after a change of the configuration
	swapFailed bool
}

// A Conn is a connection of an instance.
type Conn struct {
	*connection.Conn
	in *instance
	place

	// The lock of the upstream guards the fields below.
	counted     bool               // as a process
	replaced    bool               // requests that wait for this attempt wait for another
	fingerprint server.Fingerprint // of the entry with which the connection is made; zero before
	pins        *pins.Server       // of that entry; may be nil
	made        *entry             // that entry

	own pins.Connection
}

// counts contains figures since the server was configured, and the requests that wait for the
// operator.
type counts struct {
	restarts, quarantined atomic.Uint64
	held                  atomic.Int64
	errors                observe.Counters[hosterr.Code]
}

// CountError counts a request without a valid response of the server.
func (c *counts) CountError(code hosterr.Code) { c.errors.Add(code) }

// Hold counts a request that waits for the operator, until release is called.
func (c *counts) Hold() (release func()) {
	c.held.Add(1)
	return func() { c.held.Add(-1) }
}

// entry returns the present configuration of the server.
func (u *Server) entry() *entry { return u.current.Load() }

// Stderr returns the last lines that processes of the server wrote to their standard error.
func (u *Server) Stderr() []status.StderrLine {
	lines := u.stderr.Lines()
	for n := range lines {
		lines[n].Text = u.Mask(lines[n].Text)
	}
	return lines
}

// ErrStoppedByUser reports that the operator stopped the server.
var ErrStoppedByUser = errors.New("the server was stopped; restart it to use it again")

// refusesLocked returns why no connection can be made, or nil.
func (u *Server) refusesLocked() error {
	switch {
	case u.closed || u.env.Context.Err() != nil:
		return &hosterr.Error{Code: hosterr.CodeUnavailable, Server: u.name, Err: mcp.ErrClosed}
	case u.removed:
		return &hosterr.Error{Code: hosterr.CodeUnavailable, Server: u.name, Err: ErrRemoved}
	case u.stopped:
		return &hosterr.Error{Code: hosterr.CodeUnavailable, Server: u.name, Err: ErrStoppedByUser}
	case u.env.left.Load() && inCluster(u):
		return clusterError(u, errLeft, 0)
	}
	return nil
}

// isCommand reports whether the server is a command, so that each connection is a process.
func (u *Server) isCommand() bool { return u.command }

// Share returns the sharing mode in this host. By default an instance serves a single caller.
func (u *Server) Share() config.Share {
	if u.sharing == config.ShareCluster {
		return config.ShareShared
	}
	return u.sharing
}

// usesWorkspace reports whether an instance depends on [Caller.Workspace].
func (u *Server) usesWorkspace() bool {
	server := u.entry().Config
	return u.command && u.Share() != config.ShareShared && server != nil && !server.Project
}

// event reports a change of an instance.
func (u *Server) event(s *Conn, state status.State, err *hosterr.Error) {
	c := &Change{Server: u.name, Conn: s.ID(), State: state}
	if err != nil {
		c.Err = err
	}
	if state == status.Auth {
		u.env.Record(event.Login, s.in.pool.caller, u.name, map[string]string{"outcome": "required"})
	}
	u.env.Notify(c)
}

// conns returns the connections that are open or ending.
func (u *Server) conns() []*Conn {
	u.mu.Lock()
	defer u.mu.Unlock()
	return slices.Collect(maps.Keys(u.connections))
}

// Entry returns the configuration of the server.
func (u *Server) Entry() *server.Server { return u.entry().Server }

// ListBytes returns the size of the lists of all callers.
func (u *Server) ListBytes() int { return u.lists.Bytes() }

// defaultStartTimeout is long because package runners such as npx download a server first.
const defaultStartTimeout = 120 * time.Second

// startTimeout returns how long the server may take to start.
func startTimeout(u *Server) time.Duration {
	if timeout := u.entry().Settings.StartTimeout; timeout > 0 {
		return time.Duration(timeout)
	}
	return defaultStartTimeout
}

// ErrRemoved reports that the configuration no longer contains the server.
var ErrRemoved = errors.New("the server was removed from the configuration")
