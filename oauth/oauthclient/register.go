package oauthclient

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/netx"
	"github.com/patchbay-mcp/patchbay/internal/oauthfetch"
	"github.com/patchbay-mcp/patchbay/internal/oauthwire"
	"github.com/patchbay-mcp/patchbay/oauth"
)

const (
	// maxEpoch is the last second of the year 9999, beyond which a time has no text.
	maxEpoch = 253402300799
)

// A Registration is how an authorization server knows a client. It belongs to that server and is shown to no other. Its
// secret is in its JSON, which is for a [Store], and neither in its String nor in logs of package slog.
//
// Spec: RFC 7591, section 3.2.1.
type Registration struct {
	Issuer       string `json:"issuer"` // the authorization server
	ClientID     string `json:"client_id"`
	ClientSecret string `json:"client_secret,omitempty"`
	// AuthMethod is how the client authenticates at the token endpoint, such as client_secret_basic. If it is empty, as
	// the server's metadata says.
	AuthMethod string `json:"token_endpoint_auth_method,omitempty"`
	// SecretExpires is when the secret ends; zero for never.
	SecretExpires time.Time `json:"secret_expires,omitzero"`
	// RedirectURIs are those that were registered.
	RedirectURIs []string `json:"redirect_uris,omitempty"`
}

// String says who is registered where, without the secret.
func (r Registration) String() string {
	return fmt.Sprintf("client %q of %s", oauthfetch.CleanText(r.ClientID, oauthfetch.MaxErrorText), r.Issuer)
}

// GoString is [Registration.String].
func (r Registration) GoString() string { return r.String() }

// LogValue is [Registration.String], for package slog.
func (r Registration) LogValue() slog.Value { return slog.StringValue(r.String()) }

// A RegistrationError is the failedAttempt of an authorization server to register a client. Code and Description are that
// server's words, cut and without control characters; they are for people, apart from the codes of RFC 7591 such as
// invalid_redirect_uri.
//
// Spec: RFC 7591, section 3.2.2.
type RegistrationError struct {
	Code        string // empty if the response holds none
	Description string // may be empty
	Status      int    // of the HTTP response
}

// Error says what the authorization server said.
func (e *RegistrationError) Error() string {
	if e.Code == "" {
		return "oauth: the authorization server does not register the client: HTTP " + strconv.Itoa(e.Status)
	}
	return "oauth: the authorization server does not register the client: " + describe(e.Code, e.Description)
}

// A registrationResponse is what an endpoint that registers clients says.
type registrationResponse struct {
	ClientID      string   `json:"client_id"`
	ClientSecret  string   `json:"client_secret"`
	SecretExpires float64  `json:"client_secret_expires_at"` // seconds since 1970, 0 for never
	AuthMethod    string   `json:"token_endpoint_auth_method"`
	RedirectURIs  []string `json:"redirect_uris"`
}

// register makes a client known to an authorization server. What meta leaves out is chosen: grants and response types are
// those of a login that can be renewed, the application's type is as the redirect URIs say, and the authentication is the
// least that the server offers, since what runs at its user's keeps no secret from them. The server may leave out redirect
// URIs, but for the one that the next login needs. A failedAttempt is a *RegistrationError.
//
// Spec: RFC 7591, section 3; basic/authorization/client-registration (2026-07-28).
func register(
	ctx context.Context, f *oauthfetch.Fetcher, server *oauth.ServerMetadata, meta *oauth.ClientMetadata, redirectURI string,
) (*Registration, error) {
	if server.RegistrationEndpoint == "" {
		return nil, errors.New("oauth: the authorization server does not register clients by itself")
	}
	asked := *meta
	asked.ClientID = ""
	if len(asked.GrantTypes) == 0 {
		asked.GrantTypes = []string{"authorization_code", grantRefresh}
	}
	if len(asked.ResponseTypes) == 0 && slices.Contains(asked.GrantTypes, "authorization_code") {
		asked.ResponseTypes = []string{"code"}
	}
	if asked.ApplicationType == "" {
		asked.ApplicationType = applicationType(asked.RedirectURIs)
	}
	if asked.TokenEndpointAuthMethod == "" {
		method, err := chooseAuthMethod(server.TokenEndpointAuthMethods)
		if err != nil {
			return nil, err
		}
		asked.TokenEndpointAuthMethod = method
	}
	answer, err := f.PostJSON(ctx, server.RegistrationEndpoint, &asked)
	if err != nil {
		return nil, err
	}
	if answer.Status != http.StatusCreated && answer.Status != http.StatusOK {
		return nil, registrationRefusal(answer.Status, answer.Body)
	}
	var r registrationResponse
	err = answer.Decode(&r)
	if err == nil {
		err = r.check(&asked, redirectURI)
	}
	if err != nil {
		return nil, fmt.Errorf("oauth: the answer to the registration of a client cannot be used: %w", err)
	}
	return r.registration(server.Issuer, &asked), nil
}

