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
	// minStaticToken is the least length of a token that cannot be guessed: 128 bits in base64url.
	minStaticToken = 22
	// maxStaticTokens bounds the table, every entry of which is compared with every token. Who has more wants an
	// authorization server.
	maxStaticTokens = 1000
)

// A StaticToken is a token of the configuration, and who may use it.
type StaticToken struct {
	// Token is the token itself: 22 characters at least, of the letters, digits and -._~+/ that a bearer token may have.
	Token string
	// SHA256 is the SHA-256 digest of the token, in hexadecimal, for configurations that hold no secrets. One of the two
	// is set.
	SHA256 string
	// Subject is who the token stands for, and ClientID the program that uses it, if that matters.
	Subject  string
	ClientID string
	// Scopes are what the token allows.
	Scopes []string
	// Expires is when the token ends to be good. Default: never.
	Expires time.Time
}

// A StaticVerifier knows the tokens of a configuration. It is for servers with a handful of users or programs, which need
// no authorization server: [Require] then tells clients of none. The caller has no issuer.
type StaticVerifier struct{ entries []staticEntry }

type staticEntry struct {
	digest [sha256.Size]byte
	token  *Token
}

// NewStaticVerifier returns a verifier of the given tokens. It is an error if one of them cannot be used: it is empty or too
// short, has no subject, or is there twice. The error holds nothing of a token.
func NewStaticVerifier(tokens ...StaticToken) (*StaticVerifier, error) {
	v := &StaticVerifier{}
	if len(tokens) > maxStaticTokens {
		return nil, fmt.Errorf("oauth: NewStaticVerifier: %d tokens, at most %d are taken", len(tokens), maxStaticTokens)
	}
	for i := range tokens {
		e, err := tokens[i].entry()
		if err == nil && slices.ContainsFunc(v.entries, func(other staticEntry) bool { return other.digest == e.digest }) {
			err = errors.New("the token is there twice")
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
		return e, errors.New("want one of Token and SHA256")
	case s.SHA256 != "":
		digest, err := hex.DecodeString(s.SHA256)
		if err != nil || len(digest) != sha256.Size {
			return e, errors.New("SHA256 is no such digest in hexadecimal")
		}
		e.digest = [sha256.Size]byte(digest)
	case len(s.Token) < minStaticToken || len(s.Token) > maxToken || !oauthwire.IsToken68(s.Token):
		return e, fmt.Errorf("want %d characters at least, of the letters, digits and -._~+/", minStaticToken)
	default:
		e.digest = sha256.Sum256([]byte(s.Token))
	}
	e.token = &Token{
		Subject: s.Subject, ClientID: s.ClientID, Scopes: slices.Clone(s.Scopes), Expires: s.Expires, configured: true,
	}
	return e, e.token.checkIdentity()
}

// Verify returns what the configuration says of a token.
func (v *StaticVerifier) Verify(_ context.Context, token string) (*Token, error) {
	digest := sha256.Sum256([]byte(token))
	found := -1
	for i := range v.entries { // all of them, each in the same time
		if subtle.ConstantTimeCompare(v.entries[i].digest[:], digest[:]) == 1 {
			found = i
		}
	}
	if found < 0 {
		return nil, invalidToken("it is not in the configuration")
	}
	return v.entries[found].token, nil
}
