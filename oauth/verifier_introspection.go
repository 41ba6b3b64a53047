package oauth

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/oauthfetch"
	"github.com/patchbay-mcp/patchbay/internal/oauthwire"
	"github.com/patchbay-mcp/patchbay/internal/singleflight"
)

// IntrospectionOptions configures an [IntrospectionVerifier].
type IntrospectionOptions struct {
	// Endpoint is the introspection endpoint. Default: that of the issuer's metadata.
	Endpoint string
	// ClientID and ClientSecret are this server's own credentials at the authorization server. They
	// are required.
	ClientID     string
	ClientSecret string
	// PostSecret sends the credentials in the body (client_secret_post). Default: in the header
	// (client_secret_basic).
	PostSecret bool
	// CacheTime is how long a response is cached, and so how long a revoked token is still
	// accepted; negative for no cache. Default: 30 seconds.
	CacheTime time.Duration
	// MaxCached bounds the responses in each of the two generations of the cache. Default: 1000.
	MaxCached int
	// InsecureAudience is used as the audience of a token if the response contains no aud, which is
	// optional. Set it only if the authorization server reports no token of another resource server
	// as active: otherwise tokens that were issued for other servers are accepted. Default: a
	// response without aud is refused.
	InsecureAudience string
	// Fetcher calls the endpoint. Default: NewFetcher(nil), which allows private addresses if the
	// issuer uses a private address.
	Fetcher *Fetcher
}

const (
	defaultIntrospectionCacheTime = 30 * time.Second
	// maxIntrospections limits concurrent introspections of new tokens, so that unauthenticated
	// requests cannot flood the authorization server. maxQueued bounds the requests that wait, at
	// most for maxQueueTime: a longer queue only delays their refusal.
	maxIntrospections = 32
	maxQueued         = 128
	maxQueueTime      = 5 * time.Second
	// maxRenewals limits concurrent introspections of tokens that were accepted before. They do not
	// wait for new tokens, most of which are invalid in a flood.
	maxRenewals = 16
	// refusalTime is how long a refusal is cached. It is short, since a token may become valid
	// later, for instance when the authorization server replicates it. maxRefusals bounds a
	// generation of that cache.
	refusalTime = 10 * time.Second
	maxRefusals = 4096
)

// errIntrospectionBusy reports that too many tokens wait to be verified.
var errIntrospectionBusy = errors.New("oauth: too many tokens wait for introspection")

// An IntrospectionVerifier asks the authorization server about each token. It is safe for
// concurrent use.
//
// A response without aud is refused, unless [IntrospectionOptions].InsecureAudience is set. The
// member iss may be missing, because the verifier asks a single server.
//
// Spec: RFC 7662.
type IntrospectionVerifier struct {
	issuer   string
	opts     IntrospectionOptions
	fetcher  *Fetcher
	cache    tokenCache
	refusals digestCache[cachedRefusal]
	asking   singleflight.Group[[sha256.Size]byte, *Token]
	slots    chan struct{} // semaphore of maxIntrospections
	renewals chan struct{} // semaphore of maxRenewals
	queued   atomic.Int32  // new tokens that wait for a slot or hold a slot

	mu       sync.Mutex // guards the fields below
	endpoint string     // of the metadata
	found    time.Time  // when endpoint was fetched
}

// NewIntrospectionVerifier returns a verifier for tokens of any form of an issuer, the URL of an
// authorization server. It panics if an option is invalid.
func NewIntrospectionVerifier(issuer string, opts *IntrospectionOptions) *IntrospectionVerifier {
	v, err := newIntrospectionVerifier(issuer, opts)
	if err != nil {
		panic("oauth: NewIntrospectionVerifier: " + err.Error())
	}
	return v
}

func newIntrospectionVerifier(issuer string, opts *IntrospectionOptions) (*IntrospectionVerifier, error) {
	v := &IntrospectionVerifier{
		issuer: issuer, opts: *cmp.Or(opts, new(IntrospectionOptions)),
		slots: make(chan struct{}, maxIntrospections), renewals: make(chan struct{}, maxRenewals),
	}
	v.refusals.max = maxRefusals
	switch {
	case issuer == "":
		return nil, errors.New("invalid issuer: must not be empty")
	case v.opts.ClientID == "" || v.opts.ClientSecret == "":
		return nil, errors.New("ClientID and ClientSecret are required")
	case v.opts.MaxCached < 0:
		return nil, fmt.Errorf("invalid MaxCached %d: must not be negative", v.opts.MaxCached)
	}
	v.opts.CacheTime = cmp.Or(v.opts.CacheTime, defaultIntrospectionCacheTime)
	v.cache.max = cmp.Or(v.opts.MaxCached, defaultMaxCached)
	server, err := url.Parse(cmp.Or(v.opts.Endpoint, issuer))
	if err != nil || server.Host == "" {
		return nil, errors.New("invalid issuer or Endpoint: must be a URL with a host")
	}
	v.fetcher = cmp.Or(v.opts.Fetcher, NewFetcher(nil)).For(server)
	return v, nil
}

