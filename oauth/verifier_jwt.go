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

// JWTOptions configures a [JWTVerifier]. The zero value is right for most authorization servers:
// their metadata names the key set.
type JWTOptions struct {
	// JWKSURI is the URL of the issuer's key set. Default: that of the issuer's metadata.
	JWKSURI string
	// JWKS is a fixed JWK set. Then no key set is fetched. Default: none.
	JWKS []byte
	// Algorithms are the algorithms with which tokens may be signed; they must be asymmetric.
	// Default: ES256, ES384, ES512, EdDSA, PS256, PS384, PS512, RS256, RS384 and RS512.
	Algorithms []string
	// InsecureAnyType accepts tokens with typ JWT or none too, which some authorization servers
	// issue, unless a claim such as nonce or at_hash shows that they are ID tokens. Default: only
	// tokens with typ at+jwt (RFC 9068), which ID tokens and other JWTs of the issuer lack.
	InsecureAnyType bool
	// MaxCached bounds the verified tokens in each of the two generations of the cache. A token
	// is cached until it expires or the keys are fetched again, and takes about 2 KB. Default:
	// 1000.
	MaxCached int
	// Fetcher fetches the keys. Default: NewFetcher(nil), which allows private addresses if the
	// issuer uses a private address.
	Fetcher *Fetcher
}

const (
	defaultMaxCached = 1000    // about two megabytes
	maxTime          = 1 << 40 // of times in tokens, in seconds, far beyond any real time
)

// A JWTVerifier verifies access tokens that are JWTs of an authorization server. It is safe for
// concurrent use.
//
// The keys come from the server's key set, which its metadata names (jwks_uri). The verifier
// sends requests for these two documents only: when the first token arrives, every ten minutes, and
// at most once a minute when a token names an unknown key. While the authorization server is down
// it uses the last keys for an hour.
//
// Spec: RFC 9068, section 4; RFC 8725.
type JWTVerifier struct {
	issuer     string
	algorithms []jose.SignatureAlgorithm
	anyType    bool
	fixed      *keySet       // nil if the keys are fetched
	remote     *remoteKeySet // nil if the keys are fixed
	cache      tokenCache
}

// NewJWTVerifier returns a verifier for the tokens of an issuer, the URL of the authorization
// server as it is in their claim iss. The claims scope and scp become Token.Scopes, client_id or
// azp the ClientID. The claims iss, exp and aud, and sub or a client, are required. Tokens that are
// not JWTs (opaque tokens) need a [NewIntrospectionVerifier]. opts may be nil. NewJWTVerifier
// panics if an option is invalid.
func NewJWTVerifier(issuer string, opts *JWTOptions) *JWTVerifier {
	v, err := newJWTVerifier(issuer, opts)
	if err != nil {
		panic("oauth: NewJWTVerifier: " + err.Error())
	}
	return v
}

func newJWTVerifier(issuer string, opts *JWTOptions) (*JWTVerifier, error) {
	o := *cmp.Or(opts, new(JWTOptions))
	v := &JWTVerifier{issuer: issuer, anyType: o.InsecureAnyType}
	v.cache.max = cmp.Or(o.MaxCached, defaultMaxCached)
	switch {
	case issuer == "":
		return nil, errors.New("invalid issuer: must not be empty")
	case o.MaxCached < 0:
		return nil, fmt.Errorf("invalid MaxCached %d: must not be negative", o.MaxCached)
	case o.JWKS != nil && o.JWKSURI != "":
		return nil, errors.New("JWKS and JWKSURI are both set")
	}
	for _, a := range o.Algorithms {
		if !slices.Contains(jwskey.Asymmetric(), jose.SignatureAlgorithm(a)) {
			return nil, fmt.Errorf("invalid Algorithms: %q must be an asymmetric algorithm", a)
		}
		v.algorithms = append(v.algorithms, jose.SignatureAlgorithm(a))
	}
	if v.algorithms == nil {
		v.algorithms = jwskey.Asymmetric()
	}
	if o.JWKS != nil {
		var document jwkSet
		if err := oauthfetch.Decode(o.JWKS, &document); err != nil {
			return nil, fmt.Errorf("invalid JWKS: %w", err)
		}
		v.fixed = parseKeys(document.Keys, v.algorithms)
		if len(v.fixed.keys) == 0 {
			return nil, errors.New("invalid JWKS: no key can verify tokens")
		}
		return v, nil
	}
	var err error
	v.remote, err = newRemoteKeySet(cmp.Or(o.Fetcher, NewFetcher(nil)), issuer, o.JWKSURI, v.algorithms)
	return v, err
}

