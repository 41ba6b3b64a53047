package oauthclient

import (
	"context"
	"sync"
)

// A Store keeps the tokens and the registrations of a client. Values are secrets. All methods are
// safe for concurrent use. A key is a string of printable characters of at most 4 KiB.
type Store interface {
	// Load returns the value of a key, nil if there is none.
	Load(ctx context.Context, key string) ([]byte, error)
	// Update calls change with the value of a key, nil if there is none, and replaces it by the
	// result; nil removes it. If change returns an error, Update returns it and leaves the value as
	// it is. Until Update returns, no other Update of the key begins, neither in this process nor
	// in another one with the same store, so that only one of many clients renews an expired token.
	// change may take as long as a request to a server, and must not call the Store, which could
	// deadlock.
	Update(ctx context.Context, key string, change func(old []byte) ([]byte, error)) error
}

// NewMemoryStore returns a Store in memory.
func NewMemoryStore() Store {
	return &memoryStore{values: map[string]*memoryValue{}}
}

type memoryStore struct {
	mu     sync.Mutex // guards the field below
	values map[string]*memoryValue
}

type memoryValue struct {
	lock chan struct{} // semaphore, held during an update

	mu    sync.Mutex // guards the field below
	value []byte
}

func (s *memoryStore) at(key string) *memoryValue {
	s.mu.Lock()
	defer s.mu.Unlock()
	v := s.values[key]
	if v == nil {
		v = &memoryValue{lock: make(chan struct{}, 1)}
		s.values[key] = v
	}
	return v
}

func (s *memoryStore) Load(_ context.Context, key string) ([]byte, error) {
	return s.at(key).get(), nil
}

func (s *memoryStore) Update(ctx context.Context, key string, change func(old []byte) ([]byte, error)) error {
	v := s.at(key)
	select {
	case v.lock <- struct{}{}:
		defer func() { <-v.lock }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	changed, err := change(v.get())
	if err != nil {
		return err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.value = changed
	return nil
}

func (v *memoryValue) get() []byte {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.value
}
