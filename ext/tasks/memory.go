package tasks

import (
	"context"
	"fmt"
	"iter"
	"sync"
	"time"
)

// NewMemory returns a [Store] that lasts as long as the process, for tests and for tools whose tasks may be forgotten. Each
// operation takes time that grows with the logarithm of the number of records, and a record takes some 250 bytes beside its
// Data.
func NewMemory() Store {
	return &memory{
		records: map[string]*entry{},
		owners:  map[string]*holding{},
		expiry:  &index{before: expiresBefore},
	}
}

// Check says why no [Store] takes a record: its ID is none, or its Data too long. It is for those who write one.
func (r Record) Check() error {
	if !validID(r.ID) {
		return fmt.Errorf("tasks: %.80q is no id of a task, want up to %d letters, digits, '-' and '_'", r.ID, maxID)
	}
	if len(r.Data) > MaxRecord {
		return fmt.Errorf("tasks: the record of task %s has %d bytes, more than %d", r.ID, len(r.Data), MaxRecord)
	}
	return nil
}

// maxID is the length that a record's ID may have: more than twice what it takes to be hard to guess.
const maxID = 64

func validID(id string) bool {
	for i := range len(id) {
		switch c := id[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '-', c == '_':
		default:
			return false
		}
	}
	return id != "" && len(id) <= maxID
}

type memory struct {
	mu      sync.Mutex          // guards the fields below, and is held for no longer than it takes to find a record
	records map[string]*entry   // by id
	owners  map[string]*holding // of those who have records
	expiry  *index              // those that are done, the first to expire first
	bytes   int64               // of all data
}

// A holding is the records of one owner, the oldest first.
type holding struct {
	index
	bytes int64 // of their data
}

// An entry is a record in memory. Its data is never written to, only replaced, so that it can be read without the lock.
type entry struct {
	owner, id        string
	created, expires int64 // milliseconds since 1970
	version          uint64
	done             bool
	data             []byte
}

// record returns the entry by value, all but the data.
func (e *entry) record() Record {
	return Record{
		Owner: e.owner, ID: e.id, Created: time.UnixMilli(e.created).UTC(), Expires: time.UnixMilli(e.expires).UTC(),
		Done: e.done, Version: e.version, Data: e.data,
	}
}

func createdBefore(a, b *entry) bool {
	return a.created < b.created || a.created == b.created && a.id < b.id
}

func expiresBefore(a, b *entry) bool {
	return a.expires < b.expires || a.expires == b.expires && a.id < b.id
}

// Create adds a record.
func (m *memory) Create(ctx context.Context, r Record) error {
	if err := checkUse(ctx, r); err != nil {
		return err
	}
	e := &entry{
		owner: r.Owner, id: r.ID, created: r.Created.UnixMilli(), expires: r.Expires.UnixMilli(),
		version: 1, done: r.Done, data: copyOf(r.Data),
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.records[r.ID] != nil {
		return ErrConflict
	}
	list := m.owners[r.Owner]
	if list == nil {
		list = &holding{index: index{before: createdBefore}}
		m.owners[r.Owner] = list
	}
	m.records[r.ID] = e
	list.insert(e)
	m.grow(list, len(e.data))
	if e.done {
		m.expiry.insert(e)
	}
	return nil
}

// Get returns a record.
func (m *memory) Get(ctx context.Context, owner, id string) (Record, error) {
	if err := context.Cause(ctx); err != nil {
		return Record{}, err
	}
	r, ok := m.get(owner, id)
	if !ok {
		return Record{}, ErrUnknown
	}
	r.Data = copyOf(r.Data)
	return r, nil
}

func (m *memory) get(owner, id string) (Record, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.records[id]
	if e == nil || e.owner != owner {
		return Record{}, false
	}
	return e.record(), true
}

// Update replaces a record.
func (m *memory) Update(ctx context.Context, r Record) error {
	if err := checkUse(ctx, r); err != nil {
		return err
	}
	data := copyOf(r.Data)
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.records[r.ID]
	if e == nil || e.owner != r.Owner {
		return ErrUnknown
	}
	if e.version != r.Version {
		return ErrConflict
	}
	if e.done {
		m.expiry.remove(e)
	}
	m.grow(m.owners[e.owner], len(data)-len(e.data))
	e.expires, e.done, e.data = r.Expires.UnixMilli(), r.Done, data
	e.version++
	if e.done {
		m.expiry.insert(e)
	}
	return nil
}

// Delete removes a record.
func (m *memory) Delete(ctx context.Context, owner, id string) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if e := m.records[id]; e != nil && e.owner == owner {
		m.remove(e)
	}
	return nil
}

func (m *memory) remove(e *entry) {
	delete(m.records, e.id)
	if e.done {
		m.expiry.remove(e)
	}
	list := m.owners[e.owner]
	list.remove(e)
	m.grow(list, -len(e.data))
	if list.size == 0 {
		delete(m.owners, e.owner)
	}
}

func (m *memory) grow(list *holding, by int) {
	list.bytes += int64(by)
	m.bytes += int64(by)
}

// List returns records of an owner, the oldest first.
func (m *memory) List(ctx context.Context, owner string, after Cursor, limit int) ([]Record, error) {
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	found := m.list(owner, after, limit)
	for i := range found {
		found[i].Data = copyOf(found[i].Data)
	}
	return found, nil
}

func (m *memory) list(owner string, after Cursor, limit int) []Record {
	m.mu.Lock()
	defer m.mu.Unlock()
	var found []Record
	size := 0
	own := m.owners[owner]
	if own == nil {
		return nil
	}
	for e := range own.after(&entry{created: after.Created.UnixMilli(), id: after.ID}) {
		if size += len(e.data); len(found) >= limit || len(found) > 0 && size > MaxRecord {
			break
		}
		found = append(found, e.record())
	}
	return found
}

// Count returns the number of records, and of their bytes.
func (m *memory) Count(ctx context.Context, owner string, all bool) (n int, bytes int64, err error) {
	if err := context.Cause(ctx); err != nil {
		return 0, 0, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if all {
		return len(m.records), m.bytes, nil
	}
	if list := m.owners[owner]; list != nil {
		return list.size, list.bytes, nil
	}
	return 0, 0, nil
}

// Unfinished returns the records that are not done.
func (m *memory) Unfinished(ctx context.Context) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		for _, e := range m.unfinished() {
			if err := context.Cause(ctx); err != nil {
				yield(Record{}, err)
				return
			}
			// The owner and the id of an entry never change: they may be read without the lock.
			r, err := m.Get(ctx, e.owner, e.id)
			if err != nil || r.Done {
				continue // it was deleted or finished meanwhile
			}
			if !yield(r, nil) {
				return
			}
		}
	}
}

func (m *memory) unfinished() []*entry {
	m.mu.Lock()
	defer m.mu.Unlock()
	var found []*entry
	for _, e := range m.records {
		if !e.done {
			found = append(found, e)
		}
	}
	return found
}

// DeleteExpired removes records that are done and have expired.
func (m *memory) DeleteExpired(ctx context.Context, now time.Time, limit int) (int, error) {
	if err := context.Cause(ctx); err != nil {
		return 0, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	n := 0
	for ; n < limit; n++ {
		e := m.expiry.first()
		if e == nil || e.expires > now.UnixMilli() {
			break
		}
		m.remove(e)
	}
	return n, nil
}

// copyOf returns nil for no bytes, so that a record is the same however none were given.
func copyOf(data []byte) []byte { return append([]byte(nil), data...) }

func checkUse(ctx context.Context, r Record) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	return r.Check()
}
