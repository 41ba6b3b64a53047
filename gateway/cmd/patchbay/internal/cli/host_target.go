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

// namedHost returns the target of @host, or of @, the running gateway, to which it connects later.
func (p *program) namedHost(ctx context.Context, name string) (*target, error) {
	if name == hostName {
		t, _, err := p.hostTarget(ctx, &host.Caller{})
		return t, err
	}
	return &target{command: []string{runningName}, host: &hostTarget{p.runningTransport}}, nil
}

// hostTarget returns the target of all configured servers that a caller may use, and its host. It starts none of
// them: they start when they are used, and end with the program.
func (p *program) hostTarget(ctx context.Context, caller *host.Caller) (*target, *host.Host, error) {
	c, err := p.hostConfig("")
	if err != nil {
		return nil, nil, err
	}
	c.capabilities, c.observer = p.hostCapabilities(), p.clientObserver(ctx)
	h, err := p.openHost(ctx, c, nil)
	if err != nil {
		return nil, nil, err
	}
	p.atEnd = append(p.atEnd, h.Close)
	p.failed = func() { p.printFailed(c, h) }
	view := h.For(caller)
	t := &target{command: []string{hostName}, host: &hostTarget{func() mcp.SessionTransport {
		transport, _ := mcp.InMemory(view).(mcp.SessionTransport) // it serves every revision
		return transport
	}}}
	return t, h, nil
}

// reportFailed prints which servers of @host have failed: their items are missing in lists.
func (p *program) reportFailed() {
	if p.failed != nil && !p.completing {
		p.failed()
	}
}

func (p *program) printFailed(c *hostConfig, h *host.Host) {
	for _, u := range h.Upstreams() {
		switch st := u.Status(); st.State {
		case host.StateAuth, host.StateBackoff, host.StateCrashLoop, host.StateConfig:
			p.printServer(c, u.Name(), st.State, st.Err)
		}
	}
}

// hostCapabilities returns what this command supports, nil if its clients decide. A server that has
// asked for roots and gets no answer may not exit for seconds.
func (p *program) hostCapabilities() *mcp.ClientCapabilities {
	if p.bridging {
		return nil
	}
	yes, caps := &struct{}{}, &mcp.ClientCapabilities{}
	if !p.noQuestions {
		caps.Elicitation = &mcp.ElicitationCapability{Form: yes, URL: yes}
		caps.Sampling = &mcp.SamplingCapability{}
	}
	if len(p.flags.roots) > 0 {
		caps.Roots = yes
	}
	return caps
}

// end closes what commands have opened, with all processes.
func (p *program) end() {
	for _, f := range p.atEnd {
		if err := f(); err != nil && p.flags.verbose {
			p.screen.printf("patchbay: close: %s", clean(err.Error()))
		}
	}
	p.atEnd = nil
	if p.observed != nil {
		p.observed.end()
	}
	p.closeAudits()
	for _, lock := range p.locks {
		_ = lock.Close() // at the latest, the end of the process releases it
	}
	p.locks = nil
}

// tracedTransport returns a transport whose messages are recorded and printed as the flags say.
func (p *program) tracedTransport(transport mcp.SessionTransport, t *target) mcp.SessionTransport {
	p.trace(transport, t)
	if p.flags.verbose {
		return &tracedHost{transport, p.screen}
	}
	return transport
}

// errHostFlags is returned for flags of one server.
var errHostFlags = errors.New("--header, --env and --cwd are for one server: @host and @ are several, whose " +
	"configuration has them")

// hostNames completes the target of all servers, if there are any.
func (p *program) hostNames(typed string) []string {
	names := p.runningNames(context.Background(), typed)
	if !strings.HasPrefix(hostName, typed) || len(p.targetNames("")) == 0 {
		return names
	}
	return append(names, hostName)
}
