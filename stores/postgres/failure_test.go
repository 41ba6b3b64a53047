package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/patchbay-mcp/patchbay/host/state"
	"github.com/patchbay-mcp/patchbay/stores/postgres"
)

// use writes an entry and reads it.
func use(t testing.TB, s state.Store) error {
	_, version, err := s.Get(t.Context(), "pin", "key")
	if err == nil {
		err = s.CompareAndSet(t.Context(), "pin", "key", version, []byte("value"))
	}
	if err != nil {
		return err
	}
	if got, _, err := s.Get(t.Context(), "pin", "key"); err != nil || string(got) != "value" {
		return fmt.Errorf("got %q: %w", got, err)
	}
	return nil
}

func TestServerIsStoppedAndRestarted(t *testing.T) {
	server := startServer(t)
	s := open(t, server.url(), &postgres.Options{Timeout: 5 * time.Second})
	if err := use(t, s.HostState()); err != nil {
		t.Fatal(err)
	}
	stopped := make(chan struct{})
	var writers sync.WaitGroup
	for range 16 { // calls that run while the server stops end with an error as well
		writers.Go(func() {
			for err := error(nil); ; err = use(t, s.HostState()) {
				if err != nil && !errors.Is(err, postgres.ErrUnavailable) && !errors.Is(err, state.ErrConflict) {
					t.Errorf("a call during the stop returned %v, want ErrUnavailable", err)
				}
				select {
				case <-stopped:
					return
				default:
				}
			}
		})
	}
	server.stop()
	close(stopped)
	writers.Wait()
	_, _, err := s.HostState().Get(t.Context(), "pin", "key")
	if !errors.Is(err, postgres.ErrUnavailable) || !strings.Contains(err.Error(), "127.0.0.1:"+server.port) {
		t.Errorf("a call without a server returned %v, want ErrUnavailable with the address", err)
	}
	if _, err := postgres.Open(t.Context(), server.url(), nil); !errors.Is(err, postgres.ErrUnavailable) {
		t.Errorf("Open without a server returned %v, want ErrUnavailable", err)
	}
	if err := server.start(); err != nil {
		t.Fatal(err)
	}
	await(t, func() error { return use(t, s.HostState()) })
	for i := range 20 { // all connections work
		if err := use(t, s.HostState()); err != nil {
			t.Errorf("call %d after the restart: %v", i, err)
		}
	}
}

// A statement that waits for a lock of another program ends in time, and so does the statement that
// waits for a connection meanwhile.
func TestServerThatDoesNotAnswer(t *testing.T) {
	opts := newSchema()
	s := open(t, need(t).url(), opts).HostState()
	if err := use(t, s); err != nil {
		t.Fatal(err)
	}
	fast := *opts
	fast.Timeout, fast.Connections = 300*time.Millisecond, 1
	hurried := open(t, need(t).url(), &fast).HostState()
	c, err := pgx.Connect(t.Context(), need(t).url())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(t.Context())
	lock := "BEGIN; LOCK TABLE " + pgx.Identifier{opts.Schema, "entries"}.Sanitize()
	if _, err := c.Exec(t.Context(), lock); err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	var calls sync.WaitGroup
	for range 8 {
		calls.Go(func() {
			err := hurried.CompareAndSet(t.Context(), "pin", "other", 0, []byte("v"))
			if !errors.Is(err, postgres.ErrUnavailable) || errors.Is(err, context.Canceled) {
				t.Errorf("a call that waits for a lock returned %v, want ErrUnavailable", err)
			}
		})
	}
	calls.Wait()
	if took := time.Since(begin); took > patience/2 {
		t.Errorf("8 calls took %v", took)
	}
	if _, err := c.Exec(t.Context(), "ROLLBACK"); err != nil {
		t.Fatal(err)
	}
	await(t, func() error { return use(t, hurried) })
}

func TestConcurrentWritersShareFewConnections(t *testing.T) {
	opts := newSchema()
	opts.Connections = 3
	name := "application_name=" + url.PathEscape(opts.Schema)
	s := open(t, need(t).url()+"?"+name, opts)
	most := 0
	done := make(chan struct{})
	go func() {
		defer close(done)
		var writers sync.WaitGroup
		for writer := range 64 {
			writers.Go(func() {
				for i := range 10 {
					key := fmt.Sprint(writer, "-", i)
					if err := s.HostState().CompareAndSet(t.Context(), "pin", key, 0, []byte(key)); err != nil {
						t.Error(err)
					}
				}
			})
		}
		writers.Wait()
	}()
	for running := true; running; {
		select {
		case <-done:
			running = false
		default:
		}
		n, err := strconv.Atoi(sql(t, "", "SELECT count(*) FROM pg_stat_activity WHERE application_name = $1",
			opts.Schema)[0])
		if err != nil {
			t.Fatal(err)
		}
		most = max(most, n)
	}
	if most < 1 || most > 3 {
		t.Errorf("the store used %d connections, want 1 to 3", most)
	}
	n := 0
	for e, err := range s.HostState().List(t.Context(), "pin") {
		if n++; err != nil || e.Key != string(e.Value) {
			t.Errorf("%q has the value %q, %v", e.Key, e.Value, err)
		}
	}
	if n != 640 {
		t.Errorf("found %d entries, want 640", n)
	}
}

