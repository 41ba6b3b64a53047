package tasks

import (
	"cmp"
	"container/heap"
	"context"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

// NewMemory returns a [SharedStore] that keeps its records in memory and loses them with the
// process. It is meant for tests and for servers whose tasks need not survive a restart. A record
// takes a few hundred bytes in addition to its Data.
func NewMemory() Store {
	return &memory{records: map[string]*entry{}, owners: map[string]*ownerRecords{}, leases: map[string]time.Time{}}
}

var _ SharedStore = (*memory)(nil)

type memory struct {
	mu      sync.Mutex               // guards the fields below; never held while Data is copied
	records map[string]*entry        // by ID
	owners  map[string]*ownerRecords // only owners with records
	expiry  deadlineHeap             // an element for each record that is Done
	bytes   int64                    // of the Data of all records
	leases  map[string]time.Time     // when each lease ends, by holder
}

type ownerRecords struct {
	sorted []*entry // by Created, then by ID
	bytes  int64    // of their Data
}

// An entry is a record in memory. Its Data is never written to, so it is copied without the lock.
type entry struct {
	Record
	expiry deadline // in memory.expiry while the record is Done
}

func (m *memory) Create(ctx context.Context, r Record) error {
	if err := cmp.Or(context.Cause(ctx), r.Check()); err != nil {
		return err
	}
	r.Version, r.Data = 1, cloneData(r.Data)
	r.Created, r.Expires = toMillisecond(r.Created), toMillisecond(r.Expires)
	e := &entry{Record: r}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.records[r.ID] != nil {
		return ErrConflict
	}
	own := m.owners[r.Owner]
	if own == nil {
		own = &ownerRecords{}
		m.owners[r.Owner] = own
	}
	m.records[r.ID] = e
	i, _ := own.search(Cursor{Created: r.Created, ID: r.ID})
	own.sorted = slices.Insert(own.sorted, i, e) // nearly always at the end
	m.addBytes(own, len(r.Data))
	m.scheduleExpiry(e)
	return nil
}

func (m *memory) Get(ctx context.Context, owner, id string) (Record, error) {
	if err := context.Cause(ctx); err != nil {
		return Record{}, err
	}
	m.mu.Lock()
	e := m.records[id]
	if e == nil || e.Owner != owner {
		m.mu.Unlock()
		return Record{}, ErrUnknown
	}
	r := e.Record
	m.mu.Unlock()
	r.Data = cloneData(r.Data)
	return r, nil
}

func (m *memory) Update(ctx context.Context, r Record) error {
	if err := cmp.Or(context.Cause(ctx), r.Check()); err != nil {
		return err
	}
	data := cloneData(r.Data)
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.records[r.ID]
	if e == nil || e.Owner != r.Owner {
		return ErrUnknown
	}
	if e.Version != r.Version {
		return ErrConflict
	}
	m.cancelExpiry(e)
	m.addBytes(m.owners[e.Owner], len(data)-len(e.Data))
	e.Expires, e.Done, e.Data = toMillisecond(r.Expires), r.Done, data
	e.Version++
	m.scheduleExpiry(e)
	return nil
}

func (m *memory) Delete(ctx context.Context, owner, id string) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if e := m.records[id]; e != nil && e.Owner == owner {
		m.cancelExpiry(e)
		m.remove(e)
	}
	return nil
}

// remove removes an entry that is not in the expiry heap. The caller holds the lock.
func (m *memory) remove(e *entry) {
	delete(m.records, e.ID)
	own := m.owners[e.Owner]
	m.addBytes(own, -len(e.Data))
	i, _ := own.search(Cursor{Created: e.Created, ID: e.ID})
	if own.sorted = slices.Delete(own.sorted, i, i+1); len(own.sorted) == 0 {
		delete(m.owners, e.Owner)
	}
}

func (m *memory) addBytes(own *ownerRecords, n int) {
	own.bytes += int64(n)
	m.bytes += int64(n)
}

func (m *memory) scheduleExpiry(e *entry) {
	if e.Done {
		e.expiry = deadline{owner: e.Owner, id: e.ID, at: e.Expires}
		heap.Push(&m.expiry, &e.expiry)
	}
}

