package authserver

import (
	"context"
	"errors"
	"net/http"
	"slices"
)

// profileClaims and emailClaims are what the scopes of these names stand for.
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
	errOtherUserinfo = errors.New("the userinfo endpoint of the third party answered with another user")
	errNoUserinfo    = errors.New("the userinfo endpoint of the third party did not answer with claims in JSON")
)

// userinfo asks for the claims about the user of an access token.
//
// Spec: OpenID Connect Core 1.0, section 5.3.
func (p *provider) userinfo(ctx context.Context, ends *endpoints, access string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, ends.userinfo, nil)
	if err != nil {
		return nil, errors.New("the userinfo endpoint of the third party is no URL")
	}
	req.Header.Set("Authorization", "Bearer "+access)
	return p.do(req)
}

// addUserinfo adds what was asked for and the ID token lacks: where there is an access token, providers put the claims of
// the scopes profile and email into userinfo. Nothing else is taken from there, so that what says how and for whom the
// login was done is the ID token's alone.
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
		return errNoUserinfo // such as one that is signed
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
	if email { // both from one place: that an address is verified is said of that address
		for _, name := range emailClaims {
			delete(user.Claims, name)
			if claims[name] != nil {
				user.Claims[name] = claims[name]
			}
		}
	}
	return nil
}

// askUserinfo asks for the user of a token, who must be the one of the login.
func (p *provider) askUserinfo(ctx context.Context, ends *endpoints, rec *providerGrant) error {
	body, err := p.userinfo(ctx, ends, rec.Access)
	var said *statusError
	switch {
	case errors.As(err, &said) && (said.status == http.StatusUnauthorized || said.status == http.StatusForbidden):
		// 403 is what some answer for a user who was locked out. If there is a refresh token, it has the last word.
		return errTokenInvalid
	case err != nil:
		return err
	}
	var answer struct {
		Sub string `json:"sub"`
	}
	// A signed answer is no JSON; that it came is enough.
	if decodeStrict(body, &answer) == nil && answer.Sub != "" && answer.Sub != rec.Sub {
		return errTokenInvalid
	}
	return nil
}
