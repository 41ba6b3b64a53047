package authserver

import (
	"crypto"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/patchbay-mcp/patchbay/oauth"
)

const (
	defaultAccess      = 15 * time.Minute
	maxAccess          = time.Hour // of a token that somebody else than this server checks, nobody can take anything back
	defaultRefreshIdle = 14 * 24 * time.Hour
	defaultRefreshMost = 90 * 24 * time.Hour
	defaultMaxUnused   = 10_000
	defaultKeyLifetime = 90 * 24 * time.Hour
)

// Options configures a [Server]. Issuer and Resources are needed, and Login unless all clients are machines; everything
// else may be left zero.
type Options struct {
	// Issuer is the URL of the server, as it stands in tokens and metadata: https, or http at a loopback address, with
	// neither query nor fragment nor a final slash.
	Issuer string
	// Resources are what the tokens are for, at least one.
	Resources []Resource
	// Login finds out who sits at the browser, and what this user may allow. nil is right for servers of machines alone,
	// where no browser comes.
	Login Login
	// Name is what the pages call the server. Default: the host of Issuer.
	Name string
	// Store keeps everything that must survive a restart. Default: one in memory, in which nothing does.
	Store Store
	// SealKeys seal what is secret in the Store: the first one seals, all of them open. See [LoadSealKeys]. Where several
	// servers share a Store, a new key stands behind the first one in all of them before it is the first one in any: what a
	// server cannot open it answers with 503. Default: a key
	// that is made at the first start and kept in the Store itself, in the clear: whoever reads the Store, or a copy of it
	// such as a backup, then has all that is sealed in it, the signing keys and the tokens of third parties among them.
	SealKeys []SealKey
	// SigningKeys sign the access tokens: ECDSA on P-256, P-384 or P-521, Ed25519, or RSA from 2048 bits. The first one
	// signs, all of them are published. Default: ES256 keys that are made as needed, replaced every 90 days with an
	// overlap, and kept in the Store, sealed.
	SigningKeys []crypto.Signer
	// Clients are those that the operator knows. They are shown to users as known.
	Clients []Client
	// Registration says who may register a client. Default: everybody, within limits.
	Registration Registration
	// Documents says whose Client ID Metadata Documents are taken. Default: everybody's.
	ClientMetadata ClientMetadataOptions
	// Lifetimes are those of what is given out.
	Lifetimes Lifetimes
	// Limits are how often one address, client or user may ask.
	Limits LimitOptions
	// Logger takes what is refused and why, and what fails. No secret is written to it. Default: slog.Default().
	Logger *slog.Logger
}

// A Resource is an MCP server, or another service, that takes the tokens of a [Server].
type Resource struct {
	// URL is the identifier of the resource, for an MCP server the URL of its endpoint. Tokens hold it as it stands here.
	URL string
	// Name is what users know it by. Default: the host of URL.
	Name string
	// Scopes are what a client may be allowed there. Whether the user may do what a scope stands for is for
	// [Subject.Scopes], or for the resource, to say.
	Scopes []Scope
}

// A Scope is something that a client may be allowed.
type Scope struct {
	Name        string // as in tokens
	Description string // for users, such as "Read your calendar". Default: Name
	// OnRequest keeps the scope from a client that asks for none in particular, and from one that acts for itself unless
	// [Client.Scopes] names it.
	OnRequest bool
}

// A Client is one that the operator knows. A client with neither a secret nor keys is a public one.
type Client struct {
	ID   string // any printable ASCII without spaces
	Name string // for users. Default: ID
	URI  string // of the client's home page
	// RedirectURIs are compared exactly, but for the port of a loopback address.
	RedirectURIs []string
	// SecretHash is the hash of the client's secret, from [NewClientSecret] or [HashClientSecret].
	SecretHash string
	// Keys are the public keys of a client that signs assertions (private_key_jwt), as *ecdsa.PublicKey,
	// ed25519.PublicKey or *rsa.PublicKey.
	Keys []crypto.PublicKey
	// Grants are the grant types that it may use, among authorization_code, refresh_token and client_credentials.
	// Default: authorization_code and refresh_token, or client_credentials where there are no RedirectURIs.
	Grants []string
	// Resources are the URLs of the resources that it may get tokens for. Default: all. What is taken away here, or from
	// Scopes, is in no token from the next refresh on, whatever users have granted.
	Resources []string
	// Scopes are what it may get at most. Default: all, and by client_credentials, where no user is asked, all but those
	// with [Scope.OnRequest].
	Scopes []string
	// Introspects are the URLs of the resources whose tokens it may ask about, being the server of the resource.
	Introspects []string
}

// Registration is the policy of dynamic client registration.
type Registration struct {
	// Disabled takes no registrations.
	Disabled bool
	// TokenHash, unless empty, is the hash of a token that whoever registers has to show, from [NewClientSecret] or
	// [HashClientSecret].
	TokenHash string
	// MaxUnused is how many clients may wait for their first use, which they have 24 hours for. Default: 10000.
	MaxUnused int
}

