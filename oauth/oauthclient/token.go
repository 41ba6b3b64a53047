package oauthclient

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/patchbay-mcp/patchbay/internal/dpop"
	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/internal/oauthfetch"
	"github.com/patchbay-mcp/patchbay/internal/oauthwire"
	"github.com/patchbay-mcp/patchbay/oauth"
)

const (
	// maxTokenSize limits a token, in bytes. Servers limit header blocks to 64 KiB.
	maxTokenSize = 32 << 10
	// maxTokenLifetime limits the lifetime of a token, so that a time.Duration cannot overflow.
	maxTokenLifetime = 365 * 24 * time.Hour
)

const grantRefresh = "refresh_token"

// A TokenSet contains the tokens that an authorization server issued to a client for a server. Its
// JSON, which is for a [Store], contains the tokens; its String and its slog value do not.
type TokenSet struct {
	// Issuer is the authorization server that issued the tokens, ClientID the client they were
	// issued to.
	Issuer   string `json:"issuer"`
	ClientID string `json:"client_id,omitempty"`
	// Resource is the server that the access token is for. It is empty if the server publishes no
	// identifier, in revision 2025-03-26.
	Resource     string `json:"resource,omitempty"`
	AccessToken  string `json:"access_token"`
	TokenType    string `json:"token_type"` // Bearer or DPoP
	RefreshToken string `json:"refresh_token,omitempty"`
	// Scopes are the granted scopes, as far as the authorization server names them. Requested are
	// the requested scopes, and Challenged the scopes among them that the server itself asked for.
	Scopes     []string `json:"scopes,omitempty"`
	Requested  []string `json:"requested,omitempty"`
	Challenged []string `json:"challenged,omitempty"`
	// Client is the dynamically registered client, if there is one: the tokens are renewed with its
	// secret, even when new logins use another registration. [Transport.Token] omits it.
	Client *Registration `json:"client,omitempty"`
	// Issued is when the tokens were received, and Expires when the access token expires, by the
	// clock of this machine; zero if the authorization server does not say.
	Issued  time.Time `json:"issued"`
	Expires time.Time `json:"expires,omitzero"`
	// KeyThumbprint is the JWK thumbprint of the key that tokens of type DPoP are bound to.
	KeyThumbprint string `json:"key_thumbprint,omitempty"`
}

// String names the issuer and the expiry, and no secrets.
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

// A TokenError reports a token request that was refused. Code and Description are the authorization
// server's text, cut and without control characters. Only the codes of RFC 6749, such as
// invalid_grant, are for programs.
//
// Spec: RFC 6749, section 5.2.
type TokenError struct {
	Code        string // may be empty
	Description string // may be empty
	Status      int    // of the HTTP response
}

// Error returns the text of the authorization server.
func (e *TokenError) Error() string {
	return "oauth: the token endpoint refused the request: " + describe(e.Code, e.Description, e.Status)
}

// describe returns the status of a response without an error code, else the code and the
// description.
func describe(code, description string, status int) string {
	switch {
	case code == "" && status != 0:
		return "HTTP " + strconv.Itoa(status)
	case code == "invalid_target":
		return strings.TrimSuffix(code+" ("+description, " (") + "): if the server refuses the parameter resource as " +
			"such, set omitResource for this issuer"
	case description == "":
		return code
	}
	return code + " (" + description + ")"
}

// isTokenError reports whether a token endpoint refused with a code and a status other than 5xx.
func isTokenError(err error, code string) bool {
	var refused *TokenError
	return errors.As(err, &refused) && refused.Code == code && refused.Status/100 != 5
}

// A tokenEndpoint requests tokens. It adds the client's authentication, the resource and the DPoP
// proof to each request.
type tokenEndpoint struct {
	fetcher      *oauthfetch.Fetcher
	server       *oauth.ServerMetadata
	registration *Registration
	key          *AssertionKey // of the client, for private_key_jwt; may be nil
	resource     string        // default of the resource parameter; may be empty
	prover       *dpop.Prover  // nil for bearer tokens

	omitsResource bool // no request may contain the resource parameter
}

