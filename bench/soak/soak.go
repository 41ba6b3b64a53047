package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcphttp"
)

// A config is what a run of the soak is asked for.
type config struct {
	program  string // this program, which is also the servers
	duration time.Duration
	calls    int64         // at least
	rate     float64       // of calls per second, planned
	restart  time.Duration // between two restarts of the servers
	quiet    time.Duration // between two quiet points
	log      io.Writer     // of JSON lines
	out      io.Writer
}

// maxOvertime bounds a run on a busy machine that makes its calls late, in durations.
const maxOvertime = 2

const scheduleInterval = 200 * time.Millisecond

// A soak is one run.
type soak struct {
	config
	operations []operation
	began      time.Time
	gate       sync.RWMutex // read by every operation; locked at a quiet point
	server     *serverProcess
	memory     atomic.Pointer[mcp.Server] // of the clients in memory
	clients    []*client
	kept       keptConns // connections that outlive their attack
	restarted  window
	stalls     stalls
	results    results
	all        []*series
	phase      int // quiet points since the last restart

	mu       sync.Mutex // guards the fields below
	failures int
	encoder  *json.Encoder
}

// maxFailures is the number of failures that are printed.
const maxFailures = 100

// fail records that the soak has failed. It continues, since the rest is worth knowing.
func (s *soak) fail(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failures++; s.failures <= maxFailures {
		fmt.Fprintf(s.out, "FAIL at %v: %s\n", time.Since(s.began).Round(time.Millisecond), fmt.Sprintf(format, args...))
	}
}

// A record is one line of the log.
type record struct {
	Kind     string            `json:"kind"` // second or quiet
	At       float64           `json:"at"`   // seconds
	Calls    int64             `json:"calls"`
	Failures int               `json:"failures"`
	Stalled  float64           `json:"stalled"`          // seconds in which the processes could not run
	Errors   map[string]int64  `json:"errors,omitempty"` // explained by faults, since the start
	P50      float64           `json:"p50"`              // milliseconds, of the probe calls since the last record
	P999     float64           `json:"p999"`             // of a second or a minute
	Samples  map[string]sample `json:"samples"`          // by process
}

