package upstream

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/patchbay-mcp/patchbay/host/cluster"
	"github.com/patchbay-mcp/patchbay/host/config"
	"github.com/patchbay-mcp/patchbay/host/event"
	"github.com/patchbay-mcp/patchbay/host/internal/limits"
	"github.com/patchbay-mcp/patchbay/host/internal/login"
	"github.com/patchbay-mcp/patchbay/host/internal/pins"
	"github.com/patchbay-mcp/patchbay/host/internal/server"
	"github.com/patchbay-mcp/patchbay/host/pin"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/host/state"
	"github.com/patchbay-mcp/patchbay/host/status"
	"github.com/patchbay-mcp/patchbay/internal/peer"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// An Environment contains the parts of a host that its servers use. All fields but Observer and Cluster are required.
type Environment struct {
	// Context ends with the host. It is the context of everything that no request waits for.
	Context context.Context //nolint:containedctx // of the host
	// Go runs a function in a goroutine that the host waits for.
	Go func(f func())
	// Dial returns the transport to a server, whose variables are expanded.
	Dial func(ctx context.Context, s *config.Server) (mcp.Transport, error)
	// Lookup returns the values of variables.
	Lookup func(name string) (string, bool)
	// Client contains the options of the clients of all servers.
	Client mcp.ClientOptions
	// Observer receives the requests to servers; nil means that Client says so.
	Observer mcp.Observer
	// Logger logs problems.
	Logger *slog.Logger
	// State stores the approved definitions. Pins means that the definitions of all servers are
	// compared with them.
	State state.Store
	Pins  bool
	// Cluster connects the host to the hosts that share servers; nil without other hosts.
	Cluster *cluster.Node
	// Limits and Logins contain the limits of requests and the logins of callers.
	Limits *limits.Limits
	Logins *login.Logins
	// Notify receives the changes of connections. It must not block.
	Notify func(c *Change)
	// Record records an event that no request causes.
	Record func(kind event.Kind, c *policy.Caller, server string, detail any)
	// Drifts means that changes of lists are recorded.
	Drifts bool
	// UsesRecent reports whether a policy decides by the servers that a caller used recently.
	// AddRecent records that a server sent something to the caller.
	UsesRecent func() bool
	AddRecent  func(principal, server string)
	// Users returns the users of lists.
	Users func() []User
}

// A User uses the lists of pools, which it keeps in use although their server no longer does.
type User interface {
	// Pools returns the pools whose lists the user uses.
	Pools() []*Pool
	// ForgetLists makes the user read the lists again.
	ForgetLists()
}

// A Change reports a new state of a server or of one of its connections.
type Change struct {
	Server string
	Conn   string // the ID of the connection; empty for a change of the server
	State  status.State
	Err    error
	Pins   []*pin.Pin // the definitions that are quarantined from now on
}

// An entry contains the configuration of a server, and the pins of its connections. It never changes.
type entry struct {
	*server.Server
	pins *pins.Server // nil without pins; shared between equal settings
}

// shared contains the parts of [Servers] that single servers use. It is safe for concurrent use.
type shared struct {
	Environment
	key            []byte        // of fingerprints; random
	wake           chan struct{} // buffered (1): wakes the supervisor
	secretsVersion atomic.Uint64 // counts changes of the secrets of servers
	// processLimit returns the limit of the processes of all servers. endIdle ends an unused
	// process that matches, of any server. The caller has locked the server locked.
	processLimit func() int
	endIdle      func(locked *Server, matches func(*Conn) bool) (ended bool)
	freed        chan struct{} // buffered (1): wakes a request that waits for a process
	// leaseLost ends the connections with a lease, of any server.
	leaseLost func(l *cluster.Lease)

	left atomic.Bool // servers of the cluster do not start here any more; see leaveCluster

	mu        sync.Mutex // guards processes, seats, and the servers that Servers holds
	processes processCount
	seats     map[string]*seat // by server
}

// Wake makes the supervisor check all connections. It never blocks.
func (s *shared) Wake() { peer.Wake(s.wake) }

// free records that a process ended, or that its lists were read, so that another process may start.
func (s *shared) free() { peer.Wake(s.freed) }

// fingerprint returns the fingerprint of connections with an entry.
func (s *shared) fingerprint(e *entry) server.Fingerprint {
	var pins string
	if e.pins != nil {
		pins = e.pins.Fingerprint()
	}
	return e.Fingerprint(s.key, s.Lookup, pins)
}

// lookup returns the variables of an instance of a caller.
func (s *shared) lookup(c *policy.Caller) func(name string) (string, bool) {
	return func(name string) (string, bool) {
		if name != "caller:subject" {
			return s.Lookup(name)
		}
		if c.Principal == nil {
			return "", false
		}
		return c.Principal.Subject, true
	}
}

// A processCount holds the number of processes of all servers by principal.
type processCount struct {
	all int
	by  map[string]int
}

// addProcess adds to the number of processes of a principal, and returns the numbers of all and of the
// principal.
func (s *shared) addProcess(principal string, n int) (all, own int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := &s.processes
	if c.by == nil {
		c.by = map[string]int{}
	}
	c.all += n
	own = c.by[principal] + n
	if c.by[principal] = own; own == 0 {
		delete(c.by, principal)
	}
	return c.all, own
}
