package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/patchbay-mcp/patchbay/bench/internal/echo"
	"github.com/patchbay-mcp/patchbay/bench/internal/load"
)

// A server is one server program of the benchmark, in one configuration.
type server struct {
	name string
	dir  string   // of its program, under server/
	args []string // besides those of the workload
	// optional servers run only when they are asked for by name.
	optional bool
	// keepsSessions tells a server that holds something for a session.
	keepsSessions bool
	// streamsOnDemand tells a server that picks an event stream by itself,
	// once something is sent before the result; it has no setting for it.
	streamsOnDemand bool
}

// floor is the server, and the client, that the others are compared with first.
const floor = "limit"

func catalogueServers() []server {
	return []server{
		{name: floor, dir: "limit"},
		{name: "limit-json", dir: "limitjson"},
		{name: "patchbay", dir: "patchbay", keepsSessions: true, streamsOnDemand: true},
		{name: "go-sdk", dir: "gosdk", keepsSessions: true},
		{name: "mcp-go", dir: "mcpgo", keepsSessions: true},
		{name: "mcp-go-validating", dir: "mcpgo", args: []string{"-validate"}, optional: true},
	}
}

// references are the programs whose CPU per call has a column of ratios.
func references() []string { return []string{floor, "go-sdk", "mcp-go"} }

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
	// bounds are what this project's program is held to in the workload.
	bounds []bound
	// quick workloads are part of a quick run.
	quick bool

	// args are given to the server programs besides those that follow from
	// the call.
	args []string

	// measure replaces the calls: it measures in its own way, writes its
	// table below a heading that is there already, and holds its targets.
	measure func(ctx context.Context, b *bench, w workload, out io.Writer) error
	// takes is about how long measure takes with all servers, for a run that
	// is quick or not.
	takes func(quick bool) time.Duration
	// sessions is how many of them measure opens, if it does.
	sessions int
}

// connections is the width of every HTTP workload.
const connections = 64

// catalogueWorkloads are the workloads in the order of the report.
func catalogueWorkloads() []workload {
	return slices.Concat(catalogueServerWorkloads(), catalogueIdleWorkloads(), catalogueClientWorkloads())
}

func catalogueServerWorkloads() []workload {
	var all []workload
	for _, era := range []echo.Era{echo.Modern, echo.Session} {
		add := func(kind, title string, call load.Call, bounds ...bound) {
			call.Era = era
			all = append(all, workload{
				name:   string(era) + "-" + kind,
				title:  fmt.Sprintf("HTTP, %s era, %s, %d connections", era, title, connections),
				call:   call,
				width:  connections,
				quick:  true,
				bounds: bounds,
			})
		}
		add("json", "JSON answers", load.Call{Tool: echo.Tool}, boundsJSON(era)...)
		add("sse", "event-stream answers", load.Call{Tool: echo.Tool, SSE: true})
		add("progress", "one progress note and the answer in an event stream", load.Call{Tool: echo.ProgressTool, SSE: true},
			bound{of: floor, cpu: 1.25})
	}
	for _, era := range []echo.Era{echo.Modern, echo.Session} {
		for _, window := range []int{16, 128} {
			w := workload{
				name:  fmt.Sprintf("stdio-%s-%d", era, window),
				title: fmt.Sprintf("stdio, %s era, %d calls in flight", era, window),
				call:  load.Call{Era: era, Tool: echo.Tool},
				width: window,
				stdio: true,
				quick: true,
			}
			if window == 16 {
				w.bounds = boundsStdio()
			}
			all = append(all, w)
		}
	}
	return all
}

func boundsJSON(era echo.Era) []bound {
	if era == echo.Session {
		return []bound{{of: floor, cpu: 1.2}, {of: "go-sdk", rate: 10}, {of: "mcp-go", rate: 3}}
	}
	return []bound{{of: floor, cpu: 1.2}, {of: "go-sdk", rate: 15}, {of: "mcp-go", rate: 5}}
}

func boundsStdio() []bound {
	return []bound{{of: "limit-json", cpu: 1.2}, {of: "go-sdk", rate: 15}, {of: "mcp-go", rate: 7}}
}

// serverArgs are the arguments of a server program for w.
func (w workload) serverArgs() []string {
	args := []string{"-era", string(w.call.Era)}
	if w.call.SSE {
		args = append(args, "-sse")
	}
	if w.stdio {
		args = append(args, "-stdio")
	}
	return append(args, w.args...)
}

// kind says what the workload measures.
func (w workload) kind() string {
	if w.clients {
		return "client"
	}
	return "server"
}

// callOf is what the load asks of s. A server that streams on demand needs a
// reason to: it gets the call with progress, and so does more than the others.
func (w workload) callOf(s server) load.Call {
	call := w.call
	if call.SSE && s.streamsOnDemand {
		call.Tool = echo.ProgressTool
	}
	return call
}

// suits reports whether s has a place in the table of w.
func (w workload) suits(s server) bool { return w.sessions == 0 || s.keepsSessions }

// everything is a list of all items that are picked by default.
const everything = "all"

// pick returns the items of all whose names are in the list, in the order of
// all; without a list, those that are picked by default.
func pick[T any](all []T, list string, name func(T) string, byDefault func(T) bool) ([]T, error) {
	if list == everything {
		list = ""
	}
	var names []string
	for n := range strings.SplitSeq(list, ",") {
		if n = strings.TrimSpace(n); n != "" {
			names = append(names, n)
		}
	}
	var picked []T
	for _, item := range all {
		at := slices.Index(names, name(item))
		if at >= 0 {
			names = slices.Delete(names, at, at+1)
		}
		if at >= 0 || list == "" && byDefault(item) {
			picked = append(picked, item)
		}
	}
	if len(names) > 0 {
		var known []string
		for _, item := range all {
			known = append(known, name(item))
		}
		return nil, fmt.Errorf("unknown: %s; there are %s", strings.Join(names, ", "), strings.Join(known, ", "))
	}
	return picked, nil
}
