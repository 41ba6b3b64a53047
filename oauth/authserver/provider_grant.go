package authserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"golang.org/x/oauth2"
)

const (
	kindProviderGrant = "provider-grant"

	// renewBefore is how long before its end an access token of a third party is renewed: whoever gets it has this long
	// to use it.
	renewBefore = time.Minute
	// renewTime is for how long a renewal keeps others from the same one, in other processes too: some third parties end
	// everything when a refresh token is used twice. It is longer than a renewal takes and is written.
	renewTime = 2 * providerTimeout
	// saveTime bounds the writing of what a renewal gave, and saveTries is how often that is tried, with a pause of
	// savePause that doubles: the third party gives it once.
	saveTime  = 10 * time.Second
	saveTries = 5
	savePause = 100 * time.Millisecond
	// providerGrantExtra is how much longer than a grant its third party's may lie there.
	providerGrantExtra = 24 * time.Hour
)

// An providerGrant is what a third party gave for a subject, a client of ours and a resource. It is sealed in the store
// under its handle, a random one, so that two devices with one client do not log each other out.
type providerGrant struct {
	Provider string    `json:"provider"`
	Sub      string    `json:"sub,omitempty"` // the user there
	Subject  string    `json:"subject"`       // the user here
	Client   string    `json:"client"`
	Resource string    `json:"resource"`
	Access   string    `json:"access"`
	Type     string    `json:"type,omitempty"`
	Refresh  string    `json:"refresh,omitempty"`
	Given    time.Time `json:"given,omitzero"`    // when Access came from there
	Expires  time.Time `json:"expires,omitzero"`  // of Access; zero if it does not say
	Renewing time.Time `json:"renewing,omitzero"` // until when somebody renews it
	Until    time.Time `json:"until"`             // the end of the record
}

func (g *providerGrant) set(token *oauth2.Token) {
	g.Access, g.Type, g.Expires, g.Renewing = token.AccessToken, token.Type(), token.Expiry, time.Time{}
	g.Given = time.Now()
	if token.RefreshToken != "" {
		g.Refresh = token.RefreshToken
	}
}

// dueAt returns when the access token is to be renewed, or, if it cannot be, when it ends; zero if it does not say. One that
// lives no longer than two minutes is renewed after half its life.
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

// goodUntil returns until when it need not be asked about again if the third party says now that it is valid.
func (g *providerGrant) goodUntil(now time.Time, every time.Duration) time.Time {
	if at := g.dueAt(); !at.IsZero() && at.Before(now.Add(every)) {
		return at
	}
	return now.Add(every)
}

// keep puts a new grant into the store, and gives its handle.
func (u *providerLogin) keep(ctx context.Context, g *providerGrant) (handle string, err error) {
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
	u.checks.of(handle).good(now, g.goodUntil(now, u.byID[g.Provider].o.CheckEvery)) // it has just come from there
	return handle, nil
}

func (u *providerLogin) sealGrant(handle string, g *providerGrant) ([]byte, error) {
	value, err := json.Marshal(g)
	if err != nil {
		return nil, err
	}
	return u.server().seals.Seal(value, kindProviderGrant, handle), nil
}

// openGrant returns a grant from its record, nil if there is none. old says that its key is.
func (u *providerLogin) openGrant(handle string, sealed []byte) (g *providerGrant, old bool, err error) {
	if sealed == nil {
		return nil, false, nil
	}
	value, old, err := openSealed(u.server().seals, sealed, kindProviderGrant, handle)
	if err != nil {
		return nil, false, err
	}
	g = new(providerGrant)
	return g, old, json.Unmarshal(value, g)
}

func (u *providerLogin) load(ctx context.Context, handle string) (g *providerGrant, old bool, err error) {
	if g := u.checks.unsavedOf(handle); g != nil {
		return g, false, nil
	}
	sealed, err := u.server().store.Get(ctx, kindProviderGrant, handle)
	if err != nil {
		return nil, false, err
	}
	return u.openGrant(handle, sealed)
}

