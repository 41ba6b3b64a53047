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
)

const (
	assertionType = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
	// maxAssertionTime is how far ahead an assertion may expire: its id has to be remembered until then.
	maxAssertionTime = 10 * time.Minute
	// assertionSkew is how much the clock of a client may be ahead.
	assertionSkew = 30 * time.Second
	// maxJTI bounds the id of an assertion.
	maxJTI = 256

	kindAssertion = "assertion"
)

// errBadClient is the error for every client that does not prove who it is: it does not say whether there is such a one.
//
// Spec: RFC 6749, section 5.2.
var errBadClient = &oauthError{
	status: http.StatusUnauthorized, code: codeInvalidClient, text: "the client is unknown or its authentication failed",
	challenge: `Basic realm="token", charset="UTF-8"`,
}

// credentials are what a client shows of itself.
type credentials struct {
	id        string
	way       string
	secret    string
	assertion string
}

// authenticate returns the client of a request.
//
// Spec: OAuth 2.1, section 2.4; RFC 7523, sections 2.2 and 3.
func (s *Server) authenticate(r *http.Request, f form) (*client, error) {
	shown, err := readCredentials(r, f)
	if err != nil {
		return nil, err
	}
	c, err := s.client(r.Context(), shown.id)
	if errors.Is(err, errNoClient) {
		c, err = &client{Auth: authBasic, SecretHash: noSecretHash}, nil // as much work as for one that is known
		if shown.way == authNone {
			return nil, errBadClient
		}
	}
	if err != nil {
		return nil, err
	}
	if err := s.prove(r.Context(), c, shown); err != nil {
		return nil, err
	}
	// Anybody can use the id of a public client, and must not use up what its users have.
	if !c.isPublic() {
		if wait, ok := s.limits.cost(limitClients, c.ID).take(); !ok {
			return nil, &oauthError{status: http.StatusTooManyRequests, code: codeSlowDown, text: "too many requests of this client", wait: wait}
		}
	}
	return c, nil
}

// noSecretHash is the hash of no secret that anybody knows.
var noSecretHash = hashPrefix + base64.RawURLEncoding.EncodeToString(make([]byte, sha256.Size))

func (s *Server) prove(ctx context.Context, c *client, shown credentials) error {
	switch shown.way {
	case authNone:
		if !c.isPublic() {
			return errBadClient
		}
	case authBasic, authPost:
		right := subtle.ConstantTimeCompare([]byte(HashClientSecret(shown.secret)), []byte(c.SecretHash)) == 1
		if !right || c.Auth != authBasic && c.Auth != authPost {
			return errBadClient
		}
	case authKey:
		if c.Auth != authKey {
			return errBadClient
		}
		return s.checkAssertion(ctx, c, shown.assertion)
	}
	return nil
}

// readCredentials finds the one way in which a client proves who it is.
func readCredentials(r *http.Request, f form) (credentials, error) {
	var shown []credentials
	switch headers := r.Header["Authorization"]; {
	case len(headers) > 1:
		return credentials{}, refuse(codeInvalidRequest, "the header Authorization stands twice")
	case len(headers) == 1:
		c, err := basicCredentials(r)
		if err != nil {
			return credentials{}, err
		}
		shown = append(shown, c)
	}
	if secret := f.get("client_secret"); secret != "" {
		shown = append(shown, credentials{id: f.get("client_id"), way: authPost, secret: secret})
	}
	if assertion := f.get("client_assertion"); assertion != "" {
		if f.get("client_assertion_type") != assertionType {
			return credentials{}, refuse(codeInvalidRequest, "client_assertion_type is not the one for JWTs")
		}
		shown = append(shown, credentials{id: assertedClient(assertion), way: authKey, assertion: assertion})
	}
	switch {
	case len(shown) > 1:
		return credentials{}, refuse(codeInvalidRequest, "the client authenticates in more than one way")
	case len(shown) == 0 && f.get("client_id") == "":
		return credentials{}, errBadClient
	case len(shown) == 0:
		return credentials{id: f.get("client_id"), way: authNone}, nil
	case f.get("client_id") != "" && f.get("client_id") != shown[0].id:
		return credentials{}, errBadClient
	}
	return shown[0], nil
}

