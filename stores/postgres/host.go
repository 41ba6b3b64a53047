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
	maxHostKind, maxHostKey, maxHostValue = 64, 1 << 10, 32 << 20
	// maxHostEntries limits the entries of a kind. Concurrent callers may exceed it by a few.
	maxHostEntries = 100_000
)

type hostStore struct{ *Store }

// HostState returns a store for the state of hosts: pins, grants, and the keys of a gateway. Entries
// do not expire; a kind contains at most 100,000. A change is durable when the method returns,
// unless the server turns synchronous_commit or fsync off.
func (s *Store) HostState() state.Store { return hostStore{s} }

func (s hostStore) Get(ctx context.Context, kind, key string) (value []byte, version uint64, err error) {
	value, number, err := s.value(ctx, "read entry", maxHostValue, []byte(kind), []byte(key))
	return value, uint64(number), err
}

func (s hostStore) CompareAndSet(ctx context.Context, kind, key string, version uint64, value []byte) error {
	switch {
	case kind == "" || len(kind) > maxHostKind || key == "" || len(key) > maxHostKey || !utf8.ValidString(kind+"/"+key):
		return fmt.Errorf("postgres: invalid kind %.80q or key %.80q: must have 1 to %d and 1 to %d bytes of UTF-8",
			kind, key, maxHostKind, maxHostKey)
	case len(value) > maxHostValue:
		return fmt.Errorf("postgres: invalid value of %d bytes: must have at most %d", len(value), maxHostValue)
	}
	n, err := s.number(ctx, "change entry", len(value), []byte(kind), []byte(key), int64(version), value,
		maxHostEntries) // versions are positive int64s
	switch {
	case err != nil || n == 1:
		return err
	case n < 0:
		return fmt.Errorf("%w: %d entries of kind %q", ErrFull, maxHostEntries, kind)
	}
	return state.ErrConflict
}

func (s hostStore) List(ctx context.Context, kind string) iter.Seq2[state.Entry, error] {
	return func(yield func(state.Entry, error) bool) {
		var entries []state.Entry // the loop may need the connection
		err := s.query(ctx, "list entries", maxHostValue, func(row pgx.Rows) error {
			var key []byte
			var e state.Entry
			err := row.Scan(&key, &e.Value, &e.Version)
			e.Key = string(key)
			entries = append(entries, e)
			return err
		}, []byte(kind))
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
