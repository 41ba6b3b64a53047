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
	// script, if set, replaces the program. It is a path of a Node script under
	// server/.
	script string
	// sessionOnly marks a server without support for the modern era.
	sessionOnly bool
	// peer marks a server of another project, which is much slower.
	peer bool
	// slow servers run in few workloads. A quick run includes them only if they
	// are selected by name.
	slow bool
	// optional servers run only if they are selected by name.
	optional bool
	// keepsSessions marks a server that keeps state for each session.
	keepsSessions bool
	// echoes marks a server that offers only echo.Tool and echo.ProgressTool.
	echoes bool
	// losesNotes marks a server that can lose progress notifications.
	losesNotes bool
	// streamsOnDemand marks a server that chooses an event stream itself when a
	// message precedes the result. It has no setting for this.
	streamsOnDemand bool
}

// floor is the name of the baseline server and client.
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

// references lists the programs to which the report computes CPU ratios.
func references() []string { return []string{floor, "go-sdk", "mcp-go"} }

// everything selects all items that run by default.
const everything = "all"

// pick returns the items of all that list names, in the order of all. For an
// empty list it returns the items that run by default.
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
		return nil, fmt.Errorf("unknown names: %s; known names: %s", strings.Join(names, ", "), strings.Join(known, ", "))
	}
	return picked, nil
}
