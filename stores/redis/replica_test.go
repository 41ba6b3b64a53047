package redis_test

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/replica"
	"github.com/patchbay-mcp/patchbay/stores/redis"
)

// next waits for a value.
func next[T any](t *testing.T, values chan T) (value T) {
	t.Helper()
	select {
	case value = <-values:
	case <-time.After(patience):
		t.Fatal("nothing arrived")
	}
	return value
}

// After a restart of the server, changes and messages count as lost, and later changes arrive. Until
// then, nothing is reported, so a process can use the sessions that it knows.
func TestReplicasAfterARestart(t *testing.T) {
	const secret = "pa55word"
	server := startServer(t, "--requirepass", secret)
	url := "redis://:" + secret + "@127.0.0.1:" + server.port
	a, b := open(t, url, &redis.Options{Timeout: 5 * time.Second}), open(t, url, calm())
	must(t, a.Sessions().Create(t.Context(), "key", replica.Session{}, time.Hour))
	changes, messages := make(chan string, 100), make(chan []byte, 100)
	defer a.Sessions().Watch(func(key string) { changes <- key })()
	stop, err := a.Bus().Subscribe(t.Context(), "topic", func(payload []byte) { messages <- payload })
	must(t, err)
	defer stop()
	for range 2 {
		server.kill()
		for range 5 {
			_, err1 := a.Sessions().Load(t.Context(), "key")
			_, err2 := a.Bus().Publish(t.Context(), "topic", []byte("lost"))
			for _, err := range []error{err1, err2} {
				if !errors.Is(err, redis.ErrUnavailable) || strings.Contains(err.Error(), secret) {
					t.Errorf("a call without a server returned %v, want ErrUnavailable without the password", err)
				}
			}
		}
		if len(changes) > 0 || len(messages) > 0 {
			t.Error("losses were reported before the server answers again")
		}
		must(t, server.start())
		if key := next(t, changes); key != "" {
			t.Errorf("after the restart, the change of %q was reported, want all sessions", key)
		}
		if payload := next(t, messages); payload != nil {
			t.Errorf("after the restart, %q arrived, want nil", payload)
		}
		var current replica.Session
		await(t, func() error { // the breaker of each store closes
			current, err = a.Sessions().Load(t.Context(), "key")
			return errors.Join(err, use(t, a.States()), use(t, b.States()))
		})
		await(t, func() error {
			err := b.Sessions().Update(t.Context(), "key", current, time.Hour)
			if errors.Is(err, replica.ErrConflict) {
				err = nil // the update before was made
			}
			return err
		})
		if key := next(t, changes); key != "key" {
			t.Errorf("the change of %q was reported, want key", key)
		}
		await(t, func() error {
			n, err := b.Bus().Publish(t.Context(), "topic", []byte("new"))
			if err == nil && n != 1 {
				err = fmt.Errorf("the message has %d receivers", n)
			}
			return err
		})
		if payload := next(t, messages); string(payload) != "new" {
			t.Errorf("%q arrived, want the new message", payload)
		}
	}
}

// copies are the versions of sessions that a process knows. It forgets each session that is reported.
type copies struct {
	mu       sync.Mutex // guards the fields below
	versions map[string]uint64
	all      int // reports of all sessions
}

func (c *copies) changed(key string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.versions, key)
	if key == "" {
		c.all++
		clear(c.versions)
	}
}

func (c *copies) load(t *testing.T, s replica.SessionStore, key string) uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if version := c.versions[key]; version > 0 {
		return version
	}
	c.versions[key] = 0 // a change during Load deletes this
	c.mu.Unlock()
	loaded, err := s.Load(t.Context(), key)
	c.mu.Lock()
	if _, current := c.versions[key]; current && err == nil {
		c.versions[key] = loaded.Version
	}
	return loaded.Version
}

// A process that forgets each session that Watch reports has no old copy, although its connections break.
func TestCopiesAreCurrentAlthoughConnectionsBreak(t *testing.T) {
	const keys, changes = 8, 60
	server := startServer(t)
	a, b := open(t, server.url(), calm()), open(t, server.url(), calm())
	known := &copies{versions: map[string]uint64{}}
	defer b.Sessions().Watch(known.changed)()
	change := func(key string) {
		await(t, func() error {
			current, err := a.Sessions().Load(t.Context(), key)
			if err == nil {
				err = a.Sessions().Update(t.Context(), key, current, time.Hour)
			}
			return err
		})
	}
	for i := range keys {
		must(t, a.Sessions().Create(t.Context(), strconv.Itoa(i), replica.Session{}, time.Hour))
	}
	for n := range changes {
		if n%10 == 9 {
			command(t, server.url(), "CLIENT", "KILL", "TYPE", "normal")
		}
		for i := range keys {
			known.load(t, b.Sessions(), strconv.Itoa(i))
			change(strconv.Itoa(i))
			known.load(t, b.Sessions(), strconv.Itoa(i))
		}
	}
	for i := range keys {
		await(t, func() error {
			last, err := a.Sessions().Load(t.Context(), strconv.Itoa(i))
			if got := known.load(t, b.Sessions(), strconv.Itoa(i)); got != last.Version {
				err = errors.Join(err, fmt.Errorf("session %d: the copy has version %d, want %d", i, got, last.Version))
			}
			return err
		})
	}
	known.mu.Lock()
	defer known.mu.Unlock()
	if known.all == 0 {
		t.Error("no connection of the reader broke")
	}
}

