package storetest

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/patchbay-mcp/patchbay/ext/tasks"
)

func checkCreate(s *store) {
	running, finished, empty := task("alice", "running"), done("alice", "done", noon), task("", "empty")
	empty.Data = nil
	for _, want := range []tasks.Record{running, finished, empty} {
		r := want
		r.Version = 7 // ignored by Create
		s.mustCreate(r)
		s.wantRecord(want)
	}
}

func checkUpdate(s *store) {
	r, other := task("alice", "one"), task("alice", "two")
	s.mustCreate(r, other)
	for i := range 5 {
		r.Created = noon.Add(time.Minute) // ignored by Update
		r.Expires, r.Done = noon.Add(time.Duration(i)*time.Hour), i%2 == 0
		r.Data = bytes.Repeat([]byte{byte(i)}, i*1000)
		r = s.mustUpdate(r)
		r.Created = noon
		s.wantRecord(r)
	}
	s.wantRecord(other)
	s.wantIDs("alice", "one", "two")
}

func checkIDs(s *store) {
	longest := strings.Repeat("z", 62) + "-_"
	for _, id := range []string{"A", "a", "0", "-", "_", "aa", "JX3Q2KMF5ZP4T6WYHN7RDCBAUS", longest} {
		r := task("alice", id)
		s.mustCreate(r)
		again := r
		again.Data = []byte("another")
		s.wantError("creating an id a second time", s.Create(s.ctx, again), tasks.ErrConflict)
		again.Owner = "bob"
		s.wantError("creating an id of another owner", s.Create(s.ctx, again), tasks.ErrConflict)
		s.wantRecord(r)
	}
	s.wantCount("bob", 0, 8)
}

func checkVersions(s *store) {
	s.mustCreate(task("alice", "one"))
	want := s.mustUpdate(task("alice", "one"))
	for _, version := range []uint64{0, 1, 3, 1 << 63} {
		r := want
		r.Version, r.Data, r.Done = version, []byte("no"), true
		s.wantError(fmt.Sprintf("an update of version %d where 2 is", version), s.Update(s.ctx, r), tasks.ErrConflict)
		s.wantRecord(want)
	}
	s.wantUnfinished("one")
}

func checkUnknown(s *store) {
	s.mustCreate(task("alice", "one"))
	for _, r := range []tasks.Record{
		task("alice", "two"), task("bob", "one"), task("", "one"), task("Alice", "one"), task("alice", "ONE"),
		task("alice", "on"),
	} {
		s.wantUnknown(r.Owner, r.ID)
		s.wantError(fmt.Sprintf("update %q of %q", r.ID, r.Owner), s.Update(s.ctx, r), tasks.ErrUnknown)
		s.mustDelete(r.Owner, r.ID)
	}
	s.wantRecord(task("alice", "one"))
	s.wantCount("bob", 0, 1)
}

// wantOne calls f 16 times concurrently: a single call must succeed, and the others must conflict.
func (s *store) wantOne(what string, f func(i int) error) {
	var succeeded atomic.Int32
	s.concurrently(16, func(i int) {
		if err := f(i); err != nil {
			s.wantError(what, err, tasks.ErrConflict)
			return
		}
		succeeded.Add(1)
	})
	if n := succeeded.Load(); n != 1 {
		s.fail("%s succeeded %d times of 16, want once", what, n)
	}
}

func checkOneUpdate(s *store) {
	r := task("alice", "one")
	s.mustCreate(r)
	for ; r.Version <= 5; r.Version++ {
		s.wantOne(fmt.Sprint("an update of version ", r.Version), func(i int) error {
			r := r
			r.Data = fmt.Append(nil, i)
			return s.Update(s.ctx, r)
		})
	}
	got, err := s.Get(s.ctx, "alice", "one")
	if err != nil || got.Version != 6 {
		s.fail("the version is %d, %v; want 6", got.Version, err)
	}
}

func checkOneCreate(s *store) {
	for round := range 5 {
		s.wantOne("the creation of an id", func(i int) error {
			return s.Create(s.ctx, task(fmt.Sprint("owner", i), fmt.Sprint("task", round)))
		})
	}
	s.wantCount("other", 0, 5)
}

