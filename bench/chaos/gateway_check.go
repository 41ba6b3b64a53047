//go:build unix

package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// A gatewayAccount is what the history and the journal say about one call.
type gatewayAccount struct {
	begins, runs int
	attempt      *attempt // nil while it is in progress
	lines        []string // of the journal
}

// A gatewayChecker judges the history of the calls through a gateway, batch by batch.
type gatewayChecker struct {
	ends      *checker
	accounts  map[string]*gatewayAccount
	instances map[string]string // the principal of each process and session
	broken    map[string]bool   // calls that were reported
	longest   map[string]*attempt
}

func newGatewayChecker() *gatewayChecker {
	return &gatewayChecker{ends: newChecker(), accounts: map[string]*gatewayAccount{}, instances: map[string]string{},
		broken: map[string]bool{}, longest: map[string]*attempt{}}
}

// check returns the rules that the next batch of the history breaks. Accounts are kept: a call that
// was reported as not run must not run later.
func (c *gatewayChecker) check(b batch) (broken []violation) {
	broken = append(slices.Clone(b.Direct), c.ends.checkEnds(b)...)
	touched := map[string]*gatewayAccount{}
	account := func(nonce string) *gatewayAccount {
		a := c.accounts[nonce]
		if a == nil {
			a = &gatewayAccount{}
			c.accounts[nonce] = a
		}
		touched[nonce] = a
		return a
	}
	for _, line := range b.Runs {
		switch f := strings.Fields(line); f[0] {
		case "begin":
			a := account(f[1])
			a.begins, a.lines = a.begins+1, append(a.lines, line)
			broken = append(broken, c.checkInstance(f)...)
		case "run":
			a := account(f[1])
			a.runs, a.lines = a.runs+1, append(a.lines, line)
		}
	}
	for _, t := range b.Attempts {
		if t.Outcome == failed && t.Error == cancelledByServer && b.terminatedDuring(t) {
			t.Outcome = unknown
		}
		if last := c.longest[t.Op]; last == nil || t.End-t.Begin > last.End-last.Begin {
			c.longest[t.Op] = t
		}
		if t.Nonce != "" {
			account(t.Nonce).attempt = t
		}
	}
	for _, nonce := range slices.Sorted(maps.Keys(touched)) {
		a := touched[nonce]
		rule := a.judge()
		if rule == "" || c.broken[nonce] {
			continue
		}
		c.broken[nonce] = true
		v := violation{Rule: rule, Lines: a.lines}
		if a.attempt != nil {
			v.Lines = append([]string{a.attempt.String()}, a.lines...)
		}
		broken = append(broken, v)
	}
	for i := range broken {
		for _, f := range b.Faults {
			broken[i].Lines = append(broken[i].Lines, f.String())
		}
	}
	return broken
}

// cancelledByServer is the error of a call of a session client whose question is open when the gateway
// is shut down. It has no members of the host, which does not know of this wait.
const cancelledByServer = "error -32603"

// terminatedDuring reports whether the gateway was shut down during an attempt.
func (b *batch) terminatedDuring(a *attempt) bool {
	return slices.ContainsFunc(b.Faults, func(f fault) bool {
		return f.Kind == terminate && f.Begin <= a.End && a.Begin <= f.End
	})
}

// slowest returns the longest attempt of each operation.
func (c *gatewayChecker) slowest() string {
	var b strings.Builder
	for _, op := range slices.Sorted(maps.Keys(c.longest)) {
		a := c.longest[op]
		fmt.Fprintf(&b, "  %6.1f s  %s: %s %s\n", (a.End - a.Begin).Seconds(), op, a.Outcome, a.Error)
	}
	return b.String()
}

// checkInstance checks that a process or a session of an upstream serves one principal. The fields
// are those of the journal: begin, nonce, principal, upstream, instance.
func (c *gatewayChecker) checkInstance(f []string) []violation {
	if len(f) != 5 || f[4] == "-" {
		return nil
	}
	key := f[3] + " " + f[4]
	other, known := c.instances[key]
	c.instances[key] = f[2]
	if !known || other == f[2] {
		return nil
	}
	return []violation{{"crossed: an instance serves two principals", []string{fmt.Sprint(f, ", before ", other)}}}
}

// judge returns the rule that an account breaks, or "".
func (a *gatewayAccount) judge() string {
	switch {
	case a.begins > 1:
		return fmt.Sprintf("doubled: a call ran %d times", a.begins)
	case a.runs > 1:
		return fmt.Sprintf("doubled: a call had its effect %d times", a.runs)
	case a.attempt == nil:
		return ""
	case a.attempt.Outcome == answered && (a.begins != 1 || a.runs != 1):
		return fmt.Sprintf("lost: an answered call began %d times and had its effect %d times", a.begins, a.runs)
	case a.attempt.Outcome == failed && a.attempt.Error != "tool error":
		return "lost: a call ended in an error that does not say whether it may have run"
	case a.attempt.Outcome == failed && a.begins != 1:
		return fmt.Sprintf("untrue: a call that failed at its server began %d times", a.begins)
	case a.attempt.Error == "unknown tool":
		return "untrue: a tool that its server has is unknown"
	case a.attempt.Outcome == unsent && a.begins+a.runs > 0:
		return "untrue: a call that was reported as not run has run"
	}
	return ""
}