// Several processes that keep a session do not make each other read it again.
func TestKeepIsRarelyReported(t *testing.T) {
	a, b := openTwo(t)
	var mu sync.Mutex
	reports := 0
	for _, s := range []*redis.Store{a, b} {
		defer s.Sessions().Watch(func(string) {
			mu.Lock()
			defer mu.Unlock()
			reports++
		})()
	}
	must(t, a.Sessions().Create(t.Context(), "key", replica.Session{}, time.Hour))
	for range 100 {
		for _, s := range []*redis.Store{a, b} {
			_, err := s.Sessions().Load(t.Context(), "key")
			must(t, err)
			must(t, s.Sessions().Keep(t.Context(), "key", time.Hour))
		}
	}
	_, err := b.Sessions().Load(t.Context(), "key")
	must(t, err)
	mu.Lock()
	defer mu.Unlock()
	t.Logf("200 calls of Keep caused %d reports", reports)
	if reports > 0 {
		t.Errorf("200 calls of Keep caused %d reports, want none within a quarter of the idle time", reports)
	}
}

// A typical record needs at most 1 KB of the server's memory.
func TestMemoryOfASession(t *testing.T) {
	s, _ := openTwo(t)
	key := strings.Repeat("k", 43) // a digest
	r := replica.Session{Principal: strings.Repeat("p", 43), Listener: "process1", Data: make([]byte, 300)}
	must(t, s.Sessions().Create(t.Context(), key, r, time.Hour))
	reply := command(t, shared.url(), "KEYS", "*:"+key)
	keys, err := reply.AsStrSlice()
	if err != nil || len(keys) != 1 {
		t.Fatalf("the record has the keys %q, %v", keys, err)
	}
	reply = command(t, shared.url(), "MEMORY", "USAGE", keys[0])
	bytes, err := reply.AsInt64()
	t.Logf("a session with 300 bytes of data needs %d bytes", bytes)
	if err != nil || bytes > 1<<10 {
		t.Errorf("a session with 300 bytes of data needs %d bytes, %v; want at most 1024", bytes, err)
	}
}

// A slow receiver loses messages, learns about the loss, and delays neither other topics nor calls.
func TestSlowReceiverLearnsOfLosses(t *testing.T) {
	a, b := openTwo(t)
	blocked, release := make(chan string, 1<<15), make(chan struct{})
	stop, err := b.Bus().Subscribe(t.Context(), "slow", func(payload []byte) {
		<-release
		if payload == nil {
			blocked <- "nil"
		} else {
			blocked <- string(payload[:1])
		}
	})
	must(t, err)
	defer stop()
	messages := make(chan []byte, 1)
	stop, err = b.Bus().Subscribe(t.Context(), "fast", func(payload []byte) { messages <- payload })
	must(t, err)
	defer stop()
	large := []byte("m" + strings.Repeat("x", 1<<18))
	for range 100 { // 25 MiB
		_, err := a.Bus().Publish(t.Context(), "slow", large)
		must(t, err)
	}
	_, err = a.Bus().Publish(t.Context(), "fast", []byte("fast"))
	must(t, err)
	next(t, messages)
	_, err = b.Sessions().Load(t.Context(), "key")
	if !errors.Is(err, replica.ErrNoSession) {
		t.Errorf("Load returned %v, want ErrNoSession", err)
	}
	close(release)
	n := 0
	for next(t, blocked) != "nil" {
		n++
	}
	if n > 40 {
		t.Errorf("%d messages were delivered before the loss, want at most 10 MiB", n)
	}
	_, err = a.Bus().Publish(t.Context(), "slow", []byte("last"))
	must(t, err)
	for next(t, blocked) != "l" {
	}
}

func TestInvalidSessionsAndMessagesAreRefused(t *testing.T) {
	s, _ := openTwo(t)
	create := func(key string, size int, idle time.Duration) error {
		return s.Sessions().Create(t.Context(), key, replica.Session{Data: make([]byte, size)}, idle)
	}
	publish := func(topic string, size int) error {
		_, err := s.Bus().Publish(t.Context(), topic, make([]byte, size))
		return err
	}
	for name, err := range map[string]error{
		"a record of 1 MiB":      create("a", 1<<20, time.Hour),
		"no key":                 create("", 1, time.Hour),
		"a long key":             create(strings.Repeat("k", 1<<11), 1, time.Hour),
		"no idle time":           create("a", 1, 0),
		"a large payload":        publish("a", 1<<20+1),
		"a long name of a topic": publish(strings.Repeat("t", 1<<11), 1),
	} {
		if err == nil || !strings.Contains(err.Error(), "invalid") {
			t.Errorf("%s returned %v, want an error", name, err)
		}
	}
}
