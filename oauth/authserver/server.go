package authserver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/dpop"
	"github.com/patchbay-mcp/patchbay/internal/netx"
	"github.com/patchbay-mcp/patchbay/internal/seal"
	"github.com/patchbay-mcp/patchbay/oauth"
)

// The paths below the path of the issuer. Clients of 2025-03-26 use the first three if there is no
// metadata.
const (
	pathAuthorize  = "/authorize"
	pathToken      = "/token"
	pathRegister   = "/register"
	pathRevoke     = "/revoke"
	pathIntrospect = "/introspect"
	pathKeys       = "/jwks"
	pathConsent    = "/consent"
	pathLogin      = "/login" // and below

	pathMetadata = "/.well-known/oauth-authorization-server" // before that of the issuer
)

// A Server is an authorization server. It is the [http.Handler] of all its endpoints. It matches
// the complete path of a request, so mount it without http.StripPrefix: at the root of its host, or
// at the path of the issuer and at /.well-known/oauth-authorization-server. It also serves the
// metadata of the resources at its host, below
// /.well-known/oauth-protected-resource. All methods are safe for concurrent use.
type Server struct {
	o                 Options
	issuer            *url.URL
	metadata          *oauth.ServerMetadata
	known             map[string]*client   // by ID; immutable
	resources         map[string]*Resource // by resourceKey; immutable
	resourceDocuments []resourceDocument
	assertionIssuers  map[string]*assertionIssuer // by issuer; immutable
	store             Store
	seals             *seal.KeyRing
	keys              *signingKeys
	limits            *limits
	proofs            *dpop.Verifier
	clientJWKS        *clientJWKS
	documents         *documents
	providerLogin     ProviderLogin // nil if Options.Login is not a ProviderLogin
	log               *slog.Logger
	routes            map[string]http.HandlerFunc
}

// New returns a Server. The error lists all invalid options, or reports that the store failed.
func New(options *Options) (*Server, error) {
	var opts Options
	if options != nil {
		opts = *options
	}
	issuer, err := parseIssuer(opts.Issuer)
	if err != nil {
		return nil, fmt.Errorf("authserver: Options.Issuer: %w", err)
	}
	opts.setDefaults(issuer)
	known, clientsErr := knownClients(&opts)
	issuers, issuersErr := assertionIssuers(opts.AssertionIssuers)
	if err := errors.Join(opts.check(), clientsErr, issuersErr); err != nil {
		return nil, fmt.Errorf("authserver: %w", err)
	}
	s := &Server{o: opts, issuer: issuer, known: known, store: opts.Store, log: opts.Logger,
		resources: map[string]*Resource{}, assertionIssuers: issuers}
	if s.store == nil {
		s.store = NewMemoryStore()
	}
	for i := range s.o.Resources {
		s.resources[resourceKey(s.o.Resources[i].URL)] = &s.o.Resources[i]
	}
	s.providerLogin, _ = opts.Login.(ProviderLogin)
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	if s.seals, err = s.openKeyRing(ctx); err != nil {
		return nil, err
	}
	s.warnOfKeyPlace()
	if s.keys, err = newSigningKeys(ctx, s); err != nil {
		return nil, fmt.Errorf("authserver: %w", err)
	}
	s.limits = newLimits(&s.o.Limits)
	if s.proofs, err = dpop.NewVerifier(nil); err != nil {
		return nil, fmt.Errorf("authserver: %w", err)
	}
	slots := make(chan struct{}, maxFetches)
	fetches := &fetchLimiter{limits: s.limits, slots: slots, clients: map[string]*clientSlots{}}
	s.documents = newDocuments(&s.o, s.store, fetches)
	s.clientJWKS = newClientJWKS(s.documents.fetcher, fetches)
	s.metadata, s.resourceDocuments = s.newMetadata(), s.newResourceDocuments()
	s.route()
	if u, ok := opts.Login.(*providerLogin); ok {
		if err := u.attach(s); err != nil {
			return nil, fmt.Errorf("authserver: %w", err)
		}
	}
	return s, nil
}

const startTimeout = 10 * time.Second // for reading the store

func parseIssuer(issuer string) (*url.URL, error) {
	u, err := url.Parse(issuer)
	switch {
	case err != nil || !netx.IsHTTP(u):
		return nil, fmt.Errorf("invalid issuer %q: must be a URL with a host, and a valid port if any", issuer)
	case u.Scheme != "https" && (u.Scheme != "http" || !netx.IsLoopback(u.Hostname())):
		return nil, fmt.Errorf("invalid issuer %q: must be https, or http with a loopback address", issuer)
	case u.User != nil || strings.ContainsAny(issuer, "?#"):
		return nil, fmt.Errorf("invalid issuer %q: must not have user information, a query or a fragment", u.Redacted())
	case strings.HasSuffix(issuer, "/"):
		return nil, fmt.Errorf("invalid issuer %q: must not end with a slash", issuer)
	case u.String() != issuer || u.RawPath != "":
		return nil, fmt.Errorf("invalid issuer %q: must be in normal form, such as %q", issuer, u.String())
	}
	return u, nil
}

// Issuer returns Options.Issuer, the iss claim of every token.
func (s *Server) Issuer() string { return s.o.Issuer }

func (s *Server) loginURL(path string) string {
	if path = strings.Trim(path, "/"); path != "" {
		path = "/" + path
	}
	return s.o.Issuer + pathLogin + path
}
