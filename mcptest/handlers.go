package mcptest

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcp/driver"
)

// hangLimit is how long a bubble may take in real time while the same handlers run. Time within it
// is fake, so a handler that takes longer waits for something outside of the bubble.
const hangLimit = time.Minute

// returnTimeout is how long a handler may run after its connection was closed, which gives
// it some seconds already.
const returnTimeout = time.Second

// A tracker holds the requests that handlers are serving. It is safe for concurrent use.
type tracker struct {
	mu      sync.Mutex // guards the fields below
	started int
	running map[int]served
}

// A served is a request in progress.
type served struct {
	name  string // such as `tools/call "add"`
	began time.Time
}

// newTracker returns a tracker that reports when the test ends, after the cleanups that are
// registered later.
func newTracker(t testing.TB) *tracker {
	r := &tracker{}
	t.Cleanup(func() { r.report(t) })
	return r
}

// begin records a request until end is called.
func (r *tracker) begin(req *mcp.Request) (end func()) {
	s := served{req.Method, time.Now()}
	for _, member := range []string{"name", "uri"} {
		if value, ok := req.Param(member); ok {
			s.name += " " + string(value)
			break
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.started++
	id := r.started
	if r.running == nil {
		r.running = map[int]served{}
	}
	r.running[id] = s
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.running, id)
	}
}

// names returns the requests in progress, the oldest first, each with its time until now.
func (r *tracker) names() (names []string, now time.Time) {
	now = time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	all := slices.SortedFunc(maps.Values(r.running), func(a, b served) int {
		return cmp.Or(a.began.Compare(b.began), strings.Compare(a.name, b.name))
	})
	for _, s := range all {
		names = append(names, fmt.Sprintf("%s (%v)", s.name, now.Sub(s.began).Round(time.Millisecond)))
	}
	return names, now
}

// mark returns a value that changes when a request begins or ends.
func (r *tracker) mark() [2]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return [2]int{r.started, len(r.running)}
}

// report fails the test if handlers still run after the connection was closed.
func (r *tracker) report(t testing.TB) {
	t.Helper()
	closed := time.Now()
	for wait := time.Millisecond; ; wait *= 2 {
		names, now := r.names()
		if len(names) == 0 {
			return
		}
		if now.Sub(closed) > returnTimeout {
			t.Errorf("handlers have not returned although their connection is closed: %s", strings.Join(names, ", "))
			return
		}
		time.Sleep(wait) // there is no event to wait for
	}
}

// track returns a handler that records the requests of h. Transports use it as they use h.
func (r *tracker) track(h mcp.Handler) mcp.Handler {
	if s, ok := h.(*mcp.Server); ok {
		return trackedServer{s, r}
	}
	if _, ok := h.(driver.Listener[*mcp.Request]); ok {
		return h // may provide further methods that transports use
	}
	if _, ok := h.(driver.HeaderParamHandler[*mcp.Request]); ok {
		return h
	}
	return trackedHandler{h, r}
}

type trackedServer struct {
	*mcp.Server
	tracker *tracker
}

func (s trackedServer) ServeMCP(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
	defer s.tracker.begin(req)()
	return s.Server.ServeMCP(ctx, req)
}

// Unwrap returns the server: transports serve it in the same way as without the tracker.
func (s trackedServer) Unwrap(driver.Wrapped) mcp.Handler { return s.Server }

type trackedHandler struct {
	next    mcp.Handler
	tracker *tracker
}

func (h trackedHandler) ServeMCP(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
	defer h.tracker.begin(req)()
	return h.next.ServeMCP(ctx, req)
}

func (h trackedHandler) Unwrap() mcp.Handler { return h.next }

// inBubble runs body in a synctest bubble. If handlers keep the bubble from ending, it fails the
// test with their names, instead of a deadlock that ends the program or of a test that hangs.
func inBubble(t *testing.T, handlers *tracker, body func(t *testing.T)) {
	t.Helper()
	ended := make(chan error, 1)
	go func() {
		var deadlock error
		defer func() { ended <- deadlock }() // also after FailNow of the body
		defer func() {
			value := recover()
			err, _ := value.(error)
			names, _ := handlers.names()
			if value != nil && (err == nil || !strings.HasPrefix(err.Error(), "deadlock: ") || len(names) == 0) {
				panic(value)
			}
			deadlock = err
		}()
		synctest.Test(t, body)
	}()
	if deadlock := awaitBubble(t, handlers, ended, hangLimit); deadlock != nil && !t.Failed() {
		t.Errorf("handlers have not returned, and the test waits for them: %s", handlers.plainNames())
	}
}

// awaitBubble waits for the end of a bubble. It fails the test if handlers wait for something
// outside of the bubble. Under a debugger, where tests run without a deadline, it waits as long as
// necessary.
func awaitBubble(t *testing.T, handlers *tracker, ended <-chan error, limit time.Duration) error {
	t.Helper()
	deadline, limited := t.Deadline()
	if !limited {
		return <-ended
	}
	limit = max(min(limit, time.Until(deadline)/4), time.Millisecond) // at most two of them are needed
	for before := handlers.mark(); ; {
		select {
		case err := <-ended:
			return err
		case <-time.After(limit):
		}
		now := handlers.mark()
		if now == before && now[1] > 0 {
			t.Fatalf("handlers have not returned in %v of real time: %s; channels and locks that they wait for "+
				"must be made within the test's body", limit, handlers.plainNames())
		}
		before = now
	}
}

// plainNames returns the requests in progress without their times, which belong to a bubble.
func (r *tracker) plainNames() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var names []string
	for _, s := range r.running {
		names = append(names, s.name)
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}
