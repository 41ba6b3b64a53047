package oauthclient

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/oauthwire"
	"github.com/patchbay-mcp/patchbay/oauth"
)

// Identity is how authorization servers know the program. The zero value is right for a program
// that is registered nowhere: it uses Dynamic Client Registration where that is possible.
//
// Spec: basic/authorization/client-registration (2026-07-28).
type Identity struct {
	// ID is the client_id of a client that is registered in advance at the authorization server
	// Issuer. Default: none.
	ID string
	// Secret or Key authenticate that client. Default: it is a public client.
	Secret string
	// Key is for authorization servers that accept signed assertions (private_key_jwt).
	Key *AssertionKey
	// Issuer is the only authorization server to use, as its metadata spells it. ID and Secret are
	// sent to no other server; without ID it is where the client registers, and where a workload
	// sends its assertion. If the MCP server names only others, a login fails with an
	// [*IssuerError]. It is also required for an authorization server that shows its login page at
	// another host and sends no iss in responses: the client cannot distinguish it from an
	// attacker's. Default: the server that the MCP server names, if ID is empty.
	Issuer string
	// InsecureAnyIssuer allows ID and Secret without Issuer, at the authorization server that the
	// MCP server names first: an attacker who controls the MCP server can then obtain them.
	// Default: a login with ID and without Issuer is an error.
	InsecureAnyIssuer bool
	// InsecureUnlistedPKCE allows logins at an authorization server whose metadata lists no PKCE
	// methods, such as Amazon Cognito and Microsoft Entra ID. The client sends PKCE with S256
	// nevertheless; if the server ignores it, a stolen code can be redeemed. It requires Issuer,
	// unless InsecureAnyIssuer is set. Default: such a login fails with a [*PKCEError].
	InsecureUnlistedPKCE bool
	// OmitResource omits the parameter resource (RFC 8707), which some authorization servers
	// refuse. The tokens are then not bound to the MCP server. It requires Issuer, unless
	// InsecureAnyIssuer is set. Default: resource is sent.
	OmitResource bool
	// AuthMethod is the authentication method of ID, such as client_secret_basic. Default: a method
	// that the metadata of the authorization server names.
	AuthMethod string
	// MetadataURL is the URL of the program's Client ID Metadata Document, which is the client_id
	// at authorization servers that support it. It must be https and contain a path. Default: none.
	MetadataURL string
	// Metadata describes the program for Dynamic Client Registration. RedirectURIs are the URIs
	// that the Authorizer may use, also with ID and MetadataURL; a URI with a loopback host and no
	// port allows any port. Default: the name of the program, and a redirect URI that the
	// Authorizer chooses.
	Metadata oauth.ClientMetadata
}

func (c *Identity) validate() error {
	var all []error
	fail := func(format string, args ...any) {
		all = append(all, fmt.Errorf("oauth: invalid client "+format, args...))
	}
	if c.ID != "" && !oauthwire.IsCredential(c.ID) {
		fail("id %.200q: must be at most 4 KiB of printable ASCII", c.ID)
	}
	if c.Secret != "" && !oauthwire.IsCredential(c.Secret) {
		fail("secret: must be at most 4 KiB of printable ASCII")
	}
	if c.ID == "" && (c.Secret != "" || c.AuthMethod != "") {
		fail("id: must be set if there is a secret or a method of authentication")
	}
	if (c.InsecureUnlistedPKCE || c.OmitResource) && c.Issuer == "" && !c.InsecureAnyIssuer {
		fail("issuer: must be set if insecureUnlistedPKCE or omitResource is: they are for one authorization server")
	}
	if c.MetadataURL != "" {
		if err := oauth.CheckClientIDURL(c.MetadataURL); err != nil {
			fail("metadata URL: %w", err)
		}
	}
	for _, uri := range c.Metadata.RedirectURIs {
		if err := oauth.CheckRedirectURI(uri); err != nil {
			fail("redirect URI: %w", err)
		}
	}
	return errors.Join(all...)
}

// A PKCEError reports a login at an authorization server whose metadata does not list the PKCE
// method S256. Only the request for its metadata was sent to the server; see
// [Identity].InsecureUnlistedPKCE.
//
// Spec: basic/authorization, Authorization Code Protection.
type PKCEError struct {
	Issuer  string   // the authorization server
	Methods []string // the PKCE methods that its metadata lists; may be empty
}

// Error names the issuer and its PKCE methods.
func (e *PKCEError) Error() string {
	if len(e.Methods) == 0 {
		return fmt.Sprintf("oauth: the authorization server %s lists no PKCE methods "+
			"(code_challenge_methods_supported), and a safe login requires S256: if it supports PKCE all the same, "+
			"set insecureUnlistedPKCE for this issuer", e.Issuer)
	}
	return fmt.Sprintf("oauth: the authorization server %s supports the PKCE methods %.64q only, and a safe login "+
		"requires S256", e.Issuer, e.Methods)
}

