package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/patchbay-mcp/patchbay/bench/internal/echo"
	"github.com/patchbay-mcp/patchbay/bench/internal/load"
)

// A client is one client program of the benchmark, in one configuration.
type client struct {
	name string
	dir  string   // of its program, under client/
	args []string // besides those of the workload
	// sdk marks a client whose SDK has a server, so that it can run in memory.
	sdk bool
}

func catalogueClients() []client {
	return []client{
		{name: baseline, dir: "limit"},
		{name: "limit-json", dir: "limit", args: []string{"-json"}},
		{name: ours, dir: "patchbay", sdk: true},
		{name: "go-sdk", dir: "gosdk", sdk: true},
		{name: "mcp-go", dir: "mcpgo", sdk: true},
	}
}

var (
	boundsClient = []bound{{of: baseline, cpu: 1.4}, {of: "go-sdk", cpu: 0.5}}
	boundsMemory = []bound{{of: ours, micros: 5, allocs: 26}, {of: "go-sdk", cpu: 1.0 / 20},
		{of: "mcp-go", cpu: 1.0 / 4}}
)

func catalogueClientWorkloads() []workload {
	var all []workload
	add := func(w workload, name, way string) {
		w.clients, w.call.Tool = true, echo.Tool
		w.name = "client-" + name + "-" + strconv.Itoa(w.width)
		w.title = way + ", " + count(w.width, "call") + " in flight"
		all = append(all, w)
	}
	modern, session := load.Call{Era: echo.Modern}, load.Call{Era: echo.Session}
	for _, width := range []int{1, connections} {
		add(workload{call: modern, width: width, bounds: boundsClient}, "modern-json", "HTTP, modern era, JSON answers")
	}
	add(workload{call: load.Call{Era: echo.Modern, SSE: true}, width: connections}, "modern-sse",
		"HTTP, modern era, event-stream answers")
	add(workload{call: session, width: connections, bounds: boundsClient}, "session-json",
		"HTTP, session era, JSON answers")
	for _, width := range []int{1, 16} {
		add(workload{call: modern, width: width, stdio: true}, "stdio-modern", "stdio, modern era")
	}
	add(workload{call: session, width: 16, stdio: true}, "stdio-session", "stdio, session era")
	for _, width := range []int{1, 16} {
		add(workload{call: modern, width: width, memory: true, bounds: boundsMemory}, "memory",
			"the same SDK on both sides, in memory")
	}
	return all
}

// openClients starts the clients of a workload and the server that they call.
// On stdio, each client starts its own server.
func (b *bench) openClients(ctx context.Context, w workload) (*runningPrograms, error) {
	c := &runningPrograms{}
	args := []string{"-era", string(w.call.Era), "-width", strconv.Itoa(w.width)}
	var command []string
	switch server := append([]string{b.program("server", baseline)}, w.serverArgs()...); {
	case w.memory:
	case w.stdio:
		command = b.pins.besideArgv(server...)
	default:
		var err error
		if c.server, err = start(ctx, baseline, server, false); err != nil {
			return nil, fmt.Errorf("server %s: %w", baseline, err)
		}
		args = append(args, "-url", c.server.url)
	}
	for _, client := range b.clients {
		if w.memory && !client.sdk {
			continue
		}
		argv := slices.Concat([]string{b.programOf(client.name, "client", client.dir)}, args, client.args, command)
		proc, err := start(ctx, client.name, b.pins.argv(argv...), true)
		if err != nil {
			c.stop()
			return nil, err
		}
		c.subjects = append(c.subjects, &subject{name: client.name, call: w.call, proc: proc,
			load: load.NewRemote(proc.in, proc.out)})
	}
	return c, nil
}
