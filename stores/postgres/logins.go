package postgres

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"sync"
	"time"

	"github.com/patchbay-mcp/patchbay/oauth/oauthclient"
)

const (
	// loginLease is how long a lock lasts after its process ended. A running process renews
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
// time, and another process locked the key. The update changed nothing.
var ErrLockLost = errors.New("postgres: the lock of the update was lost")

type loginStore struct {
	*Store
	principal string
}

// Logins returns a store for the logins of a principal. Values contain tokens without encryption.
// An update holds a lock, which expires 15 seconds after the process ends, and no connection. The
// store deletes a login that nobody renews for a year.
func (s *Store) Logins(principal string) oauthclient.Store { return loginStore{s, principal} }

// key returns a key without the names of principals and servers.
func (s loginStore) key(key string) []byte { return digest(s.principal, key) }

func (s loginStore) Load(ctx context.Context, key string) ([]byte, error) {
	value, _, err := s.value(ctx, "load login", maxLogin, s.key(key))
	return value, err
}

// Update locks the key while change runs.
func (s loginStore) Update(ctx context.Context, key string, change func(old []byte) ([]byte, error)) error {
	id, holder := s.key(key), rand.Text()
	old, err := s.lock(ctx, id, holder)
	if err != nil {
		return err
	}
	stop := s.keepLock(ctx, id, holder)
	defer stop() // if change panics
	value, err := change(old)
	stop()
	if err == nil && len(value) > maxLogin {
		err = fmt.Errorf("postgres: invalid login of %d bytes: must have at most %d", len(value), maxLogin)
	}
	if err != nil {
		return errors.Join(err, s.unlock(ctx, id, holder))
	}
	// A change that was made, such as a renewed token, must be stored although the caller left or
	// the server fails for a moment. A repeated statement writes the same value.
	for limit := time.Now().Add(loginLease); ; {
		n, err := s.number(context.WithoutCancel(ctx), "update login", len(value), id, holder, value, loginAge)
		if err == nil && n == 0 {
			err = fmt.Errorf("%w: %s", ErrLockLost, s.server)
		}
		if !errors.Is(err, ErrUnavailable) || time.Now().After(limit) {
			return err
		}
		<-time.After(maxLoginPoll)
	}
}

// lock waits until holder locks the key, and returns the value.
func (s loginStore) lock(ctx context.Context, key []byte, holder string) ([]byte, error) {
	for {
		value, locked, err := s.value(ctx, "lock login", maxLogin, key, holder, loginLease)
		if err != nil && context.Cause(ctx) != nil { // the server may have set the lock
			_ = s.unlock(ctx, key, holder)
		}
		if err != nil || locked == 1 {
			return value, err
		}
		select {
		case <-time.After(minLoginPoll + mathrand.N(maxLoginPoll-minLoginPoll)):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

func (s loginStore) unlock(ctx context.Context, key []byte, holder string) error {
	return s.query(context.WithoutCancel(ctx), "unlock login", 0, nil, key, holder)
}

// keepLock renews a lock until stop is called. keepLock repeats failed attempts; the end of the
// update checks whether the lock was lost.
func (s loginStore) keepLock(ctx context.Context, key []byte, holder string) (stop func()) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var renewal sync.WaitGroup
	renewal.Go(func() {
		for ctx.Err() == nil {
			select {
			case <-time.After(renewEvery):
				_ = s.query(ctx, "renew lock", 0, nil, key, holder, loginLease)
			case <-ctx.Done():
			}
		}
	})
	return func() { cancel(); renewal.Wait() }
}
