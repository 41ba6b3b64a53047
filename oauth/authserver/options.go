package authserver

import (
	"cmp"
	"context"
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

	"github.com/patchbay-mcp/patchbay/internal/netx"
	"github.com/patchbay-mcp/patchbay/oauth"
)

const (
	defaultAccess      = 15 * time.Minute
	maxAccess          = time.Hour // a token that another server verifies cannot be revoked
	defaultRefreshIdle = 14 * 24 * time.Hour
	defaultRefreshMost = 90 * 24 * time.Hour
	defaultMaxUnused   = 10_000
	defaultKeyLifetime = 90 * 24 * time.Hour

	defaultRefreshGrace = 10 * time.Second
	maxRefreshGrace     = time.Minute // within it a stolen token is not detected
)

// Options configures a [Server]. Issuer and Resources are required.
type Options struct {
	// Issuer is the URL of the server in tokens and metadata: an https URL, or an http URL with a
	// loopback address. It contains no query, no fragment and no final slash.
	Issuer string
	// Resources are the servers that accept the tokens, at least one.
	Resources []Resource
	// Login authenticates users. If it is nil, only clients that act for themselves get tokens.
	Login Login
	// Name is the name of the server on its pages. Default: the host of Issuer.
	Name string
	// Store keeps everything that must survive a restart. Default: [NewMemoryStore].
	Store Store
	// SealKeys encrypt the secrets in the Store. The first key seals, all of them open. See
	// [LoadSealKeys] and [RotateSealKeys]. Default: a generated key in the Store, unencrypted:
	// anyone with a copy of the Store then knows all secrets, including the signing keys and the
	// tokens of identity providers.
	SealKeys []SealKey
	// SigningKeys sign the access tokens: ECDSA on P-256, P-384 or P-521, Ed25519, or RSA with at
	// least 2048 bits. The first key signs, all of them are published. Default: generated ES256
	// keys, which are sealed in the Store and replaced after Lifetimes.Key with an overlap.
	SigningKeys []crypto.Signer
	// Clients are the pre-registered clients.
	Clients []Client
	// Registration is the policy of dynamic client registration. Default: open to anyone, rate
	// limited.
	Registration Registration
	// AssertionIssuers are identity providers whose identity assertions clients can exchange for
	// access tokens, so that users need not log in here. Default: none.
	AssertionIssuers []AssertionIssuer
	// ClientMetadata is the policy of Client ID Metadata Documents. Default: documents of all
	// public hosts are accepted.
	ClientMetadata ClientMetadataOptions
	Lifetimes      Lifetimes
	Limits         LimitOptions
	// Audit is called for each consent, login, issued token, refresh, revocation, and for each
	// refusal of a grant, before the response is sent. It is called concurrently and must not
	// block. Default: none.
	Audit func(ctx context.Context, e AuditEvent)
	// Logger receives refused requests and failures. No secret is logged. Default: slog.Default().
	Logger *slog.Logger
}

// A Resource is an MCP server or another service that accepts the tokens of a [Server].
type Resource struct {
	// URL is the identifier of the resource: for an MCP server, the URL of its endpoint. It is the
	// aud claim of tokens.
	URL string
	// Name is the name on the consent page. Default: the host of URL.
	Name string
	// Scopes are the scopes that clients can request. [Subject.Scopes] limits what a user may
	// grant.
	Scopes []Scope
}

// A Scope is a permission that a client can request.
type Scope struct {
	Name string // in requests and tokens
	// Description is shown on the consent page, such as "Read your calendar". Default: Name.
	Description string
	// OnRequest excludes the scope from requests without a scope parameter, and from clients that
	// act for themselves unless [Client.Scopes] lists it.
	OnRequest bool
}

