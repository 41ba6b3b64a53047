package oauthclient

import (
	"context"
	"sync"
)

// A Store keeps what a client must not lose: tokens, and the ids that it was registered under. Values are secrets. All
// methods are safe for concurrent use, and a key is any string of printable characters up to 4 KiB.
type Store interface {
	// Load returns the value under a key, nil if there is none.
	Load(ctx context.Context, key string) ([]byte, error)
	// Update calls change with the value under a key, nil if there is none, and puts what it gives in its place; nil
	// removes the key. An error of change is the error of Update, and leaves the value as it is. Between the call of
	// change and the end of Update no other Update of the key begins, in this process or in another one that uses the
	// same store, so that of many who find a token expired only one renews it. change may take as long as a request to
	// a server takes, and uses no method of the Store: one that has a single writer would wait for itself.
	Update(ctx context.Context, key string, change func(old []byte) ([]byte, error)) error
}

// NewMemoryStore returns a Store that lasts as long as the process.
func NewMemoryStore() Store {
	return &memoryStore{values: map[string]*memoryValue{}}
}

type memoryStore struct {
	mu     sync.Mutex // guards the field below
	values map[string]*memoryValue
}

type memoryValue struct {
	lock chan struct{} // holds a token while the value is updated

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
