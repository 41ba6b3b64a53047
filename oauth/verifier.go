package oauth

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/patchbay-mcp/patchbay/mcp"
)

// Errors of a [Verifier] for tokens that are refused; test for them with errors.Is.
var (
	// ErrInvalidToken is wrapped by the error for a token that is malformed, expired, revoked or
	// not genuine.
	ErrInvalidToken = errors.New("oauth: invalid token")
	// ErrTokenExpired is wrapped by the error for an expired token. It wraps ErrInvalidToken.
	ErrTokenExpired = fmt.Errorf("%w: expired", ErrInvalidToken)
)

// Limits of tokens.
const (
	// maxToken limits an access token, in bytes. Large tokens, with groups in them, take 4 KiB.
	maxToken = 16 << 10
	// maxIdentity limits the issuer, the subject and the client id of a token, in bytes.
	maxIdentity = 2 << 10
	// clockSkew is how much the clock of an authorization server may differ from the clock of this
	// machine.
	clockSkew = 30 * time.Second
)

// A Token is a verified access token. It must not be modified.
type Token struct {
	// Issuer is the authorization server that issued the token.
	Issuer string
	// Subject is the user, or the client if it acts for itself.
	Subject string
	// ClientID is the client that the token was issued to; empty if it is not known.
	ClientID string
	// Audience are the resources that the token is for.
	Audience []string
	// Scopes are the scopes that the token grants.
	Scopes []string
	// Expires and NotBefore bound the time in which the token is valid; zero for no bound.
	Expires   time.Time
	NotBefore time.Time
	// KeyThumbprint is the SHA-256 JWK thumbprint of the key that the token is bound to (cnf.jkt),
	// may be empty. Such a token is only accepted with a DPoP proof.
	KeyThumbprint string
	// Claims are all claims of the token, by name.
	Claims map[string]any

	configured bool // by a StaticVerifier: needs neither issuer nor audience
}

// A Verifier verifies access tokens and returns their claims. [Require] checks issuer, audience,
// times and scopes. An error that wraps ErrInvalidToken refuses the token; any other error says
// that it could not be verified. No error may contain the token. Verify is called concurrently.
type Verifier interface {
	Verify(ctx context.Context, token string) (*Token, error)
}

// Verifiers returns a Verifier that tries several in turn, such as the verifiers of two issuers,
// until one does not refuse the token.
func Verifiers(each ...Verifier) Verifier { return verifiers(slices.Clone(each)) }

type verifiers []Verifier

func (all verifiers) Verify(ctx context.Context, token string) (t *Token, err error) {
	err = ErrInvalidToken
	for _, v := range all {
		var refused error
		if t, refused = v.Verify(ctx, token); refused == nil || !errors.Is(refused, ErrInvalidToken) {
			return t, refused
		}
		if !errors.Is(err, ErrTokenExpired) { // more specific than the refusals of other verifiers
			err = refused
		}
	}
	return nil, err
}

// invalidToken returns an ErrInvalidToken with a reason that is logged and not sent to the client.
func invalidToken(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrInvalidToken, fmt.Sprintf(format, args...))
}

// checkText refuses a text that cannot be an access token: it is empty, too long, or contains
// other characters than printable ASCII without spaces. Decoders of base64 skip line breaks, so
// without this check a token could be spelled in several ways. Spec: RFC 6750, section 2.1.
func checkText(token string) error {
	if token == "" || len(token) > maxToken {
		return invalidToken("invalid length %d: must be 1 to %d bytes", len(token), maxToken)
	}
	for i := range len(token) {
		if c := token[i]; c <= ' ' || c >= 0x7f {
			return invalidToken("invalid character %q at %d: must be printable ASCII without spaces", c, i)
		}
	}
	return nil
}

func (t *Token) principal() *mcp.Principal {
	return &mcp.Principal{
		Issuer: t.Issuer, Subject: t.Subject, ClientID: t.ClientID, Scopes: t.Scopes, Claims: t.Claims,
	}
}

// checkIdentity refuses a token without a subject or with an ambiguous identity.
func (t *Token) checkIdentity() error {
	if t.Subject == "" {
		return invalidToken("sub is missing")
	}
	for _, name := range []string{t.Issuer, t.Subject, t.ClientID} {
		if len(name) > maxIdentity || strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r == 0x7f }) {
			return invalidToken("invalid iss, sub or client_id: must have at most %d bytes and no control characters",
				maxIdentity)
		}
	}
	return nil
}

func (t *Token) checkTimes(now time.Time) error {
	switch {
	case !t.Expires.IsZero() && !now.Before(t.Expires.Add(clockSkew)):
		return ErrTokenExpired
	case !t.NotBefore.IsZero() && now.Add(clockSkew).Before(t.NotBefore):
		return invalidToken("nbf is in the future")
	}
	return nil
}

// A digestCache maps the digests of tokens to values. It holds two generations: when the current
// generation is full, it becomes the previous generation, whose values are dropped unless they are
// used. It is safe for concurrent use.
type digestCache[V any] struct {
	max int // in one generation

	mu                sync.Mutex // guards the fields below
	current, previous map[[sha256.Size]byte]V
}

func (c *digestCache[V]) get(digest [sha256.Size]byte) (V, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	v, ok := c.current[digest]
	if !ok {
		if v, ok = c.previous[digest]; ok {
			c.put(digest, v)
		}
	}
	return v, ok
}

func (c *digestCache[V]) add(digest [sha256.Size]byte, v V) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.put(digest, v)
}

// put stores into the current generation. The caller holds c.mu.
func (c *digestCache[V]) put(digest [sha256.Size]byte, v V) {
	if len(c.current) >= c.max {
		c.current, c.previous = nil, c.current
	}
	if c.current == nil {
		c.current = make(map[[sha256.Size]byte]V)
	}
	c.current[digest] = v
}

// A tokenCache holds verified tokens.
type tokenCache struct{ digestCache[cachedToken] }

type cachedToken struct {
	token *Token
	until time.Time
	by    *keySet // that verified it; may be nil
}

// get returns a cached token that the same keys verified, or nil.
func (c *tokenCache) get(digest [sha256.Size]byte, by *keySet, now time.Time) *Token {
	v, ok := c.digestCache.get(digest)
	if !ok || v.by != by || !now.Before(v.until) {
		return nil
	}
	return v.token
}
