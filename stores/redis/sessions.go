package redis

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/patchbay-mcp/patchbay/replica"
)

const (
	// maxSession limits a record, in bytes.
	maxSession = 1 << 20
	// maxSessionKey limits the key of a session, in bytes. Keys are digests.
	maxSessionKey = 1 << 10
)

var (
	scriptSessionWrite = script("session_write")
	scriptSessionKeep  = script("session_keep")
)

type sessionStore struct{ *Store }

// Sessions returns a store of the sessions that processes share. A record has at most 1 MiB, and
// expires after the idle time and up to a quarter more. The server reports a change only to the
// processes that read the record (client tracking), on a connection that the first call opens. After
// this connection broke and works again, Watch reports the change of all sessions.
func (s *Store) Sessions() replica.SessionStore { return sessionStore{s} }

func (s *Store) sessionPrefix() string { return s.opts.Prefix + ":session:" }

func (s sessionStore) Create(ctx context.Context, key string, r replica.Session, idle time.Duration) error {
	r.Version = 1
	return s.write(ctx, "create session", key, "", r, idle)
}

func (s sessionStore) Update(ctx context.Context, key string, r replica.Session, idle time.Duration) error {
	defer s.push.changed(key) // the server does not report changes to their author
	version := strconv.FormatUint(r.Version, 10)
	r.Version++
	return s.write(ctx, "update session", key, version, r, idle)
}

func (s sessionStore) write(ctx context.Context, op, key, version string, r replica.Session, idle time.Duration) error {
	value := fmt.Sprintf("%d %d %d\n", r.Version, len(r.Principal), len(r.Listener)) + r.Principal + r.Listener +
		string(r.Data)
	switch {
	case len(value) > maxSession:
		return fmt.Errorf("redis: invalid session of %d bytes: must have at most %d", len(value), maxSession)
	case key == "" || len(key) > maxSessionKey:
		return fmt.Errorf("redis: invalid key of a session %.80q: must have 1 to %d bytes", key, maxSessionKey)
	case idle < time.Millisecond:
		return fmt.Errorf("redis: invalid idle time %v of a session: must be at least a millisecond", idle)
	}
	return s.change(ctx, op, key, scriptSessionWrite, len(value), version, value, expiry(idle))
}

// expiry returns after how many milliseconds a record expires. The record lasts for a quarter longer
// than it must, so that processes that keep a session extend its record only once per quarter.
func expiry(idle time.Duration) string { return strconv.FormatInt((idle + idle/4).Milliseconds(), 10) }

func (s sessionStore) change(ctx context.Context, op, key string, lua *rueidis.Lua, size int, args ...string) error {
	store, err := s.push.open(ctx)
	if err != nil {
		return err
	}
	reply, err := store.eval(ctx, op, lua, size, []string{s.sessionPrefix() + key}, args...)
	if err != nil {
		return err
	}
	switch n, err := reply.AsInt64(); n {
	case 1:
		return err
	case -1:
		return replica.ErrNoSession
	}
	return replica.ErrConflict
}

func (s sessionStore) Keep(ctx context.Context, key string, idle time.Duration) error {
	return s.change(ctx, "keep session", key, scriptSessionKeep, 0, strconv.FormatInt(idle.Milliseconds(), 10),
		expiry(idle))
}

func (s sessionStore) Load(ctx context.Context, key string) (r replica.Session, err error) {
	store, err := s.push.open(ctx)
	if err != nil {
		return r, err
	}
	// The server remembers each key that the other connection reads, also if the key does not exist.
	found, err := s.do(ctx, "find session", 0, func(ctx context.Context) rueidis.RedisResult {
		return s.client.Do(ctx, s.client.B().Exists().Key(s.sessionPrefix()+key).Build())
	})
	if err != nil {
		return r, err
	}
	if n, err := found.AsInt64(); err == nil && n == 0 {
		return r, replica.ErrNoSession
	}
	value, err := store.value(ctx, "load session", s.sessionPrefix()+key)
	if err != nil {
		return r, err
	}
	if value == nil {
		return r, replica.ErrNoSession
	}
	head, rest, _ := strings.Cut(string(value), "\n")
	var principal, listener int
	n, err := fmt.Sscanf(head, "%d %d %d", &r.Version, &principal, &listener)
	if n != 3 || principal < 0 || listener < 0 || principal > len(rest) || listener > len(rest)-principal {
		return replica.Session{}, fmt.Errorf("redis: %s: load session: invalid record %.80q: %w", s.server, head, err)
	}
	r.Principal, r.Listener = rest[:principal], rest[principal:principal+listener]
	r.Data = []byte(rest[principal+listener:])
	return r, nil
}

func (s sessionStore) Delete(ctx context.Context, key string) error {
	defer s.push.changed(key)
	store, err := s.push.open(ctx)
	if err != nil {
		return err
	}
	_, err = store.do(ctx, "delete session", 0, func(ctx context.Context) rueidis.RedisResult {
		return store.client.Do(ctx, store.client.B().Unlink().Key(s.sessionPrefix()+key).Build())
	})
	return err
}

func (s sessionStore) Watch(changed func(key string)) (stop func()) {
	s.push.mu.Lock()
	defer s.push.mu.Unlock()
	s.push.watchers[&changed] = true
	return func() {
		s.push.mu.Lock()
		defer s.push.mu.Unlock()
		delete(s.push.watchers, &changed)
	}
}
