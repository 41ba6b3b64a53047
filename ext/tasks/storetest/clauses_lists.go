package storetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/patchbay-mcp/patchbay/ext/tasks"
)

func checkOrder(ctx context.Context, s tasks.Store) error {
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
		if c := a.Created.Compare(b.Created); c != 0 {
			return c
		}
		return compareBytes(a.ID, b.ID)
	})
	ids := idsOf(all)
	for _, i := range rand.New(rand.NewPCG(1, 2)).Perm(len(all)) {
		if err := create(ctx, s, all[i]); err != nil {
			return err
		}
	}
	if err := wantIDs(ctx, s, "alice", ids...); err != nil {
		return err
	}
	// An update does not change the order.
	for _, i := range []int{0, 30, len(all) - 1} {
		r := all[i]
		r.Version, r.Created, r.Done = 1, noon, true
		if err := s.Update(ctx, r); err != nil {
			return err
		}
	}
	return wantIDs(ctx, s, "alice", ids...)
}

func compareBytes(a, b string) int { return slices.Compare([]byte(a), []byte(b)) }

func checkCursor(ctx context.Context, s tasks.Store) error {
	var ids []string
	for i := range 25 {
		r := task("alice", fmt.Sprintf("task%02d", i))
		r.Created = noon.Add(time.Duration(i/4) * time.Millisecond) // four at each time
		ids = append(ids, r.ID)
		if err := create(ctx, s, r, task("bob", fmt.Sprintf("other%02d", i))); err != nil {
			return err
		}
	}
	for _, limit := range []int{1, 3, 4, 25, 100} {
		got, err := pages(ctx, s, "alice", limit, nil)
		if err != nil {
			return err
		}
		if !slices.Equal(got, ids) {
			return fmt.Errorf("in pages of %d the list is %q, want %q", limit, got, ids)
		}
	}
	// The record at the cursor may be deleted.
	got, err := pages(ctx, s, "alice", 5, func(last tasks.Record) error { return s.Delete(ctx, "alice", last.ID) })
	if err != nil {
		return err
	}
	if !slices.Equal(got, ids) {
		return fmt.Errorf("with the record at each cursor deleted the list is %q, want %q", got, ids)
	}
	none, err := s.List(ctx, "alice", tasks.Cursor{}, 0)
	if err != nil || len(none) != 0 {
		return fmt.Errorf("a list with limit 0 has %d records (%s)", len(none), fmt.Sprint(err))
	}
	late, err := s.List(ctx, "alice", tasks.Cursor{Created: noon.Add(time.Hour), ID: "x"}, 10)
	if err != nil || len(late) != 0 {
		return fmt.Errorf("after the last record %q is listed (%s)", idsOf(late), fmt.Sprint(err))
	}
	// A cursor need not come from a list.
	odd, err := s.List(ctx, "alice",
		tasks.Cursor{Created: noon.Add(5 * time.Millisecond),
			ID: "task20\x00\xff/" + fmt.Sprint(make([]byte, 1000))}, 10)
	if err != nil || !slices.Equal(idsOf(odd), []string{"task21", "task22", "task23"}) {
		return fmt.Errorf("after an arbitrary cursor %q is listed (%s)", idsOf(odd), fmt.Sprint(err))
	}
	return nil
}

// pages lists all records of an owner in pages of limit. It calls between, if set, with the last
// record of each.
func pages(ctx context.Context, s tasks.Store, owner string, limit int,
	between func(last tasks.Record) error) ([]string, error) {
	var ids []string
	for after := (tasks.Cursor{}); ; {
		page, err := s.List(ctx, owner, after, limit)
		if err != nil {
			return nil, fmt.Errorf("list: %w", err)
		}
		if len(page) > limit {
			return nil, fmt.Errorf("%d records were listed, the limit was %d", len(page), limit)
		}
		if len(page) == 0 {
			return ids, nil
		}
		ids = append(ids, idsOf(page)...)
		if len(ids) > 1000 {
			return nil, errors.New("the list has no end")
		}
		last := page[len(page)-1]
		after = tasks.Cursor{Created: last.Created, ID: last.ID}
		if between != nil {
			if err := between(last); err != nil {
				return nil, err
			}
		}
	}
}

