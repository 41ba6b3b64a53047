package authserver

import (
	"context"
	"errors"
	"net/http"
	"time"
)

// A tokenAnswer is what the token endpoint gives.
//
// Spec: RFC 6749, section 5.1.
type tokenAnswer struct {
	AccessToken  string `json:"access_token"`
	TokenType    string `json:"token_type"`
	ExpiresIn    int64  `json:"expires_in"` // seconds
	RefreshToken string `json:"refresh_token,omitempty"`
	Scope        string `json:"scope"`
}

// serveToken returns tokens for codes, refresh tokens, and to machines.
//
// Spec: OAuth 2.1, section 3.2.
func (s *Server) serveToken(w http.ResponseWriter, r *http.Request) {
	answer, err := s.token(r)
	if err != nil {
		s.writeFailure(w, r, err)
		return
	}
	writeJSON(w, http.StatusOK, answer)
}

func (s *Server) token(r *http.Request) (*tokenAnswer, error) {
	f, err := postForm(r)
	if err != nil {
		return nil, err
	}
	c, err := s.authenticate(r, f)
	if err != nil {
		return nil, err
	}
	exchange := map[string]func(context.Context, *client, form) (*tokenAnswer, error){
		grantCode: s.exchangeCode, grantRefresh: s.exchangeRefresh, grantClient: s.exchangeClient,
	}[f.get("grant_type")]
	switch {
	case f.get("grant_type") == "":
		return nil, refuse(codeInvalidRequest, "grant_type is missing")
	case exchange == nil:
		return nil, refuse(codeUnsupportedGrant, "the server does not support this grant_type")
	case !c.mayUse(f.get("grant_type")):
		return nil, refuse(codeUnauthorizedClient, "the client is not registered for this grant_type")
	}
	return exchange(r.Context(), c, f)
}

// The same words for a code or token that never was, is over, or is somebody else's.
var errBadGrant = refuse(codeInvalidGrant, "the code or token is not valid")

// exchangeCode returns tokens for a code.
//
// Spec: OAuth 2.1, section 4.1.3.
func (s *Server) exchangeCode(ctx context.Context, c *client, f form) (*tokenAnswer, error) {
	code, verifier := f.get("code"), f.get("code_verifier")
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
	if rec == nil {
		return nil, errBadGrant
	}
	if !first {
		return nil, s.refuseAndEnd(ctx, rec.Grant, "its code was used twice", errBadGrant)
	}
	if !rec.matches(c, f.get("redirect_uri"), verifier) {
		return nil, s.refuseAndEnd(ctx, rec.Grant, "its code was not used as it was meant", errBadGrant)
	}
	g, err := s.grant(ctx, rec.Grant)
	if errors.Is(err, errNoGrant) {
		return nil, errBadGrant
	}
	if err != nil {
		return nil, err
	}
	scopes, err := s.narrowed(c, g, f)
	if err != nil {
		return nil, s.refuseAndEnd(ctx, g.ID, "with its code was asked for what was not granted, or is not to be had any more", err)
	}
	return s.firstTokens(ctx, c, g, scopes)
}

// refuseAndEnd ends a grant, and gives the error that the client is told.
func (s *Server) refuseAndEnd(ctx context.Context, id, reason string, told error) error {
	if err := s.endGrant(ctx, id, reason); err != nil {
		return err
	}
	return told
}