// Verify verifies the signature and the claims of a token.
func (v *JWTVerifier) Verify(ctx context.Context, token string) (*Token, error) {
	if err := checkText(token); err != nil {
		return nil, err
	}
	now, digest, keys := time.Now(), sha256.Sum256([]byte(token)), v.fixed
	if v.remote != nil {
		keys = v.remote.fresh(now)
	}
	if keys != nil {
		if t := v.cache.get(digest, keys, now); t != nil {
			return t, nil
		}
	}
	// No keys are fetched for a token of another issuer, which may be for another verifier.
	header, err := v.checkUnverified(token)
	if err != nil {
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
	v.cache.add(digest, cachedToken{token: t, until: t.Expires.Add(clockSkew), by: keys})
	return t, nil
}

// A tokenHeader holds the members of a token's header that are used. Keys and URLs of keys in it
// are ignored.
type tokenHeader struct {
	Algorithm jose.SignatureAlgorithm `json:"alg"`
	Type      string                  `json:"typ"`
	Key       string                  `json:"kid"`
	Critical  jsontext.Value          `json:"crit"`
	Unencoded jsontext.Value          `json:"b64"`
}

// checkUnverified refuses a token that cannot be a signed access token of the issuer.
func (v *JWTVerifier) checkUnverified(token string) (h tokenHeader, err error) {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return h, invalidToken("malformed: must be a signed JWT")
	}
	var claims struct {
		Issuer string `json:"iss"`
	}
	if decodeSegment(parts[0], &h) != nil || decodeSegment(parts[1], &claims) != nil {
		return h, invalidToken("malformed header or claims")
	}
	typ := strings.TrimPrefix(netx.LowerASCII(h.Type), "application/")
	switch {
	case h.Critical != nil || h.Unencoded != nil:
		return h, invalidToken("the header has crit or b64, which are not supported")
	case !slices.Contains(v.algorithms, h.Algorithm):
		return h, invalidToken("algorithm %.32q is not allowed", h.Algorithm)
	case typ != typeAccessToken && typ != "jwt" && typ != "":
		return h, invalidToken("invalid typ %.32q: must be at+jwt", h.Type)
	case typ != typeAccessToken && !v.anyType:
		return h, invalidToken("invalid typ %.32q: must be at+jwt, the type of access tokens", h.Type)
	case claims.Issuer != v.issuer:
		return h, invalidToken("issued by another issuer")
	}
	h.Type = typ
	return h, nil
}

func decodeSegment(text string, into any) error {
	raw, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil {
		return err
	}
	return oauthfetch.Decode(raw, into)
}

// typeAccessToken is the typ of access tokens. Spec: RFC 9068, section 2.1.
const typeAccessToken = "at+jwt"

// open verifies the signature. It returns the payload and the key set that was used.
func (v *JWTVerifier) open(ctx context.Context, token string, h tokenHeader, keys *keySet) ([]byte, *keySet, error) {
	signed, err := jose.ParseSignedCompact(token, v.algorithms)
	if err != nil || len(signed.Signatures) != 1 {
		return nil, nil, invalidToken("malformed")
	}
	if payload, ok := verifyWith(signed, keys, h); ok {
		return payload, keys, nil
	}
	// The keys may have been rotated. Some issuers keep the key ID, so it need not be unknown.
	if v.remote != nil {
		if keys, err = v.remote.refresh(ctx, keys); err != nil {
			return nil, nil, err
		}
		if payload, ok := verifyWith(signed, keys, h); ok {
			return payload, keys, nil
		}
	}
	return nil, nil, invalidToken("the signature does not match any key of the issuer")
}

