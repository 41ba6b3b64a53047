// Package examine runs the checks that find out why a store does not work.
package examine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/patchbay-mcp/patchbay/stores/check"
)

const (
	// Timeout limits a step of a check, also with a server that does not answer.
	Timeout = 5 * time.Second
	// Operations is the number of operations whose latency is measured.
	Operations = 100
	// maxClockSkew is the difference of clocks after which a check warns.
	maxClockSkew = 5 * time.Second
)

// A Checker runs checks one after the other.
type Checker struct {
	Context   context.Context //nolint:containedctx // of the whole run
	Report    func(check.Finding)
	Connected bool   // the login succeeded: a failed check does not stop the others
	failed    string // the check that failed before the login
}

// A Probe is a check that runs.
type Probe struct{ check.Finding }

// Run runs a check unless a check before the login failed.
func (c *Checker) Run(name, action string, look func(p *Probe)) {
	p := &Probe{check.Finding{Name: name, Status: check.OK, Action: action}}
	if c.failed != "" {
		p.Status, p.Seen = check.Skipped, []string{c.failed + " failed"}
	} else {
		began := time.Now()
		look(p)
		p.Took = time.Since(began)
	}
	if p.Status == check.Fail && !c.Connected {
		c.failed = name
	}
	c.Report(p.Finding)
}

// Step returns a context for a step of a check.
func (c *Checker) Step() (context.Context, context.CancelFunc) {
	return context.WithTimeout(c.Context, Timeout)
}

// See adds an observation.
func (p *Probe) See(format string, args ...any) {
	p.Seen = append(p.Seen, fmt.Sprintf(format, args...))
}

// Warn ends a check with a warning, and an instruction for the operator. It does not replace a failure.
func (p *Probe) Warn(next string) {
	if p.Status != check.Fail {
		p.Status, p.Next = check.Warn, next
	}
}

// Fail ends a check with a failure, and an instruction for the operator. The first failure remains.
func (p *Probe) Fail(next string) {
	if p.Status != check.Fail {
		p.Status, p.Next = check.Fail, next
	}
}

// Latency measures an operation of a store that gives up an operation after limit.
func (c *Checker) Latency(p *Probe, limit time.Duration, operation func(context.Context) error) {
	var all []time.Duration
	for range Operations {
		ctx, cancel := c.Step()
		began := time.Now()
		err := operation(ctx)
		cancel()
		if err != nil {
			p.See("%v", err)
			p.Fail("look in the log of the server")
			return
		}
		all = append(all, time.Since(began))
	}
	slices.Sort(all)
	p50, p99 := all[Operations/2], all[Operations*99/100]
	p.See("p50 %v, p99 %v", p50.Round(time.Microsecond), p99.Round(time.Microsecond))
	if p99 > limit/10 {
		p.Warn(fmt.Sprintf("use a server in the same network: the stores give up an operation after %v", limit))
	}
}

// errNoTime means that a server returned no time.
var errNoTime = errors.New("unexpected reply")

// Clock compares the clock of the server, which read returns, with the clock of this process.
func (c *Checker) Clock(p *Probe, right string, read func(context.Context) (time.Time, error)) {
	ctx, cancel := c.Step()
	defer cancel()
	began := time.Now()
	now, err := read(ctx)
	if err == nil && now.IsZero() {
		err = errNoTime
	}
	if err != nil {
		p.See("%v", err)
		p.Warn(right)
		return
	}
	ahead := now.Sub(began.Add(time.Since(began) / 2)).Round(time.Millisecond)
	p.See("the clock of the server differs by %v", ahead)
	if ahead.Abs() > maxClockSkew {
		p.Warn("synchronize the clocks, such as with chrony: request states and logins expire by the clock")
	}
}