func (m *memory) cancelExpiry(e *entry) {
	if e.Done {
		heap.Remove(&m.expiry, e.expiry.index)
	}
}

func (m *memory) List(ctx context.Context, owner string, after Cursor, limit int) ([]Record, error) {
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	found := m.list(owner, after, limit)
	for i := range found {
		found[i].Data = cloneData(found[i].Data)
	}
	return found, nil
}

func (m *memory) list(owner string, after Cursor, limit int) []Record {
	m.mu.Lock()
	defer m.mu.Unlock()
	own := m.owners[owner]
	if own == nil {
		return nil
	}
	i, found := own.search(after)
	if found {
		i++
	}
	var page []Record
	size := 0
	for _, e := range own.sorted[i:] {
		if size += len(e.Data); len(page) >= limit || len(page) > 0 && size > MaxRecord {
			break
		}
		page = append(page, e.Record)
	}
	return page
}

// search returns the index of the first record at or after the cursor, and whether it is exact.
func (o *ownerRecords) search(c Cursor) (int, bool) {
	c.Created = toMillisecond(c.Created)
	return slices.BinarySearchFunc(o.sorted, c, func(e *entry, c Cursor) int {
		return cmp.Or(e.Created.Compare(c.Created), strings.Compare(e.ID, c.ID))
	})
}

func (m *memory) Count(ctx context.Context, owner string) (n int, bytes int64, err error) {
	if err := context.Cause(ctx); err != nil {
		return 0, 0, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if own := m.owners[owner]; own != nil {
		return len(own.sorted), own.bytes, nil
	}
	return 0, 0, nil
}

func (m *memory) CountAll(ctx context.Context) (n int, bytes int64, err error) {
	if err := context.Cause(ctx); err != nil {
		return 0, 0, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.records), m.bytes, nil
}

func (m *memory) Unfinished(ctx context.Context) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		var found []Record
		m.mu.Lock()
		for _, e := range m.records {
			if !e.Done {
				found = append(found, e.Record)
			}
		}
		m.mu.Unlock()
		for _, r := range found {
			if err := context.Cause(ctx); err != nil {
				yield(Record{}, err)
				return
			}
			r.Data = cloneData(r.Data)
			if !yield(r, nil) {
				return
			}
		}
	}
}

func (m *memory) DeleteExpired(ctx context.Context, now time.Time, limit int) (int, error) {
	if err := context.Cause(ctx); err != nil {
		return 0, err
	}
	now = toMillisecond(now)
	m.mu.Lock()
	defer m.mu.Unlock()
	n := 0
	for ; n < limit && len(m.expiry) > 0 && !m.expiry[0].at.After(now); n++ {
		d, _ := heap.Pop(&m.expiry).(*deadline)
		m.remove(m.records[d.id])
	}
	return n, nil
}

func (m *memory) Hold(ctx context.Context, holder string, d time.Duration) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.leases[holder] = time.Now().Add(d)
	return context.Cause(ctx)
}

func (m *memory) Renew(ctx context.Context, holder string, d time.Duration) ([]string, error) {
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, ok := m.leases[holder]; !ok {
		return nil, ErrLeaseLost
	}
	now := time.Now()
	maps.DeleteFunc(m.leases, func(other string, end time.Time) bool { return other != holder && !end.After(now) })
	m.leases[holder] = now.Add(d)
	return slices.Collect(maps.Keys(m.leases)), nil
}

func (m *memory) Versions(ctx context.Context, ids []string) ([]uint64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	versions := make([]uint64, len(ids))
	for i, id := range ids {
		if e := m.records[id]; e != nil {
			versions[i] = e.Version
		}
	}
	return versions, context.Cause(ctx)
}

// toMillisecond rounds down as [time.Time.UnixMilli] does, also before 1970.
func toMillisecond(t time.Time) time.Time { return time.UnixMilli(t.UnixMilli()).UTC() }

// cloneData returns a copy of data; nil if data is empty, so that an empty Data takes a single
// form.
func cloneData(data []byte) []byte { return append([]byte(nil), data...) }
