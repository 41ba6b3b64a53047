package host

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"

	"github.com/patchbay-mcp/patchbay/host/config"
	"github.com/patchbay-mcp/patchbay/internal/proclimit"
	"github.com/patchbay-mcp/patchbay/internal/wire"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcphttp"
)

// Dial returns the transport to a server: a child process with its command, or Streamable HTTP to
// its URL, with HTTP+SSE as the fallback. It is the default of [Options.Dial]. The transport sends
// no credentials to an http URL of another machine, unless a [Host] calls Dial for a server with
// the setting insecureHTTP.
func Dial(ctx context.Context, s *config.Server) (mcp.Transport, error) {
	if s.Type != config.TypeStdio {
		header := http.Header{}
		for key, value := range s.Header {
			header.Set(key, value)
		}
		_, insecure := ctx.Value(insecureHTTPKey{}).(bool)
		return mcphttp.NewTransport(s.URL,
			&mcphttp.TransportOptions{Header: header, Client: ClientFrom(ctx), InsecureHTTP: insecure}), nil
	}
	t := mcp.Command(s.Command, s.Args...)
	t.Dir = s.Dir
	for _, key := range slices.Sorted(maps.Keys(s.Env)) {
		t.Env = append(t.Env, key+"="+s.Env[key])
	}
	return t, nil
}

// insecureHTTPKey is the context key for servers with the setting insecureHTTP.
type insecureHTTPKey struct{}

// expanded returns the entry with its variables replaced, for a caller.
func (u *Upstream) expanded(ctx context.Context, e *entry, c *Caller) (*config.Server, error) {
	if e.invalid != nil {
		return nil, e.invalid
	}
	server := *e.server
	if u.usesWorkspace() {
		server.Workspace = c.Workspace
	}
	expanded, err := server.Expand(ctx, u.host.lookup(c))
	if err != nil {
		return nil, err
	}
	u.keepSecrets(expanded.Secrets())
	u.setEndpoint(e, expanded.URL)
	return expanded, checkHeaders(e, expanded)
}

// dial connects to the server. The transport must be closed also if there is an error, which waits
// for the end of the process; it is nil if there is none.
func (u *Upstream) dial(
	ctx context.Context, server *config.Server, s *start,
) (t mcp.Transport, c *mcp.Client, err error) {
	opts := s.in.options()
	for _, opts.Revision = range u.revisions(opts.Revision) {
		s.close(t)
		if t, err = u.host.opts.Dial(ctx, server); err != nil {
			return nil, nil, err
		}
		if err = u.prepare(t, s); err != nil {
			return t, nil, err
		}
		if c, err = mcp.Connect(ctx, t, opts); err == nil || !errors.Is(err, mcp.ErrNoCommonRevision) {
			break
		}
	}
	return t, c, err
}

// revisions returns the revisions to connect with, in turn, for an era; an empty one is for what the
// server supports.
func (u *Upstream) revisions(chosen string) (all []string) {
	if chosen != "" || u.entry().settings.Era != config.EraModern && u.entry().settings.Era != config.EraSession {
		return []string{chosen}
	}
	for _, r := range wire.Revisions() {
		if r.Modern() == (u.entry().settings.Era == config.EraModern) {
			all = append([]string{r.String()}, all...)
		}
	}
	return all
}

// prepare configures the transport of a process. Another transport is left alone.
func (u *Upstream) prepare(t mcp.Transport, s *start) error {
	c, ok := t.(*mcp.CommandTransport)
	if !ok {
		return nil
	}
	c.Once = true // this package decides when to start it again
	if c.Stderr == nil {
		c.Stderr = &stderrWriter{&u.stderr, s.id}
	}
	report := c.Started
	c.Started = func(pid int) {
		u.mu.Lock()
		s.pid = pid
		u.mu.Unlock()
		if report != nil {
			report(pid)
		}
	}
	if u.entry().settings.Limits == (config.Limits{}) {
		return nil
	}
	limiter, err := proclimit.New(proclimit.Limits(u.entry().settings.Limits))
	if err != nil {
		return &Error{Code: CodeConfigError, Server: u.name, Err: fmt.Errorf("limits: %w", err)}
	}
	s.limiter = limiter
	if missing := limiter.Missing(); len(missing) > 0 {
		u.host.opts.Logger.Warn("host: the system does not enforce limits of the server", "server", u.name,
			"limits", missing)
		u.mu.Lock()
		s.unenforced = missing
		u.mu.Unlock()
	}
	internals.Prepare(c, limiter.Prepare)
	return nil
}
