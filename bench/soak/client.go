package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcphttp"
)

// Transports.
const (
	overHTTP   = "http"
	overSSE    = "http+sse"
	overStdio  = "stdio"
	overMemory = "in-memory"
)

// A combination is what a client uses.
type combination struct{ transport, revision string }

func (c combination) String() string { return c.transport + " " + c.revision }

func (c combination) network() bool { return c.transport == overHTTP || c.transport == overSSE }

// A population is the clients of one combination.
type population struct {
	combination
	clients int
	share   float64 // of all calls
}

// populations are 190 clients. Calls in memory cost the least, those over HTTP the most.
func populations() []population {
	revisions := []string{"2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"}
	var all []population
	for i, revision := range revisions {
		http := overHTTP
		if i == 0 {
			http = overSSE
		}
		all = append(all,
			population{combination{http, revision}, 18, 0.04},
			population{combination{overStdio, revision}, 4, 0.04},
			population{combination{overMemory, revision}, 16, 0.12})
	}
	return all
}

// principals is the number of principals that the clients over HTTP share.
const principals = 16

// A client is one client of the soak, which makes one operation after the other.
type client struct {
	soak *soak
	combination
	id       int
	steady   bool          // its child is never killed, so that it can be measured
	interval time.Duration // between two calls, on average
	nonces   int
	explain  int64 // faults that have explained their error or can no longer cause one

	conn       *mcp.Client // nil if it is not connected
	faults     *faults
	pool       *http.Transport // nil except over HTTP
	generation *mcp.Server     // that the client is connected to, in memory
	sub        *subscription
}

// run makes operations until ctx ends. A client that is late, for example after a restart, makes
// them without a pause until it is on time.
func (c *client) run(ctx context.Context) {
	next := time.Now().Add(rand.N(8 * c.interval))
	for sleep(ctx, time.Until(next)) == nil {
		c.soak.gate.RLock()
		calls := c.step(ctx)
		c.soak.gate.RUnlock()
		next = next.Add(time.Duration(calls) * c.interval)
	}
	c.disconnect()
}

func (c *client) principal() string { return fmt.Sprintf("p%d", c.id%principals) }

func (c *client) nonce() string {
	c.nonces++
	return fmt.Sprintf("%d-%d", c.id, c.nonces)
}

func (c *client) uri() string { return fmt.Sprintf("soak://client/%d", c.id) }

// transport returns a transport with faults of its own.
func (c *client) transport() mcp.Transport {
	c.faults, c.explain, c.pool = &faults{}, 0, nil
	switch c.combination.transport {
	case overMemory:
		c.generation = c.soak.memory.Load()
		return mcp.InMemory(c.generation)
	case overStdio:
		t := mcp.Command(c.soak.program)
		t.Env, t.Logger = []string{roleVariable + "=stdio", "GOMAXPROCS=1"}, newLogger()
		return t
	}
	c.pool = &http.Transport{DialContext: c.faults.dial, MaxIdleConnsPerHost: 64, IdleConnTimeout: 30 * time.Second}
	path := "/mcp"
	if c.combination.transport == overSSE {
		path = "/sse"
	}
	return mcphttp.NewTransport("http://"+c.soak.server.address+path, &mcphttp.TransportOptions{
		Client: &http.Client{Transport: c.pool}, Header: http.Header{"Authorization": {c.principal()}}, Logger: newLogger(),
	})
}

func (c *client) connect(ctx context.Context) {
	transport := c.transport()
	opts := &mcp.ClientOptions{Revision: c.revision, Logger: newLogger(), Elicit: answerQuestion}
	err := c.attempt(ctx, "connect", func(ctx context.Context) (err error) {
		c.conn, err = mcp.Connect(ctx, transport, opts)
		return err
	})
	switch {
	case err != nil:
		c.conn = nil
		c.faults.cutAll(true)
		_ = sleep(ctx, rand.N(200*time.Millisecond))
	case c.conn.Revision() != c.revision:
		c.soak.fail("%v: connected with revision %s", c.combination, c.conn.Revision())
	default:
		c.sub = subscribe(c.soak, c.conn, c.faults, c.uri(), c.combination)
	}
}

// answerQuestion accepts every question; the answer is the question.
func answerQuestion(_ context.Context, p *mcp.ElicitRequestParams) (*mcp.ElicitResult, error) {
	return &mcp.ElicitResult{Action: mcp.ElicitAccept, Content: fmt.Appendf(nil, `{"value":%q}`, p.Message)}, nil
}

// disconnect closes the connection.
func (c *client) disconnect() {
	if c.conn == nil {
		return
	}
	began, stalled := time.Now(), c.soak.stalls.sum()
	_ = c.conn.Close() // the server may be gone
	if took := time.Since(began); took > closeLimit+c.soak.stalls.sum()-stalled {
		c.soak.fail("%v: Close took %v", c.combination, took)
	}
	c.sub.stop()
	c.conn = nil
	c.faults.cutAll(true) // also connections that net/http is still opening
}

// closeLimit is the documented limit of Close, and grace for a busy machine.
const closeLimit = 20 * time.Second

func (c *client) closeConnections() {
	if c.pool != nil {
		c.pool.CloseIdleConnections()
	}
}

