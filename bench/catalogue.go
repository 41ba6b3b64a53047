package main

import (
	"fmt"
	"slices"
	"strings"
)

// A server is one server program of the benchmark, in one configuration.
type server struct {
	name string
	is   string   // for the report
	dir  string   // of its program, under server/
	args []string // besides those of the workload
	// script replaces the program: one that Node runs, under server/.
	script string
	// sessionOnly tells a server that does not know the modern era.
	sessionOnly bool
	// peers are other projects' and much slower.
	peer bool
	// slow servers take part in few workloads, and in a quick run only when
	// they are asked for by name.
	slow bool
	// optional servers run only when they are asked for by name.
	optional bool
	// keepsSessions tells a server that holds something for a session.
	keepsSessions bool
	// echoes tells a server that knows only echo.Tool and echo.ProgressTool.
	echoes bool
	// losesNotes tells a server whose notes do not all arrive.
	losesNotes bool
	// streamsOnDemand tells a server that picks an event stream by itself,
	// once something is sent before the result; it has no setting for it.
	streamsOnDemand bool
}

// floor is the server, and the client, that the others are compared with first.
const floor = "limit"

func catalogueServers() []server {
	return []server{
		{name: floor, is: "bare net/http, or a bare loop over stdin, that does the least that any server must: the floor", dir: "limit"},
		{name: "limit-json", is: "the same with encoding/json both ways", dir: "limitjson", echoes: true},
		{name: ours, is: "this project", dir: "patchbay", keepsSessions: true, streamsOnDemand: true},
		{name: "go-sdk", is: "modelcontextprotocol/go-sdk v1.8.0, sessions in the session era, stateless in the modern one",
			dir: "gosdk", peer: true, keepsSessions: true},
		{name: "mcp-go", is: "mark3labs/mcp-go v1.2.1 as it comes: arguments are not validated",
			dir: "mcpgo", peer: true, keepsSessions: true, losesNotes: true},
		{name: "mcp-go-validating", is: "the same with validation",
			dir: "mcpgo", args: []string{"-validate"}, peer: true, losesNotes: true, optional: true},
		{name: "ts-v2", is: "@modelcontextprotocol/server 2.4.0, with sessions in the session era, stateless in the modern one",
			script: "ts/v2.mjs", peer: true, keepsSessions: true, slow: true},
		{name: "ts-v1", is: "@modelcontextprotocol/sdk 1.32.2, which knows the session era only",
			script: "ts/v1.mjs", peer: true, keepsSessions: true, sessionOnly: true, slow: true},
	}
}

// references are the programs whose CPU per call has a column of ratios.
func references() []string { return []string{floor, "go-sdk", "mcp-go"} }

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
