//go:build unix

package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Steps of an upstream at which a fault can happen.
const (
	stepStart      = "start"      // the process has begun
	stepInitialize = "initialize" // it has read the first request of a connection
	stepReceived   = "received"   // it has read a call and not run it
	stepCall       = "call"       // the tool runs
	stepProgress   = "progress"   // the tool has sent progress
	stepQuestion   = "question"   // the tool is about to ask
	stepOpen       = "open"       // the client has the question, and has not answered
	stepAnswer     = "answer"     // the tool has the answer
	stepRan        = "ran"        // the effect has happened, and the result is not sent
)

// Actions at a step.
const (
	killUpstream = "kill -9 of upstream"
	stopUpstream = "SIGSTOP of upstream"
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

// taker returns the id of the process that has claimed the action, 0 if there is none.
func (p plan) taker() int {
	text, _ := os.ReadFile(p.claimed() + ".pid")
	pid, _ := strconv.Atoi(string(text))
	return pid
}

// slowTime is how long a slow upstream waits at a step.
const slowTime = 700 * time.Millisecond

// at executes the action of a step, if there is one, and returns its name.
func (u *upstream) at(step string) (action string) {
	action = plan{u.config.Dir, u.config.Name, step}.take()
	switch action {
	case killUpstream:
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		time.Sleep(time.Minute) // the signal arrives before
	case stopUpstream:
		_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
	case killGateway:
		u.signalGateway(syscall.SIGKILL)
	case stopGateway:
		u.signalGateway(syscall.SIGSTOP)
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

func (u *upstream) signalGateway(signal syscall.Signal) {
	pid, err := readPID(u.config.Dir)
	if err == nil {
		err = syscall.Kill(pid, signal)
	}
	if err != nil {
		_ = u.runs.write("failed", "signal", strings.ReplaceAll(fmt.Sprint(err), " ", "_"))
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
