package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/patchbay-mcp/patchbay/oauth/authserver"
)

// A nemesis starts the server, hurts it and what lies between it and its clients, and repairs both.
type nemesis struct {
	config  serverConfig
	proxy   *proxy
	history *history
	network *network
	redis   *redisStore     // nil for a single process
	rows    *postgresServer // nil for tasks in Redis
	kinds   []faultKind

	mu      sync.Mutex // guards the fields below
	servers []*child
	starts  int
}

// A faultKind is something that the nemesis does for a while.
type faultKind struct {
	name string
	of   string // what it ends or stops: at most one fault of each at a time; empty for connections
	run  func(n *nemesis, r *rand.Rand, d time.Duration) error
}

// connectionFaults happen between the clients and the server.
var connectionFaults = []faultKind{
	{"reset of all connections", "", (*nemesis).resetOnce},
	{"storm of resets", "", (*nemesis).resetStorm},
	{"one-way cut to the server", "", (*nemesis).cutUp},
	{"one-way cut to the clients", "", (*nemesis).cutDown},
	{"stall of both directions", "", (*nemesis).stall},
	{"cut after n bytes", "", (*nemesis).cutBytes},
	{"new connections refused", "", (*nemesis).refuse},
	{"POSTs delivered twice", "", (*nemesis).duplicate},
	{"POSTs retried by the proxy", "", (*nemesis).retry},
}

// faultKinds are the faults of a single process.
var faultKinds = append([]faultKind{
	{"kill -9 and restart", "process", (*nemesis).killServer},
	{"SIGTERM and restart", "process", (*nemesis).restartServer},
	{"SIGSTOP, then SIGCONT", "process", (*nemesis).stopServer},
	{"rotation of the keys", "", (*nemesis).rotate},
}, connectionFaults...)

// Limits of the duration of a fault.
const (
	minFault = 100 * time.Millisecond
	maxFault = 700 * time.Millisecond
	maxStop  = 2 * time.Second
)

// strike runs one or two faults and returns when they are over and the server serves again.
func (n *nemesis) strike(r *rand.Rand) error {
	chosen := []faultKind{n.kinds[r.IntN(len(n.kinds))]}
	if r.IntN(2) == 0 {
		second := n.kinds[r.IntN(len(n.kinds))]
		if second.name != chosen[0].name && (second.of == "" || second.of != chosen[0].of) {
			chosen = append(chosen, second)
		}
	}
	errs := make([]error, len(chosen))
	var all sync.WaitGroup
	for i, kind := range chosen {
		d := minFault + time.Duration(r.Int64N(int64(maxFault-minFault)))
		own := rand.New(rand.NewPCG(r.Uint64(), 0)) // each fault has its own, so that the seed decides
		all.Go(func() {
			f := fault{Begin: n.history.now(), Kind: kind.name}
			errs[i] = kind.run(n, own, d)
			f.End = n.history.now()
			n.history.fault(f)
		})
	}
	all.Wait()
	n.proxy.setMode(proxyMode{})
	if n.redis != nil {
		n.redis.repair()
	}
	for i, err := range errs {
		if err != nil {
			return fmt.Errorf("%s: %w", chosen[i].name, err)
		}
	}
	return nil
}

// start starts the process at a place. Every second start is one without a grace period of refresh
// tokens.
func (n *nemesis) start(place int) error {
	config := n.config
	n.mu.Lock()
	n.starts++
	config.Strict = n.starts%2 == 0
	n.mu.Unlock()
	server, err := n.startAgain(config, place)
	if err != nil {
		return err
	}
	n.mu.Lock()
	n.servers = slices.Grow(n.servers, 1)[:max(len(n.servers), place+1)]
	n.servers[place] = server
	n.mu.Unlock()
	n.aim()
	return nil
}

// startAgain starts a process, several times if Redis may fail meanwhile.
func (n *nemesis) startAgain(config serverConfig, place int) (server *child, err error) {
	config.Host, config.Before = n.network.own(place)
	if n.redis == nil {
		return startChild(config)
	}
	config.Redis = n.redis.url(place)
	if n.rows != nil {
		config.Tasks = n.rows.url()
	}
	const busy = 3 // the other fault and other programs may take the time
	for end := time.Now().Add(busy * startTime); ; {
		if server, err = startChild(config); err == nil || time.Now().After(end) {
			return server, err
		}
	}
}

