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

	"github.com/patchbay-mcp/patchbay/ext/tasks"
	"github.com/patchbay-mcp/patchbay/host/state"
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
	// StateKeys and StateStore are the fields of [mcp.ServerOptions].
	StateKeys  [][]byte
	StateStore mcp.StateStore
	// State contains demo://counter. Default: in memory.
	State state.Store
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
		StateKeys:    opts.StateKeys,
		StateStore:   opts.StateStore,
	}
	if opts.Scopes != nil {
		serverOpts.Middleware = append(serverOpts.Middleware, opts.Scopes)
	}
	s := mcp.NewServer("patchbay-demo", version, serverOpts)
	t := tasks.NewServer(s, &tasks.Options{Store: opts.Tasks, Logger: opts.Logger})
	count := &counter{opts.State}
	if opts.State == nil {
		count.store = new(state.Memory)
	}

	addTools(s)
	addQuestions(s)
	addTasks(t)
	addApp(s)
	addSkills(s)
	addResources(s)
	addCounter(s, count)
	addPrompts(s)
	if opts.Scopes != nil {
		addReset(s, count)
	}
	return &Demo{Server: s, Tasks: t}
}

// ToolReset is the name of a tool that needs a scope of its own.
const ToolReset = "reset_counter"

func addReset(s *mcp.Server, count *counter) {
	mcp.AddTool(s, &mcp.Tool{
		Name: ToolReset, Title: "Reset the counter",
		Description: "Set demo://counter to zero. Needs an additional scope.",
		Annotations: resetting(),
	}, func(ctx context.Context, _ struct{}) (int64, error) {
		before, _, err := count.change(ctx, func(int64) int64 { return 0 })
		if err == nil {
			s.ResourceUpdated(counterURI)
		}
		return before, err
	})
}

// mustEmbed panics if an embedded file is missing or invalid: that is a mistake in this package.
func mustEmbed(err error) {
	if err != nil {
		panic(fmt.Sprintf("demo: %v", err))
	}
}
