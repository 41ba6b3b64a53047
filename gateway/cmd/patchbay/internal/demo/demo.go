// Package demo contains the server of `patchbay serve`: a small example of every feature of the
// protocol.
//
// Each file shows one feature: tools, elicitation and sampling, resources, prompts, tasks, MCP Apps
// and skills.
package demo

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"

	"github.com/patchbay-mcp/patchbay/ext/tasks"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// Options configures a [Demo]. The zero value is a server without authorization.
type Options struct {
	// Scopes checks the scopes of calls, and adds [ToolReset]. Default: no check.
	Scopes mcp.Middleware
	// Middleware wraps all requests, including requests that Scopes refuses. Default: empty.
	Middleware []mcp.Middleware
	// Tasks stores the tasks. Default: in memory.
	Tasks tasks.Store
	// Logger receives internal errors. Default: slog.Default().
	Logger *slog.Logger
	// Observer receives the requests. Default: no observer.
	Observer mcp.Observer
}

// A Demo is the demo server.
type Demo struct {
	// Server is the MCP server.
	Server *mcp.Server
	// Tasks runs the tasks of the server. The caller of New closes it.
	Tasks *tasks.Server
}

// New returns a demo server that reports the given version. opts may be nil.
func New(version string, opts *Options) *Demo {
	if opts == nil {
		opts = &Options{}
	}
	serverOpts := &mcp.ServerOptions{
		Title:        "Patchbay demo",
		Instructions: "A playground. Call any tool: nothing has an effect outside this process.",
		Logger:       opts.Logger,
		Observer:     opts.Observer,
		Middleware:   opts.Middleware,
	}
	if opts.Scopes != nil {
		serverOpts.Middleware = append(serverOpts.Middleware, opts.Scopes)
	}
	s := mcp.NewServer("patchbay-demo", version, serverOpts)
	t := tasks.NewServer(s, &tasks.Options{Store: opts.Tasks, Logger: opts.Logger})
	counter := new(atomic.Int64)

	addTools(s)
	addQuestions(s)
	addTasks(t)
	addApp(s)
	addSkills(s)
	addResources(s)
	addCounter(s, counter)
	addPrompts(s)
	if opts.Scopes != nil {
		addReset(s, counter)
	}
	return &Demo{Server: s, Tasks: t}
}

// ToolReset is the name of a tool that needs a scope of its own.
const ToolReset = "reset_counter"

func addReset(s *mcp.Server, counter *atomic.Int64) {
	mcp.AddTool(s, &mcp.Tool{
		Name: ToolReset, Title: "Reset the counter",
		Description: "Set demo://counter to zero. Needs an additional scope.",
		Annotations: resetting(),
	}, func(context.Context, struct{}) (int64, error) {
		before := counter.Swap(0)
		s.ResourceUpdated(counterURI)
		return before, nil
	})
}

// mustEmbed panics if an embedded file is missing or invalid: that is a mistake in this package.
func mustEmbed(err error) {
	if err != nil {
		panic(fmt.Sprintf("demo: %v", err))
	}
}
