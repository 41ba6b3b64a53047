package bolt

import (
	"context"
	"errors"
	"slices"

	"go.etcd.io/bbolt"

	"github.com/patchbay-mcp/patchbay/ext/tasks"
)

const (
	// maxBatch is the maximum number of changes in one commit: it bounds how long one of them
	// waits.
	maxBatch = 256
	// maxBatchBytes is the maximum size of their data, which is in memory twice until it is
	// written. A single change may be larger.
	maxBatchBytes = 8 << 20
)

// A change is a modification that a caller waits for.
type change struct {
	// do makes the change. If it returns a refusal or errNoChange, it has changed nothing. It may
	// be called more than once: again after a transaction that failed because of another change.
	do   func(tx *bbolt.Tx) error
	size int // of the data, in bytes
	done bool
	err  error
}

// A refusedError is the error of a change that was not made and changed nothing, for a reason of
// its own.
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

// nextBatch removes the changes of the next commit from the queue.
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

// commit makes the changes of a batch. If one of them fails, the others are made without it.
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

// setErrors gives the result of a transaction to all changes that were not refused.
func setErrors(batch []*change, err error) {
	if err == nil || errors.Is(err, errNoChange) {
		return
	}
	for _, c := range batch {
		if c.err == nil {
			c.err = wrapError("write", err)
		}
	}
}
