package redis

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"strconv"
	"time"

	"github.com/redis/rueidis"

	"github.com/patchbay-mcp/patchbay/oauth/oauthclient"
)

const (
	// loginLease is how long a lock lasts after its process has ended. A running process renews
	// the lock every renewEvery.
	loginLease, renewEvery = 15 * time.Second, 3 * time.Second
	// minLoginPoll and maxLoginPoll limit the time between attempts to lock a key.
	minLoginPoll, maxLoginPoll = 5 * time.Millisecond, 50 * time.Millisecond
	// loginAge is how long the store keeps a login that nobody renews.
	loginAge = 365 * 24 * time.Hour
	// maxLogin limits a value, in bytes.
	maxLogin = 1 << 20
)

// ErrLockLost means that an update lost its lock, because the process could not renew the lock in
// time. Another process may be updating the same key. The update changed nothing.
var ErrLockLost = errors.New("redis: the lock of the update was lost")

var (
	scriptLoginRenew = script("login_renew")
	scriptLoginEnd   = script("login_end")
)

type loginStore struct {
	*Store
	principal string
}

// Logins returns a store for the logins of a principal. Values contain tokens without encryption.
// An update holds a lock in Redis, which expires 15 seconds after the process ends. The store
// deletes a login that nobody renews for a year.
func (s *Store) Logins(principal string) oauthclient.Store { return loginStore{s, principal} }

// key returns a key without the names of principals and servers.
func (s loginStore) key(key string) string {
	return s.opts.Prefix + ":login:{" + digest(s.principal, key) + "}"
}

func (s loginStore) Load(ctx context.Context, key string) ([]byte, error) {
	return s.value(ctx, "load login", s.key(key))
}

// Update locks the key while change runs.
func (s loginStore) Update(ctx context.Context, key string, change func(old []byte) ([]byte, error)) error {
	keys, token := []string{s.key(key), s.key(key) + ":lock"}, rand.Text()
	if err := s.lock(ctx, keys, token); err != nil {
		return err
	}
	stop := s.keepLock(ctx, keys[1], token)
	defer stop() // if change panics
	old, err := s.Load(ctx, key)
	var value []byte
	if err == nil {
		value, err = change(old)
	}
	if err == nil && len(value) > maxLogin {
		err = fmt.Errorf("redis: invalid login of %d bytes: must have at most %d", len(value), maxLogin)
	}
	stop()
	action := "set"
	switch {
	case err != nil:
		action = "keep"
	case value == nil:
		action = "delete"
	}
	reply, failed := s.end(ctx, keys, token, action, value)
	// The server may answer again while the lock is held.
	for limit := time.Now().Add(loginLease); err == nil && errors.Is(failed, ErrUnavailable) &&
		time.Now().Before(limit); {
		<-time.After(maxLoginPoll)
		reply, failed = s.end(ctx, keys, token, action, value)
	}
	if err != nil || failed != nil {
		return errors.Join(err, failed)
	}
	if n, err := reply.AsInt64(); n != 1 || err != nil {
		return fmt.Errorf("%w: %s", ErrLockLost, s.server)
	}
	return nil
}

// end makes the change of an update and releases its lock. A change that was made, such as a renewed
// token, must be stored although the caller left, and is tried although the server failed before.
func (s loginStore) end(ctx context.Context, keys []string, token, action string,
	value []byte) (rueidis.RedisMessage, error) {
	ctx = context.WithValue(context.WithoutCancel(ctx), urgent{}, true)
	return s.eval(ctx, "update login", scriptLoginEnd, len(value), keys, token, action, string(value),
		strconv.Itoa(int(loginAge.Seconds())))
}

// lock waits until the caller holds the lock, which is the second of keys.
func (s loginStore) lock(ctx context.Context, keys []string, token string) error {
	for tried := false; ; {
		reply, err := s.do(ctx, "lock login", 0, func(ctx context.Context) rueidis.RedisResult {
			tried = true
			return s.client.Do(ctx, s.client.B().Set().Key(keys[1]).Value(token).Nx().
				PxMilliseconds(loginLease.Milliseconds()).Build())
		})
		if err != nil && tried { // the server may have set the lock
			_, _ = s.end(ctx, keys, token, "keep", nil)
		}
		if err != nil || !reply.IsNil() {
			return err
		}
		select {
		case <-time.After(minLoginPoll + mathrand.N(maxLoginPoll-minLoginPoll)):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// keepLock renews a lock until stop is called. keepLock repeats failed attempts; the end of the
// update checks whether the lock was lost.
func (s loginStore) keepLock(ctx context.Context, key, token string) (stop func()) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-time.After(renewEvery):
				_, _ = s.eval(ctx, "renew lock", scriptLoginRenew, 0, []string{key}, token,
					strconv.FormatInt(loginLease.Milliseconds(), 10))
			case <-ctx.Done():
				return
			}
		}
	}()
	return func() {
		cancel()
		<-done
	}
}
