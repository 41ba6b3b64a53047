// Package state declares where a host keeps its state: pins, grants, tasks and budgets.
package state

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"iter"
	"slices"
	"sync"
)

// ErrConflict reports that the version of an entry in a [Store] differs from the expected version:
// another program changed the entry. Read it again.
var ErrConflict = errors.New("state: another program changed the entry")

// A Store holds data that a host must find again after a restart, such as pins. Entries have a kind and a
// key, both valid UTF-8 and not empty; a kind contains at most 64 bytes, a key 1 KiB, a value 32 MiB.
// Several hosts and processes may share a Store. Its methods are safe for concurrent use. A change that
// CompareAndSet confirmed must survive the end of the process.
//
// Package stores/bolt contains a Store in a file. Packages stores/postgres and stores/redis contain
// Stores that processes on several machines can share. Package storetest tests implementations.
type Store interface {
	// Get returns a copy of an entry. For an entry that does not exist it returns version 0 and a nil
	// value.
	Get(ctx context.Context, kind, key string) (value []byte, version uint64, err error)
	// CompareAndSet replaces the entry if its version equals version, which is 0 for an entry that does
	// not exist. Otherwise the error is [ErrConflict]. A nil value deletes the entry. The new entry gets
	// a version that the key never had before.
	CompareAndSet(ctx context.Context, kind, key string, version uint64, value []byte) error
	// List returns all entries of a kind as they were at one moment, in the order of their keys. The
	// loop may call the other methods.
	List(ctx context.Context, kind string) iter.Seq2[Entry, error]
}

// An Entry is an entry of a [Store].
type Entry struct {
	Key     string
	Value   []byte
	Version uint64
}

// A Memory is a [Store] that ends with the process. The zero value is ready to use.
type Memory struct {
	mu      sync.Mutex // guards the fields below
	version uint64     // of the last change
	kinds   map[string]map[string]Entry
}

// Get returns an entry.
func (s *Memory) Get(_ context.Context, kind, key string) (value []byte, version uint64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.kinds[kind][key]
	return bytes.Clone(e.Value), e.Version, nil
}

// CompareAndSet replaces or deletes an entry.
func (s *Memory) CompareAndSet(_ context.Context, kind, key string, version uint64, value []byte) error {
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
func (s *Memory) List(_ context.Context, kind string) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		for _, e := range s.entries(kind) {
			if !yield(e, nil) {
				return
			}
		}
	}
}

func (s *Memory) entries(kind string) (all []Entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.kinds[kind] {
		e.Value = bytes.Clone(e.Value)
		all = append(all, e)
	}
	slices.SortFunc(all, func(a, b Entry) int { return cmp.Compare(a.Key, b.Key) })
	return all
}