// A tokenResponse is the response of a token endpoint. Spec: RFC 6749, sections 5.1 and 5.2; RFC
// 8693, section 2.2.1.
type tokenResponse struct {
	AccessToken     string         `json:"access_token"`
	TokenType       string         `json:"token_type"`
	ExpiresIn       jsontext.Value `json:"expires_in"`
	RefreshToken    string         `json:"refresh_token"`
	Scope           jsontext.Value `json:"scope"`
	IssuedTokenType string         `json:"issued_token_type"`

	Error            jsontext.Value `json:"error"`
	ErrorDescription jsontext.Value `json:"error_description"`
}

// textOf returns the text of a member that should be a string. Some servers send a list of words,
// which it joins, or another type, whose JSON it returns.
func textOf(member jsontext.Value) string {
	switch jsonscan.Kind(member) {
	case 0, 'n':
		return ""
	case '[':
		var words []string
		for element := range jsonscan.Elements(member) {
			words = append(words, textOf(element))
		}
		return strings.Join(words, " ")
	}
	if text, err := jsonscan.Unquote(member); err == nil {
		return text
	}
	return string(member)
}

// request requests tokens and validates the response. It does not modify form. A refusal is a
// *TokenError.
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
	set.Scopes = strings.Fields(form.Get("scope")) // an omitted scope means as requested
	if scope := textOf(r.Scope); scope != "" || jsonscan.Kind(r.Scope) == '"' {
		set.Scopes = boundedScopes(scope)
	}
	return set, nil
}

// send requests tokens. It checks that they can be sent in a header, and not their type.
func (e *tokenEndpoint) send(ctx context.Context, form url.Values) (*tokenResponse, error) {
	target, err := url.Parse(e.server.TokenEndpoint)
	if err != nil || e.server.TokenEndpoint == "" {
		return nil, errors.New("oauth: invalid token_endpoint: must be a URL")
	}
	const attempts = 2 // the server may ask for a DPoP nonce, once
	for attempt := 1; ; attempt++ {
		r, header, err := e.sendOnce(ctx, target, form)
		hasNonce := e.prover != nil && e.prover.LearnFromServer(target, header)
		if !hasNonce || !isTokenError(err, oauthwire.UseDPoPNonce) || attempt == attempts {
			return r, err
		}
	}
}

func (e *tokenEndpoint) sendOnce(
	ctx context.Context, target *url.URL, form url.Values,
) (*tokenResponse, http.Header, error) {
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
	response, err := e.fetcher.PostForm(ctx, e.server.TokenEndpoint, form, header)
	if err != nil {
		return nil, nil, err
	}
	r, err := readTokenResponse(response.Status, response.Body, e.secrets(form))
	return r, response.Header, err
}

// authenticated returns a copy of a form with the resource and the client's authentication, and the
// header for it.
func (e *tokenEndpoint) authenticated(plain url.Values) (form url.Values, header http.Header, err error) {
	form, header = maps.Clone(plain), http.Header{} // values are replaced and not modified
	if e.omitsResource {
		form.Del("resource")
	} else if e.resource != "" && !form.Has("resource") {
		form.Set("resource", e.resource)
	}
	return form, header, e.authenticate(form, header)
}

// authenticate adds the client's authentication to a form and a header. Spec: RFC 6749, section
// 2.3.1; RFC 7523, section 2.2.
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
		if c.ClientID != "" { // a workload may lack an ID
			form.Set("client_id", c.ClientID)
		}
	default:
		return fmt.Errorf("oauth: unsupported client authentication method %q",
			oauthfetch.CleanText(method, oauthfetch.MaxErrorCode))
	}
	return nil
}

