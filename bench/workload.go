package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/patchbay-mcp/patchbay/bench/internal/echo"
	"github.com/patchbay-mcp/patchbay/bench/internal/load"
)

// A workload is one table of the report.
type workload struct {
	name  string
	title string
	call  load.Call
	// width is the number of connections, or of calls in flight on stdio.
	width int
	stdio bool
	// clients are measured, not servers; if memory is set, with a server of
	// their own SDK in the same process.
	clients, memory bool
	// bounds are the targets of this project's program in the workload.
	bounds []bound
	// variants of a workload show how it scales, at a shorter pace.
	variant bool
	// excludesSlow excludes slow servers.
	excludesSlow bool
	// spread allows the servers to use all cores, including those of the load.
	spread bool
	// gateway, if set, measures gateways in place of servers.
	gateway *gatewayCell
	// observed, if set, measures an observer.
	observed *observedCell
	// webhook workloads measure deliveries of webhooks.
	webhook bool
	// growth, if set, measures a program in several sizes.
	growth *growthCell
	// quick workloads are part of a quick run, and so are workloads with bounds that are not full.
	quick, full bool

	// args are additional arguments of the server programs.
	args []string

	// measure, if set, replaces the calls. It writes its table below the
	// existing heading and records its targets.
	measure func(ctx context.Context, b *bench, w workload, out io.Writer) error
	// duration returns the approximate duration of measure with all servers, for
	// a quick or a full run.
	duration func(quick bool) time.Duration
	// sessions and streams are the numbers that measure opens.
	sessions, streams int
	// programs is the directory of the servers' programs, if not the default.
	// only lists the servers with a program there.
	programs string
	only     []string
}

// connections is the width of HTTP workloads except variants.
const connections = 64

// catalogueWorkloads are the workloads in the order of the report.
func catalogueWorkloads() []workload {
	return slices.Concat(
		catalogueHTTPWorkloads(),
		catalogueStdioWorkloads(),
		catalogueSpreadWorkloads(),
		catalogueListWorkloads(),
		catalogueLargeWorkloads(),
		catalogueHoldWorkloads(),
		catalogueChangeWorkloads(),
		catalogueColdWorkloads(),
		catalogueClientWorkloads(),
		catalogueGatewayWorkloads(),
		catalogueGrowthWorkloads(),
		catalogueObservedWorkloads(),
		catalogueWebhookWorkloads(),
	)
}

func eras() []echo.Era { return []echo.Era{echo.Modern, echo.Session} }

func catalogueHTTPWorkloads() []workload {
	var all []workload
	for _, era := range eras() {
		for _, width := range []int{connections, 16, 1} {
			add := func(kind, title string, call load.Call, bounds ...bound) {
				call.Era = era
				w := workload{
					name:  string(era) + "-" + kind,
					title: fmt.Sprintf("HTTP, %s era, %s, %s", era, title, count(width, "connection")),
					call:  call,
					width: width,
				}
				if width == connections {
					w.bounds = bounds
				} else {
					if kind == "json" && era == echo.Session {
						w.bounds = bounds[:1] // to the baseline
					}
					w.name += "-" + strconv.Itoa(width)
					w.variant, w.excludesSlow = true, true
				}
				all = append(all, w)
			}
			add("json", "JSON answers", load.Call{Tool: echo.Tool}, boundsJSON(era)...)
			add("sse", "event-stream answers", load.Call{Tool: echo.Tool, SSE: true})
			if width == connections {
				add("progress", "one progress notification and the response in an event stream",
					load.Call{Tool: echo.ProgressTool, SSE: true},
					bound{of: baseline, cpu: 1.25, open: openProgress(era)})
			}
		}
	}
	return all
}

// Ratios of today, on the slowest machine of several. With a single call in flight they depend on the cost of
// waking an idle core: the same programs have 1.10 and 1.75 on one machine, 1.50 and 2.2 on another.
const (
	openSession = 1.35
	openSingle  = 2.1
)

// openProgress returns the ratio of today, where it misses its target.
func openProgress(era echo.Era) float64 {
	if era == echo.Session {
		return 1.6
	}
	return 0
}

func boundsJSON(era echo.Era) []bound {
	if era == echo.Session {
		return []bound{{of: baseline, cpu: 1.15, open: openSession}, {of: "go-sdk", rate: 5}, {of: "mcp-go", rate: 2}}
	}
	return []bound{{of: baseline, cpu: 1.15}, {of: "go-sdk", rate: 10}, {of: "mcp-go", rate: 4}}
}

func catalogueStdioWorkloads() []workload {
	var all []workload
	for _, era := range eras() {
		for _, window := range []int{16, 128, 1} {
			w := workload{
				name:         fmt.Sprintf("stdio-%s-%d", era, window),
				title:        fmt.Sprintf("stdio, %s era, %s in flight", era, count(window, "call")),
				call:         load.Call{Era: era, Tool: echo.Tool},
				width:        window,
				stdio:        true,
				variant:      window != 16,
				excludesSlow: window == 1,
			}
			if window == 1 {
				w.bounds = []bound{{of: baseline, cpu: 1.25, open: openSingle}}
			} else if !w.variant {
				w.bounds = []bound{{of: "limit-json", cpu: 1.2}, {of: "go-sdk", rate: 15}, {of: "mcp-go", rate: 7}}
			}
			all = append(all, w)
		}
	}
	return all
}

