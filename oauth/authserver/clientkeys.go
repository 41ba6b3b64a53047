package authserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/patchbay-mcp/patchbay/internal/oauthfetch"
	"github.com/patchbay-mcp/patchbay/oauth"
)

const (
	// clientKeysTime is the time for which the keys of a client are cached. A client publishes a
	// new key before it uses it.
	clientKeysTime = 5 * time.Minute
	// clientKeysStaleTime is the age up to which keys are used while their host does not answer. It
	// is shorter than that of documents because a stolen key is replaced at once.
	clientKeysStaleTime   = time.Hour
	clientKeysFailureTime = 30 * time.Second // for which a failed fetch is cached
	// The maximum number of keys in a set, and the maximum size of the set in bytes.
	maxClientKeys = 20
	maxKeySet     = 256 << 10
)

// clientJWKS caches the key sets that client metadata documents refer to.
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

// clientKeys returns the public keys of a client. The error is an *oauthError: invalid_client if
// the keys are not valid, and temporarily_unavailable if they cannot be fetched now.
func (s *Server) clientKeys(ctx context.Context, c *client) ([]jose.JSONWebKey, error) {
	if c.JWKSURI == "" {
		return c.keys, nil
	}
	keys, err := s.clientJWKS.sets.get(ctx, c.JWKSURI)
	if err == nil {
		return keys, nil
	}
	s.log.InfoContext(ctx, "authorization server: fetching the keys of a client failed", "host", hostOf(c.JWKSURI),
		"error", err)
	if isPermanent(err) || errors.Is(err, oauth.ErrURLRefused) {
		return nil, &oauthError{status: http.StatusUnauthorized, code: codeInvalidClient,
			text: "the keys of the client cannot be used"}
	}
	return nil, unavailable("the keys of the client cannot be fetched now")
}

func (j *clientJWKS) fetch(ctx context.Context, address string) ([]jose.JSONWebKey, time.Duration, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, 0, &oauth.DiscoveryError{URL: hostOf(address), Err: errors.New("invalid URL")}
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
		err = fmt.Errorf("larger than %d bytes", maxKeySet)
	}
	if err != nil {
		return nil, 0, &oauth.DiscoveryError{URL: hostOf(address), Err: err}
	}
	return keys, clientKeysTime, nil
}

// keysError returns the error of a fetch without details that may be secret.
func keysError(address string, err error) error {
	var fetchErr *oauth.FetchError
	if errors.As(err, &fetchErr) {
		return fetchErr
	}
	return &oauth.FetchError{URL: hostOf(address), Err: errors.New("no complete response in time")}
}

// parseKeySet returns the public signature keys of a set. It ignores all other keys.
func parseKeySet(text []byte) ([]jose.JSONWebKey, error) {
	var set struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := oauthfetch.Decode(text, &set); err != nil {
		return nil, err
	}
	if len(set.Keys) > maxClientKeys {
		return nil, fmt.Errorf("more than %d keys", maxClientKeys)
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
