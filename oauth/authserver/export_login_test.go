package authserver

import (
	"context"
	"net/http"
	"net/http/httptest"
)

// Sealed returns what a sealer with these keys makes of a secret for a record.
func Sealed(keys []SealKey, secret []byte, kind, key string) ([]byte, error) {
	s, err := newKeyRing(keys)
	if err != nil {
		return nil, err
	}
	return s.Seal(secret, kind, key), nil
}

// Unsealed returns what a sealer with these keys opens, and whether it was sealed with an old one.
func Unsealed(keys []SealKey, sealed []byte, kind, key string) ([]byte, bool, error) {
	s, err := newKeyRing(keys)
	if err != nil {
		return nil, false, err
	}
	return openSealed(s, sealed, kind, key)
}

// LimitedKeys returns how many addresses, clients and users are remembered at most by any of the
// limits.
func LimitedKeys(s *Server) int {
	n := 0
	for i := range s.limits.limiters {
		l := &s.limits.limiters[i]
		l.mu.Lock()
		n = max(n, len(l.buckets.byKey), l.buckets.recent.Len())
		l.mu.Unlock()
	}
	return n
}

// AllowPasswordAttempt takes a guess at the password of a user from an address, without the time that checking
// it takes.
func AllowPasswordAttempt(s *Server, address, name string) bool {
	r := httptest.NewRequest(http.MethodPost, "/login", nil)
	r.RemoteAddr = address
	_, ok := s.limits.takePassword(httptest.NewRecorder(), r, name)
	return ok
}

// MaxLimited is how many may be.
const MaxLimited = maxLimited

// ShownName returns a name as pages show it.
func ShownName(name string) string { return shownName(name) }

// DocumentClient resolves the id of a client that has a document, and gives its redirect URIs.
func DocumentClient(ctx context.Context, s *Server, id string) ([]string, error) {
	c, err := s.documentClient(ctx, id)
	if err != nil {
		return nil, err
	}
	return c.RedirectURIs, nil
}

// WithClientAddress is the context of a request from an address.
func WithClientAddress(ctx context.Context, address string) context.Context {
	return withClientKey(ctx, address)
}

// ShownHost returns a host as pages show it.
func ShownHost(host string) string { return shownHost(host) }

// CachedDocuments returns how many documents are in memory, and how many failures.
func CachedDocuments(s *Server) (values, failures int) {
	r := &s.documents.copies
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.values.byKey), len(r.failures.byKey)
}
