package storetest

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/patchbay-mcp/patchbay/ext/tasks"
)

func checkCreate(ctx context.Context, s tasks.Store) error {
	running, done, empty := task("alice", "running"), task("alice", "done"), task("", "empty")
	running.Version = 7 // ignored by Create
	done.Done = true
	empty.Data = nil
	if err := create(ctx, s, running, done, empty); err != nil {
		return err
	}
	for _, r := range []tasks.Record{running, done, empty} {
		r.Version = 1
		if err := wantRecord(ctx, s, r); err != nil {
			return err
		}
	}
	return nil
}

func checkUpdate(ctx context.Context, s tasks.Store) error {
	first := task("alice", "one")
	if err := create(ctx, s, first, task("alice", "two")); err != nil {
		return err
	}
	r := first
	for version := range uint64(5) {
		r.Version = version + 1
		r.Created = noon.Add(time.Minute) // ignored by Update
		r.Expires = noon.Add(time.Duration(version) * time.Hour)
		r.Done = version%2 == 0
		r.Data = bytes.Repeat([]byte{byte(version)}, int(version)*1000)
		if err := s.Update(ctx, r); err != nil {
			return fmt.Errorf("update %d: %w", version, err)
		}
		want := r
		want.Created, want.Version = first.Created, r.Version+1
		if err := wantRecord(ctx, s, want); err != nil {
			return err
		}
	}
	other := task("alice", "two")
	other.Version = 1
	if err := wantRecord(ctx, s, other); err != nil {
		return fmt.Errorf("the other record: %w", err)
	}
	return wantIDs(ctx, s, "alice", "one", "two")
}

func checkIDs(ctx context.Context, s tasks.Store) error {
	longest := strings.Repeat("z", 62) + "-_"
	for _, id := range []string{"A", "a", "0", "-", "_", "aa", rand.Text(), longest} {
		r := task("alice", id)
		if err := create(ctx, s, r); err != nil {
			return err
		}
		again := task("alice", id)
		again.Data = []byte("another")
		if err := wantError("creating an id a second time", s.Create(ctx, again), tasks.ErrConflict); err != nil {
			return err
		}
		again.Owner = "bob"
		if err := wantError("creating an id of another owner", s.Create(ctx, again), tasks.ErrConflict); err != nil {
			return err
		}
		r.Version = 1
		if err := wantRecord(ctx, s, r); err != nil {
			return err
		}
	}
	return wantCount(ctx, s, "bob", 0, 8)
}

func checkVersions(ctx context.Context, s tasks.Store) error {
	r := task("alice", "one")
	if err := create(ctx, s, r); err != nil {
		return err
	}
	r.Version = 1
	if err := s.Update(ctx, r); err != nil {
		return err
	}
	want := r
	want.Version = 2
	for _, version := range []uint64{0, 1, 3, 1 << 63} {
		r.Version, r.Data, r.Done = version, []byte("no"), true
		if err := wantError(fmt.Sprintf("an update of version %d where 2 is", version), s.Update(ctx, r),
			tasks.ErrConflict); err != nil {
			return err
		}
		if err := wantRecord(ctx, s, want); err != nil {
			return fmt.Errorf("after a conflict: %w", err)
		}
	}
	return wantUnfinished(ctx, s, "one")
}

func checkUnknown(ctx context.Context, s tasks.Store) error {
	if err := create(ctx, s, task("alice", "one")); err != nil {
		return err
	}
	for _, r := range []tasks.Record{
		task("alice", "two"), task("bob", "one"), task("", "one"), task("Alice", "one"), task("alice", "ONE"),
		task("alice", "on"),
	} {
		r.Version = 1
		what := fmt.Sprintf("%q of %q", r.ID, r.Owner)
		got, err := s.Get(ctx, r.Owner, r.ID)
		if err := wantError("get "+what, err, tasks.ErrUnknown); err != nil {
			return err
		}
		if got.ID != "" || got.Data != nil {
			return fmt.Errorf("get %s returned a record with its error", what)
		}
		if err := wantError("update "+what, s.Update(ctx, r), tasks.ErrUnknown); err != nil {
			return err
		}
		if err := s.Delete(ctx, r.Owner, r.ID); err != nil {
			return fmt.Errorf("delete %s: %w", what, err)
		}
	}
	want := task("alice", "one")
	want.Version = 1
	return errors.Join(wantRecord(ctx, s, want), wantCount(ctx, s, "bob", 0, 1))
}

