package authserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/oauth2"

	"github.com/patchbay-mcp/patchbay/internal/lru"
	"github.com/patchbay-mcp/patchbay/internal/singleflight"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/oauth/oidcclient"
)

const (
	kindProviderGrant = "provider-grant"

	// renewBefore is the time before its expiry at which an access token of an identity provider is
	// renewed, so that a caller of ProviderToken can use it for that long.
	renewBefore = time.Minute
	// renewTime is the time for which a renewal locks a grant, across processes: some identity
	// providers revoke a grant when a refresh token is used twice. A renewal takes less time.
	renewTime = 2 * providerTimeout
	// saveTime is the time limit for storing a renewed grant, saveTries the number of attempts and
	// savePause the initial pause between them, which doubles. The identity provider issues the
	// tokens only once.
	saveTime           = 10 * time.Second
	saveTries          = 5
	savePause          = 100 * time.Millisecond
	providerGrantExtra = 24 * time.Hour // how much longer the grant of a provider is stored than that of this server
)

// A providerGrant holds the tokens of an identity provider for a subject, a client and a resource.
// It is stored sealed, with a random handle as key, so that two devices with the same client have
// separate grants.
type providerGrant struct {
	Provider string    `json:"provider"`
	Sub      string    `json:"sub,omitempty"` // the user at the identity provider
	Subject  string    `json:"subject"`       // the user at this server
	Client   string    `json:"client"`
	Resource string    `json:"resource"`
	Access   string    `json:"access"`
	Type     string    `json:"type,omitempty"`
	Refresh  string    `json:"refresh,omitempty"`
	Given    time.Time `json:"given,omitzero"`    // when Access was issued
	Expires  time.Time `json:"expires,omitzero"`  // of Access; zero if unknown
	Renewing time.Time `json:"renewing,omitzero"` // locked by a renewal until this time
	Until    time.Time `json:"until"`             // the end of the record
}

func (g *providerGrant) set(token *oauth2.Token) {
	g.Access, g.Type, g.Expires, g.Renewing = token.AccessToken, token.Type(), token.Expiry, time.Time{}
	g.Given = time.Now()
	if token.RefreshToken != "" {
		g.Refresh = token.RefreshToken
	}
}

// dueAt returns when the access token must be renewed, or its expiry if there is no refresh
// token; zero if the expiry is unknown. A token with a lifetime of at most two minutes is renewed
// after half of it.
func (g *providerGrant) dueAt() time.Time {
	if g.Expires.IsZero() || g.Refresh == "" {
		return g.Expires
	}
	return g.Expires.Add(-min(renewBefore, g.Expires.Sub(g.Given)/2))
}

func (g *providerGrant) due(now time.Time) bool {
	at := g.dueAt()
	return !at.IsZero() && !now.Before(at)
}

// nextCheck returns when the next check is due if the identity provider confirms the grant now.
func (g *providerGrant) nextCheck(now time.Time, every time.Duration) time.Time {
	if at := g.dueAt(); !at.IsZero() && at.Before(now.Add(every)) {
		return at
	}
	return now.Add(every)
}

func (u *providerLogin) create(ctx context.Context, g *providerGrant) (handle string, err error) {
	s := u.server()
	handle = randomToken()
	g.Until = time.Now().Add(s.o.Lifetimes.Refresh + providerGrantExtra)
	sealed, err := u.sealGrant(handle, g)
	if err != nil {
		return "", err
	}
	if err := s.store.Put(ctx, kindProviderGrant, handle, sealed, g.Until); err != nil {
		return "", err
	}
	now := time.Now()
	u.checks.confirm(handle, now, g.nextCheck(now, u.byID[g.Provider].o.CheckEvery)) // just issued
	return handle, nil
}

func (u *providerLogin) sealGrant(handle string, g *providerGrant) ([]byte, error) {
	value, err := json.Marshal(g)
	if err != nil {
		return nil, err
	}
	return u.server().seals.Seal(value, kindProviderGrant, handle), nil
}

