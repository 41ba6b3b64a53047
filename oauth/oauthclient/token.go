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
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/patchbay-mcp/patchbay/internal/dpop"
	"github.com/patchbay-mcp/patchbay/internal/oauthfetch"
	"github.com/patchbay-mcp/patchbay/internal/oauthwire"
	"github.com/patchbay-mcp/patchbay/oauth"
)

const (
	// maxTokenSize bounds a token, in bytes: it goes into a header, and servers take no header block beyond 64 KiB.
	maxTokenSize = 32 << 10
	// maxTokenLifetime is the longest lifetime of a token that is believed. Nothing depends on more, and a time.Duration that
	// overflows would end it at once.
	maxTokenLifetime = 365 * 24 * time.Hour
)

const grantRefresh = "refresh_token"

// A TokenSet is what an authorization server has given to a client for one server. Its tokens are secrets: they are in
// its JSON, which is for a [Store], and neither in its String nor in logs of package slog.
type TokenSet struct {
	// Issuer is the authorization server that gave the tokens, ClientID whom it gave them to.
	Issuer   string `json:"issuer"`
	ClientID string `json:"client_id,omitempty"`
	// Resource is what the access token is for. It is empty if the server has no identifier, in revision 2025-03-26.
	Resource     string `json:"resource,omitempty"`
	AccessToken  string `json:"access_token"`
	TokenType    string `json:"token_type"` // Bearer or DPoP
	RefreshToken string `json:"refresh_token,omitempty"`
	// Scopes are those that were granted, as far as the authorization server says. Requested are those that were asked
	// for, and Challenged those of them that the server itself has asked for.
	Scopes     []string `json:"scopes,omitempty"`
	Requested  []string `json:"requested,omitempty"`
	Challenged []string `json:"challenged,omitempty"`
	// Client is how the authorization server knows the client, if that has registered itself: the tokens are renewed
	// with its secret, when another registration has taken its place for new logins. [Transport.Token] leaves it out.
	Client *Registration `json:"client,omitempty"`
	// Issued is when the tokens came, and Expires when the access token ends, by the clock of this machine; zero if the
	// authorization server does not say.
	Issued  time.Time `json:"issued"`
	Expires time.Time `json:"expires,omitzero"`
	// KeyThumbprint is the key that tokens of type DPoP are bound to.
	KeyThumbprint string `json:"key_thumbprint,omitempty"`
}

// String says whose tokens they are and until when, and nothing of them.
func (s TokenSet) String() string {
	text := "tokens of " + s.Issuer
	if !s.Expires.IsZero() {
		text += " until " + s.Expires.Format(time.RFC3339)
	}
	return text
}

// GoString is [TokenSet.String].
func (s TokenSet) GoString() string { return s.String() }

// LogValue is [TokenSet.String], for package slog.
func (s TokenSet) LogValue() slog.Value { return slog.StringValue(s.String()) }

// A TokenError is the failedAttempt of a token endpoint. Code and Description are the authorization server's words, cut and
// without control characters; they are for people, apart from the codes of RFC 6749 such as invalid_grant.
//
// Spec: RFC 6749, section 5.2.
type TokenError struct {
	Code        string // empty if the response holds none
	Description string // may be empty
	Status      int    // of the HTTP response
}

// Error says what the token endpoint said.
func (e *TokenError) Error() string {
	if e.Code == "" {
		return "oauth: the token endpoint answered with HTTP " + strconv.Itoa(e.Status)
	}
	return "oauth: the token endpoint refused: " + describe(e.Code, e.Description)
}

// describe is an error code with what the server says of it.
func describe(code, description string) string {
	if description == "" {
		return code
	}
	return code + " (" + description + ")"
}

// isTokenError reports whether a token endpoint refused with a code. Servers that are invalid say anything.
func isTokenError(err error, code string) bool {
	var refused *TokenError
	return errors.As(err, &refused) && refused.Code == code && refused.Status/100 != 5
}

// A tokenEndpoint is where a client gets tokens. Every request to one goes this way, so that the authentication of the
// client, the resource and the proofs have one home.
type tokenEndpoint struct {
	fetcher      *oauthfetch.Fetcher
	server       *oauth.ServerMetadata
	registration *Registration
	key          *AssertionKey // of the client, for private_key_jwt; nil without one
	resource     string        // sent with every request that has none of its own; empty for none
	prover       *dpop.Prover  // nil for tokens that are bound to no key
}

