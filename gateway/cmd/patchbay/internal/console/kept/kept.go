// Package kept keeps the results of actions of the web console, so that the URL of a page
// identifies the result that the page shows.
package kept

import (
	"crypto/rand"
	"slices"
	"strings"
	"sync"
)

// most limits the results of a Store: a person looks at the last few. The oldest is forgotten.
const most = 50

// A Store keeps the last results. The zero value is an empty store. It is safe for concurrent use.
type Store[T any] struct {
	mu    sync.Mutex // guards the fields below
	order []string   // the oldest first
	all   map[string]T
}

// Add keeps a result, and returns an id that nobody can guess.
func (s *Store[T]) Add(result T) (id string) {
	id = strings.ToLower(rand.Text())
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == nil {
		s.all = map[string]T{}
	}
	s.all[id] = result
	if s.order = append(s.order, id); len(s.order) > most {
		delete(s.all, s.order[0])
		s.order = slices.Delete(s.order, 0, 1)
	}
	return id
}

// Get returns a result, and reports whether the store still keeps it.
func (s *Store[T]) Get(id string) (result T, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	result, ok = s.all[id]
	return result, ok
}
