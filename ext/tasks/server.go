package tasks

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/patchbay-mcp/patchbay/mcp"
)

// Options configures a [Server]. The zero value is right for servers whose tasks may be forgotten with the process.
type Options struct {
	// Store keeps the tasks. Default: [NewMemory].
	Store Store
	// TTL is for how long after its creation a task is kept. One that is not finished by then fails; one that finishes late
	// stays for another five minutes. Default: 24 hours.
	TTL time.Duration
	// PollInterval is how often clients are told to ask for a task at most. Default: 1 second.
	PollInterval time.Duration
	// MaxTasks is the number of tasks, finished ones included, that are kept at once. A call that would make one more is
	// refused with [mcp.CodeBusy]. Default: 100,000.
	MaxTasks int
	// MaxPerPrincipal is the same for the tasks of one principal; callers without one share theirs. Default: 10,000.
	MaxPerPrincipal int
	// MaxBytes is what the tasks may take together in the store, in bytes: with what clients sent, what handlers remember and
	// what they gave. A call whose task would take more is refused with [mcp.CodeBusy]; what tasks grow by later counts, too,
	// and refuses further ones. Default: 1 GiB, which a store in memory takes as well.
	MaxBytes int64
	// MaxBytesPerPrincipal is the same for the tasks of one principal; callers without one share theirs. Default: a quarter of
	// MaxBytes, so that nobody takes all of it.
	MaxBytesPerPrincipal int64
	// MaxRunning is the number of handlers that run at once; further tasks wait for their turn. A task that waits for an
	// answer does not run. Default: 256.
	MaxRunning int
	// MaxRunningPerPrincipal is the same for the tasks of one principal, so that nobody holds up all others. Callers without
	// one share theirs. Default: three quarters of MaxRunning, rounded up.
	MaxRunningPerPrincipal int
	// Logger takes what goes wrong inside. Default: slog.Default().
	Logger *slog.Logger
}

