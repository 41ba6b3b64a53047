package host

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"iter"
	"slices"
	"sync"
)

// ErrConflict reports that an entry of a [StateStore] has another version than expected: another program
// has changed it. Read the entry again.
var ErrConflict = errors.New("host: the entry of the state has changed")

// A StateStore keeps what a host must find again after a restart, such as pins. Entries have a kind and a
// key, both valid UTF-8 and not empty; a kind has at most 64 bytes, a key 1 KiB, a value 32 MiB.
// Several hosts and processes may use one StateStore. Its methods are safe for concurrent use. What
// CompareAndSet has confirmed is not lost when the process is killed.
//
// Package stores/bolt has one in a file.
type StateStore interface {
	// Get returns an entry, which the caller may change. An entry that does not exist has version 0
	// and a nil value.
	Get(ctx context.Context, kind, key string) (value []byte, version uint64, err error)
	// CompareAndSet replaces the entry if it has the version, which is 0 for an entry that does not
	// exist. Otherwise the error is [ErrConflict]. A nil value deletes the entry. The new entry has a
	// version that the key has never had before.
	CompareAndSet(ctx context.Context, kind, key string, version uint64, value []byte) error
	// List returns all entries of a kind as they were at one moment, in the order of their keys. The
	// loop may call the other methods.
	List(ctx context.Context, kind string) iter.Seq2[Entry, error]
}

// An Entry is an entry of a [StateStore].
type Entry struct {
	Key     string
	Value   []byte
	Version uint64
}

// A MemoryState is a [StateStore] that ends with the process. The zero value is ready to use.
type MemoryState struct {
	mu      sync.Mutex // guards the fields below
	version uint64     // of the last change
	kinds   map[string]map[string]Entry
}

// Get returns an entry.
func (s *MemoryState) Get(_ context.Context, kind, key string) (value []byte, version uint64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.kinds[kind][key]
	return bytes.Clone(e.Value), e.Version, nil
}

// CompareAndSet replaces or deletes an entry.
func (s *MemoryState) CompareAndSet(_ context.Context, kind, key string, version uint64, value []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	entries := s.kinds[kind]
	if entries[key].Version != version {
		return ErrConflict
	}
	if value == nil {
		delete(entries, key)
		return nil
	}
	if entries == nil {
		if s.kinds == nil {
			s.kinds = map[string]map[string]Entry{}
		}
		entries = map[string]Entry{}
		s.kinds[kind] = entries
	}
	s.version++
	entries[key] = Entry{key, append([]byte{}, value...), s.version}
	return nil
}

// List returns all entries of a kind.
func (s *MemoryState) List(_ context.Context, kind string) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		for _, e := range s.entries(kind) {
			if !yield(e, nil) {
				return
			}
		}
	}
}

func (s *MemoryState) entries(kind string) (all []Entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.kinds[kind] {
		e.Value = bytes.Clone(e.Value)
		all = append(all, e)
	}
	slices.SortFunc(all, func(a, b Entry) int { return cmp.Compare(a.Key, b.Key) })
	return all
}
