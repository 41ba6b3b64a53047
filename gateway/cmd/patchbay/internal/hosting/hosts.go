package hosting

import (
	"context"
	"strings"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmdutil"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/target"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/term"
	"github.com/patchbay-mcp/patchbay/host"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/host/status"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// Named returns the target of @host, or of @, the running gateway, to which it connects later.
func Named(ctx context.Context, f *cmdutil.Factory, name string) (*target.Target, error) {
	if name == target.HostName {
		t, _, err := OpenHostTarget(ctx, f, &policy.Caller{})
		return t, err
	}
	return &target.Target{Command: []string{target.RunningName},
		Host: &target.HostTarget{Open: func() mcp.SessionTransport {
			return runningTransport(f)
		}}}, nil
}

// OpenHostTarget returns the target @host, all configured servers that who may use, and its
// host. A server starts when it is first used, and ends with the program.
func OpenHostTarget(ctx context.Context, f *cmdutil.Factory, who *policy.Caller) (*target.Target, *host.Host, error) {
	c, err := ReadHostConfig(f, "")
	if err != nil {
		return nil, nil, err
	}
	c.capabilities, c.Observer = hostCapabilities(f), f.Observe.ClientObserver(ctx)
	h, err := OpenHost(ctx, f, c, nil)
	if err != nil {
		return nil, nil, err
	}
	f.Exit.Add(cmdutil.ExitHosts, func() {
		if err := h.Close(); err != nil && f.Flags.Verbose {
			f.IO.Err.Printf("patchbay: close: %s", term.Clean(err.Error()))
		}
	})
	view := h.For(who)
	open := func() mcp.SessionTransport {
		transport, _ := mcp.InMemory(view).(mcp.SessionTransport) // it serves every revision
		return transport
	}
	t := &target.Target{Command: []string{target.HostName},
		Host: &target.HostTarget{Open: open, ReportFailed: func() { printFailed(f, c, h) }}}
	return t, h, nil
}

func printFailed(f *cmdutil.Factory, c *Config, h *host.Host) {
	for _, u := range h.Upstreams() {
		switch st := u.Status(); st.State {
		case status.Auth, status.Backoff, status.CrashLoop, status.Config:
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

// Names completes the target of all servers, if there are any.
func Names(f *cmdutil.Factory, typed string) []string {
	names := runningNames(context.Background(), f, typed)
	if !strings.HasPrefix(target.HostName, typed) || //nolint:gocritic // a constant is completed
		len(f.Config.TargetNames("")) == 0 {
		return names
	}
	return append(names, target.HostName)
}