func checkOwners(s *store) {
	id := func(i, k int) string { return fmt.Sprint("task-", i, "-", k) }
	for i, owner := range owners {
		s.mustCreate(task(owner, id(i, 0)), task(owner, id(i, 1)), task(owner, id(i, 2)))
	}
	for i, owner := range owners {
		s.wantIDs(owner, id(i, 0), id(i, 1), id(i, 2))
		s.wantCount(owner, 3, 3*len(owners))
		for k, other := range owners {
			if k != i {
				s.wantUnknown(other, id(i, 0))
				s.mustDelete(other, id(i, 0)) // no effect
			}
		}
		s.wantRecord(task(owner, id(i, 0)))
	}
}

func checkSizes(s *store) {
	const small = 9 // next to large records
	sizes := []int{0, 1, 4095, 4096, 16 << 10, 16<<10 + 1, 64 << 10, 64<<10 + 1, 128 << 10, 1 << 20, tasks.MaxRecord}
	records := make([]tasks.Record, len(sizes))
	for i, size := range sizes {
		records[i] = task("alice", fmt.Sprint("task", i))
		records[i].Data = pattern(size, byte(i))
	}
	s.mustCreate(records...)
	// Each record gets the size of another record, larger or smaller. No old data must remain.
	for round := range 2 {
		for _, r := range records {
			s.wantRecord(r)
		}
		for i := range records {
			records[i].Data = pattern(sizes[(i+small*(round+1))%len(sizes)], byte(i+round))
			records[i] = s.mustUpdate(records[i])
			s.wantRecord(records[i])
		}
	}
	for _, r := range records {
		s.mustDelete(r.Owner, r.ID)
		r.Data, r.Version = nil, 1
		s.mustCreate(r)
		s.wantRecord(r)
	}
}

func checkRefused(s *store) {
	kept := task("alice", "kept")
	s.mustCreate(kept)
	large := kept
	large.Data = make([]byte, tasks.MaxRecord+1)
	if err := s.Update(s.ctx, large); err == nil {
		s.fail("an update to %d bytes succeeded, the limit is %d", len(large.Data), tasks.MaxRecord)
	}
	large.ID = "large"
	if err := s.Create(s.ctx, large); err == nil {
		s.fail("a record of %d bytes was created, the limit is %d", len(large.Data), tasks.MaxRecord)
	}
	for _, id := range []string{"", "a b", "a\x00", "a/b", "ä", strings.Repeat("a", 65)} {
		if err := s.Create(s.ctx, task("alice", id)); err == nil {
			s.fail("a record with the id %q was created", id)
		}
	}
	s.wantRecord(kept)
	s.wantIDs("alice", "kept")
	s.wantCount("alice", 1, 1)
}

func checkCopies(s *store) {
	overwrite := func(records ...tasks.Record) {
		for _, r := range records {
			clear(r.Data[:cap(r.Data)])
		}
	}
	for _, size := range []int{10, 100_000} {
		r := task("alice", fmt.Sprint("task", size))
		r.Data = pattern(size, 1)
		passed := r
		passed.Data = bytes.Clone(r.Data)
		s.mustCreate(passed)
		overwrite(passed)
		s.wantRecord(r)

		r.Data = pattern(size, 2)
		passed.Data = bytes.Clone(r.Data)
		r.Version = s.mustUpdate(passed).Version
		overwrite(passed)
		s.wantRecord(r)

		got, err := s.Get(s.ctx, "alice", r.ID)
		s.noError("get", err)
		overwrite(got)
		overwrite(s.mustList("alice", tasks.Cursor{}, 10)...)
		overwrite(s.unfinished()...)
		s.wantRecord(r)
		s.mustDelete("alice", r.ID)
	}
}

func checkDelete(s *store) {
	s.mustCreate(task("alice", "running"), done("alice", "done", noon), task("alice", "kept"))
	for range 2 { // deleting twice is not an error
		for _, id := range []string{"running", "done"} {
			s.mustDelete("alice", id)
			s.wantUnknown("alice", id)
		}
	}
	s.wantIDs("alice", "kept")
	s.wantCount("alice", 1, 1)
	s.wantUnfinished("kept")
	s.mustDeleteExpired(noon.Add(100*time.Hour), 10, 0)
	s.mustCreate(task("bob", "done")) // the id can be used again
	s.wantRecord(task("bob", "done"))
	s.wantIDs("alice", "kept")
	s.wantUnfinished("kept", "done")
}