// A tokenResponse is what a token endpoint says.
//
// Spec: RFC 6749, sections 5.1 and 5.2; RFC 8693, section 2.2.1.
type tokenResponse struct {
	AccessToken     string         `json:"access_token"`
	TokenType       string         `json:"token_type"`
	ExpiresIn       jsontext.Value `json:"expires_in"`
	RefreshToken    string         `json:"refresh_token"`
	Scope           *string        `json:"scope"`
	IssuedTokenType string         `json:"issued_token_type"`

	Error            string `json:"error"`
	ErrorDescription string `json:"error_description"`
}

// request asks for tokens and checks what comes. form is left as it is. A failedAttempt is a *TokenError.
func (e *tokenEndpoint) request(ctx context.Context, form url.Values) (*TokenSet, error) {
	r, err := e.send(ctx, form)
	if err != nil {
		return nil, err
	}
	set := &TokenSet{
		Issuer: e.server.Issuer, ClientID: e.registration.ClientID, Resource: e.resource,
		AccessToken: r.AccessToken, RefreshToken: r.RefreshToken, Issued: time.Now(),
	}
	if set.TokenType, err = e.tokenType(r.TokenType); err != nil {
		return nil, err
	}
	if set.TokenType == oauthwire.DPoP {
		set.KeyThumbprint = e.prover.Thumbprint()
	}
	if lifetime := r.lifetime(); lifetime > 0 {
		set.Expires = set.Issued.Add(lifetime)
	}
	set.Scopes = strings.Fields(form.Get("scope")) // what a response leaves out is as it was asked for
	if r.Scope != nil {
		set.Scopes = boundedScopes(*r.Scope)
	}
	return set, nil
}

// ask asks for tokens. It checks that what comes can be sent on, not of what type it is.
func (e *tokenEndpoint) send(ctx context.Context, form url.Values) (*tokenResponse, error) {
	target, err := url.Parse(e.server.TokenEndpoint)
	if err != nil || e.server.TokenEndpoint == "" {
		return nil, errors.New("oauth: the authorization server has no token endpoint")
	}
	const attempts = 2 // a nonce for proofs may be wanted, once
	for attempt := 1; ; attempt++ {
		r, header, err := e.sendOnce(ctx, target, form)
		if err == nil {
			if e.prover != nil {
				e.prover.LearnFromServer(target, header)
			}
			return r, nil
		}
		var refused *TokenError
		if e.prover == nil || !errors.As(err, &refused) ||
			!e.prover.LearnFromServer(target, header) || refused.Code != oauthwire.UseDPoPNonce || attempt == attempts {
			return nil, err
		}
	}
}

func (e *tokenEndpoint) sendOnce(ctx context.Context, target *url.URL, form url.Values) (*tokenResponse, http.Header, error) {
	form, header, err := e.authenticated(form)
	if err != nil {
		return nil, nil, err
	}
	if e.prover != nil {
		proof, err := e.prover.Prove(http.MethodPost, target, "")
		if err != nil {
			return nil, nil, err
		}
		header.Set(dpop.Header, proof)
	}
	answer, err := e.fetcher.PostForm(ctx, e.server.TokenEndpoint, form, header)
	if err != nil {
		return nil, nil, err
	}
	r, err := readTokenResponse(answer.Status, answer.Body, e.secrets(form))
	return r, answer.Header, err
}

// authenticated returns a copy of a form with the resource, and says in it or in the header who the client is.
func (e *tokenEndpoint) authenticated(plain url.Values) (form url.Values, header http.Header, err error) {
	form, header = url.Values{}, http.Header{}
	for name, values := range plain {
		form[name] = slices.Clone(values)
	}
	if e.resource != "" && !form.Has("resource") {
		form.Set("resource", e.resource)
	}
	return form, header, e.authenticate(form, header)
}

// authenticate shows who the client is, at the token endpoint or another one that wants it in the same way.
//
// Spec: RFC 6749, section 2.3.1; RFC 7523, section 2.2.
func (e *tokenEndpoint) authenticate(form url.Values, header http.Header) error {
	c := e.registration
	method, err := e.authMethod()
	if err != nil {
		return err
	}
	switch method {
	case oauthwire.AuthBasic:
		header.Set("Authorization", oauthwire.BasicCredentials(c.ClientID, c.ClientSecret))
	case oauthwire.AuthPost:
		form.Set("client_id", c.ClientID)
		form.Set("client_secret", c.ClientSecret)
	case oauthwire.AuthPrivateKey:
		return e.key.authenticate(form, c.ClientID, e.server, time.Now())
	case oauthwire.AuthNone:
		if c.ClientID != "" { // a workload needs none
			form.Set("client_id", c.ClientID)
		}
	default:
		return fmt.Errorf("oauth: the client is to authenticate with %q, which is not known", oauthfetch.CleanText(method, oauthfetch.MaxErrorCode))
	}
	return nil
}

