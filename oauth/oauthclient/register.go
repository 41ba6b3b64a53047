package oauthclient

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/patchbay-mcp/patchbay/internal/netx"
	"github.com/patchbay-mcp/patchbay/internal/oauthfetch"
	"github.com/patchbay-mcp/patchbay/internal/oauthwire"
	"github.com/patchbay-mcp/patchbay/oauth"
)

// maxEpoch is the last second of the year 9999, the greatest time that can be encoded as text.
const maxEpoch = 253402300799

// A Registration is a client as an authorization server knows it. It is sent to no other server.
// Its JSON, which is for a [Store], contains the secret; its String and its slog value do not.
//
// Spec: RFC 7591, section 3.2.1.
type Registration struct {
	Issuer       string `json:"issuer"` // the authorization server
	ClientID     string `json:"client_id"`
	ClientSecret string `json:"client_secret,omitempty"`
	// AuthMethod is the client's authentication method at the token endpoint, such as
	// client_secret_basic. If it is empty, the server's metadata decides.
	AuthMethod string `json:"token_endpoint_auth_method,omitempty"`
	// SecretExpires is when the secret expires; zero for never.
	SecretExpires time.Time `json:"secret_expires,omitzero"`
	// RedirectURIs are the registered URIs.
	RedirectURIs []string `json:"redirect_uris,omitempty"`
}

// String names the client and the issuer, without the secret.
func (r Registration) String() string {
	return fmt.Sprintf("client %q of %s", oauthfetch.CleanText(r.ClientID, oauthfetch.MaxErrorText), r.Issuer)
}

// GoString is [Registration.String].
func (r Registration) GoString() string { return r.String() }

// LogValue is [Registration.String], for package slog.
func (r Registration) LogValue() slog.Value { return slog.StringValue(r.String()) }

// A RegistrationError reports a client that an authorization server refused to register. Code and
// Description are its text, cut and without control characters. Only the codes of RFC 7591, such as
// invalid_redirect_uri, are for programs.
//
// Spec: RFC 7591, section 3.2.2.
type RegistrationError struct {
	Code        string // may be empty
	Description string // may be empty
	Status      int    // of the HTTP response
}

// Error returns the text of the authorization server.
func (e *RegistrationError) Error() string {
	if e.Code == "" {
		return "oauth: registration of the client failed: " + describe("", "", e.Status)
	}
	return "oauth: the authorization server refused to register the client: " +
		describe(e.Code, e.Description, e.Status)
}

type registrationResponse struct {
	ClientID      string         `json:"client_id"`
	ClientSecret  string         `json:"client_secret"`
	SecretExpires jsontext.Value `json:"client_secret_expires_at"` // see expires
	AuthMethod    string         `json:"token_endpoint_auth_method"`
	RedirectURIs  []string       `json:"redirect_uris"`
}

// register registers a client by Dynamic Client Registration, with defaults for the fields that
// meta omits. A refusal is a *RegistrationError. Spec: RFC 7591, section 3;
// basic/authorization/client-registration (2026-07-28).
func register(
	ctx context.Context, f *oauthfetch.Fetcher, server *oauth.ServerMetadata,
	meta *oauth.ClientMetadata, redirectURI string,
) (*Registration, error) {
	if server.RegistrationEndpoint == "" {
		return nil, errors.New("oauth: the authorization server does not support Dynamic Client Registration")
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
	response, err := f.PostJSON(ctx, server.RegistrationEndpoint, &asked)
	if err != nil {
		return nil, err
	}
	if response.Status/100 != 2 {
		return nil, registrationRefusal(response.Status, response.Body)
	}
	var r registrationResponse
	err = response.Decode(&r)
	if err == nil {
		err = r.check(&asked, redirectURI)
	}
	if err != nil {
		return nil, fmt.Errorf("oauth: invalid registration response: %w", err)
	}
	return r.registration(server.Issuer, &asked), nil
}

// expires returns when the secret expires, in seconds since 1970. Zero means never. It accepts a
// string, which some servers send instead of a number.
func (r *registrationResponse) expires() float64 {
	seconds, _ := strconv.ParseFloat(strings.Trim(string(r.SecretExpires), `"`), 64)
	return seconds
}

func (r *registrationResponse) check(asked *oauth.ClientMetadata, redirectURI string) error {
	switch {
	case !oauthwire.IsCredential(r.ClientID):
		return errors.New("client_id must be 1 to 4096 printable ASCII characters")
	case r.ClientSecret != "" && !oauthwire.IsCredential(r.ClientSecret):
		return errors.New("client_secret must be at most 4096 printable ASCII characters")
	case r.expires() < 0:
		return errors.New("client_secret_expires_at must not be negative")
	case r.ClientSecret != "" && r.expires() > 0 && r.expires() <= float64(time.Now().Unix()):
		return errors.New("client_secret has already expired")
	}
	switch r.AuthMethod {
	case oauthwire.AuthBasic, oauthwire.AuthPost:
		if r.ClientSecret == "" {
			return errors.New("client_secret is missing, which token_endpoint_auth_method requires")
		}
	case "", oauthwire.AuthNone, asked.TokenEndpointAuthMethod:
	default:
		return fmt.Errorf("unsupported token_endpoint_auth_method %q",
			oauthfetch.CleanText(r.AuthMethod, oauthfetch.MaxErrorCode))
	}
	if redirectURI != "" && len(r.RedirectURIs) > 0 && !slices.Contains(r.RedirectURIs, redirectURI) {
		return errors.New("redirect_uris lacks the redirect URI of the login")
	}
	return nil
}

func (r *registrationResponse) registration(issuer string, asked *oauth.ClientMetadata) *Registration {
	reg := &Registration{
		Issuer: issuer, ClientID: r.ClientID, ClientSecret: r.ClientSecret, AuthMethod: r.AuthMethod,
		RedirectURIs: slices.Clone(asked.RedirectURIs),
	}
	if len(r.RedirectURIs) > 0 {
		reg.RedirectURIs = slices.DeleteFunc(reg.RedirectURIs,
			func(uri string) bool { return !slices.Contains(r.RedirectURIs, uri) })
	}
	if r.ClientSecret != "" && r.expires() > 0 && r.expires() <= maxEpoch {
		reg.SecretExpires = time.Unix(int64(r.expires()), 0).UTC()
	}
	needsSecret := asked.TokenEndpointAuthMethod == oauthwire.AuthBasic ||
		asked.TokenEndpointAuthMethod == oauthwire.AuthPost
	switch {
	case reg.AuthMethod == oauthwire.AuthNone:
		reg.ClientSecret, reg.SecretExpires = "", time.Time{} // not needed
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

// chooseAuthMethod returns the first method that the server supports, preferably a method without a
// secret, which a program on the user's machine cannot keep.
func chooseAuthMethod(offered []string) (string, error) {
	if len(offered) == 0 {
		return oauthwire.AuthBasic, nil // the default of RFC 8414
	}
	for _, method := range []string{oauthwire.AuthNone, oauthwire.AuthBasic, oauthwire.AuthPost} {
		if slices.Contains(offered, method) {
			return method, nil
		}
	}
	return "", errors.New("oauth: the authorization server supports no authentication method for registered clients")
}

// applicationType returns "web" if a redirect URI is on the web, else "native". Spec: OpenID
// Connect Dynamic Client Registration 1.0, section 2.
func applicationType(redirectURIs []string) string {
	for _, text := range redirectURIs {
		u, err := url.Parse(text)
		if err == nil && u.Scheme == "https" && !netx.IsLoopback(u.Hostname()) {
			return "web"
		}
	}
	return "native"
}
