package storetest

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/patchbay-mcp/patchbay/ext/tasks"
)

// bugs maps each clause to bugs that it must detect. Other clauses may detect them, too.
var bugs = map[string][]string{
	"Get returns a record as it was created": {"Create keeps the caller's version",
		"times in seconds"},
	"Get returns a record as it was updated": {"Update changes Created", "Update ignores Done",
		"Update ignores Expires", "Data does not shrink"},
	"an id is unique among all owners": {"ids are unique for each owner only",
		"Create replaces", "ids ignore case"},
	"an update needs the current version": {"Update ignores the version",
		"Update accepts older versions"},
	"an unknown task is ErrUnknown": {"Get ignores the owner",
		"Get of an unknown task succeeds", "Delete of an unknown task fails", "Delete ignores the owner", "ids ignore case"},
	"of concurrent updates of one version one succeeds": {"concurrent updates both succeed",
		"Update ignores the version"},
	"of concurrent creations of one id one succeeds": {"concurrent creations both succeed",
		"Create replaces"},
	"owners may contain any byte": {"owners end at a zero byte",
		"owners are truncated", "List returns tasks of other owners", "Delete ignores the owner"},
	"Data may have any size up to MaxRecord": {"large Data is truncated",
		"Data does not shrink"},
	"an invalid record changes nothing": {"Create accepts invalid records",
		"refused records are counted"},
	"records are copied": {"Data of the caller is retained",
		"Data of the store is returned"},
	"a deleted record is gone": {"Delete ignores unfinished tasks",
		"DeleteExpired counts deleted records", "deleted ids cannot be used again", "Delete of an unknown task fails"},
	"a list is sorted by Created and ID": {"List is sorted in reverse",
		"times before 1970 sort last", "List is sorted by ID alone", "List ignores case", "Update changes Created"},
	"a list continues after its cursor": {"List includes the cursor",
		"List skips records with the cursor's time", "List needs the record at the cursor", "List ignores the limit"},
	"a list has at most MaxRecord bytes": {"List exceeds MaxRecord",
		"List returns no record of MaxRecord bytes"},
	"Count and CountAll count records and bytes": {"Count ignores finished records",
		"Count of the empty owner counts all", "CountAll is wrong after expiry", "Count returns no bytes"},
	"Unfinished returns all records that are not done": {"Unfinished returns finished records",
		"Unfinished leaves out expired records", "Unfinished returns 100 records only", "Update ignores Done", "Unfinished ignores break"},
	"records can be changed during Unfinished": {"Unfinished returns a record twice",
		"Unfinished returns 100 records only"},
	"DeleteExpired deletes records that are done and expired": {"DeleteExpired deletes unfinished records",
		"DeleteExpired keeps records at the exact time", "Get hides expired records", "DeleteExpired returns a wrong number"},
	"an update changes the expiry": {"Update ignores Expires",
		"DeleteExpired deletes unfinished records"},
	"DeleteExpired respects its limit": {"DeleteExpired ignores the limit",
		"CountAll is wrong after expiry"},
	"times have a precision of milliseconds": {"times in seconds", "Update ignores Expires"},
	"a change with an ended context is made in whole or not at all": {"Update with an ended context is applied in part",
		"Create with an ended context is applied in part"},
	"concurrent use": {"DeleteExpired deletes unfinished records",
		"concurrent changes are lost", "CountAll is wrong after expiry"},
	"a lease lasts until its time is over and another holder renews": {"Renew revives an ended lease",
		"Renew ends its own lease", "leases never end", "Renew ends all other leases",
		"Renew does not extend the lease"},
	"a lease that any holder saw end cannot be renewed": {"Renew races with the end of the lease"},
	"Versions returns the versions of tasks of all owners": {"Versions ignores finished tasks",
		"Versions leaves out unknown tasks"},
	"records survive closing and opening": {"reopening loses all records",
		"reopening truncates large Data", "reopening restores deleted records"},
}

// all returns the clauses, with that of RunLasting.
func all() []clause {
	return append(slices.Concat(clauses, sharedClauses), clause{"records survive closing and opening", func(s *store) {
		checkLasting(s, func() { s.Store = s.Store.(*faulty).reopen() })
	}})
}

func TestCorrectStorePasses(t *testing.T) {
	Run(t, func(*testing.T) tasks.Store { return newFaulty("") })
	RunLasting(t, lasting())
}

// lasting returns a function that opens one store for each directory.
func lasting() func(t *testing.T, dir string) tasks.Store {
	stores := map[string]tasks.Store{}
	return func(_ *testing.T, dir string) tasks.Store {
		if stores[dir] == nil {
			stores[dir] = newFaulty("")
		}
		return stores[dir]
	}
}

func TestEachClauseDetectsItsBugs(t *testing.T) {
	for _, c := range all() {
		if len(bugs[c.name]) == 0 {
			t.Errorf("the clause %q has no bug to detect", c.name)
		}
		for _, bug := range bugs[c.name] {
			t.Run(c.name+"/"+bug, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					if err := check(t.Context(), c, newFaulty(bug)); err == nil {
						t.Error("the clause does not detect the bug")
					} else {
						t.Log(err)
					}
				})
			})
		}
	}
}

// check runs a clause and returns a panic as an error.
func check(ctx context.Context, c clause, impl tasks.Store) error {
	return (&store{impl, ctx}).run(func(s *store) {
		s.concurrently(1, func(int) { c.check(s) })
	})
}
