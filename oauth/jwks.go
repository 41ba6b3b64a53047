package oauth

import (
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/internal/jwskey"
)

// Bounds of key sets.
const (
	// maxKeys is how many keys of a set are looked at. Servers publish two or three, those with many tenants some dozens.
	maxKeys = 100
	// maxCandidates is how many keys are tried on one token. Several keys of one id are rare; tokens without an id come
	// from servers with one key, and the next one.
	maxCandidates = 4
	// maxRSABits bounds the work of one verification; real keys have 4096 at most.
	maxRSABits = 8192
	// keysLife is how long a set is used before it is fetched again.
	keysLife = 10 * time.Minute
	// keysStale is for how long after that an old set is still used when no new one can be had. Tokens of a server that
	// is away longer than this have mostly expired.
	keysStale = time.Hour
	// keysPause is the least time between two fetches of a set that is in use: whatever key ids strangers make up, the
	// server is not asked more often.
	keysPause = time.Minute
	// keysRetry is the same while there is no set that can be used.
	keysRetry = 5 * time.Second
)

// A verificationKey is a public key of a set.
type verificationKey struct {
	id         string
	algorithms []jose.SignatureAlgorithm // that it may verify
	key        any
}

// A keySet is what a server published at one time. It is not changed.
type keySet struct{ keys []verificationKey }

// find returns the keys that may have signed a token; id is empty if the token names none.
func (s *keySet) find(id string, algorithm jose.SignatureAlgorithm) []verificationKey {
	var found []verificationKey
	for _, k := range s.keys {
		if (id == "" || k.id == id) && slices.Contains(k.algorithms, algorithm) && len(found) < maxCandidates {
			found = append(found, k)
		}
	}
	return found
}

// parseKeys returns the keys of a JWK set that can verify signatures with one of the algorithms. The others are left out,
// whatever is wrong with them: sets hold keys for other purposes, and of kinds that are not known here.
//
// Spec: RFC 7517, section 5.
func parseKeys(raw []jsontext.Value, allowed []jose.SignatureAlgorithm) *keySet {
	set := &keySet{}
	for _, one := range raw[:min(len(raw), maxKeys)] {
		var jwk jose.JSONWebKey
		if jsonscan.Kind(one) != '{' || jwk.UnmarshalJSON(one) != nil || !mayVerify(one) {
			continue
		}
		if jwk.Use != "" && jwk.Use != "sig" {
			continue
		}
		k := verificationKey{id: jwk.KeyID, key: jwk.Key}
		for _, a := range algorithmsOfKey(&jwk) {
			if slices.Contains(allowed, a) && (jwk.Algorithm == "" || jwk.Algorithm == string(a)) {
				k.algorithms = append(k.algorithms, a)
			}
		}
		if k.algorithms != nil {
			set.keys = append(set.keys, k)
		}
	}
	return set
}

// mayVerify reads key_ops.
func mayVerify(jwk []byte) bool {
	ops, ok := jsonscan.Get(jwk, "key_ops")
	if !ok {
		return true
	}
	for op := range jsonscan.Elements(ops) {
		if text, err := jsonscan.Unquote(op); err == nil && text == "verify" {
			return true
		}
	}
	return false
}

// algorithmsOfKey returns what a key can verify. A secret, a private key that somebody published and a weak key can nothing.
func algorithmsOfKey(jwk *jose.JSONWebKey) []jose.SignatureAlgorithm {
	if !jwk.IsPublic() || !jwk.Valid() {
		return nil
	}
	switch key := jwk.Key.(type) {
	case *rsa.PublicKey:
		if bits := key.N.BitLen(); bits < jwskey.MinRSABits || bits > maxRSABits {
			return nil
		}
		return []jose.SignatureAlgorithm{jose.RS256, jose.RS384, jose.RS512, jose.PS256, jose.PS384, jose.PS512}
	case *ecdsa.PublicKey:
		switch key.Curve {
		case elliptic.P256():
			return []jose.SignatureAlgorithm{jose.ES256}
		case elliptic.P384():
			return []jose.SignatureAlgorithm{jose.ES384}
		case elliptic.P521():
			return []jose.SignatureAlgorithm{jose.ES512}
		}
	case ed25519.PublicKey:
		return []jose.SignatureAlgorithm{jose.EdDSA}
	}
	return nil
}