func checkExpiry(s *store) {
	running := task("alice", "running")
	running.Expires = noon.Add(-time.Hour)
	s.mustCreate(running,
		done("alice", "before", noon.Add(-time.Millisecond)), done("bob", "now", noon),
		done("alice", "after", noon.Add(time.Millisecond)),
		done("", "ancient", time.Date(1, 1, 2, 0, 0, 0, 0, time.UTC)),
		done("alice", "never", time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC)))
	s.wantRecord(done("bob", "now", noon)) // expired, and not deleted yet
	s.mustDeleteExpired(noon, 100, 3)
	s.mustDeleteExpired(noon, 100, 0)
	for owner, id := range map[string]string{"alice": "before", "bob": "now", "": "ancient"} {
		s.wantUnknown(owner, id)
	}
	s.wantIDs("alice", "after", "never", "running")
	s.wantIDs("bob")
	s.wantCount("alice", 3, 3)
	s.wantUnfinished("running")
	s.mustDeleteExpired(noon.Add(time.Millisecond), 100, 1)
	s.mustDeleteExpired(noon.AddDate(100, 0, 0), 100, 0)
	s.wantIDs("alice", "never", "running")
}

func checkExpiryMoves(s *store) {
	running := task("alice", "finishes")
	running.Expires = noon
	later, sooner, again := done("alice", "later", noon), done("alice", "sooner", noon.Add(time.Hour)),
		done("alice", "again", noon)
	s.mustCreate(later, sooner, again, running)
	later.Expires, sooner.Expires = sooner.Expires, later.Expires
	running.Done, again.Done = true, false
	s.mustUpdate(later)
	s.mustUpdate(sooner)
	s.mustUpdate(running)
	again = s.mustUpdate(again)
	s.mustDeleteExpired(noon, 100, 2)
	s.wantIDs("alice", "again", "later")
	s.mustDeleteExpired(noon.Add(time.Hour), 100, 1)
	again.Done = true
	s.mustUpdate(again)
	s.mustDeleteExpired(noon, 100, 1)
	s.wantIDs("alice")
	s.wantCount("alice", 0, 0)
}

func checkExpiryLimit(s *store) {
	for i := range 25 {
		at := noon.Add(time.Duration(i%3) * time.Millisecond)
		s.mustCreate(done(owners[i%len(owners)], fmt.Sprint("task", i), at))
	}
	late := noon.Add(time.Second)
	s.mustDeleteExpired(late, 0, 0)
	left := 25
	for _, n := range []int{10, 10, 5, 0} {
		s.mustDeleteExpired(late, 10, n)
		left -= n
		if got, _, err := s.CountAll(s.ctx); err != nil || got != left {
			s.fail("%d records remain, %v; want %d", got, err, left)
		}
	}
	s.wantCount("", 0, 0)
}

func checkTimes(s *store) {
	for i, created := range []time.Time{
		time.Date(2026, 7, 28, 23, 59, 59, int(999*time.Millisecond), time.FixedZone("west", -11*3600)),
		time.UnixMilli(-1), time.UnixMilli(0), time.Date(1, 1, 2, 0, 0, 0, 0, time.UTC),
		time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC),
	} {
		r := task("alice", fmt.Sprint("task", i))
		r.Created, r.Expires = created, created.Add(time.Millisecond)
		s.mustCreate(r)
		s.wantRecord(r)
		r.Expires = created.Add(-time.Millisecond)
		s.wantRecord(s.mustUpdate(r))
	}
}

func checkContext(s *store) {
	kept, ids := task("alice", "kept"), []string{"kept"}
	s.mustCreate(kept)
	ended, end := context.WithCancel(s.ctx)
	end()
	// Each change may be made or not.
	changed := kept
	changed.Data, changed.Done = []byte("changed"), true
	updated := s.Update(ended, changed)
	if updated == nil {
		kept = changed
		kept.Version = 2
	}
	created := s.Create(ended, task("alice", "new"))
	if created == nil {
		ids = append(ids, "new")
	}
	for _, err := range []error{updated, created} {
		if err != nil && !errors.Is(err, context.Canceled) {
			s.fail("a call with an ended context returned %w", err)
		}
	}
	s.wantRecord(kept)
	s.wantIDs("alice", ids...)
	s.wantCount("alice", len(ids), len(ids))
}

