package gateway

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"net/http"
	"slices"

	"github.com/patchbay-mcp/patchbay/host/event"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// A ConsoleRole limits what a person may do in a web console of a gateway.
type ConsoleRole string

// Roles. An operator may do everything that a viewer may do.
const (
	ConsoleViewer   ConsoleRole = "viewer"   // reads
	ConsoleOperator ConsoleRole = "operator" // also runs, decides, restarts, approves and edits
)

// IsValid reports whether the role exists.
func (r ConsoleRole) IsValid() bool { return r == ConsoleViewer || r == ConsoleOperator }

// ErrConsoleKey is returned for a key that opens no web console. Like the response to a wrong key,
// the error does not reveal the reason.
var ErrConsoleKey = errors.New("gateway: the key is wrong, has ended or has no role in the console")

var errNoConsole = errors.New("key without a role in the console")

// A ConsoleUser is a person whom a key of [Options].KeyStore identified in a web console. It is
// safe for concurrent use.
type ConsoleUser struct {
	keys *liveKeys
	hash keyHash
}

// ConsoleUser returns the person whom a key identifies. r is the request with which the person logs
// in: refusals are logged and recorded like other requests with a wrong key. The error is
// [ErrConsoleKey], or says that the keys cannot be read.
func (g *Gateway) ConsoleUser(r *http.Request, key string) (*ConsoleUser, error) {
	if g.live == nil || len(key) > maxKey {
		return nil, ErrConsoleKey
	}
	u := &ConsoleUser{g.live, sha256.Sum256([]byte(key))}
	k, err := g.live.find(u.hash)
	if err == nil && !k.Console.IsValid() {
		err = errNoConsole
	}
	if err != nil && !errors.Is(err, errKeysUnread) {
		g.observeRefusal(http.StatusForbidden)
		g.logRefusal(r, err, k)
		return nil, ErrConsoleKey
	}
	return u, err
}

// Check returns the principal of the person, and its role. It must be called for each request: the
// error is [ErrConsoleKey] after the key was revoked or has expired, or says that the keys cannot
// be read.
func (u *ConsoleUser) Check() (*mcp.Principal, ConsoleRole, error) {
	k, err := u.keys.find(u.hash)
	switch {
	case errors.Is(err, errKeysUnread):
		return nil, "", err
	case err != nil || !k.Console.IsValid():
		return nil, "", ErrConsoleKey
	}
	return k.caller, k.Console, nil
}

// Bind returns the context of a request, which also ends when the key ends. The caller must call
// done at the end of the request.
func (u *ConsoleUser) Bind(ctx context.Context) (bound context.Context, done func()) {
	k, err := u.keys.find(u.hash)
	if err != nil {
		bound, cancel := context.WithCancel(ctx)
		cancel()
		return bound, cancel
	}
	return u.keys.begin(ctx, k)
}

// CallerEndpoint returns the handler of a route for a single caller, such as a person in a web
// console. Its requests are requests of p, with the limits that the key or the scopes of p have
// over HTTP; nil is the local user. A route to a server uses the profiles of p. The error is the
// same for a route that p may not use and for a route that does not exist.
func (g *Gateway) CallerEndpoint(p *mcp.Principal, r Route) (mcp.Handler, error) {
	return g.callerEndpoint(p, r, "")
}

func (g *Gateway) callerEndpoint(p *mcp.Principal, r Route, id string) (*endpoint, error) {
	a, err := g.grantOf(p)
	if err != nil {
		return nil, err
	}
	if r.Server != "" && r.Profile == "" {
		r, err = g.serverRoute(a, r.Server)
	} else if r, err = a.route(r); err == nil {
		err = g.check(r)
	}
	if err == nil && p != nil && g.host.Operator().IsLocal(r.Server) {
		err = unknownRoute("server", r.Server)
	}
	e := g.endpoint(r, &a.limits, id)
	e.caller = p
	return e, err
}

// serverRoute returns the route to a server through the first profile of a grant that contains it.
func (g *Gateway) serverRoute(a *grant, server string) (Route, error) {
	profiles := a.profiles
	if profiles == nil {
		profiles = []string{g.opts.Profile}
	}
	at := slices.IndexFunc(profiles, func(profile string) bool {
		return g.host.Operator().HasServer(profile, server) && g.check(Route{Profile: profile}) == nil
	})
	if at < 0 || !g.hasServer(server) || a.limits.servers != nil && !slices.Contains(a.limits.servers, server) {
		return Route{}, unknownRoute("server", server)
	}
	return Route{Profile: profiles[at], Server: server}, nil
}

// grantOf returns the access that the credentials of a principal grant now.
func (g *Gateway) grantOf(p *mcp.Principal) (*grant, error) {
	switch {
	case p != nil && p.Issuer == KeyIssuer && g.live != nil:
		return g.live.grantOf(p)
	case p != nil && g.tokens != nil && slices.Contains(g.tokens.opts.AuthorizationServers, p.Issuer):
		if a, ok := g.tokens.grant(p); ok {
			return a, nil
		}
		return nil, errors.New("gateway: the login has no scope of a profile")
	}
	return localGrant, nil
}

// grantOf returns the access that the key of an identified principal grants now.
func (l *liveKeys) grantOf(p *mcp.Principal) (*grant, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	err := l.refresh()
	for _, k := range l.byHash {
		if err == nil && k.Name == p.Claims["key"] && k.caller.Key() == p.Key() && k.ctx.Err() == nil {
			return k.opens, nil
		}
	}
	return nil, cmp.Or(err, ErrConsoleKey)
}

// ErrUnknownCaller is returned for a key that does not exist or has ended, and for a caller without requests.
var ErrUnknownCaller = &Problem{Status: http.StatusNotFound, Code: "unknown_caller",
	Detail: "there is no such key, and no such caller has sent a request since the start"}

// FindCaller returns the principal of a key, or, if key is empty, the principal of the last request of a subject
// and its issuer. The error is [ErrUnknownCaller].
func (g *Gateway) FindCaller(key, subject, issuer string) (p *mcp.Principal, err error) {
	g.Admin()
	if p = g.admin.Load().events.principal(subject, issuer); key != "" {
		p = nil
		if k, err := g.live.named(key); err == nil {
			p = k.caller
		}
	}
	if p == nil {
		return nil, ErrUnknownCaller
	}
	return p, nil
}

// RecordView records that an operator, nil for the local user, sees the lists of a server as p. The error is the
// error of the Recorder: the lists must not be shown then.
func (g *Gateway) RecordView(operator, p *mcp.Principal, server string) error {
	detail := map[string]any{"action": "view as", "subject": p.Subject, "issuer": p.Issuer}
	if key, ok := p.Claims["key"].(string); ok && p.Issuer == KeyIssuer {
		detail["key"] = key
	}
	record := &event.Record{Event: event.Admin, Action: policy.Action{Server: server}, Detail: mustMarshal(detail)}
	if operator != nil {
		record.Caller = &policy.Caller{Principal: operator}
	}
	return g.host.Operator().Record(record)
}
