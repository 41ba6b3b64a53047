package webhook

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"
	"sync"
)

// MaxRecord is the largest Data of a record that a [Store] accepts, in bytes: the arguments, the URL
// and the cursor of a subscription at their limits, with room for the rest.
const MaxRecord = 256 << 10

// A Record is a subscription as a [Store] keeps it. Data is opaque to the store. It contains the
// secret with which deliveries are signed, so a store must protect it as it would a password.
type Record struct {
	// ID identifies the subscription: 1 to 64 letters, digits and '_'.
	ID string
	// Data is the encoded subscription: usually a few hundred bytes, at most [MaxRecord].
	Data []byte
}

// Check returns an error if every [Store] must refuse the record, because its ID is invalid or its
// Data too long. It is for implementations of Store.
func (r Record) Check() error {
	const maxLen = 64
	valid := r.ID != "" && len(r.ID) <= maxLen
	for i := range len(r.ID) {
		c := r.ID[i]
		valid = valid && ('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '_')
	}
	if !valid {
		return fmt.Errorf("webhook: invalid id %.80q: must be 1 to %d letters, digits and '_'", r.ID, maxLen)
	}
	if len(r.Data) > MaxRecord {
		return fmt.Errorf("webhook: the record %s has %d bytes, more than %d", r.ID, len(r.Data), MaxRecord)
	}
	return nil
}

// A Store keeps the subscriptions of a [Sender]. Package storetest tests an implementation against
// this contract:
//
//   - A change is durable when Put or Delete returns, if the store is durable: it survives the end
//     of the process by any means.
//   - Each method is atomic and safe for concurrent use. Its effect is visible to every call that
//     starts after it returned.
//   - A store neither retains nor shares a Data that its caller may change.
//   - A method whose ctx ended may return the error of ctx.
//   - A record that [Record.Check] refuses is not stored.
//
// Only one Sender at a time may use a store. A store that several processes reach is a [LeasedStore].
type Store interface {
	// Put adds a record, or replaces the record with the same ID.
	Put(ctx context.Context, r Record) error
	// Delete removes a record. Deleting a record that does not exist is not an error.
	Delete(ctx context.Context, id string) error
	// All returns all records, in any order. Records that change during the iteration may be
	// included or not. The loop body may call the store. An error that comes with a Record that
	// contains an ID concerns that record alone, and the iteration continues.
	All(ctx context.Context) iter.Seq2[Record, error]
	// Durable reports whether records survive the end of the process.
	Durable() bool
}

// A LeasedStore is a [Store] that several processes reach, one of which holds a lease and may use it. The
// [Sender] of a process that lost the lease ends all deliveries and logs an error: another Sender may have
// begun to deliver to the same subscriptions.
type LeasedStore interface {
	Store
	// Lost returns a channel that is closed when the lease is lost, before another process can hold it.
	Lost() <-chan struct{}
}

// NewMemory returns a [Store] that keeps its records in memory and loses them with the process. It
// is meant for servers whose subscriptions expire soon: their clients subscribe again.
func NewMemory() Store { return &memory{records: map[string][]byte{}} }

type memory struct {
	mu      sync.Mutex
	records map[string][]byte // guarded by mu
}

func (m *memory) Put(ctx context.Context, r Record) error {
	if err := cmp.Or(context.Cause(ctx), r.Check()); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.records[r.ID] = bytes.Clone(r.Data)
	return nil
}

func (m *memory) Delete(ctx context.Context, id string) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.records, id)
	return nil
}

func (m *memory) All(ctx context.Context) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		if err := context.Cause(ctx); err != nil {
			yield(Record{}, err)
			return
		}
		m.mu.Lock()
		ids := slices.Collect(maps.Keys(m.records))
		m.mu.Unlock()
		for _, id := range ids {
			m.mu.Lock()
			data, ok := m.records[id]
			data = bytes.Clone(data)
			m.mu.Unlock()
			if ok && !yield(Record{ID: id, Data: data}, nil) {
				return
			}
		}
	}
}

func (m *memory) Durable() bool { return false }