// openGrant opens a stored grant, or nil. isOld reports whether it should be sealed
// again.
func (u *providerLogin) openGrant(handle string, sealed []byte) (g *providerGrant, isOld bool, err error) {
	if sealed == nil {
		return nil, false, nil
	}
	value, isOld, err := openSealed(u.server().seals, sealed, kindProviderGrant, handle)
	if err != nil {
		return nil, false, err
	}
	g = new(providerGrant)
	return g, isOld, json.Unmarshal(value, g)
}

func (u *providerLogin) load(ctx context.Context, handle string) (g *providerGrant, isOld bool, err error) {
	if g := u.checks.unsavedGrant(handle); g != nil {
		return g, false, nil
	}
	sealed, err := u.server().store.Get(ctx, kindProviderGrant, handle)
	if err != nil {
		return nil, false, err
	}
	return u.openGrant(handle, sealed)
}

// change changes a stored grant and seals it with the first key. It returns the changed grant, nil
// if there is no grant.
func (u *providerLogin) change(ctx context.Context, handle string,
	change func(*providerGrant) error) (*providerGrant, error) {
	var g *providerGrant
	err := u.server().store.Update(ctx, kindProviderGrant, handle, func(sealed []byte) ([]byte, time.Time, error) {
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

func (u *providerLogin) CheckGrant(ctx context.Context, handle string) error {
	if u.checks.isFresh(handle) {
		return nil
	}
	// Cancellation of the request must not interrupt the use of a refresh token that can be used
	// only once.
	_, err := u.checks.running.Do(ctx, handle, func(ctx context.Context) (struct{}, error) {
		ctx, cancel := context.WithTimeout(ctx, providerTimeout)
		defer cancel()
		return struct{}{}, u.checkNow(ctx, handle)
	})
	return err
}

func (u *providerLogin) checkNow(ctx context.Context, handle string) error {
	if u.checks.isFresh(handle) { // checked since the caller looked
		return nil
	}
	g, err := u.loadForCheck(ctx, handle)
	switch {
	case err != nil:
		return err
	case g == nil || u.byID[g.Provider] == nil:
		return ErrProviderGrantEnded
	}
	p := u.byID[g.Provider]
	issued := g.Given
	g, err = u.checkGrant(ctx, p, handle, g)
	now := time.Now()
	switch {
	case err == nil:
		u.checks.confirm(handle, now, g.nextCheck(now, p.o.CheckEvery))
	case errors.Is(err, ErrProviderGrantEnded):
		return errors.Join(err, u.forget(ctx, handle))
	case u.checks.toleratesOutage(handle, issued, p.o.Outage):
		u.server().log.WarnContext(ctx,
			"authorization server: identity provider not available, accepting its last confirmation",
			"provider", p.o.ID, "error", err)
		return nil
	}
	return err
}

// loadForCheck returns a grant after its last renewal, or nil. It seals the grant
// with the first key.
func (u *providerLogin) loadForCheck(ctx context.Context, handle string) (*providerGrant, error) {
	if g := u.checks.unsavedGrant(handle); g != nil {
		return u.save(ctx, handle, g)
	}
	g, isOld, err := u.load(ctx, handle)
	if err == nil && isOld {
		return u.change(ctx, handle, func(*providerGrant) error { return nil })
	}
	return g, err
}

func (u *providerLogin) forget(ctx context.Context, handle string) error {
	_, err := u.server().store.GetAndDelete(ctx, kindProviderGrant, handle)
	u.checks.forget(handle)
	return err
}

// checkGrant checks a grant at the identity provider and returns it, possibly renewed. The error is
// ErrProviderGrantEnded if the grant ended. Any other error means that this is not known.
func (u *providerLogin) checkGrant(ctx context.Context, p *provider, handle string,
	g *providerGrant) (*providerGrant, error) {
	ends, err := p.Endpoints(ctx)
	if err != nil {
		return nil, err
	}
	if !g.due(time.Now()) {
		if err = p.check(ctx, ends, g); !errors.Is(err, errTokenInvalid) {
			return g, err
		}
		// Some identity providers revoke access tokens early and issue another token.
	}
	if g.Refresh == "" {
		return nil, ErrProviderGrantEnded
	}
	return u.renewGrant(ctx, p, ends, handle, g.Access)
}

var errRenewing = errors.New("another process is renewing the grant of the identity provider")

// renewGrant renews a grant with the given access token. Only one of the processes that share
// the store does it.
func (u *providerLogin) renewGrant(ctx context.Context, p *provider, ends *oidcclient.Endpoints, handle,
	access string) (*providerGrant, error) {
	renewed := errors.New("already renewed")
	var current *providerGrant
	g, err := u.change(ctx, handle, func(g *providerGrant) error {
		now := time.Now()
		switch {
		case g.Access != access:
			current = g
			return renewed
		case now.Before(g.Renewing):
			return errRenewing
		}
		g.Renewing = now.Add(renewTime)
		return nil
	})
	switch {
	case errors.Is(err, renewed):
		return current, nil
	case err != nil:
		return nil, err
	case g == nil:
		return nil, ErrProviderGrantEnded
	}
	token, err := p.renew(ctx, ends, g)
	var statusErr *oidcclient.StatusError
	switch {
	case errors.Is(err, errTokenInvalid), errors.As(err, &statusErr) && statusErr.Code == codeInvalidGrant:
		return nil, ErrProviderGrantEnded
	case err != nil:
		_, changeErr := u.change(ctx, handle, func(g *providerGrant) error {
			g.Renewing = time.Time{}
			return nil
		})
		return nil, errors.Join(err, changeErr)
	}
	g.set(token)
	return u.save(ctx, handle, g)
}

// save stores a renewed grant. Until that succeeds the grant is kept in memory, because the old
// refresh token must not be used again. If the grant was revoked at this server, save revokes
// the renewed tokens too.
func (u *providerLogin) save(ctx context.Context, handle string, g *providerGrant) (kept *providerGrant, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), saveTime)
	defer cancel()
	u.checks.setUnsaved(handle, g)
	pause := savePause
	for try := 1; ; try++ {
		kept, err = u.change(ctx, handle, func(old *providerGrant) error {
			until := old.Until
			*old = *g
			old.Until = until
			return nil
		})
		if err == nil || try == saveTries || ctx.Err() != nil {
			break
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
		pause *= 2
	}
	if err != nil {
		return nil, fmt.Errorf("store the renewed grant of the identity provider: %w", err)
	}
	u.checks.setUnsaved(handle, nil)
	if kept == nil {
		return nil, errors.Join(ErrProviderGrantEnded, u.revokeAtProvider(ctx, g))
	}
	return kept, nil
}

// RevokeGrant deletes a grant and revokes it at the identity provider. The grant is deleted even if
// the revocation fails.
func (u *providerLogin) RevokeGrant(ctx context.Context, handle string) error {
	sealed, err := u.server().store.GetAndDelete(ctx, kindProviderGrant, handle)
	if err != nil {
		return err
	}
	g := u.checks.unsavedGrant(handle)
	u.checks.forget(handle)
	if g == nil {
		g, _, err = u.openGrant(handle, sealed)
	}
	if err != nil || g == nil {
		return err
	}
	return u.revokeAtProvider(ctx, g)
}

func (u *providerLogin) revokeAtProvider(ctx context.Context, g *providerGrant) error {
	p := u.byID[g.Provider]
	if p == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), providerTimeout)
	defer cancel()
	ends, err := p.Endpoints(ctx)
	if err != nil {
		return err
	}
	return p.revoke(ctx, ends, g)
}