func (s *soak) write(kind string, samples map[string]sample) record {
	probes := s.results.takeProbes(kind == "quiet")
	r := record{
		Kind: kind, At: time.Since(s.began).Seconds(), Calls: s.results.calls.Load(), Errors: s.results.errors(), Stalled: s.stalls.sum().Seconds(),
		P50: quantile(probes, 0.5), P999: quantile(probes, 0.999), Samples: samples,
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	r.Failures = s.failures
	_ = s.encoder.Encode(r)
	return r
}

// run runs the soak. The error says why it has failed.
func (s *soak) run(ctx context.Context) error {
	s.encoder, s.operations = json.NewEncoder(s.log), operations()
	s.memory.Store(newServer())
	var err error
	if s.server, err = startServer(s.program); err != nil {
		return err
	}
	s.began = time.Now()
	base, err := s.base(ctx)
	if err != nil {
		return errors.Join(err, s.server.stop())
	}
	calling, stopCalls := context.WithTimeout(ctx, maxOvertime*s.duration)
	defer stopCalls()
	var running sync.WaitGroup
	s.start(calling, &running)
	err = s.schedule(calling)
	stopCalls()
	running.Wait()
	s.kept.close()
	return s.verdict(errors.Join(err, s.residue(ctx, base), s.server.stop()))
}

// base measures the processes before the clients start. A call has been made before, so that what
// is started once exists.
func (s *soak) base(ctx context.Context) (map[string]sample, error) {
	if err := s.probe(ctx, func(c *mcp.Client) {}); err != nil {
		return nil, err
	}
	time.Sleep(100 * time.Millisecond)
	remote, err := s.server.command(commandQuiet)
	return map[string]sample{"clients": measureQuiet(), "server": remote.Sample}, err
}

// probe connects a client without faults for the time of f.
func (s *soak) probe(ctx context.Context, f func(c *mcp.Client)) error {
	transport := mcphttp.NewTransport("http://"+s.server.address+"/mcp", &mcphttp.TransportOptions{Logger: newLogger()})
	c, err := mcp.Connect(ctx, transport, &mcp.ClientOptions{Logger: newLogger()})
	if err != nil {
		return err
	}
	f(c)
	return c.Close()
}

// probePause is the time between two probe calls.
const probePause = 10 * time.Millisecond

// runProbe measures the time of calls at a steady pace.
func (s *soak) runProbe(ctx context.Context, c *mcp.Client) {
	for sleep(ctx, probePause) == nil {
		s.gate.RLock()
		began := time.Now()
		res, err := c.CallTool(ctx, "echo", nonceArgs{"probe"})
		took := time.Since(began)
		s.gate.RUnlock()
		switch {
		case err == nil && res.Text() == "probe ":
			s.results.probe(took)
		case ctx.Err() == nil && (err == nil || !s.restarted.since(began) && !s.stalls.since(began)):
			s.fail("probe: %v", err)
		}
	}
}

// start starts all clients.
func (s *soak) start(ctx context.Context, running *sync.WaitGroup) {
	for _, p := range populations() {
		for i := range p.clients {
			c := &client{soak: s, combination: p.combination, id: len(s.clients)}
			c.interval = time.Duration(float64(time.Second) * float64(p.clients) / (s.rate * p.share))
			c.steady = i == 0 && p.combination.transport == overStdio
			s.clients = append(s.clients, c)
			running.Go(func() { c.run(ctx) })
		}
	}
	for i := range hostileHTTP {
		h := &hostileClient{s, i}
		running.Go(func() { h.run(ctx, attackPause, h.attackHTTP) })
	}
	stdio, memory := &hostileClient{s, hostileHTTP}, &hostileClient{s, hostileHTTP + hostileStdio}
	running.Go(func() { stdio.run(ctx, stdioPause, stdio.attackStdio) })
	running.Go(func() { memory.run(ctx, attackPause, memory.attackMemory) })
	running.Go(func() { s.recordSeconds(ctx) })
	running.Go(func() { s.stalls.run(ctx, s.server.age) })
	running.Go(func() {
		if err := s.probe(ctx, func(c *mcp.Client) { s.runProbe(ctx, c) }); err != nil {
			s.fail("probe: %v", err)
		}
	})
}

// recordSeconds writes a record each second.
func (s *soak) recordSeconds(ctx context.Context) {
	for sleep(ctx, time.Second) == nil {
		s.write("second", map[string]sample{"clients": measure(), "server": s.server.sample()})
	}
}

// schedule measures at quiet points and restarts the servers, until the time is over and the calls
// are made.
func (s *soak) schedule(ctx context.Context) error {
	quietAt, restartAt, end := s.began.Add(s.quiet), s.began.Add(s.restart), s.began.Add(s.duration)
	for sleep(ctx, scheduleInterval) == nil && (time.Now().Before(end) || s.results.calls.Load() < s.calls) {
		if time.Now().Before(quietAt) {
			continue
		}
		quietAt = quietAt.Add(s.quiet)
		if err := s.quietPoint(); err != nil {
			return err
		}
		if time.Now().After(restartAt) {
			restartAt = restartAt.Add(s.restart)
			if err := s.restartServers(); err != nil {
				return err
			}
		}
	}
	return nil
}

// quietTime is how long the processes are idle before they are measured at a quiet point.
const quietTime = time.Second

// quietPoint waits until all operations are over and lets none begin, then measures. It closes idle
// and kept connections first: their number depends on the speed of the machine and on chance.
func (s *soak) quietPoint() error {
	began := time.Now()
	s.gate.Lock()
	defer s.gate.Unlock()
	paused := time.Since(began)
	for _, c := range s.clients {
		c.closeConnections()
	}
	s.kept.close()
	time.Sleep(quietTime)
	remote, err := s.server.command(commandQuiet)
	if err != nil {
		return err
	}
	samples := map[string]sample{"clients": measureQuiet(), "server": remote.Sample}
	for _, c := range s.clients {
		if c.steady && c.conn != nil {
			ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
			child, err := mcp.CallTool[sample](ctx, c.conn, "measure", nil)
			cancel()
			if err != nil {
				s.fail("measure %v: %v", c.combination, err)
				continue
			}
			samples[c.combination.String()] = child
		}
	}
	r := s.write("quiet", samples)
	s.observe(samples)
	fmt.Fprintf(s.out, "%6.0fs %9d calls %6.0f/s  p50 %.2f ms  p99.9 %.1f ms  paused %v  clients: %v  server: %v\n",
		r.At, r.Calls, float64(r.Calls)/r.At, r.P50, r.P999, paused.Round(time.Millisecond), samples["clients"], remote.Sample)
	return nil
}

func (m sample) String() string {
	return fmt.Sprintf("%d goroutines, %d descriptors, %.1f MB live, %.0f MB resident",
		m.Goroutines, m.Descriptors, float64(m.Heap)/1e6, float64(m.Resident)/1e6)
}

// restartServers shuts the server over HTTP down gracefully and starts another handler, and
// replaces the server in memory.
func (s *soak) restartServers() error {
	s.phase = 0
	s.restarted.begin()
	defer s.restarted.end()
	s.memory.Store(newServer())
	began := time.Now()
	m, err := s.server.command(commandRestart)
	fmt.Fprintf(s.out, "%6.0fs restarted in %v, connections closed that were not read: %v\n",
		time.Since(s.began).Seconds(), time.Since(began).Round(time.Millisecond), m.Forced)
	return err
}

// residueTime is how long after the last call goroutines and connections may take to end.
const residueTime = 45 * time.Second

// residueSlack is the number of goroutines and of descriptors that the runtime and package net may
// keep once they were needed.
const residueSlack = 3

// residue returns an error if goroutines or descriptors remain after the clients have closed.
func (s *soak) residue(ctx context.Context, base map[string]sample) error {
	var failed error
	for end := time.Now().Add(residueTime); ; {
		remote, err := s.server.command(commandQuiet)
		if err != nil {
			return err
		}
		failed = nil
		for name, now := range map[string]sample{"clients": measureQuiet(), "server": remote.Sample} {
			before := base[name]
			if now.Goroutines > before.Goroutines+residueSlack || now.Descriptors > before.Descriptors+residueSlack {
				failed = errors.Join(failed, fmt.Errorf("residue in %s: %v; before the calls: %v", name, now, before))
			}
			if failed == nil || time.Now().After(end) {
				fmt.Fprintf(s.out, "after the calls, %s: %v; before: %v\n", name, now, before)
			}
		}
		if failed == nil || time.Now().After(end) || sleep(ctx, 500*time.Millisecond) != nil {
			return failed
		}
	}
}

// exit returns the status of the process for an error, which it prints.
func exit(err error) int {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}