// An IssuerError reports a login that is bound to an authorization server while the MCP server
// names another. The other server received only the request for its metadata.
type IssuerError struct {
	Want string // of the options; empty if they contain an ID without Issuer
	Got  string // that the MCP server names
}

// Error names both.
func (e *IssuerError) Error() string {
	if e.Want == "" {
		return "oauth: the client ID is configured without its issuer: configure it too; the MCP server names " + e.Got
	}
	return fmt.Sprintf("oauth: the login is for the authorization server %s and the MCP server names %s: if it has "+
		"moved, change the configured issuer or log out first", e.Want, e.Got)
}

// configured returns the client of the options. Spec:
// basic/authorization/client-registration#pre-registration (2026-07-28).
func (t *Transport) configured(d *discovery) (*Registration, error) {
	c := &t.client
	if c.ID == "" {
		return nil, errors.New("oauth: the grant needs a registered client: configure its client ID")
	}
	want := c.Issuer
	if want == "" && c.InsecureAnyIssuer {
		t.mu.Lock()
		want = cmp.Or(t.record, &serverRecord{Issuer: d.Issuer}).Issuer
		t.mu.Unlock()
	}
	if !oauthwire.IsSameIssuer(want, d.Issuer) {
		return nil, &IssuerError{Want: want, Got: d.Issuer}
	}
	return &Registration{Issuer: d.Issuer, ClientID: c.ID, ClientSecret: c.Secret, AuthMethod: c.AuthMethod}, nil
}

// A clientKind is how the authorization server knows the client.
type clientKind uint8

const (
	clientConfigured clientKind = iota
	clientDocument              // a Client ID Metadata Document
	clientRegistered            // dynamically
)

// clientKind chooses how the authorization server knows the client. Spec:
// basic/authorization/client-registration (2026-07-28): the order.
func (t *Transport) clientKind(d *discovery) (clientKind, error) {
	switch {
	case t.client.ID != "":
		return clientConfigured, nil
	case t.client.MetadataURL != "" && d.Server.SupportsClientMetadata:
		return clientDocument, nil
	case d.Server.RegistrationEndpoint != "":
		return clientRegistered, nil
	case d.Server.SupportsClientMetadata:
		return 0, fmt.Errorf("oauth: the authorization server %s accepts only Client ID Metadata Documents: "+
			"configure the URL of one", d.Issuer)
	}
	return 0, fmt.Errorf("oauth: the authorization server %s does not support Dynamic Client Registration: register "+
		"a client there and configure its client ID and issuer", d.Issuer)
}

// redirectURIs returns the registered redirect URIs, nil if any is possible.
func (t *Transport) redirectURIs(ctx context.Context, d *discovery, kind clientKind) []string {
	if len(t.client.Metadata.RedirectURIs) > 0 || kind != clientRegistered {
		return t.client.Metadata.RedirectURIs
	}
	stored, err := load[Registration](ctx, t.store, clientKey(d.Issuer))
	if err != nil || !isUsable(stored, d.Issuer) {
		return nil
	}
	return stored.RedirectURIs
}

// clientFor returns the client for a login with a redirect URI, and registers it if necessary.
func (t *Transport) clientFor(
	ctx context.Context, d *discovery, kind clientKind, redirectURI string,
) (*Registration, error) {
	switch kind {
	case clientConfigured:
		return t.configured(d)
	case clientDocument:
		return t.documentClient(d.Issuer), nil
	case clientRegistered:
	}
	var got *Registration
	err := t.store.Update(ctx, clientKey(d.Issuer), func(old []byte) ([]byte, error) {
		stored, err := decodeStored[Registration](old)
		if err == nil && isUsable(stored, d.Issuer) && slices.Contains(stored.RedirectURIs, redirectURI) {
			got = stored
			return old, nil
		}
		fetcher := t.fetcher.Within(t.endpoint, d.scope)
		if got, err = register(ctx, fetcher, d.Server, t.describe(redirectURI), redirectURI); err != nil {
			var refused *RegistrationError
			if d.NotFound != nil && errors.As(err, &refused) && refused.Code == "" {
				return nil, fmt.Errorf("%w; its default endpoint %s (revision 2025-03-26) does not work either: %w",
					d.NotFound, d.Server.RegistrationEndpoint, err)
			}
			return nil, err
		}
		return json.Marshal(got)
	})
	if err != nil && got != nil {
		t.log.Error("oauth: the registration of the client was not stored", "issuer", d.Issuer, "error", err)
		err = nil
	}
	return got, err
}

