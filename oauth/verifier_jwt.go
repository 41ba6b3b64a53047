package oauth

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/internal/jwskey"
	"github.com/patchbay-mcp/patchbay/internal/netx"
	"github.com/patchbay-mcp/patchbay/internal/oauthfetch"
	"github.com/patchbay-mcp/patchbay/internal/oauthwire"
)

// JWTOptions configures a [JWTVerifier]. The zero value is right for most authorization servers: their metadata says
// where the keys are.
type JWTOptions struct {
	// JWKSURI is where the keys of the issuer are. Default: what the metadata of the issuer says.
	JWKSURI string
	// JWKS is a JWK set, for keys that are known and do not change. Nothing is fetched then. Default: none.
	JWKS []byte
	// Algorithms are those that tokens may be signed with, all of them asymmetric. Default: ES256, ES384, ES512, EdDSA,
	// PS256, PS384, PS512, RS256, RS384 and RS512.
	Algorithms []string
	// AccessTokenType takes only tokens whose type is at+jwt, which ID tokens cannot be. Default: tokens of type JWT and
	// those without one are taken too, unless they look like something else.
	AccessTokenType bool
	// MaxCached is how many verified tokens are remembered, twice as many at the most, so that each is verified once: until
	// it expires, or the keys are fetched anew. Each takes about 2 KB. Default: 1000.
	MaxCached int
	// Fetcher fetches the keys. Default: NewFetcher(nil), which fetches from addresses as near as the issuer's.
	Fetcher *Fetcher
}

// defaultMaxCached is some two megabytes.
const defaultMaxCached = 1000

// maxTime bounds times in tokens, in seconds: it is a year that nobody will see.
const maxTime = 1 << 40

// A JWTVerifier verifies access tokens that are JWTs, signed by one authorization server. It fetches the keys of that when
// they are first needed and every ten minutes, and where a token names a key that is not known, once a minute at most.
// While the server is away it goes on with the keys that it has for an hour. It is safe for concurrent use.
//
// Spec: RFC 9068, section 4; RFC 8725.
type JWTVerifier struct {
	issuer     string
	algorithms []jose.SignatureAlgorithm
	strictType bool
	fixed      *keySet       // nil if they are remote
	remote     *remoteKeySet // nil if they are fixed
	cache      tokenCache
}

// NewJWTVerifier returns a verifier for the tokens of an issuer. opts may be nil. It panics if the options cannot work.
func NewJWTVerifier(issuer string, opts *JWTOptions) *JWTVerifier {
	v, err := newJWTVerifier(issuer, opts)
	if err != nil {
		panic("oauth: NewJWTVerifier: " + err.Error())
	}
	return v
}

func newJWTVerifier(issuer string, opts *JWTOptions) (*JWTVerifier, error) {
	var o JWTOptions
	if opts != nil {
		o = *opts
	}
	v := &JWTVerifier{issuer: issuer, strictType: o.AccessTokenType}
	v.cache.max = cmp.Or(o.MaxCached, defaultMaxCached)
	switch {
	case issuer == "":
		return nil, errors.New("the issuer is empty")
	case o.MaxCached < 0:
		return nil, fmt.Errorf("MaxCached is %d, want a positive number", o.MaxCached)
	case o.JWKS != nil && o.JWKSURI != "":
		return nil, errors.New("want one of JWKS and JWKSURI")
	}
	for _, a := range o.Algorithms {
		if !slices.Contains(jwskey.Asymmetric(), jose.SignatureAlgorithm(a)) {
			return nil, fmt.Errorf("Algorithms: %q is not an asymmetric algorithm for tokens", a)
		}
		v.algorithms = append(v.algorithms, jose.SignatureAlgorithm(a))
	}
	if v.algorithms == nil {
		v.algorithms = jwskey.Asymmetric()
	}
	if o.JWKS != nil {
		var document struct {
			Keys []jsontext.Value `json:"keys"`
		}
		if err := oauthfetch.Decode(o.JWKS, &document); err != nil {
			return nil, fmt.Errorf("JWKS: %w", err)
		}
		v.fixed = parseKeys(document.Keys, v.algorithms)
		if len(v.fixed.keys) == 0 {
			return nil, errors.New("JWKS: it holds no key that can verify tokens")
		}
		return v, nil
	}
	if o.Fetcher == nil {
		o.Fetcher = NewFetcher(nil)
	}
	var err error
	v.remote, err = newRemoteKeySet(o.Fetcher, issuer, o.JWKSURI, v.algorithms)
	return v, err
}

