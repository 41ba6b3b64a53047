package host

import (
	"context"
	"encoding/json"
	"errors"
	"sync/atomic"

	"github.com/patchbay-mcp/patchbay/host/hosterr"
	"github.com/patchbay-mcp/patchbay/host/internal/catalogue"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/internal/schema"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// An agent is the client of the local user's view, for [Host.Tools] and similar methods.
type agent struct{ client atomic.Pointer[mcp.Client] }

// connect returns the client. Only the first of several clients that connect at once remains.
func (a *agent) connect(ctx context.Context, h *Host) (*mcp.Client, error) {
	if c := a.client.Load(); c != nil {
		return c, nil
	}
	opts := h.opts.Client
	c, err := mcp.Connect(ctx, mcp.InMemory(h.For(&policy.Caller{})), &opts)
	if err != nil {
		return nil, err
	}
	if !a.client.CompareAndSwap(nil, c) {
		_ = c.Close()
		return a.client.Load(), nil
	}
	return c, nil
}

func (a *agent) close() {
	if c := a.client.Load(); c != nil {
		_ = c.Close()
	}
}

// Tools returns the tools of all servers, in the order of the file and of their names. Their names
// fit the interfaces of common models: at most 48 of the characters A-Z, a-z, 0-9, _ and -.
func (h *Host) Tools(ctx context.Context) ([]*mcp.Tool, error) {
	c, err := h.agent.connect(ctx, h)
	if err != nil {
		return nil, err
	}
	return mcp.Collect(c.Tools(ctx))
}

// Call calls a tool by the name that [Host.Tools] returns, after [Options.Consent] allowed the
// call. The functions of [Options.Client] answer questions of the server. The error is a
// [*hosterr.Error] if the call was refused or the server sent no valid response, and an
// [*mcp.Error] if the server responded with an error.
func (h *Host) Call(ctx context.Context, tool string, args any) (*mcp.CallToolResult, error) {
	v := h.For(&policy.Caller{})
	item, p, err := v.table.Find(ctx, catalogue.Tools, tool)
	if err != nil {
		return nil, err
	}
	if item == nil {
		return nil, mcp.Errorf(mcp.CodeInvalidParams, "unknown tool %q", tool)
	}
	arguments, err := schema.Encode(args)
	if err != nil {
		return nil, err
	}
	a := &policy.Action{Kind: policy.ActionCall, Caller: v.caller, Server: p.Name(), Target: item.Original,
		Definition: item.Raw, Arguments: arguments}
	if err := h.opts.consent(ctx, a); err != nil {
		return nil, err
	}
	// The user may take long: only the tool that the user saw may run.
	if now, _, err := v.table.Find(ctx, catalogue.Tools, tool); err != nil || now == nil || now.Server != a.Server ||
		now.Digest != item.Digest {
		return nil, &hosterr.Error{Code: hosterr.CodeDenied, Server: a.Server, Err: errChanged}
	}
	c, err := h.agent.connect(ctx, h)
	if err != nil {
		return nil, err
	}
	return c.CallTool(ctx, tool, json.RawMessage(arguments)) // the arguments that the user saw
}

var errChanged = hosterr.Public{Err: errors.New(
	"denied: the definition of the tool has changed since the user has seen it")}

var errNoConsent = errors.New("denied: no user can be asked to allow the call")

// consent asks the user about a call of the agent.
func (o *Options) consent(ctx context.Context, a *policy.Action) error {
	if o.Consent == nil {
		return &hosterr.Error{Code: hosterr.CodeDenied, Server: a.Server, Err: errNoConsent}
	}
	verdict, err := o.Consent(ctx, a)
	switch {
	case err != nil:
		return &hosterr.Error{Code: hosterr.CodeDenied, Server: a.Server, Err: err}
	case !verdict.Allow:
		return &hosterr.Error{Code: hosterr.CodeDenied, Server: a.Server,
			Err: hosterr.Public{Err: errors.New("denied: " + verdict.Reason)}}
	}
	return nil
}