func isUsable(c *Registration, issuer string) bool {
	return c != nil && c.Issuer == issuer && (c.SecretExpires.IsZero() || time.Now().Before(c.SecretExpires))
}

// documentClient returns the client that the Client ID Metadata Document describes. It is the same
// at every authorization server.
func (t *Transport) documentClient(issuer string) *Registration {
	c := &Registration{Issuer: issuer, ClientID: t.client.MetadataURL, AuthMethod: oauthwire.AuthNone}
	if t.client.Key != nil {
		c.AuthMethod = oauthwire.AuthPrivateKey
	}
	return c
}

func (t *Transport) describe(redirectURI string) *oauth.ClientMetadata {
	m := t.client.Metadata
	m.Name = t.programName()
	if len(m.RedirectURIs) == 0 {
		m.RedirectURIs = bothLoopbacks(redirectURI)
	}
	if !slices.Contains(m.RedirectURIs, redirectURI) {
		m.RedirectURIs = append(slices.Clone(m.RedirectURIs), redirectURI)
	}
	return &m
}

func (t *Transport) programName() string {
	return cmp.Or(t.client.Metadata.Name, strings.TrimSuffix(filepath.Base(os.Args[0]), ".exe"))
}

// bothLoopbacks returns a loopback redirect URI with 127.0.0.1 and with localhost: servers differ
// in which they accept, and compare them as text.
func bothLoopbacks(redirectURI string) []string {
	u, err := url.Parse(redirectURI)
	if err != nil || u.Hostname() != "127.0.0.1" {
		return []string{redirectURI}
	}
	u.Host = "localhost:" + u.Port()
	return []string{redirectURI, u.String()}
}

func (t *Transport) clientOf(ctx context.Context, tokens *TokenSet) (*Registration, error) {
	c := &t.client
	switch {
	case tokens.ClientID == "": // a grant that needs no client
		return &Registration{Issuer: tokens.Issuer, AuthMethod: oauthwire.AuthNone}, nil
	case tokens.ClientID == c.ID:
		return t.configured(&discovery{Issuer: tokens.Issuer})
	case tokens.ClientID == c.MetadataURL:
		return t.documentClient(tokens.Issuer), nil
	}
	isOwner := func(r *Registration) bool {
		return r != nil && r.ClientID == tokens.ClientID && r.Issuer == tokens.Issuer
	}
	if isOwner(tokens.Client) {
		return tokens.Client, nil
	}
	if stored, err := load[Registration](ctx, t.store, clientKey(tokens.Issuer)); err != nil || isOwner(stored) {
		return stored, err
	}
	return &Registration{Issuer: tokens.Issuer, ClientID: tokens.ClientID, AuthMethod: oauthwire.AuthNone}, nil
}

// forgetClient removes a registration that the authorization server no longer knows.
func (t *Transport) forgetClient(ctx context.Context, c *Registration) error {
	err := t.store.Update(ctx, clientKey(c.Issuer), func(old []byte) ([]byte, error) {
		stored, err := decodeStored[Registration](old)
		if err == nil && stored != nil && stored.ClientID != c.ClientID {
			return old, nil // replaced meanwhile
		}
		return nil, nil
	})
	if err != nil {
		return fmt.Errorf("oauth: write to the store: %w", err)
	}
	return nil
}

// documentLifetime is how long the document of a client may be cached.
const documentLifetime = time.Hour

// NewMetadataHandler returns a handler that serves the metadata of a client as a Client ID Metadata
// Document. It must be mounted at the URL that is meta.ClientID. The error is that of
// [oauth.ClientMetadata.Validate]. meta is not retained.
//
// Spec: basic/authorization/client-registration (2025-11-25), Client ID Metadata Documents.
func NewMetadataHandler(meta *oauth.ClientMetadata) (http.Handler, error) {
	if err := meta.Validate(meta.ClientID); err != nil {
		return nil, err
	}
	data, err := json.Marshal(meta)
	if err != nil {
		return nil, fmt.Errorf("oauth: encode the client metadata: %w", err)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.Method != http.MethodGet && req.Method != http.MethodHead {
			w.Header().Set("Allow", "GET, HEAD")
			http.Error(w, http.StatusText(http.StatusMethodNotAllowed), http.StatusMethodNotAllowed)
			return
		}
		h := w.Header()
		h.Set("Content-Type", "application/json")
		h.Set("Cache-Control", "public, max-age="+strconv.Itoa(int(documentLifetime/time.Second)))
		h.Set("X-Content-Type-Options", "nosniff")
		http.ServeContent(w, req, "", time.Time{}, bytes.NewReader(data))
	}), nil
}
