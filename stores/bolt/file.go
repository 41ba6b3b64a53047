package bolt

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"github.com/patchbay-mcp/patchbay/ext/tasks"
)

// Errors of the stores, for [errors.Is].
var (
	// ErrInUse reports that the file is open elsewhere.
	ErrInUse = errors.New("bolt: file in use")
	// ErrDamaged reports that the content of the file or a record differs from the written content.
	ErrDamaged = errors.New("bolt: file damaged")
	// ErrClosed reports that the store was closed.
	ErrClosed = errors.New("bolt: store closed")
	// ErrFull reports that the disk, the quota or a limit of the process lacks room for a change,
	// which was not made.
	ErrFull = errors.New("bolt: no space left for the file")
	// ErrReadOnly reports that the file or its disk cannot be written. The file is unchanged.
	ErrReadOnly = errors.New("bolt: file cannot be written")
)

const defaultWait = 10 * time.Second // time for the last requests of a terminating process

// Options are the options of [OpenTasks], [OpenWebhooks], [OpenAuthorization] and [OpenState].
type Options struct {
	// Wait is how long to wait while another process has the file open. Default: 10 seconds. A
	// negative value means not to wait.
	Wait time.Duration
}

type schema struct {
	format  string // name and version; a file with another format is left alone
	buckets [][]byte
}

var (
	bucketFormat = []byte("format")
	keyFormat    = []byte("format") // → the format of the schema
)

// A file is a bbolt database whose damage shows as errors, and whose concurrent changes share
// commits. It is safe for concurrent use.
type file struct {
	db *bbolt.DB
	os *os.File // of the database

	writing sync.Mutex // held while a transaction writes; guards failed and stuck
	failed  error      // if not nil, the file can no longer be written
	stuck   bool       // a transaction did not end, so the database cannot be closed

	closed atomic.Bool

	queueMu sync.Mutex
	queue   []*change // guarded by queueMu; pending changes in the order of arrival
}

func openFile(path string, opts *Options, s schema) (*file, error) {
	wait := defaultWait
	if opts != nil && opts.Wait != 0 {
		wait = max(opts.Wait, 1) // bbolt takes 0 for no limit
	}
	return openFileFor(path, bbolt.Options{Timeout: wait}, s)
}

// openFileFor opens a file with the lock and access of the options of bbolt.
func openFileFor(path string, access bbolt.Options, s schema) (*file, error) {
	isNew, err := checkFile(path)
	if err != nil {
		return nil, openError(path, err)
	}
	f := &file{}
	if err := f.openDB(path, access); err != nil {
		return nil, openError(path, err)
	}
	if err := f.prepare(s, isNew); err != nil {
		return nil, openError(path, errors.Join(err, f.Close()))
	}
	return f, nil
}

func openError(path string, err error) error {
	switch {
	case errors.Is(err, bolterrors.ErrTimeout):
		return fmt.Errorf("%w: %s: another process has it open, or this one did not close it", ErrInUse, path)
	case errors.Is(err, bolterrors.ErrInvalid), errors.Is(err, bolterrors.ErrChecksum), errors.Is(err,
		bolterrors.ErrVersionMismatch):
		return fmt.Errorf("%w, or not a database: %s: %w", ErrDamaged, path, err)
	case errors.Is(err, ErrDamaged):
		return fmt.Errorf("%s: %w", path, err)
	}
	return fmt.Errorf("bolt: open %s: %w", path, withKind(err))
}

// checkFile refuses a path that cannot be a database, and a file that other users own or can
// access.
func checkFile(path string) (isNew bool, err error) {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return true, nil
	case err != nil:
		return false, err
	case !info.Mode().IsRegular():
		return false, errors.New("not a regular file")
	}
	return info.Size() == 0, checkOwner(path, info)
}

