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

	"github.com/patchbay-mcp/patchbay/oauth"
)

const (
	documentStaleTime   = 24 * time.Hour   // maximum age of a document that is used while its host does not answer
	documentFailureTime = 15 * time.Second // for which a failed fetch is cached

	kindDocument = "document"
)

// documents fetches and caches Client ID Metadata Documents. The documents of clients that hold a
// token are also in the Store, so that neither a restart nor many other documents displace them.
// Spec: basic/authorization/client-registration, Client ID Metadata Documents (2025-11-25 and
// later).
type documents struct {
	policy  *ClientMetadataOptions
	fetcher *oauth.Fetcher
	store   Store
	life    time.Duration // of a record
	copies  remoteCache[*client]
}

type documentRecord struct {
	Client  *client   `json:"client"`
	Fetched time.Time `json:"fetched"`
	Fresh   time.Time `json:"fresh"`
}

func newDocuments(o *Options, store Store, l *fetchLimiter) *documents {
	d := &documents{policy: &o.ClientMetadata, fetcher: o.ClientMetadata.Fetcher, store: store}
	if d.fetcher == nil {
		d.fetcher = oauth.NewFetcher(&oauth.FetcherOptions{Logger: o.Logger})
	}
	// At least as long as the client holds a valid refresh token.
	d.life = max(o.Lifetimes.RefreshIdle, documentStaleTime)
	d.copies = newRemoteCache[*client](l, documentFailureTime, documentStaleTime)
	d.copies.fetch, d.copies.load = d.fetch, d.load
	return d
}

// documentClient returns the client of a Client ID Metadata Document. The error is an *oauthError:
// invalid_client, or temporarily_unavailable if the document cannot be fetched now. Any other error
// is an error of the store.
func (s *Server) documentClient(ctx context.Context, id string) (*client, error) {
	c, err := s.documents.client(ctx, id)
	if err != nil {
		s.log.InfoContext(ctx, "authorization server: client metadata document refused", "host", hostOf(id),
			"error", err)
		return nil, documentError(err)
	}
	return c, nil
}

var errDocumentHost = errors.New("the host is not allowed")

// documentError returns the error for the client. It says enough to correct a document, but no more
// about other contents of an address.
func documentError(err error) error {
	e := refuse(codeInvalidClient, "the metadata document of the client cannot be used")
	var invalid *oauth.DiscoveryError
	var fetchErr *oauth.FetchError
	switch {
	case errors.Is(err, errDocumentHost):
		e.text = "this server does not accept client metadata documents from that host"
	case errors.Is(err, errBusy), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded),
		errors.As(err, &fetchErr) && fetchErr.Status != 0 && !isPermanent(err):
		e = unavailable("the metadata document of the client cannot be fetched now")
	case errors.As(err, &invalid):
		e.text = "the metadata document of the client is not valid"
	case errors.As(err, &fetchErr):
		e.text = "the metadata document of the client cannot be fetched"
	default:
		return err
	}
	return e
}

func (d *documents) client(ctx context.Context, id string) (*client, error) {
	u, err := url.Parse(id)
	if err != nil || u.Host == "" || !d.allows(u.Hostname()) {
		return nil, errDocumentHost
	}
	return d.copies.get(ctx, id)
}

// fetch fetches a document, and updates or removes its record.
func (d *documents) fetch(ctx context.Context, id string) (*client, time.Duration, error) {
	now := time.Now()
	meta, life, err := d.fetcher.FetchClientMetadata(ctx, id)
	var c *client
	if err == nil {
		if c, err = clientOfDocument(id, meta); err != nil {
			err = &oauth.DiscoveryError{URL: id, Err: err}
		}
	}
	if err != nil && !isPermanent(err) {
		return nil, 0, err
	}
	kept, storeErr := d.store.Get(ctx, kindDocument, id)
	switch {
	case storeErr != nil:
		return nil, 0, storeErr
	case kept == nil:
	case err != nil:
		_, storeErr = d.store.GetAndDelete(ctx, kindDocument, id)
	default:
		storeErr = d.put(ctx, &documentRecord{c, now, now.Add(limitFresh(life))})
	}
	if storeErr != nil {
		return nil, 0, storeErr
	}
	return c, life, err
}

func (d *documents) load(ctx context.Context, id string) (*cached[*client], error) {
	value, err := d.store.Get(ctx, kindDocument, id)
	if err != nil || value == nil {
		return nil, err
	}
	var rec documentRecord
	if err := json.Unmarshal(value, &rec); err != nil {
		return nil, err
	}
	if rec.Client == nil || rec.Fetched.After(time.Now()) { // the clock was set back
		return &cached[*client]{}, nil
	}
	return &cached[*client]{rec.Client, rec.Fetched, rec.Fresh}, nil
}

func (d *documents) remember(ctx context.Context, id string) error {
	held := d.copies.peek(id)
	if held == nil || held.value == nil {
		return nil // displaced from the cache; it will be stored with the next token
	}
	if kept, err := d.store.Get(ctx, kindDocument, id); err != nil || kept != nil {
		return err
	}
	return d.put(ctx, &documentRecord{held.value, held.fetched, held.freshUntil})
}

func (d *documents) put(ctx context.Context, rec *documentRecord) error {
	value, err := json.Marshal(rec)
	if err != nil {
		return err
	}
	return d.store.Put(ctx, kindDocument, rec.Client.ID, value, rec.Fetched.Add(d.life))
}

func (d *documents) allows(host string) bool {
	matches := func(pattern string) bool {
		pattern, host := strings.ToLower(pattern), strings.TrimSuffix(strings.ToLower(host), ".")
		if strings.HasPrefix(pattern, ".") {
			return strings.HasSuffix(host, pattern)
		}
		return host == pattern
	}
	return !slices.ContainsFunc(d.policy.DeniedHosts, matches) &&
		(len(d.policy.AllowedHosts) == 0 || slices.ContainsFunc(d.policy.AllowedHosts, matches))
}

func clientOfDocument(id string, meta *oauth.ClientMetadata) (*client, error) {
	c := &client{
		ID: id, Name: meta.Name, URI: meta.URI, LogoURI: meta.LogoURI, PolicyURI: meta.PolicyURI,
		TermsURI: meta.TermsURI, Origin: originDocument, RedirectURIs: meta.RedirectURIs, Auth: authNone,
		Grants: []string{grantCode, grantRefresh},
	}
	for _, uri := range c.RedirectURIs {
		if err := checkRedirectURI(uri); err != nil {
			return nil, fmt.Errorf("invalid redirect_uri: %w", err)
		}
	}
	switch meta.TokenEndpointAuthMethod {
	case "", authNone:
	case authKey:
		if c.Auth, c.JWKSURI = authKey, meta.JWKSURI; c.JWKSURI == "" {
			return nil, errors.New("jwks_uri is missing: required for private_key_jwt")
		}
	default:
		return nil, errors.New("invalid token_endpoint_auth_method: must be none or private_key_jwt")
	}
	if len(meta.GrantTypes) > 0 {
		c.Grants = slices.DeleteFunc(slices.Clone(meta.GrantTypes), func(g string) bool {
			return g != grantCode && g != grantRefresh && (g != grantClient || c.isPublic())
		})
	}
	return c, nil
}
