package authserver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
)

const (
	grantCode    = "authorization_code"
	grantRefresh = "refresh_token"
	grantClient  = "client_credentials"
	// Spec: RFC 7523, section 2.1. The assertion is an ID-JAG.
	grantAssertion = "urn:ietf:params:oauth:grant-type:jwt-bearer"

	authNone  = "none"
	authBasic = "client_secret_basic"
	authPost  = "client_secret_post"
	authKey   = "private_key_jwt"
)

type clientOrigin string

const (
	originOperator clientOrigin = "operator" // pre-registered
	originItself   clientOrigin = "itself"   // dynamic registration: unverified
	originDocument clientOrigin = "document" // a document at the host of its ID
)

const (
	maxClientID = 2 << 10        // bytes; the longest are URLs
	unusedTime  = 24 * time.Hour // after which an unused registration expires
	// The lifetime of a registration after its last use, and the interval at which uses are
	// recorded.
	clientTime  = 365 * 24 * time.Hour
	clientTouch = 24 * time.Hour

	kindClient    = "client"
	kindNewClient = "new-client" // registered and not used yet
)

type client struct {
	ID           string       `json:"id"`
	Name         string       `json:"name,omitempty"`
	URI          string       `json:"uri,omitempty"`
	LogoURI      string       `json:"logo_uri,omitempty"`
	PolicyURI    string       `json:"policy_uri,omitempty"`
	TermsURI     string       `json:"tos_uri,omitempty"`
	Origin       clientOrigin `json:"origin"`
	RedirectURIs []string     `json:"redirect_uris,omitempty"`
	Grants       []string     `json:"grants,omitempty"`
	// Auth is the authentication method. With client_secret_basic and client_secret_post, both are
	// accepted.
	Auth       string    `json:"auth"`
	SecretHash string    `json:"secret,omitempty"`
	JWKSURI    string    `json:"jwks_uri,omitempty"`
	Registered time.Time `json:"registered,omitzero"`
	Used       time.Time `json:"used,omitzero"`
	IndexPart  string    `json:"index,omitempty"` // of newClientIndex, until the first use

	keys       []jose.JSONWebKey // of pre-registered clients
	resources  []string          // resourceKeys of the resources that it may access; nil for all
	scopes     []string          // nil for all
	introspect []string          // resourceKeys of the resources whose tokens it may introspect
}

var (
	usedClients = recordKind[client]{kindClient, errNoClient,
		func(c *client) time.Time { return c.Used.Add(clientTime) }}
	newClients = recordKind[client]{kindNewClient, errNoClient,
		func(c *client) time.Time { return c.Registered.Add(unusedTime) }}
)

func (c *client) isPublic() bool { return c.Auth == authNone }

func (c *client) mayUse(grant string) bool { return slices.Contains(c.Grants, grant) }

func (c *client) mayAccess(res *Resource) bool {
	return c.resources == nil || slices.Contains(c.resources, resourceKey(res.URL))
}

func (c *client) mayHave(scope string) bool {
	return c.scopes == nil || slices.Contains(c.scopes, scope)
}

// actingForItself returns the client with the scopes that it can get by client_credentials. No user
// is asked there, so scopes with OnRequest need the operator's permission in Client.Scopes.
func (c *client) actingForItself(res *Resource) *client {
	if c.scopes != nil {
		return c
	}
	itself := *c
	itself.scopes = append([]string{}, res.initialScopes()...)
	return &itself
}

func knownClients(o *Options) (map[string]*client, error) {
	known := map[string]*client{}
	var errs []error
	for _, oc := range o.Clients {
		c, err := knownClient(oc, o.Resources)
		if err != nil {
			errs = append(errs, fmt.Errorf("client %q: %w", oc.ID, err))
			continue
		}
		if known[c.ID] != nil {
			errs = append(errs, fmt.Errorf("duplicate client %q", oc.ID))
		}
		known[c.ID] = c
	}
	return known, errors.Join(errs...)
}

