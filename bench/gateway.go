package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"

	"github.com/patchbay-mcp/patchbay/bench/internal/echo"
	"github.com/patchbay-mcp/patchbay/bench/internal/gateway"
	"github.com/patchbay-mcp/patchbay/bench/internal/load"
)

// Programs of the workloads of gateways, besides ours, which is the host package behind mcphttp.
const (
	direct       = "direct"             // the server itself, without a gateway
	bareRelay    = "bare-relay"         // net/http on both sides, and bodies copied unread
	reverseProxy = "reverse-proxy"      // httputil.ReverseProxy with its defaults
	pooledProxy  = "reverse-proxy-pool" // the same with a BufferPool
	lineRelay    = "line-relay"         // net/http before, and lines copied unread to a server on stdio
	sdkRelay     = "sdk"                // a server of this project whose tool calls a client of this project
	plain        = "plain"              // ours without a policy, pins and a recorder, where ours has some
)

// A gatewayCell is what is special of a workload that measures gateways. The
// server behind them runs beside the load, on stdio if the workload is so.
type gatewayCell struct {
	era      echo.Era // of the server behind this project's gateway; the other programs keep that of the load
	programs []string
	memory   bool // all in one process
	servers  int  // of a list
	rate     int  // calls per second, if that is fixed
	extra    gateway.Extra
}

var (
	gatewayReferences = []string{direct, bareRelay, pooledProxy, lineRelay, sdkRelay}
	relays            = []string{direct, bareRelay, reverseProxy, pooledProxy, ours}
)

func catalogueGatewayWorkloads() []workload {
	all := catalogueGatewayCells()
	call := load.Call{Era: echo.Modern, Tool: echo.Tool}
	for _, era := range eras() {
		w := workload{name: "gateway-stdio-" + string(era) + "-16",
			title: "gateways, HTTP before, stdio of the " + string(era) + " era behind, 16 connections", call: call, width: 16,
			stdio: true, gateway: &gatewayCell{era: era, programs: []string{direct, lineRelay, sdkRelay, ours}}}
		if era == echo.Session { // a relay of lines cannot translate
			w.gateway.programs = []string{direct, sdkRelay, ours}
		} else {
			w.bounds = []bound{{of: lineRelay, cpu: 1.5, open: 1.9}, {of: sdkRelay, above: 6}}
		}
		all = append(all, w)
	}
	for _, width := range []int{1, 16} {
		w := workload{name: "gateway-memory-" + strconv.Itoa(width), width: width, clients: true, call: call,
			title:   "client, gateway and server in one process, " + count(width, "call") + " in flight",
			gateway: &gatewayCell{memory: true, programs: []string{direct, ours}}}
		if width == 1 {
			w.bounds = []bound{{of: direct, cpu: 2.2, open: 2.9}}
		}
		all = append(all, w)
	}
	for _, servers := range []int{1, 10, 100} {
		for tools := max(10, servers); tools <= 1000; tools *= 10 {
			w := workload{name: fmt.Sprintf("gateway-list-%d-%d", tools, servers),
				title: fmt.Sprintf("gateways, tools/list of %d tools of %s, modern era, 4 connections", tools,
					count(servers, "server")),
				call: load.Call{Era: echo.Modern, List: tools}, width: 4,
				gateway: &gatewayCell{era: echo.Modern, programs: []string{direct, ours}, servers: servers}}
			if tools == 1000 && servers == 100 {
				w.bounds = []bound{{of: direct, cpu: 1.3}}
			}
			all = append(all, w)
		}
	}
	return append(append(all, catalogueGatewayMeasures()...), catalogueGatewayPins(), catalogueGatewayColdList(),
		catalogueGatewayCapture())
}

// catalogueGatewayCells are calls over HTTP on both sides.
func catalogueGatewayCells() []workload {
	var all []workload
	add := func(name, title string, client, server echo.Era, call load.Call, width int, bounds ...bound) {
		call.Era = client
		all = append(all, workload{name: "gateway-" + name, title: "gateways, " + title + ", " + count(width, "connection"),
			call: call, width: width, bounds: bounds, gateway: &gatewayCell{era: server, programs: relays}})
	}
	echoed := load.Call{Tool: echo.Tool}
	// Where the gateway of today misses a target, open is its ratio.
	cpu := bound{of: bareRelay, cpu: 1.3, open: 1.4}
	belowProxy := bound{of: pooledProxy, cpu: 1, open: 1.35}
	sessionCPU, sessionProxy := cpu, belowProxy
	sessionCPU.open, sessionProxy.open = 1.6, 1.5
	add("modern-64", "modern era on both sides", echo.Modern, echo.Modern, echoed, 64, cpu, belowProxy)
	add("modern-16", "modern era on both sides", echo.Modern, echo.Modern, echoed, 16, cpu, belowProxy,
		bound{of: ours, allocs: 125, bytes: 12 << 10})
	add("modern-1", "modern era on both sides", echo.Modern, echo.Modern, echoed, 1)
	add("session-16", "session era on both sides", echo.Session, echo.Session, echoed, 16, sessionCPU, sessionProxy)
	add("modern-session-16", "a modern client and a server of the session era", echo.Modern, echo.Session, echoed, 16)
	add("session-modern-16", "a client of the session era and a modern server", echo.Session, echo.Modern, echoed, 16)
	add("progress-16", "modern era, a progress notification and the result", echo.Modern, echo.Modern,
		load.Call{Tool: echo.ProgressTool, SSE: true}, 16)
	add("question-16", "a modern client, a server of the session era, and a call with one question and its answer",
		echo.Modern, echo.Session, load.Call{Tool: echo.AskTool}, 16)
	extra := func(name, title string, is gateway.Extra, programs []string, bounds ...bound) {
		add(name, title+", modern era on both sides", echo.Modern, echo.Modern, echoed, 16, bounds...)
		withExtra(&all[len(all)-1], is, programs)
	}
	added := []string{direct, plain, ours}
	extra("policy-200", "200 rules as operators write them", gateway.Policy200, added, bound{of: plain, above: 8})
	extra("policy-200-all", "200 rules that read the arguments of every call", gateway.Policy200All, added,
		bound{of: plain, above: 8})
	extra("records", "records with the shape of arguments", gateway.Records, added)
	extra("pins", "pins", gateway.Pins, added)
	both := []string{direct, bareRelay, reverseProxy, pooledProxy, plain, ours}
	extra("pins-records", "pins and records", gateway.PinsAndRecords, both, cpu, belowProxy)
	add("session-pins-records", "pins and records, session era on both sides", echo.Session, echo.Session, echoed, 16,
		sessionCPU, sessionProxy)
	withExtra(&all[len(all)-1], gateway.PinsAndRecords, both)
	large, times := load.Call{Tool: echo.LargeTool}, bound{of: bareRelay, cpu: 1.4, open: 1.5}
	add("result-1m", "modern era, a result of 1 MiB", echo.Modern, echo.Modern, large, 4, times)
	times.open = 3.2
	add("result-1m-pins-records", "pins and records, modern era, a result of 1 MiB", echo.Modern, echo.Modern, large, 4,
		times)
	withExtra(&all[len(all)-1], gateway.PinsAndRecords, both)
	return all
}

