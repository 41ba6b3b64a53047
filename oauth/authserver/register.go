package authserver

import (
	"cmp"
	"context"
	"crypto/subtle"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/patchbay-mcp/patchbay/internal/netx"
	"github.com/patchbay-mcp/patchbay/internal/oauthfetch"
	"github.com/patchbay-mcp/patchbay/oauth"
	"github.com/patchbay-mcp/patchbay/visible"
)

const (
	// The maximum number of redirect URIs of a client, and the maximum length of its name in bytes.
	maxRedirectURIs = 20
	maxClientName   = 200
	// maxRedirects is the maximum length of all redirect URIs of a registered client together, and
	// maxRegistration that of its record, in bytes: 10,000 unused clients take at most 80 MB.
	maxRedirects    = 4 << 10
	maxRegistration = 8 << 10
)

// Spec: RFC 7591, section 3.2.1.
type registrationResponse struct {
	ID            string `json:"client_id"`
	IssuedAt      int64  `json:"client_id_issued_at"`
	Secret        string `json:"client_secret,omitempty"`
	SecretExpires *int64 `json:"client_secret_expires_at,omitempty"`
	oauth.ClientMetadata
}

// register serves the registration endpoint. The metadata of the client is unverified, and the
// consent page says so. Spec: RFC 7591, section 3.
func (s *Server) register(r *http.Request) (*registrationResponse, error) {
	c, response, err := s.readRegistration(r)
	if limit := addressLimitOf(r.Context()); limit.isExceeded {
		if err != nil || !s.limits.allowRegistrationFor(c.RedirectURIs) {
			return nil, limit.refusal()
		}
	}
	if err != nil {
		return nil, err
	}
	return response, s.putNewClient(r.Context(), c)
}

// allowRegistrationFor counts a registration for the host of the redirect URIs, if they share a
// single host that is not the user's machine.
func (l *limits) allowRegistrationFor(redirects []string) bool {
	host := ""
	for i, uri := range redirects {
		u, err := url.Parse(uri)
		if err != nil || u.Scheme != "https" || netx.IsLoopback(u.Hostname()) || i > 0 && u.Hostname() != host {
			return false
		}
		host = u.Hostname()
	}
	_, ok := l.cost(limitRegistrationHosts, host).reserve()
	return ok
}

func (s *Server) readRegistration(r *http.Request) (*client, *registrationResponse, error) {
	if err := s.checkRegistrationToken(r); err != nil {
		return nil, nil, err
	}
	m, err := readMetadata(r)
	if err != nil {
		return nil, nil, err
	}
	c, err := registeredClient(m)
	if err != nil {
		return nil, nil, err
	}
	response := &registrationResponse{ID: c.ID, IssuedAt: c.Registered.Unix(), ClientMetadata: *m}
	if !c.isPublic() {
		response.Secret, c.SecretHash = NewClientSecret()
		response.SecretExpires = new(int64) // never
	}
	return c, response, nil
}

func (s *Server) checkRegistrationToken(r *http.Request) error {
	hash := s.o.Registration.TokenHash
	if hash == "" {
		return nil
	}
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	ok := subtle.ConstantTimeCompare([]byte(HashClientSecret(token)), []byte(hash)) == 1
	if len(r.Header["Authorization"]) == 1 && strings.EqualFold(scheme, "Bearer") && ok {
		return nil
	}
	return &oauthError{status: http.StatusUnauthorized, code: codeInvalidToken,
		text:      "registration requires an initial access token",
		challenge: `Bearer realm="register"`}
}

func readMetadata(r *http.Request) (*oauth.ClientMetadata, error) {
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || kind != "application/json" {
		return nil, refuse(codeInvalidMetadata, "the Content-Type must be application/json")
	}
	body, err := readBody(r)
	if err != nil {
		return nil, err
	}
	m := new(oauth.ClientMetadata)
	if err := oauthfetch.Decode(body, m); err != nil {
		return nil, refuse(codeInvalidMetadata,
			"the body must be a JSON object with client metadata and without duplicate members")
	}
	return m, nil
}

