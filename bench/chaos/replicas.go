package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// replicaCount is the number of processes that share a store.
const replicaCount = 3

// Spans of the rounds of several processes.
const (
	calmRounds     = 4                // each of so many rounds begins with a time without faults
	settleTime     = 3 * time.Second  // before that time
	calmTime       = 4 * time.Second  // of it
	sharedRecovery = 20 * time.Second // from the end of the faults
	takeoverTime   = 3 * time.Minute  // until the tasks of a process that was killed run elsewhere
	keysTime       = 90 * time.Second // until sessions and events have expired
	noticeTime     = 500 * time.Millisecond
	maxSharedStop  = 30 * time.Second
	maxRedisStop   = 5 * time.Second
)

// processFaults are the faults of several processes that share a store.
var processFaults = append([]faultKind{
	{"kill -9 of a process and restart", "process", (*nemesis).killServer},
	{"kill -9 of all processes and restart", "process", (*nemesis).killAll},
	{"SIGTERM of a process and restart", "process", (*nemesis).restartServer},
	{"rolling update", "process", (*nemesis).updateAll},
	{"SIGSTOP of a process, then SIGCONT", "process", (*nemesis).stopOne},
}, connectionFaults...)

// singleFaults are processFaults and the faults of a single Redis, which is behind proxies.
var singleFaults = append([]faultKind{
	{"SIGSTOP of Redis, then SIGCONT", "redis", (*nemesis).stopRedis},
	{"Redis killed and restarted", "redis", (*nemesis).restartRedis},
	{wipeFault, "redis", (*nemesis).wipeRedis},
	{"reset of the connections between a process and Redis", "", (*nemesis).resetLink},
	{"partition between a process and Redis", "", (*nemesis).partition},
	{"slow link between a process and Redis", "", (*nemesis).slowLink},
	{"cut after n bytes between a process and Redis", "", (*nemesis).cutLink},
}, processFaults...)

// within returns a time between minFault and longest, most of them short.
func within(r *rand.Rand, longest time.Duration) time.Duration {
	return time.Duration(float64(minFault) * math.Pow(float64(longest/minFault), math.Pow(r.Float64(), 3)))
}

func (n *nemesis) killAll(_ *rand.Rand, d time.Duration) error {
	all := n.current()
	for _, server := range all {
		server.kill()
	}
	time.Sleep(d / 2)
	return n.startAll(len(all))
}

func (n *nemesis) startAll(count int) error {
	for place := range count {
		if err := n.start(place); err != nil {
			return err
		}
	}
	return nil
}

func (n *nemesis) updateAll(r *rand.Rand, _ time.Duration) error { return n.update(r.IntN(2) == 0) }

// update replaces all processes, one after the other. With notice, the proxy sends a process no more
// requests before it ends.
func (n *nemesis) update(notice bool) error {
	for place, server := range n.current() {
		if notice {
			n.aim(place)
			time.Sleep(noticeTime) // the process accepts the connections that wait
		}
		if err := server.terminate(); err != nil {
			return err
		}
		if err := n.start(place); err != nil {
			return err
		}
	}
	return nil
}

// stopOne stops a process. In half of the cases the proxy learns that after a second, as from a check
// of its health.
func (n *nemesis) stopOne(r *rand.Rand, _ time.Duration) error {
	if signalStop == nil {
		return nil
	}
	place, server := n.pick(r)
	if err := server.cmd.Process.Signal(signalStop); err != nil {
		return err
	}
	d := within(r, maxSharedStop)
	first := d
	if r.IntN(2) == 0 {
		first = min(d, time.Second)
	}
	time.Sleep(first)
	n.aim(place)
	time.Sleep(d - first)
	err := server.cmd.Process.Signal(signalContinue)
	n.aim()
	return err
}

func (n *nemesis) stopRedis(r *rand.Rand, _ time.Duration) error {
	return n.redis.nodes[0].pause(func() error {
		time.Sleep(within(r, maxRedisStop))
		return nil
	})
}

