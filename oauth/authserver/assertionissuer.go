package authserver

import (
	"context"
	"crypto"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/patchbay-mcp/patchbay/internal/jwskey"
	"github.com/patchbay-mcp/patchbay/internal/netx"
	"github.com/patchbay-mcp/patchbay/internal/oauthfetch"
)

const (
	typeIDJAG = "oauth-id-jag+jwt"
	// maxIDJAGTime is the maximum time until the expiry of an ID-JAG, for which its ID is stored.
	maxIDJAGTime = time.Hour

	kindIDJAG = "id-jag"
)

// An AssertionIssuer is an identity provider that decides which users may use which clients, and
// issues Identity Assertion Authorization Grants (ID-JAG). A client whose [Client.Grants] list
// urn:ietf:params:oauth:grant-type:jwt-bearer exchanges an assertion for an access token, without a
// login or consent here. An ID-JAG can be used once. There is no refresh token: the client gets
// another ID-JAG. oauthclient.NewEnterpriseGrant is the client's side.
//
// Spec: extension io.modelcontextprotocol/enterprise-managed-authorization;
// draft-ietf-oauth-identity-assertion-authz-grant; RFC 7523.
type AssertionIssuer struct {
	// Issuer is the iss claim of its assertions.
	Issuer string
	// JWKSURI is the URL of its keys, which [ClientMetadataOptions.Fetcher] fetches.
	JWKSURI string
	// Keys are its public keys, instead of JWKSURI: *ecdsa.PublicKey, ed25519.PublicKey or
	// *rsa.PublicKey.
	Keys []crypto.PublicKey
	// Subject returns the subject for the claims of a verified assertion. [ErrUserRefused] refuses
	// the user. It must be safe for concurrent use. Default: the ID is Issuer, a vertical bar and
	// the sub claim, so that it differs from the subjects of other logins.
	Subject func(ctx context.Context, claims map[string]any) (Subject, error)
}

type assertionIssuer struct {
	o    AssertionIssuer
	keys []jose.JSONWebKey
}

func assertionIssuers(options []AssertionIssuer) (map[string]*assertionIssuer, error) {
	all := map[string]*assertionIssuer{}
	var errs []error
	for _, o := range options {
		i := &assertionIssuer{o: o}
		if err := i.prepare(); err != nil {
			errs = append(errs, fmt.Errorf("assertion issuer %q: %w", o.Issuer, err))
		}
		if all[o.Issuer] != nil {
			errs = append(errs, fmt.Errorf("duplicate assertion issuer %q", o.Issuer))
		}
		all[o.Issuer] = i
	}
	return all, errors.Join(errs...)
}

func (i *assertionIssuer) prepare() error {
	u, err := url.Parse(i.o.JWKSURI)
	switch {
	case i.o.Issuer == "":
		return errors.New("invalid Issuer: must not be empty")
	case (i.o.JWKSURI == "") == (len(i.o.Keys) == 0):
		return errors.New("need either JWKSURI or Keys")
	case i.o.JWKSURI != "" && (err != nil || !netx.IsHTTP(u)):
		return fmt.Errorf("invalid JWKSURI %q: must be an https URL", i.o.JWKSURI)
	}
	for _, key := range i.o.Keys {
		if _, err := algorithmOf(key); err != nil {
			return err
		}
		i.keys = append(i.keys, jose.JSONWebKey{Key: key})
	}
	if i.o.Subject == nil {
		i.o.Subject = i.defaultSubject
	}
	return nil
}

func (i *assertionIssuer) defaultSubject(_ context.Context, claims map[string]any) (Subject, error) {
	sub, _ := claims["sub"].(string)
	id := i.o.Issuer + "|" + sub
	if len(id) > maxSubject {
		id = "sha256:" + hashKey(id)
	}
	return Subject{ID: id}, nil
}

// Spec: draft-ietf-oauth-identity-assertion-authz-grant, section 6.1.
type idJAGClaims struct {
	assertionClaims
	Client   string `json:"client_id"`
	Resource string `json:"resource"`
	Scope    string `json:"scope"`
}

