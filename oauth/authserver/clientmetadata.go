package authserver

import (
	"container/list"
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/patchbay-mcp/patchbay/oauth"
)

const (
	// maxDocuments is how many documents of clients are kept in memory: each has some kilobytes at most.
	maxDocuments = 1000
	// minDocumentTime is how long a document is kept even if its host says that it must not be: the steps of a login see
	// one document, and strangers cannot make us ask a host again and again.
	minDocumentTime = time.Minute
	// maxDocumentTime is how long a document is kept at most, and for how long it stands in while its host does not answer.
	maxDocumentTime = 24 * time.Hour
	// failedDocumentTime is how long a failure is remembered.
	failedDocumentTime = 15 * time.Second
	// documentsAtOnce is how many documents are fetched at a time, for all clients together.
	documentsAtOnce = 16
)

// documents fetches and keeps Client ID Metadata Documents.
//
// Spec: basic/authorization/client-registration, Client ID Metadata Documents (2025-11-25 and later).
type documents struct {
	policy  *Documents
	fetcher *oauth.Fetcher
	limits  *limits
	turn    chan struct{} // holds a token for each fetch

	mu     sync.Mutex // guards the fields below
	byID   map[string]*list.Element
	recent list.List // of *document, the most recent first
}

// A document is what is kept of one.
type document struct {
	id   string
	turn chan struct{} // holds a token while the document is fetched

	mu      sync.Mutex // guards the fields below
	client  *client    // the last that was good, nil if there was none
	fetched time.Time  // when that was
	err     error      // of the last attempt
	fresh   time.Time  // until when all this holds
}

func newDocuments(o *Options, l *limits) *documents {
	d := &documents{policy: &o.Documents, fetcher: o.Documents.Fetcher, limits: l, turn: make(chan struct{}, documentsAtOnce)}
	if d.fetcher == nil {
		d.fetcher = oauth.NewFetcher(&oauth.FetcherOptions{Logger: o.Logger})
	}
	d.byID = map[string]*list.Element{}
	return d
}

// documentClient gives the client of a Client ID Metadata Document, or an *oauthError: invalid_client, or
// temporarily_unavailable if it cannot be known for now.
func (s *Server) documentClient(ctx context.Context, id string) (*client, error) {
	c, err := s.documents.client(ctx, id)
	if err != nil {
		s.log.InfoContext(ctx, "authorization server: the document of a client is refused", "host", hostOf(id), "error", err)
		return nil, documentError(err)
	}
	return c, nil
}

var (
	errDocumentHost = errors.New("its host is not among those whose documents are taken")
	errDocumentBusy = errors.New("too many documents of its host had to be fetched")
)

// documentError says what the client may know of a failure, which is as much as it takes to mend its document, and
// nothing of what else is behind an address.
func documentError(err error) *oauthError {
	e := refuse(codeInvalidClient, "the metadata document of the client cannot be used")
	var invalid *oauth.DiscoveryError
	var unfetched *oauth.FetchError
	switch {
	case errors.Is(err, errDocumentHost):
		e.text = "the metadata document of the client is at a host that this server takes none from"
	case errors.Is(err, errDocumentBusy), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		e = &oauthError{status: http.StatusServiceUnavailable, code: codeUnavailable, text: "the metadata document of the client cannot be fetched for now"}
	case errors.As(err, &invalid):
		e.text = "the metadata document of the client is not valid"
	case errors.As(err, &unfetched):
		e.text = "the metadata document of the client cannot be fetched"
	}
	return e
}

