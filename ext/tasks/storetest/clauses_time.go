package storetest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/patchbay-mcp/patchbay/ext/tasks"
)

// done returns a finished record that expires at that time.
func done(owner, id string, expires time.Time) tasks.Record {
	r := task(owner, id)
	r.Done, r.Expires = true, expires
	return r
}

// expire calls DeleteExpired, and returns an error if it does not delete want records.
func expire(ctx context.Context, s tasks.Store, now time.Time, limit, want int) error {
	n, err := s.DeleteExpired(ctx, now, limit)
	if err != nil || n != want {
		return fmt.Errorf("at %v DeleteExpired returned %d, %s; want %d", now, n, fmt.Sprint(err), want)
	}
	return nil
}

func checkExpiry(ctx context.Context, s tasks.Store) error {
	running := task("alice", "running")
	running.Expires = noon.Add(-time.Hour)
	err := create(ctx, s,
		done("alice", "before", noon.Add(-time.Millisecond)), done("bob", "now", noon), done("alice", "after",
			noon.Add(time.Millisecond)),
		done("", "ancient", time.Date(1, 1, 2, 0, 0, 0, 0, time.UTC)), done("alice", "never",
			time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC)), running)
	if err != nil {
		return err
	}
	// It can be read until it is deleted.
	want := done("bob", "now", noon)
	want.Version = 1
	if err := wantRecord(ctx, s, want); err != nil {
		return fmt.Errorf("expired but not deleted: %w", err)
	}
	if err := expire(ctx, s, noon, 100, 3); err != nil {
		return err
	}
	if err := expire(ctx, s, noon, 100, 0); err != nil {
		return err
	}
	for owner, id := range map[string]string{"alice": "before", "bob": "now", "": "ancient"} {
		_, err := s.Get(ctx, owner, id)
		if err := wantError("get of a deleted task", err, tasks.ErrUnknown); err != nil {
			return err
		}
	}
	return errors.Join(
		wantIDs(ctx, s, "alice", "after", "never", "running"), wantIDs(ctx, s, "bob"),
		wantCount(ctx, s, "alice", 3, 3), wantUnfinished(ctx, s, "running"),
		expire(ctx, s, noon.Add(time.Millisecond), 100, 1), expire(ctx, s, noon.AddDate(100, 0, 0), 100, 0),
		wantIDs(ctx, s, "alice", "never", "running"))
}

func checkExpiryMoves(ctx context.Context, s tasks.Store) error {
	running := task("alice", "finishes")
	running.Expires = noon
	if err := create(ctx, s, done("alice", "later", noon), done("alice", "sooner", noon.Add(time.Hour)),
		done("alice", "again", noon), running); err != nil {
		return err
	}
	later, sooner, again := done("alice", "later", noon.Add(time.Hour)), done("alice", "sooner", noon), done("alice",
		"again", noon)
	again.Done, running.Done = false, true
	for _, r := range []tasks.Record{later, sooner, again, running} {
		r.Version = 1
		if err := s.Update(ctx, r); err != nil {
			return err
		}
	}
	if err := expire(ctx, s, noon, 100, 2); err != nil {
		return err
	}
	if err := wantIDs(ctx, s, "alice", "again", "later"); err != nil {
		return err
	}
	if err := expire(ctx, s, noon.Add(time.Hour), 100, 1); err != nil {
		return err
	}
	again.Version, again.Done = 2, true
	if err := s.Update(ctx, again); err != nil {
		return err
	}
	return errors.Join(expire(ctx, s, noon, 100, 1), wantIDs(ctx, s, "alice"), wantCount(ctx, s, "alice", 0, 0))
}

func checkExpiryLimit(ctx context.Context, s tasks.Store) error {
	for i := range 25 {
		if err := create(ctx, s,
			done(owners[i%len(owners)], fmt.Sprint("task", i), noon.Add(time.Duration(i%3)*time.Millisecond))); err != nil {
			return err
		}
	}
	if err := expire(ctx, s, noon.Add(time.Second), 0, 0); err != nil {
		return err
	}
	for left := 25; left > 0; left -= 10 {
		if err := expire(ctx, s, noon.Add(time.Second), 10, min(left, 10)); err != nil {
			return err
		}
		if n, _, err := s.CountAll(ctx); err != nil || n != max(left-10, 0) {
			return fmt.Errorf("%d records remain, %s; want %d", n, fmt.Sprint(err), max(left-10, 0))
		}
	}
	return wantCount(ctx, s, "", 0, 0)
}

func checkTimes(ctx context.Context, s tasks.Store) error {
	for i, created := range []time.Time{
		time.Date(2026, 7, 28, 23, 59, 59, int(999*time.Millisecond), time.FixedZone("west", -11*3600)),
		time.UnixMilli(-1), time.UnixMilli(0), time.Date(1, 1, 2, 0, 0, 0, 0, time.UTC), time.Date(9999, 12, 31, 23,
			59, 59, 0, time.UTC),
	} {
		r := task("alice", fmt.Sprint("task", i))
		r.Created, r.Expires = created, created.Add(time.Millisecond)
		if err := create(ctx, s, r); err != nil {
			return err
		}
		r.Version = 1
		if err := wantRecord(ctx, s, r); err != nil {
			return err
		}
		r.Expires = created.Add(-time.Millisecond)
		if err := s.Update(ctx, r); err != nil {
			return err
		}
		r.Version = 2
		if err := wantRecord(ctx, s, r); err != nil {
			return err
		}
	}
	return nil
}

func checkContext(ctx context.Context, s tasks.Store) error {
	if err := create(ctx, s, task("alice", "kept")); err != nil {
		return err
	}
	ended, end := context.WithCancel(ctx)
	end()
	// The change may be made or not.
	changed := task("alice", "kept")
	changed.Version, changed.Data, changed.Done = 1, []byte("changed"), true
	updated := s.Update(ended, changed)
	changed.Version = 2
	kept := task("alice", "kept")
	kept.Version = 1
	if updated == nil {
		kept = changed
	}
	created := s.Create(ended, task("alice", "new"))
	for _, err := range []error{updated, created} {
		if err != nil && !errors.Is(err, context.Canceled) {
			return fmt.Errorf("a call with an ended context returned %w", err)
		}
	}
	ids := []string{"kept"}
	if created == nil {
		ids = append(ids, "new")
	}
	return errors.Join(wantRecord(ctx, s, kept), wantIDs(ctx, s, "alice", ids...),
		wantCount(ctx, s, "alice", len(ids), len(ids)))
}
