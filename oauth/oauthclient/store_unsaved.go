package oauthclient

import (
	"bytes"
	"context"
	"sync"
	"time"
)

// maxUnsaved bounds how many values are kept for a store that does not take them. A Transport has three keys at each
// authorization server, and seldom more than one of those.
const maxUnsaved = 24

// reloadTimeout bounds a look into a store that has just failed.
const reloadTimeout = 2 * time.Second

// A writeBackStore is a [Store] over another one which may fail to write. What that one did not take is kept, and is the
// value under its key for as long as the store holds what it should have replaced: a refresh token that was used already
// must not come back. The next use of the key writes it.
//
// An error of Update is returned all the same.
type writeBackStore struct {
	Store

	mu      sync.Mutex // guards the field below
	unsaved map[string]*unsavedValue
}

type unsavedValue struct {
	replaces []byte // of what the store holds
	value    []byte // nil if it is removed
}

func newWriteBackStore(s Store) *writeBackStore {
	return &writeBackStore{Store: s, unsaved: map[string]*unsavedValue{}}
}

// Load returns the value under a key, whether it is saved or not.
func (s *writeBackStore) Load(ctx context.Context, key string) ([]byte, error) {
	s.mu.Lock()
	tryAgain := s.unsaved[key] != nil
	s.mu.Unlock()
	if tryAgain {
		// Who wrote first was told of the failure.
		_ = s.Update(ctx, key, func(old []byte) ([]byte, error) { return old, nil })
	}
	stored, err := s.Store.Load(ctx, key)
	if err != nil {
		return nil, err
	}
	return s.newest(key, stored), nil
}

// Update is [Store.Update], where the value under the key is the newest one, whether it is saved or not.
func (s *writeBackStore) Update(ctx context.Context, key string, change func(old []byte) ([]byte, error)) error {
	var mine *unsavedValue
	err := s.Store.Update(ctx, key, func(stored []byte) ([]byte, error) {
		value, err := change(s.newest(key, stored))
		if err != nil {
			return nil, err
		}
		// Before anybody else can look at the key.
		mine = s.setUnsaved(key, &unsavedValue{replaces: stored, value: value})
		return value, nil
	})
	if err == nil {
		s.clearUnsaved(key, mine)
	}
	return err
}

// replace is an Update to a value that does not depend on the one before, which it gives. The value is kept even if the
// store fails before it says what it holds.
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

// newest returns the value under a key where the store holds another one. What is kept is forgotten if somebody else has
// written since.
func (s *writeBackStore) newest(key string, stored []byte) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	kept := s.unsaved[key]
	if kept == nil {
		return stored
	}
	if !bytes.Equal(stored, kept.replaces) {
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
		return nil // there is nothing to save
	}
	if len(s.unsaved) >= maxUnsaved {
		clear(s.unsaved)
	}
	s.unsaved[key] = v
	return v
}

// drop forgets what is kept under a key, unless there is something newer.
func (s *writeBackStore) clearUnsaved(key string, v *unsavedValue) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.unsaved[key] == v {
		delete(s.unsaved, key)
	}
}