func TestEightProcessesMigrateAtOnce(t *testing.T) {
	opts := newSchema()
	opts.Connections = 2
	var processes sync.WaitGroup
	for range 8 {
		processes.Go(func() {
			s, err := postgres.Open(t.Context(), need(t).url(), opts)
			if err != nil {
				t.Error(err)
				return
			}
			defer s.Close()
			if err := use(t, s.HostState()); err != nil && !errors.Is(err, state.ErrConflict) {
				t.Error(err)
			}
		})
	}
	processes.Wait()
	if got := sql(t, opts.Schema, "SELECT version FROM {schema}.version"); len(got) != 1 || got[0] == "0" {
		t.Errorf("the versions are %v, want a single version", got)
	}
}

// A migration that fails leaves no table behind.
func TestMigrationIsAtomic(t *testing.T) {
	opts := newSchema()
	sql(t, opts.Schema, "CREATE SCHEMA {schema}")
	sql(t, opts.Schema, "CREATE TABLE {schema}.logins (mine int)") // the migration creates this table later
	_, err := postgres.Open(t.Context(), need(t).url(), opts)
	if err == nil || !strings.Contains(err.Error(), "logins") {
		t.Errorf("Open returned %v, want an error that names the table", err)
	}
	tables := sql(t, "", "SELECT tablename::text FROM pg_tables WHERE schemaname = $1", opts.Schema)
	if len(tables) != 1 || tables[0] != "logins" {
		t.Errorf("the schema contains %q after a failure, want the table of the test", tables)
	}
	sql(t, opts.Schema, "DROP TABLE {schema}.logins")
	open(t, need(t).url(), opts)
}

// The steps that follow the version of the tables run, and keep the contents of the tables.
func TestOlderTablesAreUpgraded(t *testing.T) {
	opts := newSchema()
	if err := use(t, open(t, need(t).url(), opts).HostState()); err != nil {
		t.Fatal(err)
	}
	sql(t, opts.Schema, "DROP TABLE {schema}.tasks, {schema}.records, {schema}.states, {schema}.uses, {schema}.leases, "+
		"{schema}.webhooks, {schema}.webhook_senders")
	sql(t, opts.Schema, "UPDATE {schema}.version SET version = 1")
	s := open(t, need(t).url(), opts)
	if value, _, err := s.HostState().Get(t.Context(), "pin", "key"); string(value) != "value" || err != nil {
		t.Errorf("got %q, %v after an upgrade", value, err)
	}
	must(t, s.Tasks("server").Create(t.Context(), record("new")))
	wantOnce(t, s.States(), "key", inAnHour(), true)
	if got := sql(t, opts.Schema, "SELECT version FROM {schema}.version"); fmt.Sprint(got) != "[5]" {
		t.Errorf("the versions are %v, want 5", got)
	}
}

func TestNewerTablesAreRefused(t *testing.T) {
	opts := newSchema()
	s := open(t, need(t).url(), opts)
	sql(t, opts.Schema, "UPDATE {schema}.version SET version = 999")
	_, err := postgres.Open(t.Context(), need(t).url(), opts)
	if !errors.Is(err, postgres.ErrNewer) || !strings.Contains(err.Error(), "version 999") {
		t.Errorf("Open returned %v, want ErrNewer with the version", err)
	}
	if err := use(t, s.HostState()); err != nil {
		t.Errorf("a store that is open: %v", err)
	}
}