// checkConcurrent makes all kinds of changes to many tasks of a few owners concurrently.
func checkConcurrent(s *store) {
	const workers, lives = 12, 15
	s.concurrently(workers, func(i int) {
		for life := range lives {
			s.useTask(fmt.Sprint("owner", i%3), fmt.Sprintf("task-%d-%d", i, life), life)
		}
	})
	// Of five tasks the first is deleted, the second expired, the third done, and two are
	// unfinished.
	const kept, unfinished = workers * lives * 3 / 5, workers * lives * 2 / 5
	if n := len(s.unfinished()); n != unfinished {
		s.fail("%d tasks are unfinished, want %d", n, unfinished)
	}
	for i := range 3 {
		owner := fmt.Sprint("owner", i)
		if ids := s.pages(owner, 7, nil); len(ids) != kept/3 {
			s.fail("%s has %d tasks, want %d", owner, len(ids), kept/3)
		}
		s.wantCount(owner, kept/3, kept)
	}
}

// useTask creates, updates and ends a task in each of five ways.
func (s *store) useTask(owner, id string, variant int) {
	deleteExpired := func() {
		for n := 1; n > 0; {
			var err error
			n, err = s.DeleteExpired(s.ctx, noon, 2)
			s.noError("DeleteExpired", err)
		}
	}
	r, expires := task(owner, id), variant%5 == 1
	if expires {
		r.Expires = noon.Add(-time.Hour)
	}
	s.mustCreate(r)
	for r.Version < 4 {
		s.wantRecord(r)
		r.Data, r.Done = pattern(int(r.Version)*9000, byte(variant)), r.Version == 3 && variant%5 < 3
		r = s.mustUpdate(r)
		if expires && r.Version == 2 {
			deleteExpired() // does not delete unfinished records
		}
	}
	switch variant % 5 {
	case 0:
		s.mustDelete(owner, id)
		s.wantUnknown(owner, id)
	case 1:
		deleteExpired()
		s.wantUnknown(owner, id)
	default:
		s.mustList(owner, tasks.Cursor{}, 5)
		s.wantRecord(r)
	}
}

func checkLasting(s *store, reopen func()) {
	large := task("alice", "large")
	large.Data = pattern(3<<20, 5)
	var running []string
	for i, owner := range owners {
		running = append(running, fmt.Sprint("task", i))
		s.mustCreate(task(owner, running[i]))
	}
	s.mustCreate(large, done("alice", "done", noon), task("alice", "deleted"), done("bob", "expired", noon))
	reopen()
	large.Data, large.Done, large.Expires = pattern(2<<20, 6), true, noon.Add(time.Minute)
	large = s.mustUpdate(large)
	s.mustDelete("alice", "deleted")
	s.mustDelete("bob", "expired")
	reopen()
	for i, owner := range owners {
		s.wantRecord(task(owner, running[i]))
		s.wantCount(owner, 1, len(owners)+2)
	}
	s.wantRecord(large)
	s.wantIDs("alice", "done", "large")
	s.wantUnfinished(running...)
	s.wantError("creating an id that existed before closing", s.Create(s.ctx, task("bob", "large")), tasks.ErrConflict)
	s.mustDeleteExpired(noon, 10, 1)
	s.mustDeleteExpired(noon.Add(time.Minute), 10, 1)
	reopen()
	s.wantIDs("alice")
	s.wantUnfinished(running...)
	s.wantCount("bob", 0, len(owners))
}

func checkOrder(s *store) {
	// Comparisons of encoded bytes may get these wrong: negative, of different length, in time
	// zones.
	times := []time.Time{
		time.Date(1960, 1, 1, 0, 0, 0, 0, time.UTC),
		time.UnixMilli(-1), time.UnixMilli(0), time.UnixMilli(1), time.UnixMilli(255), time.UnixMilli(256),
		time.Date(2026, 7, 28, 23, 0, 0, 0, time.FixedZone("east", 12*3600)),
		time.Date(2026, 7, 28, 12, 0, 0, 0, time.UTC),
		time.Date(2026, 7, 28, 12, 0, 0, int(time.Millisecond), time.UTC),
		time.Date(2600, 1, 1, 0, 0, 0, 0, time.UTC),
	}
	var all []tasks.Record
	for i, created := range times {
		for _, id := range []string{"-", "0", "A", "AA", "B", "_", "a", "aa", "b"} {
			r := task("alice", id+fmt.Sprint("-", i))
			r.Created = created
			all = append(all, r)
		}
	}
	slices.SortFunc(all, func(a, b tasks.Record) int {
		return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.ID, b.ID))
	})
	for _, i := range rand.New(rand.NewPCG(1, 2)).Perm(len(all)) {
		s.mustCreate(all[i])
	}
	s.wantIDs("alice", idsOf(all)...)
	for _, i := range []int{0, 30, len(all) - 1} {
		r := all[i]
		r.Created, r.Done = noon, true
		s.mustUpdate(r)
	}
	s.wantIDs("alice", idsOf(all)...) // an update does not change the order
}