func (d *documents) client(ctx context.Context, id string) (*client, error) {
	u, err := url.Parse(id)
	if err != nil || !d.allows(u.Hostname()) {
		return nil, errDocumentHost
	}
	doc := d.document(id)
	if c, err, ok := doc.known(time.Now()); ok {
		return c, err
	}
	select { // one fetches, the others wait for it
	case doc.turn <- struct{}{}:
		defer func() { <-doc.turn }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	now := time.Now()
	if c, err, ok := doc.known(now); ok {
		return c, err
	}
	if _, ok := d.limits.allow(limitFetches, strings.ToLower(u.Hostname())); !ok {
		return doc.failed(now, errDocumentBusy)
	}
	c, life, err := d.fetch(ctx, id)
	switch {
	case ctx.Err() != nil && err != nil: // which says nothing about the document
		return doc.failed(time.Time{}, err)
	case err != nil:
		return doc.failed(now, err)
	}
	doc.keep(c, now, life)
	return c, nil
}

func (d *documents) fetch(ctx context.Context, id string) (*client, time.Duration, error) {
	select {
	case d.turn <- struct{}{}:
		defer func() { <-d.turn }()
	case <-ctx.Done():
		return nil, 0, context.Cause(ctx)
	}
	meta, life, err := d.fetcher.FetchClientMetadata(ctx, id)
	if err != nil {
		return nil, 0, err
	}
	c, err := clientOfDocument(id, meta)
	if err != nil {
		return nil, 0, &oauth.DiscoveryError{URL: id, Err: err}
	}
	return c, life, nil
}

// allows applies the policy of hosts.
func (d *documents) allows(host string) bool {
	matches := func(pattern string) bool {
		pattern, host := strings.ToLower(pattern), strings.TrimSuffix(strings.ToLower(host), ".")
		if strings.HasPrefix(pattern, ".") {
			return strings.HasSuffix(host, pattern)
		}
		return host == pattern
	}
	if slices.ContainsFunc(d.policy.DeniedHosts, matches) {
		return false
	}
	return len(d.policy.AllowedHosts) == 0 || slices.ContainsFunc(d.policy.AllowedHosts, matches)
}

// document gives the place of a document, new or not. The least recent one makes room; whoever fetches it goes on.
func (d *documents) document(id string) *document {
	d.mu.Lock()
	defer d.mu.Unlock()
	if e, ok := d.byID[id]; ok {
		d.recent.MoveToFront(e)
		return e.Value.(*document)
	}
	if len(d.byID) >= maxDocuments {
		delete(d.byID, d.recent.Remove(d.recent.Back()).(*document).id)
	}
	doc := &document{id: id, turn: make(chan struct{}, 1)}
	d.byID[id] = d.recent.PushFront(doc)
	return doc
}

// known gives what holds now without a fetch, if anything does.
func (d *document) known(now time.Time) (c *client, err error, ok bool) { //nolint:revive // err is what is known
	d.mu.Lock()
	defer d.mu.Unlock()
	if !now.Before(d.fresh) {
		return nil, nil, false
	}
	if d.err != nil {
		return nil, d.err, true
	}
	return d.client, nil, true
}

func (d *document) keep(c *client, now time.Time, life time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.client, d.fetched, d.err = c, now, nil
	d.fresh = now.Add(min(max(life, minDocumentTime), maxDocumentTime))
}

// failed notes a failure, and gives what stands in for the document: the last one if its host only does not answer, for
// no more than a day.
func (d *document) failed(now time.Time, err error) (*client, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.client != nil && !isGone(err) && time.Since(d.fetched) < maxDocumentTime {
		d.err, d.fresh = nil, now.Add(failedDocumentTime)
		return d.client, nil
	}
	d.client, d.err, d.fresh = nil, err, now.Add(failedDocumentTime)
	return nil, err
}

// isGone reports whether the host has said that the document is not what it was.
func isGone(err error) bool {
	var unfetched *oauth.FetchError
	var invalid *oauth.DiscoveryError
	switch {
	case errors.As(err, &invalid):
		return true
	case errors.As(err, &unfetched):
		busy := unfetched.Status == http.StatusRequestTimeout || unfetched.Status == http.StatusTooManyRequests
		return unfetched.Status != 0 && unfetched.Status < http.StatusInternalServerError && !busy
	}
	return false
}

// clientOfDocument gives the client that a document describes.
func clientOfDocument(id string, meta *oauth.ClientMetadata) (*client, error) {
	c := &client{
		ID: id, Name: meta.Name, URI: meta.URI, LogoURI: meta.LogoURI, PolicyURI: meta.PolicyURI, TermsURI: meta.TermsURI,
		Origin: originDocument, RedirectURIs: meta.RedirectURIs, Auth: authNone, Grants: []string{grantCode, grantRefresh},
	}
	for _, uri := range c.RedirectURIs {
		if err := checkRedirectURI(uri); err != nil {
			return nil, errors.New("one of its redirect_uris is not allowed here")
		}
	}
	switch meta.TokenEndpointAuthMethod {
	case "", authNone:
	case authKey:
		if c.Auth, c.JWKSURI = authKey, meta.JWKSURI; c.JWKSURI == "" {
			return nil, errors.New("it has no jwks_uri for private_key_jwt")
		}
	default:
		return nil, errors.New("its token_endpoint_auth_method is none that a client without a secret can use here")
	}
	if len(meta.GrantTypes) > 0 {
		c.Grants = slices.DeleteFunc(slices.Clone(meta.GrantTypes), func(g string) bool {
			return g != grantCode && g != grantRefresh && (g != grantClient || c.isPublic())
		})
	}
	return c, nil
}
