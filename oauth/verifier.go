package oauth

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/patchbay-mcp/patchbay/mcp"
)

// Errors that a [Verifier] gives for tokens that are no good; errors.Is finds them.
var (
	// ErrInvalidToken is within the error for a token that is malformed, expired, revoked, or not from who it says.
	ErrInvalidToken = errors.New("oauth: invalid token")
	// ErrTokenExpired is within the error for a token that was good once. It is an ErrInvalidToken.
	ErrTokenExpired = fmt.Errorf("%w: it has expired", ErrInvalidToken)
)

// Bounds of tokens.
const (
	// maxToken bounds an access token, in bytes. Large ones, with groups in them, have 4 KiB; header blocks end at 64.
	maxToken = 16 << 10
	// maxIdentity bounds the issuer, the subject and the client id of a token, in bytes: they are kept with sessions.
	maxIdentity = 2 << 10
	// clockSkew is how much the clock of an authorization server may differ from ours.
	clockSkew = 30 * time.Second
)

// A Token is what a [Verifier] found out about an access token. It is not changed once it is given to anyone.
type Token struct {
	// Issuer is the authorization server that issued the token.
	Issuer string
	// Subject is the user, or the client itself when it acts for nobody.
	Subject string
	// ClientID is the client that the token was issued to; empty if the token does not say.
	ClientID string
	// Audience lists the resources that the token is for.
	Audience []string
	// Scopes are what the token allows.
	Scopes []string
	// Expires and NotBefore bound the time in which the token is good; zero for no bound.
	Expires   time.Time
	NotBefore time.Time
	// KeyThumbprint is the SHA-256 thumbprint of the key that the token is bound to (cnf.jkt), empty for none. Such a
	// token is good only together with a proof of the key (DPoP).
	KeyThumbprint string
	// Claims is everything that the token says, by the names of its claims.
	Claims map[string]any

	// configured says that the token stands in this server's own configuration, so that there is no doubt whom it is for
	// and who issued it.
	configured bool
}

// A Verifier finds out what an access token says, and whether it is genuine. [Require] judges the rest: issuer, audience,
// times, and scopes. An error for which errors.Is(err, ErrInvalidToken) holds refuses the token; any other says that it
// could not be verified. No error may hold the token. Verify is called from many goroutines at once.
type Verifier interface {
	Verify(ctx context.Context, token string) (*Token, error)
}

// Verifiers returns a Verifier for tokens of several kinds, such as those of two issuers. It asks each in turn and gives
// the first answer that does not refuse the token, be it a token or a failure; the last refusal if all do.
func Verifiers(each ...Verifier) Verifier { return verifiers(slices.Clone(each)) }

type verifiers []Verifier

func (all verifiers) Verify(ctx context.Context, token string) (t *Token, err error) {
	err = ErrInvalidToken
	for _, v := range all {
		var refused error
		if t, refused = v.Verify(ctx, token); refused == nil || !errors.Is(refused, ErrInvalidToken) {
			return t, refused
		}
		if !errors.Is(err, ErrTokenExpired) { // it says more than that the others do not know it
			err = refused
		}
	}
	return nil, err
}

// invalidToken makes an error of a reason, which the log may have and the client not.
func invalidToken(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrInvalidToken, fmt.Sprintf(format, args...))
}

// principal returns the caller that the token stands for.
func (t *Token) principal() *mcp.Principal {
	return &mcp.Principal{
		Issuer: t.Issuer, Subject: t.Subject, ClientID: t.ClientID, Scopes: t.Scopes, Claims: t.Claims,
	}
}

// checkIdentity refuses a token that names nobody, or whose names could be taken for others: sessions are bound to them.
func (t *Token) checkIdentity() error {
	if t.Subject == "" {
		return invalidToken("it names no subject")
	}
	for _, name := range []string{t.Issuer, t.Subject, t.ClientID} {
		if len(name) > maxIdentity || strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r == 0x7f }) {
			return invalidToken("its issuer, subject or client id is too long or holds control characters")
		}
	}
	return nil
}

// checkTimes refuses a token before and after its time.
func (t *Token) checkTimes(now time.Time) error {
	switch {
	case !t.Expires.IsZero() && !now.Before(t.Expires.Add(clockSkew)):
		return ErrTokenExpired
	case !t.NotBefore.IsZero() && now.Add(clockSkew).Before(t.NotBefore):
		return invalidToken("it is not valid yet")
	}
	return nil
}
