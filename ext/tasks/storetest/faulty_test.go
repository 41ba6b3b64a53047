package storetest

import (
	"bytes"
	"context"
	"errors"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/patchbay-mcp/patchbay/ext/tasks"
)

// A faulty store is a simple store with one bug, or without one if bug is empty. Bugs of concurrent
// use sleep: in a synctest bubble, all concurrent calls reach the sleep before one continues.
type faulty struct {
	bug     string
	mu      sync.Mutex
	records map[string]tasks.Record
	deleted map[string]bool
	removed int // the error of CountAll, if the bug affects it
	leases  map[string]time.Time
}

// pause lets other goroutines act: each clause with a bug runs in a bubble of synctest, whose time
// passes when all goroutines wait.
func pause() { <-time.After(time.Millisecond) }

func newFaulty(bug string) *faulty {
	return &faulty{bug: bug, records: map[string]tasks.Record{}, deleted: map[string]bool{},
		leases: map[string]time.Time{}}
}

// has reports whether the store has the bug.
func (f *faulty) has(bug string) bool { return f.bug == bug }

// lock locks the mutex and returns the function that unlocks it.
func (f *faulty) lock() func() {
	f.mu.Lock()
	return f.mu.Unlock
}

func (f *faulty) copy(data []byte) []byte {
	if f.has("Data of the caller is retained") {
		return data
	}
	return bytes.Clone(data)
}

func (f *faulty) key(owner, id string) string {
	switch {
	case f.has("ids are unique for each owner only"):
		return owner + "/" + id
	case f.has("ids ignore case"):
		return strings.ToLower(id)
	}
	return id
}

func (f *faulty) find(owner, id string) (tasks.Record, bool) {
	r, ok := f.records[f.key(owner, id)]
	switch {
	case f.has("Get ignores the owner"):
		return r, ok
	case f.has("owners end at a zero byte"):
		cut := func(s string) string { s, _, _ = strings.Cut(s, "\x00"); return s }
		return r, ok && cut(r.Owner) == cut(owner)
	case f.has("owners are truncated"):
		return r, ok && r.Owner[:min(len(r.Owner), 1000)] == owner[:min(len(owner), 1000)]
	}
	return r, ok && r.Owner == owner
}

func (f *faulty) Create(ctx context.Context, r tasks.Record) error {
	if ctx.Err() != nil && f.has("Create with an ended context is applied in part") {
		defer f.lock()()
		f.deleted[r.ID] = true
		f.removed-- // counted, but not stored
		return ctx.Err()
	}
	if err := r.Check(); err != nil && !f.has("Create accepts invalid records") {
		if f.has("refused records are counted") {
			f.removed--
		}
		return err
	}
	if f.has("concurrent creations both succeed") {
		_, ok := f.get(r.Owner, r.ID)
		pause()
		if ok {
			return tasks.ErrConflict
		}
	}
	if f.has("concurrent changes are lost") {
		unlock := f.lock()
		before := maps.Clone(f.records)
		unlock()
		pause()
		defer func() {
			defer f.lock()()
			before[r.ID] = f.records[r.ID]
			f.records = before
		}()
	}
	defer f.lock()()
	if _, ok := f.records[f.key(r.Owner, r.ID)]; ok && !f.has("Create replaces") &&
		!f.has("concurrent creations both succeed") {
		return tasks.ErrConflict
	}
	if f.deleted[r.ID] && f.has("deleted ids cannot be used again") {
		return tasks.ErrConflict
	}
	r.Data = f.copy(r.Data)
	if !f.has("Create keeps the caller's version") {
		r.Version = 1
	}
	if f.has("large Data is truncated") && len(r.Data) > 1<<20 {
		r.Data = r.Data[:1<<20]
	}
	if f.has("times in seconds") {
		r.Created = r.Created.Truncate(time.Second)
	}
	f.records[f.key(r.Owner, r.ID)] = r
	return nil
}

func (f *faulty) get(owner, id string) (tasks.Record, bool) {
	defer f.lock()()
	return f.find(owner, id)
}

func (f *faulty) Get(_ context.Context, owner, id string) (tasks.Record, error) {
	r, ok := f.get(owner, id)
	if !ok && f.has("Get of an unknown task succeeds") {
		return r, nil
	}
	if !ok {
		return tasks.Record{}, tasks.ErrUnknown
	}
	if f.has("Get hides expired records") && !r.Expires.After(noon) && r.Done {
		return tasks.Record{}, tasks.ErrUnknown
	}
	if !f.has("Data of the store is returned") {
		r.Data = f.copy(r.Data)
	}
	return r, nil
}

