package authserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/patchbay-mcp/patchbay/internal/jwskey"
	"github.com/patchbay-mcp/patchbay/internal/oauthfetch"
	"github.com/patchbay-mcp/patchbay/internal/oauthwire"
	"github.com/patchbay-mcp/patchbay/oauth"
)

const (
	maxToken = 16 << 10 // maximum length of a token or assertion in bytes

	typeAccess = "at+jwt"
	// ClaimGrant is the claim with the ID of the grant of a token. All tokens of a grant are
	// revoked together.
	ClaimGrant = "grant_id"
	// ClaimName is the claim of verified tokens that contains [Subject.Name]. See
	// [Server.Verifier].
	ClaimName = "name"
)

// Spec: RFC 9068, section 2.2.
type accessClaims struct {
	Issuer   string `json:"iss"`
	Subject  string `json:"sub"`
	Audience string `json:"aud"`
	Client   string `json:"client_id"`
	Scope    string `json:"scope,omitempty"`
	ID       string `json:"jti"`
	Grant    string `json:"grant_id"`
	Issued   int64  `json:"iat"`
	Expires  int64  `json:"exp"`

	Confirmation *confirmation `json:"cnf,omitempty"`
}

// A confirmation contains the thumbprint of the key that a token is bound to. Spec: RFC 9449,
// section 6.
type confirmation struct {
	Key string `json:"jkt"`
}

func (c *accessClaims) tokenType() string {
	if c.Confirmation != nil {
		return oauthwire.DPoP
	}
	return oauthwire.Bearer
}

func (s *Server) accessExpiry(g *grant) time.Time {
	return earlier(time.Now().Add(s.o.Lifetimes.Access), g.Until)
}

// accessToken returns an access token, which is bound to the DPoP key of the request, if there is a
// key.
func (s *Server) accessToken(ctx context.Context, r *tokenRequest, g *grant, scopes []string) (*tokenResponse,
	error) {
	if err := s.useProof(ctx, r.proof); err != nil {
		return nil, err
	}
	r.grant, r.scopes = g, scopes
	key := s.keys.current(ctx)
	now, expires := time.Now(), s.accessExpiry(g)
	claims := accessClaims{
		Issuer: s.o.Issuer, Subject: g.Subject, Audience: g.Resource, Client: g.Client,
		Scope: strings.Join(scopes, " "), ID: randomID(), Grant: g.ID, Issued: now.Unix(), Expires: expires.Unix(),
	}
	if r.proof.Key != "" {
		claims.Confirmation = &confirmation{r.proof.Key}
	}
	payload, err := json.Marshal(claims)
	if err != nil {
		return nil, err
	}
	signed, err := key.signer.Sign(payload)
	if err != nil {
		return nil, fmt.Errorf("sign an access token: %w", err)
	}
	token, err := signed.CompactSerialize()
	if err != nil {
		return nil, err
	}
	return &tokenResponse{
		AccessToken: token, TokenType: claims.tokenType(), ExpiresIn: int64(expires.Sub(now) / time.Second),
		Scope: strings.Join(scopes, " "),
	}, nil
}

// Verifier returns a verifier of this server's tokens for any of its resources, named as in
// [Options.Resources]. It refuses a token immediately after it was revoked here; a revocation at
// the identity provider takes up to [Provider.CheckEvery]. Verifier panics if there is no such
// resource.
func (s *Server) Verifier(resource string) oauth.Verifier {
	return &verifier{s, s.mustResource(resource)}
}

type verifier struct {
	s        *Server
	resource *Resource
}

