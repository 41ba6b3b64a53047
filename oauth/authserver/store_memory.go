package authserver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

const (
	// maxKind is how long the name of a kind may be. Ours have less than half of it.
	maxKind = 64
	// maxKey is how long a key may be: the longest are client ids, which may be URLs.
	maxKey = 4 << 10
	// sweepEvery is how often expired records are looked for. They are invisible from their time on, but for Count, so this
	// only bounds the room that they take.
	sweepEvery = time.Minute
)

// ErrStoreClosed is the error of a store that was closed.
var ErrStoreClosed = errors.New("authserver: the store is closed")

// NewMemoryStore returns a Store that lasts as long as the process: everybody has to log in again after a restart, and
// clients that registered are unknown. It takes as much memory as there are records that have not expired.
func NewMemoryStore() Store {
	return &memoryStore{kinds: map[string]map[string]memoryRecord{}}
}

type memoryStore struct {
	mu     sync.Mutex // guards the fields below
	kinds  map[string]map[string]memoryRecord
	swept  time.Time
	closed bool
}

type memoryRecord struct {
	value   []byte
	expires time.Time
}

// Get returns the value of a record.
func (s *memoryStore) Get(ctx context.Context, kind, key string) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.usable(ctx); err != nil {
		return nil, err
	}
	return bytes.Clone(s.live(kind, key)), nil
}

// Put writes a record.
func (s *memoryStore) Put(ctx context.Context, kind, key string, value []byte, expires time.Time) error {
	if err := checkRecordName(kind, key); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.usable(ctx); err != nil {
		return err
	}
	s.put(kind, key, value, expires)
	return nil
}

// Take returns the value of a record and removes it.
func (s *memoryStore) Take(ctx context.Context, kind, key string) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.usable(ctx); err != nil {
		return nil, err
	}
	value := s.live(kind, key)
	delete(s.kinds[kind], key)
	return value, nil
}

// Update changes a record.
func (s *memoryStore) Update(ctx context.Context, kind, key string, change func(old []byte) ([]byte, time.Time, error)) error {
	if err := checkRecordName(kind, key); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.usable(ctx); err != nil {
		return err
	}
	value, expires, err := change(bytes.Clone(s.live(kind, key)))
	if err != nil {
		return err
	}
	if value == nil {
		delete(s.kinds[kind], key)
		return nil
	}
	s.put(kind, key, value, expires)
	return nil
}

// Count returns the number of records of a kind, with those that have expired in the last minute.
func (s *memoryStore) Count(ctx context.Context, kind string) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.usable(ctx); err != nil {
		return 0, err
	}
	s.sweepIfDue(time.Now())
	return len(s.kinds[kind]), nil
}

// Close forgets everything.
func (s *memoryStore) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed, s.kinds = true, nil
	return nil
}

func (s *memoryStore) usable(ctx context.Context) error {
	if s.closed {
		return ErrStoreClosed
	}
	return context.Cause(ctx)
}

func (s *memoryStore) live(kind, key string) []byte {
	r, ok := s.kinds[kind][key]
	if !ok || expired(r.expires, time.Now()) {
		return nil
	}
	return r.value
}

func (s *memoryStore) put(kind, key string, value []byte, expires time.Time) {
	s.sweepIfDue(time.Now())
	if s.kinds[kind] == nil {
		s.kinds[kind] = map[string]memoryRecord{}
	}
	// A value of no bytes is one all the same, while a nil one would read as none.
	s.kinds[kind][key] = memoryRecord{value: append([]byte{}, value...), expires: expires}
}

func (s *memoryStore) sweepIfDue(now time.Time) {
	if now.Sub(s.swept) < sweepEvery {
		return
	}
	s.swept = now
	for kind, records := range s.kinds {
		for key, r := range records {
			if expired(r.expires, now) {
				delete(records, key)
			}
		}
		if len(records) == 0 {
			delete(s.kinds, kind)
		}
	}
}

func expired(expires, now time.Time) bool {
	return !expires.IsZero() && !now.Before(expires)
}

// checkRecordName refuses names that not every store can keep.
func checkRecordName(kind, key string) error {
	switch {
	case kind == "" || len(kind) > maxKind:
		return fmt.Errorf("authserver: the kind of a record has 1 to %d bytes, not %d", maxKind, len(kind))
	case key == "" || len(key) > maxKey:
		return fmt.Errorf("authserver: the key of a record has 1 to %d bytes, not %d", maxKey, len(key))
	}
	return nil
}