func (n *nemesis) restartRedis(_ *rand.Rand, d time.Duration) error {
	return n.redis.nodes[0].restart(d, false)
}

func (n *nemesis) wipeRedis(_ *rand.Rand, d time.Duration) error {
	err := n.redis.nodes[0].restart(d, true)
	n.history.wipe()
	return err
}

// link returns the proxy between Redis and a process.
func (n *nemesis) link(r *rand.Rand) *proxy { return n.redis.links[r.IntN(len(n.redis.links))] }

func (n *nemesis) resetLink(r *rand.Rand, _ time.Duration) error {
	n.link(r).reset()
	return nil
}

// partition stalls one direction or both for up to 5 seconds.
func (n *nemesis) partition(r *rand.Rand, _ time.Duration) error {
	up := r.IntN(3)
	return n.hurtLink(r, proxyMode{stallUp: up != 1, stallDown: up != 0}, r.IntN(2) == 0)
}

func (n *nemesis) slowLink(r *rand.Rand, _ time.Duration) error {
	return n.hurtLink(r, proxyMode{delay: time.Duration(1+r.IntN(60)) * time.Millisecond}, false)
}

func (n *nemesis) cutLink(r *rand.Rand, _ time.Duration) error {
	return n.hurtLink(r, proxyMode{cutAfter: 200 << r.IntN(6)}, false)
}

func (n *nemesis) hurtLink(r *rand.Rand, m proxyMode, reset bool) error {
	link := n.link(r)
	link.setMode(m)
	time.Sleep(within(r, maxRedisStop))
	if reset {
		link.reset()
	}
	link.setMode(proxyMode{})
	return nil
}

func isOfClients(key string) bool {
	return strings.HasPrefix(key, "patchbay:session:") || strings.HasPrefix(key, "patchbay:events:")
}

func isAny(string) bool { return true }

// checkKeys waits until no key is left in the store, and checks that no key stays forever.
func (s *session) checkKeys(round int, of func(key string) bool, limit time.Duration) error {
	for end := time.Now().Add(limit); ; time.Sleep(time.Second) {
		left, endless, err := s.nemesis.redis.keys()
		if err != nil {
			return err
		}
		left = slices.DeleteFunc(left, func(key string) bool { return !of(key) })
		if rows := s.nemesis.rows; rows != nil {
			tasks, err := rows.leftTasks()
			if err != nil {
				return err
			}
			left = append(left, slices.DeleteFunc(tasks, func(task string) bool { return !of(task) })...)
		}
		if len(endless) > 0 {
			s.report(round, []violation{{"residue: keys without an expiry", endless}})
			return nil
		}
		if len(left) == 0 {
			return nil
		}
		if time.Now().Before(end) {
			continue
		}
		isAsking, err := s.keepStacks()
		if isAsking {
			fmt.Fprintf(s.out, "%d keys are left while a question waits for a client that has gone\n", len(left))
		} else {
			s.report(round, []violation{{"residue: keys are left in the store", left[:min(len(left), 10)]}})
		}
		return err
	}
}

// keepStacks writes the stacks of the processes to files. It reports whether a question waits for its
// client. Such a question keeps its session for 10 minutes, if the client could not end the session,
// nor cancel the call, because the store failed.
func (s *session) keepStacks() (isAsking bool, err error) {
	for place, server := range s.nemesis.current() {
		stacks, failed := server.get("/stacks")
		name := filepath.Join(s.dir, fmt.Sprint("stacks-", place))
		err = errors.Join(err, failed, os.WriteFile(name, []byte(stacks), 0o600))
		isAsking = isAsking || strings.Contains(stacks, "legacy.(*Exchange).askInput")
	}
	return isAsking, err
}

