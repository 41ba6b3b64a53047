package host

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/patchbay-mcp/patchbay/host/config"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// Options configures a [Host]. The zero value is valid.
type Options struct {
	// Dial returns the transport of a new instance of a server, whose variables are expanded. Its
	// context has the caller that the instance is for: see [CallerFrom]. Default: [Dial].
	Dial func(ctx context.Context, s *config.Server) (mcp.Transport, error)
	// Lookup returns the values of variables in the configuration; see [config.Server.Expand].
	// Default: os.LookupEnv.
	Lookup func(name string) (string, bool)
	// Client is the identity of the host towards servers. Its functions Elicit, ElicitURL, Sample and
	// Roots answer questions that belong to no request of a caller. ForwardCapabilities is what callers
	// can support at most, declared to commands of revisions before 2026-07-28. Default: everything.
	Client mcp.ClientOptions
	// Consent asks the user before [Host.Call] calls a tool. Default: every call is refused.
	Consent func(ctx context.Context, a *Action) (*Verdict, error)
	// Policy decides about the requests of all callers. Default: all are allowed.
	Policy Policy
	// Recorder records the requests of all callers. Default: none are recorded.
	Recorder Recorder
	// StateKeys encrypt what callers carry for the host, such as the state of a question; each has at
	// least 32 random bytes. The first encrypts, all decrypt. Hosts that share keys accept each
	// other's states. Default: a random key for this host.
	StateKeys [][]byte
	// Instructions are sent to clients before those of the servers.
	Instructions string
	// Logger logs problems. Default: slog.Default().
	Logger *slog.Logger
}

// A Host uses the servers of one configuration. It is safe for concurrent use.
type Host struct {
	opts      Options
	settings  *config.Settings
	upstreams []*Upstream // in the order of the file
	byName    map[string]*Upstream
	states    *stateSealer
	waits     taskWaits
	kept      keptTasks
	events    eventBroadcaster
	sessions  bool // some upstream depends on Caller.Session

	ctx    context.Context // of all that no request waits for
	cancel context.CancelCauseFunc
	work   workGroup
	poked  chan struct{} // has room for one element; see poke

	mu     sync.Mutex // guards the fields below
	closed bool
	views  viewCache

	agent agent
}

// Open returns a host for a configuration. It starts no server: that happens when a request needs
// it, or by [Host.Start]. An invalid entry of a server does not affect the others: requests for it
// fail with [CodeConfigError]. ctx bounds Open, not the life of the Host. A file whose servers need
// trust must have been trusted: see [config.TrustStore].
func Open(_ context.Context, f *config.File, o *Options) (*Host, error) {
	h := &Host{byName: map[string]*Upstream{}}
	if o != nil {
		h.opts = *o
	}
	h.opts.Logger = cmp.Or(h.opts.Logger, slog.Default())
	if h.opts.Lookup == nil {
		h.opts.Lookup = os.LookupEnv
	}
	if h.opts.Dial == nil {
		h.opts.Dial = Dial
	}
	var err error
	if h.states, err = newStateSealer(h.opts.StateKeys); err != nil {
		return nil, err
	}
	if h.settings, err = f.Settings(); err != nil {
		return nil, fmt.Errorf("host: %w", err)
	}
	h.ctx, h.cancel = context.WithCancelCause(context.Background())
	h.poked = make(chan struct{}, 1)
	for _, name := range f.Names() {
		u := newUpstream(h, f, name)
		if u.server != nil && u.server.Disabled {
			continue
		}
		h.upstreams, h.byName[name] = append(h.upstreams, u), u
		h.sessions = h.sessions || u.settings.Share == config.ShareSession
	}
	h.work.run(h.supervise)
	return h, nil
}

// Start connects the instances of the local user to the named servers, or to all, and waits until
// they are ready. The error joins those of the servers that could not be connected.
func (h *Host) Start(ctx context.Context, names ...string) error {
	var errs []error
	var mu sync.Mutex
	var wait sync.WaitGroup
	for _, u := range h.upstreams {
		if len(names) > 0 && !contains(names, u.name) {
			continue
		}
		wait.Go(func() {
			u.resume()
			s, err := u.pool(&Caller{}).acquire(ctx, "")
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				errs = append(errs, err)
				return
			}
			s.release()
		})
	}
	wait.Wait()
	return errors.Join(errs...)
}

func contains(names []string, name string) bool {
	for _, n := range names {
		if n == name {
			return true
		}
	}
	return false
}

// Upstreams returns the servers that are not disabled, in the order of the file.
func (h *Host) Upstreams() []*Upstream { return h.upstreams }

// Events returns changes of the states of servers from now on, until ctx or the Host ends. A reader
// that is slow misses events.
func (h *Host) Events(ctx context.Context) iter.Seq[Event] { return h.events.subscribe(ctx, h.ctx) }

// For returns the view of a caller. It connects to no server. Callers with the same principal and
// profile share a view.
func (h *Host) For(c *Caller) *View {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.views.get(h, c)
}

// closeTimeout is longer than a process that does not exit takes to be killed.
const closeTimeout = 12 * time.Second

// Close ends all instances and their processes, and the requests in progress. It returns within 12
// seconds. The error reports a function of [Options] that blocks.
func (h *Host) Close() error {
	h.mu.Lock()
	closed := h.closed
	h.closed = true
	h.mu.Unlock()
	if closed {
		return nil
	}
	done := make(chan struct{})
	go func() { // ends with the functions of Options
		defer close(done)
		h.cancel(mcp.ErrClosed)
		h.agent.close()
		var wait sync.WaitGroup
		for _, u := range h.upstreams {
			wait.Go(u.close)
		}
		wait.Wait()
		h.work.wait()
	}()
	timer := time.NewTimer(closeTimeout)
	defer timer.Stop()
	select {
	case <-done:
		return nil
	case <-timer.C:
		return errors.New("host: a function of Options has not returned although its context has ended")
	}
}