func (f *faulty) Update(ctx context.Context, r tasks.Record) error {
	if err := r.Check(); err != nil {
		return err
	}
	if f.has("concurrent updates both succeed") {
		old, _ := f.get(r.Owner, r.ID)
		pause()
		if old.Version == r.Version {
			defer f.lock()()
			r.Version++
			f.records[r.ID] = r
			return nil
		}
	}
	defer f.lock()()
	old, ok := f.find(r.Owner, r.ID)
	if !ok {
		return tasks.ErrUnknown
	}
	if old.Version != r.Version && !f.has("Update ignores the version") &&
		(!f.has("Update accepts older versions") || old.Version < r.Version) {
		return tasks.ErrConflict
	}
	if !f.has("Update changes Created") {
		r.Created = old.Created
	}
	if f.has("Update ignores Done") {
		r.Done = old.Done
	}
	if f.has("Update ignores Expires") {
		r.Expires = old.Expires
	}
	if f.has("Data does not shrink") && len(r.Data) < len(old.Data) {
		r.Data = append(f.copy(r.Data), old.Data[len(r.Data):]...)
	}
	r.Version, r.Data = old.Version+1, f.copy(r.Data)
	if ctx.Err() != nil && f.has("Update with an ended context is applied in part") {
		r.Version = old.Version
		f.records[r.ID] = r
		return ctx.Err()
	}
	f.records[f.key(r.Owner, r.ID)] = r
	return nil
}

func (f *faulty) Delete(_ context.Context, owner, id string) error {
	defer f.lock()()
	r, ok := f.find(owner, id)
	if f.has("Delete ignores the owner") {
		r, ok = f.records[id]
	}
	if !ok {
		if f.has("Delete of an unknown task fails") {
			return tasks.ErrUnknown
		}
		return nil
	}
	if f.has("Delete ignores unfinished tasks") && !r.Done {
		return nil
	}
	f.deleted[id] = true
	if f.has("DeleteExpired counts deleted records") {
		f.removed++
	}
	delete(f.records, f.key(r.Owner, r.ID))
	return nil
}

func (f *faulty) List(_ context.Context, owner string, after tasks.Cursor, limit int) ([]tasks.Record, error) {
	defer f.lock()()
	var all []tasks.Record
	for _, r := range f.records {
		if _, ok := f.find(owner, r.ID); ok || f.has("List returns tasks of other owners") && r.Owner != "" &&
			owner != "" && r.Owner[0] == owner[0] {
			r.Data = f.copy(r.Data)
			all = append(all, r)
		}
	}
	if f.has("List needs the record at the cursor") && after.ID != "" && f.records[after.ID].ID == "" {
		return nil, errors.New("unknown cursor")
	}
	slices.SortFunc(all, f.compare)
	var found []tasks.Record
	size := 0
	for _, r := range all {
		at := f.compare(r, tasks.Record{Created: after.Created, ID: after.ID})
		if at < 0 || at == 0 && !f.has("List includes the cursor") {
			continue
		}
		if f.has("List skips records with the cursor's time") && !r.Created.After(after.Created) {
			continue
		}
		if size += len(r.Data); size > tasks.MaxRecord && len(found) > 0 && !f.has("List exceeds MaxRecord") {
			break
		}
		if size >= tasks.MaxRecord && f.has("List returns no record of MaxRecord bytes") {
			break
		}
		if len(found) == limit && !f.has("List ignores the limit") {
			break
		}
		found = append(found, r)
	}
	return found, nil
}

func (f *faulty) compare(a, b tasks.Record) int {
	c := a.Created.Compare(b.Created)
	switch {
	case f.has("List is sorted in reverse"):
		c = -c
	case f.has("times before 1970 sort last"):
		c = slices.Compare([]uint64{uint64(a.Created.UnixMilli())}, []uint64{uint64(b.Created.UnixMilli())})
	case f.has("List is sorted by ID alone"):
		c = 0
	}
	if c != 0 {
		return c
	}
	if f.has("List ignores case") {
		return strings.Compare(strings.ToLower(a.ID), strings.ToLower(b.ID))
	}
	return strings.Compare(a.ID, b.ID)
}

