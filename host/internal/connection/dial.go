package connection

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os/exec"
	"slices"
	"time"

	"github.com/patchbay-mcp/patchbay/host/config"
	"github.com/patchbay-mcp/patchbay/host/internal/proclimit"
	"github.com/patchbay-mcp/patchbay/host/internal/sandbox"
	"github.com/patchbay-mcp/patchbay/internal/wire"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcphttp"
)

// keepAlive is the interval of pings in sessions.
const keepAlive = 60 * time.Second

// Dial returns the transport to a server: a child process with its command, or Streamable HTTP to its
// URL with a client, which may be nil.
func Dial(s *config.Server, client *http.Client, insecureHTTP bool) mcp.Transport {
	if s.Type != config.TypeStdio {
		header := http.Header{}
		for key, value := range s.Header {
			header.Set(key, value)
		}
		return mcphttp.NewTransport(s.URL,
			&mcphttp.TransportOptions{Header: header, Client: client, InsecureHTTP: insecureHTTP})
	}
	t := mcp.Command(s.Command, s.Args...)
	t.Dir = s.Dir
	for _, key := range slices.Sorted(maps.Keys(s.Env)) {
		t.Env = append(t.Env, key+"="+s.Env[key])
	}
	return t
}

// dial connects to the server. Unless the transport is nil, the caller must close it even after an
// error; closing waits for the end of the process.
func (c *Conn) dial(ctx context.Context, s *Setup) (t mcp.Transport, client *mcp.Client, err error) {
	opts := s.Client
	opts.KeepAlive = keepAlive
	for _, opts.Revision = range revisions(opts.Revision, s.Era) {
		c.close(t)
		if t, err = c.options.Dial(ctx, s.Server); err != nil {
			return nil, nil, err
		}
		if err = c.prepare(ctx, t, s); err != nil {
			return t, nil, err
		}
		if client, err = mcp.Connect(ctx, t, opts); err == nil || !errors.Is(err, mcp.ErrNoCommonRevision) {
			break
		}
	}
	if exit, ok := errors.AsType[*mcp.ExitError](err); ok && c.sandbox != nil {
		err = cmp.Or(sandbox.StartError(exit.Stderr), err)
	}
	return t, client, err
}

// revisions returns the revisions to connect with, in turn, for an era. An empty revision means the
// latest revision that the server supports.
func revisions(chosen string, era config.Era) (all []string) {
	if chosen != "" || era != config.EraModern && era != config.EraSession {
		return []string{chosen}
	}
	for _, r := range wire.Revisions() {
		if r.Modern() == (era == config.EraModern) {
			all = append([]string{r.String()}, all...)
		}
	}
	return all
}

// prepare configures the transport of a process. It leaves other transports alone, unless the settings require
// a sandbox.
func (c *Conn) prepare(ctx context.Context, t mcp.Transport, s *Setup) error {
	command, ok := t.(*mcp.CommandTransport)
	if !ok && s.Sandbox != nil {
		return &sandbox.Error{Reason: fmt.Sprintf("Dial returned a %T: want a *mcp.CommandTransport", t)}
	}
	if !ok {
		return nil
	}
	command.Once = true // the owner decides when to start another process
	command.Stderr = &stderrWriter{c.options.Stderr, c.id, command.Stderr}
	if s.Sandbox != nil {
		box, err := isolate(ctx, command, s)
		if err != nil {
			return err
		}
		c.sandbox = box
		if s.Sandbox.Network == config.NetworkHost {
			c.options.Logger.Warn("host: the sandbox of the server includes the network of the machine")
		}
	}
	report := command.Started
	command.Started = func(pid int) {
		c.mu.Lock()
		c.pid = pid
		c.mu.Unlock()
		if report != nil {
			report(pid)
		}
	}
	if s.Limits == (config.Limits{}) {
		return nil
	}
	return c.limit(command, s.Limits)
}

// isolate makes a transport start its process in the sandbox of the settings.
func isolate(ctx context.Context, command *mcp.CommandTransport, s *Setup) (*sandbox.Sandbox, error) {
	box, err := sandbox.New(ctx, s.Sandbox, s.Server.Env)
	if err != nil {
		return nil, err
	}
	report := command.Started
	command.Prepare = box.Prepare
	command.Started = func(pid int) {
		box.Started()
		if report != nil {
			report(pid)
		}
	}
	return box, nil
}

// limit makes a transport start its process with limits, which also include the sandbox.
func (c *Conn) limit(command *mcp.CommandTransport, limits config.Limits) error {
	limiter, err := proclimit.New(proclimit.Limits{Memory: int64(limits.Memory), Processes: limits.Processes,
		OpenFiles: limits.OpenFiles, CPU: limits.CPU, BestEffort: limits.BestEffort})
	if err != nil {
		return &LimitsError{err}
	}
	c.limiter = limiter
	if missing := limiter.Missing(); len(missing) > 0 {
		c.options.Logger.Warn("host: the system does not enforce limits of the server", "limits", missing)
		c.mu.Lock()
		c.unenforced = missing
		c.mu.Unlock()
	}
	isolate := command.Prepare // nil without a sandbox
	command.Prepare = func(cmd *exec.Cmd) error {
		if isolate != nil {
			if err := isolate(cmd); err != nil {
				return err
			}
		}
		return limiter.Prepare(cmd)
	}
	return nil
}