// firstTokens returns the first tokens of a grant of a user. The grant may have been ended meanwhile by a second use of its
// code: then it is not brought back.
func (s *Server) firstTokens(ctx context.Context, c *client, g *grant, scopes []string) (*tokenAnswer, error) {
	until := s.accessExpiry(g)
	var refresh string
	if c.mayUse(grantRefresh) {
		token, fam, err := s.newRefresh(ctx, g)
		if err != nil {
			return nil, err
		}
		refresh, until = token, later(until, fam.Expires)
	}
	if err := s.useClient(ctx, c); err != nil {
		return nil, err
	}
	answer, err := s.accessToken(ctx, g, scopes)
	if err != nil {
		return nil, err
	}
	if err := s.extendGrant(ctx, g.ID, until); err != nil {
		return nil, badGrantIfEnded(err)
	}
	answer.RefreshToken = refresh
	return answer, nil
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
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

// narrowed returns the scopes of a token request, which may ask for less than was granted, and names no other resource. Of
// what was granted there is left what the operator lets the client have now.
//
// Spec: RFC 6749, section 6; RFC 8707, section 2.2.
func (s *Server) narrowed(c *client, g *grant, f form) ([]string, error) {
	if asked := f.get("resource"); asked != "" && resourceKey(asked) != resourceKey(g.Resource) {
		return nil, refuse(codeInvalidTarget, "the resource is not the one that was granted")
	}
	res := s.resource(g.Resource)
	if res == nil || !c.mayReach(res) {
		return nil, errBadGrant
	}
	granted, err := narrow(g.Scopes, f.get("scope"))
	if err != nil {
		return nil, err
	}
	left := stillThere(c, res, granted)
	switch {
	case len(left) > 0 || len(granted) == 0:
		return left, nil
	case f.get("scope") != "":
		return nil, refuse(codeInvalidScope, "the client may not have these scopes any more")
	}
	return nil, errBadGrant
}

// exchangeRefresh returns an access token and the next refresh token for a refresh token.
//
// Spec: OAuth 2.1, section 4.3.
func (s *Server) exchangeRefresh(ctx context.Context, c *client, f form) (*tokenAnswer, error) {
	token := f.get("refresh_token")
	if token == "" {
		return nil, refuse(codeInvalidRequest, "refresh_token is missing")
	}
	fam, worth, err := s.family(ctx, token)
	switch {
	case errors.Is(err, errNoRefresh):
		return nil, errBadGrant
	case err != nil:
		return nil, err
	case worth == isStolen:
		return nil, s.refuseFamily(ctx, fam, "a refresh token was used again")
	case fam.Client != c.ID:
		return nil, s.refuseFamily(ctx, fam, "a refresh token was used by another client")
	}
	g, err := s.grant(ctx, fam.Grant)
	if err != nil {
		return nil, badGrantIfEnded(err)
	}
	scopes, err := s.narrowed(c, g, f)
	if err != nil {
		return nil, err
	}
	// All of this before the token is spent: a third party or a store that is away for a moment must not cost the client
	// its token.
	if err := s.checkProviderGrant(ctx, g); err != nil {
		return nil, badGrantIfEnded(err)
	}
	answer, err := s.accessToken(ctx, g, scopes)
	if err != nil {
		return nil, err
	}
	if err := s.useClient(ctx, c); err != nil {
		return nil, err
	}
	if err := s.extendGrant(ctx, g.ID, later(s.refreshExpiry(g.Until), s.accessExpiry(g))); err != nil {
		return nil, badGrantIfEnded(err)
	}
	answer.RefreshToken, err = s.rotate(ctx, fam, token) // the last that can fail, since it spends the token
	if errors.Is(err, errNoRefresh) {                    // another use was faster, and its grace is over
		return nil, s.refuseFamily(ctx, fam, "a refresh token was used again")
	}
	if err != nil {
		return nil, err
	}
	return answer, nil
}

func (s *Server) refuseFamily(ctx context.Context, f *family, reason string) error {
	s.log.WarnContext(ctx, "authorization server: "+reason, "client", f.Client, "grant", f.Grant)
	if err := s.endFamily(ctx, f, reason); err != nil {
		return err
	}
	return errBadGrant
}

// exchangeClient returns an access token to a machine.
//
// Spec: OAuth 2.1, section 4.2; MCP extension io.modelcontextprotocol/oauth-client-credentials.
func (s *Server) exchangeClient(ctx context.Context, c *client, f form) (*tokenAnswer, error) {
	if c.isPublic() || c.Origin != originOperator {
		return nil, refuse(codeUnauthorizedClient, "only a client of the operator acts for itself")
	}
	res, err := s.resourceFor(c, f.get("resource"))
	if err != nil {
		return nil, err
	}
	scopes, err := scopesFor(c.actingForItself(res), res, f.get("scope"))
	if err != nil {
		return nil, err
	}
	now := time.Now()
	end := now.Add(s.o.Lifetimes.Access)
	g := &grant{
		ID: randomID(), Client: c.ID, Subject: c.ID, // Spec: RFC 9068, section 2.2
		Name: c.Name, Resource: res.URL, Scopes: scopes,
		Issued: now, Until: end, Expires: end,
	}
	if err := s.putGrant(ctx, g); err != nil {
		return nil, err
	}
	return s.accessToken(ctx, g, scopes)
}
