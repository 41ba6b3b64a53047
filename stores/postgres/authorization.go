package postgres

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/patchbay-mcp/patchbay/oauth/authserver"
)

const (
	// maxAuthKind, maxAuthKey and maxAuthValue limit records, in bytes.
	maxAuthKind, maxAuthKey, maxAuthValue = 64, 4 << 10, 8 << 20
	// maxAuthAttempts limits the attempts of an update whose record changes meanwhile.
	// maxAuthPause limits the random pause before each attempt.
	maxAuthAttempts, maxAuthPause = 200, 10 * time.Millisecond
)

type authorizationStore struct {
	*Store
	ended *atomic.Bool
}

// Authorization returns the store of an authorization server, which several processes may share.
// The store contains hashes of tokens and codes, and seals other secrets. Set
// [authserver.Options.SealKeys]: otherwise, the store also contains the key of the sealed secrets.
// Closing the returned store does not close s.
func (s *Store) Authorization() authserver.Store { return authorizationStore{s, new(atomic.Bool)} }

// Close closes the store. After Close, all methods return [authserver.ErrStoreClosed].
func (s authorizationStore) Close() error {
	s.ended.Store(true)
	return nil
}

// key returns the key of a record, or nil if no such record can exist.
func (s authorizationStore) key(kind, key string) ([]byte, error) {
	switch {
	case s.ended.Load():
		return nil, authserver.ErrStoreClosed
	case kind == "" || len(kind) > maxAuthKind || key == "" || len(key) > maxAuthKey:
		return nil, nil
	}
	return digest(kind, key), nil
}

func (s authorizationStore) Get(ctx context.Context, kind, key string) ([]byte, error) {
	value, _, err := s.get(ctx, "read record", kind, key)
	return value, err
}

func (s authorizationStore) GetAndDelete(ctx context.Context, kind, key string) ([]byte, error) {
	value, _, err := s.get(ctx, "take record", kind, key)
	return value, err
}

// get returns a record and its version, 0 if the record does not exist or expired.
func (s authorizationStore) get(ctx context.Context, op, kind, key string) (value []byte, version int64, err error) {
	id, err := s.key(kind, key)
	if err != nil || id == nil {
		return nil, 0, err
	}
	return s.value(ctx, op, maxAuthValue, id)
}

func (s authorizationStore) Put(ctx context.Context, kind, key string, value []byte, expires time.Time) error {
	_, err := s.write(ctx, kind, key, -1, append([]byte{}, value...), expires)
	return err
}

// write writes a record, and reports whether its version was the given version, or -1 for any. write
// deletes a record that expired or lacks a value.
func (s authorizationStore) write(ctx context.Context, kind, key string, version int64, value []byte,
	expires time.Time) (bool, error) {
	id, err := s.key(kind, key)
	switch {
	case err != nil:
		return false, err
	case id == nil || len(value) > maxAuthValue:
		return false, fmt.Errorf("postgres: invalid kind, key or value of %d, %d and %d bytes: at most %d, %d and %d",
			len(kind), len(key), len(value), maxAuthKind, maxAuthKey, maxAuthValue)
	}
	var lifetime *time.Duration // nil means no expiry
	if !expires.IsZero() {
		left := time.Until(expires)
		if lifetime = &left; left <= 0 {
			value = nil
		}
	}
	n, err := s.number(ctx, "write record", len(value), id, version, value, lifetime)
	return n == 1, err
}

// Update calls change again if the record changed meanwhile.
func (s authorizationStore) Update(ctx context.Context, kind, key string,
	change func(old []byte) ([]byte, time.Time, error)) error {
	for range maxAuthAttempts {
		old, version, err := s.get(ctx, "read record", kind, key)
		if err != nil {
			return err
		}
		value, expires, err := change(old)
		if err != nil {
			return err
		}
		if done, err := s.write(ctx, kind, key, version, value, expires); done || err != nil {
			return err
		}
		select {
		case <-time.After(rand.N(maxAuthPause)):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return fmt.Errorf("postgres: %s: update record: the record changed %d times meanwhile", s.server, maxAuthAttempts)
}
