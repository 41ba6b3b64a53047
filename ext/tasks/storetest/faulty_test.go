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

// A faulty store is as plain as a store can be, and has one bug, or none.
type faulty struct {
	bug     string
	mu      sync.Mutex
	records map[string]tasks.Record
	deleted map[string]bool
	removed int // by expiry, all that were counted once
}

func newFaulty(bug string) *faulty {
	return &faulty{bug: bug, records: map[string]tasks.Record{}, deleted: map[string]bool{}}
}

// has reports whether the store has that bug.
func (f *faulty) has(bug string) bool { return f.bug == bug }

// lock locks, where the store is not to be caught without.
func (f *faulty) lock() func() {
	f.mu.Lock()
	return f.mu.Unlock
}

func (f *faulty) copy(data []byte) []byte {
	if f.has("keeps the bytes") {
		return data
	}
	return bytes.Clone(data)
}

func (f *faulty) key(owner, id string) string {
	switch {
	case f.has("ids are the owner's"):
		return owner + "/" + id
	case f.has("ids fold case"):
		return strings.ToLower(id)
	}
	return id
}

func (f *faulty) find(owner, id string) (tasks.Record, bool) {
	r, ok := f.records[f.key(owner, id)]
	switch {
	case f.has("owners are ignored"):
		return r, ok
	case f.has("owners end at a zero byte"):
		cut := func(s string) string { s, _, _ = strings.Cut(s, "\x00"); return s }
		return r, ok && cut(r.Owner) == cut(owner)
	case f.has("owners are cut short"):
		return r, ok && r.Owner[:min(len(r.Owner), 1000)] == owner[:min(len(owner), 1000)]
	}
	return r, ok && r.Owner == owner
}

