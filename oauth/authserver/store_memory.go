package authserver

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"
)

const (
	maxKind = 64      // bytes
	maxKey  = 4 << 10 // bytes; the longest are client IDs, which may be URLs
	// sweepEvery is the time between sweeps, which remove expired records. Such records are
	// invisible in any case.
	sweepEvery = time.Minute
)

// ErrStoreClosed reports that a store was closed.
var ErrStoreClosed = errors.New("authserver: store closed")

// NewMemoryStore returns a Store in memory. After a restart all users must log in again, and all
// clients must register again. For a store that survives a restart see package stores/bolt.
func NewMemoryStore() Store { return &memoryStore{kinds: map[string]map[string]memoryRecord{}} }

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

func (r memoryRecord) hasExpired(now time.Time) bool {
	return !r.expires.IsZero() && !now.Before(r.expires)
}

func (s *memoryStore) Get(ctx context.Context, kind, key string) (value []byte, err error) {
	err = s.locked(ctx, func() { value = bytes.Clone(s.live(kind, key)) })
	return value, err
}

func (s *memoryStore) Put(ctx context.Context, kind, key string, value []byte, expires time.Time) error {
	if err := checkRecordName(kind, key); err != nil {
		return err
	}
	return s.locked(ctx, func() { s.put(kind, key, value, expires) })
}

func (s *memoryStore) GetAndDelete(ctx context.Context, kind, key string) (value []byte, err error) {
	err = s.locked(ctx, func() {
		value = s.live(kind, key)
		delete(s.kinds[kind], key)
	})
	return value, err
}

func (s *memoryStore) Update(ctx context.Context, kind, key string, change func(old []byte) ([]byte, time.Time,
	error)) error {
	if err := checkRecordName(kind, key); err != nil {
		return err
	}
	var changeErr error
	err := s.locked(ctx, func() {
		var value []byte
		var expires time.Time
		value, expires, changeErr = change(bytes.Clone(s.live(kind, key)))
		switch {
		case changeErr != nil:
		case value == nil:
			delete(s.kinds[kind], key)
		default:
			s.put(kind, key, value, expires)
		}
	})
	return cmp.Or(err, changeErr)
}

func (s *memoryStore) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed, s.kinds = true, nil
	return nil
}

// locked calls f with the lock held, unless the store is closed or the context ended.
func (s *memoryStore) locked(ctx context.Context, f func()) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return ErrStoreClosed
	}
	if err := context.Cause(ctx); err != nil {
		return err
	}
	f()
	return nil
}

func (s *memoryStore) live(kind, key string) []byte {
	r, ok := s.kinds[kind][key]
	if !ok || r.hasExpired(time.Now()) {
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
	s.kinds[kind][key] = memoryRecord{append([]byte{}, value...), expires}
}

func (s *memoryStore) sweepIfDue(now time.Time) {
	if now.Sub(s.swept) < sweepEvery {
		return
	}
	s.swept = now
	for kind, records := range s.kinds {
		maps.DeleteFunc(records, func(_ string, r memoryRecord) bool { return r.hasExpired(now) })
		if len(records) == 0 {
			delete(s.kinds, kind)
		}
	}
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