func verifyWith(signed *jose.JSONWebSignature, keys *keySet, h tokenHeader) ([]byte, bool) {
	for _, k := range keys.find(h.Key, h.Algorithm) {
		if payload, err := signed.Verify(k.key); err == nil {
			return payload, true
		}
	}
	return nil, false
}

type tokenClaims struct {
	Issuer    string         `json:"iss"`
	Subject   string         `json:"sub"`
	Audience  jsontext.Value `json:"aud"` // a string or an array
	Expires   *float64       `json:"exp"`
	NotBefore *float64       `json:"nbf"`
	IssuedAt  *float64       `json:"iat"`
	Scope     jsontext.Value `json:"scope"` // strings, or a string separated by spaces
	Scp       jsontext.Value `json:"scp"`   // the name that some servers use for scope
	ClientID  string         `json:"client_id"`
	Party     string         `json:"azp"`
	CID       string         `json:"cid"`   // another name of the client id
	AppID     string         `json:"appid"` // another name of the client id

	Bound map[string]jsontext.Value `json:"cnf"`

	// These mark JWTs that are not access tokens.
	Nonce    jsontext.Value `json:"nonce"`
	Hash     jsontext.Value `json:"at_hash"`
	CodeHash jsontext.Value `json:"c_hash"`
	Events   jsontext.Value `json:"events"`
	Use      string         `json:"token_use"`
}

func (v *JWTVerifier) readClaims(payload []byte, h tokenHeader) (*Token, error) {
	var c tokenClaims
	if err := oauthfetch.Decode(payload, &c); err != nil {
		return nil, invalidToken("malformed claims")
	}
	isOther := c.Nonce != nil || c.Hash != nil || c.CodeHash != nil || c.Events != nil || c.Use == "id"
	switch {
	case c.Issuer != v.issuer:
		return nil, invalidToken("issued by another issuer")
	case c.Expires == nil:
		return nil, invalidToken("exp is missing")
	case isOther && h.Type != typeAccessToken:
		return nil, invalidToken("must be an access token, not an ID token")
	}
	return c.token(payload)
}

// token returns the Token of the claims; raw is the object that they were read from.
func (c *tokenClaims) token(raw []byte) (*Token, error) {
	t := &Token{Issuer: c.Issuer, Audience: oauthwire.Strings(c.Audience)}
	t.ClientID = cmp.Or(c.ClientID, c.Party, c.CID, c.AppID)
	t.Subject = cmp.Or(c.Subject, t.ClientID) // a client may act for itself
	for _, claim := range []jsontext.Value{c.Scope, c.Scp} {
		for _, text := range oauthwire.Strings(claim) {
			t.Scopes = append(t.Scopes, strings.Fields(text)...)
		}
	}
	var issuedAt time.Time
	for into, at := range map[*time.Time]*float64{
		&t.Expires: c.Expires, &t.NotBefore: c.NotBefore, &issuedAt: c.IssuedAt,
	} {
		if at == nil {
			continue
		}
		if !(*at >= 0 && *at < maxTime) {
			return nil, invalidToken("exp, nbf or iat is out of range")
		}
		*into = time.Unix(int64(*at), 0)
	}
	if issuedAt.After(time.Now().Add(clockSkew)) {
		return nil, invalidToken("iat is in the future")
	}
	if err := c.readBinding(t); err != nil {
		return nil, err
	}
	if err := json.Unmarshal(raw, &t.Claims); err != nil {
		return nil, invalidToken("malformed claims")
	}
	return t, t.checkIdentity()
}

// readBinding reads the key that the token is bound to. It refuses other kinds of binding.
func (c *tokenClaims) readBinding(t *Token) error {
	if len(c.Bound) == 0 {
		return nil
	}
	thumbprint, ok := c.Bound["jkt"]
	text, err := jsonscan.Unquote(thumbprint)
	if !ok || len(c.Bound) != 1 || err != nil || text == "" {
		return invalidToken("unsupported cnf: must be a jkt")
	}
	t.KeyThumbprint = text
	return nil
}