// authMethod returns the client's authentication method: the registered method, else a method that
// the server's metadata names.
func (e *tokenEndpoint) authMethod() (string, error) {
	c, offered := e.registration, e.server.TokenEndpointAuthMethods
	supports := func(method string) bool { return slices.Contains(offered, method) }
	switch {
	case c.AuthMethod != "":
		return c.AuthMethod, nil
	case e.key != nil && (len(offered) == 0 || supports(oauthwire.AuthPrivateKey)):
		return oauthwire.AuthPrivateKey, nil
	case c.ClientSecret == "":
		return oauthwire.AuthNone, nil
	case len(offered) == 0, supports(oauthwire.AuthBasic):
		return oauthwire.AuthBasic, nil // the default of RFC 8414
	case supports(oauthwire.AuthPost):
		return oauthwire.AuthPost, nil
	case supports(oauthwire.AuthNone):
		return oauthwire.AuthNone, nil
	}
	return "", errors.New("oauth: the client has no credentials for an authentication method of the token endpoint")
}

// secrets returns the values that an error must not repeat.
func (e *tokenEndpoint) secrets(form url.Values) []string {
	all := []string{e.registration.ClientSecret}
	for _, name := range []string{"code", "code_verifier", "refresh_token", "assertion", "client_assertion",
		"subject_token", "token"} {
		all = append(all, form[name]...)
	}
	return all
}

func (e *tokenEndpoint) tokenType(received string) (string, error) {
	switch {
	case (received == "" || strings.EqualFold(received, oauthwire.Bearer)) && e.prover == nil:
		return oauthwire.Bearer, nil // some servers omit the type
	case e.prover == nil:
		return "", fmt.Errorf("oauth: the token endpoint issued a token of unsupported type %q",
			oauthfetch.CleanText(received, oauthfetch.MaxErrorCode))
	case strings.EqualFold(received, oauthwire.DPoP):
		return oauthwire.DPoP, nil
	}
	return oauthwire.Bearer, e.prover.CheckTokenType(received)
}

// readTokenResponse reads the response of a token endpoint. Its errors do not repeat the secrets.
func readTokenResponse(status int, body []byte, secrets []string) (*tokenResponse, error) {
	var r tokenResponse
	err := oauthfetch.Decode(body, &r)
	switch {
	case status/100 != 2 && (err != nil || textOf(r.Error) == ""):
		return nil, &TokenError{Status: status}
	case err != nil:
		return nil, errors.New("oauth: invalid token response: malformed JSON")
	case status/100 != 2 || textOf(r.Error) != "":
		return nil, &TokenError{
			Code:        oauthfetch.CleanTextWithout(textOf(r.Error), oauthfetch.MaxErrorCode, secrets),
			Description: oauthfetch.CleanTextWithout(textOf(r.ErrorDescription), oauthfetch.MaxErrorText, secrets),
			Status:      status,
		}
	case !isSendable(r.AccessToken):
		return nil, errors.New("oauth: invalid token response: access_token must be printable ASCII of at most 32 KiB")
	case r.RefreshToken != "" && !isSendable(r.RefreshToken):
		return nil, errors.New("oauth: invalid token response: refresh_token must be printable ASCII of at most 32 KiB")
	}
	return &r, nil
}

// isSendable reports whether a token can be sent in a header.
func isSendable(token string) bool {
	return token != "" && len(token) <= maxTokenSize &&
		!strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' })
}

// lifetime returns the lifetime of the access token, zero if it is not known. Some servers send the
// number as a string.
func (r *tokenResponse) lifetime() time.Duration {
	seconds, err := strconv.ParseFloat(strings.Trim(string(r.ExpiresIn), `"`), 64)
	if err != nil || !(seconds > 0) {
		return 0
	}
	return time.Duration(min(seconds, maxTokenLifetime.Seconds()) * float64(time.Second))
}