func (f *faulty) Count(_ context.Context, owner string) (n int, size int64, err error) {
	return f.count(owner, false)
}

func (f *faulty) CountAll(context.Context) (n int, size int64, err error) { return f.count("", true) }

func (f *faulty) count(owner string, all bool) (n int, size int64, err error) {
	defer f.lock()()
	for _, r := range f.records {
		if r.Owner == owner || all || owner == "" && f.has("Count of the empty owner counts all") {
			n++
			size += int64(len(r.Data))
		}
	}
	if f.has("Count returns no bytes") {
		size = 0
	}
	if f.has("Count ignores finished records") {
		for _, r := range f.records {
			if r.Done && (r.Owner == owner || all) {
				n--
			}
		}
	}
	if all {
		n -= f.removed
	}
	return n, size, nil
}

func (f *faulty) Unfinished(ctx context.Context) iter.Seq2[tasks.Record, error] {
	return func(yield func(tasks.Record, error) bool) {
		unlock := f.lock()
		var all []tasks.Record
		for _, r := range f.records {
			if !r.Done && !(f.has("Unfinished leaves out expired records") && r.Expires.Before(noon)) ||
				f.has("Unfinished returns finished records") {
				r.Data = f.copy(r.Data)
				all = append(all, r)
			}
		}
		if f.has("Unfinished returns 100 records only") {
			all = all[:min(len(all), 100)]
		}
		if f.has("Unfinished returns a record twice") && len(all) > 100 {
			all = append(all, all[0])
		}
		unlock()
		for _, r := range all {
			if !yield(r, nil) && !f.has("Unfinished ignores break") {
				return
			}
		}
	}
}

func (f *faulty) DeleteExpired(_ context.Context, now time.Time, limit int) (int, error) {
	defer f.lock()()
	n := 0
	for key, r := range f.records {
		switch {
		case !r.Done && !f.has("DeleteExpired deletes unfinished records"):
		case r.Expires.After(now):
		case r.Expires.Equal(now) && f.has("DeleteExpired keeps records at the exact time"):
		case n == limit && !f.has("DeleteExpired ignores the limit"):
		default:
			n++
			if f.has("CountAll is wrong after expiry") {
				f.removed--
			}
			delete(f.records, key)
		}
	}
	if f.has("DeleteExpired counts deleted records") {
		n += f.removed
	}
	if f.has("DeleteExpired returns a wrong number") && n > 1 {
		n++
	}
	return n, nil
}

func (f *faulty) Hold(_ context.Context, holder string, d time.Duration) error {
	defer f.lock()()
	f.leases[holder] = time.Now().Add(d)
	return nil
}

func (f *faulty) Renew(_ context.Context, holder string, d time.Duration) ([]string, error) {
	unlock := f.lock()
	end, held := f.leases[holder]
	if f.has("Renew races with the end of the lease") {
		unlock()
		pause()
		unlock = f.lock()
	}
	defer unlock()
	now := time.Now()
	if !held && !f.has("Renew revives an ended lease") ||
		!end.After(now) && f.has("Renew ends its own lease") {
		return nil, tasks.ErrLeaseLost
	}
	for other, end := range f.leases {
		if other != holder && (!end.After(now) && !f.has("leases never end") || f.has("Renew ends all other leases")) {
			delete(f.leases, other)
		}
	}
	if !f.has("Renew does not extend the lease") {
		f.leases[holder] = now.Add(d)
	}
	return slices.Collect(maps.Keys(f.leases)), nil
}

func (f *faulty) Versions(_ context.Context, ids []string) (versions []uint64, err error) {
	defer f.lock()()
	for _, id := range ids {
		r, ok := f.records[id]
		if r.Done && f.has("Versions ignores finished tasks") {
			r.Version = 0
		}
		if ok || !f.has("Versions leaves out unknown tasks") {
			versions = append(versions, r.Version)
		}
	}
	return versions, nil
}

// reopen returns the store after closing and opening.
func (f *faulty) reopen() tasks.Store {
	if f.has("reopening loses all records") {
		return newFaulty(f.bug)
	}
	if f.has("reopening truncates large Data") {
		for key, r := range f.records {
			r.Data = r.Data[:min(len(r.Data), 1<<20)]
			f.records[key] = r
		}
	}
	if f.has("reopening restores deleted records") {
		for id := range f.deleted {
			f.records[id] = tasks.Record{ID: id, Owner: "alice", Version: 1}
		}
	}
	return f
}