// openDB opens the database. If the file is damaged, it returns an error and releases the file.
func (f *file) openDB(path string, access bbolt.Options) (err error) {
	panicked := true
	defer func() {
		if panicked && f.os != nil {
			err = errors.Join(err, unlockAndClose(f.os))
		}
	}()
	defer recoverDamage(&err)
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	access.FreelistType, access.NoStatistics = bbolt.FreelistMapType, true
	access.OpenFile = func(name string, flag int, mode fs.FileMode) (_ *os.File, err error) {
		f.os, err = os.OpenFile(name, flag, mode)
		return f.os, err
	}
	f.db, err = bbolt.Open(path, 0o600, &access)
	panicked = false
	return err
}

// prepare checks that the file is complete and contains this schema, and sets up a new file.
func (f *file) prepare(s schema, isNew bool) error {
	if err := f.view(checkLength); err != nil {
		return err
	}
	if err := f.view(s.check); !errors.Is(err, errNotCreated) {
		return err
	}
	if err := f.update(s.create); err != nil {
		return err
	}
	if !isNew || runtime.GOOS == "windows" {
		return nil
	}
	// The content of the file is on the disk, its directory entry may not be.
	dir, err := os.Open(filepath.Dir(f.db.Path()))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// checkLength rejects a file that is shorter than its header specifies: reading the missing part
// would end the process.
func checkLength(tx *bbolt.Tx) error {
	info, err := os.Stat(tx.DB().Path())
	if err != nil {
		return err
	}
	if info.Size() < tx.Size() {
		return fmt.Errorf("%w: it has %d bytes, want %d", ErrDamaged, info.Size(), tx.Size())
	}
	return nil
}

var errNotCreated = errors.New("the database is empty")

func (s schema) check(tx *bbolt.Tx) error {
	format := tx.Bucket(bucketFormat)
	if format == nil {
		if name, _ := tx.Cursor().First(); name != nil {
			return errors.New("the database belongs to another program")
		}
		return errNotCreated
	}
	if got := format.Get(keyFormat); string(got) != s.format {
		return fmt.Errorf("unsupported format %.60q, want %q", got, s.format)
	}
	for _, name := range s.buckets {
		if tx.Bucket(name) == nil {
			return fmt.Errorf("%w: it has no bucket %q", ErrDamaged, name)
		}
	}
	return nil
}

func (s schema) create(tx *bbolt.Tx) error {
	for _, name := range append([][]byte{bucketFormat}, s.buckets...) {
		if _, err := tx.CreateBucket(name); err != nil {
			return err
		}
	}
	return tx.Bucket(bucketFormat).Put(keyFormat, []byte(s.format))
}

func (f *file) Close() error {
	f.writing.Lock()
	defer f.writing.Unlock()
	if f.closed.Swap(true) {
		return nil
	}
	closeFile := f.db.Close
	if f.stuck {
		f.failed = ErrClosed
		closeFile = func() error { return unlockAndClose(f.os) }
	}
	return wrapError("close", closeFile())
}

func (f *file) read(ctx context.Context, do func(tx *bbolt.Tx) error) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	return wrapError("read", f.view(do))
}

func (f *file) view(do func(tx *bbolt.Tx) error) (err error) {
	if f.closed.Load() {
		return ErrClosed
	}
	defer recoverDamage(&err)
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	return f.db.View(do)
}

// update runs a write transaction. The caller must hold f.writing or own the file. After a panic
// because of damage it must not run again: the database may contain wrong information about free
// pages.
func (f *file) update(do func(tx *bbolt.Tx) error) (err error) {
	if f.failed != nil {
		return f.failed
	}
	panicked := true
	defer func() {
		if panicked {
			f.failed = err
		}
	}()
	defer recoverDamage(&err)
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	f.stuck = true
	tx, err := f.db.Begin(true)
	if err != nil {
		f.stuck, panicked = false, false
		return err
	}
	defer func() {
		_ = tx.Rollback() // no effect after a commit
		f.stuck = false
	}()
	if err = do(tx); err == nil {
		err = tx.Commit()
	}
	panicked = false
	return err
}

// recoverDamage turns a panic into an ErrDamaged. bbolt panics on an invalid page, and the runtime
// on an access outside of the file.
func recoverDamage(err *error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("%w: %v", ErrDamaged, p)
	}
}

func wrapError(operation string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, bolterrors.ErrDatabaseNotOpen), errors.Is(err, ErrClosed):
		return ErrClosed
	case isRefusal(err):
		return err
	}
	return fmt.Errorf("bolt: %s: %w", operation, withKind(err))
}

