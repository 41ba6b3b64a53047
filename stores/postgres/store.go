package postgres

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	// DefaultTimeout is the default of [Options.Timeout]. A checkpoint can delay a commit by a second.
	DefaultTimeout = 3 * time.Second
	// DefaultConnections is the default of [Options.Connections]. A server accepts 100 by default.
	DefaultConnections = 8
	// DefaultSchema is the default of [Options.Schema].
	DefaultSchema = "patchbay"
	// minRate is the rate at which a connection must transfer data, in bytes per second.
	minRate = 16 << 20
	// maxDial limits the time to connect to each address of the server.
	maxDial = 5 * time.Second
	// maxOpen limits the time of [Open], which may wait for another process that migrates.
	maxOpen = time.Minute
	// maxSchema is the longest name of a schema that the server does not truncate, in bytes.
	maxSchema = 63
)

// Errors of a [Store]. Test for them with [errors.Is].
var (
	// ErrUnavailable means that the server did not answer in time, or refuses operations for now. A
	// change may have been made.
	ErrUnavailable = errors.New("postgres: server unavailable")
	// ErrFull means that the disk of the server or a limit of the store is exhausted.
	ErrFull = errors.New("postgres: store full")
	// ErrClosed means that the store was closed.
	ErrClosed = errors.New("postgres: store closed")
	// ErrNewer means that a newer version of the program changed the tables.
	ErrNewer = errors.New("postgres: tables of a newer version")
)

// Options are the options of [Open]. The zero value selects the defaults.
type Options struct {
	// Schema contains all tables. [Open] creates the schema. Processes that share a store must use
	// the same schema. A name contains at most 63 bytes. Default: [DefaultSchema].
	Schema string
	// Timeout limits each operation. Default: [DefaultTimeout].
	Timeout time.Duration
	// Connections limits the connections of the store. Further operations wait for a connection.
	// Default: the parameter pool_max_conns of the URL, otherwise [DefaultConnections].
	Connections int
}

// A Store is a pool of connections to a server. The methods of a Store return stores that use the
// pool. A Store is safe for concurrent use.
type Store struct {
	pool   *pgxpool.Pool
	server string // the addresses, for errors
	opts   Options
	closed atomic.Bool
	stop   context.CancelFunc // of the sweeper
	swept  sync.WaitGroup

	statements map[string]string // by the name of the file, with spaces
}

// Open connects to the server of a URL, and creates or upgrades the tables. Any number of processes
// may call Open at once. opts may be nil. The error is [ErrUnavailable] if the server does not
// answer, and [ErrNewer] if the tables belong to a newer version of the program. Opening takes at
// most a minute, and ends with ctx.
func Open(ctx context.Context, url string, opts *Options) (*Store, error) {
	s := &Store{}
	if opts != nil {
		s.opts = *opts
	}
	s.opts.Schema = cmp.Or(s.opts.Schema, DefaultSchema)
	s.opts.Timeout = cmp.Or(s.opts.Timeout, DefaultTimeout)
	switch name := s.opts.Schema; {
	case len(name) > maxSchema || !utf8.ValidString(name) || strings.Contains(name, "\x00"):
		return nil, fmt.Errorf("postgres: invalid schema %.200q: must have at most %d bytes of UTF-8", name, maxSchema)
	case s.opts.Timeout < time.Millisecond || s.opts.Connections < 0 || s.opts.Connections > 1<<16:
		return nil, fmt.Errorf("postgres: invalid timeout %v or connections %d: must be at least 1 ms, and 1 to %d",
			s.opts.Timeout, s.opts.Connections, 1<<16)
	}
	var err error
	if s.statements, err = s.texts("sql"); err != nil {
		return nil, err
	}
	if err := s.connect(url); err != nil {
		return nil, err
	}
	bounded, cancel := context.WithTimeout(ctx, maxOpen)
	defer cancel()
	if err := s.migrate(bounded); err != nil {
		s.pool.Close()
		if context.Cause(ctx) != nil {
			return nil, context.Cause(ctx)
		}
		return nil, err
	}
	sweeping, stop := context.WithCancel(context.Background())
	s.stop = stop
	s.swept.Go(func() { s.sweep(sweeping) })
	return s, nil
}

