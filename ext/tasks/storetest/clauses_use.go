package storetest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/patchbay-mcp/patchbay/ext/tasks"
)

// checkConcurrent creates, updates, deletes, lists and expires many tasks of a few owners
// concurrently.
func checkConcurrent(ctx context.Context, s tasks.Store) error {
	const workers, lives = 12, 15
	err := concurrently(workers, func(i int) error {
		for life := range lives {
			if err := live(ctx, s, fmt.Sprint("owner", i%3), fmt.Sprintf("task-%d-%d", i, life), life); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	// Of five tasks one was deleted, one expired, one is done, and two are unfinished.
	const kept = workers * lives * 3 / 5
	n := 0
	for _, err := range s.Unfinished(ctx) {
		if err != nil {
			return err
		}
		n++
	}
	if n != workers*lives*2/5 {
		return fmt.Errorf("%d tasks are unfinished, want %d", n, workers*lives*2/5)
	}
	for i := range 3 {
		owner := fmt.Sprint("owner", i)
		ids, err := pages(ctx, s, owner, 7, nil)
		if err != nil || len(ids) != kept/3 {
			return fmt.Errorf("%s has %d tasks, %s; want %d", owner, len(ids), fmt.Sprint(err), kept/3)
		}
		if err := wantCount(ctx, s, owner, kept/3, kept); err != nil {
			return err
		}
	}
	return nil
}

// live creates, updates and ends a task in one of five ways.
func live(ctx context.Context, s tasks.Store, owner, id string, variant int) error {
	r := task(owner, id)
	if variant%5 == 1 {
		r.Expires = noon.Add(-time.Hour)
	}
	if err := create(ctx, s, r); err != nil {
		return err
	}
	for r.Version = 1; r.Version < 4; r.Version++ {
		if err := wantRecord(ctx, s, r); err != nil {
			return err
		}
		r.Data = pattern(int(r.Version)*9000, byte(variant))
		if r.Version == 3 {
			r.Done = variant%5 < 3
		}
		if err := s.Update(ctx, r); err != nil {
			return fmt.Errorf("update %s: %w", id, err)
		}
		if variant%5 == 1 && r.Version == 1 {
			if err := removeExpired(ctx, s); err != nil { // does not delete unfinished records
				return err
			}
		}
	}
	switch variant % 5 {
	case 0:
		if err := s.Delete(ctx, owner, id); err != nil {
			return err
		}
	case 1:
		if err := removeExpired(ctx, s); err != nil {
			return err
		}
	default:
		if _, err := s.List(ctx, owner, tasks.Cursor{}, 5); err != nil {
			return err
		}
		return wantRecord(ctx, s, r)
	}
	_, err := s.Get(ctx, owner, id)
	return wantError("get of a deleted task", err, tasks.ErrUnknown)
}

// removeExpired deletes all expired records.
func removeExpired(ctx context.Context, s tasks.Store) error {
	for {
		n, err := s.DeleteExpired(ctx, noon, 2)
		if err != nil || n == 0 {
			return err
		}
	}
}

// checkLasting closes and opens a store several times. It returns the store that is open.
func checkLasting(ctx context.Context, s tasks.Store, reopen func(tasks.Store) tasks.Store) (tasks.Store, error) {
	large := task("alice", "large")
	large.Data = pattern(3<<20, 5)
	for i, owner := range owners {
		if err := create(ctx, s, task(owner, fmt.Sprint("task", i))); err != nil {
			return s, err
		}
	}
	if err := create(ctx, s, large, done("alice", "done", noon), task("alice", "deleted"),
		done("bob", "expired", noon)); err != nil {
		return s, err
	}
	s = reopen(s)
	changed := large
	changed.Version, changed.Data, changed.Done, changed.Expires = 1, pattern(2<<20, 6), true, noon.Add(time.Minute)
	if err := errors.Join(s.Update(ctx, changed), s.Delete(ctx, "alice", "deleted"),
		s.Delete(ctx, "bob", "expired")); err != nil {
		return s, err
	}
	changed.Version = 2
	s = reopen(s)
	var running []string
	for i, owner := range owners {
		want := task(owner, fmt.Sprint("task", i))
		want.Version = 1
		running = append(running, want.ID)
		if err := errors.Join(wantRecord(ctx, s, want), wantCount(ctx, s, owner, 1, len(owners)+2)); err != nil {
			return s, err
		}
	}
	err := errors.Join(
		wantRecord(ctx, s, changed), wantIDs(ctx, s, "alice", "done", "large"), wantUnfinished(ctx, s, running...),
		wantError("creating an id that existed before closing", s.Create(ctx, task("bob", "large")), tasks.ErrConflict),
		expire(ctx, s, noon, 10, 1), expire(ctx, s, noon.Add(time.Minute), 10, 1))
	if err != nil {
		return s, err
	}
	s = reopen(s)
	return s, errors.Join(wantIDs(ctx, s, "alice"), wantUnfinished(ctx, s, running...),
		wantCount(ctx, s, "bob", 0, len(owners)))
}
