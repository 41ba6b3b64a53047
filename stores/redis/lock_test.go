package redis_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/host/state"
	"github.com/patchbay-mcp/patchbay/stores/redis"
)

// lockOf returns the key of the only lock below a prefix.
func lockOf(t *testing.T, prefix string) string {
	t.Helper()
	for _, key := range keysOf(t, prefix) {
		if strings.HasSuffix(key, ":lock") {
			return key
		}
	}
	t.Fatal("no update holds a lock")
	return ""
}

func openPrefix(t *testing.T, prefix string) *redis.Store {
	t.Helper()
	opts := calm()
	opts.Prefix = prefix
	return open(t, need(t).url(), opts)
}

// A process that was stopped for longer than its lease must not overwrite the update of another
// process.
func TestUpdateWithoutItsLockIsNotMade(t *testing.T) {
	logins := openPrefix(t, "lost").Logins("alice")
	err := logins.Update(t.Context(), "key", func([]byte) ([]byte, error) {
		command(t, shared.url(), "DEL", lockOf(t, "lost")) // the lease ends
		err := logins.Update(t.Context(), "key", func([]byte) ([]byte, error) { return []byte("other"), nil })
		return []byte("late"), err
	})
	if !errors.Is(err, redis.ErrLockLost) {
		t.Errorf("Update without its lock returned %v, want ErrLockLost", err)
	}
	if got, err := logins.Load(t.Context(), "key"); string(got) != "other" || err != nil {
		t.Errorf("got %q, %v; want the value of the other update", got, err)
	}
}

// The lock of a process that was killed ends by itself.
func TestLockOfAProcessThatEndedExpires(t *testing.T) {
	logins := openPrefix(t, "dead").Logins("alice")
	var lock string
	err := logins.Update(t.Context(), "key", func([]byte) ([]byte, error) {
		lock = lockOf(t, "dead")
		reply := command(t, shared.url(), "PTTL", lock)
		if left, err := reply.AsInt64(); err != nil || left <= 0 || left > time.Minute.Milliseconds() {
			t.Errorf("the lock expires in %d ms, %v", left, err)
		}
		return []byte("one"), nil
	})
	if err != nil {
		t.Fatal(err)
	}
	command(t, shared.url(), "SET", lock, "of another process", "PX", "200")
	err = logins.Update(t.Context(), "key", func([]byte) ([]byte, error) { return []byte("two"), nil })
	if err != nil {
		t.Error(err)
	}
	command(t, shared.url(), "SET", lock, "of another process")
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	err = logins.Update(ctx, "key", func([]byte) ([]byte, error) { return nil, errors.New("runs") })
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Update of a locked key returned %v, want the error of the context", err)
	}
}

func TestLoginsOfPrincipalsAreSeparate(t *testing.T) {
	s := openPrefix(t, "principals")
	err := s.Logins("alice").Update(t.Context(), "key", func([]byte) ([]byte, error) { return []byte("secret"), nil })
	if err != nil {
		t.Fatal(err)
	}
	if got, err := s.Logins("bob").Load(t.Context(), "key"); got != nil || err != nil {
		t.Errorf("bob got %q, %v", got, err)
	}
	for _, key := range keysOf(t, "principals") {
		if strings.Contains(key, "alice") {
			t.Errorf("the key %q names a principal", key)
		}
	}
}

// The versions of an entry grow also after the server lost its data.
func TestVersionsAreNewAfterALoss(t *testing.T) {
	s := openPrefix(t, "loss").HostState()
	change := func() (version uint64) {
		t.Helper()
		if err := s.CompareAndSet(t.Context(), "pin", "a", 0, []byte("v")); err != nil {
			t.Fatal(err)
		}
		_, version, err := s.Get(t.Context(), "pin", "a")
		if err != nil {
			t.Fatal(err)
		}
		return version
	}
	before := change()
	command(t, shared.url(), "DEL", "loss:host:pin")
	if after := change(); after <= before {
		t.Errorf("the version is %d after version %d was lost", after, before)
	}
}

func TestInvalidEntriesAreRefused(t *testing.T) {
	s := openPrefix(t, "invalid").HostState()
	for _, e := range []struct{ kind, key string }{
		{"", "k"}, {"k", ""}, {strings.Repeat("k", 65), "k"}, {"k", strings.Repeat("k", 1025)}, {"\xff", "k"},
		{"k", "\xff"},
	} {
		err := s.CompareAndSet(t.Context(), e.kind, e.key, 0, []byte("v"))
		if err == nil || errors.Is(err, state.ErrConflict) {
			t.Errorf("an entry %.20q %.20q returned %v, want an error", e.kind, e.key, err)
		}
	}
	if err := s.CompareAndSet(t.Context(), "k", "k", 0, make([]byte, 32<<20+1)); err == nil {
		t.Error("an entry of more than 32 MiB was stored")
	}
}

// Each script says what its keys and arguments are, and declares no global variable.
func TestScriptsAreDescribed(t *testing.T) {
	files, err := filepath.Glob("lua/*.lua")
	if err != nil || len(files) < 10 {
		t.Fatalf("found %d scripts, %v", len(files), err)
	}
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		head, _, _ := bytes.Cut(text, []byte("\nlocal "))
		names := bytes.Contains(head, []byte("ARGV")) || bytes.Contains(head, []byte("KEYS"))
		if !bytes.HasPrefix(text, []byte("-- ")) || !names {
			t.Errorf("%s does not begin with a description of its keys and arguments", name)
		}
	}
}

// Each server has keys of its own, whatever its name contains.
func TestTasksOfServersAreSeparate(t *testing.T) {
	s := openPrefix(t, "servers")
	for i, name := range []string{"", "a", "}{", "a/b", "a:heads"} {
		if n, size, err := s.Tasks(name).CountAll(t.Context()); n != 0 || size != 0 || err != nil {
			t.Errorf("server %q begins with %d tasks, %v", name, n, err)
		}
		if err := s.Tasks(name).Create(t.Context(), record(fmt.Sprint("task", i))); err != nil {
			t.Errorf("server %q: %v", name, err)
		}
	}
}