// connect creates the pool. Its first operation connects.
func (s *Store) connect(url string) error {
	config, err := parse(url, s.opts.Connections)
	if err != nil {
		return err
	}
	s.server = strings.Join(addresses(config.ConnConfig), ",")
	s.pool, err = pgxpool.NewWithConfig(context.Background(), config)
	return err
}

// Addresses returns the addresses of the servers as HOST:PORT, separated by commas.
func (s *Store) Addresses() string { return s.server }

// Ready returns [ErrUnavailable] if the server does not answer, or refuses writes.
func (s *Store) Ready(ctx context.Context) error {
	var version int
	var standby, readOnly bool
	err := s.query(ctx, "check server", 0, func(row pgx.Rows) error { return row.Scan(&version, &standby, &readOnly) })
	if err == nil && (standby || readOnly) {
		err = fmt.Errorf("%w: %s: refuses writes: use the primary, or set default_transaction_read_only to off",
			ErrUnavailable, s.server)
	}
	return err
}

// Close closes the connections, after the operations that run. After Close, all stores return
// [ErrClosed].
func (s *Store) Close() {
	if s.closed.CompareAndSwap(false, true) {
		s.stop()
		s.swept.Wait()
		s.pool.Close()
	}
}

// query runs the statement of a file that transfers size bytes, and calls each with every row. The
// time limit applies to each row, because a list may contain any number of rows.
func (s *Store) query(ctx context.Context, op string, size int, each func(pgx.Rows) error, args ...any) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	if s.closed.Load() {
		return ErrClosed
	}
	limit := s.opts.Timeout + time.Duration(size)*time.Second/minRate
	bounded, cancel := context.WithCancel(ctx)
	defer cancel()
	timer := time.AfterFunc(limit, cancel)
	defer timer.Stop()
	rows, err := s.pool.Query(bounded, s.statements[op], args...)
	for err == nil && rows.Next() {
		timer.Reset(limit)
		err = each(rows)
	}
	rows.Close() // also ends the rows of a failed query
	err = cmp.Or(err, rows.Err())
	switch {
	case err == nil:
		return nil
	case context.Cause(ctx) != nil:
		return context.Cause(ctx)
	case bounded.Err() != nil:
		return fmt.Errorf("%w: %s: %s: not done within %v", ErrUnavailable, s.server, op, limit)
	}
	return s.failure(op, err)
}

// number runs a statement that returns a number, or no row.
func (s *Store) number(ctx context.Context, op string, size int, args ...any) (n int, err error) {
	err = s.query(ctx, op, size, func(row pgx.Rows) error { return row.Scan(&n) }, args...)
	return n, err
}

// value runs a statement that returns a value and a version, or no row.
func (s *Store) value(ctx context.Context, op string, size int, args ...any) (value []byte, version int64, err error) {
	err = s.query(ctx, op, size, func(row pgx.Rows) error { return row.Scan(&value, &version) }, args...)
	return value, version, err
}

// unavailable contains the codes and classes of temporary errors: connections, resources, locks,
// shutdown, a server that only reads, and conflicts of transactions.
var unavailable = map[string]bool{"08": true, "53": true, "55P03": true, "57": true, "25006": true, "40": true}

func (s *Store) failure(op string, err error) error {
	kind := ErrUnavailable
	reply, ok := errors.AsType[*pgconn.PgError](err)
	switch {
	case s.closed.Load():
		kind = ErrClosed
	case !ok || strings.HasPrefix(reply.Code, "57P"): // the connection broke, and others as well
		s.pool.Reset()
	case reply.Code == "53100":
		kind = ErrFull
	case !unavailable[reply.Code] && !unavailable[reply.Code[:min(2, len(reply.Code))]]:
		return fmt.Errorf("postgres: %s: %s: %w", s.server, op, err)
	}
	return fmt.Errorf("%w: %s: %s: %w", kind, s.server, op, err)
}

// digest returns a short key for texts that may be long, secret or binary.
func digest(parts ...string) []byte {
	h := sha256.New()
	for _, part := range parts {
		fmt.Fprintf(h, "%d:%s", len(part), part)
	}
	return h.Sum(nil)
}
