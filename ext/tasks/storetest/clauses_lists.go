package storetest

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/patchbay-mcp/patchbay/ext/tasks"
)

func checkOrder(s *store) {
	// Times that a comparison of encoded bytes may get wrong: negative ones, of different length,
	// in time zones.
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