// Verify verifies a token.
func (v *JWTVerifier) Verify(ctx context.Context, token string) (*Token, error) {
	if len(token) > maxToken {
		return nil, invalidToken("it is too long")
	}
	now, digest := time.Now(), sha256.Sum256([]byte(token))
	keys := v.keysInUse(now)
	if keys != nil {
		if t := v.cache.get(digest, keys, now); t != nil {
			return t, nil
		}
	}
	// What is no token of this issuer has no keys fetched: it may be one for another verifier.
	header, err := v.readHeader(token)
	if err != nil {
		return nil, err
	}
	if err := v.checkIssuerUnverified(token); err != nil {
		return nil, err
	}
	if keys == nil {
		if keys, err = v.remote.current(ctx); err != nil {
			return nil, err
		}
	}
	payload, keys, err := v.open(ctx, token, header, keys)
	if err != nil {
		return nil, err
	}
	t, err := v.readClaims(payload, header)
	if err != nil {
		return nil, err
	}
	if err := t.checkTimes(now); err != nil {
		return nil, err
	}
	v.cache.add(digest, verified{token: t, until: t.Expires.Add(clockSkew), by: keys})
	return t, nil
}

// keysInUse returns the keys that need not be fetched; nil if there are none.
func (v *JWTVerifier) keysInUse(now time.Time) *keySet {
	if v.remote == nil {
		return v.fixed
	}
	return v.remote.fresh(now)
}

// checkIssuerUnverified refuses a token of another issuer, by what it says of itself.
func (v *JWTVerifier) checkIssuerUnverified(token string) error {
	_, rest, _ := strings.Cut(token, ".")
	payload, _, _ := strings.Cut(rest, ".")
	var claims struct {
		Issuer string `json:"iss"`
	}
	raw, err := base64.RawURLEncoding.DecodeString(payload)
	if err != nil || oauthfetch.Decode(raw, &claims) != nil {
		return invalidToken("its claims cannot be read")
	}
	if claims.Issuer != v.issuer {
		return invalidToken("it is of another issuer")
	}
	return nil
}

// A tokenHeader is what is read of the header of a token. Keys and addresses of keys in it mean nothing here.
type tokenHeader struct {
	Algorithm jose.SignatureAlgorithm `json:"alg"`
	Type      string                  `json:"typ"`
	Key       string                  `json:"kid"`
	Critical  jsontext.Value          `json:"crit"`
	Unencoded jsontext.Value          `json:"b64"`
}

// readHeader reads the header of a token, and refuses what cannot be an access token that is signed as it should.
func (v *JWTVerifier) readHeader(token string) (h tokenHeader, err error) {
	first, _, isJWT := strings.Cut(token, ".")
	if !isJWT || strings.Count(token, ".") != 2 {
		return h, invalidToken("it is no signed JWT")
	}
	raw, err := base64.RawURLEncoding.DecodeString(first)
	if err != nil || oauthfetch.Decode(raw, &h) != nil {
		return h, invalidToken("its header cannot be read")
	}
	typ := strings.TrimPrefix(netx.LowerASCII(h.Type), "application/")
	switch {
	case h.Critical != nil || h.Unencoded != nil:
		return h, invalidToken("its header wants something that is not known here")
	case !slices.Contains(v.algorithms, h.Algorithm):
		return h, invalidToken("its algorithm %.32q is not allowed", h.Algorithm)
	case typ != typeAccessToken && v.strictType, typ != typeAccessToken && typ != "jwt" && typ != "":
		return h, invalidToken("its type %.32q is not that of an access token", h.Type)
	}
	h.Type = typ
	return h, nil
}

// typeAccessToken is the type of JWTs that are access tokens. Spec: RFC 9068, section 2.1.
const typeAccessToken = "at+jwt"

// open verifies the signature, and gives what was signed and the set of keys that it was verified with.
func (v *JWTVerifier) open(ctx context.Context, token string, h tokenHeader, keys *keySet) ([]byte, *keySet, error) {
	signed, err := jose.ParseSignedCompact(token, v.algorithms)
	if err != nil || len(signed.Signatures) != 1 {
		return nil, nil, invalidToken("it is malformed")
	}
	if payload, ok := verifyWith(signed, keys, h); ok {
		return payload, keys, nil
	}
	// A signature that is wrong says nothing about the keys, but for a token that does not say which one it is by.
	if v.remote != nil && (h.Key == "" || len(keys.find(h.Key, h.Algorithm)) == 0) {
		if keys, err = v.remote.refresh(ctx, keys); err != nil {
			return nil, nil, err
		}
		if payload, ok := verifyWith(signed, keys, h); ok {
			return payload, keys, nil
		}
	}
	return nil, nil, invalidToken("no key of the issuer has signed it")
}

