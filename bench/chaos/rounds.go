package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"
)

// Spans of a round.
const (
	quietTime    = 250 * time.Millisecond // before the faults
	windowTime   = 300 * time.Millisecond // in which success is measured
	windowAge    = 100 * time.Millisecond // between the window and now, for calls to end
	recoveryTime = 5 * time.Second        // from the end of the faults
	leastCalls   = 8                      // in a window
	leastSuccess = 0.95                   // of the ratio before
	maxViolated  = 20                     // violations that end the run
)

// options are the options of a run.
type options struct {
	rounds int
	seed   uint64
	dir    string
	every  int // rounds between two checks of the residue
	out    io.Writer

	replicas int    // processes that share a store; 0 for a single process with files
	engine   string // of the store
	tasks    string // postgres, or empty for tasks in the store
	spaces   bool   // each process has a network namespace
	clocks   bool   // those of the stores are stepped
	expire   bool   // wait until everything in the store has expired
}

// A session is one run of this program.
type session struct {
	options
	history  *history
	proxy    *proxy
	nemesis  *nemesis
	network  *network // nil for the loopback interface
	checker  *checker
	crowd    *crowd
	journal  journalReader
	random   *rand.Rand
	violated int
	base     struct {
		parent  usage
		servers []usage
	}
}

// run runs the rounds. It reports whether no rule was broken.
func run(o options) (passed bool, err error) {
	if o.dir, err = os.MkdirTemp(o.dir, "chaos"); err != nil { // an empty parent means the usual one
		return false, err
	}
	defer func() {
		if passed {
			_ = os.RemoveAll(o.dir)
		}
	}()
	fmt.Fprintf(o.out, "chaos: seed %d, %d rounds, files in %s\n", o.seed, o.rounds, o.dir)
	s := &session{options: o, history: newHistory(), checker: newChecker(), random: rand.New(rand.NewPCG(o.seed, 1))}
	s.journal.path = filepath.Join(o.dir, "journal")
	defer s.close()
	if err := s.start(); err != nil {
		return false, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go s.history.late.measure(ctx)
	for done := 0; done < o.rounds && err == nil && s.violated < maxViolated; done += o.every {
		err = s.stage(ctx, done, min(done+o.every, o.rounds))
	}
	if err == nil {
		err = s.finish(ctx)
	}
	fmt.Fprintf(o.out, "\n%sviolations: %d\n", &s.history.total, s.violated)
	return err == nil && s.violated == 0, err
}

// start starts the proxy and the server and measures what they hold without clients.
func (s *session) start() (err error) {
	if s.proxy, err = newProxy(s.history); err != nil {
		return err
	}
	config := serverConfig{Dir: s.dir, Public: s.proxy.url()}
	if s.spaces {
		if s.network, err = newNetwork(s.replicas); err != nil {
			return err
		}
	}
	s.nemesis = &nemesis{config: config, network: s.network, proxy: s.proxy, history: s.history, kinds: faultKinds}
	s.crowd = &crowd{url: s.proxy.url(), history: s.history, sessions: map[string]string{}}
	if err := addKey(config.file("state.keys")); err != nil {
		return err
	}
	if s.replicas > 0 {
		s.checker.shared = true
		if s.nemesis.redis, err = startRedis(s.engine, s.dir, s); err != nil {
			return err
		}
		s.nemesis.kinds = s.nemesis.redis.faults
		if s.network != nil {
			s.nemesis.kinds = slices.Concat(networkFaults, s.nemesis.kinds)
		}
		if s.tasks == tasksPostgres {
			s.nemesis.kinds = slices.Concat(postgresFaults, s.nemesis.kinds)
			if s.clocks {
				s.nemesis.kinds = slices.Concat(postgresClockFaults, s.nemesis.kinds)
			}
			if s.nemesis.rows, err = startPostgres(s.network.host(), s.clocks); err != nil {
				return err
			}
		}
	}
	for place := range max(s.replicas, 1) {
		if err := s.nemesis.start(place); err != nil {
			return err
		}
	}
	for _, server := range s.nemesis.current() {
		held, err := server.usage()
		if err != nil {
			return err
		}
		s.base.servers = append(s.base.servers, held)
	}
	s.base.parent = ownUsage(&s.history.late)
	return nil
}

// close ends the processes and the proxies.
func (s *session) close() {
	if s.nemesis != nil {
		for _, server := range s.nemesis.current() {
			server.kill()
		}
		if s.nemesis.redis != nil {
			s.nemesis.redis.close()
		}
		if s.nemesis.rows != nil {
			s.nemesis.rows.remove()
		}
	}
	s.network.close()
	if s.proxy != nil {
		s.proxy.close()
	}
}

// stage runs some rounds and then checks that nothing is left of them.
func (s *session) stage(ctx context.Context, from, to int) error {
	began := time.Now()
	before := s.violated
	stop := s.startWorkers(ctx, uint64(from))
	var err error
	for round := from; round < to && err == nil && s.violated < maxViolated; round++ {
		s.crowd.round.Store(int64(round))
		if err = s.round(round); err != nil {
			err = fmt.Errorf("seed %d, round %d: %w", s.seed, round, err)
		}
	}
	stop()
	if err == nil && s.replicas > 0 {
		s.settle(ctx, to)
	}
	if err == nil {
		err = s.judge(to-1, nil)
	}
	s.checkResidue(to - 1)
	if err == nil && s.replicas > 0 {
		err = s.checkKeys(to-1, isOfClients, keysTime)
	}
	keepHistory(s.dir, from, s.violated > before)
	h := s.history
	h.mu.Lock()
	answers := 0
	for _, n := range h.total.answers {
		answers += n
	}
	fmt.Fprintf(s.out, "%s rounds %4d–%4d in %5.1f s: %7d calls so far, %7d answers, %6d typed errors, %5d duplicates, "+
		"%d tasks open, %d violations\n", time.Now().Format(time.TimeOnly), from, to-1, time.Since(began).Seconds(),
		h.total.calls, answers, h.total.calls-answers, h.total.duplicates, s.crowd.unfinishedTasks(), s.violated)
	h.mu.Unlock()
	return err
}

// startWorkers starts all workers. stop ends them and waits.
func (s *session) startWorkers(ctx context.Context, stage uint64) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var all sync.WaitGroup
	number := 0
	start := func(n int, call func(w *worker, ctx context.Context)) {
		for range n {
			w := s.crowd.newWorker(number, s.seed^stage<<32)
			number++
			all.Go(func() { w.run(ctx, func(ctx context.Context) { call(w, ctx) }) })
		}
	}
	start(20, (*worker).call)
	start(4, (*worker).listen)
	start(4, (*worker).authorize)
	start(2, (*worker).replay)
	start(2, (*worker).collect)
	if s.replicas > 0 {
		start(2, (*worker).cancel)
	}
	return func() {
		cancel()
		all.Wait()
	}
}