// Spec: RFC 9068, section 4.
func (v *verifier) Verify(ctx context.Context, token string) (*oauth.Token, error) {
	c, g, err := v.s.live(ctx, token)
	if err != nil {
		return nil, err
	}
	if c.Audience != v.resource.URL {
		return nil, fmt.Errorf("%w: wrong audience", oauth.ErrInvalidToken)
	}
	t := &oauth.Token{
		Issuer: c.Issuer, Subject: c.Subject, ClientID: c.Client, Audience: []string{c.Audience},
		Scopes: strings.Fields(c.Scope), Expires: time.Unix(c.Expires, 0), Claims: map[string]any{},
	}
	if c.Confirmation != nil {
		t.KeyThumbprint = c.Confirmation.Key
	}
	maps.Copy(t.Claims, g.Claims)
	if g.Name != "" {
		t.Claims[ClaimName] = g.Name
	}
	t.Claims[ClaimGrant] = g.ID
	return t, nil
}

// live returns the claims and the grant of a valid access token. The error is oauth.ErrInvalidToken
// if the token is not valid.
func (s *Server) live(ctx context.Context, token string) (*accessClaims, *grant, error) {
	c, err := s.readAccess(ctx, token)
	if err != nil {
		return nil, nil, err
	}
	if !time.Now().Before(time.Unix(c.Expires, 0)) {
		return nil, nil, oauth.ErrTokenExpired
	}
	g, err := s.grant(ctx, c.Grant)
	if err == nil {
		err = s.checkRemains(ctx, g.Client)
	}
	if err == nil {
		err = s.checkProviderGrant(ctx, g)
	}
	if errors.Is(err, errNoGrant) || errors.Is(err, errNoClient) {
		return nil, nil, fmt.Errorf("%w: %w", oauth.ErrInvalidToken, err)
	}
	if err != nil {
		return nil, nil, err
	}
	if g.Client != c.Client || g.Subject != c.Subject || g.Resource != c.Audience {
		return nil, nil, fmt.Errorf("%w: the claims do not match the grant", oauth.ErrInvalidToken)
	}
	return c, g, nil
}

// readAccess returns the claims of an access token that this server signed, expired or not.
func (s *Server) readAccess(ctx context.Context, token string) (*accessClaims, error) {
	var public []jose.JSONWebKey
	var algs []jose.SignatureAlgorithm
	for _, k := range s.keys.all(ctx) {
		public, algs = append(public, k.public), append(algs, jose.SignatureAlgorithm(k.public.Algorithm))
	}
	typ, payload, err := verifyCompact(token, public, algs)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", oauth.ErrInvalidToken, err)
	}
	c := new(accessClaims)
	err = oauthfetch.Decode(payload, c)
	if err != nil || typ != typeAccess || c.Issuer != s.o.Issuer || c.Grant == "" {
		return nil, fmt.Errorf("%w: not an access token of this server", oauth.ErrInvalidToken)
	}
	return c, nil
}

var errSignature = errors.New("the signature is missing, malformed or wrong")

// verifyCompact verifies a JWT with the key that its header names, or with all keys if it names
// none, and returns its type and payload.
func verifyCompact(token string, keys []jose.JSONWebKey, algs []jose.SignatureAlgorithm) (typ string, payload []byte,
	err error) {
	if len(token) > maxToken {
		return "", nil, errSignature
	}
	jws, err := jose.ParseSignedCompact(token, algs)
	if err != nil || len(jws.Signatures) != 1 {
		return "", nil, errSignature
	}
	head := jws.Signatures[0].Protected
	for _, k := range keys {
		if head.KeyID != "" && k.KeyID != "" && head.KeyID != k.KeyID ||
			k.Algorithm != "" && k.Algorithm != head.Algorithm {
			continue
		}
		if payload, err = jws.Verify(k.Key); err == nil {
			typ, _ = head.ExtraHeaders[jose.HeaderType].(string)
			return typ, payload, nil
		}
	}
	return "", nil, errSignature
}

// assertionAlgorithmNames returns the names of the algorithms with a public key.
//
// Spec: RFC 8725, section 3.1.
func assertionAlgorithmNames() []string {
	var names []string
	for _, alg := range jwskey.Asymmetric() {
		names = append(names, string(alg))
	}
	return names
}
