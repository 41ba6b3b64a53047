// Package oauthwire has the names and the syntax that both sides of OAuth use: schemes, error
// codes, well-known paths, tokens, scopes and credentials.
package oauthwire

import (
	"crypto/rand"
	"encoding/base64"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
)

// Authentication schemes, which are also types of tokens. Spec: RFC 6750, section 2.1; RFC 9449,
// section 7.1.
const (
	Bearer = "Bearer"
	DPoP   = "DPoP"
)

// Error codes. Spec: RFC 6750, section 3.1; RFC 6749, section 5.2; RFC 9449, sections 5, 8 and 9.
const (
	InvalidRequest    = "invalid_request"
	InvalidToken      = "invalid_token"
	InsufficientScope = "insufficient_scope"
	InvalidGrant      = "invalid_grant"
	InvalidClient     = "invalid_client"
	InvalidDPoPProof  = "invalid_dpop_proof"
	UseDPoPNonce      = "use_dpop_nonce"
)

// Client authentication methods of token endpoints. Spec: RFC 7591, section 2; OpenID Connect Core
// 1.0, section 9.
const (
	AuthNone       = "none"
	AuthBasic      = "client_secret_basic"
	AuthPost       = "client_secret_post"
	AuthPrivateKey = "private_key_jwt"
)

// ScopeOffline asks an authorization server for a refresh token. A resource never needs it.
//
// Spec: OpenID Connect Core 1.0, section 11; basic/authorization#refresh-tokens (2026-07-28).
const ScopeOffline = "offline_access"

// Well-known paths of metadata. Spec: RFC 9728, section 3; RFC 8414, section 3; OpenID Connect
// Discovery 1.0, section 4.
const (
	WellKnownResource = "/.well-known/oauth-protected-resource"
	WellKnownServer   = "/.well-known/oauth-authorization-server"
	WellKnownOpenID   = "/.well-known/openid-configuration"
)

// maxCredential limits a client_id and a client_secret, in bytes: both travel in headers. A
// client_id may be a URL.
const maxCredential = 4 << 10

// maxScope limits one scope, in bytes: scopes travel in URLs.
const maxScope = 256

// IsToken68 reports whether text is a token68, which is also the syntax of a bearer token.
//
// Spec: RFC 9110, section 11.2; RFC 6750, section 2.1.
func IsToken68(text string) bool {
	body := strings.TrimRight(text, "=")
	return body != "" && !strings.ContainsFunc(body, func(c rune) bool {
		isLetter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
		return !isLetter && (c < '0' || c > '9') && !strings.ContainsRune("-._~+/", c)
	})
}

// IsSameIssuer reports whether two issuers are equal, except that an empty path equals "/": large
// providers publish both forms. Spec: RFC 3986, section 6.2.3.
func IsSameIssuer(a, b string) bool {
	if a == b {
		return true
	}
	short, long := a, b
	if len(a) > len(b) {
		short, long = b, a
	}
	u, err := url.Parse(short)
	return err == nil && u.Path == "" && u.Host != "" && u.RawQuery == "" && u.Fragment == "" && long == short+"/"
}

// IsScope reports whether text has the syntax of a scope, and is at most 256 bytes long.
//
// Spec: RFC 6749, section 3.3.
func IsScope(text string) bool { return len(text) <= maxScope && IsNQChars(text) }

// IsNQChars reports whether text is not empty and consists of printable ASCII without spaces,
// quotes and backslashes: the syntax of scopes and DPoP nonces.
//
// Spec: RFC 6749, appendix A; RFC 9449, section 8.1.
func IsNQChars(text string) bool {
	return text != "" &&
		!strings.ContainsFunc(text, func(c rune) bool { return c <= ' ' || c > '~' || c == '"' || c == '\\' })
}

// IsCredential reports whether text has the syntax of a client_id or a client_secret, and is at
// most 4 KiB long.
//
// Spec: RFC 6749, appendices A.1 and A.2.
func IsCredential(text string) bool {
	return text != "" && len(text) <= maxCredential &&
		!strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r > '~' })
}

// BasicCredentials returns a client's id and secret as the value of the Authorization header. Both
// are form-encoded first.
//
// Spec: RFC 6749, section 2.3.1.
func BasicCredentials(id, secret string) string {
	req := http.Request{Header: http.Header{}}
	req.SetBasicAuth(url.QueryEscape(id), url.QueryEscape(secret))
	return req.Header.Get("Authorization")
}

// Strings returns the strings of a claim that is a string or an array, such as aud.
func Strings(raw jsontext.Value) (all []string) {
	if jsonscan.Kind(raw) == '"' {
		raw = slices.Concat(jsontext.Value("["), raw, jsontext.Value("]"))
	}
	if jsonscan.Kind(raw) == '[' {
		for element := range jsonscan.Elements(raw) {
			if text, err := jsonscan.Unquote(element); err == nil {
				all = append(all, text)
			}
		}
	}
	return slices.Clip(all)
}

// NewJWTID returns a unique identifier for a JWT (jti): 128 random bits in base64url.
func NewJWTID() string {
	const size = 16
	id := make([]byte, size)
	_, _ = rand.Read(id) // never fails
	return base64.RawURLEncoding.EncodeToString(id)
}

const maxDescription = 300 // maximum length of an error_description in bytes

// PlainText removes the characters that an error_description must not contain, and truncates the
// text.
// Spec: RFC 6749, section 4.1.2.1.
func PlainText(text string) string {
	text = strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' || r == '"' || r == '\\' {
			return -1
		}
		return r
	}, text)
	return text[:min(len(text), maxDescription)]
}
