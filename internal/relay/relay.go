// Package relay passes the changes of a server on to functions that send them to other processes.
package relay

import (
	"maps"
	"slices"
	"sync"
)

// A Set is a set of functions that receive changes of type T. The zero Set is empty. It is safe for
// concurrent use.
type Set[T any] struct {
	mu  sync.Mutex // guards all
	all map[*func(T)]struct{}
}

// Add adds a function until remove is called.
func (s *Set[T]) Add(send func(T)) (remove func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == nil {
		s.all = map[*func(T)]struct{}{}
	}
	s.all[&send] = struct{}{}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.all, &send)
	}
}

// Send passes a change to all functions.
func (s *Set[T]) Send(change T) {
	s.mu.Lock()
	all := slices.Collect(maps.Keys(s.all))
	s.mu.Unlock()
	for _, send := range all {
		(*send)(change)
	}
}
