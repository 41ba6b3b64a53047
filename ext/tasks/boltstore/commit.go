package boltstore

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"github.com/patchbay-mcp/patchbay/ext/tasks"
)

// A change is what a caller wants written.
type change struct {
	do   func(tx *bbolt.Tx) error // a refusal changes nothing
	size int                      // of the data, in bytes
	done bool
	err  error
}

// refusals are errors that a change gives before it has changed anything.
var refusals = []error{tasks.ErrUnknown, tasks.ErrConflict, ErrDamaged}

const (
	// maxTogether is how many changes go to the disk together, so that none waits for more than that.
	maxTogether = 256
	// maxTogetherBytes is how much data they may have, since all of it is in memory twice until it is written. One change may
	// have more.
	maxTogetherBytes = 8 << 20
)

// write makes a change that is on the disk when write returns. Whoever comes first writes what all have in the queue: while
// he does the others queue up, and then share the next transaction and its fsync. Nobody waits for company.
func (s *Store) write(ctx context.Context, size int, do func(tx *bbolt.Tx) error) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	c := &change{do: do, size: size}
	s.queueing.Lock()
	s.queue = append(s.queue, c)
	s.queueing.Unlock()

	s.committing.Lock()
	defer s.committing.Unlock()
	for !c.done {
		s.commit(s.next())
	}
	return c.err
}

// next takes from the queue what goes together.
func (s *Store) next() []*change {
	s.queueing.Lock()
	defer s.queueing.Unlock()
	n, size := 0, 0
	for _, c := range s.queue[:min(len(s.queue), maxTogether)] {
		if size += c.size; n > 0 && size > maxTogetherBytes {
			break
		}
		n++
	}
	batch := slices.Clone(s.queue[:n])
	s.queue = slices.Delete(s.queue, 0, n)
	return batch
}

// commit makes changes. One that fails for a reason of its own is left out, and the others are made without it.
func (s *Store) commit(batch []*change) {
	rest := batch
	for len(rest) > 0 {
		failed := -1
		err := s.update(func(tx *bbolt.Tx) error {
			changed := false
			for i, c := range rest {
				c.err = c.do(tx)
				if c.err != nil && !isRefusal(c.err) {
					failed = i
					return c.err
				}
				changed = changed || c.err == nil
			}
			if !changed {
				return errNothing
			}
			return nil
		})
		if failed < 0 {
			settle(rest, err)
			break
		}
		rest = slices.Concat(rest[:failed], rest[failed+1:])
	}
	for _, c := range batch {
		c.done = true
	}
}

// errNothing ends a transaction that need not go to the disk.
var errNothing = errors.New("nothing was changed")

// settle returns all that were not refused what became of the transaction.
func settle(batch []*change, err error) {
	if err == nil || errors.Is(err, errNothing) {
		return
	}
	for _, c := range batch {
		if c.err == nil {
			c.err = storeError("write", err)
		}
	}
}

func isRefusal(err error) bool {
	return slices.ContainsFunc(refusals, func(r error) bool { return errors.Is(err, r) })
}

// update runs a transaction that writes. Whoever calls it holds committing, or is alone. When damage breaks a transaction
// off the database may have wrong ideas of what is free, so it is the last one.
func (s *Store) update(do func(tx *bbolt.Tx) error) (err error) {
	if s.failed != nil {
		return s.failed
	}
	panicked := true
	defer func() {
		if panicked {
			s.failed = err
		}
	}()
	defer recoverDamage(&err)
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	s.stuck = true
	tx, err := s.db.Begin(true)
	if err != nil {
		s.stuck, panicked = false, false
		return err
	}
	defer func() {
		_ = tx.Rollback() // nothing after a commit
		s.stuck = false
	}()
	if err = do(tx); err == nil {
		err = tx.Commit()
	}
	panicked = false
	return err
}

// read runs a transaction that reads.
func (s *Store) read(ctx context.Context, do func(tx *bbolt.Tx) error) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	return storeError("read", s.view(do))
}

func (s *Store) view(do func(tx *bbolt.Tx) error) (err error) {
	if s.closed.Load() {
		return ErrClosed
	}
	defer recoverDamage(&err)
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	return s.db.View(do)
}

// recoverDamage makes an error of a panic. The database panics when a page is not what it should be, and the runtime when
// one lies outside of the file.
func recoverDamage(err *error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("%w: %v", ErrDamaged, p)
	}
}

func storeError(what string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, bolterrors.ErrDatabaseNotOpen), errors.Is(err, ErrClosed):
		return ErrClosed
	case isRefusal(err):
		return err
	}
	return fmt.Errorf("boltstore: %s: %w", what, err)
}
