package oauthclient

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/patchbay-mcp/patchbay/internal/oauthfetch"
	"github.com/patchbay-mcp/patchbay/oauth"
)

// Types of tokens that identify a user. Spec: RFC 8693, section 3.
const (
	TokenTypeID    = "urn:ietf:params:oauth:token-type:id_token" // an ID token of OpenID Connect
	TokenTypeSAML2 = "urn:ietf:params:oauth:token-type:saml2"    // a SAML 2.0 assertion, in base64url
)

const (
	grantTokenExchange = "urn:ietf:params:oauth:grant-type:token-exchange"
	tokenTypeIDJAG     = "urn:ietf:params:oauth:token-type:id-jag"
	// tokenTypeNone is the token_type of tokens that are not access tokens.
	tokenTypeNone = "N_A"
)

// EnterpriseOptions configures [NewEnterpriseGrant].
type EnterpriseOptions struct {
	// Issuer is the identity provider, whose metadata names its token endpoint. It or TokenEndpoint
	// is required.
	Issuer string
	// TokenEndpoint is the identity provider's token endpoint. Default: that of Issuer's metadata.
	TokenEndpoint string
	// ClientID is the client at the identity provider, to which Subject's tokens were issued. It is
	// required.
	ClientID string
	// ClientSecret or ClientKey authenticate the client at the identity provider. Default: it is a
	// public client. ClientKey needs Issuer, which is the audience of the assertion.
	ClientSecret string
	ClientKey    *AssertionKey
	// Subject returns the token that identifies the user, and its type, such as [TokenTypeID]. It
	// is called whenever tokens are needed and must be safe for concurrent use. It is required.
	Subject func(ctx context.Context) (token, tokenType string, err error)
}

// NewEnterpriseGrant returns the grant of enterprise-managed authorization: the user logged in
// at the identity provider of the company, which decides for each MCP server whether the user may
// use it. No browser is opened. At the authorization server of the MCP server the client is that of
// TransportOptions.Client.
//
// The tokens belong to a single user, so a Transport with this grant needs a Store for each user.
// An invalid option is the error of every request. The Grant is safe for concurrent use.
//
// Spec: extension [ExtensionEnterpriseManaged]; RFC 8693, section 2; RFC 7523, section 2.1.
func NewEnterpriseGrant(opts *EnterpriseOptions) Grant {
	return &enterprise{*cmp.Or(opts, new(EnterpriseOptions))}
}

type enterprise struct{ EnterpriseOptions }

func (*enterprise) extension() string { return ExtensionEnterpriseManaged }

func (g *enterprise) obtain(ctx context.Context, r *grantRequest) (*TokenSet, error) {
	if err := g.validate(r.discovery); err != nil {
		return nil, err
	}
	// Check the client first, before the user's token leaves the machine.
	client, err := r.transport.configured(r.discovery)
	if err != nil {
		return nil, err
	}
	if err := r.transport.prover.CheckServer(r.discovery.Server.DPoPAlgorithms); err != nil {
		return nil, err
	}
	jag, scopes, err := g.exchange(ctx, r)
	if err != nil {
		return nil, fmt.Errorf("oauth: token exchange at the identity provider: %w", err)
	}
	form := scopedForm(grantJWTBearer, scopes)
	form.Set("assertion", jag)
	return r.tokenEndpoint(client).grant(ctx, form)
}

func (g *enterprise) validate(d *discovery) error {
	switch {
	case g.Issuer == "" && g.TokenEndpoint == "":
		return errors.New("oauth: EnterpriseOptions needs Issuer or TokenEndpoint")
	case g.Issuer == "" && g.ClientKey != nil:
		return errors.New("oauth: EnterpriseOptions.ClientKey needs Issuer, the audience of its assertions")
	case g.ClientID == "":
		return errors.New("oauth: EnterpriseOptions.ClientID is empty")
	case g.Subject == nil:
		return errors.New("oauth: EnterpriseOptions.Subject is nil")
	case d.Conventional || d.Resource == "":
		return errors.New("oauth: enterprise-managed authorization needs Protected Resource Metadata of the server")
	}
	return nil
}

// exchange obtains an identity assertion authorization grant (ID-JAG) from the identity provider.
// Spec: extension io.modelcontextprotocol/enterprise-managed-authorization, Token Exchange.
func (g *enterprise) exchange(ctx context.Context, r *grantRequest) (jag string, scopes []string, err error) {
	endpoint, err := g.identityProvider(ctx, r)
	if err != nil {
		return "", nil, err
	}
	token, tokenType, err := g.Subject(ctx)
	if err != nil {
		return "", nil, fmt.Errorf("EnterpriseOptions.Subject: %w", err)
	}
	if !isSendable(token) || tokenType == "" {
		return "", nil, errors.New("EnterpriseOptions.Subject: invalid token or type: must be printable ASCII")
	}
	form := scopedForm(grantTokenExchange, r.scopes)
	form.Set("requested_token_type", tokenTypeIDJAG)
	form.Set("audience", r.discovery.Server.Issuer)
	form.Set("resource", r.discovery.Resource)
	form.Set("subject_token", token)
	form.Set("subject_token_type", tokenType)
	response, err := endpoint.send(ctx, form)
	switch {
	case err != nil:
		return "", nil, err
	case response.IssuedTokenType != tokenTypeIDJAG:
		return "", nil, fmt.Errorf("invalid issued_token_type %q: must be "+tokenTypeIDJAG,
			oauthfetch.CleanText(response.IssuedTokenType, oauthfetch.MaxErrorText))
	case !strings.EqualFold(response.TokenType, tokenTypeNone):
		return "", nil, fmt.Errorf("invalid token_type %q: must be "+tokenTypeNone,
			oauthfetch.CleanText(response.TokenType, oauthfetch.MaxErrorCode))
	}
	scopes = r.scopes
	if response.Scope != nil {
		scopes = boundedScopes(textOf(response.Scope))
	}
	return response.AccessToken, scopes, nil
}

// identityProvider returns the identity provider's token endpoint. The program names it, not a
// server, so its address may be private.
func (g *enterprise) identityProvider(ctx context.Context, r *grantRequest) (*tokenEndpoint, error) {
	at, err := url.Parse(cmp.Or(g.TokenEndpoint, g.Issuer))
	if err != nil || at.Host == "" {
		return nil, errors.New("invalid Issuer or TokenEndpoint: must be a URL with a host")
	}
	fetcher := r.transport.fetcher.For(at)
	server := &oauth.ServerMetadata{Issuer: g.Issuer, TokenEndpoint: g.TokenEndpoint}
	if g.TokenEndpoint == "" {
		if server, err = (*oauth.Fetcher)(fetcher).FetchServerMetadata(ctx, g.Issuer); err != nil {
			return nil, err
		}
	}
	return &tokenEndpoint{
		fetcher: fetcher, server: server, key: g.ClientKey,
		registration: &Registration{Issuer: g.Issuer, ClientID: g.ClientID, ClientSecret: g.ClientSecret},
	}, nil
}
