package authserver

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/patchbay-mcp/patchbay/oauth"
)

const (
	// clientKeysTime is how long the keys of a client are kept. One that replaces a key publishes the new one before.
	clientKeysTime = 5 * time.Minute
	// clientKeysStaleTime is for how long they stand in while their host does not answer: shorter than documents do, for a
	// key is replaced in a hurry when it was stolen.
	clientKeysStaleTime = time.Hour
	// clientKeysFailureTime is how long a failure to fetch them is kept: nobody may make us fetch at will.
	clientKeysFailureTime = 30 * time.Second
	// maxClientKeys bounds the keys in a set, and maxKeySet its size.
	maxClientKeys = 20
	maxKeySet     = 256 << 10
)

// clientJWKS keeps the key sets of clients, which stand at the URLs that their documents name.
type clientJWKS struct {
	http *http.Client
	sets remoteCache[[]jose.JSONWebKey]
}

func newClientJWKS(fetcher *oauth.Fetcher, l *fetchLimiter) *clientJWKS {
	j := &clientJWKS{http: fetcher.HTTPClient()}
	j.sets = newRemoteCache[[]jose.JSONWebKey](l, clientKeysFailureTime, clientKeysStaleTime)
	j.sets.fetch = j.fetch
	return j
}

// clientKeys returns the public keys of a client, or an *oauthError: invalid_client if there are none, and
// temporarily_unavailable if they cannot be known for now.
func (s *Server) clientKeys(ctx context.Context, c *client) ([]jose.JSONWebKey, error) {
	if c.JWKSURI == "" {
		return c.keys, nil
	}
	keys, err := s.clientJWKS.sets.get(ctx, c.JWKSURI)
	if err == nil {
		return keys, nil
	}
	s.log.InfoContext(ctx, "authorization server: the keys of a client cannot be had", "host", hostOf(c.JWKSURI), "error", err)
	if isPermanent(err) || errors.Is(err, oauth.ErrURLRefused) {
		return nil, &oauthError{status: http.StatusUnauthorized, code: codeInvalidClient, text: "the keys of the client cannot be used"}
	}
	return nil, &oauthError{status: http.StatusServiceUnavailable, code: codeUnavailable, text: "the keys of the client cannot be fetched for now"}
}

func (j *clientJWKS) fetch(ctx context.Context, address string) ([]jose.JSONWebKey, time.Duration, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, 0, &oauth.DiscoveryError{URL: hostOf(address), Err: errors.New("it is no URL")}
	}
	req.Header.Set("Accept", "application/jwk-set+json, application/json")
	res, err := j.http.Do(req)
	if err != nil {
		return nil, 0, keysError(address, err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, maxKeySet+1))
	if err != nil {
		return nil, 0, keysError(address, err)
	}
	if res.StatusCode != http.StatusOK {
		return nil, 0, &oauth.FetchError{URL: hostOf(address), Status: res.StatusCode}
	}
	keys, err := parseKeySet(body)
	if len(body) > maxKeySet {
		err = errors.New("it is too large")
	}
	if err != nil {
		return nil, 0, &oauth.DiscoveryError{URL: hostOf(address), Err: err}
	}
	return keys, clientKeysTime, nil
}

// keysError returns an error of a fetch without what may be secret in it.
func keysError(address string, err error) error {
	var unfetched *oauth.FetchError
	if errors.As(err, &unfetched) {
		return unfetched
	}
	return &oauth.FetchError{URL: hostOf(address), Err: errors.New("the answer did not come in time, or broke off")}
}

// parseKeySet returns the public keys of a set that can sign. Those of other kinds are left out.
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
