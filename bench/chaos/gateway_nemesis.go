//go:build unix

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// upstreamNames are the upstreams: over stdio and HTTP, with sessions (2025-11-25) and without.
var upstreamNames = []string{"s25", "s26", "h25", "h26"}

func isHTTP(upstream string) bool { return upstream[0] == 'h' }

// A remote is an upstream over HTTP: a process that the run starts, and the proxy in front of it.
type remote struct {
	name  string
	proxy *proxy

	mu     sync.Mutex // guards the field below
	server *child
}

func (r *remote) current() *child {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.server
}

// start starts the process. An action at its start may end it: then it is started again.
func (r *remote) start(dir string) error {
	text, err := json.Marshal(upstreamConfig{Dir: dir, Name: r.name, HTTP: true})
	if err != nil {
		return err
	}
	server, err := startProcess(dir, upstreamVariable+"="+string(text))
	if err != nil {
		server, err = startProcess(dir, upstreamVariable+"="+string(text))
	}
	if err != nil {
		return err
	}
	r.mu.Lock()
	r.server = server
	r.mu.Unlock()
	r.proxy.setTarget(server.address.Address)
	return nil
}

// restart starts the process if it has ended.
func (r *remote) restart(dir string) error {
	select {
	case <-r.current().exited:
		return r.start(dir)
	default:
		return nil
	}
}

// startGateway starts the gateway with the state keys of its predecessor.
func (s *gatewayRun) startGateway() error {
	s.generation++
	text, err := json.Marshal(gatewayConfig{Dir: s.dir, Public: s.proxy.url(), File: s.configuration()})
	if err != nil {
		return err
	}
	g, err := startProcess(s.dir, gatewayVariable+"="+string(text))
	if err != nil {
		return err
	}
	s.setGateway(g)
	name := filepath.Join(s.dir, "gateway.pid")
	if err := os.WriteFile(name+".new", []byte(strconv.Itoa(g.cmd.Process.Pid)), 0o600); err != nil {
		return err
	}
	s.proxy.setTarget(g.address.Address)
	return os.Rename(name+".new", name)
}

// Times of the upstreams in the configuration: short, so that a fault ends in an error of the gateway
// before the client's own timeout.
const serverSettings = `{"timeout":"2s","maxTimeout":"4s","startTimeout":"3s","idle":"2s"`

// configuration returns the configuration of the gateway.
func (s *gatewayRun) configuration() []byte {
	program, _ := os.Executable() // run has checked the error
	servers, settings := map[string]any{}, map[string]json.RawMessage{}
	for _, name := range upstreamNames {
		era := "modern"
		if name[1:] == "25" {
			era = "session"
		}
		settings[name] = json.RawMessage(serverSettings + `,"era":"` + era + `"}`)
		if isHTTP(name) {
			servers[name] = map[string]any{"type": "http", "url": s.remotes[name].proxy.url() + "/mcp"}
			continue
		}
		text, _ := json.Marshal(upstreamConfig{Dir: s.dir, Name: name, Generation: s.generation}) // never fails
		env := map[string]string{upstreamVariable: string(text)}
		servers[name] = map[string]any{"command": program, "env": env}
	}
	text, _ := json.Marshal(map[string]any{"mcpServers": servers, "patchbay": map[string]any{"servers": settings}})
	return text
}

// strike makes one fault happen, and returns when it is over and everything serves again.
func (s *gatewayRun) strike(r *rand.Rand) error {
	f := choose(r, func(f gatewayFault) bool { return !s.keepsGateway() || !f.endsGateway() })
	at := s.cells.next(f, r)
	length := minFault + time.Duration(r.Int64N(int64(maxStop-minFault)))
	switch f.action {
	case holdUpstream, holdHTTP:
		length = holdTime
	case halfOpen:
		length += length / 2 // some are longer than the gateway waits
	}
	kind, began := f.action, s.history.now()
	var err error
	if at.step == "" {
		err = s.strikeNow(f.action, at.upstream, length, r)
		s.cells.reach(at)
	} else {
		var reached bool
		if reached, err = s.strikeAt(f.action, plan{s.dir, at.upstream, at.step}, length); reached {
			kind += " at " + at.step
			s.cells.reach(at)
		} else {
			kind = "step was not reached"
			s.cells.putBack(at, r)
		}
	}
	if err != nil {
		return fmt.Errorf("%+v: %w", at, err)
	}
	s.history.fault(fault{Begin: began, End: s.history.now(), Kind: kind})
	for _, r := range s.remotes {
		if err := r.restart(s.dir); err != nil {
			return err
		}
	}
	return nil
}

