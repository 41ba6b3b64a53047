package postgres

import (
	"context"
	"fmt"
	"iter"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"

	"github.com/patchbay-mcp/patchbay/host/state"
)

// Limits of entries: see [state.Store].
const (
	maxHostKind  = 64
	maxHostKey   = 1 << 10
	maxHostValue = 32 << 20
	// maxHostEntries limits the entries of a kind. Concurrent callers may exceed it by a few.
	maxHostEntries = 100_000
)

type hostStore struct{ *Store }

// HostState returns a store for the state of hosts: pins, grants, and the keys of a gateway. Entries
// do not expire; a kind contains at most 100,000. A change is durable when the method returns, unless the
// server turns synchronous_commit or fsync off.
func (s *Store) HostState() state.Store { return hostStore{s} }

func (s hostStore) Get(ctx context.Context, kind, key string) (value []byte, version uint64, err error) {
	_, err = s.query(ctx, "read entry", maxHostValue, func(row pgx.Rows) error { return row.Scan(&value, &version) },
		"SELECT value, version FROM {schema}.entries WHERE kind = $1 AND key = $2", []byte(kind), []byte(key))
	return value, version, err
}

func (s hostStore) CompareAndSet(ctx context.Context, kind, key string, version uint64, value []byte) error {
	switch {
	case kind == "" || len(kind) > maxHostKind || !utf8.ValidString(kind):
		return fmt.Errorf("postgres: invalid kind %.80q: must have 1 to %d bytes of UTF-8", kind, maxHostKind)
	case key == "" || len(key) > maxHostKey || !utf8.ValidString(key):
		return fmt.Errorf("postgres: invalid key %.80q: must have 1 to %d bytes of UTF-8", key, maxHostKey)
	case len(value) > maxHostValue:
		return fmt.Errorf("postgres: invalid value of %d bytes: must have at most %d", len(value), maxHostValue)
	case version == 0 && value != nil:
		return s.add(ctx, kind, key, value)
	}
	args := []any{[]byte(kind), []byte(key), int64(version)} // versions are positive
	statement := "DELETE FROM {schema}.entries WHERE kind = $1 AND key = $2 AND version = $3"
	switch {
	case version == 0:
		statement = "SELECT WHERE $3 = 0 AND NOT EXISTS (SELECT FROM {schema}.entries WHERE kind = $1 AND key = $2)"
	case value != nil:
		statement = `UPDATE {schema}.entries SET value = $4, version = DEFAULT
			WHERE kind = $1 AND key = $2 AND version = $3`
		args = append(args, value)
	}
	n, err := s.query(ctx, "change entry", len(value), nil, statement, args...)
	if err == nil && n == 0 {
		err = state.ErrConflict
	}
	return err
}

// add adds an entry that does not exist.
func (s hostStore) add(ctx context.Context, kind, key string, value []byte) error {
	added, full := false, false
	_, err := s.query(ctx, "add entry", len(value), func(row pgx.Rows) error { return row.Scan(&added, &full) },
		`WITH known AS (SELECT key FROM {schema}.entries WHERE kind = $1 LIMIT $4),
		added AS (INSERT INTO {schema}.entries (kind, key, value)
			SELECT $1, $2, $3::bytea WHERE (SELECT count(*) FROM known) < $4
			ON CONFLICT DO NOTHING RETURNING version)
		SELECT EXISTS (SELECT FROM added), (SELECT count(*) FROM known) >= $4
			AND NOT EXISTS (SELECT FROM {schema}.entries WHERE kind = $1 AND key = $2)`,
		[]byte(kind), []byte(key), value, maxHostEntries)
	switch {
	case err != nil || added:
		return err
	case full:
		return fmt.Errorf("%w: %d entries of kind %q", ErrFull, maxHostEntries, kind)
	}
	return state.ErrConflict
}

func (s hostStore) List(ctx context.Context, kind string) iter.Seq2[state.Entry, error] {
	return func(yield func(state.Entry, error) bool) {
		var entries []state.Entry // the loop may need the connection
		_, err := s.query(ctx, "list entries", maxHostValue, func(row pgx.Rows) error {
			var key []byte
			var e state.Entry
			err := row.Scan(&key, &e.Value, &e.Version)
			e.Key = string(key)
			entries = append(entries, e)
			return err
		}, "SELECT key, value, version FROM {schema}.entries WHERE kind = $1 ORDER BY key", []byte(kind))
		if err != nil {
			yield(state.Entry{}, err)
			return
		}
		for _, e := range entries {
			if !yield(e, nil) {
				return
			}
		}
	}
}
