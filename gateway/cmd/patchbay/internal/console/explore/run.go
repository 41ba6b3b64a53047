package explore

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	stdjson "encoding/json"

	mcpapps "github.com/patchbay-mcp/patchbay/ext/apps"
	"github.com/patchbay-mcp/patchbay/ext/tasks"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/apps"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/page"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/question"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/servers"
	"github.com/patchbay-mcp/patchbay/jsonrpc"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcp/driver"
)

const (
	// maxRuns bounds the history of a server: a person looks for a run of today, not of last week.
	maxRuns = 200
	// maxRunBytes bounds the arguments and results that the history of a server stores.
	maxRunBytes = 64 << 20
	// maxRunning bounds the runs of a server in progress. Each waits for a server or a person.
	maxRunning = 16
	// maxRunLogs bounds the log messages that a run shows, the last ones, and maxLogData each of
	// them, in bytes: a server may send messages of 16 MiB without end.
	maxRunLogs, maxLogData = 200, 16 << 10
	// defaultRunTimeout is how long a run waits for the server. Progress restarts the time.
	defaultRunTimeout = time.Minute
	// maxRunTimeout is the longest time that a person may select.
	maxRunTimeout = time.Hour
)

// A runPhase is the current step of a run.
type runPhase string

// The phases of a run. The last three are its end.
const (
	runConnecting runPhase = "connecting"
	runRunning    runPhase = "running"
	runDone       runPhase = "done"
	runFailed     runPhase = "failed"
	runCancelled  runPhase = "cancelled"
)

// errRunCancelled is the cause of the end of a run that a person cancels.
var errRunCancelled = errors.New("cancelled in the console")

// A run is a request that a person sends to a server. It is safe for concurrent use.
type run struct {
	ID        int
	Server    string
	Item      *item
	Input     stdjson.RawMessage // the arguments, as they were typed
	FromJSON  bool               // the arguments were typed as JSON
	Timeout   time.Duration
	Pinned    string // the revision of the protocol; "" for the connection of the host
	AsTask    bool   // the call becomes a task, if the server supports tasks
	Resumed   string // the id of a task that another client started, and the run waits for; "" for a call
	Trace     string // the trace id of its requests
	Started   time.Time
	principal *mcp.Principal
	site      *page.Site
	opts      *Options
	cancel    context.CancelCauseFunc

	mu    sync.Mutex // guards the fields below
	state runState
	raw   stdjson.RawMessage // the last result
}

// A runState is the content of a run in a page. Its slices must not be changed.
type runState struct {
	Version   int // rises with each change
	Phase     runPhase
	Ended     time.Time
	Revision  string
	Headers   int // arguments that were repeated in HTTP headers
	Progress  *mcp.ProgressUpdate
	Logs      []*mcp.LoggingMessage
	Dropped   int // log messages before Logs
	Result    *result
	Err       string
	Code      int        // of a JSON-RPC error
	Saved     string     // the name of the saved call
	Task      string     // the id of the task that the call became
	TaskState string     // its last status, with its message
	App       bool       // the view of the tool can be shown
	Sent      jsonrpc.ID // of the last request for the view of its tool
}

// Ended reports whether a phase is an end of a run.
func (p runPhase) Ended() bool { return p == runDone || p == runFailed || p == runCancelled }

// badge returns the class of the badge of a phase. failed reports whether the tool failed.
func (p runPhase) badge(failed bool) string {
	switch {
	case p == runDone && !failed:
		return "ok"
	case p == runDone || p == runFailed:
		return "bad"
	case p == runCancelled:
		return "warn"
	}
	return "busy"
}

// snapshot returns the state.
func (r *run) snapshot() runState {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.state
}

// update changes the state and tells the pages.
func (r *run) update(change func(s *runState)) {
	r.mu.Lock()
	change(&r.state)
	r.state.Version++
	r.mu.Unlock()
	r.site.Changed()
}

