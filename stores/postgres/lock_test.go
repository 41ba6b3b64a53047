package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/host/state"
	"github.com/patchbay-mcp/patchbay/stores/postgres"
)

// A process that was stopped for longer than its lease must not overwrite the update of another
// process.
func TestUpdateWithoutItsLockIsNotMade(t *testing.T) {
	opts := newSchema()
	logins := open(t, need(t).url(), opts).Logins("alice")
	err := logins.Update(t.Context(), "key", func([]byte) ([]byte, error) {
		sql(t, opts.Schema, "UPDATE {schema}.logins SET locked = now()") // the lease ends
		err := logins.Update(t.Context(), "key", func([]byte) ([]byte, error) { return []byte("other"), nil })
		return []byte("late"), err
	})
	if !errors.Is(err, postgres.ErrLockLost) {
		t.Errorf("Update without its lock returned %v, want ErrLockLost", err)
	}
	if got, err := logins.Load(t.Context(), "key"); string(got) != "other" || err != nil {
		t.Errorf("got %q, %v; want the value of the other update", got, err)
	}
}

// The lock of a process that was killed ends by itself.
func TestLockOfAProcessThatEndedExpires(t *testing.T) {
	opts := newSchema()
	logins := open(t, need(t).url(), opts).Logins("alice")
	set := func(value string) func([]byte) ([]byte, error) {
		return func([]byte) ([]byte, error) {
			left := sql(t, opts.Schema,
				"SELECT locked BETWEEN now() AND now() + interval '1 minute' FROM {schema}.logins")
			if fmt.Sprint(left) != "[true]" {
				t.Errorf("the lock expires within a minute: %v, want true", left)
			}
			return []byte(value), nil
		}
	}
	if err := logins.Update(t.Context(), "key", set("one")); err != nil {
		t.Fatal(err)
	}
	sql(t, opts.Schema, "UPDATE {schema}.logins SET holder = 'other', locked = now() + interval '200 ms'")
	if err := logins.Update(t.Context(), "key", set("two")); err != nil {
		t.Error(err)
	}
	sql(t, opts.Schema, "UPDATE {schema}.logins SET holder = 'other', locked = 'infinity'")
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	err := logins.Update(ctx, "key", func([]byte) ([]byte, error) { return nil, errors.New("runs") })
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Update of a locked key returned %v, want the error of the context", err)
	}
	if got, err := logins.Load(t.Context(), "key"); string(got) != "two" || err != nil {
		t.Errorf("got %q, %v; want the value of the last update", got, err)
	}
}

// A long update keeps its lock, and a renewal that arrives late does not lock the key again.
func TestLockIsRenewed(t *testing.T) {
	opts := newSchema()
	logins := open(t, need(t).url(), opts).Logins("alice")
	err := logins.Update(t.Context(), "key", func([]byte) ([]byte, error) {
		sql(t, opts.Schema, "UPDATE {schema}.logins SET locked = now() + interval '10 s'")
		await(t, func() error {
			if sql(t, opts.Schema, "SELECT locked > now() + interval '11 s' FROM {schema}.logins")[0] == "true" {
				return nil
			}
			return errors.New("the lock was not renewed")
		})
		return []byte("one"), nil
	})
	if err != nil {
		t.Error(err)
	}
	if got := sql(t, opts.Schema, "SELECT locked <= now() FROM {schema}.logins"); fmt.Sprint(got) != "[true]" {
		t.Errorf("the lock ended with the update: %v, want true", got)
	}
}

func TestLoginsOfPrincipalsAreSeparate(t *testing.T) {
	opts := newSchema()
	s := open(t, need(t).url(), opts)
	err := s.Logins("alice").Update(t.Context(), "key", func([]byte) ([]byte, error) { return []byte("secret"), nil })
	if err != nil {
		t.Fatal(err)
	}
	if got, err := s.Logins("bob").Load(t.Context(), "key"); got != nil || err != nil {
		t.Errorf("bob got %q, %v", got, err)
	}
	for _, key := range sql(t, opts.Schema, "SELECT encode(key, 'escape') FROM {schema}.logins") {
		if strings.Contains(key, "alice") {
			t.Errorf("the key %q names a principal", key)
		}
	}
	big := func([]byte) ([]byte, error) { return make([]byte, 1<<20+1), nil }
	if err := s.Logins("alice").Update(t.Context(), "key", big); err == nil {
		t.Error("a login of more than 1 MiB was stored")
	}
}

