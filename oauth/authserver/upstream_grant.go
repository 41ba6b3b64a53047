package authserver

import (
	"container/list"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/oauth2"

	"github.com/patchbay-mcp/patchbay/mcp"
)

const (
	kindUpstream = "upstream"

	// renewBefore is how long before its end an access token of a third party is renewed: whoever gets it has this long
	// to use it.
	renewBefore = time.Minute
	// renewTime is for how long a renewal keeps others from the same one, in other processes too: some third parties end
	// everything when a refresh token is used twice. It is longer than a renewal takes.
	renewTime = 2 * upstreamTime
	// outageRetry is how long a third party that did not answer is left alone.
	outageRetry = 5 * time.Second
	// maxChecks is how many grants it is remembered of when they were checked.
	maxChecks = 10_000
	// upstreamExtra is how much longer than a grant its third party's may lie there.
	upstreamExtra = 24 * time.Hour
)

// An upstreamGrant is what a third party gave for a subject, a client of ours and a resource. It is sealed in the store
// under its handle, a random one, so that two devices with one client do not log each other out.
type upstreamGrant struct {
	Upstream string    `json:"upstream"`
	Sub      string    `json:"sub,omitempty"` // the user there
	Subject  string    `json:"subject"`       // the user here
	Client   string    `json:"client"`
	Resource string    `json:"resource"`
	Access   string    `json:"access"`
	Type     string    `json:"type,omitempty"`
	Refresh  string    `json:"refresh,omitempty"`
	Expires  time.Time `json:"expires,omitzero"`  // of Access; zero if it does not say
	Renewing time.Time `json:"renewing,omitzero"` // until when somebody renews it
	Until    time.Time `json:"until"`             // the end of the record
}

func (g *upstreamGrant) set(token *oauth2.Token) {
	g.Access, g.Type, g.Expires, g.Renewing = token.AccessToken, token.Type(), token.Expiry, time.Time{}
	if token.RefreshToken != "" {
		g.Refresh = token.RefreshToken
	}
}

// due reports whether the access token ends soon or has ended.
func (g *upstreamGrant) due(now time.Time) bool {
	return !g.Expires.IsZero() && !now.Before(g.Expires.Add(-renewBefore))
}

// keep puts a new grant into the store, and gives its handle.
func (u *upstreamLogin) keep(ctx context.Context, g *upstreamGrant) (handle string, err error) {
	s := u.server()
	handle = randomToken()
	g.Until = time.Now().Add(s.o.Lifetimes.Refresh + upstreamExtra)
	sealed, err := u.sealGrant(handle, g)
	if err != nil {
		return "", err
	}
	if err := s.store.Put(ctx, kindUpstream, handle, sealed, g.Until); err != nil {
		return "", err
	}
	u.checks.of(handle).good(time.Now(), u.byID[g.Upstream].o.CheckEvery) // it has just come from there
	return handle, nil
}

func (u *upstreamLogin) sealGrant(handle string, g *upstreamGrant) ([]byte, error) {
	value, err := json.Marshal(g)
	if err != nil {
		return nil, err
	}
	return u.server().sealer.seal(value, kindUpstream, handle)
}

// openGrant gives a grant from its record, nil if there is none. old says that its key is.
func (u *upstreamLogin) openGrant(handle string, sealed []byte) (g *upstreamGrant, old bool, err error) {
	if sealed == nil {
		return nil, false, nil
	}
	value, old, err := u.server().sealer.open(sealed, kindUpstream, handle)
	if errors.Is(err, errUnsealed) {
		return nil, false, nil // with its key the grant has gone
	}
	if err != nil {
		return nil, false, err
	}
	g = new(upstreamGrant)
	return g, old, json.Unmarshal(value, g)
}

func (u *upstreamLogin) load(ctx context.Context, handle string) (g *upstreamGrant, old bool, err error) {
	sealed, err := u.server().store.Get(ctx, kindUpstream, handle)
	if err != nil {
		return nil, false, err
	}
	return u.openGrant(handle, sealed)
}

// change changes a grant if it is there, and gives it as it is then, nil if it is not. It is sealed anew.
func (u *upstreamLogin) change(ctx context.Context, handle string, change func(*upstreamGrant) error) (*upstreamGrant, error) {
	var g *upstreamGrant
	err := u.server().store.Update(ctx, kindUpstream, handle, func(sealed []byte) ([]byte, time.Time, error) {
		var err error
		if g, _, err = u.openGrant(handle, sealed); err != nil || g == nil {
			return nil, time.Time{}, err
		}
		if err := change(g); err != nil {
			return nil, time.Time{}, err
		}
		sealed, err = u.sealGrant(handle, g)
		return sealed, g.Until, err
	})
	if err != nil {
		return nil, err
	}
	return g, nil
}