// aim makes the proxy use all processes, except those at some places.
func (n *nemesis) aim(except ...int) {
	var addresses []string
	for place, server := range n.current() {
		if !slices.Contains(except, place) {
			addresses = append(addresses, server.address.Address)
		}
	}
	n.proxy.setTarget(addresses...)
}

func (n *nemesis) current() []*child {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.servers)
}

// pick returns a process and its place.
func (n *nemesis) pick(r *rand.Rand) (place int, server *child) {
	all := n.current()
	place = r.IntN(len(all))
	return place, all[place]
}

func (n *nemesis) killServer(r *rand.Rand, d time.Duration) error {
	place, server := n.pick(r)
	time.Sleep(d / 2)
	server.kill()
	time.Sleep(d / 4)
	return n.start(place)
}

func (n *nemesis) restartServer(r *rand.Rand, _ time.Duration) error {
	place, server := n.pick(r)
	if err := server.terminate(); err != nil {
		return err
	}
	return n.start(place)
}

func (n *nemesis) stopServer(r *rand.Rand, _ time.Duration) error {
	if signalStop == nil {
		return nil
	}
	_, server := n.pick(r)
	process := server.cmd.Process
	if err := process.Signal(signalStop); err != nil {
		return err
	}
	time.Sleep(minFault + time.Duration(r.Int64N(int64(maxStop-minFault))))
	return process.Signal(signalContinue)
}

func (n *nemesis) resetOnce(*rand.Rand, time.Duration) error {
	n.proxy.reset()
	return nil
}

func (n *nemesis) resetStorm(r *rand.Rand, d time.Duration) error {
	for end := time.Now().Add(d); time.Now().Before(end); {
		n.proxy.reset()
		time.Sleep(time.Duration(5+r.IntN(40)) * time.Millisecond)
	}
	return nil
}

// during applies a mode for a while. Some faults end with a reset, as if the partition had outlived
// the connections.
func (n *nemesis) during(d time.Duration, reset bool, set func(m *proxyMode, on bool)) error {
	n.proxy.change(func(m *proxyMode) { set(m, true) })
	time.Sleep(d)
	if reset {
		n.proxy.reset()
	}
	n.proxy.change(func(m *proxyMode) { set(m, false) })
	return nil
}

func (n *nemesis) cutUp(r *rand.Rand, d time.Duration) error {
	return n.during(d, r.IntN(2) == 0, func(m *proxyMode, on bool) { m.stallUp = on })
}

func (n *nemesis) cutDown(r *rand.Rand, d time.Duration) error {
	return n.during(d, r.IntN(2) == 0, func(m *proxyMode, on bool) { m.stallDown = on })
}

func (n *nemesis) stall(r *rand.Rand, d time.Duration) error {
	return n.during(d, r.IntN(4) == 0, func(m *proxyMode, on bool) { m.stallUp, m.stallDown = on, on })
}

func (n *nemesis) cutBytes(r *rand.Rand, d time.Duration) error {
	most := 200 << r.IntN(6)
	return n.during(d, false, func(m *proxyMode, on bool) {
		if m.cutAfter = 0; on {
			m.cutAfter = most
		}
	})
}

func (n *nemesis) refuse(_ *rand.Rand, d time.Duration) error {
	return n.during(d, true, func(m *proxyMode, on bool) { m.refuse = on })
}

func (n *nemesis) duplicate(_ *rand.Rand, d time.Duration) error {
	return n.during(d, false, func(m *proxyMode, on bool) { m.duplicate = on })
}

func (n *nemesis) retry(_ *rand.Rand, d time.Duration) error {
	return n.during(d, false, func(m *proxyMode, on bool) { m.retry = on })
}

// rotate replaces the keys of request state while the server runs, and those of the authorization
// server for its next start.
func (n *nemesis) rotate(_ *rand.Rand, d time.Duration) error {
	time.Sleep(d / 2)
	if err := addKey(filepath.Join(n.config.Dir, "state.keys")); err != nil {
		return err
	}
	const all = 1000 // old keys still open what was sealed with them
	if err := authserver.RotateSealKeys(filepath.Join(n.config.Dir, "seal.keys"), all); err != nil {
		return err
	}
	err := n.current()[0].rotate()
	if _, ok := errors.AsType[*url.Error](err); ok {
		return nil // the other fault has ended the server, which reads the file when it starts
	}
	return err
}
