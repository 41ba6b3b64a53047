package cli

import (
	"context"
	"errors"
	"strings"

	"github.com/patchbay-mcp/patchbay/host"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// A hostTarget is the TARGET of all configured servers: a host in this process, or the running gateway.
type hostTarget struct {
	open func() mcp.SessionTransport
}

// namedHosts implements hosts.
type namedHosts struct{}

// named returns the target of @host, or of @, the running gateway, to which it connects later.
func (namedHosts) named(ctx context.Context, f *factory, name string) (*target, error) {
	if name == hostName {
		t, _, err := openHostTarget(ctx, f, &host.Caller{})
		return t, err
	}
	return &target{command: []string{runningName}, host: &hostTarget{func() mcp.SessionTransport { return runningTransport(f) }}}, nil
}

// hostTarget returns the target of all configured servers that a caller may use, and its host. It starts none of
// them: they start when they are used, and end with the program.
func openHostTarget(ctx context.Context, f *factory, caller *host.Caller) (*target, *host.Host, error) {
	c, err := readHostConfig(f, "")
	if err != nil {
		return nil, nil, err
	}
	c.capabilities, c.observer = hostCapabilities(f), f.Observe.clientObserver(ctx)
	h, err := openHost(ctx, f, c, nil)
	if err != nil {
		return nil, nil, err
	}
	f.atEnd = append(f.atEnd, h.Close)
	f.failed = func() { printFailed(f, c, h) }
	view := h.For(caller)
	t := &target{command: []string{hostName}, host: &hostTarget{func() mcp.SessionTransport {
		transport, _ := mcp.InMemory(view).(mcp.SessionTransport) // it serves every revision
		return transport
	}}}
	return t, h, nil
}

// reportFailed prints which servers of @host have failed: their items are missing in lists.
func reportFailed(f *factory) {
	if f.failed != nil && !f.Observe.completing {
		f.failed()
	}
}

func printFailed(f *factory, c *hostConfig, h *host.Host) {
	for _, u := range h.Upstreams() {
		switch st := u.Status(); st.State {
		case host.StateAuth, host.StateBackoff, host.StateCrashLoop, host.StateConfig:
			printServer(f, c, u.Name(), st.State, st.Err)
		}
	}
}

// hostCapabilities returns what this command supports, nil if its clients decide. A server that has
// asked for roots and gets no answer may not exit for seconds.
func hostCapabilities(f *factory) *mcp.ClientCapabilities {
	if f.Client.bridging {
		return nil
	}
	yes, caps := &struct{}{}, &mcp.ClientCapabilities{}
	if !f.Client.noQuestions {
		caps.Elicitation = &mcp.ElicitationCapability{Form: yes, URL: yes}
		caps.Sampling = &mcp.SamplingCapability{}
	}
	if len(f.Flags.roots) > 0 {
		caps.Roots = yes
	}
	return caps
}

// end closes what commands have opened, with all processes.
func end(p *factory) {
	for _, f := range p.atEnd {
		if err := f(); err != nil && p.Flags.verbose {
			p.IO.Err.printf("patchbay: close: %s", clean(err.Error()))
		}
	}
	p.atEnd = nil
	if p.Observe.observed != nil {
		p.Observe.observed.end()
	}
	closeAudits(p)
	for _, lock := range p.locks {
		_ = lock.Close() // at the latest, the end of the process releases it
	}
	p.locks = nil
}

// tracedTransport returns a transport whose messages are recorded and printed as the flags say.
func (d *dialer) tracedTransport(transport mcp.SessionTransport, t *target) mcp.SessionTransport {
	d.trace(transport, t)
	if d.Flags.verbose {
		return &tracedHost{transport, tracer{d.IO.Err}}
	}
	return transport
}

// errHostFlags is returned for flags of one server.
var errHostFlags = errors.New("--header, --env and --cwd are for one server: @host and @ are several, whose " +
	"configuration has them")

// names completes the target of all servers, if there are any.
func (namedHosts) names(f *factory, typed string) []string {
	names := runningNames(context.Background(), f, typed)
	if !strings.HasPrefix(hostName, typed) || len(f.Config.targetNames("")) == 0 {
		return names
	}
	return append(names, hostName)
}
