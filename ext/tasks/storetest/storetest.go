// Package storetest is the test-suite of [tasks.Store]: who writes a store runs it, and what passes can be given to a
// [tasks.Server].
//
//	func TestStore(t *testing.T) {
//		storetest.RunLasting(t, func(t *testing.T, dir string) tasks.Store {
//			s, err := mystore.Open(filepath.Join(dir, "tasks"))
//			if err != nil {
//				t.Fatal(err)
//			}
//			return s
//		})
//	}
package storetest

import (
	"context"
	"fmt"
	"io"
	"testing"

	"github.com/patchbay-mcp/patchbay/ext/tasks"
)

// Run tests that a store keeps the contract of [tasks.Store], each clause as a subtest. open gives an empty store each time;
// one that is an [io.Closer] is closed in the end.
func Run(t *testing.T, open func(t *testing.T) tasks.Store) {
	for _, c := range clauses {
		t.Run(c.says, func(t *testing.T) {
			s := open(t)
			defer end(t, s)
			if err := c.check(t.Context(), s); err != nil {
				t.Error(err)
			}
		})
	}
}

// RunLasting is [Run] for a store that outlives its process, and tests that it does as far as closing and opening shows it.
// Two calls of open with the same dir, the second after the first one's store was closed, are about the same records, and
// two with different ones are not. dir is an empty folder at first; a store that keeps its records elsewhere takes it for a
// name.
func RunLasting(t *testing.T, open func(t *testing.T, dir string) tasks.Store) {
	Run(t, func(t *testing.T) tasks.Store { return open(t, t.TempDir()) })
	t.Run("what was written is there after it was closed and opened", func(t *testing.T) {
		dir := t.TempDir()
		reopen := func(s tasks.Store) tasks.Store {
			end(t, s)
			return open(t, dir)
		}
		s, err := checkLasting(t.Context(), open(t, dir), reopen)
		defer end(t, s)
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

// A clause is one sentence of the contract. check gives nil, or how the store breaks it.
type clause struct {
	says  string
	check func(ctx context.Context, s tasks.Store) error
}

var clauses = []clause{
	{"a record comes back as it was created", checkCreate},
	{"a record comes back as it was updated", checkUpdate},
	{"an id exists once, whoever owns it", checkIDs},
	{"an update needs the version that is there", checkVersions},
	{"an unknown task is unknown", checkUnknown},
	{"of many updates of one version one is made", checkOneUpdate},
	{"of many who create one id one does", checkOneCreate},
	{"owners are apart, whatever their bytes", checkOwners},
	{"data of all sizes", checkSizes},
	{"what no store takes changes nothing", checkRefused},
	{"records are copies", checkCopies},
	{"a deleted record is gone", checkDelete},
	{"a list is in its order", checkOrder},
	{"a list goes on behind its cursor", checkCursor},
	{"a list of much data comes in parts", checkLargeList},
	{"a count is that of the records", checkCount},
	{"what is not done is unfinished", checkUnfinished},
	{"unfinished records can be changed while they are given", checkUnfinishedChanges},
	{"what has expired and is done is deleted", checkExpiry},
	{"an update moves the expiry", checkExpiryMoves},
	{"deletion keeps its limit", checkExpiryLimit},
	{"times are kept to the millisecond", checkTimes},
	{"a context that has ended changes nothing in part", checkContext},
	{"many may use it at once", checkConcurrent},
}

// at runs f for 0 to n-1 at the same time, and gives the first error.
func at(n int, f func(i int) error) error {
	begin, errs := make(chan struct{}), make(chan error, n)
	for i := range n {
		go func() {
			<-begin
			defer func() {
				if p := recover(); p != nil {
					errs <- fmt.Errorf("panic: %v", p)
				}
			}()
			errs <- f(i)
		}()
	}
	close(begin)
	var first error
	for range n {
		if err := <-errs; first == nil {
			first = err
		}
	}
	return first
}
