package authserver

import (
	"context"
	"crypto/subtle"
	"errors"
	"strings"
	"time"
)

const (
	codeTime     = 60 * time.Second // for a redirect and a token request
	exchangeTime = time.Minute      // how much longer the grant of a code is stored than the code
	usedCodeTime = 24 * time.Hour   // for which a used code is stored, to end its grant at a second use

	kindGrant = "grant"
	kindCode  = "code"
)

// A grant is the authorization of a client by a user, or by the operator for a client that acts for
// itself. Its tokens are valid only as long as its record exists.
type grant struct {
	ID            string         `json:"id"`
	Consent       string         `json:"consent,omitempty"` // the interaction in which the user consented
	Client        string         `json:"client"`
	Subject       string         `json:"subject"`
	Name          string         `json:"name,omitempty"`
	Claims        map[string]any `json:"claims,omitempty"`
	ProviderGrant string         `json:"provider_grant,omitempty"`
	Resource      string         `json:"resource"`
	Scopes        []string       `json:"scopes,omitempty"`
	Issued        time.Time      `json:"issued"`
	Until         time.Time      `json:"until"`   // the end of the last refresh token
	Expires       time.Time      `json:"expires"` // the end of the last token
}

var errNoGrant = errors.New("the grant has ended")

var grants = recordKind[grant]{kindGrant, errNoGrant, func(g *grant) time.Time { return g.Expires }}

func (s *Server) grant(ctx context.Context, id string) (*grant, error) {
	return grants.get(ctx, s.store, id)
}

// extendGrant moves the expiry of a grant to the given time if that is later. The error is
// errNoGrant if the grant ended.
func (s *Server) extendGrant(ctx context.Context, id string, until time.Time) error {
	return grants.update(ctx, s.store, id, func(g *grant) error {
		g.Expires = later(g.Expires, until)
		return nil
	})
}

// endGrant ends a grant with all its tokens, and revokes the grant of the identity provider.
func (s *Server) endGrant(ctx context.Context, id, reason string) error {
	g, err := grants.getAndDelete(ctx, s.store, id)
	if errors.Is(err, errNoGrant) {
		return nil
	}
	if err != nil {
		return err
	}
	s.log.InfoContext(ctx, "authorization server: grant ended", "grant", g.ID, "client", g.Client, "subject", g.Subject,
		"reason", reason)
	s.audit(ctx, AuditEvent{Action: AuditRevocation, Client: g.Client, Subject: g.Subject, Grant: g.ID,
		Resource: g.Resource, Scopes: g.Scopes, Reason: reason})
	s.revokeProviderGrant(ctx, g.ProviderGrant)
	return nil
}

// revokeProviderGrant revokes the grant of an identity provider. It continues if the request is
// canceled, because otherwise the grant would not be revoked. A failure is logged.
func (s *Server) revokeProviderGrant(ctx context.Context, handle string) {
	if s.providerLogin == nil || handle == "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), providerTimeout)
	defer cancel()
	if err := s.providerLogin.RevokeGrant(ctx, handle); err != nil {
		s.log.WarnContext(ctx, "authorization server: revoking the grant of the identity provider failed", "error", err)
	}
}

// checkProviderGrant checks the grant of the identity provider. If that ended, it ends the
// grant and returns errNoGrant. Spec: basic/authorization (2025-03-26), Session Binding
// Requirements.
func (s *Server) checkProviderGrant(ctx context.Context, g *grant) error {
	if g.ProviderGrant == "" {
		return nil
	}
	if s.providerLogin == nil {
		return errNoGrant // Options.Login was different then
	}
	err := s.providerLogin.CheckGrant(ctx, g.ProviderGrant)
	if !errors.Is(err, ErrProviderGrantEnded) {
		return err
	}
	if err := s.endGrant(ctx, g.ID, "the grant of the identity provider has ended"); err != nil {
		return err
	}
	return errNoGrant
}

// A codeRecord is the stored form of an authorization code. Its key is the hash of the code.
type codeRecord struct {
	Grant     string    `json:"grant"`
	Client    string    `json:"client"`
	Redirect  string    `json:"redirect"`
	InRequest bool      `json:"in_request,omitempty"`
	Challenge string    `json:"challenge"`
	Key       string    `json:"key,omitempty"` // the DPoP key that the code is bound to
	Expires   time.Time `json:"expires"`
	Used      bool      `json:"used,omitempty"`
}

// Used codes are kept, so that a second use is noticed.
var codes = recordKind[codeRecord]{kindCode, errBadGrant, func(c *codeRecord) time.Time {
	return c.Expires.Add(usedCodeTime)
}}

// useCode returns the record of a code and marks the code as used. isFirst reports whether it was
// unused before. The error is errBadGrant if the code is unknown. A guess is only a read: the
// store need not wait for the disk.
func (s *Server) useCode(ctx context.Context, code string) (rec *codeRecord, isFirst bool, err error) {
	if _, err := codes.get(ctx, s.store, hashKey(code)); err != nil {
		return nil, false, err
	}
	err = codes.update(ctx, s.store, hashKey(code), func(c *codeRecord) error {
		rec, isFirst, c.Used = c, !c.Used, true
		return nil
	})
	return rec, isFirst, err
}

// matches reports whether a code may be used: before it expires, by its client, for the redirect
// URI of its request, with the verifier of its challenge. Spec: OAuth 2.1, section 4.1.3; RFC 7636,
// section 4.6.
func (rec *codeRecord) matches(c *client, redirect, verifier string) bool {
	return time.Now().Before(rec.Expires) && rec.Client == c.ID &&
		(redirect == rec.Redirect || redirect == "" && !rec.InRequest) && matchRedirect(c.RedirectURIs, rec.Redirect) &&
		subtle.ConstantTimeCompare([]byte(hashKey(verifier)), []byte(rec.Challenge)) == 1
}

// Spec: RFC 7636, section 4.1.
func isVerifier(s string) bool {
	const allowed = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~"
	return len(s) >= 43 && len(s) <= 128 && strings.Trim(s, allowed) == ""
}
