package hosting

import (
	"context"
	"strings"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmdutil"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/target"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/term"
	"github.com/patchbay-mcp/patchbay/host"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// Hosts implements hosts.
type Hosts struct{}

// Named returns the target of @host, or of @, the running gateway, to which it connects later.
func (Hosts) Named(ctx context.Context, f *cmdutil.Factory, name string) (*target.Target, error) {
	if name == target.HostName {
		t, _, err := OpenHostTarget(ctx, f, &policy.Caller{})
		return t, err
	}
	return &target.Target{Command: []string{target.RunningName},
		Host: &target.HostTarget{Open: func() mcp.SessionTransport {
			return runningTransport(f)
		}}}, nil
}

// OpenHostTarget returns the target @host, all configured servers that a caller may use, and its
// host. A server starts when it is first used, and ends with the program.
func OpenHostTarget(ctx context.Context, f *cmdutil.Factory, caller *policy.Caller) (*target.Target, *host.Host, error) {
	c, err := ReadHostConfig(f, "")
	if err != nil {
		return nil, nil, err
	}
	c.capabilities, c.Observer = hostCapabilities(f), f.Observe.ClientObserver(ctx)
	h, err := OpenHost(ctx, f, c, nil)
	if err != nil {
		return nil, nil, err
	}
	f.AtEnd = append(f.AtEnd, h.Close)
	f.Failed = func() { printFailed(f, c, h) }
	view := h.For(caller)
	t := &target.Target{Command: []string{target.HostName}, Host: &target.HostTarget{Open: func() mcp.SessionTransport {
		transport, _ := mcp.InMemory(view).(mcp.SessionTransport) // it serves every revision
		return transport
	}}}
	return t, h, nil
}

func printFailed(f *cmdutil.Factory, c *Config, h *host.Host) {
	for _, u := range h.Upstreams() {
		switch st := u.Status(); st.State {
		case host.StateAuth, host.StateBackoff, host.StateCrashLoop, host.StateConfig:
			PrintServer(f, c, u.Name(), st.State, st.Err)
		}
	}
}

// hostCapabilities returns the client capabilities of this command, or nil if the clients of the
// gateway decide. It must not contain roots without --root: a server that asks for roots in vain
// may take seconds to exit.
func hostCapabilities(f *cmdutil.Factory) *mcp.ClientCapabilities {
	if f.Client.Bridging {
		return nil
	}
	yes, caps := &struct{}{}, &mcp.ClientCapabilities{}
	if !f.Client.NoQuestions {
		caps.Elicitation = &mcp.ElicitationCapability{Form: yes, URL: yes}
		caps.Sampling = &mcp.SamplingCapability{}
	}
	if len(f.Flags.Roots) > 0 {
		caps.Roots = yes
	}
	return caps
}

// End closes the hosts and logs that commands opened, with all processes.
func End(p *cmdutil.Factory) {
	for _, f := range p.AtEnd {
		if err := f(); err != nil && p.Flags.Verbose {
			p.IO.Err.Printf("patchbay: close: %s", term.Clean(err.Error()))
		}
	}
	p.AtEnd = nil
	if p.Observe.Observed != nil {
		p.Observe.Observed.End()
	}
	closeAudits(p)
	for _, lock := range p.Locks {
		_ = lock.Close() // at the latest, the end of the process releases it
	}
	p.Locks = nil
}

// Names completes the target of all servers, if there are any.
func (Hosts) Names(f *cmdutil.Factory, typed string) []string {
	names := runningNames(context.Background(), f, typed)
	if !strings.HasPrefix(target.HostName, typed) || //nolint:gocritic // a constant is completed
		len(f.Config.TargetNames("")) == 0 {
		return names
	}
	return append(names, target.HostName)
}