// A Client is a pre-registered client. Without SecretHash and Keys it is a public client.
type Client struct {
	// ID consists of printable ASCII characters other than spaces.
	ID string
	// Name is the name on the consent page. Default: ID.
	Name string
	URI  string // the client's home page
	// RedirectURIs are compared exactly, except for the port of a loopback address.
	RedirectURIs []string
	// SecretHash is the hash of the client's secret, from [NewClientSecret] or [HashClientSecret].
	SecretHash string
	// Keys are the public keys of a client that authenticates with signed assertions
	// (private_key_jwt): *ecdsa.PublicKey, ed25519.PublicKey or *rsa.PublicKey.
	Keys []crypto.PublicKey
	// Grants are the grant types that the client may use: authorization_code, refresh_token,
	// client_credentials, urn:ietf:params:oauth:grant-type:jwt-bearer (see [AssertionIssuer]).
	// Default: authorization_code and refresh_token, or client_credentials if there are no
	// RedirectURIs.
	Grants []string
	// Resources are the URLs of the resources that the client can get tokens for. Default: all. A
	// removal here, or from Scopes, takes effect at the next refresh, regardless of the scopes that
	// users have granted.
	Resources []string
	// Scopes are the scopes that the client can get. Default: all, and with client_credentials,
	// which asks no user, all without [Scope.OnRequest].
	Scopes []string
	// Introspects are the URLs of the resources whose tokens the client may introspect, because it
	// is their server.
	Introspects []string
}

// Registration is the policy of dynamic client registration.
type Registration struct {
	Disabled bool // refuse all registrations
	// TokenHash is the hash of an initial access token that registrations must present, from
	// [NewClientSecret] or [HashClientSecret]. Default: registrations need no token.
	TokenHash string
	// MaxUnused is the maximum number of registered clients without a token. They expire after 24
	// hours. If there are more, the oldest client of the network (IPv4 /24, IPv6 /48) with the most
	// of them is removed. A large number is divided among groups of networks, with at least 256 for
	// each group. Default: 10000.
	MaxUnused int
}

// ClientMetadataOptions is the policy of Client ID Metadata Documents.
//
// Spec: basic/authorization/client-registration (2026-07-28), Client ID Metadata Documents.
type ClientMetadataOptions struct {
	Disabled bool // refuse all clients with such a document
	// AllowedHosts are the only hosts whose documents are fetched. A name with a leading dot
	// matches all of its subdomains. Default: all hosts.
	AllowedHosts []string
	// DeniedHosts are hosts whose documents are never fetched, in the same form.
	DeniedHosts []string
	// Fetcher fetches the documents and the keys that they refer to. Default: a Fetcher that
	// connects to public addresses only.
	Fetcher *oauth.Fetcher
}

// Lifetimes are the lifetimes of codes, tokens and grants of a [Server].
type Lifetimes struct {
	// Access is the lifetime of an access token, at most an hour. Default: 15 minutes.
	Access time.Duration
	// RefreshIdle is the time after which an unused refresh token expires. Default: 14 days.
	RefreshIdle time.Duration
	// Refresh is the time after which the user must log in again. Default: 90 days.
	Refresh time.Duration
	// RefreshGrace is the time after the use of a refresh token in which the same token returns the
	// same successor again: a client whose connection broke, or with two processes, then stays
	// logged in. Afterwards a second use ends the grant, because the token may have been stolen. If
	// a stolen token is used within the grace period, the attacker and the client hold the same
	// successor, until one of them uses it after the other. At most a minute; a negative value
	// means that every second use ends the grant. Default: 10 seconds.
	RefreshGrace time.Duration
	// Key is the time for which a generated key signs. Default: 90 days.
	Key time.Duration
}

// NewClientSecret returns a random secret for a client, and its hash for [Client] or
// [Registration]. The server needs only the hash.
func NewClientSecret() (secret, hash string) {
	secret = randomToken()
	return secret, HashClientSecret(secret)
}

const hashPrefix = "sha256:"

// HashClientSecret returns the hash of a secret for [Client] or [Registration]. The hash is fast to
// compute, so the secret must contain at least 128 random bits: it must not be a password.
func HashClientSecret(secret string) string {
	return hashPrefix + hashKey(secret)
}

