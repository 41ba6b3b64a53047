package oauth

import (
	"cmp"
	"context"
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
	"github.com/patchbay-mcp/patchbay/internal/oauthwire"
	"github.com/patchbay-mcp/patchbay/internal/singleflight"
)

// Limits of key sets.
const (
	// maxKeys limits the keys of a set. Real sets contain two or three keys, with many tenants some
	// dozens.
	maxKeys = 100
	// maxCandidates limits the keys that are tried on a token.
	maxCandidates = 4
	// maxRSABits limits the work of a verification; real keys use 4096 at most.
	maxRSABits = 8192
	// keySetLifetime is how long a set is used before it is fetched again.
	keySetLifetime = 10 * time.Minute
	// keySetStaleTime is how long after that an old set is used if no new set can be fetched.
	keySetStaleTime = time.Hour
	// minRefetchInterval is the least time between two fetches while a set is in use, so that
	// invalid tokens cannot flood the authorization server.
	minRefetchInterval = time.Minute
	// minRetryInterval is the same while there is no usable set.
	minRetryInterval = 5 * time.Second
)

type verificationKey struct {
	id         string
	algorithms []jose.SignatureAlgorithm // that it may verify
	key        any
}

type jwkSet struct {
	Keys []jsontext.Value `json:"keys"`
}

// A keySet is the set that a server published at some time. It is immutable.
type keySet struct{ keys []verificationKey }

// find returns the keys for the signature of a token. id is empty if the token contains no key ID.
func (s *keySet) find(id string, algorithm jose.SignatureAlgorithm) []verificationKey {
	var found []verificationKey
	for _, k := range s.keys {
		if (id == "" || k.id == id) && slices.Contains(k.algorithms, algorithm) && len(found) < maxCandidates {
			found = append(found, k)
		}
	}
	return found
}

// parseKeys returns the keys of a JWK set that can verify signatures with any of the algorithms.
// Other keys are skipped: sets also contain keys for other purposes and of unknown types. Spec: RFC
// 7517, section 5.
func parseKeys(raw []jsontext.Value, allowed []jose.SignatureAlgorithm) *keySet {
	set := &keySet{}
	for _, one := range raw[:min(len(raw), maxKeys)] {
		var jwk jose.JSONWebKey
		if jsonscan.Kind(one) != '{' || jwk.UnmarshalJSON(one) != nil || !allowsVerify(one) ||
			jwk.Use != "" && jwk.Use != "sig" {
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

// allowsVerify reports whether the key_ops of a key, if there are any, include verify.
func allowsVerify(jwk []byte) bool {
	ops, ok := jsonscan.Get(jwk, "key_ops")
	return !ok || slices.Contains(oauthwire.Strings(ops), "verify")
}

// algorithmsOfKey returns the algorithms that a key can verify: no algorithm for a secret, a
// published private key or a weak key.
func algorithmsOfKey(jwk *jose.JSONWebKey) []jose.SignatureAlgorithm {
	key, isRSA := jwk.Key.(*rsa.PublicKey)
	if !jwk.IsPublic() || !jwk.Valid() || isRSA && key.N.BitLen() > maxRSABits {
		return nil
	}
	algorithms, _ := jwskey.Algorithms(jwk.Key)
	return algorithms
}

// A remoteKeySet fetches the key set of an authorization server when it is needed. Concurrent
// callers share a fetch, or use the previous set meanwhile.
type remoteKeySet struct {
	fetcher *Fetcher
	issuer  string
	address string // of the set; empty if the metadata of the issuer names it
	allowed []jose.SignatureAlgorithm
	fetches singleflight.Group[string, *keySet]

	mu      sync.Mutex // guards the fields below
	set     *keySet    // initially nil
	fetched time.Time  // when set was fetched
	tried   time.Time  // when the last fetch ended
	failure error      // of the last fetch, nil if it succeeded
}

func newRemoteKeySet(f *Fetcher, issuer, address string, allowed []jose.SignatureAlgorithm) (*remoteKeySet, error) {
	u, err := url.Parse(cmp.Or(address, issuer))
	if err != nil || u.Host == "" {
		return nil, fmt.Errorf("invalid issuer or JWKSURI %q: must be a URL with a host", cmp.Or(address, issuer))
	}
	return &remoteKeySet{fetcher: f.For(u), issuer: issuer, address: address, allowed: allowed}, nil
}

// fresh returns the current set, nil if it must be fetched.
func (r *remoteKeySet) fresh(now time.Time) *keySet {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.set == nil || now.Sub(r.fetched) >= keySetLifetime {
		return nil
	}
	return r.set
}

// current returns the current set, and fetches it if it is too old. While another caller fetches
// it, and if it cannot be fetched, an old set is used for keySetStaleTime.
func (r *remoteKeySet) current(ctx context.Context) (*keySet, error) {
	now := time.Now()
	if set := r.fresh(now); set != nil {
		return set, nil
	}
	r.mu.Lock()
	old, age := r.set, now.Sub(r.fetched)
	r.mu.Unlock()
	if age >= keySetLifetime+keySetStaleTime {
		old = nil
	}
	if old != nil && r.fetches.InProgress(r.address) {
		return old, nil
	}
	return r.refresh(ctx, old)
}

// refresh returns a newer set than old, or old if the fetch fails. old may be nil.
func (r *remoteKeySet) refresh(ctx context.Context, old *keySet) (*keySet, error) {
	return r.fetches.Do(ctx, r.address, func(ctx context.Context) (*keySet, error) {
		r.mu.Lock()
		set, fetched, tried, failure := r.set, r.fetched, r.tried, r.failure
		r.mu.Unlock()
		now := time.Now()
		if set != nil && set != old && now.Sub(fetched) < keySetLifetime {
			return set, nil // another caller fetched it
		}
		interval := minRefetchInterval
		if old == nil {
			interval = minRetryInterval
		}
		if tried.IsZero() || now.Sub(tried) >= interval {
			if set, failure = r.fetch(ctx); failure == nil {
				return set, nil
			}
		}
		if old != nil {
			return old, nil
		}
		return nil, fmt.Errorf("oauth: fetch the keys of the authorization server: %w", failure)
	})
}

func (r *remoteKeySet) fetch(ctx context.Context) (*keySet, error) {
	set, err := r.download(ctx)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tried, r.failure = time.Now(), err
	if err == nil {
		r.set, r.fetched = set, r.tried
	}
	return set, err
}

func (r *remoteKeySet) download(ctx context.Context) (*keySet, error) {
	address := r.address
	if address == "" {
		metadata, err := r.fetcher.FetchServerMetadata(ctx, r.issuer)
		if err != nil {
			return nil, err
		}
		if address = metadata.JWKSURI; address == "" {
			return nil, errors.New("the metadata of the authorization server has no jwks_uri")
		}
	}
	var document jwkSet
	if _, err := r.fetcher.fetcher().GetJSON(ctx, address, &document); err != nil {
		return nil, err
	}
	return parseKeys(document.Keys, r.allowed), nil
}