func knownClient(o Client, all []Resource) (*client, error) {
	c := &client{
		ID: o.ID, Name: o.Name, URI: o.URI, Origin: originOperator, RedirectURIs: slices.Clone(o.RedirectURIs),
		Grants: slices.Clone(o.Grants), Auth: authNone, SecretHash: o.SecretHash, scopes: slices.Clone(o.Scopes),
	}
	c.Name = cmp.Or(c.Name, c.ID)
	if !isClientID(c.ID) {
		return nil, fmt.Errorf("invalid ID: must be 1 to %d printable ASCII characters without spaces", maxClientID)
	}
	for _, uri := range c.RedirectURIs {
		if err := checkRedirectURI(uri); err != nil {
			return nil, fmt.Errorf("redirect URI %q: %w", uri, err)
		}
	}
	switch {
	case len(o.Keys) > 0 && o.SecretHash != "":
		return nil, errors.New("both SecretHash and Keys are set")
	case len(o.Keys) > 0:
		c.Auth = authKey
	case o.SecretHash != "" && !isHash(o.SecretHash):
		return nil, errors.New("invalid SecretHash: must come from NewClientSecret or HashClientSecret")
	case o.SecretHash != "":
		c.Auth = authBasic
	}
	for _, key := range o.Keys {
		if _, err := algorithmOf(key); err != nil {
			return nil, err
		}
		c.keys = append(c.keys, jose.JSONWebKey{Key: key})
	}
	if err := c.checkGrants(); err != nil {
		return nil, err
	}
	var err error
	if c.resources, err = knownResources(o.Resources, all); err != nil {
		return nil, err
	}
	c.introspect, err = knownResources(o.Introspects, all)
	if c.introspect != nil && c.isPublic() {
		return nil, errors.New("Introspects requires SecretHash or Keys")
	}
	return c, err
}

func (c *client) checkGrants() error {
	if c.Grants == nil {
		switch {
		case len(c.RedirectURIs) > 0:
			c.Grants = []string{grantCode, grantRefresh}
		case !c.isPublic():
			c.Grants = []string{grantClient}
		}
	}
	for _, g := range c.Grants {
		switch {
		case g != grantCode && g != grantRefresh && g != grantClient && g != grantAssertion:
			return fmt.Errorf("unsupported grant type %q", g)
		case (g == grantClient || g == grantAssertion) && c.isPublic():
			return fmt.Errorf("%s requires SecretHash or Keys", g)
		case g == grantCode && len(c.RedirectURIs) == 0:
			return errors.New("authorization_code requires RedirectURIs")
		}
	}
	return nil
}

func knownResources(urls []string, all []Resource) ([]string, error) {
	var keys []string
	for _, u := range urls {
		key := resourceKey(u)
		if !slices.ContainsFunc(all, func(r Resource) bool { return resourceKey(r.URL) == key }) {
			return nil, fmt.Errorf("resource %q is not listed in Options.Resources", u)
		}
		keys = append(keys, key)
	}
	return keys, nil
}

func isClientID(id string) bool { return id != "" && len(id) <= maxClientID && isPrintable(id) }

var errNoClient = errors.New("unknown client")

// client returns the client with an ID. The error is errNoClient if there is none, and an
// *oauthError if its metadata document is not valid.
func (s *Server) client(ctx context.Context, id string) (*client, error) {
	if !isClientID(id) {
		return nil, errNoClient
	}
	if c := s.known[id]; c != nil {
		return c, nil
	}
	if isDocumentID(id) {
		if s.o.ClientMetadata.Disabled {
			return nil, errNoClient
		}
		return s.documentClient(ctx, id)
	}
	return s.storedClient(ctx, id)
}

// storedClient returns the registered client with an ID.
func (s *Server) storedClient(ctx context.Context, id string) (*client, error) {
	// again, in case it was moved between the lookups
	for _, kind := range []recordKind[client]{usedClients, newClients, usedClients} {
		if c, err := kind.get(ctx, s.store, id); !errors.Is(err, errNoClient) {
			return c, err
		}
	}
	return nil, errNoClient
}

// checkRemains returns errNoClient if a client has been removed or is no longer allowed. It does
// not fetch a metadata document: the document is read again at the next token request.
func (s *Server) checkRemains(ctx context.Context, id string) error {
	if s.known[id] != nil {
		return nil
	}
	if isDocumentID(id) {
		u, err := url.Parse(id)
		if err != nil || s.o.ClientMetadata.Disabled || !s.documents.allows(u.Hostname()) {
			return errNoClient
		}
		return nil
	}
	_, err := s.storedClient(ctx, id)
	return err
}

// isDocumentID reports whether an ID is meant as the URL of a Client ID Metadata Document, valid or
// not. The IDs that this server issues contain no "://".
func isDocumentID(id string) bool {
	u, err := url.Parse(id)
	return err == nil && u.Scheme != "" && strings.Contains(id, "://")
}

// useClient records that a client gets a token. Until the first token, a registration expires soon
// and a document is cached in memory only.
func (s *Server) useClient(ctx context.Context, c *client) error {
	if c.Origin == originDocument {
		return s.documents.remember(ctx, c.ID)
	}
	now := time.Now()
	if c.Origin != originItself || now.Sub(c.Used) < clientTouch {
		return nil
	}
	used := *c
	used.Used, used.IndexPart = now, ""
	if err := usedClients.put(ctx, s.store, c.ID, &used); err != nil {
		return err
	}
	_, err := s.store.GetAndDelete(ctx, kindNewClient, c.ID)
	if err == nil && c.IndexPart != "" {
		err = s.newClientIndex().remove(ctx, s.store, c.IndexPart, c.ID)
	}
	return err
}
