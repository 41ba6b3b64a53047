package tasks

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"log/slog"
	"sync"
	"time"

	"github.com/patchbay-mcp/patchbay/mcp"
)

// Options configures a [Server]. The zero value keeps tasks in memory.
type Options struct {
	// Store keeps the tasks. Default: [NewMemory].
	Store Store
	// TTL is how long after its creation a task is kept. A task that is not finished by then fails;
	// a task that finishes late is kept for another five minutes. Default: 24 hours.
	TTL time.Duration
	// PollInterval is the shortest interval at which clients are asked to poll a task. Default: 1
	// second.
	PollInterval time.Duration
	// MaxTasks is the largest number of tasks that are kept, including finished tasks. A call that
	// would create a further task fails with [mcp.CodeBusy]. Default: 100,000.
	MaxTasks int
	// MaxPerPrincipal is the largest number of tasks of a principal. Here and below, callers that
	// are not authenticated count as a single principal. Default: 10,000.
	MaxPerPrincipal int
	// MaxBytes is the largest size of all tasks in the store, in bytes: their params, answers,
	// handler state and results. A call whose params would exceed it fails with [mcp.CodeBusy].
	// Existing tasks may grow beyond it. Default: 1 GiB, also for the store in memory.
	MaxBytes int64
	// MaxBytesPerPrincipal is the limit for a principal. Default: a quarter of MaxBytes.
	MaxBytesPerPrincipal int64
	// MaxRunning is the largest number of handlers that run at the same time. Further tasks are
	// queued. A task that waits for an answer does not run. Default: 256.
	MaxRunning int
	// MaxRunningPerPrincipal is the limit for a principal. Default: three quarters of MaxRunning,
	// rounded up.
	MaxRunningPerPrincipal int
	// Lease is how long a server may fail to reach a [SharedStore] before other servers take over its
	// tasks: 6 seconds to 1 hour, longer than a restart or a failover of the store. All servers of a
	// store must use the same time. Default: 1 minute.
	Lease time.Duration
	// Logger receives internal errors. Default: slog.Default().
	Logger *slog.Logger
}

func (o *Options) fillDefaults() {
	if o.Store == nil {
		o.Store = NewMemory()
	}
	o.TTL = cmp.Or(o.TTL, 24*time.Hour)
	o.PollInterval = cmp.Or(o.PollInterval, time.Second)
	o.MaxTasks = cmp.Or(o.MaxTasks, 100_000)
	o.MaxPerPrincipal = cmp.Or(o.MaxPerPrincipal, 10_000)
	o.MaxBytes = cmp.Or(o.MaxBytes, 1<<30)
	o.MaxBytesPerPrincipal = cmp.Or(o.MaxBytesPerPrincipal, (o.MaxBytes+3)/4)
	o.MaxRunning = cmp.Or(o.MaxRunning, 256)
	o.MaxRunningPerPrincipal = cmp.Or(o.MaxRunningPerPrincipal, o.MaxRunning-o.MaxRunning/4)
	o.Lease = cmp.Or(o.Lease, leaseTime)
	o.Logger = cmp.Or(o.Logger, slog.Default())
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
	if o.Lease != 0 && (o.Lease < minLease || o.Lease > maxLease) {
		return fmt.Errorf("Lease is %v, want %v to %v", o.Lease, minLease, maxLease)
	}
	return checkTimes(o.TTL, o.PollInterval)
}

// checkTimes checks the times of options. Zero stands for the default.
func checkTimes(ttl, poll time.Duration) error {
	switch {
	case ttl != 0 && (ttl < time.Millisecond || ttl > maxTTL):
		return fmt.Errorf("TTL is %v, want 1 ms to %v", ttl, maxTTL)
	case poll != 0 && (poll < time.Millisecond || poll > time.Hour):
		return fmt.Errorf("PollInterval is %v, want 1 ms to 1 hour", poll)
	}
	return nil
}

