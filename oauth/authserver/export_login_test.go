package authserver

import (
	"context"
	"net/http"
	"net/http/httptest"
	"time"
)

// Sealed seals a secret for a record.
func Sealed(keys []SealKey, secret []byte, kind, key string) ([]byte, error) {
	s, err := newKeyRing(keys)
	if err != nil {
		return nil, err
	}
	return s.Seal(secret, kind, key), nil
}

// Unsealed opens a sealed secret. It reports whether the secret was sealed with another key than
// the first.
func Unsealed(keys []SealKey, sealed []byte, kind, key string) ([]byte, bool, error) {
	s, err := newKeyRing(keys)
	if err != nil {
		return nil, false, err
	}
	return openSealed(s, sealed, kind, key)
}

// LimitedKeys returns the largest number of addresses, clients or users in any of the limiters.
func LimitedKeys(s *Server) int {
	n := 0
	for i := range s.limits.limiters {
		n = max(n, s.limits.limiters[i].buckets.Len())
	}
	return n
}

// AllowPasswordAttempt counts an attempt with a wrong password for a user from an address, without
// checking a password, which takes long. It reports whether the attempt is within the limits.
func AllowPasswordAttempt(s *Server, address, name string) bool {
	r := httptest.NewRequest(http.MethodPost, "/login", nil)
	r.RemoteAddr = address
	_, ok := s.limits.takePassword(httptest.NewRecorder(), r, name)
	return ok
}

// HoldPasswordGuesses makes guesses wait, as if each check took until release is called. It returns how
// many are checked at the same time.
func HoldPasswordGuesses(l Login) (checks int, release func()) {
	q := &l.(*passwordLogin).guesses
	checks = cap(q.slots)
	for range checks {
		_ = q.enter(context.Background())
	}
	return checks, func() {
		for range checks {
			q.leave()
		}
	}
}

// MaxLimited is the maximum that LimitedKeys may return.
const MaxLimited = maxLimited

// ShownName returns a name as pages show it.
func ShownName(name string) string { return shownName(name) }

// DocumentClient fetches the metadata document of a client and returns its redirect URIs.
func DocumentClient(ctx context.Context, s *Server, id string) ([]string, error) {
	c, err := s.documentClient(ctx, id)
	if err != nil {
		return nil, err
	}
	return c.RedirectURIs, nil
}

// WithClientAddress returns the context of a request from an address.
func WithClientAddress(ctx context.Context, address string) context.Context {
	return withClientKey(ctx, address)
}

// ShownHost returns a host as pages show it.
func ShownHost(host string) string { return shownHost(host) }

// CachedDocuments returns the numbers of cached documents and of cached failures.
func CachedDocuments(s *Server) (values, failures int) {
	r := &s.documents.copies
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.values.Len(), r.failures.Len()
}

// StoreConsent stores an interaction that a user at an address has consented to.
func StoreConsent(ctx context.Context, s *Server, address string) error {
	in := &interaction{ID: randomID(), Client: "client", Expires: time.Now().Add(interactionTime)}
	return s.storeConsent(withClientKey(ctx, address), in)
}