func checkLargeList(ctx context.Context, s tasks.Store) error {
	var ids []string
	for i := range 5 {
		r := task("alice", fmt.Sprint("task", i))
		r.Data = make([]byte, []int{tasks.MaxRecord, 1, tasks.MaxRecord / 2, tasks.MaxRecord / 2, tasks.MaxRecord}[i])
		ids = append(ids, r.ID)
		if err := create(ctx, s, r); err != nil {
			return err
		}
	}
	page, err := s.List(ctx, "alice", tasks.Cursor{}, 100)
	if err != nil || len(page) == 0 {
		return fmt.Errorf("a list that starts with a record of MaxRecord bytes has %d records (%s)", len(page),
			fmt.Sprint(err))
	}
	size := 0
	for _, r := range page {
		size += len(r.Data)
	}
	if size > tasks.MaxRecord {
		return fmt.Errorf("a page has %d bytes of Data, want at most %d", size, tasks.MaxRecord)
	}
	got, err := pages(ctx, s, "alice", 100, nil)
	if err != nil || !slices.Equal(got, ids) {
		return fmt.Errorf("the pages list %q, %s; want %q", got, fmt.Sprint(err), ids)
	}
	return nil
}

func checkCount(ctx context.Context, s tasks.Store) error {
	if err := wantCount(ctx, s, "alice", 0, 0); err != nil {
		return err
	}
	for i := range 10 {
		r := task("alice", fmt.Sprint("alice", i))
		r.Done = i%2 == 0
		if err := errors.Join(create(ctx, s, r), wantCount(ctx, s, "alice", i+1, i+1)); err != nil {
			return err
		}
	}
	if err := create(ctx, s, task("", "nobody")); err != nil {
		return err
	}
	_ = s.Create(ctx, task("alice", "alice0")) // refused
	_ = s.Delete(ctx, "bob", "alice0")         // of another owner
	r := task("alice", "alice1")
	r.Version, r.Done, r.Data = 1, true, make([]byte, 1000)
	if err := s.Update(ctx, r); err != nil {
		return err
	}
	if err := errors.Join(wantCount(ctx, s, "alice", 10, 11), wantCount(ctx, s, "", 1, 11)); err != nil {
		return err
	}
	for range 2 {
		if err := s.Delete(ctx, "alice", "alice2"); err != nil {
			return err
		}
	}
	if err := wantCount(ctx, s, "alice", 9, 10); err != nil {
		return err
	}
	if _, err := s.DeleteExpired(ctx, noon.Add(2*time.Hour), 100); err != nil {
		return err
	}
	return errors.Join(wantCount(ctx, s, "alice", 4, 5), wantCount(ctx, s, "", 1, 5), wantCount(ctx, s, "bob", 0, 5))
}

func checkUnfinished(ctx context.Context, s tasks.Store) error {
	if err := wantUnfinished(ctx, s); err != nil {
		return err
	}
	var ids []string
	for i := range 300 { // more than a store reads at once
		r := task(owners[i%len(owners)], fmt.Sprint("task", i))
		if r.Done = i%10 == 9; !r.Done {
			ids = append(ids, r.ID)
		}
		if i%7 == 0 {
			r.Expires = noon.Add(-time.Hour) // expired or not
		}
		if err := create(ctx, s, r); err != nil {
			return err
		}
	}
	if err := wantUnfinished(ctx, s, ids...); err != nil {
		return err
	}
	// One record is finished, and a finished one is unfinished again.
	r := task(owners[0], "task0")
	r.Version, r.Done = 1, true
	if err := s.Update(ctx, r); err != nil {
		return err
	}
	r = task(owners[9], "task9")
	r.Version = 1
	if err := s.Update(ctx, r); err != nil {
		return err
	}
	if err := wantUnfinished(ctx, s, append(slices.Clone(ids[1:]), "task9")...); err != nil {
		return err
	}
	for _, err := range s.Unfinished(ctx) {
		if err != nil {
			return err
		}
		break // the iteration may end early
	}
	return wantCount(ctx, s, "bob", 0, 300)
}

func checkUnfinishedChanges(ctx context.Context, s tasks.Store) error {
	const n = 250
	for i := range n {
		if err := create(ctx, s, task("alice", fmt.Sprint("task", i))); err != nil {
			return err
		}
	}
	seen := map[string]bool{}
	for r, err := range s.Unfinished(ctx) {
		if err != nil {
			return fmt.Errorf("unfinished: %w", err)
		}
		if seen[r.ID] {
			return fmt.Errorf("Unfinished returned %s twice", r.ID)
		}
		seen[r.ID] = true
		if len(seen)%2 == 0 {
			err = s.Delete(ctx, r.Owner, r.ID)
		} else {
			r.Done = true
			err = s.Update(ctx, r)
		}
		if err != nil {
			return fmt.Errorf("a change during Unfinished: %w", err)
		}
	}
	if len(seen) != n {
		return fmt.Errorf("Unfinished returned %d tasks, want %d", len(seen), n)
	}
	return errors.Join(wantUnfinished(ctx, s), wantCount(ctx, s, "alice", n/2, n/2))
}