func (f *faulty) Create(ctx context.Context, r tasks.Record) error {
	if ctx.Err() != nil && f.has("a late create is half made") {
		defer f.lock()()
		f.deleted[r.ID] = true
		f.removed-- // it counts, and is not there
		return ctx.Err()
	}
	if err := r.Check(); err != nil && !f.has("takes anything") {
		if f.has("counts what it refused") {
			f.removed--
		}
		return err
	}
	if f.has("two may create") {
		_, ok := f.get(r.Owner, r.ID)
		time.Sleep(time.Millisecond)
		if ok {
			return tasks.ErrConflict
		}
	}
	if f.has("changes at once are lost") {
		unlock := f.lock()
		before := maps.Clone(f.records)
		unlock()
		time.Sleep(time.Millisecond) // for the others, also where there is one core
		defer func() {
			defer f.lock()()
			before[r.ID] = f.records[r.ID]
			f.records = before
		}()
	}
	defer f.lock()()
	if _, ok := f.records[f.key(r.Owner, r.ID)]; ok && !f.has("a create replaces") && !f.has("two may create") {
		return tasks.ErrConflict
	}
	if f.deleted[r.ID] && f.has("ids are never free again") {
		return tasks.ErrConflict
	}
	r.Data = f.copy(r.Data)
	if !f.has("versions are the caller's") {
		r.Version = 1
	}
	if f.has("large data is cut") && len(r.Data) > 1<<20 {
		r.Data = r.Data[:1<<20]
	}
	if f.has("seconds") {
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
	if !ok && f.has("nothing is no error") {
		return r, nil
	}
	if !ok {
		return tasks.Record{}, tasks.ErrUnknown
	}
	if f.has("hides what has expired") && !r.Expires.After(noon) && r.Done {
		return tasks.Record{}, tasks.ErrUnknown
	}
	if !f.has("gives its own bytes") {
		r.Data = f.copy(r.Data)
	}
	return r, nil
}

func (f *faulty) Update(ctx context.Context, r tasks.Record) error {
	if err := r.Check(); err != nil {
		return err
	}
	if f.has("two may update") {
		old, _ := f.get(r.Owner, r.ID)
		time.Sleep(time.Millisecond)
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
	if old.Version != r.Version && !f.has("versions are ignored") && (!f.has("older versions win") || old.Version < r.Version) {
		return tasks.ErrConflict
	}
	if !f.has("created moves") {
		r.Created = old.Created
	}
	if f.has("a task stays unfinished") {
		r.Done = old.Done
	}
	if f.has("the expiry stays") {
		r.Expires = old.Expires
	}
	if f.has("data does not shrink") && len(r.Data) < len(old.Data) {
		r.Data = append(f.copy(r.Data), old.Data[len(r.Data):]...)
	}
	r.Version, r.Data = old.Version+1, f.copy(r.Data)
	if ctx.Err() != nil && f.has("a late update is half made") {
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
	if f.has("anybody may delete") {
		r, ok = f.records[id]
	}
	if !ok {
		if f.has("nothing cannot be deleted") {
			return tasks.ErrUnknown
		}
		return nil
	}
	if f.has("only what is done is deleted") && !r.Done {
		return nil
	}
	f.deleted[id] = true
	if f.has("what was deleted expires") {
		f.removed++
	}
	delete(f.records, f.key(r.Owner, r.ID))
	return nil
}

func (f *faulty) List(_ context.Context, owner string, after tasks.Cursor, limit int) ([]tasks.Record, error) {
	defer f.lock()()
	var all []tasks.Record
	for _, r := range f.records {
		if _, ok := f.find(owner, r.ID); ok || f.has("lists the others'") && r.Owner != "" && owner != "" && r.Owner[0] == owner[0] {
			r.Data = f.copy(r.Data)
			all = append(all, r)
		}
	}
	if f.has("a cursor must be there") && after.ID != "" && f.records[after.ID].ID == "" {
		return nil, errors.New("no such place")
	}
	slices.SortFunc(all, f.compare)
	var found []tasks.Record
	size := 0
	for _, r := range all {
		at := f.compare(r, tasks.Record{Created: after.Created, ID: after.ID})
		if at < 0 || at == 0 && !f.has("lists the cursor again") {
			continue
		}
		if f.has("skips the others of a moment") && !r.Created.After(after.Created) {
			continue
		}
		if size += len(r.Data); size > tasks.MaxRecord && len(found) > 0 && !f.has("lists much") {
			break
		}
		if size >= tasks.MaxRecord && f.has("lists little") {
			break
		}
		if len(found) == limit && !f.has("limits are ignored") {
			break
		}
		found = append(found, r)
	}
	return found, nil
}

func (f *faulty) compare(a, b tasks.Record) int {
	c := a.Created.Compare(b.Created)
	switch {
	case f.has("the newest first"):
		c = -c
	case f.has("times have no sign"):
		c = slices.Compare([]uint64{uint64(a.Created.UnixMilli())}, []uint64{uint64(b.Created.UnixMilli())})
	case f.has("by id alone"):
		c = 0
	}
	if c != 0 {
		return c
	}
	if f.has("ids are sorted without case") {
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
		if r.Owner == owner || all || owner == "" && f.has("nobody is everybody") {
			n++
			size += int64(len(r.Data))
		}
	}
	if f.has("counts no bytes") {
		size = 0
	}
	if f.has("counts what is unfinished") {
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
			if !r.Done && !(f.has("what has expired is finished") && r.Expires.Before(noon)) || f.has("all is unfinished") {
				r.Data = f.copy(r.Data)
				all = append(all, r)
			}
		}
		if f.has("gives a hundred") {
			all = all[:min(len(all), 100)]
		}
		if f.has("gives one twice") && len(all) > 100 {
			all = append(all, all[0])
		}
		unlock()
		for _, r := range all {
			if !yield(r, nil) && !f.has("goes on when it is left") {
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
		case !r.Done && !f.has("what runs expires"):
		case r.Expires.After(now):
		case r.Expires.Equal(now) && f.has("expires too late"):
		case n == limit && !f.has("deletes without limit"):
		default:
			n++
			if f.has("expiry is not counted") {
				f.removed--
			}
			delete(f.records, key)
		}
	}
	if f.has("what was deleted expires") {
		n += f.removed
	}
	if f.has("expiry says one more") && n > 1 {
		n++
	}
	return n, nil
}

// reopen returns what a store that was closed has when it is opened.
func (f *faulty) reopen() tasks.Store {
	if f.has("forgets") {
		return newFaulty(f.bug)
	}
	if f.has("forgets large data") {
		for key, r := range f.records {
			r.Data = r.Data[:min(len(r.Data), 1<<20)]
			f.records[key] = r
		}
	}
	if f.has("what was deleted comes back") {
		for id := range f.deleted {
			f.records[id] = tasks.Record{ID: id, Owner: "alice", Version: 1}
		}
	}
	return f
}
