// Package boltstore keeps tasks in a file, so that they outlive the process: what runs is known after a restart, what waits
// goes on waiting, and what was finished can be read.
//
//	store, err := boltstore.Open("tasks.db", nil)
//	if err != nil {
//		return err
//	}
//	defer store.Close()
//	m := tasks.NewServer(s, &tasks.Options{Store: store})
//
// The file is a bbolt database. It belongs to one process at a time, and to its owner alone: it has what clients sent and
// what tools gave, as it was. What was deleted may be read in its bytes until its room is used again.
package boltstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"github.com/patchbay-mcp/patchbay/ext/tasks"
)

// Errors of a [Store], to be told apart with [errors.Is], beside those of [tasks.Store].
var (
	// ErrInUse says that the file is open elsewhere.
	ErrInUse = errors.New("boltstore: the file is in use")
	// ErrDamaged says that the file, or the record that was asked for, is not what was written.
	ErrDamaged = errors.New("boltstore: the file is damaged")
	// ErrClosed says that the store was closed.
	ErrClosed = errors.New("boltstore: the store is closed")
)

// defaultWait is how long Open waits for a process that has the file: as long as one that was told to end may take for its
// last requests.
const defaultWait = 10 * time.Second

// Options are the options of [Open].
type Options struct {
	// Wait is how long Open waits while another process has the file; 10 seconds if it is 0, not at all if it is negative.
	Wait time.Duration
}

// A Store is a [tasks.Store] in a file. What a method has written survives the death of the process at any moment, and that
// of the machine as far as its disk keeps what it says it has. Changes that are made at the same time share their way to
// the disk. It is safe for concurrent use.
type Store struct {
	db   *bbolt.DB
	file *os.File // that of the database

	committing sync.Mutex // held by whoever writes to the file, and guards the fields down to the next line
	failed     error      // why nothing can be written any more
	stuck      bool       // a transaction broke off so that the database cannot be closed

	closed atomic.Bool

	queueing sync.Mutex // guards the field below
	queue    []*change  // what waits to be written, in the order in which it came
}

var _ tasks.Store = (*Store)(nil)

// Open returns the store in a file, which is made if it is not there: 0600, readable by its owner alone. One that others may
// read is refused, as is what is no file of this package or of a later one. It is an [ErrInUse] if the file stays open
// elsewhere, and an [ErrDamaged] if it shows damage; damage to a single record shows when that is read. opts may be nil.
//
// The room that deleted tasks took is used again, not given back.
func Open(path string, opts *Options) (*Store, error) {
	wait := defaultWait
	if opts != nil && opts.Wait != 0 {
		wait = max(opts.Wait, 1) // for the database, 0 is for ever
	}
	isNew, err := checkFile(path)
	if err != nil {
		return nil, openError(path, err)
	}
	s := &Store{}
	if err := s.open(path, wait); err != nil {
		return nil, openError(path, err)
	}
	if err := s.prepare(isNew); err != nil {
		return nil, openError(path, errors.Join(err, s.Close()))
	}
	return s, nil
}

func openError(path string, err error) error {
	switch {
	case errors.Is(err, bolterrors.ErrTimeout):
		return fmt.Errorf("%w: %s: a process has it open, such as a server that still runs or is about to end, or this one did "+
			"not close it; it belongs to one at a time", ErrInUse, path)
	case errors.Is(err, bolterrors.ErrInvalid), errors.Is(err, bolterrors.ErrChecksum), errors.Is(err, bolterrors.ErrVersionMismatch):
		return fmt.Errorf("%w, or is none of this package: %s: %w", ErrDamaged, path, err)
	case errors.Is(err, ErrDamaged):
		return fmt.Errorf("%s: %w", path, err)
	}
	return fmt.Errorf("boltstore: open %s: %w", path, err)
}

// checkFile refuses what cannot be a store's file, or may be read by others. Windows has no such bits: there the folder's
// rules hold.
func checkFile(path string) (isNew bool, err error) {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return true, nil
	case err != nil:
		return false, err
	case !info.Mode().IsRegular():
		return false, errors.New("it is no file")
	case runtime.GOOS != "windows" && info.Mode().Perm()&0o077 != 0:
		return false, fmt.Errorf("others may read or write it (mode %04o): chmod 600 it", info.Mode().Perm())
	}
	return info.Size() == 0, nil
}