func (o *Options) fillDefaults() {
	if o.Store == nil {
		o.Store = NewMemory()
	}
	if o.TTL == 0 {
		o.TTL = 24 * time.Hour
	}
	if o.PollInterval == 0 {
		o.PollInterval = time.Second
	}
	if o.MaxTasks == 0 {
		o.MaxTasks = 100_000
	}
	if o.MaxPerPrincipal == 0 {
		o.MaxPerPrincipal = 10_000
	}
	if o.MaxBytes == 0 {
		o.MaxBytes = 1 << 30
	}
	if o.MaxBytesPerPrincipal == 0 {
		o.MaxBytesPerPrincipal = (o.MaxBytes + 3) / 4
	}
	if o.MaxRunning == 0 {
		o.MaxRunning = 256
	}
	if o.MaxRunningPerPrincipal == 0 {
		o.MaxRunningPerPrincipal = o.MaxRunning - o.MaxRunning/4
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
}

func (o *Options) validate() error {
	for name, n := range map[string]int64{
		"MaxTasks": int64(o.MaxTasks), "MaxPerPrincipal": int64(o.MaxPerPrincipal),
		"MaxBytes": o.MaxBytes, "MaxBytesPerPrincipal": o.MaxBytesPerPrincipal,
		"MaxRunning": int64(o.MaxRunning), "MaxRunningPerPrincipal": int64(o.MaxRunningPerPrincipal),
	} {
		if n < 0 {
			return fmt.Errorf("%s is %d, want a positive number", name, n)
		}
	}
	return checkTimes(o.TTL, o.PollInterval)
}

// checkTimes refuses times that cannot be told in milliseconds, or are beyond all use. Zero is for the default.
func checkTimes(ttl, poll time.Duration) error {
	switch {
	case ttl != 0 && (ttl < time.Millisecond || ttl > maxTTL):
		return fmt.Errorf("TTL is %v, want 1 ms to %v", ttl, maxTTL)
	case poll != 0 && (poll < time.Millisecond || poll > time.Hour):
		return fmt.Errorf("PollInterval is %v, want 1 ms to 1 hour", poll)
	}
	return nil
}

// A Server lets the tools of a server run as tasks, for clients of the tasks extension and for those of the tasks of
// revision 2025-11-25. Make one with [NewServer], register tools with [AddTool], call [Server.Recover] if its store has lasted
// longer than the process, serve, and in the end [Server.Close] it. It is safe for concurrent use.
type Server struct {
	server    *mcp.Server
	opts      Options
	store     Store
	log       *slog.Logger
	locks     keyed
	watchers  watchers
	deadlines deadlines
	waits     waits           // the requests that wait for a result
	reading   chan struct{}   // holds one for each of them that looks at its task
	base      context.Context // of all runs
	end       context.CancelCauseFunc

	// storing is held for reading from before a task is stored until its reservation is gone: for whoever holds it alone, each
	// task is either in the store or reserved.
	storing sync.RWMutex

	mu          sync.Mutex // guards the fields below
	tools       map[string]*offer
	runs        map[string]*run // those that are due, wait for their turn or are under way, by the task's id
	turns       turns
	active      int              // goroutines that Close waits for
	reserved    map[string]usage // what is about to be stored, by owner
	reservedAll usage
	closed      bool
	idle        chan struct{} // closed once nothing is active; nil until Close
}

// NewServer makes a manager and installs it on a server, which it lets declare the extension. It panics if the options cannot
// work, or the server has one already. The options may be nil.
func NewServer(s *mcp.Server, opts *Options) *Server {
	m := &Server{
		server: s, tools: map[string]*offer{}, runs: map[string]*run{}, reserved: map[string]usage{},
	}
	if opts != nil {
		m.opts = *opts
	}
	if err := m.opts.validate(); err != nil {
		panic("tasks: New: " + err.Error())
	}
	m.opts.fillDefaults()
	m.store, m.log = m.opts.Store, m.opts.Logger
	m.turns = turns{places: m.opts.MaxRunning, own: m.opts.MaxRunningPerPrincipal, lines: map[string]*line{}}
	m.reading = make(chan struct{}, maxReading)
	m.base, m.end = context.WithCancelCause(context.Background())
	m.deadlines.sweep = m.sweep
	s.HandleMethod("tasks/get", mcp.HandlerFunc(m.get))
	s.HandleMethod("tasks/update", mcp.HandlerFunc(m.update))
	s.HandleMethod("tasks/cancel", mcp.HandlerFunc(m.cancel))
	s.HandleMethod("tasks/result", mcp.HandlerFunc(m.result))
	s.HandleMethod("tasks/list", mcp.HandlerFunc(m.list))
	s.AddTopic("taskIds", m.topic())
	s.AddExtension(ID, nil)
	s.Use(m.middleware)
	return m
}

// Close ends the runs that are under way, whose contexts end with the cause [mcp.ErrShutdown], and waits for them, as long as
// ctx allows. What they were cut off in is marked as after a crash: tools that may run again do so when the next process
// calls [Server.Recover], other tasks have failed. Waiting tasks stay as they are. Tasks can be read and answered from
// then on, as long as the server serves, but none runs. Stop serving first. A second call waits, too.
func (s *Server) Close(ctx context.Context) error {
	s.mu.Lock()
	s.closed = true
	if s.idle == nil {
		s.idle = make(chan struct{})
		if s.active == 0 {
			close(s.idle)
		}
	}
	s.mu.Unlock()
	s.deadlines.stop()
	s.end(mcp.ErrShutdown)
	select {
	case <-s.idle:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("tasks: some runs have not ended: %w", context.Cause(ctx))
	}
}

// enter counts a goroutine that Close waits for; false if there may be none any more.
func (s *Server) enter() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.active++
	return true
}

func (s *Server) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.left()
}

// left is leave for those who hold the lock.
func (s *Server) left() {
	if s.active--; s.active == 0 && s.idle != nil {
		close(s.idle)
	}
}

// errBusy asks the client to come back: soon, to another process.
func errBusy(what string) *mcp.Error {
	return &mcp.Error{Code: mcp.CodeBusy, Message: what, Data: []byte(`{"retryAfterMs":5000}`)}
}

// errFull is the answer to a call that would make one task too many. There is room no earlier than the next sweep.
func errFull(what string) *mcp.Error {
	return &mcp.Error{Code: mcp.CodeBusy, Message: what, Data: []byte(`{"retryAfterMs":60000}`)}
}

// public returns the error that a client may see; what is not meant for it is logged by the server as its own.
func public(err error) error {
	if errors.Is(err, ErrUnknown) {
		return errUnknownTask
	}
	return err
}
