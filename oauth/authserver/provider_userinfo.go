package authserver

import (
	"context"
	"errors"
	"net/http"
	"slices"
)

// profileClaims and emailClaims are the claims of the scopes profile and email.
//
// Spec: OpenID Connect Core 1.0, section 5.4.
var (
	profileClaims = []string{
		"name", "family_name", "given_name", "middle_name", "nickname", "preferred_username", "profile", "picture",
		"website", "gender", "birthdate", "zoneinfo", "locale", "updated_at",
	}
	emailClaims = []string{"email", "email_verified"}
)

var (
	errOtherUserinfo = errors.New("the userinfo response is for another user")
	errNoUserinfo    = errors.New("the userinfo response is not a JSON object")
)

// userinfo returns the userinfo response for an access token.
//
// Spec: OpenID Connect Core 1.0, section 5.3.
func (p *provider) userinfo(ctx context.Context, ends *endpoints, access string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, ends.userinfo, nil)
	if err != nil {
		return nil, errors.New("invalid userinfo endpoint URL")
	}
	req.Header.Set("Authorization", "Bearer "+access)
	return p.do(req)
}

// addUserinfo adds the claims of the scopes profile and email that the ID token does not have: with
// an access token, providers may return them only from userinfo. No other claims are added, so that
// those about the login itself come only from the ID token.
//
// Spec: OpenID Connect Core 1.0, sections 5.3.2 and 5.4.
func (p *provider) addUserinfo(ctx context.Context, ends *endpoints, user *ProviderUser) error {
	profile := slices.Contains(p.o.Scopes, "profile") && user.Claims["name"] == nil
	email := slices.Contains(p.o.Scopes, "email") && user.Claims["email"] == nil
	if ends.userinfo == "" || !profile && !email {
		return nil
	}
	body, err := p.userinfo(ctx, ends, user.AccessToken)
	if err != nil {
		return err
	}
	var claims map[string]any
	if decodeStrict(body, &claims) != nil {
		return errNoUserinfo // such as a signed one
	}
	if claims["sub"] != user.ID {
		return errOtherUserinfo
	}
	if profile {
		for _, name := range profileClaims {
			if user.Claims[name] == nil && claims[name] != nil {
				user.Claims[name] = claims[name]
			}
		}
	}
	if email { // both from the same response: email_verified is about that email
		for _, name := range emailClaims {
			delete(user.Claims, name)
			if claims[name] != nil {
				user.Claims[name] = claims[name]
			}
		}
	}
	return nil
}

// checkUserinfo checks an access token at the userinfo endpoint, which must return the user of the
// login.
func (p *provider) checkUserinfo(ctx context.Context, ends *endpoints, rec *providerGrant) error {
	body, err := p.userinfo(ctx, ends, rec.Access)
	var statusErr *statusError
	switch {
	case errors.As(err, &statusErr) && (statusErr.status == http.StatusUnauthorized ||
		statusErr.status == http.StatusForbidden):
		// Some providers return 403 for a disabled user. If there is a refresh token, a renewal
		// decides.
		return errTokenInvalid
	case err != nil:
		return err
	}
	var response struct {
		Sub string `json:"sub"`
	}
	// A signed response is not JSON. Its status is sufficient.
	if decodeStrict(body, &response) == nil && response.Sub != "" && response.Sub != rec.Sub {
		return errTokenInvalid
	}
	return nil
}
