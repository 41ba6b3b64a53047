package authserver

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/patchbay-mcp/patchbay/oauth"
)

const (
	// clientKeysTime is how long the keys of a client are kept. One that replaces a key publishes the new one before.
	clientKeysTime = 5 * time.Minute
	// clientKeysRetry is how long a failure to fetch them is kept: nobody may make us fetch at will.
	clientKeysRetry = 30 * time.Second
	// maxClientKeySets bounds the sets that are kept, maxClientKeys the keys in one, and maxKeySet its size.
	maxClientKeySets = 1000
	maxClientKeys    = 20
	maxKeySet        = 256 << 10
)

// clientJWKS keeps the key sets of clients, which stand at the URLs that their documents name.
type clientJWKS struct {
	fetcher *oauth.Fetcher

	mu   sync.Mutex // guards the field below
	sets map[string]*keySet
}

type keySet struct {
	done  chan struct{} // closed when the rest is there
	until time.Time
	keys  []jose.JSONWebKey
	err   error
}

// get gives the keys at an address. One that asks fetches, the others wait for it.
func (j *clientJWKS) get(ctx context.Context, address string) ([]jose.JSONWebKey, error) {
	j.mu.Lock()
	set := j.sets[address]
	fetch := set == nil || isDone(set) && !time.Now().Before(set.until)
	if fetch {
		set = &keySet{done: make(chan struct{})}
		j.put(address, set)
	}
	j.mu.Unlock()
	if fetch {
		set.keys, set.err = j.fetch(ctx, address)
		set.until = time.Now().Add(clientKeysTime)
		if set.err != nil {
			set.until = time.Now().Add(clientKeysRetry)
		}
		close(set.done)
	}
	select {
	case <-set.done:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if set.err != nil {
		return nil, &oauthError{status: http.StatusUnauthorized, code: codeInvalidClient, text: "the keys of the client cannot be fetched"}
	}
	return set.keys, nil
}

func isDone(s *keySet) bool {
	select {
	case <-s.done:
		return true
	default:
		return false
	}
}

// put keeps a set; when there are too many, any other one goes.
func (j *clientJWKS) put(address string, set *keySet) {
	if j.sets == nil {
		j.sets = map[string]*keySet{}
	}
	for other := range j.sets {
		if len(j.sets) < maxClientKeySets {
			break
		}
		delete(j.sets, other)
	}
	j.sets[address] = set
}

func (j *clientJWKS) fetch(ctx context.Context, address string) ([]jose.JSONWebKey, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "application/jwk-set+json, application/json")
	res, err := j.fetcher.HTTPClient().Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, maxKeySet+1))
	if err != nil {
		return nil, err
	}
	if res.StatusCode != http.StatusOK || len(body) > maxKeySet {
		return nil, errors.New("no key set, or too large a one")
	}
	return parseKeySet(body)
}

// parseKeySet gives the public keys of a set that can sign. Those of other kinds are left out.
func parseKeySet(text []byte) ([]jose.JSONWebKey, error) {
	var set struct {
		Keys []rawKey `json:"keys"`
	}
	if err := decodeStrict(text, &set); err != nil {
		return nil, err
	}
	if len(set.Keys) > maxClientKeys {
		return nil, errors.New("too many keys")
	}
	var keys []jose.JSONWebKey
	for _, raw := range set.Keys {
		var k jose.JSONWebKey
		if k.UnmarshalJSON(raw) != nil || !k.IsPublic() || !k.Valid() || k.Use != "" && k.Use != "sig" {
			continue
		}
		if _, err := algorithmOf(k.Key); err == nil {
			keys = append(keys, k)
		}
	}
	return keys, nil
}

// rawKey is a key as text.
type rawKey []byte

// UnmarshalJSON keeps the text.
func (k *rawKey) UnmarshalJSON(text []byte) error {
	*k = append(rawKey{}, text...)
	return nil
}