func (s *gatewayRun) strikeNow(action, upstream string, length time.Duration, r *rand.Rand) error {
	switch action {
	case halfOpen, holdHTTP:
		up, down := r.IntN(3) > 0, r.IntN(3) > 0
		p := s.remotes[upstream].proxy
		p.setMode(proxyMode{stallUp: up || !down, stallDown: down})
		time.Sleep(length)
		if r.IntN(2) == 0 {
			p.reset()
		}
		p.setMode(proxyMode{})
	case clientHalfOpen:
		defer s.history.late.add(length)
		s.proxy.setMode(proxyMode{stallUp: r.IntN(2) == 0, stallDown: true})
		time.Sleep(length)
		if r.IntN(2) == 0 {
			s.proxy.reset()
		}
		s.proxy.setMode(proxyMode{})
	case clientReset:
		s.proxy.reset()
	case resetHTTP:
		s.remotes[upstream].proxy.reset()
	case terminate:
		if err := s.gateway().terminate(); err != nil {
			s.history.violate("residue: the gateway does not exit cleanly", err.Error())
		}
		return s.startGateway()
	}
	return nil
}

// stepTime is how long a fault waits for its step.
const stepTime = 1500 * time.Millisecond

// strikeAt makes an action happen at a step, and repairs what it has broken.
func (s *gatewayRun) strikeAt(action string, p plan, length time.Duration) (reached bool, err error) {
	gateway := s.gateway()
	gateway.expected.Store(action == killGateway)
	if err := p.set(action); err != nil {
		return false, err
	}
	if slices.Contains(startSteps, p.step) {
		if err := s.renew(p.upstream); err != nil {
			return false, err
		}
	}
	for end := time.Now().Add(stepTime); time.Now().Before(end) && p.claimant() == 0; {
		time.Sleep(2 * time.Millisecond)
	}
	pid := p.claimant()
	if err := p.remove(); err != nil {
		return false, err
	}
	if pid == 0 {
		gateway.expected.Store(false)
		return false, nil
	}
	switch action {
	case killUpstream:
		if !isHTTP(p.upstream) {
			break
		}
		// strike starts it again.
		if c := s.remotes[p.upstream].current(); c.cmd.Process.Pid == pid || isOutside(p.step) {
			return true, awaitExit(c)
		}
	case stopUpstream, holdUpstream:
		time.Sleep(length)
		if isOutside(p.step) {
			s.signal(p.upstream, syscall.SIGCONT)
			break
		}
		_ = syscall.Kill(pid, syscall.SIGCONT) // it may have been killed
	case stopGateway:
		defer s.history.late.add(length)
		time.Sleep(length)
		return true, gateway.cmd.Process.Signal(syscall.SIGCONT)
	case killGateway:
		if err := awaitExit(gateway); err != nil {
			return true, err
		}
		time.Sleep(length / 20)
		return true, s.startGateway()
	}
	return true, nil
}

func awaitExit(c *child) error {
	select {
	case <-c.exited:
		return nil
	case <-time.After(startTime):
		return errors.New("a process has not ended after SIGKILL")
	}
}

// renew ends the processes of an upstream, so that a new one starts.
func (s *gatewayRun) renew(upstream string) error {
	s.signal(upstream, syscall.SIGKILL)
	if !isHTTP(upstream) {
		return nil
	}
	if err := awaitExit(s.remotes[upstream].current()); err != nil {
		return err
	}
	return s.remotes[upstream].start(s.dir)
}

// atOpen executes the action of the step at which a client has a question and has not answered.
func (s *gatewayRun) atOpen(upstream string) {
	if !slices.Contains(upstreamNames, upstream) {
		return
	}
	p := plan{s.dir, upstream, stepOpen}
	p.execute(func(signal syscall.Signal) { s.signal(upstream, signal) }, func(error) {}) // it has ended
}