// A cachedRefusal is the error of a token that was refused.
type cachedRefusal struct {
	err   error
	until time.Time
}

// Verify asks the authorization server about a token, unless the response is cached. Concurrent
// calls for the same token share a request.
func (v *IntrospectionVerifier) Verify(ctx context.Context, token string) (*Token, error) {
	if err := checkText(token); err != nil {
		return nil, err
	}
	digest := sha256.Sum256([]byte(token))
	if t := v.cache.get(digest, nil, time.Now()); t != nil {
		return t, t.checkTimes(time.Now())
	}
	if r, ok := v.refusals.get(digest); ok && time.Now().Before(r.until) {
		return nil, r.err
	}
	return v.asking.Do(ctx, digest, func(ctx context.Context) (*Token, error) {
		t, err := v.ask(ctx, digest, token)
		switch {
		case errors.Is(err, ErrInvalidToken) && v.opts.CacheTime > 0:
			v.refusals.add(digest, cachedRefusal{err, time.Now().Add(refusalTime)})
		case err == nil: // also without a cache, so that ask knows the token
			v.cache.add(digest, cachedToken{token: t, until: time.Now().Add(v.opts.CacheTime)})
		}
		return t, err
	})
}

// ask asks about a token when there is a slot for it.
func (v *IntrospectionVerifier) ask(ctx context.Context, digest [sha256.Size]byte, token string) (*Token, error) {
	slots := v.slots
	if _, known := v.cache.digestCache.get(digest); known {
		slots = v.renewals
	} else {
		defer v.queued.Add(-1)
		if v.queued.Add(1) > maxIntrospections+maxQueued {
			return nil, errIntrospectionBusy
		}
	}
	waiting, cancel := context.WithTimeout(ctx, maxQueueTime)
	defer cancel()
	select {
	case slots <- struct{}{}:
		defer func() { <-slots }()
	case <-waiting.Done():
		return nil, errIntrospectionBusy
	}
	t, err := v.introspect(ctx, token)
	if err != nil {
		return nil, err
	}
	return t, t.checkTimes(time.Now())
}

func (v *IntrospectionVerifier) introspect(ctx context.Context, token string) (*Token, error) {
	endpoint, err := v.findEndpoint(ctx)
	if err != nil {
		return nil, err
	}
	form, header := url.Values{"token": {token}, "token_type_hint": {"access_token"}}, http.Header{}
	if v.opts.PostSecret {
		form.Set("client_id", v.opts.ClientID)
		form.Set("client_secret", v.opts.ClientSecret)
	} else {
		header.Set("Authorization", oauthwire.BasicCredentials(v.opts.ClientID, v.opts.ClientSecret))
	}
	r, err := v.fetcher.fetcher().PostForm(ctx, endpoint, form, header)
	if err != nil {
		return nil, err
	}
	if r.Status != http.StatusOK {
		return nil, fmt.Errorf("oauth: introspection: HTTP %d", r.Status)
	}
	return v.read(r.Body)
}

// findEndpoint returns the endpoint of the options or the metadata, which is fetched again after
// keySetLifetime.
func (v *IntrospectionVerifier) findEndpoint(ctx context.Context) (string, error) {
	if v.opts.Endpoint != "" {
		return v.opts.Endpoint, nil
	}
	v.mu.Lock()
	endpoint, age := v.endpoint, time.Since(v.found)
	v.mu.Unlock()
	if endpoint != "" && age < keySetLifetime {
		return endpoint, nil
	}
	metadata, err := v.fetcher.FetchServerMetadata(ctx, v.issuer)
	switch {
	case err != nil && endpoint != "":
		return endpoint, nil // the endpoint seldom moves
	case err != nil:
		return "", err
	case metadata.IntrospectionEndpoint == "":
		return "", errors.New("oauth: the metadata of the authorization server has no introspection_endpoint")
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.endpoint, v.found = metadata.IntrospectionEndpoint, time.Now()
	return v.endpoint, nil
}

// read decodes an introspection response. Spec: RFC 7662, section 2.2.
func (v *IntrospectionVerifier) read(body []byte) (*Token, error) {
	var response struct {
		Active bool `json:"active"`
		tokenClaims
	}
	if err := oauthfetch.Decode(body, &response); err != nil {
		return nil, fmt.Errorf("oauth: introspection: %w", err)
	}
	switch {
	case !response.Active:
		return nil, invalidToken("the authorization server says that it is inactive")
	case response.Issuer != "" && response.Issuer != v.issuer:
		return nil, invalidToken("issued by another issuer")
	case response.Audience == nil && v.opts.InsecureAudience == "":
		return nil, invalidToken("the introspection response has no aud")
	}
	response.Issuer = v.issuer
	token, err := response.token(body)
	if err == nil && response.Audience == nil {
		token.Audience = []string{v.opts.InsecureAudience}
	}
	return token, err
}
