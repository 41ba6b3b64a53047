package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/patchbay-mcp/patchbay/bench/internal/echo"
	"github.com/patchbay-mcp/patchbay/bench/internal/load"
)

// A growthCell describes a workload that measures whether the cost of a call grows with
// the size of something. The same program runs in several sizes, and each size is compared with the
// first one.
type growthCell struct {
	noun     string
	sizes    []int
	args     func(n int) []string // of the program, for a size
	url      bool                 // the program is a gateway before a server in another process
	sessions bool                 // the size is the number of open sessions
	callers  bool                 // the size is the number of principals
	apart    bool                 // each of them has a connection
}

// name returns the name of the program of a size.
func (g *growthCell) name(n int) string {
	digits := strconv.Itoa(n)
	for at := len(digits) - 3; at > 0; at -= 3 {
		digits = digits[:at] + "," + digits[at:]
	}
	noun := g.noun
	if n == 1 {
		noun = strings.TrimSuffix(noun, "s")
	}
	return digits + " " + noun
}

// relaying is the directory of the program of gateways.
const relaying = "relay"

// needs adds the programs of a workload to the programs that are built, by directory.
func (g *growthCell) needs(programs map[string][]string, dir string) {
	if dir == relaying {
		programs[dir] = append(programs[dir], "")
		programs["server"] = append(programs["server"], ours)
		return
	}
	programs[dir] = append(programs[dir], ours)
}

// maxGrowth is the largest accepted CPU time of a call, as a multiple of the first row.
const maxGrowth = 1.15

func catalogueGrowthWorkloads() []workload {
	var all []workload
	add := func(name, title, programs string, call load.Call, g growthCell) {
		w := workload{name: "growth-" + name, title: "growth, " + title + ", 16 connections", call: call, width: 16,
			programs: programs, growth: &g,
			full: g.sessions || g.noun == "tools"}
		if programs == relaying {
			w.name, w.title = "gateway-"+w.name, "gateways, "+w.title
		}
		for _, n := range g.sizes[1:] {
			if g.apart { // each connection costs caches of the processor and of the system
				break
			}
			w.bounds = append(w.bounds, bound{subject: g.name(n), of: g.name(g.sizes[0]), cpu: maxGrowth})
		}
		all = append(all, w)
	}
	echoed := load.Call{Era: echo.Modern, Tool: echo.Tool}
	first := load.Call{Era: echo.Modern, Tool: echo.ListedTool(0)}
	behind := first
	behind.Server = echo.GatewayServer(0)
	relayArgs := func(more ...string) []string { return append([]string{"-kind", ours}, more...) }
	tools := []int{10, 1_000, 50_000}
	add("sessions", "calls of one session of a server, while the others are idle", listening,
		load.Call{Era: echo.Session, Tool: echo.Tool, OneSession: true},
		growthCell{noun: "sessions", sizes: []int{1, 1_000, 100_000}, sessions: true,
			args: func(int) []string { return nil }})
	add("tools", "calls of one tool of a server, modern era", "server", first,
		growthCell{noun: "tools", sizes: tools, args: func(n int) []string {
			return []string{"-tools", strconv.Itoa(n)}
		}})
	add("tools", "calls of one tool through a gateway, with its server in the same process", relaying, behind,
		growthCell{noun: "tools", sizes: tools, args: func(n int) []string {
			return relayArgs("-tools", strconv.Itoa(n))
		}})
	echoed.Server = echo.GatewayServer(0)
	add("servers", "calls of one server through a gateway", relaying, echoed,
		growthCell{noun: "servers", sizes: []int{1, 20, 500}, url: true,
			args: func(n int) []string { return relayArgs("-servers", strconv.Itoa(n)) }})
	// A gateway has two servers here because with one server names are unchanged.
	callers := func(more ...string) func(n int) []string {
		return func(n int) []string { return append(relayArgs("-servers", "2", "-callers", strconv.Itoa(n)), more...) }
	}
	add("callers", "calls by principals in turn, with tokens, through a gateway to a shared server", relaying, echoed,
		growthCell{noun: "callers", sizes: []int{1, 100, 2_000}, url: true, callers: true, args: callers("-shared")})
	add("callers-apart", "the same, with a connection for each principal", relaying, echoed,
		growthCell{noun: "callers", sizes: []int{1, 100, 500}, url: true, callers: true, apart: true, args: callers()})
	return all
}

// openGrowth starts the program of a workload in all sizes.
func (b *bench) openGrowth(ctx context.Context, w workload) (*runningPrograms, error) {
	c := &runningPrograms{}
	if w.growth.url {
		var err error
		if c.server, err = start(ctx, "server", []string{b.program("server", ours)}, false); err != nil {
			return nil, err
		}
	}
	for _, n := range w.growth.sizes {
		s, err := b.openSize(ctx, w, c, n)
		if err != nil {
			c.stop()
			return nil, fmt.Errorf("%s: %w", w.growth.name(n), err)
		}
		c.subjects = append(c.subjects, s)
	}
	return c, nil
}

func (b *bench) openSize(ctx context.Context, w workload, c *runningPrograms, n int) (*subject, error) {
	g := w.growth
	args := g.args(n)
	program := b.program(w.programsDir(), ours)
	if w.programsDir() == relaying {
		program = b.program(relaying, relaying)
	}
	if g.url {
		args = append(args, "-url", c.server.url)
	}
	call := w.call
	if g.callers {
		call.Callers = n
	}
	s := &subject{name: g.name(n), call: w.call}
	var err error
	if s.proc, err = start(ctx, s.name, b.pins.argv(append([]string{program}, args...)...), false); err != nil {
		return nil, err
	}
	if g.sessions {
		err = openSessions(s.proc.url, n-1) // the load has the last one
	}
	if err == nil {
		s.load, err = load.DialHTTP(s.proc.url, w.width, call)
	}
	if err != nil {
		s.proc.stop()
		return nil, err
	}
	if g.callers {
		if err := warmCallers(s.load, n); err != nil {
			s.stop()
			return nil, err
		}
	}
	return s, nil
}

// warmCallers makes calls until each of n callers has made a call.
func warmCallers(l load.Load, n int) error {
	for calls := 0; calls < 2*n; {
		slice, err := l.Run(100 * time.Millisecond)
		if err != nil {
			return err
		}
		calls += slice.Calls
	}
	return nil
}

// openSessions opens n idle sessions, over several connections at a time.
func openSessions(url string, n int) error {
	const parts = 8
	errs := make([]error, parts)
	var all sync.WaitGroup
	for i := range parts {
		all.Go(func() {
			sessions, err := load.DialSessions(url)
			if err == nil {
				defer sessions.Close()
				err = sessions.Open((n+i)/parts, openTimeout)
			}
			errs[i] = err
		})
	}
	all.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
