package authserver

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/jwskey"
	"github.com/patchbay-mcp/patchbay/internal/oauthfetch"
)

const (
	assertionType    = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
	maxAssertionTime = 10 * time.Minute // maximum time until the expiry of an assertion, for which its ID is stored
	assertionSkew    = 30 * time.Second // tolerated lead of a client's clock
	maxJTI           = 256              // bytes

	kindAssertion = "assertion"
)

// errBadClient is the error of a failed client authentication. It does not reveal whether the
// client exists. Spec: RFC 6749, section 5.2.
var errBadClient = &oauthError{
	status: http.StatusUnauthorized, code: codeInvalidClient,
	text:      "the client is unknown or its authentication failed",
	challenge: `Basic realm="token", charset="UTF-8"`,
}

type credentials struct {
	id, method, secret, assertion string
}

// authenticate returns the authenticated client and the form of a request. A client that proves its
// identity does not count for the limit by address. Spec: OAuth 2.1, section 2.4; RFC 7523,
// sections 2.2 and 3.
func (s *Server) authenticate(r *http.Request) (*client, form, error) {
	c, f, err := s.authenticateRequest(r)
	limit := addressLimitOf(r.Context())
	switch {
	case limit.isExceeded && (c == nil || c.isPublic()):
		return nil, nil, limit.refusal()
	case c != nil && !c.isPublic():
		refund(limit.costs)
	}
	if err != nil {
		return nil, nil, err
	}
	// Anyone can use the ID of a public client, and could exhaust its rate.
	if !c.isPublic() {
		if wait, ok := s.limits.cost(limitClients, c.ID).reserve(); !ok {
			return nil, nil, &oauthError{status: http.StatusTooManyRequests, code: codeSlowDown,
				text: "too many requests from this client", wait: wait}
		}
	}
	return c, f, nil
}

// authenticateRequest returns the client also with an error in the form, if it proved its
// identity before.
func (s *Server) authenticateRequest(r *http.Request) (*client, form, error) {
	// The header comes first, so that no body is read for a client with a wrong secret.
	header, err := headerCredentials(r)
	if err != nil {
		return nil, nil, err
	}
	var c *client
	if header != nil {
		if c, err = s.authenticateAs(r.Context(), *header); err != nil {
			return nil, nil, err
		}
	}
	f, err := postForm(r)
	if err != nil {
		return c, nil, err
	}
	creds, err := readCredentials(header, f)
	if err != nil {
		return c, nil, err
	}
	if c == nil {
		c, err = s.authenticateAs(r.Context(), creds)
	}
	return c, f, err
}

// authenticateAs returns the client that credentials belong to.
func (s *Server) authenticateAs(ctx context.Context, creds credentials) (*client, error) {
	c, err := s.client(ctx, creds.id)
	if errors.Is(err, errNoClient) {
		// so that the response takes as long as for a known client
		c, err = &client{Auth: authBasic, SecretHash: noSecretHash}, nil
		if creds.method == authNone {
			return nil, errBadClient
		}
	}
	if err == nil {
		err = s.checkCredentials(ctx, c, creds)
	}
	if err != nil {
		return nil, err
	}
	return c, nil
}

var noSecretHash = hashPrefix + base64.RawURLEncoding.EncodeToString(make([]byte, sha256.Size))

func (s *Server) checkCredentials(ctx context.Context, c *client, creds credentials) error {
	switch creds.method {
	case authNone:
		if !c.isPublic() {
			return errBadClient
		}
	case authBasic, authPost:
		ok := subtle.ConstantTimeCompare([]byte(HashClientSecret(creds.secret)), []byte(c.SecretHash)) == 1
		if !ok || c.Auth != authBasic && c.Auth != authPost {
			return errBadClient
		}
	case authKey:
		if c.Auth != authKey {
			return errBadClient
		}
		return s.checkAssertion(ctx, c, creds.assertion)
	}
	return nil
}

// headerCredentials returns the credentials in the Authorization header, or nil.
func headerCredentials(r *http.Request) (*credentials, error) {
	switch len(r.Header["Authorization"]) {
	case 0:
		return nil, nil //nolint:nilnil // the credentials may be in the body
	case 1:
		c, err := basicCredentials(r)
		return &c, err
	}
	return nil, refuse(codeInvalidRequest, "the Authorization header is repeated")
}

