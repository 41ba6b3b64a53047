package redis

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/patchbay-mcp/patchbay/oauth/authserver"
)

const (
	// maxAuthKind, maxAuthKey and maxAuthValue limit records, in bytes.
	maxAuthKind, maxAuthKey, maxAuthValue = 64, 4 << 10, 8 << 20
	// maxAuthAttempts limits the attempts of an update whose record changes meanwhile.
	// maxAuthPause limits the random pause before each attempt.
	maxAuthAttempts, maxAuthPause = 200, 10 * time.Millisecond
)

var scriptAuthWrite = script("auth_write")

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

// key returns the key of a record, or "" if no such record can exist. The key contains the length
// of the kind, because a kind may contain any byte.
func (s authorizationStore) key(kind, key string) (string, error) {
	switch {
	case s.ended.Load():
		return "", authserver.ErrStoreClosed
	case kind == "" || len(kind) > maxAuthKind || key == "" || len(key) > maxAuthKey:
		return "", nil
	}
	return s.opts.Prefix + ":auth:" + strconv.Itoa(len(kind)) + ":" + kind + ":" + key, nil
}

func (s authorizationStore) Get(ctx context.Context, kind, key string) ([]byte, error) {
	name, err := s.key(kind, key)
	if err != nil || name == "" {
		return nil, err
	}
	return s.value(ctx, "read record", name)
}

func (s authorizationStore) Put(ctx context.Context, kind, key string, value []byte, expires time.Time) error {
	_, err := s.write(ctx, kind, key, "put", nil, append([]byte{}, value...), expires)
	return err
}

// write writes a record, and reports whether the condition allowed the write: put always allows the
// write, new requires that the record does not exist, and old requires the value old. write deletes
// a record that has expired or has no value.
func (s authorizationStore) write(ctx context.Context, kind, key, condition string, old, value []byte,
	expires time.Time) (bool, error) {
	name, err := s.key(kind, key)
	switch {
	case err != nil:
		return false, err
	case name == "" || len(value) > maxAuthValue:
		return false, fmt.Errorf("redis: invalid kind, key or value of %d, %d and %d bytes: at most %d, %d and %d",
			len(kind), len(key), len(value), maxAuthKind, maxAuthKey, maxAuthValue)
	}
	lifetime := int64(0) // milliseconds; 0 means no expiry, -1 a record to delete
	if !expires.IsZero() {
		lifetime = max(time.Until(expires).Milliseconds(), 0)
	}
	if value == nil || lifetime == 0 && !expires.IsZero() {
		lifetime = -1
	}
	reply, err := s.eval(ctx, "write record", scriptAuthWrite, len(old)+len(value), []string{name},
		condition, string(old), string(value), strconv.FormatInt(lifetime, 10))
	if err != nil {
		return false, err
	}
	n, err := reply.AsInt64()
	return n == 1, err
}

func (s authorizationStore) GetAndDelete(ctx context.Context, kind, key string) ([]byte, error) {
	name, err := s.key(kind, key)
	if err != nil || name == "" {
		return nil, err
	}
	reply, err := s.do(ctx, "take record", maxAuthValue, func(ctx context.Context) rueidis.RedisResult {
		return s.client.Do(ctx, s.client.B().Getdel().Key(name).Build())
	})
	if err != nil || reply.IsNil() {
		return nil, err
	}
	return bytesOf(reply)
}

// Update calls change again if the record changed meanwhile.
func (s authorizationStore) Update(ctx context.Context, kind, key string,
	change func(old []byte) ([]byte, time.Time, error)) error {
	for range maxAuthAttempts {
		old, err := s.Get(ctx, kind, key)
		if err != nil {
			return err
		}
		condition, before := "new", append([]byte{}, old...) // change may write to old
		if old != nil {
			condition = "old"
		}
		value, expires, err := change(old)
		if err != nil {
			return err
		}
		if done, err := s.write(ctx, kind, key, condition, before, value, expires); done || err != nil {
			return err
		}
		select {
		case <-time.After(rand.N(maxAuthPause)):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return fmt.Errorf("redis: %s: update record: the record changed %d times meanwhile", s.server, maxAuthAttempts)
}