// CheckUpstream finds out whether what a third party gave is still valid there, and renews it when it is old.
func (u *upstreamLogin) CheckUpstream(ctx context.Context, handle string) error {
	check := u.checks.of(handle)
	if check.holds(time.Now()) {
		return nil
	}
	select {
	case check.turn <- struct{}{}:
		defer func() { <-check.turn }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if check.holds(time.Now()) {
		return nil
	}
	g, old, err := u.load(ctx, handle)
	switch {
	case err != nil:
		return err
	case g == nil || u.byID[g.Upstream] == nil:
		return ErrUpstreamEnded
	}
	p := u.byID[g.Upstream]
	// Whoever asked may be gone before a refresh token that can be used once was used: it would be lost.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), upstreamTime)
	defer cancel()
	if old {
		if _, err := u.change(ctx, handle, func(*upstreamGrant) error { return nil }); err != nil {
			return err
		}
	}
	err = u.checkGrant(ctx, p, handle, g)
	now := time.Now()
	switch {
	case err == nil:
		check.good(now, p.o.CheckEvery)
	case errors.Is(err, ErrUpstreamEnded):
		return errors.Join(err, u.forget(ctx, handle))
	case check.outage(now, p.o.Outage):
		u.server().log.WarnContext(ctx, "authorization server: a third party does not answer", "upstream", p.o.ID, "error", err)
		return nil
	}
	return err
}

func (u *upstreamLogin) forget(ctx context.Context, handle string) error {
	_, err := u.server().store.Take(ctx, kindUpstream, handle)
	u.checks.forget(handle)
	return err
}

// checkGrant asks the third party. The error is ErrUpstreamEnded if the grant has ended, any other if it cannot be known.
func (u *upstreamLogin) checkGrant(ctx context.Context, p *provider, handle string, g *upstreamGrant) error {
	ends, err := p.endpoints(ctx)
	if err != nil {
		return err
	}
	if !g.due(time.Now()) {
		if err = p.check(ctx, ends, g); !errors.Is(err, errTokenInvalid) {
			return err
		}
		// Some third parties end access tokens early, and give another one.
	}
	if g.Refresh == "" {
		if err == nil && time.Now().Before(g.Expires) {
			return p.checkLast(ctx, ends, g)
		}
		return ErrUpstreamEnded
	}
	return u.renewGrant(ctx, p, ends, handle, g.Access)
}

// checkLast checks a token in its last minute that nothing can renew.
func (p *provider) checkLast(ctx context.Context, ends *endpoints, g *upstreamGrant) error {
	err := p.check(ctx, ends, g)
	if errors.Is(err, errTokenInvalid) {
		return ErrUpstreamEnded
	}
	return err
}

var errRenewing = errors.New("another process renews the grant of the third party")

// renewGrant renews a grant whose access token was this one. Of all processes that share the store one does it.
func (u *upstreamLogin) renewGrant(ctx context.Context, p *provider, ends *endpoints, handle, access string) error {
	renewed := errors.New("it was renewed meanwhile")
	g, err := u.change(ctx, handle, func(g *upstreamGrant) error {
		now := time.Now()
		switch {
		case g.Access != access:
			return renewed
		case now.Before(g.Renewing):
			return errRenewing
		}
		g.Renewing = now.Add(renewTime)
		return nil
	})
	switch {
	case errors.Is(err, renewed):
		return nil
	case err != nil:
		return err
	case g == nil:
		return ErrUpstreamEnded
	}
	token, err := p.renew(ctx, ends, g)
	var said *statusError
	switch {
	case errors.Is(err, errTokenInvalid), errors.As(err, &said) && said.code == codeInvalidGrant:
		return ErrUpstreamEnded
	case err != nil:
		_, changeErr := u.change(ctx, handle, func(g *upstreamGrant) error {
			g.Renewing = time.Time{}
			return nil
		})
		return errors.Join(err, changeErr)
	}
	kept, err := u.change(ctx, handle, func(g *upstreamGrant) error {
		g.set(token)
		return nil
	})
	if err == nil && kept == nil { // it was revoked meanwhile, and what came must not be left there
		g.set(token)
		return errors.Join(ErrUpstreamEnded, p.revoke(ctx, ends, g))
	}
	return err
}

// RevokeUpstream gives back what a third party gave, and forgets it, whether that works or not.
func (u *upstreamLogin) RevokeUpstream(ctx context.Context, handle string) error {
	u.checks.forget(handle)
	sealed, err := u.server().store.Take(ctx, kindUpstream, handle)
	if err != nil {
		return err
	}
	g, _, err := u.openGrant(handle, sealed)
	if err != nil || g == nil || u.byID[g.Upstream] == nil {
		return err
	}
	p := u.byID[g.Upstream]
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), upstreamTime)
	defer cancel()
	ends, err := p.endpoints(ctx)
	if err != nil {
		return err
	}
	return p.revoke(ctx, ends, g)
}

