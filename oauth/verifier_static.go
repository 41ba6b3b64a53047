package oauth

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/oauthwire"
)

const (
	// minStaticToken is the shortest token that cannot be guessed: 128 bits in base64url.
	minStaticToken = 22
	// maxStaticTokens limits the table, since each request is compared with every entry.
	maxStaticTokens = 1000
)

// A StaticToken is a token of the configuration and its owner.
type StaticToken struct {
	// Token is the token: at least 22 characters, of the letters, digits and -._~+/ that a bearer
	// token may have.
	Token string
	// SHA256 is the SHA-256 digest of the token in hexadecimal, for configurations without secrets.
	// Either Token or SHA256 must be set.
	SHA256 string
	// Subject is the owner of the token, and ClientID the program that uses it, if that matters.
	Subject  string
	ClientID string
	// Scopes are the scopes that the token grants.
	Scopes []string
	// Expires is when the token expires; [Require] allows 30 seconds more. Default: never.
	Expires time.Time
}

// A StaticVerifier verifies the tokens of a configuration. It is for servers with a handful of
// users or programs and without an authorization server. Callers consist of a Subject without an
// issuer.
type StaticVerifier struct{ entries []staticEntry }

type staticEntry struct {
	digest [sha256.Size]byte
	token  *Token
}

// NewStaticVerifier returns a verifier of the given tokens. The error is for a token that is too
// short, lacks a subject, or is duplicate, and does not contain it.
func NewStaticVerifier(tokens ...StaticToken) (*StaticVerifier, error) {
	v := &StaticVerifier{}
	if len(tokens) > maxStaticTokens {
		return nil, fmt.Errorf("oauth: NewStaticVerifier: %d tokens: must be at most %d", len(tokens), maxStaticTokens)
	}
	for i := range tokens {
		e, err := tokens[i].entry()
		if err == nil && slices.ContainsFunc(v.entries, func(o staticEntry) bool { return o.digest == e.digest }) {
			err = errors.New("duplicate token")
		}
		if err != nil {
			return nil, fmt.Errorf("oauth: NewStaticVerifier: token %d: %w", i, err)
		}
		v.entries = append(v.entries, e)
	}
	return v, nil
}

func (s *StaticToken) entry() (e staticEntry, err error) {
	switch {
	case (s.Token == "") == (s.SHA256 == ""):
		return e, errors.New("exactly one of Token and SHA256 must be set")
	case s.SHA256 != "":
		digest, err := hex.DecodeString(s.SHA256)
		if err != nil || len(digest) != sha256.Size {
			return e, errors.New("invalid SHA256: must be a SHA-256 digest in hexadecimal")
		}
		e.digest = [sha256.Size]byte(digest)
	case len(s.Token) < minStaticToken || len(s.Token) > maxToken || !oauthwire.IsToken68(s.Token):
		return e, fmt.Errorf("invalid Token: must have at least %d letters, digits and -._~+/", minStaticToken)
	default:
		e.digest = sha256.Sum256([]byte(s.Token))
	}
	if s.Subject == "" {
		return e, errors.New("missing Subject")
	}
	e.token = &Token{
		Subject: s.Subject, ClientID: s.ClientID, Scopes: slices.Clone(s.Scopes), Expires: s.Expires, configured: true,
	}
	if e.token.checkIdentity() != nil {
		return e, fmt.Errorf("invalid Subject or ClientID: want at most %d bytes, no control characters", maxIdentity)
	}
	return e, nil
}

// Verify returns the configured token.
func (v *StaticVerifier) Verify(_ context.Context, token string) (*Token, error) {
	if err := checkText(token); err != nil {
		return nil, err
	}
	digest := sha256.Sum256([]byte(token))
	found := -1
	for i := range v.entries { // in constant time
		if subtle.ConstantTimeCompare(v.entries[i].digest[:], digest[:]) == 1 {
			found = i
		}
	}
	if found < 0 {
		return nil, invalidToken("not in the configuration")
	}
	return v.entries[found].token, nil
}
