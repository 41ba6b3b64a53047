//go:build unix

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// A gatewayRun is one run of this program with a gateway.
type gatewayRun struct {
	options
	history    *history
	checker    *gatewayChecker
	journal    journalReader
	proxy      *proxy // in front of the gateway
	remotes    map[string]*remote
	cells      *gatewayCells
	random     *rand.Rand
	round      atomic.Int64
	generation int                  // of the gateway
	orphans    map[orphan]time.Time // since when a process is known as one
	guards     map[int]int          // the generation of each guard process
	violated   int
	base       struct{ parent, gateway usage }

	mu      sync.Mutex // guards the fields below
	process *child     // the gateway
	last    map[lastKey]time.Duration
}

// A lastKey is a worker and an upstream.
type lastKey struct {
	worker   int
	upstream string
}

func (s *gatewayRun) gateway() *child {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.process
}

func (s *gatewayRun) setGateway(c *child) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.process = c
}

// answered records when an upstream has answered a worker.
func (s *gatewayRun) answered(worker int, upstream string) {
	now := s.history.now()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last[lastKey{worker, upstream}] = now
}

// runGateway runs the rounds. It reports whether no rule was broken.
func runGateway(o options) (passed bool, err error) {
	if _, err := os.Executable(); err != nil {
		return false, err
	}
	if o.dir, err = os.MkdirTemp(o.dir, "chaos"); err != nil {
		return false, err
	}
	defer func() {
		if passed {
			_ = os.RemoveAll(o.dir)
		}
	}()
	fmt.Fprintf(o.out, "chaos of a gateway: seed %d, %d rounds, files in %s\n", o.seed, o.rounds, o.dir)
	s := &gatewayRun{options: o, history: newHistory(), checker: newGatewayChecker(), remotes: map[string]*remote{},
		cells:  newGatewayCells(),
		random: rand.New(rand.NewPCG(o.seed, 2)), last: map[lastKey]time.Duration{}, orphans: map[orphan]time.Time{},
		guards: map[int]int{}}
	s.journal.path = filepath.Join(o.dir, "journal")
	defer s.close()
	if err := s.start(); err != nil {
		return false, err
	}
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	go s.history.late.measure(ctx)
	for done := 0; done < o.rounds && err == nil && s.violated < maxViolated; done += o.every {
		err = s.stage(ctx, done, min(done+o.every, o.rounds))
	}
	fmt.Fprintf(o.out, "\nrounds: %d\n%s%slongest:\n%sviolations: %d\n",
		s.round.Load()+1, s.cells, &s.history.total, s.checker.slowest(), s.violated)
	return err == nil && s.violated == 0, err
}

// close ends what an error has left running.
func (s *gatewayRun) close() {
	defer func() {
		for _, p := range s.processes() {
			_ = syscall.Kill(p.pid, syscall.SIGKILL)
		}
	}()
	if g := s.gateway(); g != nil {
		g.kill()
	}
	for _, r := range s.remotes {
		if c := r.current(); c != nil {
			c.kill()
		}
		r.proxy.close()
	}
	if s.proxy != nil {
		s.proxy.close()
	}
}

// start starts the upstreams over HTTP, the proxies and the gateway.
func (s *gatewayRun) start() (err error) {
	if err := os.Mkdir(filepath.Join(s.dir, "plan"), 0o700); err != nil {
		return err
	}
	if err := addKey(filepath.Join(s.dir, "state.keys")); err != nil {
		return err
	}
	for _, name := range upstreamNames {
		if !isHTTP(name) {
			continue
		}
		r := &remote{name: name}
		if r.proxy, err = newProxy(s.history); err != nil {
			return err
		}
		s.remotes[name] = r
		if err := r.start(s.dir); err != nil {
			return err
		}
	}
	if s.proxy, err = newProxy(s.history); err != nil {
		return err
	}
	if err := s.startGateway(); err != nil {
		return err
	}
	if s.base.gateway, err = s.gateway().usage(); err != nil {
		return err
	}
	s.base.parent = ownUsage(&s.history.late)
	return nil
}

// stage runs some rounds, waits until everything serves again, and checks that nothing is left.
func (s *gatewayRun) stage(ctx context.Context, from, to int) error {
	began, before := time.Now(), s.violated
	working, cancel := context.WithCancel(ctx)
	defer cancel()
	var all sync.WaitGroup
	workers := gatewayPrincipals * len(downstreams)
	for n := range workers {
		w := s.newWorker(n, s.seed^uint64(from)<<32)
		all.Go(func() { w.run(working) })
	}
	var err error
	for round := from; round < to && err == nil && s.violated < maxViolated; round++ {
		if ctx.Err() != nil { // close ends the processes, also those that are stopped
			return context.Cause(ctx)
		}
		s.round.Store(int64(round))
		if err = s.oneRound(); err != nil {
			err = fmt.Errorf("seed %d, round %d: %w", s.seed, round, err)
		}
	}
	if err == nil {
		s.recover(workers)
	}
	cancel()
	all.Wait()
	if err == nil {
		s.checkResidue()
		s.endGateway()
		s.checkLog()
		if err = s.judge(nil); err == nil {
			err = s.startGateway()
		}
	}
	keepHistory(s.dir, from, s.violated > before || err != nil)
	s.progress(from, to-1, time.Since(began))
	return err
}