// round is a quiet time, one or two faults, and the recovery.
func (s *session) round(round int) error {
	before := s.history.now()
	time.Sleep(quietTime)
	var calm [2]time.Duration
	if s.replicas > 0 && round%calmRounds == 0 {
		time.Sleep(settleTime)
		before = s.history.now()
		time.Sleep(calmTime)
		calm = [2]time.Duration{before, s.history.now()}
	}
	answers, all := s.history.success(before, s.history.now()-windowAge)
	if err := s.nemesis.strike(s.random); err != nil {
		return err
	}
	s.history.calm(calm)
	ratio := 1.0
	if all > 0 {
		ratio = float64(answers) / float64(all)
	}
	found := s.recover(ratio)
	for _, server := range s.nemesis.current() {
		if err := server.crashed(); err != nil {
			found = append(found, violation{"lost: the server has exited by itself", []string{err.Error()}})
		}
	}
	return s.judge(round, found)
}

// recover waits until new calls succeed as often as before the faults.
func (s *session) recover(before float64) []violation {
	began, late, limit := s.history.now(), s.totalLateness(), recoveryTime
	if s.replicas > 0 {
		limit = sharedRecovery
	}
	for {
		time.Sleep(windowAge / 2)
		now := s.history.now()
		from := max(began, now-windowAge-windowTime)
		answers, all := s.history.success(from, now-windowAge)
		if all >= leastCalls && float64(answers) >= leastSuccess*before*float64(all) {
			return nil
		}
		if now-began < limit {
			continue
		}
		if excused := s.totalLateness() - late; now-began > limit+excused {
			return []violation{{"liveness: new calls do not succeed as before", []string{fmt.Sprintf(
				"%8.3f %v after the faults, without %v not scheduled, %d of the last %d calls are answered, %.0f %% before",
				now.Seconds(), now-began-excused, excused, answers, all, 100*before)}}}
		}
	}
}

