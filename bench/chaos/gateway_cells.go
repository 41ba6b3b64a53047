//go:build unix

package main

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
)

// A gatewayFault is a fault of the gateway or of an upstream, and where it happens.
type gatewayFault struct {
	action    string
	weight    int
	upstreams []string
	steps     []string // empty for a fault that does not wait for a step
}

const (
	halfOpen       = "half-open HTTP to upstream"
	holdHTTP       = "half-open HTTP to upstream past the deadline"
	resetHTTP      = "reset of HTTP to upstream"
	clientHalfOpen = "half-open HTTP to gateway"
	clientReset    = "reset of HTTP to gateway"
	terminate      = "SIGTERM of gateway"
)

var (
	overHTTP = []string{"h25", "h26"}
	anywhere = []string{""}
	allSteps = slices.Concat(gatewaySteps, startSteps, callSteps, []string{stepOpen})
	running  = slices.Concat(gatewaySteps, callSteps, []string{stepOpen}) // steps of a call
)

var gatewayFaults = []gatewayFault{
	{killUpstream, 30, upstreamNames, allSteps},
	{killGateway, 22, upstreamNames, allSteps},
	{stopUpstream, 11, upstreamNames, slices.Concat([]string{stepInitialize}, running)},
	{holdUpstream, 1, upstreamNames, []string{stepReceived, stepCall, stepOpen}},
	{stopGateway, 8, upstreamNames, running},
	{halfOpen, 7, overHTTP, nil},
	{holdHTTP, 1, overHTTP, nil},
	{resetHTTP, 3, overHTTP, nil},
	{clientHalfOpen, 3, anywhere, nil},
	{clientReset, 2, anywhere, nil},
	{loseSession, 4, []string{"h25"}, []string{stepReceived}},
	{waitAtStep, 4, upstreamNames, []string{stepStart, stepInitialize, stepCall, stepDecided}},
	{floodStderr, 2, upstreamNames, []string{stepCall}},
	{terminate, 2, anywhere, nil},
}

// choose returns one of the faults that match, by weight.
func choose(r *rand.Rand, matches func(gatewayFault) bool) gatewayFault {
	sum := 0
	for _, f := range gatewayFaults {
		if matches(f) {
			sum += f.weight
		}
	}
	n := r.IntN(sum)
	for _, f := range gatewayFaults {
		if !matches(f) {
			continue
		}
		if n -= f.weight; n < 0 {
			return f
		}
	}
	panic("unreachable")
}

// endsGateway reports whether a new gateway starts after a fault.
func (f gatewayFault) endsGateway() bool { return f.action == killGateway || f.action == terminate }

// A cell is an action, and where it happens.
type cell struct{ action, upstream, step string }

// cells returns all places where a fault can happen.
func (f gatewayFault) cells() (all []cell) {
	for _, upstream := range f.upstreams {
		if len(f.steps) == 0 {
			all = append(all, cell{f.action, upstream, ""})
		}
		for _, step := range f.steps {
			all = append(all, cell{f.action, upstream, step})
		}
	}
	return all
}

// gatewayCells chooses the cells of a run such that an action happens in all of its cells once before
// it happens in one of them again.
type gatewayCells struct {
	left    map[string][]cell // by action
	reached map[cell]int
}

func newGatewayCells() *gatewayCells {
	return &gatewayCells{left: map[string][]cell{}, reached: map[cell]int{}}
}

func (c *gatewayCells) next(f gatewayFault, r *rand.Rand) cell {
	left := c.left[f.action]
	if len(left) == 0 {
		left = f.cells()
		r.Shuffle(len(left), func(i, j int) { left[i], left[j] = left[j], left[i] })
	}
	c.left[f.action] = left[1:]
	return left[0]
}

// putBack adds a cell whose step was not reached to those that are left, but not as the next one.
func (c *gatewayCells) putBack(of cell, r *rand.Rand) {
	left := c.left[of.action]
	c.left[of.action] = slices.Insert(left, min(len(left), 1+r.IntN(len(left)+1)), of)
}

func (c *gatewayCells) reach(at cell) { c.reached[at]++ }

// String returns in how many cells a fault has happened, and the others.
func (c *gatewayCells) String() string {
	all := 0
	var b, missing strings.Builder
	for _, f := range gatewayFaults {
		for _, at := range f.cells() {
			if all++; c.reached[at] == 0 {
				fmt.Fprintf(&missing, "  no %s at %s of %s\n", at.action, at.step, at.upstream)
			}
		}
	}
	fmt.Fprintf(&b, "cells of action, step and upstream: %d of %d reached\n", len(c.reached), all)
	return b.String() + missing.String()
}