// execute sends the request and waits for its end.
func (r *run) execute(ctx context.Context) {
	result, err := r.send(ctx)
	hasApp := r.opts.App != nil && r.Item.view && result != nil
	if hasApp {
		r.opts.App(&apps.Call{Run: r.ID, ID: r.snapshot().Sent, Server: r.Server, Tool: r.Item.Name,
			Principal: r.principal, Input: r.Input, Result: r.result(), Link: r.place().URL()})
	}
	r.update(func(s *runState) {
		s.Ended, s.Result, s.Phase, s.App = time.Now(), result, runDone, hasApp
		if err != nil {
			s.Err, s.Phase = err.Error(), runFailed
			if e, ok := errors.AsType[*mcp.Error](err); ok {
				s.Code = e.Code
			}
		}
		if err != nil && errors.Is(context.Cause(ctx), errRunCancelled) {
			s.Phase = runCancelled
		}
	})
	r.opts.Desk.Withdraw(r.ID, 0)
}

// send connects and sends the request. The result may be set although there is an error.
func (r *run) send(ctx context.Context) (*result, error) {
	most, connect, opts := servers.StartTimeout(ctx, r.site, r.Server), r.opts.Connect, r.options()
	if r.Pinned != "" { // no other revision is tried
		connect, opts.Timeout, opts.ProbeTimeout = r.opts.Dial, most, most
	} else {
		most += readTimeout
	}
	starting, cancel := context.WithTimeoutCause(ctx, most, fmt.Errorf("no connection within %v", most))
	defer cancel()
	transport, err := connect(starting, r.Server, r.principal)
	if err != nil {
		return nil, err
	}
	if r.AsTask {
		opts = tasks.Declare(opts, &tasks.ClientOptions{Listen: true, Logger: r.site.Logger})
	}
	if r.opts.App != nil && r.Item.view {
		opts = mcpapps.Declare(opts) // the result may be meant for the view
		transport = mcp.Trace(transport, r.trace)
	}
	client, err := mcp.Connect(starting, transport, opts)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	r.update(func(s *runState) { s.Phase, s.Revision = runRunning, client.Revision() })
	parent := "00-" + r.Trace + "-" + r.Trace[:16] + "-01"
	ctx = mcp.WithCallOptions(ctx, mcp.CallOptions{Timeout: r.Timeout, LogLevel: "debug", NoCache: true,
		Meta:     mcp.Meta{"traceparent": parent},
		Progress: func(p mcp.ProgressUpdate) { r.update(func(s *runState) { s.Progress = &p }) }})
	if r.AsTask {
		err = r.sendTask(ctx, client)
	} else {
		err = r.Item.send(ctx, client, r.Input)
	}
	raw := r.result()
	if raw == nil {
		return nil, err
	}
	shown := newResult(r.Item, raw)
	if errors.Is(err, mcp.ErrInvalidResult) && len(shown.Problems) > 0 {
		err = nil // the page shows the result with its problems
	}
	return shown, err
}

// origin returns the origin of the run's questions.
func (r *run) origin(context.Context) question.Origin {
	about := fmt.Sprintf("run %d of %s", r.ID, r.Item.Name)
	if task := r.snapshot().Task; task != "" {
		about = "task " + task + " of " + about
	}
	return question.Origin{Server: r.Server, Run: r.ID, Person: question.PersonOf(r.principal), Link: r.place().URL(),
		About: about}
}

// options returns the options of the client: the server may ask the person who runs.
func (r *run) options() *mcp.ClientOptions {
	o := &mcp.ClientOptions{
		Info:     mcp.Implementation{Name: "patchbay-console", Version: r.opts.Version},
		Revision: r.Pinned,
		Log: func(_ context.Context, m *mcp.LoggingMessage) {
			if len(m.Data) > maxLogData || len(m.Logger) > maxLogData {
				size := fmt.Appendf(nil, `"(a message of %d bytes)"`, len(m.Data))
				m = &mcp.LoggingMessage{Level: m.Level, Data: size}
			}
			r.update(func(s *runState) {
				s.Logs = append(slices.Clone(s.Logs), m)
				if extra := len(s.Logs) - maxRunLogs; extra > 0 {
					s.Logs, s.Dropped = s.Logs[extra:], s.Dropped+extra
				}
			})
		},
		LogLevel: "debug", Logger: r.site.Logger, Middleware: []mcp.Middleware{r.observe},
	}
	r.opts.Desk.Answer(o, r.origin)
	return o
}