func (s *gatewayRun) progress(from, to int, took time.Duration) {
	h := s.history
	h.mu.Lock()
	defer h.mu.Unlock()
	answers := 0
	for _, n := range h.total.answers {
		answers += n
	}
	fmt.Fprintf(s.out, "%s rounds %4d–%4d in %5.1f s: %7d calls so far, %7d answers, %6d typed errors, "+
		"%d violations\n", time.Now().Format(time.TimeOnly), from, to, took.Seconds(),
		h.total.calls, answers, h.total.calls-answers, s.violated)
}

// keepsGateway reports whether one gateway serves the whole stage, as in one of three, so that what
// each fault leaves behind adds up before the residue is checked.
func (s *gatewayRun) keepsGateway() bool { return int(s.round.Load())/s.every%3 == 1 }

// roundPause is the time between two faults, in which calls begin.
const roundPause = 120 * time.Millisecond

// oneRound is a quiet time and one fault.
func (s *gatewayRun) oneRound() error {
	time.Sleep(time.Duration(s.random.Int64N(int64(roundPause))))
	s.noteGuards()
	if err := s.strike(s.random); err != nil {
		return err
	}
	var found []violation
	if err := s.gateway().crashed(); err != nil {
		found = append(found, violation{"lost: the gateway has exited by itself", []string{err.Error()}})
	}
	return s.judge(append(found, s.checkOrphans()...))
}

// serveTime is how long it may take after the last fault until every upstream answers every worker:
// longer than the longest delay of a start that a request waits for.
const serveTime = 30 * time.Second

// recover waits until every upstream answers every worker again.
func (s *gatewayRun) recover(workers int) {
	began, late := s.history.now(), s.history.late.sum()
	for {
		time.Sleep(windowAge / 2)
		var missing []string
		s.mu.Lock()
		for n := range workers {
			for _, name := range upstreamNames {
				if s.last[lastKey{n, name}] < began {
					missing = append(missing, fmt.Sprintf("%s to worker %d", name, n))
				}
			}
		}
		s.mu.Unlock()
		if len(missing) == 0 {
			return
		}
		if s.history.now()-began > serveTime+s.history.late.sum()-late {
			stacks, _ := s.gateway().get("/stacks")
			s.history.violate("liveness: upstreams do not answer after the faults", fmt.Sprint(missing, "\n", stacks))
			return
		}
	}
}

// judge checks the history since the last check and prints the violations.
func (s *gatewayRun) judge(found []violation) error {
	b := s.history.take(s.journal.mark)
	var err error
	if b.Runs, err = s.journal.next(); err != nil {
		return err
	}
	b.Direct = append(b.Direct, found...)
	if err := b.appendTo(s.dir); err != nil {
		return err
	}
	for _, v := range s.checker.check(b) {
		s.violated++
		fmt.Fprintf(s.out, "VIOLATION, seed %d, round %d: %v\n", s.seed, s.round.Load(), v)
	}
	return nil
}

// checkResidue stops the servers of the gateway, and checks that it and this process hold what they
// held at the start. Idle instances are no measure: those that have asked are kept for 10 minutes.
func (s *gatewayRun) checkResidue() {
	s.proxy.reset()
	failed := s.gateway().post("/stop")
	for end := time.Now().Add(residueTime); ; time.Sleep(100 * time.Millisecond) {
		var u gatewayUsage
		body, err := s.gateway().get("/usage")
		if err == nil {
			err = json.Unmarshal([]byte(body), &u)
		}
		left := 0
		for _, p := range s.processes() {
			if !p.config.HTTP {
				left++
			}
		}
		_, children := guards(s.gateway().cmd.Process.Pid)
		left += children
		parent := ownUsage(&s.history.late)
		if err == nil && failed == nil && u.Instances+u.Suspended+left == 0 && u.within(s.base.gateway, 0) &&
			parent.within(s.base.parent, 0) {
			return
		}
		if time.Now().After(end) {
			stacks, _ := s.gateway().get("/stacks")
			s.history.violate("residue: more is held than at the start", fmt.Sprintf(
				"errors %v, %v, gateway %+v, at the start %+v; %d processes; clients %+v, at the start %+v; %s",
				failed, err, u, s.base.gateway, left, parent, s.base.parent, stacks))
			return
		}
	}
}

// checkLog checks what the processes have printed to standard error for panics and data races.
func (s *gatewayRun) checkLog() {
	name := filepath.Join(s.dir, "server.log")
	text, err := os.ReadFile(name)
	for _, mark := range []string{"panic", "DATA RACE"} {
		if i := bytes.Index(text, []byte(mark)); i >= 0 {
			s.history.violate("lost: a process reports a "+mark, string(text[i:min(len(text), i+8<<10)]))
		}
	}
	if err = errors.Join(err, os.Truncate(name, 0)); err != nil {
		s.history.violate("lost: the log cannot be read", err.Error())
	}
}

// endGateway ends the gateway by SIGTERM, and checks that no process is left.
func (s *gatewayRun) endGateway() {
	if err := s.gateway().terminate(); err != nil {
		s.history.violate("residue: the gateway does not exit cleanly", err.Error())
	}
	for _, p := range s.processes() {
		if !p.config.HTTP {
			_ = syscall.Kill(p.pid, syscall.SIGKILL)
			s.history.violate("residue: a process has outlived its gateway", fmt.Sprintf("%+v", p))
		}
	}
}
