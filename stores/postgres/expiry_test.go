package postgres_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/ext/tasks"
	"github.com/patchbay-mcp/patchbay/stores/postgres"
)

func record(id string) tasks.Record {
	return tasks.Record{ID: id, Owner: "alice", Created: time.Now(), Expires: time.Now(), Data: []byte("data")}
}

// wantColumn waits until a column contains exactly these values.
func wantColumn(t *testing.T, schema, table, column, want string) {
	t.Helper()
	await(t, func() error {
		got := sql(t, schema, "SELECT encode("+column+", 'escape') FROM {schema}."+table+" ORDER BY 1")
		if strings.Join(got, " ") != want {
			return fmt.Errorf("%s of %s: got %q, want %q", column, table, got, want)
		}
		return nil
	})
}

// Another process deletes expired rows, in several batches, and no others.
func TestExpiredRowsAreDeleted(t *testing.T) {
	opts := newSchema()
	s := open(t, need(t).url(), opts)
	for _, key := range []string{"a", "b"} {
		must(t, s.States().Put(t.Context(), key, []byte(key), inAnHour()))
		must(t, s.Authorization().Put(t.Context(), "grant", key, []byte(key), inAnHour()))
		wantOnce(t, s.States(), key, inAnHour(), true)
		must(t, s.Tasks("server").Create(t.Context(), record(key)))
		must(t, s.HostState().CompareAndSet(t.Context(), "pin", key, 0, []byte(key)))
	}
	must(t, s.Authorization().Put(t.Context(), "client", "c", []byte("c"), time.Time{}))
	for _, statement := range []string{
		"UPDATE {schema}.states SET expires = now() WHERE value = 'a'",
		"UPDATE {schema}.records SET expires = now() WHERE value = 'a'",
		"UPDATE {schema}.tasks SET changed = now() - interval '366 days'",
		"INSERT INTO {schema}.leases VALUES ('server', 'a', now() - interval '25 hours'), ('server', 'b', now())",
		"INSERT INTO {schema}.tasks (SELECT server, 'new', owner_key, owner, 1, 0, 0, true, 4, data, now() " +
			"FROM {schema}.tasks WHERE id = 'a')",
		"UPDATE {schema}.tasks SET expires = 0 WHERE id = 'a'",
		"INSERT INTO {schema}.uses (SELECT convert_to(n::text, 'UTF8'), now() FROM generate_series(1, 2500) AS n)",
	} {
		sql(t, opts.Schema, statement)
	}
	open(t, need(t).url(), opts) // sweeps
	wantColumn(t, opts.Schema, "states", "value", "b")
	wantColumn(t, opts.Schema, "records", "value", "b c")
	wantColumn(t, opts.Schema, "tasks", "id", "b new")
	wantColumn(t, opts.Schema, "leases", "holder", "b")
	wantColumn(t, opts.Schema, "entries", "value", "a b")
	await(t, func() error {
		if n := sql(t, opts.Schema, "SELECT count(*) FROM {schema}.uses")[0]; n != "2" {
			return fmt.Errorf("%s uses remain, want 2", n)
		}
		return nil
	})
}

// Operations ignore expired rows before a sweep deletes the rows.
func TestExpiredRowsAreNotUsed(t *testing.T) {
	opts := newSchema()
	s := open(t, need(t).url(), opts)
	authorization := s.Authorization()
	must(t, s.States().Put(t.Context(), "key", []byte("v"), inAnHour()))
	wantOnce(t, s.States(), "key", inAnHour(), true)
	must(t, authorization.Put(t.Context(), "grant", "key", []byte("v"), inAnHour()))
	must(t, authorization.Put(t.Context(), "grant", "taken", []byte("v"), inAnHour()))
	for _, table := range []string{"states", "uses", "records"} {
		sql(t, opts.Schema, "UPDATE {schema}."+table+" SET expires = now()")
	}
	wantState(t, s.States(), "key", "")
	wantOnce(t, s.States(), "key", inAnHour(), true)
	wantOnce(t, s.States(), "key", inAnHour(), false)
	if value, err := authorization.Get(t.Context(), "grant", "key"); value != nil || err != nil {
		t.Errorf("an expired record is %q, %v", value, err)
	}
	if value, err := authorization.GetAndDelete(t.Context(), "grant", "taken"); value != nil || err != nil {
		t.Errorf("an expired record is %q, %v", value, err)
	}
	err := authorization.Update(t.Context(), "grant", "key", func(old []byte) ([]byte, time.Time, error) {
		if old != nil {
			t.Errorf("an update of an expired record sees %q", old)
		}
		return []byte("new"), time.Time{}, nil
	})
	if value, _ := authorization.Get(t.Context(), "grant", "key"); err != nil || string(value) != "new" {
		t.Errorf("an expired record was replaced by %q, %v", value, err)
	}
}

// The unfinished tasks of a server are read in several batches, in any order of creation.
func TestManyUnfinishedTasks(t *testing.T) {
	s := open(t, need(t).url(), newSchema()).Tasks("server")
	const all = 300
	now := time.Now()
	for i := range all {
		r := record(fmt.Sprintf("task-%04d", i))
		r.Created, r.Data = now.Add(-time.Duration(i)*time.Second), make([]byte, 100<<10) // 30 MB in total
		must(t, s.Create(t.Context(), r))
	}
	found := map[string]bool{}
	for r, err := range s.Unfinished(t.Context()) {
		must(t, err)
		found[r.ID] = true
	}
	if len(found) != all {
		t.Errorf("found %d tasks, want %d", len(found), all)
	}
}

// Tasks belong to a single server, whatever its name contains.
func TestTasksOfServersAreSeparate(t *testing.T) {
	s := open(t, need(t).url(), newSchema())
	for i, name := range []string{"", "a", "\x00", "a/b", "\xff"} {
		if n, size, err := s.Tasks(name).CountAll(t.Context()); n != 0 || size != 0 || err != nil {
			t.Errorf("server %q begins with %d tasks, %v", name, n, err)
		}
		if err := s.Tasks(name).Create(t.Context(), record(fmt.Sprint("task", i))); err != nil {
			t.Errorf("server %q: %v", name, err)
		}
	}
}

// Values that are too large are refused before they are sent.
func TestLargeValuesAreRefused(t *testing.T) {
	s := open(t, need(t).url(), newSchema())
	for name, err := range map[string]error{
		"state":  s.States().Put(t.Context(), "key", make([]byte, 16<<20+1), inAnHour()),
		"record": s.Authorization().Put(t.Context(), "grant", "key", make([]byte, 8<<20+1), inAnHour()),
	} {
		if err == nil || errors.Is(err, postgres.ErrUnavailable) {
			t.Errorf("%s: got %v, want an error", name, err)
		}
	}
}