// observe keeps the exact result of the request, which may violate its schema.
func (r *run) observe(next mcp.Handler) mcp.Handler {
	return mcp.HandlerFunc(func(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
		res, err := next.ServeMCP(ctx, req)
		raw, ok := res.(mcp.RawResult)
		if ok && req.Method == r.Item.method() && res.ResultType() != driver.ResultInputRequired {
			r.mu.Lock()
			r.raw, r.state.Headers = stdjson.RawMessage(slices.Clone(raw)), len(req.HeaderParams)
			r.mu.Unlock()
		}
		return res, err
	})
}

// trace keeps the id of the call for the host context of its app.
func (r *run) trace(f mcp.Frame) {
	if f.Sent && f.Message != nil && f.Message.Method == r.Item.method() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.state.Sent = f.Message.ID
	}
}

// result returns the exact result, or nil.
func (r *run) result() []byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.raw
}

// size returns how many bytes the run stores.
func (r *run) size() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.Input) + 2*len(r.raw) // the result is also stored decoded
}

// runs contains the runs of all servers and persons. It is safe for concurrent use.
type runs struct {
	site *page.Site
	opts *Options

	mu   sync.Mutex // guards the fields below
	last int        // ID
	all  map[runsKey][]*run
}

// A runsKey identifies a history.
type runsKey struct{ server, person string }

// start starts the run that the exported fields of r describe, except ID, Trace and Started. It returns a problem.
func (h *runs) start(r *run, p *mcp.Principal) error {
	switch {
	case r.Timeout <= 0 || r.Timeout > maxRunTimeout:
		return invalidRun(fmt.Errorf("invalid timeout %v: must be at most %v", r.Timeout, maxRunTimeout))
	case r.Pinned != "" && (h.opts.Dial == nil || !slices.Contains(driver.Revisions(), r.Pinned)):
		return invalidRun(fmt.Errorf("invalid revision %.64q: must be one of %s", r.Pinned,
			strings.Join(h.opts.revisions(), ", ")))
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	key := runsKey{r.Server, question.PersonOf(p)}
	running := 0
	for _, other := range h.all[key] {
		if !other.snapshot().Phase.Ended() {
			running++
		}
	}
	if running == maxRunning {
		return invalidRun(fmt.Errorf("%d runs of the server are in progress: cancel a run first", maxRunning))
	}
	h.last++
	ctx, cancel := context.WithCancelCause(h.site.Context())
	r.ID, r.Trace, r.Started = h.last, newTrace(), time.Now()
	r.principal, r.site, r.opts, r.cancel = p, h.site, h.opts, cancel
	r.state = runState{Phase: runConnecting, Task: r.Resumed}
	h.all[key] = h.trim(append(h.all[key], r))
	h.site.Background(func(context.Context) { // ends with ctx, which ends with Serve
		defer cancel(nil)
		r.execute(ctx)
	})
	return nil
}

// newTrace returns a random trace id. Spec: W3C Trace Context, trace-id.
func newTrace() string {
	const size = 16 // bytes
	b := make([]byte, size)
	_, _ = rand.Read(b) // never fails
	return hex.EncodeToString(b)
}

// trim drops the oldest runs that have ended, until the rest fits the limits.
func (h *runs) trim(all []*run) []*run {
	bytes := 0
	for _, r := range all {
		bytes += r.size()
	}
	for i := 0; i < len(all) && (len(all) > maxRuns || bytes > maxRunBytes); {
		if !all[i].snapshot().Phase.Ended() {
			i++
			continue
		}
		bytes -= all[i].size()
		all = slices.Delete(slices.Clone(all), i, i+1)
	}
	return all
}

// of returns the history of a server for a person, the oldest run first.
func (h *runs) of(server string, p *mcp.Principal) []*run {
	h.mu.Lock()
	defer h.mu.Unlock()
	key := runsKey{server, question.PersonOf(p)}
	h.all[key] = h.trim(h.all[key])
	return slices.Clone(h.all[key])
}

// find returns a run of a person, or nil.
func (h *runs) find(id int, p *mcp.Principal) *run {
	h.mu.Lock()
	defer h.mu.Unlock()
	for key, all := range h.all {
		at := slices.IndexFunc(all, func(r *run) bool { return r.ID == id })
		if key.person == question.PersonOf(p) && at >= 0 {
			return all[at]
		}
	}
	return nil
}
