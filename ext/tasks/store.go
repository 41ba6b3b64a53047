package tasks

import (
	"context"
	"errors"
	"iter"
	"time"
)

// Refusals of a [Store], to be told apart with [errors.Is].
var (
	// ErrUnknown says that there is no such task, or that it is another owner's: nobody learns which.
	ErrUnknown = errors.New("tasks: unknown task")
	// ErrConflict says that a record has changed since it was read.
	ErrConflict = errors.New("tasks: the record has changed meanwhile")
)

// A Record is one task as a [Store] keeps it: what a store has to know, and the rest as bytes that it does not look into.
type Record struct {
	// Owner is the key of the principal that the task belongs to; empty for the anonymous one. It may hold any byte.
	Owner string
	// ID names the task among all tasks of the server: up to 64 letters, digits, '-' and '_'.
	ID string
	// Created is when the task was made, to the millisecond. It never changes.
	Created time.Time
	// Expires is from when on the record may be deleted, to the millisecond.
	Expires time.Time
	// Done says that the task has its last status, so that nothing is left to run.
	Done bool
	// Version counts the updates. The first is 1, which Create sets.
	Version uint64
	// Data is the task itself: a few hundred bytes mostly, up to [MaxRecord].
	Data []byte
}

// MaxRecord is the size up to which a [Store] takes the Data of a record: the largest result that a tool may have, with
// what goes along.
const MaxRecord = 20 << 20

// A Store keeps tasks. Implementations pass the tests of package storetest, which are this contract as code:
//
//   - A record is durable when Create or Update returns: a process that is killed right after finds it again. A store that
//     lives in memory is as durable as its process.
//   - Each method is atomic and safe for concurrent use. What has returned is seen by every call that starts later.
//   - Records go in and out by value: a store neither keeps nor gives away bytes that somebody else may change.
//   - No method waits for anything but the storage. One whose ctx has ended may give the error of ctx.
//   - A record whose Data is longer than [MaxRecord], or whose ID is none, is refused and changes nothing.
//   - Any other error means that it is not known whether the change was made.
//
// One [Server] at a time uses a store.
type Store interface {
	// Create adds a record and sets its Version to 1. An ID that exists, whoever owns it, is an ErrConflict.
	Create(ctx context.Context, r Record) error
	// Get returns the record of that owner and id, also one that has expired, until it is deleted. Else it is an ErrUnknown.
	Get(ctx context.Context, owner, id string) (Record, error)
	// Update replaces the record of the same owner and id if its Version is r.Version, which becomes one more. Else it is
	// an ErrConflict, or an ErrUnknown. Created stays what it was.
	Update(ctx context.Context, r Record) error
	// Delete removes a record. One that is not there is no error.
	Delete(ctx context.Context, owner, id string) error
	// List returns up to limit records of an owner that lie behind the cursor, the oldest first: by Created, then by ID. The
	// record at the cursor need not be there any more. It gives fewer, but at least one, where more would pass [MaxRecord]
	// together: only a list of nothing is at its end. One that cannot be read is given with its Owner, ID and Created alone.
	List(ctx context.Context, owner string, after Cursor, limit int) ([]Record, error)
	// Count returns the number of records of an owner, and how many bytes of Data they have; of all owners together if all is
	// set.
	Count(ctx context.Context, owner string, all bool) (n int, bytes int64, err error)
	// Unfinished returns all records that are not Done, in any order. What changes meanwhile may be given or not. Whoever
	// takes them may call the store in between. An error that comes with an ID is about that record alone, and more follow.
	Unfinished(ctx context.Context) iter.Seq2[Record, error]
	// DeleteExpired removes up to limit records whose Expires is not after now and that are Done, and gives their number.
	DeleteExpired(ctx context.Context, now time.Time, limit int) (int, error)
}

// A Cursor is a place in the list of an owner's tasks: behind the task that was made then and has that id. The zero value
// is the start.
type Cursor struct {
	Created time.Time
	ID      string
}