// A Server runs tools of an [mcp.Server] as tasks, for clients of the tasks extension and for
// clients of revision 2025-11-25. Create a Server with [NewServer], register tools with [AddTool],
// call [Server.Recover] if its store outlives the process, serve, and finally call [Server.Close].
// It is safe for concurrent use.
type Server struct {
	server    *mcp.Server
	opts      Options
	store     Store
	shared    SharedStore // the store, if it is shared, and nil otherwise
	log       *slog.Logger
	locks     [256]sync.Mutex // held while a task is changed; by the hash of its id
	seed      maphash.Seed    // of that hash
	changes   broadcaster
	deadlines deadlines
	results   resultLimiter
	reading   chan struct{}   // a semaphore for tasks/result; see acquireRead
	base      context.Context // parent of the contexts of all runs
	end       context.CancelCauseFunc

	// creating is locked for reading while a task is stored and its reservation released. With the
	// lock held for writing each task is either stored or reserved, not both.
	creating sync.RWMutex

	leasing chan struct{} // a semaphore, held while the lease is requested, renewed or ended
	failure error         // of the last attempt, at the time failed; guarded by leasing
	failed  time.Time

	mu          sync.Mutex // guards the fields below
	lease       lease
	tools       map[string]*taskTool
	runs        map[string]*run // that are about to start, queued or running; by task
	queue       fairQueue
	reserved    map[string]usage // for tasks that are about to be stored; by owner
	reservedAll usage
	closed      bool           // no run starts any more
	active      sync.WaitGroup // that Close waits for; not added to once closed is set
}

// NewServer returns a Server that is installed on s, which then declares the extension
// io.modelcontextprotocol/tasks. The options may be nil. NewServer panics if the options are
// invalid, or if s is extended by a task server already.
func NewServer(s *mcp.Server, opts *Options) *Server {
	t := &Server{
		server: s, seed: maphash.MakeSeed(),
		tools: map[string]*taskTool{}, runs: map[string]*run{}, reserved: map[string]usage{},
	}
	if opts != nil {
		t.opts = *opts
	}
	if err := t.opts.validate(); err != nil {
		panic("tasks: NewServer: " + err.Error())
	}
	t.shared, _ = t.opts.Store.(SharedStore) // nil for the default store, which no other server uses
	t.opts.fillDefaults()
	t.store, t.log = t.opts.Store, t.opts.Logger
	t.queue = fairQueue{max: t.opts.MaxRunning, maxPerOwner: t.opts.MaxRunningPerPrincipal,
		owners: map[string]*ownerQueue{}}
	t.reading = make(chan struct{}, maxReading)
	t.leasing = make(chan struct{}, 1)
	t.base, t.end = context.WithCancelCause(context.Background())
	t.deadlines.sweep, t.deadlines.byID = t.sweep, map[string]*deadline{}
	serve := mcp.HandlerFunc(func(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
		return t.form(req).serve(ctx, req)
	})
	for _, method := range []string{methodGet, methodUpdate, methodCancel, methodResult, methodList} {
		s.HandleMethod(method, serve)
	}
	s.AddTopic(topicTasks, mcp.Topic{Method: notificationTasks, Open: t.openTopic, Params: t.topicParams})
	s.AddExtension(ID, nil)
	s.Use(t.middleware)
	return t
}

// Close cancels all running handlers, with the cause [mcp.ErrShutdown], and waits until they
// returned or ctx ends. Stop serving first: after Close no task runs. Interrupted runs of a
// [ToolOptions.Restartable] tool run again when the next process calls [Server.Recover], or in
// another server that shares the store; the others failed. Tasks that wait for an answer are not
// changed. Close may be called several times.
func (s *Server) Close(ctx context.Context) error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.deadlines.stop()
	s.end(mcp.ErrShutdown)
	idle := make(chan struct{})
	go func() { // ends with the last handler
		s.active.Wait()
		s.leave()
		close(idle)
	}()
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("tasks: some handlers are still running: %w", context.Cause(ctx))
	}
}

// errBusy asks the client to try again after a time.
func errBusy(after time.Duration, message string) *mcp.Error {
	data := fmt.Appendf(nil, `{"retryAfterMs":%d}`, after.Milliseconds())
	return &mcp.Error{Code: mcp.CodeBusy, Message: message, Data: data}
}

// errShutdown asks the client to try again when another process may serve it.
var errShutdown = errBusy(5*time.Second, "the server is shutting down")

// clientError returns the error for the client. Package mcp logs and hides all but [mcp.Error].
func clientError(err error) error {
	if errors.Is(err, ErrUnknown) {
		return errUnknownTask
	}
	return err
}
