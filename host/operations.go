package host

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"sync"

	"github.com/patchbay-mcp/patchbay/host/config"
	"github.com/patchbay-mcp/patchbay/host/event"
	"github.com/patchbay-mcp/patchbay/host/hosterr"
	"github.com/patchbay-mcp/patchbay/host/internal/catalogue"
	"github.com/patchbay-mcp/patchbay/host/internal/login"
	"github.com/patchbay-mcp/patchbay/host/operator"
	"github.com/patchbay-mcp/patchbay/host/pin"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/host/state"
	"github.com/patchbay-mcp/patchbay/host/status"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// operations implements the interfaces of package operator.
type operations struct{ h *Host }

// Operator returns the operations of the host that only a gateway or a console needs.
func (h *Host) Operator() *operator.Operator { return &h.operator }

func newOperator(h *Host) operator.Operator {
	o := operations{h}
	return operator.Operator{Logins: o, Servers: o, Sessions: o, Records: o, Limits: o, Tasks: &h.tasks}
}

func (o operations) SetLoginURL(base string, refuse func(p *mcp.Principal) error) {
	o.h.logins.SetURL(base, refuse)
}

func (o operations) Login(ticket string) (operator.Login, error) {
	return asLogin(o.h.logins.ByTicket(ticket))
}

func (o operations) BeginLogin(
	ctx context.Context, server string, c *policy.Caller, scopes ...string,
) (operator.Login, error) {
	u := o.h.servers.Current().Named(server)
	if u == nil {
		return nil, fmt.Errorf("host: unknown server %.64q", server)
	}
	cred, err := u.Logins().Own(ctx, c)
	if err != nil {
		return nil, err
	}
	return asLogin(o.h.logins.Begin(cred, scopes))
}

func (o operations) FinishLogin(ctx context.Context, browser string, response url.Values) (operator.Login, error) {
	return asLogin(o.h.logins.Respond(ctx, browser, response))
}

func (o operations) Logout(ctx context.Context, server string, c *policy.Caller) error {
	u := o.h.servers.Current().Named(server)
	if u == nil {
		return fmt.Errorf("host: unknown server %.64q", server)
	}
	cred, err := u.Logins().Of(ctx, c)
	if err != nil || cred == nil {
		return err
	}
	err = cred.Logout(ctx)
	for _, p := range u.PoolsOf(cred.Principal()) {
		p.Lists().Notify() // the tool that logs out is no longer listed
		p.Disconnect()
	}
	return err
}

func (o operations) ForwardsAuthorization() bool {
	return o.h.servers.Current().ForwardsAuthorization()
}

// asLogin returns a nil interface for a nil login.
func asLogin(l *login.Login, err error) (operator.Login, error) {
	if l == nil {
		return nil, err
	}
	return l, err
}

func (o operations) Profiles() []string {
	return slices.Sorted(maps.Keys(o.h.servers.Current().Settings().Profiles))
}

func (o operations) HasServer(profile, server string) bool {
	return o.h.servers.Current().InProfile(profile, server)
}

func (o operations) IsLocal(server string) bool {
	s := o.h.servers.Current()
	u := s.Named(server)
	return u != nil && s.IsLocal(u)
}

func (o operations) State() state.Store { return o.h.opts.State }

func (o operations) WaitLists(ctx context.Context) {
	var reading sync.WaitGroup
	for _, u := range o.h.Upstreams() {
		for p := range u.server.Connected() {
			for k := range catalogue.Kinds {
				reading.Go(func() { p.Lists().FinishReading(ctx, catalogue.Kind(k)) })
			}
		}
	}
	reading.Wait()
}

func (o operations) Inspect(ctx context.Context, server string) ([]*pin.Pin, error) {
	u := o.h.servers.Current().Named(server)
	if u == nil {
		return nil, fmt.Errorf("host: unknown server %.64q", server)
	}
	found, ok, err := u.Inspect(ctx)
	if err == nil && !ok {
		err = &hosterr.Error{Code: hosterr.CodeConfigError, Server: server, Err: errNoPins}
	}
	return found, err
}

func (o operations) EndSession(session string) {
	o.disconnect(session)
	o.h.approve.EndSession(session)
}

func (o operations) LeaveSession(session string) {
	o.disconnect(session)
	o.h.approve.LeaveSession(session)
}

// disconnect ends the views and connections of a session at this process.
func (o operations) disconnect(session string) {
	if session == "" {
		return
	}
	o.h.mu.Lock()
	for key, v := range o.h.views {
		if v.caller.Session == session {
			delete(o.h.views, key)
		}
	}
	o.h.mu.Unlock()
	for _, u := range o.h.servers.All() {
		if u.Share() == config.ShareSession {
			u.EndSession(session)
		}
	}
}

func (o operations) EndApprovals() { o.h.approve.End() }

func (o operations) LeaveCluster(ctx context.Context) error {
	if o.h.relay == nil {
		return nil
	}
	return o.h.relay.Shutdown(ctx)
}

func (o operations) Mask(text string) string {
	text = o.h.servers.Mask(text)
	if !o.h.logins.SentTokens() {
		return text
	}
	for _, u := range o.h.servers.All() {
		text = u.MaskTokens(text, nil)
	}
	return text
}

func (o operations) Observer() mcp.Observer { return o.h.opts.Observer }

func (o operations) Record(r *event.Record) error { return o.h.record(r) }

func (o operations) CallerLimits() []status.Caller { return o.h.limits.Callers() }

func (o operations) LimitSharing() (processes int, answers bool) { return o.h.limits.Sharing() }

func (o operations) CallerSettings() *config.CallerLimits { return o.h.callerLimits() }

// errNoPins reports that the host does not compare definitions of the server with approved
// definitions.
var errNoPins = errors.New("the definitions of the server are not recorded: its settings must contain " +
	"\"trust\"")