// An UpstreamToken is an access token of a third party, for its API alone.
type UpstreamToken struct {
	Upstream string    // the ID of the [Upstream]
	Token    string    // a secret
	Type     string    // how it is sent, mostly "Bearer"
	Expires  time.Time // zero if the third party did not say
}

// String tells whose token it is, and not the token.
func (t UpstreamToken) String() string { return "token of " + t.Upstream }

// GoString is String.
func (t UpstreamToken) GoString() string { return t.String() }

// LogValue is String, for logs.
func (t UpstreamToken) LogValue() slog.Value { return slog.StringValue(t.String()) }

// ErrNoUpstreamToken is the error for a principal whom no third party gave anything, or not for this resource.
var ErrNoUpstreamToken = errors.New("authserver: no third party gave anything for this principal and resource")

// UpstreamToken gives a token with which the server of a resource acts for a principal at the third party that the
// principal logged in by. The principal must come from the server's own tokens for that very resource. The token has a
// minute left to live at least, if the third party gives such; it must never be passed on to the client.
//
// The error is [ErrNoUpstreamToken] or [ErrUpstreamEnded], or what keeps the third party from answering.
//
// Spec: basic/authorization (2025-03-26), Session Binding Requirements; security best practices, Token Passthrough.
func (s *Server) UpstreamToken(ctx context.Context, resource string, p *mcp.Principal) (*UpstreamToken, error) {
	u, ok := s.delegate.(*upstreamLogin)
	if !ok || p == nil || p.Issuer != s.o.Issuer {
		return nil, ErrNoUpstreamToken
	}
	id, _ := p.Claims[ClaimGrant].(string)
	g, err := s.grant(ctx, id)
	switch {
	case errors.Is(err, errNoGrant):
		return nil, ErrNoUpstreamToken
	case err != nil:
		return nil, fmt.Errorf("authserver: upstream token: %w", err)
	case g.Subject != p.Subject || g.Client != p.ClientID || resourceKey(g.Resource) != resourceKey(resource) || g.Upstream == "":
		return nil, ErrNoUpstreamToken
	}
	err = s.checkUpstream(ctx, g)
	if errors.Is(err, errNoGrant) {
		return nil, ErrUpstreamEnded
	}
	var kept *upstreamGrant
	if err == nil {
		kept, _, err = u.load(ctx, g.Upstream)
	}
	switch {
	case err != nil:
		return nil, fmt.Errorf("authserver: upstream token: %w", err)
	case kept == nil:
		return nil, ErrUpstreamEnded
	case kept.Subject != g.Subject || kept.Client != g.Client || resourceKey(kept.Resource) != resourceKey(resource):
		return nil, ErrNoUpstreamToken
	}
	return &UpstreamToken{Upstream: kept.Upstream, Token: kept.Access, Type: kept.Type, Expires: kept.Expires}, nil
}

// upstreamChecks remembers when grants were checked.
type upstreamChecks struct {
	mu       sync.Mutex // guards the fields below
	byHandle map[string]*list.Element
	recent   list.List // of *upstreamCheck, the most recent first
}

type upstreamCheck struct {
	handle string
	turn   chan struct{} // holds a token while the grant is checked

	mu    sync.Mutex // guards the fields below
	last  time.Time  // when the third party last said that it is valid
	until time.Time  // until when that counts
}

// of gives what is known of a grant. The least recent one makes room; whoever checks it goes on.
func (c *upstreamChecks) of(handle string) *upstreamCheck {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e, ok := c.byHandle[handle]; ok {
		c.recent.MoveToFront(e)
		return e.Value.(*upstreamCheck)
	}
	if c.byHandle == nil {
		c.byHandle = map[string]*list.Element{}
	}
	if len(c.byHandle) >= maxChecks {
		delete(c.byHandle, c.recent.Remove(c.recent.Back()).(*upstreamCheck).handle)
	}
	check := &upstreamCheck{handle: handle, turn: make(chan struct{}, 1)}
	c.byHandle[handle] = c.recent.PushFront(check)
	return check
}

func (c *upstreamChecks) forget(handle string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e, ok := c.byHandle[handle]; ok {
		c.recent.Remove(e)
		delete(c.byHandle, handle)
	}
}

func (c *upstreamCheck) holds(now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return now.Before(c.until)
}

func (c *upstreamCheck) good(now time.Time, every time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last, c.until = now, now.Add(every)
}

// outage reports whether the last word of a third party that does not answer still counts, and has it counted for a
// moment.
func (c *upstreamCheck) outage(now time.Time, outage time.Duration) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.last.IsZero() || !now.Before(c.last.Add(outage)) {
		return false
	}
	c.until = now.Add(outageRetry)
	return true
}