func (o *Options) setDefaults(issuer *url.URL) {
	o.Name = cmp.Or(o.Name, issuer.Host)
	o.Lifetimes.Access = cmp.Or(o.Lifetimes.Access, defaultAccess)
	o.Lifetimes.RefreshIdle = cmp.Or(o.Lifetimes.RefreshIdle, defaultRefreshIdle)
	o.Lifetimes.Refresh = cmp.Or(o.Lifetimes.Refresh, defaultRefreshMost)
	o.Lifetimes.RefreshGrace = cmp.Or(o.Lifetimes.RefreshGrace, defaultRefreshGrace)
	o.Lifetimes.Key = cmp.Or(o.Lifetimes.Key, defaultKeyLifetime)
	o.Registration.MaxUnused = cmp.Or(o.Registration.MaxUnused, defaultMaxUnused)
	o.Logger = cmp.Or(o.Logger, slog.Default())
	o.Resources = slices.Clone(o.Resources)
	for i := range o.Resources {
		r := &o.Resources[i]
		if u, err := url.Parse(r.URL); err == nil {
			r.Name = cmp.Or(r.Name, u.Host)
		}
		r.Scopes = slices.Clone(r.Scopes)
		for j := range r.Scopes {
			r.Scopes[j].Description = cmp.Or(r.Scopes[j].Description, r.Scopes[j].Name)
		}
	}
}

func (o *Options) check() error {
	var errs []error
	if len(o.Resources) == 0 {
		errs = append(errs, errors.New("Options.Resources is empty: need at least one"))
	}
	seen := map[string]bool{}
	for _, r := range o.Resources {
		if err := checkResource(r); err != nil {
			errs = append(errs, fmt.Errorf("resource %q: %w", r.URL, err))
		}
		key := resourceKey(r.URL)
		if seen[key] {
			errs = append(errs, fmt.Errorf("duplicate resource %q", r.URL))
		}
		seen[key] = true
	}
	l := o.Lifetimes
	if l.Access < time.Second || l.Access > maxAccess {
		errs = append(errs, fmt.Errorf("invalid Lifetimes.Access %v: must be 1s to %v", l.Access, maxAccess))
	}
	if l.RefreshIdle < 0 || l.Refresh < 0 || l.Key < 2*keyOverlap {
		errs = append(errs, fmt.Errorf(
			"invalid Lifetimes: RefreshIdle and Refresh must not be negative, Key must be at least %v", 2*keyOverlap))
	}
	if l.RefreshGrace > maxRefreshGrace {
		errs = append(errs,
			fmt.Errorf("invalid Lifetimes.RefreshGrace %v: must be at most %v", l.RefreshGrace, maxRefreshGrace))
	}
	if o.Registration.MaxUnused < 0 {
		errs = append(errs,
			fmt.Errorf("invalid Registration.MaxUnused %d: must not be negative", o.Registration.MaxUnused))
	}
	if t := o.Registration.TokenHash; t != "" && !isHash(t) {
		errs = append(errs,
			errors.New("invalid Registration.TokenHash: must come from NewClientSecret or HashClientSecret"))
	}
	return errors.Join(errs...)
}

func checkResource(r Resource) error {
	u, err := url.Parse(r.URL)
	switch {
	case err != nil || !netx.IsHTTP(u):
		return errors.New("must be an http or https URL with a host, and a valid port if any")
	case strings.Contains(r.URL, "#"):
		return errors.New("must not have a fragment")
	case u.User != nil:
		return errors.New("must not have user information")
	}
	seen := map[string]bool{}
	for _, s := range r.Scopes {
		switch {
		case !isScope(s.Name):
			return fmt.Errorf("invalid scope name %q", s.Name)
		case s.Name == scopeOffline:
			return fmt.Errorf("invalid scope %q: Client.Grants decides which clients get a refresh token", s.Name)
		case seen[s.Name]:
			return fmt.Errorf("duplicate scope %q", s.Name)
		}
		seen[s.Name] = true
	}
	return nil
}

func isHash(s string) bool {
	raw, err := base64.RawURLEncoding.DecodeString(strings.TrimPrefix(s, hashPrefix))
	return err == nil && strings.HasPrefix(s, hashPrefix) && len(raw) == sha256.Size
}