// publishedKeys are the keys of an authorization server, as it publishes them. They are fetched when they are needed, by
// one caller at a time; the others wait, or go on with what there is.
type publishedKeys struct {
	fetcher *Fetcher
	issuer  string
	address string // of the set; empty if it stands in the metadata of the issuer
	allowed []jose.SignatureAlgorithm

	turn chan struct{} // holds a token while the set is fetched

	mu      sync.Mutex // guards the fields below
	set     *keySet    // nil until there is one
	fetched time.Time  // when the set was
	tried   time.Time  // when it was last tried
	failure error      // of the last try, nil if it went well
}

func newPublishedKeys(f *Fetcher, issuer, address string, allowed []jose.SignatureAlgorithm) (*publishedKeys, error) {
	home := issuer
	if address != "" {
		home = address
	}
	u, err := url.Parse(home)
	if err != nil || u.Host == "" {
		return nil, errors.New("the issuer or JWKSURI is not a URL")
	}
	return &publishedKeys{
		fetcher: f.For(u), issuer: issuer, address: address, allowed: allowed, turn: make(chan struct{}, 1),
	}, nil
}

// fresh returns the set that is in use, nil if a new one is due.
func (p *publishedKeys) fresh(now time.Time) *keySet {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.set == nil || now.Sub(p.fetched) >= keysLife {
		return nil
	}
	return p.set
}

// current returns the set that is in use, and fetches it if it is due.
func (p *publishedKeys) current(ctx context.Context) (*keySet, error) {
	now := time.Now()
	if set := p.fresh(now); set != nil {
		return set, nil
	}
	p.mu.Lock()
	set, age := p.set, now.Sub(p.fetched)
	p.mu.Unlock()
	if set != nil && age < keysLife+keysStale {
		return p.refresh(ctx, set, false)
	}
	return p.refresh(ctx, nil, true)
}

// renewed returns a newer set than the one in which a key was not found, or the same one if there can be none yet.
func (p *publishedKeys) renewed(ctx context.Context, set *keySet) (*keySet, error) {
	return p.refresh(ctx, set, true)
}

// refresh fetches the set unless it was tried too short a time ago. have is what the caller can go on with, nil for
// nothing; with it, a caller that need not wait for somebody else's fetch does not.
func (p *publishedKeys) refresh(ctx context.Context, have *keySet, wait bool) (*keySet, error) {
	if !wait {
		select {
		case p.turn <- struct{}{}:
		default:
			return have, nil
		}
	} else {
		select {
		case p.turn <- struct{}{}:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	defer func() { <-p.turn }()
	p.mu.Lock()
	set, fetched, tried, failure := p.set, p.fetched, p.tried, p.failure
	p.mu.Unlock()
	now := time.Now()
	if set != nil && set != have && now.Sub(fetched) < keysLife {
		return set, nil // somebody else was faster
	}
	pause := keysPause
	if have == nil {
		pause = keysRetry
	}
	if tried.IsZero() || now.Sub(tried) >= pause {
		// The set is for everybody, not only for the caller who happens to fetch it.
		set, failure = p.fetch(context.WithoutCancel(ctx))
		p.mu.Lock()
		defer p.mu.Unlock()
		p.tried, p.failure = time.Now(), failure
		if failure == nil {
			p.set, p.fetched = set, p.tried
			return set, nil
		}
	}
	switch {
	case have != nil:
		return have, nil
	case failure == nil:
		failure = errors.New("none could be had lately")
	}
	return nil, fmt.Errorf("oauth: no keys to verify tokens with: %w", failure)
}

// fetch gets the set from the server.
func (p *publishedKeys) fetch(ctx context.Context) (*keySet, error) {
	address := p.address
	if address == "" {
		metadata, err := p.fetcher.FetchServerMetadata(ctx, p.issuer)
		if err != nil {
			return nil, err
		}
		if address = metadata.JWKSURI; address == "" {
			return nil, errors.New("the authorization server publishes no keys: its metadata has no jwks_uri")
		}
	}
	var document struct {
		Keys []jsontext.Value `json:"keys"`
	}
	if _, err := p.fetcher.fetcher().GetJSON(ctx, address, &document); err != nil {
		return nil, err
	}
	return parseKeys(document.Keys, p.allowed), nil
}