// catalogueSpreadWorkloads show the cost of lock contention on several cores.
func catalogueSpreadWorkloads() []workload {
	const connections = 16
	var all []workload
	for _, era := range eras() {
		all = append(all, workload{
			name: string(era) + "-spread-" + strconv.Itoa(connections),
			title: fmt.Sprintf("HTTP, %s era, JSON answers, %s, servers on all cores beside the load", era,
				count(connections, "connection")),
			call:         load.Call{Era: era, Tool: echo.Tool},
			width:        connections,
			spread:       true,
			excludesSlow: true,
		})
	}
	return all
}

// catalogueListWorkloads are lists of tools. A thousand fit into one page of
// every SDK by default.
func catalogueListWorkloads() []workload {
	const connections = 16
	var all []workload
	for _, era := range eras() {
		for _, tools := range []int{1000, 50} {
			w := workload{
				name: fmt.Sprintf("%s-list-%d", era, tools),
				title: fmt.Sprintf("HTTP, %s era, tools/list of %d tools, %s", era, tools,
					count(connections, "connection")),
				call:         load.Call{Era: era, List: tools},
				width:        connections,
				variant:      tools != 1000,
				excludesSlow: tools == 1000,
			}
			w.bounds = []bound{{of: baseline, cpu: 1.2}}
			all = append(all, w)
			if !w.variant {
				w.name, w.call.Wide = w.name+"-wide", true
				w.title = strings.Replace(w.title, "tools,", "tools of 1 KB each,", 1)
				w.only = []string{baseline, ours}
				all = append(all, w)
			}
		}
	}
	return all
}

// catalogueLargeWorkloads transfer 1 MiB, or 1,000 notifications, in one call.
func catalogueLargeWorkloads() []workload {
	const connections = 4
	var all []workload
	add := func(kind, title string, call load.Call, bounds ...bound) {
		all = append(all, workload{
			name:   string(call.Era) + "-" + kind,
			title:  fmt.Sprintf("HTTP, %s era, %s, %s", call.Era, title, count(connections, "connection")),
			call:   call,
			width:  connections,
			bounds: bounds,
		})
	}
	once := bound{of: baseline, cpu: 1.5}
	for _, era := range eras() {
		arguments := once
		if era == echo.Session {
			arguments.cpu = 2 // the call is also copied into the form of the modern era
		}
		add("arguments-1m", "arguments of 1 MiB", load.Call{Era: era, Tool: echo.CountTool}, arguments)
		add("result-1m", "a result of 1 MiB", load.Call{Era: era, Tool: echo.LargeTool}, once)
		add("notes", fmt.Sprintf("%d progress notifications in one call", echo.Notifications),
			load.Call{Era: era, Tool: echo.NotificationsTool, SSE: true}, bound{of: baseline, cpu: 1.25})
	}
	all = append(all, workload{
		name:   "stdio-modern-arguments-1m",
		title:  "stdio, modern era, arguments of 1 MiB, one call in flight",
		call:   load.Call{Era: echo.Modern, Tool: echo.CountTool},
		width:  1,
		stdio:  true,
		bounds: []bound{once},
	})
	return all
}

// count formats a number with its noun in singular or plural.
func count(n int, noun string) string {
	if n == 1 {
		return "one " + noun
	}
	return strconv.Itoa(n) + " " + noun + "s"
}

// serverArgs returns the arguments of a server program for w.
func (w workload) serverArgs() []string {
	args := []string{"-era", string(w.call.Era)}
	if w.call.SSE {
		args = append(args, "-sse")
	}
	if w.call.Tool != "" {
		args = append(args, "-tool", w.call.Tool)
	}
	if w.call.List > 0 {
		args = append(args, "-tools", strconv.Itoa(w.call.List))
	}
	if w.call.Wide {
		args = append(args, "-wide")
	}
	if w.stdio {
		args = append(args, "-stdio")
	}
	return append(args, w.args...)
}

// kind returns the kind of program that the workload measures.
func (w workload) kind() string {
	switch {
	case w.isGateway(), w.observed != nil:
		return "program"
	case w.clients:
		return "client"
	}
	return "server"
}

// callOf returns the request of the load to s. A server that streams on demand
// gets the call with progress, and so does more work than the others.
func (w workload) callOf(s server) load.Call {
	call := w.call
	if call.SSE && call.Tool == echo.Tool && s.streamsOnDemand {
		call.Tool = echo.ProgressTool
	}
	return call
}

// suits reports whether s takes part in w.
func (w workload) suits(s server) bool {
	switch {
	case w.only != nil && !slices.Contains(w.only, s.name):
		return false
	case w.sessions > 0 && !s.keepsSessions:
		return false
	case s.sessionOnly && w.call.Era != echo.Session:
		return false
	case s.slow && w.excludesSlow:
		return false
	case s.echoOnly && (w.call.List > 0 || w.call.Tool != echo.Tool && w.call.Tool != echo.ProgressTool):
		return false
	case s.losesNotifications && w.call.Tool == echo.NotificationsTool:
		return false
	}
	return true
}

// programsDir returns the directory of the servers' programs.
func (w workload) programsDir() string { return cmp.Or(w.programs, "server") }

// isQuick reports whether w is part of a quick run.
func (w workload) isQuick() bool { return w.quick || len(w.bounds) > 0 && !w.full }