// attempt makes one call with a deadline and judges its outcome: it is right, or an error that a
// fault explains, or a failure of the soak. It returns the error.
func (c *client) attempt(ctx context.Context, kind string, call func(ctx context.Context) error) error {
	deadline, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	var unused atomic.Bool
	if c.network() {
		deadline = traceUnused(deadline, &unused)
	}
	began, faults, stalled := time.Now(), c.faults.count(), c.soak.stalls.sum()
	isQuiet := !c.faults.cutting()
	err := call(deadline)
	took := time.Since(began)
	stalled = c.soak.stalls.sum() - stalled
	late := errors.Is(err, context.DeadlineExceeded) && stalled == 0
	switch wrong := (*wrongError)(nil); {
	case took > callTimeout+callGrace+stalled:
		c.soak.fail("%v: %s took %v, past its deadline: %v", c.combination, kind, took, err)
	case err == nil:
		if isQuiet {
			c.explain = faults
		}
		c.soak.results.record(c.combination, kind, "ok")
	case errors.As(err, &wrong):
		c.soak.fail("%v: %s: %v", c.combination, kind, err)
	case ctx.Err() != nil: // the soak is over
	case unused.Load() && errors.Is(err, io.ErrUnexpectedEOF):
		c.soak.results.record(c.combination, kind, "unused connection was closed")
	case late || !c.explained(began):
		c.soak.fail("%v: %s failed after %v: %v", c.combination, kind, took, err)
	default:
		c.soak.results.record(c.combination, kind, errorKind(err))
		_ = sleep(ctx, errorPause)
	}
	return err
}

const (
	callTimeout = 45 * time.Second
	callGrace   = 10 * time.Second // the machine may be busy
	errorPause  = 50 * time.Millisecond
)

// traceUnused sets unused if a request uses a connection that was opened for another one, some time
// ago, and never used. Serve closes it at its ReadHeaderTimeout, 10 seconds after it was opened. The
// client of net/http may send a request at that moment, and does not retry it.
func traceUnused(ctx context.Context, unused *atomic.Bool) context.Context {
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) {
		if c, ok := info.Conn.(*faultConn); ok && !c.used.Load() && time.Since(c.opened) > unusedTime {
			unused.Store(true)
		}
	}})
}

// unusedTime is shorter than the ReadHeaderTimeout, since the client may be slow to send.
const unusedTime = 5 * time.Second

// explained reports whether a call that began at a time may have failed: a fault of this client was
// not seen yet, the servers were being restarted, or a process could not run.
func (c *client) explained(began time.Time) bool {
	if c.faults.count() > c.explain || c.faults.cutting() || c.soak.stalls.since(began) {
		return true
	}
	return c.network() && c.soak.restarted.since(began)
}

// A wrongError is a response that is not right. No fault explains it.
type wrongError struct{ text string }

func (e *wrongError) Error() string { return e.text }

func wrong(format string, args ...any) error { return &wrongError{fmt.Sprintf(format, args...)} }

// errorKind returns a short name of an error that is possible after a fault.
func errorKind(err error) string {
	var failed *mcp.TransportError
	var response *mcp.Error
	var status *mcphttp.StatusError
	switch {
	case errors.As(err, &status):
		return fmt.Sprintf("status %d", status.StatusCode)
	case errors.As(err, &failed) && failed.MayHaveRun:
		return "transport, may have run"
	case errors.As(err, &failed):
		return "transport, not run"
	case errors.As(err, &response):
		return fmt.Sprintf("code %d", response.Code)
	}
	text := err.Error()
	if len(text) > 60 {
		text = text[:60]
	}
	return "other: " + strings.ReplaceAll(text, "\n", " ")
}

// A subscription is the subscription of a client to its own resource.
type subscription struct {
	cancel  context.CancelFunc
	done    chan struct{}
	events  chan struct{} // has a token if a notification has arrived
	faults  *faults
	readyAt atomic.Int64 // the number of faults when the server last acknowledged, or -1
}

func subscribe(s *soak, conn *mcp.Client, f *faults, uri string, of combination) *subscription {
	ctx, cancel := context.WithCancel(context.Background())
	sub := &subscription{cancel: cancel, done: make(chan struct{}), events: make(chan struct{}, 1), faults: f}
	sub.readyAt.Store(-1)
	go func() { // ends with stop
		defer close(sub.done)
		for ctx.Err() == nil {
			sub.listen(ctx, s, conn, uri, of)
			sub.readyAt.Store(-1)
			_ = sleep(ctx, time.Second)
		}
	}()
	return sub
}

func (sub *subscription) listen(ctx context.Context, s *soak, conn *mcp.Client, uri string, of combination) {
	before := sub.faults.count()
	for event, err := range conn.Listen(ctx, mcp.SubscriptionFilter{ResourceSubscriptions: []string{uri}}) {
		switch {
		case err != nil:
			return // after faults only; a lost notification is noticed by touch
		case event.Kind == mcp.EventResourceUpdated && event.URI != uri:
			s.fail("%v: notification for %s, subscribed to %s", of, event.URI, uri)
		case event.Kind == mcp.EventListening, event.Kind == mcp.EventChangesMissed:
			sub.readyAt.Store(before)
		}
		before = sub.faults.count()
		select {
		case sub.events <- struct{}{}:
		default:
		}
	}
}

// ready reports whether the server has acknowledged the subscription and no fault has happened
// since.
func (sub *subscription) ready() bool { return sub.readyAt.Load() == sub.faults.count() }

func (sub *subscription) stop() {
	sub.cancel()
	<-sub.done
}

// A window is a time in which the servers are restarted.
type window struct {
	mu   sync.Mutex // guards the fields below
	open bool
	last time.Time // when it was closed
}

// restartGrace is how long after a restart the clients may notice it.
const restartGrace = 3 * time.Second

func (w *window) begin() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.open = true
}

func (w *window) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.open, w.last = false, time.Now()
}

// since reports whether a restart was in progress at a time, or is, or has been since.
func (w *window) since(t time.Time) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.open || t.Before(w.last.Add(restartGrace))
}
