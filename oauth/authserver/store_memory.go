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
	maxKind = 64      // bytes
	maxKey  = 4 << 10 // bytes; the longest are client IDs, which may be URLs
	// sweepEvery is the time between sweeps, which remove expired records. Such records are
	// invisible in any case, except to Count.
	sweepEvery = time.Minute
)

// ErrStoreClosed reports that a store was closed.
var ErrStoreClosed = errors.New("authserver: store closed")

// NewMemoryStore returns a Store in memory. After a restart all users have to log in again, and all
// clients have to register again. For a store that survives a restart see package stores/bolt.
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

func (s *memoryStore) Get(ctx context.Context, kind, key string) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.usable(ctx); err != nil {
		return nil, err
	}
	return bytes.Clone(s.live(kind, key)), nil
}

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

func (s *memoryStore) GetAndDelete(ctx context.Context, kind, key string) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.usable(ctx); err != nil {
		return nil, err
	}
	value := s.live(kind, key)
	delete(s.kinds[kind], key)
	return value, nil
}

func (s *memoryStore) Update(ctx context.Context, kind, key string, change func(old []byte) ([]byte, time.Time,
	error)) error {
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

func (s *memoryStore) Count(ctx context.Context, kind string) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.usable(ctx); err != nil {
		return 0, err
	}
	s.sweepIfDue(time.Now())
	return len(s.kinds[kind]), nil
}

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
	// An empty value must not become nil, which means that there is no record.
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

func checkRecordName(kind, key string) error {
	switch {
	case kind == "" || len(kind) > maxKind:
		return fmt.Errorf("authserver: invalid kind of %d bytes: must have 1 to %d", len(kind), maxKind)
	case key == "" || len(key) > maxKey:
		return fmt.Errorf("authserver: invalid key of %d bytes: must have 1 to %d", len(key), maxKey)
	}
	return nil
}
