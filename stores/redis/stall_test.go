package redis_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
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

// loseAnswers returns the URL of a proxy of a server. A request for which lose returns true is
// made, but its connection breaks instead of the answer.
func loseAnswers(t *testing.T, s *server, lose func(request string) bool) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	t.Cleanup(all.Wait)
	t.Cleanup(func() { _ = l.Close() })
	all.Go(func() {
		for c, err := l.Accept(); err == nil; c, err = l.Accept() {
			all.Go(func() { forward(c, s, lose) })
		}
	})
	return "redis://" + l.Addr().String()
}

func forward(c net.Conn, s *server, lose func(request string) bool) {
	defer c.Close()
	to, err := net.Dial("tcp", "127.0.0.1:"+s.port)
	if err != nil {
		return
	}
	defer to.Close()
	request, answer := make([]byte, 64<<10), make([]byte, 64<<10)
	for {
		n, err := c.Read(request)
		if err != nil {
			return
		}
		_, err1 := to.Write(request[:n])
		m, err2 := to.Read(answer)
		if err1 != nil || err2 != nil || lose(string(request[:n])) {
			return
		}
		if _, err := c.Write(answer[:m]); err != nil {
			return
		}
	}
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

// An update whose last answer was lost was made: repeating the call finds its value.
func TestLoginWhoseAnswerWasLostIsStored(t *testing.T) {
	for _, value := range [][]byte{[]byte("renewed"), nil} {
		var lost atomic.Bool
		url := loseAnswers(t, startServer(t), func(request string) bool { // the server gets the script once
			return strings.Contains(request, "EVAL\r\n") && strings.Contains(request, ":lock") &&
				lost.CompareAndSwap(false, true)
		})
		logins := open(t, url, &redis.Options{Timeout: 5 * time.Second}).Logins("alice")
		err := logins.Update(t.Context(), "key", func([]byte) ([]byte, error) { return value, nil })
		if got, err2 := logins.Load(t.Context(), "key"); err != nil || string(got) != string(value) || err2 != nil {
			t.Errorf("Update returned %v, then Load %q, %v; want %q", err, got, err2, value)
		}
		if !lost.Load() {
			t.Error("no answer was lost")
		}
	}
}

// A lock whose answer was lost is released, also if this failure opens the breaker.
func TestLockWithoutAnAnswerIsReleased(t *testing.T) {
	server := startServer(t)
	url := loseAnswers(t, server, func(request string) bool {
		return strings.Contains(request, "NX") || strings.Contains(request, "lost")
	})
	s := open(t, url, &redis.Options{Timeout: 5 * time.Second})
	for range 2 {
		if _, err := s.States().Get(t.Context(), "lost"); !errors.Is(err, redis.ErrUnavailable) {
			t.Errorf("a call whose answer was lost returned %v", err)
		}
	}
	err := s.Logins("alice").Update(t.Context(), "key", func([]byte) ([]byte, error) { return nil, errors.New("runs") })
	if !errors.Is(err, redis.ErrUnavailable) {
		t.Errorf("Update without a lock returned %v, want ErrUnavailable", err)
	}
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