func checkOneUpdate(ctx context.Context, s tasks.Store) error {
	r := task("alice", "one")
	if err := create(ctx, s, r); err != nil {
		return err
	}
	for version := uint64(1); version <= 5; version++ {
		var won atomic.Int32
		err := concurrently(16, func(i int) error {
			r := r
			r.Version, r.Data = version, fmt.Append(nil, i)
			err := s.Update(ctx, r)
			if err == nil {
				won.Add(1)
				return nil
			}
			return wantError("an update of an old version", err, tasks.ErrConflict)
		})
		if err != nil {
			return err
		}
		if n := won.Load(); n != 1 {
			return fmt.Errorf("%d of 16 updates of version %d succeeded, want 1", n, version)
		}
	}
	got, err := s.Get(ctx, "alice", "one")
	if err != nil || got.Version != 6 {
		return fmt.Errorf("the version is %d, want 6 (%s)", got.Version, fmt.Sprint(err))
	}
	return nil
}

func checkOneCreate(ctx context.Context, s tasks.Store) error {
	for round := range 5 {
		var won atomic.Int32
		id := fmt.Sprint("task", round)
		err := concurrently(16, func(i int) error {
			err := s.Create(ctx, task(fmt.Sprint("owner", i), id))
			if err == nil {
				won.Add(1)
				return nil
			}
			return wantError("a creation of an existing id", err, tasks.ErrConflict)
		})
		if err != nil {
			return err
		}
		if n := won.Load(); n != 1 {
			return fmt.Errorf("%d of 16 creations of one id succeeded, want 1", n)
		}
	}
	return wantCount(ctx, s, "nobody", 0, 5)
}

func checkOwners(ctx context.Context, s tasks.Store) error {
	for i, owner := range owners {
		for k := range 3 {
			if err := create(ctx, s, task(owner, fmt.Sprint("task-", i, "-", k))); err != nil {
				return err
			}
		}
	}
	for i, owner := range owners {
		ids := []string{fmt.Sprint("task-", i, "-0"), fmt.Sprint("task-", i, "-1"), fmt.Sprint("task-", i, "-2")}
		if err := errors.Join(wantIDs(ctx, s, owner, ids...), wantCount(ctx, s, owner, 3, 3*len(owners))); err != nil {
			return err
		}
		for k, other := range owners {
			_, err := s.Get(ctx, other, ids[0])
			if k == i && err != nil || k != i && !errors.Is(err, tasks.ErrUnknown) {
				return fmt.Errorf("owner %.20q can read the task of %.20q: %s", other, owner, fmt.Sprint(err))
			}
			if k == i {
				continue
			}
			if err := s.Delete(ctx, other, ids[0]); err != nil {
				return err
			}
		}
		want := task(owner, ids[0])
		want.Version = 1
		if err := wantRecord(ctx, s, want); err != nil {
			return fmt.Errorf("after other owners tried to delete it: %w", err)
		}
	}
	return nil
}

func checkSizes(ctx context.Context, s tasks.Store) error {
	const small = 9 // next to large ones
	sizes := []int{0, 1, 4095, 4096, 16 << 10, 16<<10 + 1, 64 << 10, 64<<10 + 1, 128 << 10, 1 << 20, tasks.MaxRecord}
	var records []tasks.Record
	for i, size := range sizes {
		r := task("alice", fmt.Sprint("task", i))
		r.Data = pattern(size, byte(i))
		records = append(records, r)
	}
	if err := create(ctx, s, records...); err != nil {
		return err
	}
	// Each record gets the size of another one, larger or smaller. No old data must remain.
	for round := range 2 {
		for i := range records {
			records[i].Version = uint64(round + 1)
			if err := wantRecord(ctx, s, records[i]); err != nil {
				return err
			}
		}
		for i := range records {
			size := sizes[(i+small*(round+1))%len(sizes)]
			records[i].Data = pattern(size, byte(i+round))
			if err := s.Update(ctx, records[i]); err != nil {
				return fmt.Errorf("update to %d bytes: %w", size, err)
			}
			records[i].Version++
			if err := wantRecord(ctx, s, records[i]); err != nil {
				return err
			}
		}
	}
	for _, r := range records {
		if err := s.Delete(ctx, r.Owner, r.ID); err != nil {
			return err
		}
		r.Data = nil
		if err := create(ctx, s, r); err != nil {
			return err
		}
		r.Version = 1
		if err := wantRecord(ctx, s, r); err != nil {
			return fmt.Errorf("a new task after a large one was deleted: %w", err)
		}
	}
	return nil
}