// change changes a grant if it is there, and gives it as it is then, nil if it is not. It is sealed anew.
func (u *providerLogin) change(ctx context.Context, handle string, change func(*providerGrant) error) (*providerGrant, error) {
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

// CheckGrant finds out whether what a third party gave is still valid there, and renews it when it is old.
func (u *providerLogin) CheckGrant(ctx context.Context, handle string) error {
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
	// Whoever asked may be gone before a refresh token that can be used once was used: it would be lost.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), providerTimeout)
	defer cancel()
	g, err := u.loadForCheck(ctx, handle)
	switch {
	case err != nil:
		return err
	case g == nil || u.byID[g.Provider] == nil:
		return ErrProviderGrantEnded
	}
	p := u.byID[g.Provider]
	check.heard(g.Given)
	g, err = u.checkGrant(ctx, p, handle, g)
	now := time.Now()
	switch {
	case err == nil:
		check.good(now, g.goodUntil(now, p.o.CheckEvery))
	case errors.Is(err, ErrProviderGrantEnded):
		return errors.Join(err, u.forget(ctx, handle))
	case check.outage(now, p.o.Outage):
		u.server().log.WarnContext(ctx, "authorization server: it cannot be known whether a third party's grant is valid",
			"provider", p.o.ID, "error", err)
		return nil
	}
	return err
}

// loadForCheck returns a grant as its last renewal has left it, sealed with the present key; nil if it is not there.
func (u *providerLogin) loadForCheck(ctx context.Context, handle string) (*providerGrant, error) {
	if g := u.checks.unsavedOf(handle); g != nil {
		return u.save(ctx, handle, g)
	}
	g, old, err := u.load(ctx, handle)
	if err == nil && old {
		return u.change(ctx, handle, func(*providerGrant) error { return nil })
	}
	return g, err
}

func (u *providerLogin) forget(ctx context.Context, handle string) error {
	_, err := u.server().store.Take(ctx, kindProviderGrant, handle)
	u.checks.forget(handle)
	return err
}

// checkGrant asks the third party, and gives the grant as it is then. The error is ErrProviderGrantEnded if the grant has ended,
// any other if it cannot be known.
func (u *providerLogin) checkGrant(ctx context.Context, p *provider, handle string, g *providerGrant) (*providerGrant, error) {
	ends, err := p.endpoints(ctx)
	if err != nil {
		return nil, err
	}
	if !g.due(time.Now()) {
		if err = p.check(ctx, ends, g); !errors.Is(err, errTokenInvalid) {
			return g, err
		}
		// Some third parties end access tokens early, and give another one.
	}
	if g.Refresh == "" {
		return nil, ErrProviderGrantEnded
	}
	return u.renewGrant(ctx, p, ends, handle, g.Access)
}

var errRenewing = errors.New("another process renews the grant of the third party")

// renewGrant renews a grant whose access token was this one. Of all processes that share the store one does it.
func (u *providerLogin) renewGrant(ctx context.Context, p *provider, ends *endpoints, handle, access string) (*providerGrant, error) {
	renewed := errors.New("it was renewed meanwhile")
	var present *providerGrant
	g, err := u.change(ctx, handle, func(g *providerGrant) error {
		now := time.Now()
		switch {
		case g.Access != access:
			present = g
			return renewed
		case now.Before(g.Renewing):
			return errRenewing
		}
		g.Renewing = now.Add(renewTime)
		return nil
	})
	switch {
	case errors.Is(err, renewed):
		return present, nil
	case err != nil:
		return nil, err
	case g == nil:
		return nil, ErrProviderGrantEnded
	}
	token, err := p.renew(ctx, ends, g)
	var said *statusError
	switch {
	case errors.Is(err, errTokenInvalid), errors.As(err, &said) && said.code == codeInvalidGrant:
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

// save writes what a renewal gave, which is kept in memory until that works: what was there before is worth nothing any
// more, and to show it again would end everything. A grant that was revoked meanwhile is not brought back: what came is
// given back too.
func (u *providerLogin) save(ctx context.Context, handle string, g *providerGrant) (kept *providerGrant, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), saveTime)
	defer cancel()
	u.checks.keepUnsaved(handle, g)
	pause := savePause
	for try := 1; ; try++ {
		kept, err = u.change(ctx, handle, func(old *providerGrant) error {
			until := old.Until
			*old = *g
			old.Until = until
			return nil
		})
		if err == nil || try == saveTries || !wait(ctx, pause) {
			break
		}
		pause *= 2
	}
	if err != nil {
		return nil, fmt.Errorf("what the third party gave anew cannot be kept: %w", err)
	}
	u.checks.saved(handle)
	if kept == nil {
		return nil, errors.Join(ErrProviderGrantEnded, u.giveBack(ctx, g))
	}
	return kept, nil
}

// wait waits for a time, and reports whether the context has left it.
func wait(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// RevokeGrant returns back what a third party gave, and forgets it, whether that works or not.
func (u *providerLogin) RevokeGrant(ctx context.Context, handle string) error {
	sealed, err := u.server().store.Take(ctx, kindProviderGrant, handle)
	if err != nil {
		return err
	}
	g := u.checks.unsavedOf(handle)
	u.checks.forget(handle)
	if g == nil {
		g, _, err = u.openGrant(handle, sealed)
	}
	if err != nil || g == nil {
		return err
	}
	return u.giveBack(ctx, g)
}

// giveBack revokes a grant at its third party.
func (u *providerLogin) giveBack(ctx context.Context, g *providerGrant) error {
	p := u.byID[g.Provider]
	if p == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), providerTimeout)
	defer cancel()
	ends, err := p.endpoints(ctx)
	if err != nil {
		return err
	}
	return p.revoke(ctx, ends, g)
}