func verifyWith(signed *jose.JSONWebSignature, keys *keySet, h tokenHeader) ([]byte, bool) {
	for _, k := range keys.find(h.Key, h.Algorithm) {
		if payload, err := signed.Verify(k.key); err == nil {
			return payload, true
		}
	}
	return nil, false
}

// tokenClaims are the claims that are read, of access tokens and of answers to introspection alike.
type tokenClaims struct {
	Issuer    string         `json:"iss"`
	Subject   string         `json:"sub"`
	Audience  jsontext.Value `json:"aud"` // a string or several
	Expires   *float64       `json:"exp"`
	NotBefore *float64       `json:"nbf"`
	IssuedAt  *float64       `json:"iat"`
	Scope     jsontext.Value `json:"scope"` // strings, or one with spaces between
	Scp       jsontext.Value `json:"scp"`   // the same, as some servers call it
	ClientID  string         `json:"client_id"`
	Party     string         `json:"azp"`
	// CID and AppID are other names of the client id.
	CID   string                    `json:"cid"`
	AppID string                    `json:"appid"`
	Bound map[string]jsontext.Value `json:"cnf"`

	// These say that a JWT is something else than an access token.
	Nonce    jsontext.Value `json:"nonce"`
	Hash     jsontext.Value `json:"at_hash"`
	CodeHash jsontext.Value `json:"c_hash"`
	Events   jsontext.Value `json:"events"`
	Use      string         `json:"token_use"`
}

// readClaims reads what a genuine token says.
func (v *JWTVerifier) readClaims(payload []byte, h tokenHeader) (*Token, error) {
	var c tokenClaims
	if err := oauthfetch.Decode(payload, &c); err != nil {
		return nil, invalidToken("its claims cannot be read")
	}
	isOther := c.Nonce != nil || c.Hash != nil || c.CodeHash != nil || c.Events != nil || c.Use == "id"
	switch {
	case c.Issuer != v.issuer:
		return nil, invalidToken("it is of another issuer")
	case c.Expires == nil:
		return nil, invalidToken("it does not say when it expires")
	case isOther && h.Type != typeAccessToken:
		return nil, invalidToken("it is an ID token or the like, no access token")
	}
	return c.token(payload)
}

// token makes a Token of claims; raw is the object that they were read from.
func (c *tokenClaims) token(raw []byte) (*Token, error) {
	t := &Token{
		Issuer: c.Issuer, Subject: c.Subject,
		ClientID: cmp.Or(c.ClientID, c.Party, c.CID, c.AppID),
		Audience: oauthwire.Strings(c.Audience),
	}
	if t.Subject == "" {
		t.Subject = t.ClientID // a client that acts for nobody
	}
	for _, claim := range []jsontext.Value{c.Scope, c.Scp} {
		for _, text := range oauthwire.Strings(claim) {
			t.Scopes = append(t.Scopes, strings.Fields(text)...)
		}
	}
	for _, bound := range []struct {
		at   *float64
		into *time.Time
	}{{c.Expires, &t.Expires}, {c.NotBefore, &t.NotBefore}, {c.IssuedAt, new(time.Time)}} {
		if bound.at == nil {
			continue
		}
		if !(*bound.at >= 0 && *bound.at < maxTime) {
			return nil, invalidToken("one of its times is of no year that is known")
		}
		*bound.into = time.Unix(int64(*bound.at), 0)
	}
	if c.IssuedAt != nil && time.Unix(int64(*c.IssuedAt), 0).After(time.Now().Add(clockSkew)) {
		return nil, invalidToken("it was issued in the future")
	}
	if err := c.readBinding(t); err != nil {
		return nil, err
	}
	if err := json.Unmarshal(raw, &t.Claims); err != nil {
		return nil, invalidToken("its claims cannot be read")
	}
	return t, t.checkIdentity()
}

// readBinding reads the key that the token is bound to. A binding that cannot be checked here is not passed over.
func (c *tokenClaims) readBinding(t *Token) error {
	if len(c.Bound) == 0 {
		return nil
	}
	thumbprint, ok := c.Bound["jkt"]
	if !ok || len(c.Bound) != 1 || jsonscan.Kind(thumbprint) != '"' {
		return invalidToken("it is bound to its client in a way that is not known here")
	}
	text, err := jsonscan.Unquote(thumbprint)
	if err != nil || text == "" {
		return invalidToken("it is bound to no key")
	}
	t.KeyThumbprint = text
	return nil
}