// readCredentials returns the credentials of a request, which must use a single authentication
// method. header contains the credentials of the Authorization header, if it is not nil.
func readCredentials(header *credentials, f form) (credentials, error) {
	var found []credentials
	if header != nil {
		found = append(found, *header)
	}
	if secret := f["client_secret"]; secret != "" {
		found = append(found, credentials{id: f["client_id"], method: authPost, secret: secret})
	}
	if assertion := f["client_assertion"]; assertion != "" {
		if f["client_assertion_type"] != assertionType {
			return credentials{}, refuse(codeInvalidRequest, "unsupported client_assertion_type")
		}
		id := unverifiedClaims(assertion).Subject
		found = append(found, credentials{id: id, method: authKey, assertion: assertion})
	}
	switch {
	case len(found) > 1:
		return credentials{}, refuse(codeInvalidRequest, "more than one client authentication method")
	case len(found) == 0 && f["client_id"] == "":
		return credentials{}, errBadClient
	case len(found) == 0:
		return credentials{id: f["client_id"], method: authNone}, nil
	case f["client_id"] != "" && f["client_id"] != found[0].id:
		return credentials{}, errBadClient
	}
	return found[0], nil
}

// basicCredentials returns the ID and the secret of a Basic authorization, each of which is
// form-encoded. Spec: RFC 6749, section 2.3.1.
func basicCredentials(r *http.Request) (credentials, error) {
	id, secret, ok := r.BasicAuth()
	if !ok {
		return credentials{}, errBadClient
	}
	id, err1 := url.QueryUnescape(id)
	secret, err2 := url.QueryUnescape(secret)
	if err1 != nil || err2 != nil {
		return credentials{}, errBadClient
	}
	return credentials{id: id, method: authBasic, secret: secret}, nil
}

type assertionClaims struct {
	Issuer    string  `json:"iss"`
	Subject   string  `json:"sub"`
	Audience  any     `json:"aud"`
	ID        string  `json:"jti"`
	Expires   float64 `json:"exp"`
	NotBefore float64 `json:"nbf"`
	Issued    float64 `json:"iat"`
}

// audience returns the aud claim: a string, or a list with a single string. It returns "" for any
// other value.
func (c *assertionClaims) audience() string {
	aud := c.Audience
	if list, ok := aud.([]any); ok && len(list) == 1 {
		aud = list[0]
	}
	text, _ := aud.(string)
	return text
}

// unverifiedClaims returns the claims of an unverified assertion, or nil if it is malformed.
func unverifiedClaims(assertion string) assertionClaims {
	parts := strings.Split(assertion, ".")
	if len(assertion) > maxToken || len(parts) != 3 {
		return assertionClaims{}
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return assertionClaims{}
	}
	var claims assertionClaims
	if oauthfetch.Decode(payload, &claims) != nil {
		return assertionClaims{}
	}
	return claims
}

// checkAssertion verifies an assertion and records it, because it can be used only once. Spec: RFC
// 7523, section 3; OpenID Connect Core 1.0, section 9.
func (s *Server) checkAssertion(ctx context.Context, c *client, assertion string) error {
	keys, err := s.clientKeys(ctx, c)
	if err != nil {
		return err
	}
	_, payload, err := verifyCompact(assertion, keys, jwskey.Asymmetric())
	if err != nil {
		return errBadClient
	}
	var claims assertionClaims
	if err := oauthfetch.Decode(payload, &claims); err != nil {
		return errBadClient
	}
	now, expires := time.Now(), unixTime(claims.Expires)
	switch {
	case claims.Issuer != c.ID || claims.Subject != c.ID,
		// Only the issuer: to accept the URLs of endpoints would allow assertions that were made
		// for other servers.
		claims.audience() != s.o.Issuer,
		claims.ID == "" || len(claims.ID) > maxJTI,
		!now.Before(expires) || expires.After(now.Add(maxAssertionTime)),
		unixTime(max(claims.NotBefore, claims.Issued)).After(now.Add(assertionSkew)):
		return errBadClient
	}
	return s.useOnce(ctx, kindAssertion, c.ID, claims.ID, claims.usableUntil(), errBadClient)
}

// useOnce records the use of an assertion or proof until it expires. id is unique for the issuer.
// If it was used before, the error is used.
func (s *Server) useOnce(ctx context.Context, kind, issuer, id string, expires time.Time, used error) error {
	return s.store.Update(ctx, kind, hashKey(issuer+"\x00"+id), func(old []byte) ([]byte, time.Time, error) {
		if old != nil {
			return nil, time.Time{}, used
		}
		return []byte{1}, expires, nil
	})
}

// usableUntil returns until when the use of an assertion must be stored.
func (c *assertionClaims) usableUntil() time.Time { return unixTime(c.Expires).Add(assertionSkew) }

// unixTime returns the time of a NumericDate. Values that a time.Time cannot hold are replaced by
// dates that no check accepts.
func unixTime(seconds float64) time.Time {
	const most = 1 << 40 // about the year 36800
	return time.Unix(int64(min(max(seconds, -most), most)), 0)
}