func TestServerWithoutFreeConnections(t *testing.T) {
	server := startServer(t, "-c", "max_connections=4", "-c", "superuser_reserved_connections=0")
	s := open(t, server.url(), &postgres.Options{Connections: 1, Timeout: patience})
	var others []*pgx.Conn
	full := func() error {
		for {
			c, err := pgx.Connect(t.Context(), server.url())
			if err != nil {
				return err
			}
			others = append(others, c)
		}
	}()
	if !strings.Contains(full.Error(), "53300") {
		t.Fatal(full)
	}
	if err := use(t, s.HostState()); err != nil {
		t.Errorf("a store that is connected: %v", err)
	}
	if _, err := postgres.Open(t.Context(), server.url(), calm()); !errors.Is(err, postgres.ErrUnavailable) {
		t.Errorf("Open returned %v, want ErrUnavailable", err)
	}
	for _, c := range others {
		if err := c.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
	await(t, func() error {
		s, err := postgres.Open(t.Context(), server.url(), calm())
		if err == nil {
			s.Close()
		}
		return err
	})
}

func TestErrorsDoNotContainThePassword(t *testing.T) {
	at := need(t).port
	for _, url := range []string{
		"postgres://postgres:" + password + "@127.0.0.1:" + freePort() + "/postgres",
		"postgres://postgres:" + password + "@127.0.0.1:port", "postgres://postgres:" + password + "%zz@127.0.0.1",
		"postgres://postgres:" + password + "/@host", "http://:" + password + "@127.0.0.1", password,
		"postgres://postgres:" + password + "x@127.0.0.1:" + at + "/postgres",
		"postgres://postgres:" + password + "@127.0.0.1:" + at + "/none",
		"postgres://127.0.0.1:" + at + "/none?user=postgres&password=" + password,
		"postgres://127.0.0.1:" + at + "/none?pool_max_conns=many&password=" + password,
		"postgres://postgres:" + password + "@127.0.0.1:" + at + "/postgres?sslmode=require",
		"postgres://postgres:" + password + "@127.0.0.1:" + at + "/postgres?role=missing",
	} {
		s, err := postgres.Open(t.Context(), url, calm())
		if err == nil {
			s.Close()
			t.Errorf("Open of %s succeeded", url)
		} else if strings.Contains(err.Error(), password) {
			t.Errorf("the error contains the password: %v", err)
		}
	}
}

func TestServerThatRefusesWritesIsNotReady(t *testing.T) {
	opts := newSchema()
	url := need(t).url()
	s := open(t, url, opts)
	if err := s.Ready(t.Context()); err != nil {
		t.Error(err)
	}
	if want := "127.0.0.1:" + shared.port; s.Addresses() != want {
		t.Errorf("the addresses are %s, want %s", s.Addresses(), want)
	}
	reader := open(t, url+"?default_transaction_read_only=on", opts)
	if err := reader.Ready(t.Context()); !errors.Is(err, postgres.ErrUnavailable) {
		t.Errorf("Ready of a server that refuses writes returned %v, want ErrUnavailable", err)
	}
}

func TestInvalidOptionsAreRefused(t *testing.T) {
	for _, opts := range []postgres.Options{
		{Schema: strings.Repeat("s", 64)}, {Schema: "a\x00"}, {Schema: "\xff"}, {Timeout: -1},
		{Timeout: time.Microsecond}, {Connections: -1}, {Connections: 1 << 20},
	} {
		if s, err := postgres.Open(t.Context(), need(t).url(), &opts); err == nil {
			s.Close()
			t.Errorf("%.80v was accepted", opts)
		}
	}
}

// A name of a schema cannot change a statement.
func TestNamesOfSchemas(t *testing.T) {
	for _, name := range []string{`a"b`, `a'b`, "a.b", "{schema}", "é; DROP SCHEMA public", strings.Repeat("s", 63)} {
		opts := calm()
		opts.Schema = name
		if err := use(t, open(t, need(t).url(), opts).HostState()); err != nil {
			t.Errorf("%q: %v", name, err)
		}
		if got := sql(t, "", "SELECT count(*) FROM pg_namespace WHERE nspname = $1", name); got[0] != "1" {
			t.Errorf("found %s schemas with the name %q", got, name)
		}
	}
}

func TestClosedStore(t *testing.T) {
	a, b := openTwo(t)
	a.Close()
	a.Close()
	if err := use(t, a.HostState()); !errors.Is(err, postgres.ErrClosed) {
		t.Errorf("a call of a closed store returned %v, want ErrClosed", err)
	}
	if err := use(t, b.HostState()); err != nil {
		t.Error(err)
	}
}

func TestCanceledOpen(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := postgres.Open(ctx, need(t).url(), newSchema()); !errors.Is(err, context.Canceled) {
		t.Errorf("Open returned %v, want context.Canceled", err)
	}
}

// A call whose context ends while it waits for the server returns the error of the context.
func TestCanceledCall(t *testing.T) {
	opts := newSchema()
	s := open(t, need(t).url(), opts).HostState()
	c, err := pgx.Connect(t.Context(), need(t).url())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(t.Context())
	lock := "BEGIN; LOCK TABLE " + pgx.Identifier{opts.Schema, "entries"}.Sanitize()
	if _, err := c.Exec(t.Context(), lock); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	result := make(chan error, 1)
	go func() { result <- s.CompareAndSet(ctx, "pin", "key", 0, []byte("v")) }()
	await(t, func() error {
		if sql(t, "", "SELECT count(*) FROM pg_locks WHERE NOT granted")[0] == "0" {
			return errors.New("no statement waits")
		}
		return nil
	})
	why := errors.New("the caller left")
	cancel(why)
	if err := <-result; !errors.Is(err, why) {
		t.Errorf("a canceled call returned %v, want the cause", err)
	}
	if _, err := c.Exec(t.Context(), "ROLLBACK"); err != nil {
		t.Fatal(err)
	}
	if err := use(t, s); err != nil && !errors.Is(err, state.ErrConflict) {
		t.Error(err)
	}
}