// pattern returns data without repetition.
func pattern(size int, seed byte) []byte {
	data := make([]byte, size)
	for i := range data {
		data[i] = byte(i) ^ byte(i>>8) ^ byte(i>>16) ^ seed
	}
	return data
}

func checkRefused(ctx context.Context, s tasks.Store) error {
	kept := task("alice", "kept")
	if err := create(ctx, s, kept); err != nil {
		return err
	}
	kept.Version = 1
	large := kept
	large.Data = make([]byte, tasks.MaxRecord+1)
	if err := s.Update(ctx, large); err == nil {
		return fmt.Errorf("an update to %d bytes succeeded, the limit is %d", len(large.Data), tasks.MaxRecord)
	}
	large.ID = "large"
	if err := s.Create(ctx, large); err == nil {
		return fmt.Errorf("a record of %d bytes was created, the limit is %d", len(large.Data), tasks.MaxRecord)
	}
	for _, id := range []string{"", "a b", "a\x00", "a/b", "ä", strings.Repeat("a", 65)} {
		if err := s.Create(ctx, task("alice", id)); err == nil {
			return fmt.Errorf("a record with the id %q was created", id)
		}
	}
	return errors.Join(wantRecord(ctx, s, kept), wantIDs(ctx, s, "alice", "kept"), wantCount(ctx, s, "alice", 1, 1))
}

func checkCopies(ctx context.Context, s tasks.Store) error {
	spoil := func(data []byte) { clear(data[:cap(data)]) }
	for _, size := range []int{10, 100_000} {
		r := task("alice", fmt.Sprint("task", size))
		r.Data = pattern(size, 1)
		given := r
		given.Data = bytes.Clone(r.Data)
		if err := create(ctx, s, given); err != nil {
			return err
		}
		spoil(given.Data)
		r.Version = 1
		if err := wantRecord(ctx, s, r); err != nil {
			return fmt.Errorf("after the Data passed to Create was changed: %w", err)
		}
		r.Data = pattern(size, 2)
		given = r
		given.Data = bytes.Clone(r.Data)
		if err := s.Update(ctx, given); err != nil {
			return err
		}
		spoil(given.Data)
		r.Version = 2
		if err := wantRecord(ctx, s, r); err != nil {
			return fmt.Errorf("after the Data passed to Update was changed: %w", err)
		}
		got, err := s.Get(ctx, "alice", r.ID)
		if err != nil {
			return err
		}
		spoil(got.Data)
		list, err := s.List(ctx, "alice", tasks.Cursor{}, 10)
		if err != nil {
			return err
		}
		for _, l := range list {
			spoil(l.Data)
		}
		for u, err := range s.Unfinished(ctx) {
			if err != nil {
				return err
			}
			spoil(u.Data)
		}
		if err := wantRecord(ctx, s, r); err != nil {
			return fmt.Errorf("after Data returned by the store was changed: %w", err)
		}
		if err := s.Delete(ctx, "alice", r.ID); err != nil {
			return err
		}
	}
	return nil
}

func checkDelete(ctx context.Context, s tasks.Store) error {
	done := task("alice", "done")
	done.Done = true
	if err := create(ctx, s, task("alice", "running"), done, task("alice", "stays")); err != nil {
		return err
	}
	for range 2 { // deleting twice is not an error
		for _, id := range []string{"running", "done"} {
			if err := s.Delete(ctx, "alice", id); err != nil {
				return fmt.Errorf("delete %s: %w", id, err)
			}
			_, err := s.Get(ctx, "alice", id)
			if err := wantError("get of a deleted task", err, tasks.ErrUnknown); err != nil {
				return err
			}
		}
	}
	err := errors.Join(wantIDs(ctx, s, "alice", "stays"), wantCount(ctx, s, "alice", 1, 1),
		wantUnfinished(ctx, s, "stays"))
	if err != nil {
		return err
	}
	n, err := s.DeleteExpired(ctx, noon.Add(100*time.Hour), 10)
	if err != nil || n != 0 {
		return fmt.Errorf("DeleteExpired returned %d, %w for deleted records, want 0", n, err)
	}
	// The id of a deleted record can be used again.
	if err := create(ctx, s, task("bob", "done")); err != nil {
		return err
	}
	want := task("bob", "done")
	want.Version = 1
	return errors.Join(wantRecord(ctx, s, want), wantIDs(ctx, s, "alice", "stays"),
		wantUnfinished(ctx, s, "stays", "done"))
}