func checkCursor(s *store) {
	var ids []string
	for i := range 25 {
		r := task("alice", fmt.Sprintf("task%02d", i))
		r.Created = noon.Add(time.Duration(i/4) * time.Millisecond) // four at each time
		ids = append(ids, r.ID)
		s.mustCreate(r, task("bob", fmt.Sprintf("other%02d", i)))
	}
	wantPages := func(limit int, f func(page []tasks.Record)) {
		if got := s.pages("alice", limit, f); !slices.Equal(got, ids) {
			s.fail("in pages of %d the list is %q, want %q", limit, got, ids)
		}
	}
	for _, limit := range []int{1, 3, 4, 25, 100} {
		wantPages(limit, nil)
	}
	// The record at the cursor may be deleted.
	wantPages(5, func(page []tasks.Record) { s.mustDelete("alice", page[len(page)-1].ID) })
	s.mustList("alice", tasks.Cursor{}, 0)
	late := s.mustList("alice", tasks.Cursor{Created: noon.Add(time.Hour), ID: "x"}, 10)
	if len(late) != 0 {
		s.fail("after the last record %q is listed", idsOf(late))
	}
	// A cursor need not come from a list.
	odd := tasks.Cursor{Created: noon.Add(5 * time.Millisecond), ID: "task20\x00\xff/" + fmt.Sprint(make([]byte, 1000))}
	if got := idsOf(s.mustList("alice", odd, 10)); !slices.Equal(got, []string{"task21", "task22", "task23"}) {
		s.fail("after an arbitrary cursor %q is listed", got)
	}
}

func checkLargeList(s *store) {
	var ids []string
	for i, size := range []int{tasks.MaxRecord, 1, tasks.MaxRecord / 2, tasks.MaxRecord / 2, tasks.MaxRecord} {
		r := task("alice", fmt.Sprint("task", i))
		r.Data = make([]byte, size)
		ids = append(ids, r.ID)
		s.mustCreate(r)
	}
	got := s.pages("alice", 100, func(page []tasks.Record) {
		size := 0
		for _, r := range page {
			size += len(r.Data)
		}
		if size > tasks.MaxRecord {
			s.fail("a page has %d bytes of Data, want at most %d", size, tasks.MaxRecord)
		}
	})
	if !slices.Equal(got, ids) {
		s.fail("the pages list %q, want %q", got, ids)
	}
}

func checkCount(s *store) {
	s.wantCount("alice", 0, 0)
	for i := range 10 {
		r := task("alice", fmt.Sprint("alice", i))
		r.Done = i%2 == 0
		s.mustCreate(r)
		s.wantCount("alice", i+1, i+1)
	}
	s.mustCreate(task("", "anonymous"))
	_ = s.Create(s.ctx, task("alice", "alice0")) // refused
	s.mustDelete("bob", "alice0")                // of another owner
	r := task("alice", "alice1")
	r.Done, r.Data = true, make([]byte, 1000)
	s.mustUpdate(r)
	s.wantCount("alice", 10, 11)
	s.wantCount("", 1, 11)
	s.mustDelete("alice", "alice2")
	s.mustDelete("alice", "alice2")
	s.wantCount("alice", 9, 10)
	s.mustDeleteExpired(noon.Add(2*time.Hour), 100, 5)
	s.wantCount("alice", 4, 5)
	s.wantCount("", 1, 5)
	s.wantCount("bob", 0, 5)
}

