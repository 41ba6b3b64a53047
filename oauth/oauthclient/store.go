package oauthclient

import (
	"bytes"
	"context"
	"sync"
	"time"
)

// A Store keeps the tokens and the registrations of a client. Values are secrets. All methods are
// safe for concurrent use. A key is a string of printable characters of at most 4 KiB.
type Store interface {
	// Load returns the value of a key, or nil.
	Load(ctx context.Context, key string) ([]byte, error)
	// Update calls change with the value of a key, or nil, and replaces it by the result; nil
	// removes it. If change returns an error, Update returns it and leaves the value as it is.
	// Until Update returns, no other Update of the key begins, neither in this process nor in
	// another process with the same store, so that only one of many clients renews an expired
	// token. change may take as long as a request to a server, and must not call the Store, which
	// could deadlock.
	Update(ctx context.Context, key string, change func(old []byte) ([]byte, error)) error
}

// NewMemoryStore returns a Store in memory.
func NewMemoryStore() Store { return &memoryStore{values: map[string]*memoryValue{}} }

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

// maxUnsaved limits the values that are kept for a store that fails.
const maxUnsaved = 24

// reloadTimeout bounds reading from a store whose Update failed.
const reloadTimeout = 2 * time.Second

// A writeBackStore is a [Store] over a store that may fail to write. It keeps a value that could
// not be written, and returns it as long as the store contains the previous value: a refresh token
// that was used must not be used again. The next use of the key writes it again.
type writeBackStore struct {
	Store

	mu      sync.Mutex // guards the field below
	unsaved map[string]*unsavedValue
}

type unsavedValue struct {
	replaces []byte // what the store has
	value    []byte // nil if it is removed
}

func (s *writeBackStore) Load(ctx context.Context, key string) ([]byte, error) {
	s.mu.Lock()
	tryAgain := s.unsaved[key] != nil
	s.mu.Unlock()
	if tryAgain {
		// The first writer returned the error.
		_ = s.Update(ctx, key, func(old []byte) ([]byte, error) { return old, nil })
	}
	stored, err := s.Store.Load(ctx, key)
	if err != nil {
		return nil, err
	}
	return s.newest(key, stored), nil
}

func (s *writeBackStore) Update(ctx context.Context, key string, change func(old []byte) ([]byte, error)) error {
	var mine *unsavedValue
	err := s.Store.Update(ctx, key, func(stored []byte) ([]byte, error) {
		value, err := change(s.newest(key, stored))
		if err != nil {
			return nil, err
		}
		// While no other Update can see the key.
		mine = s.setUnsaved(key, &unsavedValue{replaces: stored, value: value})
		return value, nil
	})
	if err == nil {
		s.clearUnsaved(key, mine)
	}
	return err
}

// replace sets a value that does not depend on the previous one, and returns that. It keeps the
// value even if the store fails before it calls change.
func (s *writeBackStore) replace(ctx context.Context, key string, value []byte) (before []byte, err error) {
	isKept := false
	err = s.Update(ctx, key, func(old []byte) ([]byte, error) {
		before, isKept = old, true
		return value, nil
	})
	if err != nil && !isKept {
		looking, cancel := context.WithTimeout(context.WithoutCancel(ctx), reloadTimeout)
		defer cancel()
		if stored, failed := s.Store.Load(looking, key); failed == nil {
			before = s.newest(key, stored)
			s.setUnsaved(key, &unsavedValue{replaces: stored, value: value})
		}
	}
	return before, err
}

// newest returns the unsaved value of a key, or the stored value if another process wrote
// since.
func (s *writeBackStore) newest(key string, stored []byte) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	kept := s.unsaved[key]
	if kept == nil || !bytes.Equal(stored, kept.replaces) {
		delete(s.unsaved, key)
		return stored
	}
	return kept.value
}

func (s *writeBackStore) setUnsaved(key string, v *unsavedValue) *unsavedValue {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.unsaved, key)
	if bytes.Equal(v.replaces, v.value) {
		return nil // no value needs to be saved
	}
	if len(s.unsaved) >= maxUnsaved {
		clear(s.unsaved)
	}
	s.unsaved[key] = v
	return v
}

func (s *writeBackStore) clearUnsaved(key string, v *unsavedValue) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.unsaved[key] == v {
		delete(s.unsaved, key)
	}
}
