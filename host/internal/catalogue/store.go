package catalogue

import (
	"crypto/sha256"
	"fmt"
	"sync"
	"weak"
)

// A Store holds the lists of a server, a single copy of equal lists, and the parsed schemas of its
// tools. A list belongs to the store as long as it is in use. The zero Store is empty, and safe for
// concurrent use.
type Store struct {
	mu      sync.Mutex // guards the fields below
	lists   map[[sha256.Size]byte]weak.Pointer[List]
	schemas map[[sha256.Size]byte]func() *Schema // by the digest of the definition; to be called without mu
}

// Keep returns the stored list that equals a list. It stores the list if the store does not contain
// it. The result is nil if all lists would exceed most bytes.
func (s *Store) Keep(l *List, most int) *List {
	h := sha256.New()
	fmt.Fprint(h, l.kind, l.digest, l.problems)
	key := [sha256.Size]byte(h.Sum(nil))
	s.mu.Lock()
	defer s.mu.Unlock()
	if stored := s.lists[key].Value(); stored != nil {
		return stored
	}
	if s.sizeLocked()+l.bytes > most {
		return nil
	}
	if s.lists == nil {
		s.lists = map[[sha256.Size]byte]weak.Pointer[List]{}
	}
	s.lists[key] = weak.Make(l)
	return l
}

// Bytes returns the size of the pages of all lists that were in use at the last garbage collection.
func (s *Store) Bytes() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sizeLocked()
}

// sizeLocked is [Store.Bytes]. It removes lists that are no longer used.
func (s *Store) sizeLocked() (bytes int) {
	for key, p := range s.lists {
		if l := p.Value(); l != nil {
			bytes += l.bytes
		} else {
			delete(s.lists, key)
		}
	}
	return bytes
}