// registeredClient returns the client with the given metadata, and replaces m by the metadata as
// registered. Spec: RFC 7591, section 2.
func registeredClient(m *oauth.ClientMetadata) (*client, error) {
	if err := checkRegistration(m); err != nil {
		return nil, err
	}
	m.ClientID, m.ResponseTypes = "", []string{"code"}
	m.GrantTypes = slices.DeleteFunc(m.GrantTypes, func(g string) bool { return g != grantCode && g != grantRefresh })
	slices.Sort(m.GrantTypes)
	m.GrantTypes = slices.Compact(m.GrantTypes)
	return &client{
		ID: randomID(), Name: m.Name, URI: m.URI, LogoURI: m.LogoURI, PolicyURI: m.PolicyURI, TermsURI: m.TermsURI,
		Origin: originItself, RedirectURIs: m.RedirectURIs, Grants: m.GrantTypes, Auth: m.TokenEndpointAuthMethod,
		Registered: time.Now(),
	}, nil
}

func checkRegistration(m *oauth.ClientMetadata) error {
	if err := checkRedirects(m.RedirectURIs); err != nil {
		return err
	}
	if m.GrantTypes == nil {
		m.GrantTypes = []string{grantCode}
	}
	m.TokenEndpointAuthMethod = cmp.Or(m.TokenEndpointAuthMethod, authBasic)
	switch {
	case len(m.ResponseTypes) > 0 && !slices.Contains(m.ResponseTypes, "code"):
		return refuse(codeInvalidMetadata, "response_types must contain code")
	case !slices.Contains(m.GrantTypes, grantCode):
		return refuse(codeInvalidMetadata, "grant_types must contain authorization_code")
	case !slices.Contains([]string{authNone, authBasic, authPost}, m.TokenEndpointAuthMethod):
		return refuse(codeInvalidMetadata,
			"token_endpoint_auth_method must be none, client_secret_basic or client_secret_post")
	case m.ApplicationType != "" && m.ApplicationType != "native" && m.ApplicationType != "web":
		return refuse(codeInvalidMetadata, "application_type must be native or web")
	case m.Scope != "" && checkScope(m.Scope) != nil:
		return refuse(codeInvalidMetadata, "scope is malformed")
	}
	return checkShown(m)
}

func checkRedirects(uris []string) error {
	if len(uris) == 0 || len(uris) > maxRedirectURIs {
		return refuse(codeInvalidRedirect, "redirect_uris must have 1 to 20 elements")
	}
	total := 0
	for _, uri := range uris {
		if total += len(uri); total > maxRedirects {
			return refuse(codeInvalidRedirect, "redirect_uris must have at most 4096 bytes together")
		}
		if err := checkRedirectURI(uri); err != nil {
			return refuse(codeInvalidRedirect, "invalid redirect URI: "+err.Error())
		}
	}
	return nil
}

func checkShown(m *oauth.ClientMetadata) error {
	for _, text := range []string{m.Name, m.SoftwareID, m.SoftwareVersion} {
		if len(text) > maxClientName || strings.ContainsFunc(text, visible.Hidden) ||
			strings.ContainsRune(text, unicode.ReplacementChar) {
			return refuse(codeInvalidMetadata, "a name is too long or has invisible characters")
		}
	}
	for _, uri := range []string{m.URI, m.LogoURI, m.PolicyURI, m.TermsURI} {
		if uri != "" && !isShownURL(uri) {
			return refuse(codeInvalidMetadata, "client_uri, logo_uri, policy_uri and tos_uri must be https URLs")
		}
	}
	return nil
}

func isShownURL(uri string) bool {
	u, err := url.Parse(uri)
	return err == nil && len(uri) <= maxRedirectURI && u.Host != "" && u.User == nil &&
		(u.Scheme == "https" || u.Scheme == "http" && netx.IsLoopback(u.Hostname()))
}

func (s *Server) putNewClient(ctx context.Context, c *client) error {
	index, network := s.newClientIndex(), clientNetwork(ctx)
	c.IndexPart = index.part(network)
	value, err := encodeRecord(c)
	if err != nil {
		return err
	}
	if len(value) > maxRegistration {
		return refuse(codeInvalidMetadata, "the client metadata is too long")
	}
	if err := index.add(ctx, s.store, network, c.ID); err != nil {
		return err
	}
	return s.store.Put(ctx, kindNewClient, c.ID, value, newClients.expires(c))
}

func (s *Server) newClientIndex() recordIndex {
	return recordIndex{kindNewClient, s.o.Registration.MaxUnused, unusedTime}
}