// check refuses answers that a login could not be made with.
func (r *registrationResponse) check(asked *oauth.ClientMetadata, redirectURI string) error {
	switch {
	case !oauthwire.IsCredential(r.ClientID):
		return errors.New("its client_id is none")
	case r.ClientSecret != "" && !oauthwire.IsCredential(r.ClientSecret):
		return errors.New("its client_secret is none")
	case r.SecretExpires < 0:
		return errors.New("its client_secret_expires_at is before all time")
	case r.ClientSecret != "" && r.SecretExpires > 0 && r.SecretExpires <= float64(time.Now().Unix()):
		return errors.New("its client_secret has expired already")
	}
	switch r.AuthMethod {
	case "", oauthwire.AuthNone, asked.TokenEndpointAuthMethod:
	case oauthwire.AuthBasic, oauthwire.AuthPost:
	default:
		return fmt.Errorf("its token_endpoint_auth_method is %q, which the client is not able to", oauthfetch.CleanText(r.AuthMethod, oauthfetch.MaxErrorCode))
	}
	if (r.AuthMethod == oauthwire.AuthBasic || r.AuthMethod == oauthwire.AuthPost) && r.ClientSecret == "" {
		return errors.New("it has no client_secret, which its token_endpoint_auth_method needs")
	}
	if redirectURI != "" && len(r.RedirectURIs) > 0 && !slices.Contains(r.RedirectURIs, redirectURI) {
		return errors.New("it leaves out the redirect URI of the login")
	}
	return nil
}

func (r *registrationResponse) registration(issuer string, asked *oauth.ClientMetadata) *Registration {
	reg := &Registration{
		Issuer: issuer, ClientID: r.ClientID, ClientSecret: r.ClientSecret, AuthMethod: r.AuthMethod,
		RedirectURIs: slices.Clone(asked.RedirectURIs),
	}
	if len(r.RedirectURIs) > 0 {
		reg.RedirectURIs = slices.DeleteFunc(reg.RedirectURIs, func(uri string) bool { return !slices.Contains(r.RedirectURIs, uri) })
	}
	if r.ClientSecret != "" && r.SecretExpires > 0 && r.SecretExpires <= maxEpoch {
		reg.SecretExpires = time.Unix(int64(r.SecretExpires), 0).UTC()
	}
	needsSecret := asked.TokenEndpointAuthMethod == oauthwire.AuthBasic || asked.TokenEndpointAuthMethod == oauthwire.AuthPost
	switch {
	case reg.AuthMethod == oauthwire.AuthNone:
		reg.ClientSecret, reg.SecretExpires = "", time.Time{} // nobody wants it
	case reg.AuthMethod != "":
	case needsSecret == (reg.ClientSecret != ""):
		reg.AuthMethod = asked.TokenEndpointAuthMethod
	case needsSecret:
		reg.AuthMethod = oauthwire.AuthNone
	}
	return reg
}

func registrationRefusal(status int, body []byte) error {
	var r struct {
		Code        string `json:"error"`
		Description string `json:"error_description"`
	}
	if oauthfetch.Decode(body, &r) != nil {
		return &RegistrationError{Status: status}
	}
	return &RegistrationError{
		Code:        oauthfetch.CleanText(r.Code, oauthfetch.MaxErrorCode),
		Description: oauthfetch.CleanText(r.Description, oauthfetch.MaxErrorText),
		Status:      status,
	}
}

// chooseAuthMethod returns what needs the least secrets of what a token endpoint takes.
func chooseAuthMethod(offered []string) (string, error) {
	if len(offered) == 0 {
		return oauthwire.AuthBasic, nil // what silence means by RFC 8414
	}
	for _, method := range []string{oauthwire.AuthNone, oauthwire.AuthBasic, oauthwire.AuthPost} {
		if slices.Contains(offered, method) {
			return method, nil
		}
	}
	return "", errors.New("oauth: the authorization server takes no authentication that a client which it registers is able to")
}

// applicationType tells from its redirect URIs whether a client runs on its user's machine.
//
// Spec: OpenID Connect Dynamic Client Registration 1.0, section 2.
func applicationType(redirectURIs []string) string {
	for _, text := range redirectURIs {
		u, err := url.Parse(text)
		if err == nil && u.Scheme == "https" && !netx.IsLoopback(u.Hostname()) {
			return "web"
		}
	}
	return "native"
}