var (
	// temporaryCodes are errors of a token endpoint that do not concern the refresh token: the next
	// attempt may succeed.
	temporaryCodes = []string{"", "server_error", "temporarily_unavailable", "slow_down"}
	// permanentCodes are final whatever their status is: some servers send them with 200 or 403.
	permanentCodes = []string{oauthwire.InvalidGrant, oauthwire.InvalidClient, "unauthorized_client",
		"bad_refresh_token"}
)

// isPermanent reports whether a token endpoint refused a refresh token or the client
// permanently. A status that RFC 6749 does not use may be from a proxy. Spec: RFC 6749, section
// 5.2.
func isPermanent(err error) bool {
	refused, ok := errors.AsType[*TokenError](err)
	switch {
	case !ok || refused.Status/100 == 5:
		return false
	case refused.Status == http.StatusBadRequest, refused.Status == http.StatusUnauthorized:
		return !slices.Contains(temporaryCodes, refused.Code)
	}
	return slices.Contains(permanentCodes, refused.Code)
}

// renew renews tokens with their refresh token, once for all goroutines and processes: the first
// process updates the store, and the others find its result. If the authorization server no longer
// accepts the refresh token, the tokens are removed and the outcome contains no tokens. After
// another error they are kept.
//
// The request is not cancelled: only its response contains the new refresh token.
func (t *Transport) renew(ctx context.Context, current *TokenSet) (*outcome, error) {
	t.mu.Lock()
	record, logouts := t.record, t.logouts
	t.mu.Unlock()
	if record == nil || record.Server == nil || current.Issuer != record.Issuer {
		return &outcome{}, nil // unknown token endpoint
	}
	client, err := t.clientOf(ctx, current)
	if err != nil {
		return nil, err
	}
	result := &outcome{}
	var refused error // of the tokens
	asked := false
	err = t.store.Update(ctx, tokensKey(record.Issuer, record.Resource), func(old []byte) ([]byte, error) {
		stored, err := decodeStored[TokenSet](old)
		switch {
		case err != nil:
			return nil, err
		case stored == nil:
			return nil, nil // logged out meanwhile
		case stored.AccessToken != current.AccessToken && !stored.expiresBefore(time.Now()):
			result.tokens = stored // renewed meanwhile
			return old, nil
		case stored.RefreshToken == "":
			return old, nil
		}
		asked = true
		endpoint := t.tokenEndpoint(record.Server, client, record.Resource, record.Scope)
		fresh, err := endpoint.refresh(context.WithoutCancel(ctx), stored)
		if isPermanent(err) {
			refused = err
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		result.tokens, result.source = fresh, fromRefresh
		return json.Marshal(fresh)
	})
	if refused != nil {
		t.log.Info("oauth: the authorization server no longer renews the tokens", "error", refused)
		if isTokenError(refused, oauthwire.InvalidClient) {
			err = errors.Join(err, t.forgetClient(context.WithoutCancel(ctx), client))
		}
	}
	switch {
	case err == nil:
	case refused != nil || result.source == fromRefresh:
		t.log.Error("oauth: the renewed tokens were not stored", "error", err) // and are kept in memory
	case !asked:
		return nil, fmt.Errorf("oauth: write to the store: %w", err)
	default:
		return nil, err
	}
	t.setTokens(result.tokens, logouts)
	return result, nil
}

// refresh requests new tokens with a refresh token. Values that the response omits stay the same.
// Spec: RFC 6749, section 6; basic/authorization#resource-parameter-implementation.
func (e *tokenEndpoint) refresh(ctx context.Context, old *TokenSet) (*TokenSet, error) {
	fresh, err := e.request(ctx, url.Values{"grant_type": {grantRefresh}, "refresh_token": {old.RefreshToken}})
	if err != nil {
		return nil, err
	}
	fresh.RefreshToken = cmp.Or(fresh.RefreshToken, old.RefreshToken)
	if len(fresh.Scopes) == 0 {
		fresh.Scopes = old.Scopes
	}
	fresh.Requested, fresh.Challenged, fresh.Client = old.Requested, old.Challenged, old.Client
	return fresh, nil
}
