package redis

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/patchbay-mcp/patchbay/host/state"
)

// Limits of entries: see [state.Store].
const (
	maxHostKind  = 64
	maxHostKey   = 1 << 10
	maxHostValue = 32 << 20
	// maxHostEntries limits the entries of a kind.
	maxHostEntries = 100_000
	// hostFields is the number of fields of a kind in addition to two fields for each entry.
	hostFields = 2
)

var (
	scriptHostGet  = script("host_get")
	scriptHostSet  = script("host_set")
	scriptHostList = script("host_list")
)

type hostStore struct{ *Store }

// HostState returns a store for the state of hosts. A single hash contains all entries of a kind,
// at most 100,000. Entries do not expire. A change is as durable as the append-only file of the
// Redis server.
func (s *Store) HostState() state.Store { return hostStore{s} }

func (s hostStore) keys(kind string) []string { return []string{s.opts.Prefix + ":host:" + kind} }

func (s hostStore) Get(ctx context.Context, kind, key string) (value []byte, version uint64, err error) {
	reply, err := s.read(ctx, "read entry", scriptHostGet, s.keys(kind), key)
	if err != nil {
		return nil, 0, err
	}
	fields, err := reply.ToArray()
	if err != nil || len(fields) != 2 || fields[0].IsNil() || fields[1].IsNil() {
		return nil, 0, err
	}
	text, err := fields[0].ToString()
	version, err2 := strconv.ParseUint(text, 10, 64)
	value, err3 := bytesOf(fields[1])
	return value, version, errors.Join(err, err2, err3)
}

func (s hostStore) CompareAndSet(ctx context.Context, kind, key string, version uint64, value []byte) error {
	switch {
	case kind == "" || len(kind) > maxHostKind || !utf8.ValidString(kind):
		return fmt.Errorf("redis: invalid kind %.80q: must have 1 to %d bytes of UTF-8", kind, maxHostKind)
	case key == "" || len(key) > maxHostKey || !utf8.ValidString(key):
		return fmt.Errorf("redis: invalid key %.80q: must have 1 to %d bytes of UTF-8", key, maxHostKey)
	case len(value) > maxHostValue:
		return fmt.Errorf("redis: invalid value of %d bytes: must have at most %d", len(value), maxHostValue)
	}
	remove := "0"
	if value == nil {
		remove = "1"
	}
	reply, err := s.eval(ctx, "change entry", scriptHostSet, len(value), s.keys(kind), key,
		strconv.FormatUint(version, 10), remove, string(value), strconv.Itoa(2*maxHostEntries+hostFields))
	if err != nil {
		return err
	}
	switch n, err := reply.AsInt64(); n {
	case 1:
		return err
	case -1:
		return fmt.Errorf("%w: %d entries of kind %q", ErrFull, maxHostEntries, kind)
	}
	return state.ErrConflict
}

func (s hostStore) List(ctx context.Context, kind string) iter.Seq2[state.Entry, error] {
	return each(func() ([]state.Entry, error) { return s.entries(ctx, kind) })
}

func (s hostStore) entries(ctx context.Context, kind string) (entries []state.Entry, err error) {
	reply, err := s.read(ctx, "list entries", scriptHostList, s.keys(kind))
	if err != nil {
		return nil, err
	}
	fields, err := reply.AsStrMap()
	for name, text := range fields {
		if name[0] != 'v' {
			continue
		}
		version, wrong := strconv.ParseUint(text, 10, 64)
		err = errors.Join(err, wrong)
		entries = append(entries, state.Entry{Key: name[1:], Value: []byte(fields["d"+name[1:]]), Version: version})
	}
	slices.SortFunc(entries, func(a, b state.Entry) int { return cmp.Compare(a.Key, b.Key) })
	return entries, err
}
