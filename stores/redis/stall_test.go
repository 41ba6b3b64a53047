package redis_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/stores/redis"
)

// pause makes a server not answer for a time.
func pause(t *testing.T, s *server, d time.Duration) {
	t.Helper()
	command(t, s.url(), "CLIENT", "PAUSE", fmt.Sprint(d.Milliseconds()), "ALL")
}

// openStalled opens a store with a short timeout, and loads its scripts.
func openStalled(t *testing.T) (*server, *redis.Store) {
	t.Helper()
	server := startServer(t)
	s := open(t, server.url(), &redis.Options{Timeout: 500 * time.Millisecond})
	await(t, func() error { return use(t, s.States()) })
	return server, s
}

// Operations that wait for the same stall are a single failure of the server.
func TestOneStallDoesNotOpenTheBreaker(t *testing.T) {
	server, s := openStalled(t)
	pause(t, server, patience)
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() { _, _ = s.States().Get(t.Context(), "key") })
	}
	all.Wait()
	_, err := s.States().Get(t.Context(), "key")
	if !errors.Is(err, redis.ErrUnavailable) || strings.Contains(err.Error(), "not tried") {
		t.Errorf("a call after one stall returned %v, want a call that was tried", err)
	}
}

// A renewed token is stored when the server answers again.
func TestLoginIsStoredAfterAStall(t *testing.T) {
	server, s := openStalled(t)
	logins := s.Logins("alice")
	err := logins.Update(t.Context(), "key", func([]byte) ([]byte, error) {
		pause(t, server, 3*time.Second)
		for range 4 { // opens the breaker
			_, _ = s.States().Get(t.Context(), "key")
		}
		return []byte("renewed"), nil
	})
	if err != nil {
		t.Fatal(err)
	}
	await(t, func() error {
		got, err := logins.Load(t.Context(), "key")
		if err == nil && string(got) != "renewed" {
			t.Fatalf("got %q, want the renewed token", got)
		}
		return err
	})
}

// A lock whose answer was lost is released.
func TestLockWithoutAnAnswerIsReleased(t *testing.T) {
	server, s := openStalled(t)
	logins := s.Logins("alice")
	pause(t, server, 2*time.Second)
	err := logins.Update(t.Context(), "key", func([]byte) ([]byte, error) { return nil, errors.New("runs") })
	if !errors.Is(err, redis.ErrUnavailable) {
		t.Fatalf("Update of a paused server returned %v, want ErrUnavailable", err)
	}
	await(t, func() error { // the connection answers this call after the call that releases the lock
		_, err := logins.Load(t.Context(), "key")
		return err
	})
	reply := command(t, server.url(), "KEYS", "*:lock")
	if keys, err := reply.AsStrSlice(); len(keys) > 0 || err != nil {
		t.Errorf("these locks remain: %q, %v", keys, err)
	}
}

// A process that runs renews its lock.
func TestLockIsRenewed(t *testing.T) {
	logins := openPrefix(t, "renew").Logins("alice")
	err := logins.Update(t.Context(), "key", func([]byte) ([]byte, error) {
		lock := lockOf(t, "renew")
		command(t, shared.url(), "PEXPIRE", lock, "10000")
		await(t, func() error {
			reply := command(t, shared.url(), "PTTL", lock)
			left, err := reply.AsInt64()
			if err == nil && left <= 10000 {
				err = fmt.Errorf("the lock expires in %d ms", left)
			}
			return err
		})
		return []byte("v"), nil
	})
	if err != nil {
		t.Error(err)
	}
}

// Open ends with its context although a server accepts the connection and does not answer.
func TestOpenEndsWithItsContext(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	url := "redis://" + l.Addr().String() + "?dial_timeout=4s"
	begin := time.Now()
	s, err := redis.Open(ctx, url, nil)
	if err == nil {
		s.Close()
	}
	if !errors.Is(err, context.DeadlineExceeded) || time.Since(begin) > 3*time.Second {
		t.Errorf("Open returned %v after %v, want the error of the context at once", err, time.Since(begin))
	}
}