// Sizes of the measurements of updates.
const (
	updates       = 3  // rolling updates, and then processes that are killed
	updateClients = 60 // of both eras
	updateTries   = 6  // of a call that certainly has not run
	quickAnswer   = time.Second
)

// An updateCount counts the calls during an update.
type updateCount struct {
	mu                     sync.Mutex // guards the fields below
	calls, retries, failed int
	errors                 []string
	first                  map[int]time.Duration // answer of a call that began after killed, by worker
	killed                 time.Duration         // zero for not yet
}

// measureUpdates counts the calls and sessions that rolling updates lose, and measures how soon
// sessions go on after a process was killed.
func (s *session) measureUpdates(ctx context.Context) error {
	lost := func() int {
		s.history.mu.Lock()
		defer s.history.mu.Unlock()
		return s.history.total.errors["unsent: session lost"] + s.history.total.errors["unknown: session lost"]
	}
	before := lost()
	for _, notice := range []bool{true, false} {
		var c updateCount
		late := s.history.late.sum()
		s.crowd.round.Add(1) // for new nonces
		stop := s.callSteadily(ctx, &c)
		for range updates {
			time.Sleep(time.Second)
			if err := s.nemesis.update(notice); err != nil {
				return err
			}
		}
		stop()
		fmt.Fprintf(s.out, "%d rolling updates, with notice to the proxy %t: %d calls, %d tries more, %d failed; "+
			"%d sessions lost\n", updates, notice, c.calls, c.retries, c.failed, lost()-before)
		// Without notice, the requests are lost that wait in the queue of the listener that closes. On a
		// busy machine, calls are not answered in time.
		isBusy := s.history.late.sum()-late > busyTime
		if notice && c.failed > 0 && !isBusy || lost() > before {
			s.report(s.rounds, []violation{{"lost: a call or a session during a rolling update", c.errors}})
		}
	}
	answered, soon := 0, 0
	for place := range updates {
		var c updateCount
		s.crowd.round.Add(1)
		stop := s.callSteadily(ctx, &c)
		time.Sleep(time.Second)
		server := s.nemesis.current()[place%s.replicas]
		c.mu.Lock()
		c.killed, c.first = s.history.now(), map[int]time.Duration{}
		c.mu.Unlock()
		server.kill()
		time.Sleep(2 * callTimeout)
		stop()
		for _, d := range c.first {
			answered++
			if d < quickAnswer {
				soon++
			}
		}
		if err := s.nemesis.start(place % s.replicas); err != nil {
			return err
		}
	}
	fmt.Fprintf(s.out, "%d processes killed: of %d sessions, %d answered, %d within %v\n", updates,
		updates*updateClients, answered, soon, quickAnswer)
	return nil
}

// callSteadily makes calls until stop is called. A call that certainly has not run is made again.
func (s *session) callSteadily(ctx context.Context, c *updateCount) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var all sync.WaitGroup
	for number := range updateClients {
		w := s.crowd.newWorker(2000+number, s.seed)
		all.Go(func() { w.run(ctx, func(ctx context.Context) { w.callUntilRun(ctx, c) }) })
	}
	return func() {
		cancel()
		all.Wait()
	}
}

func (w *worker) callUntilRun(ctx context.Context, c *updateCount) {
	if w.connect(ctx) == nil {
		return
	}
	began, nonce, result := w.history.now(), w.nonce(), unsent
	tries, detail := 0, ""
	for ; tries < updateTries && result == unsent; tries++ {
		if tries > 0 {
			w.sleep(ctx, unsentPause)
		}
		a := w.made(ctx, "echo", nonce, callTimeout)
		result, detail = a.Outcome, a.String()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls++
	c.retries += tries - 1
	if result != answered {
		c.failed++
		c.errors = append(c.errors, detail)
	} else if _, known := c.first[w.number]; c.killed > 0 && began >= c.killed && !known {
		c.first[w.number] = w.history.now() - c.killed
	}
}