// open opens the database. What a damaged file makes of that is an error, and lets go of the file.
func (s *Store) open(path string, wait time.Duration) (err error) {
	broken := true
	defer func() {
		if broken && s.file != nil {
			err = errors.Join(err, abandon(s.file))
		}
	}()
	defer recoverDamage(&err)
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	s.db, err = bbolt.Open(path, 0o600, &bbolt.Options{
		Timeout: wait, FreelistType: bbolt.FreelistMapType, NoStatistics: true,
		OpenFile: func(name string, flag int, mode fs.FileMode) (*os.File, error) {
			f, err := os.OpenFile(name, flag, mode)
			s.file = f
			return f, err
		},
	})
	broken = false
	return err
}

// prepare sees that the file is whole and ours.
func (s *Store) prepare(isNew bool) error {
	if err := s.view(checkLength); err != nil {
		return err
	}
	if err := s.update(prepareBuckets); err != nil {
		return err
	}
	if !isNew || runtime.GOOS == "windows" {
		return nil
	}
	// The file is on the disk, its name need not be.
	dir, err := os.Open(filepath.Dir(s.db.Path()))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// checkLength refuses a file that is shorter than it says: reading what is missing would end the process.
func checkLength(tx *bbolt.Tx) error {
	info, err := os.Stat(tx.DB().Path())
	if err != nil {
		return err
	}
	if info.Size() < tx.Size() {
		return fmt.Errorf("%w: it has %d bytes, and should have %d", ErrDamaged, info.Size(), tx.Size())
	}
	return nil
}

// Close waits for what is being written, and closes the file. From then on all methods fail with [ErrClosed].
func (s *Store) Close() error {
	s.committing.Lock()
	defer s.committing.Unlock()
	if s.closed.Swap(true) {
		return nil
	}
	closeFile := s.db.Close
	if s.stuck {
		s.failed = ErrClosed
		closeFile = func() error { return abandon(s.file) }
	}
	if err := closeFile(); err != nil {
		return fmt.Errorf("boltstore: close: %w", err)
	}
	return nil
}

// Create adds a record.
func (s *Store) Create(ctx context.Context, r tasks.Record) error {
	if err := r.Check(); err != nil {
		return err
	}
	r.Version = 1
	return s.write(ctx, len(r.Data), func(tx *bbolt.Tx) error { return createRecord(tx, r) })
}

// Get returns a record.
func (s *Store) Get(ctx context.Context, owner, id string) (r tasks.Record, err error) {
	err = s.read(ctx, func(tx *bbolt.Tx) error {
		h, err := headOf(tx, owner, id)
		if err == nil {
			r, err = h.record(tx)
		}
		return err
	})
	if err != nil {
		return tasks.Record{}, err
	}
	return r, nil
}

// Update replaces a record.
func (s *Store) Update(ctx context.Context, r tasks.Record) error {
	if err := r.Check(); err != nil {
		return err
	}
	return s.write(ctx, len(r.Data), func(tx *bbolt.Tx) error { return updateRecord(tx, r) })
}

// Delete removes a record.
func (s *Store) Delete(ctx context.Context, owner, id string) error {
	err := s.write(ctx, 0, func(tx *bbolt.Tx) error {
		h, err := headOf(tx, owner, id)
		if err != nil {
			return err
		}
		return deleteRecord(tx, dueRecord{id, placeOf(owner, h.created), h.expires, h.dataLen})
	})
	if errors.Is(err, tasks.ErrUnknown) {
		return nil
	}
	return err
}

// List returns records of an owner, the oldest first.
func (s *Store) List(ctx context.Context, owner string, after tasks.Cursor, limit int) (found []tasks.Record, err error) {
	size := 0
	err = s.read(ctx, func(tx *bbolt.Tx) error {
		start := append(placeOf(owner, after.Created.UnixMilli()), after.ID...)
		cursor := tx.Bucket(bucketOwned).Cursor()
		for key, _ := cursor.Seek(start); bytes.HasPrefix(key, start[:ownerLen]) && len(found) < limit; key, _ = cursor.Next() {
			if bytes.Equal(key, start) || len(key) < placeLen {
				continue
			}
			id := string(key[placeLen:])
			h, err := headOf(tx, owner, id)
			if size += h.dataLen; len(found) > 0 && size > tasks.MaxRecord {
				return nil
			}
			var r tasks.Record
			if err == nil {
				r, err = h.record(tx)
			}
			if err != nil { // it must not hide the others
				r = tasks.Record{Owner: owner, ID: id, Created: timeIn(key[ownerLen:])}
			}
			found = append(found, r)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return found, nil
}

// Count returns the number of an owner's records, and the bytes of their data.
func (s *Store) Count(ctx context.Context, owner string) (n int, size int64, err error) {
	return s.count(ctx, ownerKey(owner))
}

// CountAll returns the number of all records, and the bytes of their data.
func (s *Store) CountAll(ctx context.Context) (n int, size int64, err error) {
	return s.count(ctx, keyAll)
}

func (s *Store) count(ctx context.Context, key []byte) (n int, size int64, err error) {
	err = s.read(ctx, func(tx *bbolt.Tx) error {
		n, size = countOf(tx, key)
		return nil
	})
	return n, size, err
}

// unfinishedAtOnce is how many ids Unfinished reads at a time: enough to go fast, few enough to hold up nobody.
const unfinishedAtOnce = 256

// Unfinished returns the records that are not done. A damaged one is an [ErrDamaged] with its ID.
func (s *Store) Unfinished(ctx context.Context) iter.Seq2[tasks.Record, error] {
	return func(yield func(tasks.Record, error) bool) {
		for after := ""; ; {
			ids, err := s.unfinished(ctx, after)
			if err != nil {
				yield(tasks.Record{}, err)
				return
			}
			if len(ids) == 0 {
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

func (s *Store) unfinished(ctx context.Context, after string) (ids []string, err error) {
	err = s.read(ctx, func(tx *bbolt.Tx) error {
		cursor := tx.Bucket(bucketUnfinished).Cursor()
		for key, _ := cursor.Seek([]byte(after)); key != nil && len(ids) < unfinishedAtOnce; key, _ = cursor.Next() {
			if id := string(key); id != after {
				ids = append(ids, id)
			}
		}
		return nil
	})
	return ids, err
}

// yieldUnfinished returns a record, if it still is unfinished. It is read in a transaction of its own, and given after that,
// so that the store can be used in between.
func (s *Store) yieldUnfinished(ctx context.Context, id string, yield func(tasks.Record, error) bool) bool {
	var r tasks.Record
	err := s.read(ctx, func(tx *bbolt.Tx) error {
		h, err := anyHead(tx, id)
		if err == nil {
			r, err = h.record(tx)
		}
		return err
	})
	switch {
	case errors.Is(err, tasks.ErrUnknown):
		return true // deleted meanwhile
	case err != nil:
		return yield(tasks.Record{ID: id}, err)
	}
	return r.Done || yield(r, nil)
}

// expireAtOnce is how many records DeleteExpired removes in one transaction, so that no other change waits long for it.
const expireAtOnce = 500

// DeleteExpired removes records that are done and have expired.
func (s *Store) DeleteExpired(ctx context.Context, now time.Time, limit int) (int, error) {
	total := 0
	for total < limit {
		due := 0
		atOnce := min(limit-total, expireAtOnce)
		// Mostly there is nothing to do, which need not cost a write.
		err := s.read(ctx, func(tx *bbolt.Tx) error {
			due = len(dueRecords(tx, now, 1))
			return nil
		})
		if err != nil || due == 0 {
			return total, err
		}
		err = s.write(ctx, 0, func(tx *bbolt.Tx) (err error) {
			due, err = deleteDue(tx, now, atOnce)
			return err
		})
		if err != nil {
			return total, err
		}
		total += due
	}
	return total, nil
}
