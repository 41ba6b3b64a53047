package tasks

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"
)

// Errors of a [Store]. Test for them with [errors.Is].
var (
	// ErrUnknown means that the task does not exist, or belongs to another owner. The two cases are
	// not distinguished.
	ErrUnknown = errors.New("tasks: unknown task")
	// ErrConflict means that the record changed since it was read, or that its ID is taken.
	ErrConflict = errors.New("tasks: the record has changed since it was read")
	// ErrLeaseLost means that the lease of a holder ended. See [SharedStore].
	ErrLeaseLost = errors.New("tasks: the lease has ended")
)

// A Record is a task as a [Store] keeps it. A store uses the other fields to find it, and treats
// Data as opaque bytes.
type Record struct {
	// Owner is the key of the principal that the task belongs to (see [mcp.Principal]), empty for
	// callers that are not authenticated. It may contain any byte.
	Owner string
	// ID identifies the task among all tasks of the server: 1 to 64 letters, digits, '-' and '_'.
	ID string
	// Created is the time at which the task was created, with a precision of milliseconds. It never
	// changes.
	Created time.Time
	// Expires is the time from which the record may be deleted, with a precision of milliseconds.
	Expires time.Time
	// Done reports whether the status of the task is final.
	Done bool
	// Version counts the updates. Create sets it to 1.
	Version uint64
	// Data is the encoded task: usually a few hundred bytes, at most [MaxRecord].
	Data []byte
}

// MaxRecord is the largest Data of a record that a [Store] accepts, in bytes: the largest result of
// a tool, with some room for the rest of the task.
const MaxRecord = 20 << 20

// maxID is the largest length of a record's ID: more than twice the length of an unguessable ID.
const maxID = 64

// Check returns an error if every [Store] must refuse the record, because its ID is invalid or
// its Data too long. It is for implementations of Store.
func (r Record) Check() error {
	if !validID(r.ID) {
		return fmt.Errorf("tasks: invalid task id %.80q: want 1 to %d letters, digits, '-' and '_'", r.ID, maxID)
	}
	if len(r.Data) > MaxRecord {
		return fmt.Errorf("tasks: the record of task %s has %d bytes, more than %d", r.ID, len(r.Data), MaxRecord)
	}
	return nil
}

func validID(id string) bool {
	for i := range len(id) {
		switch c := id[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '-', c == '_':
		default:
			return false
		}
	}
	return id != "" && len(id) <= maxID
}

// A Store keeps tasks. Package storetest tests an implementation against this contract:
//
//   - A record is durable when Create or Update returns: it is there after the process was killed.
//     A store in memory is as durable as its process.
//   - Each method is atomic and safe for concurrent use. Its effect is visible to every call that
//     starts after it returned.
//   - Records are passed by value: a store neither retains nor shares a Data that its caller may
//     change.
//   - No method waits for anything but the storage. A method whose ctx ended may return the
//     error of ctx.
//   - A record that [Record.Check] refuses is refused and not stored.
//   - After any other error it is unknown whether the change was made.
//
// Only one [Server] at a time may use a store, unless it is a [SharedStore].
type Store interface {
	// Create adds a record and sets its Version to 1. It returns ErrConflict if the ID exists,
	// whatever its owner.
	Create(ctx context.Context, r Record) error
	// Get returns the record with that owner and id, including a record that expired and is not
	// deleted yet. It returns ErrUnknown if there is no such record.
	Get(ctx context.Context, owner, id string) (Record, error)
	// Update replaces the record with the same owner and id, except Created, and increments its
	// Version. It returns ErrConflict if the stored Version is not r.Version, and ErrUnknown if
	// there is no such record.
	Update(ctx context.Context, r Record) error
	// Delete removes a record. Deleting a record that does not exist is not an error.
	Delete(ctx context.Context, owner, id string) error
	// List returns up to limit records of an owner after the cursor, sorted by Created and then by
	// ID. The record at the cursor need not exist any more. List returns fewer records, but at
	// least one record, if more would exceed [MaxRecord] bytes of Data together: only an empty list
	// is the end. A record that cannot be read contains only Owner, ID and Created.
	List(ctx context.Context, owner string, after Cursor, limit int) ([]Record, error)
	// Count returns the number of records of an owner, including finished and expired records, and
	// the bytes of their Data.
	Count(ctx context.Context, owner string) (n int, bytes int64, err error)
	// CountAll returns the number of records of all owners, including finished and expired records,
	// and the bytes of their Data.
	CountAll(ctx context.Context) (n int, bytes int64, err error)
	// Unfinished returns all records that are not Done, in any order. Records that change during
	// the iteration may be included or not. The loop body may call the store. An error that comes
	// with a Record that contains an ID concerns that record alone, and the iteration continues.
	Unfinished(ctx context.Context) iter.Seq2[Record, error]
	// DeleteExpired removes up to limit records that are Done and whose Expires is not after now.
	// It returns their number.
	DeleteExpired(ctx context.Context, now time.Time, limit int) (int, error)
}

// A SharedStore is a [Store] that several servers may use at once, usually in several processes.
// Each [Server] holds a lease, which it renews, and each task that runs names the holder. When the
// lease of a server is over, another server takes over its tasks. Leases must be as durable as the
// tasks. A single clock measures the time of all leases, such as the clock of the database.
type SharedStore interface {
	Store
	// Hold starts a lease that ends after the time d. holder is new: 1 to 64 letters and digits.
	Hold(ctx context.Context, holder string, d time.Duration) error
	// Renew ends all other leases whose time is over, and sets the time of the lease to d from now.
	// It returns the holders of all leases, in any order, or ErrLeaseLost if another Renew ended
	// the lease. A lease whose time is over lasts until another Renew ends it.
	Renew(ctx context.Context, holder string, d time.Duration) (holders []string, err error)
	// Versions returns the Version of each task in the order of ids, whatever its owner, and 0 for
	// an unknown task.
	Versions(ctx context.Context, ids []string) ([]uint64, error)
}

// A Cursor is a position in the list of an owner's tasks: just after the task with this Created and
// ID. The zero value is the start.
type Cursor struct {
	Created time.Time
	ID      string
}
