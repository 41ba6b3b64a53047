package bolt

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"go.etcd.io/bbolt"

	"github.com/patchbay-mcp/patchbay/ext/tasks"
)

// A TaskStore is a [tasks.Store] in a file. It is safe for concurrent use.
type TaskStore struct{ file *file }

var _ tasks.Store = (*TaskStore)(nil)

// OpenTasks opens the task store in a file, which is created if it does not exist. opts may be nil.
// The error is [ErrInUse] if the file stays open elsewhere, and [ErrDamaged] if the file is
// damaged; damage to a single record shows when the record is read. A file of another program or of
// a later version is not touched.
func OpenTasks(path string, opts *Options) (*TaskStore, error) {
	f, err := openFile(path, opts, taskSchema)
	if err != nil {
		return nil, err
	}
	return &TaskStore{file: f}, nil
}

// Close waits for changes that are being written, and closes the file. Afterwards all methods
// return [ErrClosed].
func (s *TaskStore) Close() error { return s.file.Close() }

// Create adds a record.
func (s *TaskStore) Create(ctx context.Context, r tasks.Record) error {
	if err := r.Check(); err != nil {
		return err
	}
	r.Version = 1
	return s.file.write(ctx, len(r.Data), func(tx *bbolt.Tx) error { return createTask(tx, r) })
}

// Get returns a record.
func (s *TaskStore) Get(ctx context.Context, owner, id string) (r tasks.Record, err error) {
	err = s.file.read(ctx, func(tx *bbolt.Tx) error {
		h, err := ownedHeader(tx, owner, id)
		if err == nil {
			r, err = h.record(tx)
		}
		return err
	})
	return r, err
}

// Update replaces a record.
func (s *TaskStore) Update(ctx context.Context, r tasks.Record) error {
	if err := r.Check(); err != nil {
		return err
	}
	return s.file.write(ctx, len(r.Data), func(tx *bbolt.Tx) error { return updateTask(tx, r) })
}

// Delete removes a record.
func (s *TaskStore) Delete(ctx context.Context, owner, id string) error {
	err := s.file.write(ctx, 0, func(tx *bbolt.Tx) error {
		h, err := ownedHeader(tx, owner, id)
		if err != nil {
			return err
		}
		return deleteTask(tx, taskEntry{id, ownerPrefix(owner, h.created), h.expires, h.dataLen})
	})
	if errors.Is(err, tasks.ErrUnknown) {
		return nil
	}
	return err
}

// List returns records of an owner, the oldest first. Of a damaged record it returns Owner, ID and
// Created.
func (s *TaskStore) List(ctx context.Context, owner string, after tasks.Cursor,
	limit int) (found []tasks.Record, err error) {
	size := 0
	err = s.file.read(ctx, func(tx *bbolt.Tx) error {
		start := append(ownerPrefix(owner, after.Created.UnixMilli()), after.ID...)
		cursor := tx.Bucket(bucketOwned).Cursor()
		key, _ := cursor.Seek(start)
		for ; bytes.HasPrefix(key, start[:ownerLen]) && len(found) < limit; key, _ = cursor.Next() {
			if bytes.Equal(key, start) || len(key) < ownerPrefixLen {
				continue
			}
			id := string(key[ownerPrefixLen:])
			h, err := ownedHeader(tx, owner, id)
			if size += h.dataLen; len(found) > 0 && size > tasks.MaxRecord {
				return nil
			}
			var r tasks.Record
			if err == nil {
				r, err = h.record(tx)
			}
			if err != nil { // a damaged record must not hide the others
				r = tasks.Record{Owner: owner, ID: id, Created: readTime(key[ownerLen:])}
			}
			found = append(found, r)
		}
		return nil
	})
	return found, err
}

// Count returns the number of an owner's records, and the size of their data in bytes.
func (s *TaskStore) Count(ctx context.Context, owner string) (n int, size int64, err error) {
	return s.count(ctx, ownerHash(owner))
}

// CountAll returns the number of all records, and the size of their data in bytes.
func (s *TaskStore) CountAll(ctx context.Context) (n int, size int64, err error) {
	return s.count(ctx, keyAll)
}

func (s *TaskStore) count(ctx context.Context, key []byte) (n int, size int64, err error) {
	err = s.file.read(ctx, func(tx *bbolt.Tx) error {
		n, size = taskCount(tx, key)
		return nil
	})
	return n, size, err
}

// unfinishedBatch is the number of ids that Unfinished reads in one transaction: a long read
// transaction keeps the pages of its version from being reused.
const unfinishedBatch = 256

// Unfinished returns the records that are not done. For a damaged record it yields [ErrDamaged] and
// a record with its ID.
func (s *TaskStore) Unfinished(ctx context.Context) iter.Seq2[tasks.Record, error] {
	return func(yield func(tasks.Record, error) bool) {
		for after := ""; ; {
			ids, err := s.unfinishedIDs(ctx, after)
			if err != nil {
				yield(tasks.Record{}, err)
			}
			if err != nil || len(ids) == 0 {
				return
			}
			after = ids[len(ids)-1]
			for _, id := range ids {
				if !s.yieldUnfinished(ctx, id, yield) {
					return
				}
			}
		}
	}
}

// unfinishedIDs returns the next ids of unfinished records. It refuses ids that are not in ascending
// order, because Unfinished would not end if damage made it go back.
func (s *TaskStore) unfinishedIDs(ctx context.Context, after string) (ids []string, err error) {
	err = s.file.read(ctx, func(tx *bbolt.Tx) error {
		cursor := tx.Bucket(bucketUnfinished).Cursor()
		for key, _ := cursor.Seek([]byte(after)); key != nil && len(ids) < unfinishedBatch; key, _ = cursor.Next() {
			id := string(key)
			if id < after || id == after && len(ids) > 0 {
				return fmt.Errorf("%w: the ids of unfinished tasks are out of order", ErrDamaged)
			}
			if id != after {
				ids = append(ids, id)
			}
			after = id
		}
		return nil
	})
	return ids, err
}

// yieldUnfinished yields a record if it is still unfinished. It calls yield outside of the
// transaction, so that the loop body can use the store.
func (s *TaskStore) yieldUnfinished(ctx context.Context, id string, yield func(tasks.Record, error) bool) bool {
	var r tasks.Record
	err := s.file.read(ctx, func(tx *bbolt.Tx) error {
		h, err := findHeader(tx, id)
		if err == nil {
			r, err = h.record(tx)
		}
		return err
	})
	switch {
	case errors.Is(err, tasks.ErrUnknown):
		return true // it was deleted
	case err != nil:
		return yield(tasks.Record{ID: id}, err)
	}
	return r.Done || yield(r, nil)
}

const expireBatch = 500 // per transaction; it bounds how long other changes wait

// DeleteExpired removes records that are done and expired.
func (s *TaskStore) DeleteExpired(ctx context.Context, now time.Time, limit int) (int, error) {
	total := 0
	for total < limit {
		n := 0
		batch := min(limit-total, expireBatch)
		// Usually no record is expired. A read finds that out.
		err := s.file.read(ctx, func(tx *bbolt.Tx) error {
			n = len(expiredTasks(tx, now, 1))
			return nil
		})
		if err != nil || n == 0 {
			return total, err
		}
		err = s.file.write(ctx, 0, func(tx *bbolt.Tx) (err error) {
			n, err = deleteExpiredTasks(tx, now, batch)
			return err
		})
		if err != nil {
			return total, err
		}
		total += n
	}
	return total, nil
}