// basicCredentials reads id and secret, each of which is form-encoded.
//
// Spec: RFC 6749, section 2.3.1.
func basicCredentials(r *http.Request) (credentials, error) {
	id, secret, ok := r.BasicAuth()
	if !ok {
		return credentials{}, errBadClient
	}
	var err1, err2 error
	id, err1 = url.QueryUnescape(id)
	secret, err2 = url.QueryUnescape(secret)
	if err1 != nil || err2 != nil {
		return credentials{}, errBadClient
	}
	return credentials{id: id, way: authBasic, secret: secret}, nil
}

// assertionClaims are those of an assertion. The audience may be a string or a list of one.
type assertionClaims struct {
	Issuer    string  `json:"iss"`
	Subject   string  `json:"sub"`
	Audience  oneText `json:"aud"`
	ID        string  `json:"jti"`
	Expires   float64 `json:"exp"`
	NotBefore float64 `json:"nbf"`
	Issued    float64 `json:"iat"`
}

// oneText is a string, or a list that holds one.
type oneText string

// UnmarshalJSON takes either form.
func (t *oneText) UnmarshalJSON(text []byte) error {
	var list []string
	if len(text) > 0 && text[0] != '[' {
		list = []string{""}
		if err := decodeStrict(text, &list[0]); err != nil {
			return err
		}
	} else if err := decodeStrict(text, &list); err != nil {
		return err
	}
	if len(list) != 1 {
		return errors.New("an audience that is not one")
	}
	*t = oneText(list[0])
	return nil
}

// assertedClient returns the client that an assertion speaks of. Nothing of it is proven.
func assertedClient(assertion string) string {
	parts := strings.Split(assertion, ".")
	if len(assertion) > maxToken || len(parts) != 3 {
		return ""
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return ""
	}
	var claims assertionClaims
	if decodeStrict(payload, &claims) != nil {
		return ""
	}
	return claims.Subject
}

// checkAssertion checks an assertion, which is good once.
//
// Spec: RFC 7523, section 3; OpenID Connect Core 1.0, section 9.
func (s *Server) checkAssertion(ctx context.Context, c *client, assertion string) error {
	keys, err := s.clientKeys(ctx, c)
	if err != nil {
		return err
	}
	_, payload, err := verifyCompact(assertion, keys, assertionAlgorithms())
	if err != nil {
		return errBadClient
	}
	var claims assertionClaims
	if err := decodeStrict(payload, &claims); err != nil {
		return errBadClient
	}
	now, expires := time.Now(), unixTime(claims.Expires)
	switch {
	case claims.Issuer != c.ID || claims.Subject != c.ID,
		// The issuer alone: a server that takes the URLs of endpoints takes assertions which were made for others.
		string(claims.Audience) != s.o.Issuer,
		claims.ID == "" || len(claims.ID) > maxJTI,
		!now.Before(expires) || expires.After(now.Add(maxAssertionTime)),
		unixTime(claims.NotBefore).After(now.Add(assertionSkew)) || unixTime(claims.Issued).After(now.Add(assertionSkew)):
		return errBadClient
	}
	return s.store.Update(ctx, kindAssertion, hashKey(c.ID+"\x00"+claims.ID), func(old []byte) ([]byte, time.Time, error) {
		if old != nil {
			return nil, time.Time{}, errBadClient
		}
		return []byte{1}, expires.Add(assertionSkew), nil
	})
}

// unixTime returns the time of a NumericDate. What is beyond all reason becomes a time that no check lets pass.
func unixTime(seconds float64) time.Time {
	const most = 1 << 40 // far beyond every date, and within what a Time can hold
	return time.Unix(int64(min(max(seconds, -most), most)), 0)
}
