// Package storetest tests implementations of [tasks.Store], the storage of a [tasks.Server] for the
// tasks of the extension io.modelcontextprotocol/tasks and of revision 2025-11-25.
//
// A test of an implementation calls [Run], or [RunLasting] if its records outlive the process:
//
//	func TestStore(t *testing.T) {
//		storetest.Run(t, func(*testing.T) tasks.Store { return tasks.NewMemory() })
//	}
package storetest

import (
	"io"
	"slices"
	"testing"

	"github.com/patchbay-mcp/patchbay/ext/tasks"
)

// Run tests that a store fulfils the contract of [tasks.Store], and of [tasks.SharedStore] if it
// implements that, with a subtest for each clause. open returns a new empty store for each of them.
// A store that implements [io.Closer] is closed at the end of its subtest.
func Run(t *testing.T, open func(t *testing.T) tasks.Store) {
	for i, c := range slices.Concat(clauses, sharedClauses) {
		t.Run(c.name, func(t *testing.T) {
			s := &store{open(t), t.Context()}
			defer end(t, s.Store)
			if _, shared := s.Store.(tasks.SharedStore); !shared && i >= len(clauses) {
				t.Skip("the store is no tasks.SharedStore")
			}
			if err := s.run(c.check); err != nil {
				t.Error(err)
			}
		})
	}
}

// RunLasting calls [Run], and tests that records survive when the store is closed and opened again.
// Stores that open returns for the same dir contain the same records; a store is closed before the
// next is opened. Stores for different dirs share no records. dir is an empty directory at first; a
// store that keeps its records elsewhere uses it as a name.
func RunLasting(t *testing.T, open func(t *testing.T, dir string) tasks.Store) {
	Run(t, func(t *testing.T) tasks.Store { return open(t, t.TempDir()) })
	t.Run("records survive closing and opening", func(t *testing.T) {
		dir := t.TempDir()
		s := &store{open(t, dir), t.Context()}
		defer func() { end(t, s.Store) }()
		err := s.run(func(s *store) {
			checkLasting(s, func() {
				end(t, s.Store)
				s.Store = open(t, dir)
			})
		})
		if err != nil {
			t.Error(err)
		}
	})
}

func end(t *testing.T, s tasks.Store) {
	t.Helper()
	c, ok := s.(io.Closer)
	if !ok {
		return
	}
	if err := c.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
}

// A clause is a sentence of the contract.
type clause struct {
	name  string
	check func(s *store)
}

var clauses = []clause{
	{"Get returns a record as it was created", checkCreate},
	{"Get returns a record as it was updated", checkUpdate},
	{"an id is unique among all owners", checkIDs},
	{"an update needs the current version", checkVersions},
	{"an unknown task is ErrUnknown", checkUnknown},
	{"of concurrent updates of one version one succeeds", checkOneUpdate},
	{"of concurrent creations of one id one succeeds", checkOneCreate},
	{"owners may contain any byte", checkOwners},
	{"Data may have any size up to MaxRecord", checkSizes},
	{"an invalid record changes nothing", checkRefused},
	{"records are copied", checkCopies},
	{"a deleted record is gone", checkDelete},
	{"a list is sorted by Created and ID", checkOrder},
	{"a list continues after its cursor", checkCursor},
	{"a list has at most MaxRecord bytes", checkLargeList},
	{"Count and CountAll count records and bytes", checkCount},
	{"Unfinished returns all records that are not done", checkUnfinished},
	{"records can be changed during Unfinished", checkUnfinishedChanges},
	{"DeleteExpired deletes records that are done and expired", checkExpiry},
	{"an update changes the expiry", checkExpiryMoves},
	{"DeleteExpired respects its limit", checkExpiryLimit},
	{"times have a precision of milliseconds", checkTimes},
	{"a change with an ended context is made in whole or not at all", checkContext},
	{"concurrent use", checkConcurrent},
}

// sharedClauses are the clauses of [tasks.SharedStore].
var sharedClauses = []clause{
	{"a lease lasts until its time is over and another holder renews", checkLeases},
	{"a lease that any holder saw end cannot be renewed", checkLeaseRace},
	{"Versions returns the versions of tasks of all owners", checkTaskVersions},
}