// withExtra gives the gateway of a workload an extra, and compares it with the programs.
func withExtra(w *workload, extra gateway.Extra, programs []string) {
	w.gateway.extra, w.gateway.programs = extra, programs
}

// isGateway reports whether the programs of w are gateways.
func (w workload) isGateway() bool { return w.gateway != nil || w.programs == relaying }

// areGateways reports whether all workloads are of gateways or observers, which need no servers of
// other SDKs.
func areGateways(all []workload) bool {
	return !slices.ContainsFunc(all, func(w workload) bool { return !w.isGateway() && w.observed == nil })
}

// callOf returns the request of the load to a program of the cell.
func (g *gatewayCell) callOf(call load.Call, program string) load.Call {
	if isOurs(program) {
		call.Server = echo.GatewayServer(0)
	}
	call.Servers = g.servers
	return call
}

func isOurs(program string) bool { return program == ours || program == plain || program == before }

// openGateways starts the programs of a workload, and the server behind them.
func (b *bench) openGateways(ctx context.Context, w workload) (*runningPrograms, error) {
	c := &runningPrograms{}
	for _, name := range w.gateway.programs {
		sub, err := b.openGateway(ctx, w, c, name)
		if err != nil {
			c.stop()
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		c.subjects = append(c.subjects, sub)
	}
	return c, nil
}

func (b *bench) openGateway(ctx context.Context, w workload, c *runningPrograms, name string) (*subject, error) {
	if w.gateway.memory {
		dir := ours
		if isOurs(name) {
			dir = "host"
		}
		argv := b.pins.argv(b.programOf(name, "client", dir), "-width", strconv.Itoa(w.width))
		proc, err := start(ctx, name, argv, true)
		if err != nil {
			return nil, err
		}
		return &subject{name: name, call: w.call, proc: proc, load: load.NewRemote(proc.in, proc.out)}, nil
	}
	proc, err := b.startGateway(ctx, w, c, name)
	if err != nil {
		return nil, err
	}
	sub := &subject{name: name, call: w.gateway.callOf(w.call, name), proc: proc}
	if sub.load, err = load.DialHTTP(proc.url, w.width, sub.call); err != nil {
		proc.stop()
		return nil, err
	}
	return sub, nil
}

// startGateway starts a program of a workload, and the server behind all of them if it does not
// run.
func (b *bench) startGateway(
	ctx context.Context, w workload, c *runningPrograms, name string,
) (proc *process, err error) {
	args := []string{"-kind", name, "-era", string(w.call.Era), "-tool", w.call.Tool}
	switch {
	case !isOurs(name):
	case name != plain && w.gateway.extra != "":
		dir, err := os.MkdirTemp(b.bin, "files") // a log of another run has another key
		if err != nil {
			return nil, err
		}
		args = append(args, "-extra", string(w.gateway.extra), "-dir", dir)
	}
	if isOurs(name) {
		args[1] = ours
	}
	if isOurs(name) || name == sdkRelay {
		args[3] = string(w.gateway.era)
	}
	server := []string{b.program("server", ours), "-tool", w.call.Tool}
	switch {
	case w.gateway.servers > 0:
		args = append(args, "-tools", strconv.Itoa(w.call.List), "-servers", strconv.Itoa(w.gateway.servers))
	case name == direct:
	case w.stdio:
		args = append(args, b.pins.besideArgv(append(server, "-stdio")...)...)
	default:
		if c.server == nil {
			if c.server, err = start(ctx, "server", server, false); err != nil {
				return nil, err
			}
		}
		args = append(args, "-url", c.server.url)
	}
	return start(ctx, name, b.pins.argv(append([]string{b.programOf(name, "relay", "relay")}, args...)...), false)
}

// needs adds the programs of a workload to those that are built, by directory.
func (g *gatewayCell) needs(programs map[string][]string) {
	if g.memory {
		programs["client"] = append(programs["client"], ours, "host")
		return
	}
	programs["server"] = append(programs["server"], ours)
	programs["relay"] = append(programs["relay"], "")
}