const (
	outageRetry = 5 * time.Second // until the next check if the provider did not answer
	maxChecks   = 10_000          // grants whose last check is cached
)

// providerChecks caches the checks of grants.
type providerChecks struct {
	running singleflight.Group[string, struct{}]

	mu      sync.Mutex // guards the fields below
	checks  lru.Map[string, providerCheck]
	unsaved map[string]*providerGrant // renewed grants that could not be stored yet; at most maxChecks
}

type providerCheck struct {
	last  time.Time // when the identity provider last confirmed the grant
	until time.Time // when the next check is due
}

func (c *providerChecks) forget(handle string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.checks.Drop(handle)
	delete(c.unsaved, handle)
}

// setUnsaved keeps a renewed grant until it is stored, which nil means, or forgotten.
func (c *providerChecks) setUnsaved(handle string, g *providerGrant) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case g == nil:
		delete(c.unsaved, handle)
	case len(c.unsaved) < maxChecks:
		c.unsaved[handle] = g
	}
}

func (c *providerChecks) unsavedGrant(handle string) *providerGrant {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.unsaved[handle]
}

func (c *providerChecks) isFresh(handle string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	check := c.checks.Get(handle)
	return check != nil && time.Now().Before(check.until)
}

// confirm records a confirmation by the identity provider, and when the next check is due.
func (c *providerChecks) confirm(handle string, now, until time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.checks.Put(handle, &providerCheck{now, until})
}