// Another process deletes expired rows.
func TestExpiredLoginsAreDeleted(t *testing.T) {
	opts := newSchema()
	logins := open(t, need(t).url(), opts).Logins("alice")
	for _, key := range []string{"old", "kept", "removed", "locked"} {
		err := logins.Update(t.Context(), key, func([]byte) ([]byte, error) {
			if key == "removed" {
				return nil, nil
			}
			return []byte(key), nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	sql(t, opts.Schema, "UPDATE {schema}.logins SET locked = 'infinity' WHERE value = 'locked'")
	sql(t, opts.Schema, "UPDATE {schema}.logins SET expires = now() WHERE value IN ('old', 'locked')")
	if got, err := logins.Load(t.Context(), "old"); got != nil || err != nil {
		t.Errorf("an expired login is %q, %v", got, err)
	}
	open(t, need(t).url(), opts) // sweeps
	await(t, func() error {
		got := sql(t, opts.Schema, "SELECT encode(value, 'escape') FROM {schema}.logins ORDER BY value")
		if strings.Join(got, " ") != "kept locked" {
			return fmt.Errorf("the table contains %q, want the logins that are kept or locked", got)
		}
		return nil
	})
}

func TestInvalidEntriesAreRefused(t *testing.T) {
	opts := newSchema()
	s := open(t, need(t).url(), opts).HostState()
	for _, e := range []struct{ kind, key string }{
		{"", "k"}, {"k", ""}, {strings.Repeat("k", 65), "k"}, {"k", strings.Repeat("k", 1025)}, {"\xff", "k"},
		{"k", "\xff"}, {"k\xc3", "\xa9"},
	} {
		err := s.CompareAndSet(t.Context(), e.kind, e.key, 0, []byte("v"))
		if err == nil || errors.Is(err, state.ErrConflict) {
			t.Errorf("an entry %.20q %.20q returned %v, want an error", e.kind, e.key, err)
		}
	}
	if err := s.CompareAndSet(t.Context(), "k", "k", 0, make([]byte, 32<<20+1)); err == nil {
		t.Error("an entry of more than 32 MiB was stored")
	}
	sql(t, opts.Schema, `INSERT INTO {schema}.entries (kind, key, value)
		SELECT 'full', convert_to(n::text, 'UTF8'), '' FROM generate_series(1, 100000) AS n`)
	if err := s.CompareAndSet(t.Context(), "full", "more", 0, []byte("v")); !errors.Is(err, postgres.ErrFull) {
		t.Errorf("entry 100,001 returned %v, want ErrFull", err)
	}
	if err := s.CompareAndSet(t.Context(), "full", "1", 0, []byte("v")); !errors.Is(err, state.ErrConflict) {
		t.Errorf("an entry that exists returned %v, want ErrConflict", err)
	}
	if err := s.CompareAndSet(t.Context(), "other", "k", 0, []byte("v")); err != nil {
		t.Error(err)
	}
}

// Each statement begins with a description and names all its arguments.
func TestStatementsAreDescribed(t *testing.T) {
	files, err := filepath.Glob("sql/*.sql")
	if err != nil || len(files) < 20 {
		t.Fatalf("found %d statements, %v", len(files), err)
	}
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		description, statement := "", ""
		for line := range strings.Lines(string(text)) {
			if strings.HasPrefix(line, "-- ") {
				description += line
			} else {
				statement += line
			}
		}
		for n := 1; n < 10; n++ {
			argument := fmt.Sprint("$", n)
			if strings.Contains(statement, argument) && !strings.Contains(description, argument) {
				t.Errorf("%s does not describe %s", name, argument)
			}
		}
		if description == "" || strings.Contains(statement, "--") {
			t.Errorf("%s does not begin with its only comment", name)
		}
	}
}