// withKind adds [ErrFull] or [ErrReadOnly] to an error of the system. bbolt keeps only the texts of
// some.
func withKind(err error) error {
	switch {
	case isAny(err, fullErrors):
		return fmt.Errorf("%w: %w", ErrFull, err)
	case isAny(err, readOnlyErrors):
		return fmt.Errorf("%w: %w", ErrReadOnly, err)
	}
	return err
}

func isAny(err error, all []error) bool {
	return slices.ContainsFunc(all, func(e error) bool {
		return errors.Is(err, e) || strings.Contains(err.Error(), e.Error())
	})
}

const (
	// maxBatch limits the changes in a commit, and therefore how long a change waits.
	maxBatch = 256
	// maxBatchBytes is the maximum size of their data, which is in memory twice until it is
	// written. A single change may be larger.
	maxBatchBytes = 8 << 20
)

// A change is a modification that a caller waits for.
type change struct {
	// do makes the change. If it returns a refusal or errNoChange, it must leave the data
	// unchanged. It may be called again after a transaction that failed because of another change.
	do   func(tx *bbolt.Tx) error
	size int // of the data, in bytes
	done bool
	err  error
}

// A refusedError is the error of a change that was refused for its own reason.
type refusedError struct{ error }

func (e refusedError) Unwrap() error { return e.error }

// refusals are errors that have the meaning of a refusedError.
var refusals = []error{tasks.ErrUnknown, tasks.ErrConflict, ErrDamaged}

func isRefusal(err error) bool {
	var refused refusedError
	return errors.As(err, &refused) || slices.ContainsFunc(refusals, func(r error) bool { return errors.Is(err, r) })
}

// write makes a change, and returns when it is on the disk. The first caller commits everything in
// the queue. Other callers queue up meanwhile, and share the next transaction with its fsync. No
// caller waits for others to arrive.
func (f *file) write(ctx context.Context, size int, do func(tx *bbolt.Tx) error) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	c := &change{do: do, size: size}
	f.queueMu.Lock()
	f.queue = append(f.queue, c)
	f.queueMu.Unlock()

	f.writing.Lock()
	defer f.writing.Unlock()
	for !c.done {
		f.commit(f.nextBatch())
	}
	return c.err
}

func (f *file) nextBatch() []*change {
	f.queueMu.Lock()
	defer f.queueMu.Unlock()
	n, size := 0, 0
	for _, c := range f.queue[:min(len(f.queue), maxBatch)] {
		if size += c.size; n > 0 && size > maxBatchBytes {
			break
		}
		n++
	}
	batch := slices.Clone(f.queue[:n])
	f.queue = slices.Delete(f.queue, 0, n)
	return batch
}

// errNoChange is returned by a change that succeeded without a modification, and by a transaction
// that need not go to the disk because all of its changes did.
var errNoChange = errors.New("nothing was changed")

// commit makes the changes of a batch. If a change fails, the other changes are made without it.
func (f *file) commit(batch []*change) {
	remaining := batch
	for len(remaining) > 0 {
		failed := -1
		err := f.update(func(tx *bbolt.Tx) error {
			changed := false
			for i, c := range remaining {
				c.err = c.do(tx)
				if errors.Is(c.err, errNoChange) {
					c.err = nil
					continue
				}
				if c.err != nil && !isRefusal(c.err) {
					failed = i
					return c.err
				}
				changed = changed || c.err == nil
			}
			if !changed {
				return errNoChange
			}
			return nil
		})
		if failed < 0 {
			setErrors(remaining, err)
			break
		}
		remaining[failed].err = wrapError("write", err)
		remaining = slices.Concat(remaining[:failed], remaining[failed+1:])
	}
	for _, c := range batch {
		c.done = true
	}
}

// setErrors sets the result of a transaction in all changes that were not refused.
func setErrors(batch []*change, err error) {
	for _, c := range batch {
		if c.err == nil && !errors.Is(err, errNoChange) {
			c.err = wrapError("write", err)
		}
	}
}
