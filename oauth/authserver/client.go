package authserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
)

// The grant types, and the ways of a client to prove who it is.
const (
	grantCode    = "authorization_code"
	grantRefresh = "refresh_token"
	grantClient  = "client_credentials"

	authNone  = "none"
	authBasic = "client_secret_basic"
	authPost  = "client_secret_post"
	authKey   = "private_key_jwt"
)

// A clientOrigin is where what is known of a client comes from.
type clientOrigin string

const (
	originOperator clientOrigin = "operator" // who vouches for it
	originItself   clientOrigin = "itself"   // it has registered; nobody vouches for anything
	originDocument clientOrigin = "document" // the host of its id vouches for it
)

const (
	// maxClientID bounds the id of a client. The longest are URLs.
	maxClientID = 2 << 10
	// unusedTime is how long a registered client has until its first use.
	unusedTime = 24 * time.Hour
	// clientTime is how long a registered client is kept after its last use, so that those of programs that are gone do
	// not pile up, and clientTouch how much of it passes before a use is noted.
	clientTime  = 365 * 24 * time.Hour
	clientTouch = 24 * time.Hour

	kindClient    = "client"
	kindNewClient = "new-client" // not used yet
)

// A client is what the server knows of a client.
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
	// Auth is how the client proves who it is. A secret may come in either form, whichever stands here.
	Auth       string    `json:"auth"`
	SecretHash string    `json:"secret,omitempty"`
	JWKSURI    string    `json:"jwks_uri,omitempty"`
	Registered time.Time `json:"registered,omitzero"`
	Used       time.Time `json:"used,omitzero"`

	keys       []jose.JSONWebKey // of the operator's clients
	resources  []string          // resourceKeys that it may reach; nil for all
	scopes     []string          // nil for all
	introspect []string          // resourceKeys whose tokens it may ask about
}

// isPublic reports whether the client cannot prove who it is.
func (c *client) isPublic() bool { return c.Auth == authNone }

func (c *client) mayUse(grant string) bool { return slices.Contains(c.Grants, grant) }

func (c *client) mayReach(res *Resource) bool {
	return c.resources == nil || slices.Contains(c.resources, resourceKey(res.URL))
}

func (c *client) mayHave(scope string) bool {
	return c.scopes == nil || slices.Contains(c.scopes, scope)
}

// actingForItself returns the client as it is where no person is asked: what is kept for those who ask is then the
// operator's to allow, by naming it.
func (c *client) actingForItself(res *Resource) *client {
	if c.scopes != nil {
		return c
	}
	itself := *c
	itself.scopes = []string{}
	for _, sc := range res.Scopes {
		if !sc.OnRequest {
			itself.scopes = append(itself.scopes, sc.Name)
		}
	}
	return &itself
}

// knownClients returns the clients of the operator.
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
			errs = append(errs, fmt.Errorf("client %q stands twice", oc.ID))
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
	setDefault(&c.Name, c.ID)
	if !isClientID(c.ID) {
		return nil, errors.New("its ID is empty, too long, or not of printable ASCII without spaces")
	}
	for _, uri := range c.RedirectURIs {
		if err := checkRedirectURI(uri); err != nil {
			return nil, fmt.Errorf("redirect URI %q: %w", uri, err)
		}
	}
	switch {
	case len(o.Keys) > 0 && o.SecretHash != "":
		return nil, errors.New("it has both a secret and keys")
	case len(o.Keys) > 0:
		c.Auth = authKey
	case o.SecretHash != "" && !isHash(o.SecretHash):
		return nil, errors.New("its SecretHash is none of NewClientSecret or HashClientSecret")
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
		return nil, errors.New("it introspects tokens, and has neither a secret nor keys")
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
		case g != grantCode && g != grantRefresh && g != grantClient:
			return fmt.Errorf("%q is no grant type of this server", g)
		case g == grantClient && c.isPublic():
			return errors.New("client_credentials needs a secret or keys")
		case g == grantCode && len(c.RedirectURIs) == 0:
			return errors.New("authorization_code needs a redirect URI")
		}
	}
	return nil
}

func knownResources(urls []string, all []Resource) ([]string, error) {
	var keys []string
	for _, u := range urls {
		key := resourceKey(u)
		if !slices.ContainsFunc(all, func(r Resource) bool { return resourceKey(r.URL) == key }) {
			return nil, fmt.Errorf("%q is none of Options.Resources", u)
		}
		keys = append(keys, key)
	}
	return keys, nil
}

func isClientID(id string) bool {
	return id != "" && len(id) <= maxClientID && !strings.ContainsFunc(id, func(r rune) bool { return r <= ' ' || r > '~' })
}

// errNoClient is the error for a client that is not known here.
var errNoClient = errors.New("the client is not known")

// client returns the client of an id: errNoClient if there is none, an *oauthError if its document is no good.
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
	for _, kind := range []string{kindClient, kindNewClient, kindClient} { // the last for one that has moved meanwhile
		value, err := s.store.Get(ctx, kind, id)
		if err != nil {
			return nil, err
		}
		if value != nil {
			c := new(client)
			return c, json.Unmarshal(value, c)
		}
	}
	return nil, errNoClient
}

// isDocumentID reports whether an id is the URL of a Client ID Metadata Document, well made or not. An id that this
// server returns never looks like one.
func isDocumentID(id string) bool {
	u, err := url.Parse(id)
	return err == nil && u.Scheme != "" && strings.Contains(id, "://")
}

// useClient notes that a client has come to its first token, or to one after a long time. Until then a registration is
// nothing but a claim, and a document is one of many.
func (s *Server) useClient(ctx context.Context, c *client) error {
	if c.Origin == originDocument {
		return s.documents.remember(ctx, c.ID)
	}
	now := time.Now()
	if c.Origin != originItself || now.Sub(c.Used) < clientTouch {
		return nil
	}
	used := *c
	used.Used = now
	value, err := json.Marshal(&used)
	if err != nil {
		return err
	}
	if err := s.store.Put(ctx, kindClient, c.ID, value, now.Add(clientTime)); err != nil {
		return err
	}
	_, err = s.store.Take(ctx, kindNewClient, c.ID)
	return err
}