// exchangeAssertion returns an access token for an ID-JAG.
func (s *Server) exchangeAssertion(ctx context.Context, r *tokenRequest) (*tokenResponse, error) {
	if r.client.isPublic() || r.client.Origin != originOperator {
		return nil, refuse(codeUnauthorizedClient, "this grant_type is only for pre-registered clients")
	}
	if r.form["assertion"] == "" {
		return nil, refuse(codeInvalidRequest, "assertion is missing")
	}
	issuer, claims, payload, err := s.readIDJAG(ctx, r)
	if err != nil {
		return nil, err
	}
	g, err := s.assertedGrant(ctx, r, issuer, claims, payload)
	if err != nil {
		return nil, err
	}
	if err := s.useOnce(ctx, kindIDJAG, claims.Issuer, claims.ID, claims.usableUntil(), errBadGrant); err != nil {
		return nil, err
	}
	if err := grants.put(ctx, s.store, g.ID, g); err != nil {
		return nil, err
	}
	return s.accessToken(ctx, r, g, g.Scopes)
}

// readIDJAG verifies the assertion of a request. The error is errBadGrant if it is not valid.
func (s *Server) readIDJAG(ctx context.Context, r *tokenRequest) (*assertionIssuer, *idJAGClaims, []byte, error) {
	assertion := r.form["assertion"]
	issuer := s.assertionIssuers[unverifiedClaims(assertion).Issuer]
	if issuer == nil {
		return nil, nil, nil, errBadGrant
	}
	keys := issuer.keys
	if issuer.o.JWKSURI != "" {
		var err error
		if keys, err = s.clientJWKS.sets.get(ctx, issuer.o.JWKSURI); err != nil {
			s.log.WarnContext(ctx, "authorization server: fetching the keys of an assertion issuer failed", "issuer",
				issuer.o.Issuer, "error", err)
			return nil, nil, nil, unavailable("the keys of the identity provider cannot be fetched now")
		}
	}
	typ, payload, err := verifyCompact(assertion, keys, jwskey.Asymmetric())
	if err != nil || typ != typeIDJAG {
		return nil, nil, nil, errBadGrant
	}
	claims := new(idJAGClaims)
	if err := oauthfetch.Decode(payload, claims); err != nil {
		return nil, nil, nil, errBadGrant
	}
	now, expires := time.Now(), unixTime(claims.Expires)
	switch {
	case claims.Issuer != issuer.o.Issuer || claims.audience() != s.o.Issuer || claims.Client != r.client.ID,
		claims.Subject == "" || claims.Resource == "" || claims.ID == "" || len(claims.ID) > maxJTI,
		!now.Before(expires) || expires.After(now.Add(maxIDJAGTime)),
		unixTime(max(claims.NotBefore, claims.Issued)).After(now.Add(assertionSkew)):
		return nil, nil, nil, errBadGrant
	}
	return issuer, claims, payload, nil
}

// assertedGrant returns the grant for an assertion: for its resource and scopes, limited by the
// resources and scopes of the request, of the client and of the subject.
func (s *Server) assertedGrant(ctx context.Context, r *tokenRequest, issuer *assertionIssuer, claims *idJAGClaims,
	payload []byte) (*grant, error) {
	if requested := r.form["resource"]; requested != "" && resourceKey(requested) != resourceKey(claims.Resource) {
		return nil, refuse(codeInvalidTarget, "the resource is not the one of the assertion")
	}
	res, err := s.resourceFor(r.client, claims.Resource)
	if err != nil {
		return nil, err
	}
	scopes, err := scopesFor(r.client, res, claims.Scope)
	if err != nil {
		return nil, err
	}
	if scopes, err = narrow(scopes, r.form["scope"]); err != nil {
		return nil, err
	}
	all := map[string]any{}
	if err := oauthfetch.Decode(payload, &all); err != nil {
		return nil, errBadGrant
	}
	subject, err := issuer.o.Subject(ctx, all)
	if errors.Is(err, ErrUserRefused) {
		return nil, errBadGrant
	}
	if err == nil {
		err = s.checkSubject(&subject)
	}
	if err != nil {
		return nil, err
	}
	if subject.Scopes != nil {
		scopes = keep(scopes, func(name string) bool { return slices.Contains(subject.Scopes, name) })
	}
	now := time.Now()
	end := now.Add(s.o.Lifetimes.Access)
	return &grant{
		ID: randomID(), Client: r.client.ID, Subject: subject.ID, Name: subject.Name, Claims: subject.Claims,
		Resource: res.URL, Scopes: scopes, Issued: now, Until: end, Expires: end,
	}, nil
}
