package authserver

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/dpop"
	"github.com/patchbay-mcp/patchbay/internal/oauthwire"
)

// Spec: RFC 6749, section 5.1.
type tokenResponse struct {
	AccessToken  string `json:"access_token"`
	TokenType    string `json:"token_type"`
	ExpiresIn    int64  `json:"expires_in"` // seconds
	RefreshToken string `json:"refresh_token,omitempty"`
	Scope        string `json:"scope"`
}

// A tokenRequest is a token request of an authenticated client.
type tokenRequest struct {
	client *client
	form   form
	proof  dpop.Proof // zero without a proof

	// The subject and client for which accessToken issued a token, for the audit.
	grant  *grant
	scopes []string
}

// Spec: OAuth 2.1, section 3.2.
func (s *Server) token(r *http.Request) (*tokenResponse, error) {
	c, f, err := s.authenticate(r)
	req := &tokenRequest{client: c, form: f}
	var response *tokenResponse
	if err == nil {
		response, err = s.exchange(r, req)
	}
	s.auditToken(r.Context(), req, err)
	if err != nil {
		return nil, err
	}
	return response, nil
}

func (s *Server) exchange(r *http.Request, req *tokenRequest) (response *tokenResponse, err error) {
	c, f := req.client, req.form
	exchange := map[string]func(context.Context, *tokenRequest) (*tokenResponse, error){
		grantCode: s.exchangeCode, grantRefresh: s.exchangeRefresh, grantClient: s.exchangeClient,
		grantAssertion: s.exchangeAssertion,
	}[f["grant_type"]]
	switch {
	case f["grant_type"] == "":
		return nil, refuse(codeInvalidRequest, "grant_type is missing")
	case exchange == nil || f["grant_type"] == grantAssertion && len(s.assertionIssuers) == 0:
		return nil, refuse(codeUnsupportedGrant, "unsupported grant_type")
	case !c.mayUse(f["grant_type"]):
		return nil, refuse(codeUnauthorizedClient, "the client is not registered for this grant_type")
	}
	if req.proof, err = s.proof(r); err != nil {
		return nil, err
	}
	return exchange(r.Context(), req)
}

// proof returns the DPoP proof of a request, if there is a proof. Spec: RFC 9449, section 5.
func (s *Server) proof(r *http.Request) (dpop.Proof, error) {
	if len(r.Header.Values(dpop.Header)) == 0 {
		return dpop.Proof{}, nil
	}
	target := *s.issuer
	target.Path += pathToken
	proof, err := s.proofs.VerifyKey(r, &target)
	if invalid, ok := errors.AsType[*dpop.ProofError](err); ok {
		return dpop.Proof{}, refuse(invalid.Code, invalid.Reason)
	}
	return proof, err
}

const kindProof = "proof"

// useProof records the use of a DPoP proof, for the other servers with the same store. It is called
// for valid codes and refresh tokens only, because it writes. Spec: RFC 9449, section 11.1.
func (s *Server) useProof(ctx context.Context, p dpop.Proof) error {
	if p.ID == "" {
		return nil
	}
	return s.useOnce(ctx, kindProof, p.Key, p.ID, time.Now().Add(dpop.ProofValidity),
		refuse(oauthwire.InvalidDPoPProof, "the proof was used before: every request needs a new one"))
}

// errBadGrant does not reveal whether a code or token is unknown, expired or that of another
// client.
var errBadGrant = refuse(codeInvalidGrant, "the code or token is not valid")

// Spec: OAuth 2.1, section 4.1.3.
func (s *Server) exchangeCode(ctx context.Context, r *tokenRequest) (*tokenResponse, error) {
	c, f := r.client, r.form
	code, verifier := f["code"], f["code_verifier"]
	switch {
	case code == "":
		return nil, refuse(codeInvalidRequest, "code is missing")
	case !isVerifier(verifier):
		return nil, refuse(codeInvalidRequest, "code_verifier is missing or malformed")
	}
	rec, first, err := s.useCode(ctx, code)
	if err != nil {
		return nil, err
	}
	if !first {
		return nil, s.refuseAndEnd(ctx, rec.Grant, "the code was used twice", errBadGrant)
	}
	if !rec.matches(c, f["redirect_uri"], verifier) || rec.Key != "" && rec.Key != r.proof.Key {
		return nil, s.refuseAndEnd(ctx, rec.Grant,
			"the code was used with another client, redirect URI, verifier or DPoP key", errBadGrant)
	}
	g, err := s.grant(ctx, rec.Grant)
	if err != nil {
		return nil, badGrantIfEnded(err)
	}
	scopes, err := s.narrowed(c, g, f)
	if err != nil {
		return nil, s.refuseAndEnd(ctx, g.ID, "the token request asked for more than was granted", err)
	}
	return s.firstTokens(ctx, r, g, scopes)
}

func (s *Server) refuseAndEnd(ctx context.Context, id, reason string, response error) error {
	if err := s.endGrant(ctx, id, reason); err != nil {
		return err
	}
	return response
}