func checkUnfinished(s *store) {
	s.wantUnfinished()
	var ids []string
	for i := range 300 { // more than a store reads at once
		r := task(owners[i%len(owners)], fmt.Sprint("task", i))
		if r.Done = i%10 == 9; !r.Done {
			ids = append(ids, r.ID)
		}
		if i%7 == 0 {
			r.Expires = noon.Add(-time.Hour) // expired or not
		}
		s.mustCreate(r)
	}
	s.wantUnfinished(slices.Clone(ids)...)
	s.mustUpdate(done(owners[0], "task0", noon)) // finished
	s.mustUpdate(task(owners[9], "task9"))       // unfinished again
	s.wantUnfinished(append(slices.Clone(ids[1:]), "task9")...)
	for _, err := range s.Unfinished(s.ctx) {
		s.noError("Unfinished", err)
		break // the iteration may end early
	}
	s.wantCount("bob", 0, 300)
}

func checkUnfinishedChanges(s *store) {
	const n = 250
	for i := range n {
		s.mustCreate(task("alice", fmt.Sprint("task", i)))
	}
	seen := map[string]bool{}
	for r, err := range s.Unfinished(s.ctx) {
		s.noError("Unfinished", err)
		if seen[r.ID] {
			s.fail("Unfinished returned %s twice", r.ID)
		}
		seen[r.ID] = true
		if len(seen)%2 == 0 {
			s.mustDelete(r.Owner, r.ID)
		} else {
			r.Done = true
			s.mustUpdate(r)
		}
	}
	if len(seen) != n {
		s.fail("Unfinished returned %d tasks, want %d", len(seen), n)
	}
	s.wantUnfinished()
	s.wantCount("alice", n/2, n/2)
}

func checkLeases(s *store) {
	s.hold("a", time.Hour)
	s.hold("b", 0)
	s.wantHolders("b", time.Hour, "a", "b") // the time of b was over, but no other holder renewed
	s.wantHolders("a", time.Hour, "a", "b")
	s.wantHolders("b", 0, "a", "b")
	s.wantHolders("a", time.Hour, "a")
	s.hold("c", time.Millisecond)
	for end := time.Now().Add(patience); len(s.mustRenew("a", time.Hour)) > 1; <-time.After(time.Millisecond) {
		if time.Now().After(end) {
			s.fail("a lease of a millisecond lasts longer than %v", patience)
		}
	}
	for _, ended := range []string{"b", "c", "unknown"} {
		_, err := s.shared().Renew(s.ctx, ended, time.Hour)
		s.wantError("Renew of an ended lease", err, tasks.ErrLeaseLost)
	}
	s.wantHolders("a", time.Hour, "a")
}

func checkLeaseRace(s *store) {
	for round := range 20 {
		raced := fmt.Sprint("raced", round)
		holders := []string{raced}
		for i := range 7 {
			holders = append(holders, fmt.Sprintf("holder%dof%d", i, round))
			s.hold(holders[i+1], time.Hour)
		}
		s.hold(raced, 0)
		var lost, ended atomic.Bool
		s.concurrently(len(holders), func(i int) {
			seen, err := s.shared().Renew(s.ctx, holders[i], time.Hour)
			if i == 0 && errors.Is(err, tasks.ErrLeaseLost) {
				lost.Store(true)
				return
			}
			s.noError("Renew", err)
			if !slices.Contains(seen, raced) {
				ended.Store(true)
			}
		})
		if ended.Load() && !lost.Load() {
			s.fail("a lease that had ended was renewed")
		}
		if slices.Contains(s.mustRenew(holders[1], time.Hour), raced) == lost.Load() {
			s.fail("a lease of which Renew returned ErrLeaseLost: %t lasts: %[1]t", lost.Load())
		}
	}
}

func checkTaskVersions(s *store) {
	s.mustCreate(task("alice", "one"), task("bob", "two"), done("", "done", noon))
	s.mustUpdate(s.mustUpdate(task("bob", "two")))
	ids, want := []string{"two", "none", "one", "done", "two"}, []uint64{3, 0, 1, 1, 3}
	for i := range 1000 {
		ids, want = append(ids, fmt.Sprint("none", i)), append(want, 0)
	}
	for _, n := range []int{0, 1, 5, len(ids)} {
		got, err := s.shared().Versions(s.ctx, ids[:n])
		s.noError("Versions", err)
		if !slices.Equal(got, want[:n]) {
			s.fail("the versions of %.5q are %.5d, want %.5d", ids[:n], got, want[:n])
		}
	}
}