// toleratesOutage reports whether the last confirmation of a grant is recent enough to accept it
// while the identity provider does not answer. The issue of its token, to this process or to
// another one, is a confirmation. If the result is true, the next check is due after outageRetry.
func (c *providerChecks) toleratesOutage(handle string, issued time.Time, outage time.Duration) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	now, last := time.Now(), issued
	if check := c.checks.Get(handle); check != nil {
		last = later(last, check.last)
	}
	if last.IsZero() || !now.Before(last.Add(outage)) {
		return false
	}
	c.checks.Put(handle, &providerCheck{last, now.Add(outageRetry)})
	return true
}

// A ProviderToken is an access token for the API of a [Provider].
type ProviderToken struct {
	Provider string    // Provider.ID
	Token    string    // a secret
	Type     string    // usually "Bearer"
	Expires  time.Time // zero if unknown
}

// String returns a description without the token.
func (t ProviderToken) String() string { return "token of " + t.Provider }

// GoString returns the same as String.
func (t ProviderToken) GoString() string { return t.String() }

// LogValue returns the same as String.
func (t ProviderToken) LogValue() slog.Value { return slog.StringValue(t.String()) }

// ErrNoProviderToken reports that there is no grant of a provider for a principal and a resource.
var ErrNoProviderToken = errors.New("authserver: no provider token for this principal and resource")

// ProviderToken returns an access token for the API of the identity provider that a principal
// logged in with. The principal must come from a token of this server for that resource. The token
// did not expire. It is valid for at least another minute, or half its lifetime if that is less,
// unless the provider is unavailable for a renewal. It must not be passed to the client.
//
// The error is [ErrNoProviderToken], [ErrProviderGrantEnded], or that of a failed request.
//
// Spec: basic/authorization (2025-03-26), Session Binding Requirements; security best practices,
// Token Passthrough.
func (s *Server) ProviderToken(ctx context.Context, resource string, p *mcp.Principal) (*ProviderToken, error) {
	u, ok := s.providerLogin.(*providerLogin)
	if !ok || p == nil || p.Issuer != s.o.Issuer {
		return nil, ErrNoProviderToken
	}
	id, _ := p.Claims[ClaimGrant].(string)
	g, err := s.grant(ctx, id)
	switch {
	case errors.Is(err, errNoGrant):
		return nil, ErrNoProviderToken
	case err != nil:
		return nil, fmt.Errorf("authserver: provider token: %w", err)
	case g.Subject != p.Subject || g.Client != p.ClientID || resourceKey(g.Resource) != resourceKey(resource) ||
		g.ProviderGrant == "":
		return nil, ErrNoProviderToken
	}
	err = s.checkProviderGrant(ctx, g)
	if errors.Is(err, errNoGrant) {
		return nil, ErrProviderGrantEnded
	}
	var kept *providerGrant
	if err == nil {
		kept, _, err = u.load(ctx, g.ProviderGrant)
	}
	switch {
	case err != nil:
		return nil, fmt.Errorf("authserver: provider token: %w", err)
	case kept == nil:
		return nil, ErrProviderGrantEnded
	case kept.Subject != g.Subject || kept.Client != g.Client || resourceKey(kept.Resource) != resourceKey(resource):
		return nil, ErrNoProviderToken
	case !kept.Expires.IsZero() && !time.Now().Before(kept.Expires):
		return nil, errors.New("authserver: provider token: expired, and it cannot be renewed now")
	}
	return &ProviderToken{Provider: kept.Provider, Token: kept.Access, Type: kept.Type, Expires: kept.Expires}, nil
}
