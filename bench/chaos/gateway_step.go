//go:build unix

package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Steps at which a fault can happen: of the gateway, of an upstream, and of a client.
const (
	stepArrived    = "arrived"    // the gateway has read a call
	stepDecided    = "decided"    // it has chosen the server, and has sent nothing
	stepContinued  = "continued"  // it has read a call that comes again, with answers
	stepRecorded   = "recorded"   // it has the result, and the client does not
	stepStart      = "start"      // the process has begun
	stepInitialize = "initialize" // it has read the first request of a connection
	stepReceived   = "received"   // it has read a call and not run it
	stepCall       = "call"       // the tool runs
	stepProgress   = "progress"   // the tool has sent progress
	stepQuestion   = "question"   // the tool is about to ask
	stepOpen       = "open"       // the client has the question, and has not answered
	stepAnswer     = "answer"     // the tool has the answer
	stepRan        = "ran"        // the effect has happened, and the result is not sent
	stepSent       = "sent"       // the result is sent
)

// Steps by the process that reaches them. At those of the gateway and of clients, an action on the
// upstream is one on all of its processes.
var (
	gatewaySteps = []string{stepArrived, stepDecided, stepContinued, stepRecorded}
	startSteps   = []string{stepStart, stepInitialize}
	callSteps    = []string{stepReceived, stepCall, stepProgress, stepQuestion, stepAnswer, stepRan, stepSent}
)

// isOutside reports whether another process than the upstream reaches a step.
func isOutside(step string) bool { return step == stepOpen || slices.Contains(gatewaySteps, step) }

// Actions at a step.
const (
	killUpstream = "kill -9 of upstream"
	stopUpstream = "SIGSTOP of upstream"
	holdUpstream = "SIGSTOP of upstream past the deadline"
	killGateway  = "kill -9 of gateway"
	stopGateway  = "SIGSTOP of gateway"
	waitAtStep   = "slow upstream"
	floodStderr  = "flood of stderr"
	loseSession  = "HTTP 404 of session"
)

// A plan says what happens when a process of an upstream reaches a step. It is a file, so that one
// process of several executes it, and it executes it once.
type plan struct{ dir, upstream, step string }

func (p plan) path() string { return filepath.Join(p.dir, "plan", p.upstream+"."+p.step) }

// claimed is the name of the file after a process has taken it. It then has the id of the process.
func (p plan) claimed() string { return p.path() + ".claimed" }

// set makes an action happen at the step.
func (p plan) set(action string) error {
	if err := p.remove(); err != nil {
		return err
	}
	if err := os.WriteFile(p.path()+".new", []byte(action), 0o600); err != nil {
		return err
	}
	return os.Rename(p.path()+".new", p.path())
}

// remove cancels the action, or forgets that it was claimed.
func (p plan) remove() error {
	for _, name := range []string{p.path(), p.claimed(), p.claimed() + ".pid"} {
		if err := os.Remove(name); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return nil
}

// take returns the action if there is one, and makes sure that no other process gets it.
func (p plan) take() string {
	if os.Rename(p.path(), p.claimed()) != nil {
		return ""
	}
	action, _ := os.ReadFile(p.claimed())
	_ = os.WriteFile(p.claimed()+".pid.new", strconv.AppendInt(nil, int64(os.Getpid()), 10), 0o600)
	_ = os.Rename(p.claimed()+".pid.new", p.claimed()+".pid")
	return string(action)
}

// claimant returns the id of the process that has claimed the action, 0 before that.
func (p plan) claimant() int {
	text, _ := os.ReadFile(p.claimed() + ".pid")
	pid, _ := strconv.Atoi(string(text))
	return pid
}

// slowTime is how long a slow upstream waits at a step.
const slowTime = 700 * time.Millisecond

// execute takes the action of a step, executes it, and returns its name. target gets the signals that
// are for the upstream, and failed the error of one for the gateway.
func (p plan) execute(target func(syscall.Signal), failed func(error)) (action string) {
	action = p.take()
	switch action {
	case killUpstream:
		target(syscall.SIGKILL)
	case stopUpstream, holdUpstream:
		target(syscall.SIGSTOP)
	case killGateway:
		signalGateway(p.dir, syscall.SIGKILL, failed)
	case stopGateway:
		signalGateway(p.dir, syscall.SIGSTOP, failed)
	case waitAtStep:
		time.Sleep(slowTime)
	case floodStderr:
		line := strings.Repeat("x", 1000) + "\n"
		for range 8000 {
			_, _ = os.Stderr.WriteString(line)
		}
	}
	return action
}

// at executes the action of a step of an upstream.
func (u *upstream) at(step string) (action string) {
	return plan{u.config.Dir, u.config.Name, step}.execute(func(signal syscall.Signal) {
		_ = syscall.Kill(os.Getpid(), signal)
		if signal == syscall.SIGKILL {
			time.Sleep(time.Minute) // the signal arrives before
		}
	}, func(err error) {
		_ = u.runs.write("failed", "signal", strings.ReplaceAll(fmt.Sprint(err), " ", "_"))
	})
}

func signalGateway(dir string, signal syscall.Signal, failed func(error)) {
	pid, err := readPID(dir)
	if err == nil {
		err = syscall.Kill(pid, signal)
	}
	if err != nil {
		failed(err)
	}
}

// readPID returns the process id of the gateway.
func readPID(dir string) (int, error) {
	text, err := os.ReadFile(filepath.Join(dir, "gateway.pid"))
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(string(text))
}
