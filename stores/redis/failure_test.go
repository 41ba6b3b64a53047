package redis_test

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/ext/tasks"
	"github.com/patchbay-mcp/patchbay/host/state"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcphttp"
	"github.com/patchbay-mcp/patchbay/replica"
	"github.com/patchbay-mcp/patchbay/stores/redis"
)

// use stores a state and reads it.
func use(t testing.TB, s mcp.StateStore) error {
	err := s.Put(t.Context(), "key", []byte("state"), time.Now().Add(time.Hour))
	if err != nil {
		return err
	}
	if got, err := s.Get(t.Context(), "key"); err != nil || string(got) != "state" {
		return fmt.Errorf("got %q: %w", got, err)
	}
	return nil
}

func TestServerIsKilledAndRestarted(t *testing.T) {
	server := startServer(t)
	s := open(t, server.url(), &redis.Options{Timeout: 5 * time.Second})
	states := s.States()
	if err := use(t, states); err != nil {
		t.Fatal(err)
	}
	if first, err := states.Once(t.Context(), "used", time.Now().Add(time.Hour)); err != nil || !first {
		t.Fatalf("Once returned %t, %v", first, err)
	}
	server.kill()
	await(t, func() error { // three failures open the breaker
		_, err := states.Get(t.Context(), "key")
		if !errors.Is(err, redis.ErrUnavailable) || !strings.Contains(err.Error(), "127.0.0.1:"+server.port) {
			t.Fatalf("a call without a server returned %v, want ErrUnavailable with the address", err)
		}
		if !strings.Contains(err.Error(), "not tried") {
			return err
		}
		return nil
	})
	first, err := states.Once(t.Context(), "new", time.Now().Add(time.Hour))
	if first || !errors.Is(err, redis.ErrUnavailable) {
		t.Errorf("Once without a server returned %t, %v; want false and ErrUnavailable", first, err)
	}
	if err := server.start(); err != nil {
		t.Fatal(err)
	}
	await(t, func() error { // a write on each broken connection fails once; then all work, and so does the breaker
		for range 10 {
			if err := use(t, states); err != nil {
				return err
			}
			first, err := states.Once(t.Context(), "used", time.Now().Add(time.Hour))
			if first {
				t.Fatal("a state was used twice, before and after the restart")
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// A server that accepts connections and does not answer must not hold calls for long.
func TestServerThatDoesNotAnswer(t *testing.T) {
	server := startServer(t)
	s := open(t, server.url(), &redis.Options{Timeout: time.Second})
	await(t, func() error { return use(t, s.States()) })
	command(t, server.url(), "CLIENT", "PAUSE", strconv.Itoa(int(patience.Milliseconds())), "ALL")
	begin := time.Now()
	for range 200 {
		if _, err := s.States().Get(t.Context(), "key"); !errors.Is(err, redis.ErrUnavailable) {
			t.Fatalf("a call of a paused server returned %v, want ErrUnavailable", err)
		}
	}
	// Three calls take a second each. The breaker refuses nearly all others.
	if took := time.Since(begin); took > patience/2 {
		t.Errorf("200 calls of a paused server took %v", took)
	}
}

func TestErrorsDoNotContainThePassword(t *testing.T) {
	const secret = "pa55word"
	server := startServer(t, "--requirepass", secret)
	for _, url := range []string{
		"redis://:" + secret + "@127.0.0.1:" + freePort(), "redis://:" + secret + "@127.0.0.1:port",
		"redis://:" + secret + "@127.0.0.1/0/0", "redis://:" + secret + "%zz@127.0.0.1",
		"redis://:" + secret + "/@host",
		"http://:" + secret + "@127.0.0.1", secret, "redis://:" + secret + "x@127.0.0.1:" + server.port,
		"redis://:" + secret + "@127.0.0.1:" + server.port + "/9999",
	} {
		s, err := redis.Open(t.Context(), url, calm())
		if err == nil {
			s.Close()
			t.Errorf("Open of %s succeeded", url)
		} else if strings.Contains(err.Error(), secret) {
			t.Errorf("the error contains the password: %v", err)
		}
	}
	if err := use(t, open(t, "redis://:"+secret+"@127.0.0.1:"+server.port, calm()).States()); err != nil {
		t.Error(err)
	}
}

func TestInvalidOptionsAreRefused(t *testing.T) {
	for _, opts := range []redis.Options{
		{Prefix: "a{b"}, {Prefix: strings.Repeat("p", 200)}, {Timeout: -1}, {EventAge: -1},
		{EventAge: time.Microsecond}, {EventBytes: -1},
	} {
		if s, err := redis.Open(t.Context(), need(t).url(), &opts); err == nil {
			s.Close()
			t.Errorf("%.80v was accepted", opts)
		}
	}
}

func TestServerThatEvictsIsRefused(t *testing.T) {
	server := startServer(t, "--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru")
	if s, err := redis.Open(t.Context(), server.url(), calm()); !errors.Is(err, redis.ErrEvicts) {
		if err == nil {
			s.Close()
		}
		t.Errorf("Open returned %v, want ErrEvicts", err)
	}
	command(t, server.url(), "CONFIG", "SET", "maxmemory-policy", "noeviction")
	useAll(t, open(t, server.url(), calm()))
	command(t, server.url(), "CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
	command(t, server.url(), "CONFIG", "SET", "maxmemory", "0") // unlimited: nothing is evicted
	open(t, server.url(), calm())
}

func TestFullServerIsAnError(t *testing.T) {
	server := startServer(t, "--maxmemory", "8mb", "--maxmemory-policy", "noeviction")
	s := open(t, server.url(), calm())
	var err error
	for i := 0; err == nil && i < 64; i++ {
		err = s.States().Put(t.Context(), fmt.Sprint(i), make([]byte, 1<<20), time.Now().Add(time.Hour))
	}
	if !errors.Is(err, redis.ErrFull) || errors.Is(err, redis.ErrUnavailable) {
		t.Errorf("storing 64 MiB returned %v, want ErrFull", err)
	}
	if got, err := s.States().Get(t.Context(), "0"); err != nil || len(got) != 1<<20 {
		t.Errorf("reading from a full server returned %d bytes, %v", len(got), err)
	}
}

func TestClosedStore(t *testing.T) {
	a, b := openTwo(t)
	a.Close()
	a.Close()
	if err := use(t, a.States()); !errors.Is(err, redis.ErrClosed) {
		t.Errorf("a call of a closed store returned %v, want ErrClosed", err)
	}
	if err := use(t, b.States()); err != nil {
		t.Error(err)
	}
}

// Events that are older than their age are not returned, also if the session stores newer events,
// and no key remains.
func TestEventsExpire(t *testing.T) {
	opts := calm()
	opts.Prefix, opts.EventAge = "expire", 300*time.Millisecond
	events := open(t, need(t).url(), opts).Events()
	old := mcphttp.StreamKey{Session: "s", Stream: "old"}
	appendEvent := func(stream mcphttp.StreamKey, n int64) {
		t.Helper()
		if err := events.Append(t.Context(), stream, n, []byte("event")); err != nil {
			t.Fatal(err)
		}
	}
	appendEvent(old, 1)
	n := int64(0)
	await(t, func() error {
		n++
		appendEvent(mcphttp.StreamKey{Session: "s", Stream: "new"}, n)
		for _, err := range events.After(t.Context(), old, 0) {
			if errors.Is(err, mcphttp.ErrEventGap) {
				return nil
			}
		}
		return errors.New("the event is still returned")
	})
	await(t, func() error {
		if keys := keysOf(t, "expire"); len(keys) > 0 {
			return fmt.Errorf("these keys remain: %q", keys)
		}
		return nil
	})
}

// The last EventBytes of the events of a session remain, and a server is never sent an event that
// is too large.
func TestOldEventsMakeRoom(t *testing.T) {
	opts := calm()
	opts.Prefix, opts.EventBytes = "room", 256<<10
	events := open(t, need(t).url(), opts).Events()
	const last, size, remain = 32, 16 << 10, 15 // and the overhead of each
	stream := mcphttp.StreamKey{Session: "s", Stream: "s"}
	for n := range last {
		if err := events.Append(t.Context(), stream, int64(n+1), bytes.Repeat([]byte{byte(n)}, size)); err != nil {
			t.Fatal(err)
		}
	}
	gaps := 0
	for _, err := range events.After(t.Context(), stream, last-remain-1) {
		if gaps++; !errors.Is(err, mcphttp.ErrEventGap) {
			t.Errorf("a discarded event returned %v, want ErrEventGap", err)
		}
	}
	if gaps != 1 {
		t.Errorf("a discarded event returned %d pairs, want 1", gaps)
	}
	n := last - remain
	for data, err := range events.After(t.Context(), stream, last-remain) {
		if err != nil || !bytes.Equal(data, bytes.Repeat([]byte{byte(n)}, size)) {
			t.Fatalf("event %d has other data, %v", n+1, err)
		}
		n++
	}
	if n != last {
		t.Errorf("got events to %d, want %d", n, last)
	}
	if err := events.Append(t.Context(), stream, last+1, make([]byte, 128<<10+1)); err == nil {
		t.Error("an event of more than half of the limit was stored")
	}
}

// Every key expires, except those of the state of a host, and records without an expiry.
func TestKeysExpire(t *testing.T) {
	useAll(t, openPrefix(t, "ttl"))
	keys := keysOf(t, "ttl")
	for _, key := range keys {
		if strings.HasPrefix(key, "ttl:host:") {
			continue
		}
		reply := command(t, shared.url(), "PTTL", key)
		if left, err := reply.AsInt64(); err != nil || left <= 0 {
			t.Errorf("the key %q has no expiry: %d, %v", key, left, err)
		}
	}
	if len(keys) < 10 {
		t.Errorf("found the keys %q, want more", keys)
	}
}

func record(id string) tasks.Record {
	return tasks.Record{ID: id, Owner: "alice", Created: time.Now(), Expires: time.Now(), Data: []byte("data")}
}

func useLimits(t testing.TB, s state.LimitStore) {
	t.Helper()
	if _, left, wait, err := s.Take(t.Context(), "ann", time.Hour, 3, 1); left != 2 || wait != 0 || err != nil {
		t.Fatalf("Take returned %d, %v, %v", left, wait, err)
	}
	l, err := s.Lease(t.Context(), "ann", state.Operation{Process: "process", Number: 1}, 24*time.Hour, 100, 3)
	if l.Units != 3 || err != nil {
		t.Fatalf("Lease returned %+v, %v", l, err)
	}
	if err := s.Return(t.Context(), "ann", l); err != nil {
		t.Fatal(err)
	}
	if _, n, err := s.Join(t.Context(), "process", time.Hour); n != 1 || err != nil {
		t.Fatalf("Join returned %d, %v", n, err)
	}
}

// useAll writes to each store.
func useAll(t testing.TB, s *redis.Store) {
	t.Helper()
	if err := use(t, s.States()); err != nil {
		t.Fatal(err)
	}
	if first, err := s.States().Once(t.Context(), "once", time.Now().Add(time.Hour)); err != nil || !first {
		t.Fatalf("Once returned %t, %v", first, err)
	}
	authorization, in := s.Authorization(), time.Now().Add(time.Hour)
	change := func([]byte) ([]byte, time.Time, error) { return []byte("updated"), in, nil }
	for name, err := range map[string]error{
		"task":  s.Tasks("server").Create(t.Context(), record("open")),
		"state": s.HostState().CompareAndSet(t.Context(), "pin", "key", 0, []byte("v")),
		"login": s.Logins("alice").Update(t.Context(), "key", func([]byte) ([]byte, error) { return []byte("v"), nil }),
		"put":   authorization.Put(t.Context(), "grant", "put", []byte("v"), in),
		"auth":  authorization.Update(t.Context(), "grant", "update", change),
		"open":  s.Sessions().Create(t.Context(), "key", replica.Session{Data: []byte("data")}, time.Hour),
		"keep":  s.Sessions().Keep(t.Context(), "key", time.Hour),
	} {
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	done := record("open")
	done.Version, done.Done = 1, true
	if err := s.Tasks("server").Update(t.Context(), done); err != nil {
		t.Fatal(err)
	}
	if err := s.Tasks("server").Create(t.Context(), record("second")); err != nil {
		t.Fatal(err)
	}
	if n, err := s.Tasks("server").DeleteExpired(t.Context(), time.Now(), 10); n != 1 || err != nil {
		t.Fatalf("DeleteExpired returned %d, %v", n, err)
	}
	if list, err := s.Tasks("server").List(t.Context(), "alice", tasks.Cursor{}, 10); len(list) != 1 || err != nil {
		t.Fatalf("List returned %v, %v", list, err)
	}
	for _, err := range s.HostState().List(t.Context(), "pin") {
		if err != nil {
			t.Fatal(err)
		}
	}
	useLimits(t, s.Limits())
	stream := mcphttp.StreamKey{Session: "session", Principal: "principal", Stream: "stream"}
	if err := s.Events().Append(t.Context(), stream, 1, []byte("event")); err != nil {
		t.Fatal(err)
	}
	for data, err := range s.Events().After(t.Context(), stream, 0) {
		if err != nil || string(data) != "event" {
			t.Fatalf("got %q, %v", data, err)
		}
	}
}