// firstTokens returns the first tokens of a grant of a user. A second use of the code may end the
// grant at the same time; the grant then stays ended.
func (s *Server) firstTokens(ctx context.Context, r *tokenRequest, g *grant, scopes []string) (*tokenResponse, error) {
	c := r.client
	until := s.accessExpiry(g)
	var refresh string
	if c.mayUse(grantRefresh) {
		token, fam, err := s.newRefresh(ctx, r, g)
		if err != nil {
			return nil, err
		}
		refresh, until = token, later(until, fam.Expires)
	}
	if err := s.useClient(ctx, c); err != nil {
		return nil, err
	}
	response, err := s.accessToken(ctx, r, g, scopes)
	if err != nil {
		return nil, err
	}
	if err := s.extendGrant(ctx, g.ID, until); err != nil {
		return nil, badGrantIfEnded(err)
	}
	response.RefreshToken = refresh
	return response, nil
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

func badGrantIfEnded(err error) error {
	if errors.Is(err, errNoGrant) || errors.Is(err, errNoRefresh) {
		return errBadGrant
	}
	return err
}

// narrowed returns the scopes of a token request, which may request fewer scopes than were granted,
// for the same resource only. Granted scopes that the operator no longer allows for the client are
// removed. Spec: RFC 6749, section 6; RFC 8707, section 2.2.
func (s *Server) narrowed(c *client, g *grant, f form) ([]string, error) {
	if requested := f["resource"]; requested != "" && resourceKey(requested) != resourceKey(g.Resource) {
		return nil, refuse(codeInvalidTarget, "the resource is not the one that was granted")
	}
	res := s.resource(g.Resource)
	if res == nil || !c.mayAccess(res) {
		return nil, errBadGrant
	}
	granted, err := narrow(g.Scopes, f["scope"])
	if err != nil {
		return nil, err
	}
	remaining := stillAllowed(c, res, granted)
	switch {
	case len(remaining) > 0 || len(granted) == 0:
		return remaining, nil
	case f["scope"] != "":
		return nil, refuse(codeInvalidScope, "the client no longer has access to these scopes")
	}
	return nil, errBadGrant
}

// Spec: OAuth 2.1, section 4.3.
func (s *Server) exchangeRefresh(ctx context.Context, r *tokenRequest) (*tokenResponse, error) {
	c, f := r.client, r.form
	token := f["refresh_token"]
	if token == "" {
		return nil, refuse(codeInvalidRequest, "refresh_token is missing")
	}
	fam, state, err := s.family(ctx, token)
	switch {
	case errors.Is(err, errNoRefresh):
		return nil, errBadGrant
	case err != nil:
		return nil, err
	case state == isReused:
		return nil, s.refuseFamily(ctx, fam, "a refresh token was used again")
	case fam.Client != c.ID:
		return nil, s.refuseFamily(ctx, fam, "a refresh token was used by another client")
	case fam.Key != "" && fam.Key != r.proof.Key: // the grant stays: without the key a stolen token must not end it
		return nil, errBadGrant
	}
	g, err := s.grant(ctx, fam.Grant)
	if err != nil {
		return nil, badGrantIfEnded(err)
	}
	scopes, err := s.narrowed(c, g, f)
	if err != nil {
		return nil, err
	}
	// Everything that can fail comes before the rotation: a temporary failure of the identity
	// provider or the store must not use up the token.
	if err := s.checkProviderGrant(ctx, g); err != nil {
		return nil, badGrantIfEnded(err)
	}
	response, err := s.accessToken(ctx, r, g, scopes)
	if err == nil {
		err = s.useClient(ctx, c)
	}
	if err != nil {
		return nil, err
	}
	if err := s.extendGrant(ctx, g.ID, later(s.refreshExpiry(g.Until), s.accessExpiry(g))); err != nil {
		return nil, badGrantIfEnded(err)
	}
	response.RefreshToken, err = s.rotate(ctx, fam, token) // last, because it uses up the token
	if errors.Is(err, errNoRefresh) {                      // rotated by another request, and the grace period is over
		return nil, s.refuseFamily(ctx, fam, "a refresh token was used again")
	}
	if err != nil {
		return nil, err
	}
	return response, nil
}

func (s *Server) refuseFamily(ctx context.Context, f *family, reason string) error {
	s.log.WarnContext(ctx, "authorization server: "+reason, "client", f.Client, "grant", f.Grant)
	if err := s.endFamily(ctx, f, reason); err != nil {
		return err
	}
	return errBadGrant
}

// Spec: OAuth 2.1, section 4.2; MCP extension io.modelcontextprotocol/oauth-client-credentials.
func (s *Server) exchangeClient(ctx context.Context, r *tokenRequest) (*tokenResponse, error) {
	c, f := r.client, r.form
	if c.isPublic() || c.Origin != originOperator {
		return nil, refuse(codeUnauthorizedClient, "client_credentials is only for pre-registered clients")
	}
	res, err := s.resourceFor(c, f["resource"])
	if err != nil {
		return nil, err
	}
	scopes, err := scopesFor(c.actingForItself(res), res, f["scope"])
	if err != nil {
		return nil, err
	}
	now := time.Now()
	end := now.Add(s.o.Lifetimes.Access)
	g := &grant{
		ID: randomID(), Client: c.ID, Subject: c.ID, // Spec: RFC 9068, section 2.2
		Name: c.Name, Resource: res.URL, Scopes: scopes, Issued: now, Until: end, Expires: end,
	}
	if err := grants.put(ctx, s.store, g.ID, g); err != nil {
		return nil, err
	}
	return s.accessToken(ctx, r, g, scopes)
}