// totalLateness returns how long this process and the server were not scheduled. A server that does
// not say counts as one that just started.
func (s *session) totalLateness() time.Duration {
	total := s.history.late.sum()
	for _, server := range s.nemesis.current() {
		u, _ := server.usage()
		total += u.Late
	}
	return total
}

// judge checks the history since the last check and prints the violations.
func (s *session) judge(round int, found []violation) error {
	b := s.history.take(s.journal.mark)
	var err error
	if b.Runs, err = s.journal.next(); err != nil {
		return err
	}
	b.Direct = append(b.Direct, found...)
	if err := b.appendTo(s.dir); err != nil {
		return err
	}
	s.report(round, s.checker.check(b))
	return nil
}

func (s *session) report(round int, broken []violation) {
	for _, v := range broken {
		s.violated++
		fmt.Fprintf(s.out, "VIOLATION, seed %d, round %d: %v\n", s.seed, round, v)
	}
}

// settle waits until the tasks have ended whose end was not seen.
func (s *session) settle(ctx context.Context, stage int) {
	const collectors = 16
	for end := time.Now().Add(takeoverTime); s.crowd.unfinishedTasks() > 0 && time.Now().Before(end); stage++ {
		var all sync.WaitGroup
		for i := range collectors {
			w := s.crowd.newWorker(1000+i, s.seed^uint64(stage)<<32)
			all.Go(func() {
				w.collect(ctx)
				w.disconnect()
			})
		}
		all.Wait()
	}
}

// finish checks the last notifications, and that no acknowledged task is left without an end.
func (s *session) finish(ctx context.Context) error {
	s.settle(ctx, s.rounds)
	if n := s.crowd.unfinishedTasks(); n > 0 {
		s.report(s.rounds-1, []violation{{"lost: acknowledged tasks have not ended", []string{fmt.Sprintf("%+v",
			s.crowd.tasks)}}})
	}
	if s.replicas > 0 {
		if err := s.measureUpdates(ctx); err != nil {
			return err
		}
	}
	err := s.judge(s.rounds-1, nil)
	if err == nil && s.expire {
		err = s.checkKeys(s.rounds-1, isAny, taskTTL+keysTime)
	}
	return err
}

// Limits of what may be left when all clients have gone.
const (
	residueTime  = 10 * time.Second // for connections and sessions to end
	residueSlack = 8                // goroutines or descriptors, such as those of the runtime and of the store
	linkSlack    = 8                // for each replica: its connections to the shared store open when they are used
)

// checkResidue checks that this process and the server hold what they held at the start.
func (s *session) checkResidue(round int) {
	s.proxy.reset()
	for place, server := range s.nemesis.current() {
		s.checkHeld(round, server, s.base.servers[place])
	}
}

func (s *session) checkHeld(round int, process *child, base usage) {
	var server, parent usage
	var err error
	for end := time.Now().Add(residueTime); ; time.Sleep(100 * time.Millisecond) {
		server, err = process.usage()
		parent = ownUsage(&s.history.late)
		if err == nil && server.within(base, s.replicas) && parent.within(s.base.parent, s.replicas) {
			return
		}
		if time.Now().After(end) {
			break
		}
	}
	stacks, _ := process.get("/stacks")
	s.report(round, []violation{{"residue: more is held than at the start", []string{
		fmt.Sprintf("server %+v, at the start %+v; clients %+v, at the start %+v", server, base, parent,
			s.base.parent), fmt.Sprintf("error %v; stacks of the server: %s", err, stacks),
	}}})
}

func (u usage) within(base usage, replicas int) bool {
	slack := residueSlack + replicas*linkSlack
	return u.Goroutines <= base.Goroutines+slack && u.Descriptors <= base.Descriptors+slack
}