// authMethod chooses how the client shows who it is: as it was registered, else as the server's metadata says.
func (e *tokenEndpoint) authMethod() (string, error) {
	c, offered := e.registration, e.server.TokenEndpointAuthMethods
	takes := func(method string) bool { return slices.Contains(offered, method) }
	switch {
	case c.AuthMethod != "":
		return c.AuthMethod, nil
	case e.key != nil && (len(offered) == 0 || takes(oauthwire.AuthPrivateKey)):
		return oauthwire.AuthPrivateKey, nil
	case c.ClientSecret == "":
		return oauthwire.AuthNone, nil
	case len(offered) == 0, takes(oauthwire.AuthBasic):
		return oauthwire.AuthBasic, nil // the default of RFC 8414
	case takes(oauthwire.AuthPost):
		return oauthwire.AuthPost, nil
	case takes(oauthwire.AuthNone):
		return oauthwire.AuthNone, nil
	}
	return "", errors.New("oauth: the token endpoint takes no authentication that the client is able to")
}

// secrets returns what an error must not repeat, whoever put it into its text.
func (e *tokenEndpoint) secrets(form url.Values) []string {
	all := []string{e.registration.ClientSecret}
	for _, name := range []string{"code", "code_verifier", "refresh_token", "assertion", "client_assertion", "subject_token", "token"} {
		all = append(all, form[name]...)
	}
	return all
}

func (e *tokenEndpoint) tokenType(said string) (string, error) {
	switch {
	case e.prover != nil:
		if err := e.prover.CheckTokenType(said); err != nil {
			return "", err
		}
		if strings.EqualFold(said, oauthwire.DPoP) {
			return oauthwire.DPoP, nil
		}
		return oauthwire.Bearer, nil
	case strings.EqualFold(said, oauthwire.Bearer):
		return oauthwire.Bearer, nil
	}
	return "", fmt.Errorf("oauth: the token endpoint gave a token of type %q, which cannot be used", oauthfetch.CleanText(said, oauthfetch.MaxErrorCode))
}

// readTokenResponse reads what a token endpoint answered. An error repeats nothing that holds one of the secrets.
func readTokenResponse(status int, body []byte, secrets []string) (*tokenResponse, error) {
	var r tokenResponse
	err := oauthfetch.Decode(body, &r)
	switch {
	case status != http.StatusOK && (err != nil || r.Error == ""):
		return nil, &TokenError{Status: status}
	case err != nil:
		return nil, errors.New("oauth: the token endpoint did not answer with the JSON of a token response")
	case status != http.StatusOK || r.Error != "":
		return nil, &TokenError{
			Code:        oauthfetch.CleanTextWithout(r.Error, oauthfetch.MaxErrorCode, secrets),
			Description: oauthfetch.CleanTextWithout(r.ErrorDescription, oauthfetch.MaxErrorText, secrets),
			Status:      status,
		}
	case !isSendable(r.AccessToken):
		return nil, errors.New("oauth: the token endpoint gave no access token that can be sent")
	case r.RefreshToken != "" && !isSendable(r.RefreshToken):
		return nil, errors.New("oauth: the token endpoint gave a refresh token that cannot be sent")
	}
	return &r, nil
}

// isSendable reports whether a token can stand in a header, and is no longer than a header should be.
func isSendable(token string) bool {
	if token == "" || len(token) > maxTokenSize {
		return false
	}
	for i := range len(token) {
		if token[i] <= ' ' || token[i] > '~' {
			return false
		}
	}
	return true
}

// lifetime returns how long the access token lasts, zero if that is not said. Some servers write the number as a string.
func (r *tokenResponse) lifetime() time.Duration {
	text := strings.Trim(string(r.ExpiresIn), `"`)
	seconds, err := strconv.ParseFloat(text, 64)
	if err != nil || !(seconds > 0) {
		return 0
	}
	return time.Duration(min(seconds, maxTokenLifetime.Seconds()) * float64(time.Second))
}
