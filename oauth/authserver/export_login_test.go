package authserver

import "context"

// Sealed gives what a sealer with these keys makes of a secret for a record.
func Sealed(keys []SealKey, secret []byte, kind, key string) ([]byte, error) {
	s, err := newSealer(keys)
	if err != nil {
		return nil, err
	}
	return s.seal(secret, kind, key)
}

// Unsealed gives what a sealer with these keys opens, and whether it was sealed with an old one.
func Unsealed(keys []SealKey, sealed []byte, kind, key string) ([]byte, bool, error) {
	s, err := newSealer(keys)
	if err != nil {
		return nil, false, err
	}
	return s.open(sealed, kind, key)
}

// LimitedKeys gives how many addresses, clients and users are remembered at most by any of the limits.
func LimitedKeys(s *Server) int {
	n := 0
	for i := range s.limits.tables {
		t := &s.limits.tables[i]
		t.mu.Lock()
		n = max(n, len(t.buckets), t.recent.Len())
		t.mu.Unlock()
	}
	return n
}

// MaxLimited is how many may be.
const MaxLimited = maxLimited

// ShownName is how names of strangers are shown.
func ShownName(name string) string { return shownName(name) }

// DocumentClient resolves the id of a client that has a document, and gives its redirect URIs.
func DocumentClient(ctx context.Context, s *Server, id string) ([]string, error) {
	c, err := s.documentClient(ctx, id)
	if err != nil {
		return nil, err
	}
	return c.RedirectURIs, nil
}

// Documents that are kept.
func KeptDocuments(s *Server) int {
	s.documents.mu.Lock()
	defer s.documents.mu.Unlock()
	return len(s.documents.byID)
}