// Documents is the policy of Client ID Metadata Documents.
//
// Spec: basic/authorization/client-registration (2026-07-28), Client ID Metadata Documents.
type ClientMetadataOptions struct {
	// Disabled takes no such clients.
	Disabled bool
	// AllowedHosts, if there are any, are the only hosts whose documents are fetched. A name with a leading dot stands for
	// all hosts below it.
	AllowedHosts []string
	// DeniedHosts are hosts whose documents are never fetched, in the same form.
	DeniedHosts []string
	// Fetcher fetches the documents and the keys they point to. Default: one that reaches public addresses alone.
	Fetcher *oauth.Fetcher
}

// Lifetimes are those of what a [Server] gives out.
type Lifetimes struct {
	// Access is how long an access token is valid, at most an hour. Default: 15 minutes.
	Access time.Duration
	// RefreshIdle is how long a refresh token may lie unused. Default: 14 days.
	RefreshIdle time.Duration
	// Refresh is how long a consent can be drawn on by refreshing. Default: 90 days.
	Refresh time.Duration
	// Key is how long an own key signs before another one takes over. Default: 90 days.
	Key time.Duration
}

// NewClientSecret makes a secret for a client, and the hash of it for [Client] or [Registration]. The secret itself is
// not to be kept.
func NewClientSecret() (secret, hash string) {
	secret = randomToken()
	return secret, HashClientSecret(secret)
}

const hashPrefix = "sha256:"

// HashClientSecret returns the hash of a secret for [Client] or [Registration]. Since the hash is a fast one, the secret
// must be made by a machine, of at least 128 random bits.
func HashClientSecret(secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return hashPrefix + base64.RawURLEncoding.EncodeToString(sum[:])
}

// setDefaults fills in what was left zero.
func (o *Options) setDefaults(issuer *url.URL) {
	setDefault(&o.Name, issuer.Host)
	setDefault(&o.Lifetimes.Access, defaultAccess)
	setDefault(&o.Lifetimes.RefreshIdle, defaultRefreshIdle)
	setDefault(&o.Lifetimes.Refresh, defaultRefreshMost)
	setDefault(&o.Lifetimes.Key, defaultKeyLifetime)
	setDefault(&o.Registration.MaxUnused, defaultMaxUnused)
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	o.Resources = slices.Clone(o.Resources)
	for i := range o.Resources {
		r := &o.Resources[i]
		if u, err := url.Parse(r.URL); err == nil {
			setDefault(&r.Name, u.Host)
		}
		r.Scopes = slices.Clone(r.Scopes)
		for j := range r.Scopes {
			setDefault(&r.Scopes[j].Description, r.Scopes[j].Name)
		}
	}
}

func setDefault[T comparable](v *T, value T) {
	var zero T
	if *v == zero {
		*v = value
	}
}

// check says everything that is wrong with the options.
func (o *Options) check() error {
	var errs []error
	if len(o.Resources) == 0 {
		errs = append(errs, errors.New("Options.Resources is empty: a token is always for something"))
	}
	seen := map[string]bool{}
	for _, r := range o.Resources {
		if err := checkResource(r); err != nil {
			errs = append(errs, fmt.Errorf("resource %q: %w", r.URL, err))
		}
		if key := resourceKey(r.URL); seen[key] {
			errs = append(errs, fmt.Errorf("resource %q stands twice", r.URL))
		} else {
			seen[key] = true
		}
	}
	l := o.Lifetimes
	if l.Access < time.Second || l.Access > maxAccess {
		errs = append(errs, fmt.Errorf("Lifetimes.Access is %v, want at most %v", l.Access, maxAccess))
	}
	if l.RefreshIdle < 0 || l.Refresh < 0 || l.Key < 2*keyOverlap {
		errs = append(errs, errors.New("a lifetime is negative, or that of the keys shorter than their overlap"))
	}
	if o.Registration.MaxUnused < 0 {
		errs = append(errs, errors.New("Registration.MaxUnused is negative"))
	}
	if t := o.Registration.TokenHash; t != "" && !isHash(t) {
		errs = append(errs, errors.New("Registration.TokenHash is no hash of NewClientSecret or HashClientSecret"))
	}
	return errors.Join(errs...)
}

func checkResource(r Resource) error {
	u, err := url.Parse(r.URL)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http":
		return errors.New("its URL is no http or https URL with a host")
	case strings.Contains(r.URL, "#"):
		return errors.New("its URL has a fragment")
	case u.User != nil:
		return errors.New("its URL holds credentials")
	}
	seen := map[string]bool{}
	for _, s := range r.Scopes {
		if !isScope(s.Name) {
			return fmt.Errorf("%q is no name of a scope", s.Name)
		}
		if s.Name == scopeOffline {
			return fmt.Errorf("scope %s is for clients to ask for: Client.Grants says who gets a refresh token", s.Name)
		}
		if seen[s.Name] {
			return fmt.Errorf("scope %q stands twice", s.Name)
		}
		seen[s.Name] = true
	}
	return nil
}

func isHash(s string) bool {
	raw, err := base64.RawURLEncoding.DecodeString(strings.TrimPrefix(s, hashPrefix))
	return err == nil && strings.HasPrefix(s, hashPrefix) && len(raw) == sha256.Size
}
