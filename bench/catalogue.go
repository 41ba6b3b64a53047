package main

import (
	"fmt"
	"slices"
	"strings"
)

// A server is one server program of the benchmark, in one configuration.
type server struct {
	name        string
	description string   // for the report
	dir         string   // of its program, under server/
	args        []string // besides those of the workload
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
	// echoOnly marks a server that offers only echo.Tool and echo.ProgressTool.
	echoOnly bool
	// losesNotifications marks a server that can lose progress notifications.
	losesNotifications bool
	// streamsOnDemand marks a server that chooses an event stream itself when a
	// message precedes the result. It has no setting for this.
	streamsOnDemand bool
}

// baseline is the name of the baseline server and client.
const baseline = "limit"

func catalogueServers() []server {
	return []server{
		{name: baseline, description: "bare net/http, or a bare loop over stdin, with the least work of any server",
			dir: "limit"},
		{name: "limit-json", description: "the same with encoding/json both ways", dir: "limitjson", echoOnly: true},
		{name: ours, description: "this project", dir: "patchbay", keepsSessions: true, streamsOnDemand: true},
		{name: "go-sdk", description: "modelcontextprotocol/go-sdk v1.8.0, stateless in the modern era",
			dir: "gosdk", peer: true, keepsSessions: true},
		{name: "mcp-go", description: "mark3labs/mcp-go v1.2.1 with its defaults: arguments are not validated",
			dir: "mcpgo", peer: true, keepsSessions: true, losesNotifications: true},
		{name: "mcp-go-validating", description: "the same with validation",
			dir: "mcpgo", args: []string{"-validate"}, peer: true, losesNotifications: true, optional: true},
		{name: "ts-v2", description: "@modelcontextprotocol/server 2.4.0, stateless in the modern era",
			script: "ts/v2.mjs", peer: true, keepsSessions: true, slow: true},
		{name: "ts-v1", description: "@modelcontextprotocol/sdk 1.32.2, which supports the session era only",
			script: "ts/v1.mjs", peer: true, keepsSessions: true, sessionOnly: true, slow: true},
	}
}

// references lists the programs to which the report computes CPU ratios.
func (w workload) references() []string {
	if w.gateway != nil {
		return gatewayReferences
	}
	if w.growth != nil {
		return []string{w.growth.name(w.growth.sizes[0])}
	}
	return []string{baseline, "go-sdk", "mcp-go"}
}

// everything selects all items that run by default.
const everything = "all"

// pick returns the items of all that list names, in the order of all. A name
// may end with an asterisk, for any text. For an empty list, pick returns the
// items that run by default.
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
	used := make([]bool, len(names))
	for _, item := range all {
		at := slices.IndexFunc(names, func(pattern string) bool {
			prefix, any := strings.CutSuffix(pattern, "*")
			return pattern == name(item) || any && strings.HasPrefix(name(item), prefix)
		})
		if at >= 0 {
			used[at] = true
		}
		if at >= 0 || list == "" && byDefault(item) {
			picked = append(picked, item)
		}
	}
	var unknown []string
	for i, n := range names {
		if !used[i] {
			unknown = append(unknown, n)
		}
	}
	if len(unknown) > 0 {
		var known []string
		for _, item := range all {
			known = append(known, name(item))
		}
		return nil, fmt.Errorf("unknown names: %s; known names: %s", strings.Join(unknown, ", "),
			strings.Join(known, ", "))
	}
	return picked, nil
}
