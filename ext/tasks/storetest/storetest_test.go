package storetest

import (
	"context"
	"testing"

	"github.com/patchbay-mcp/patchbay/ext/tasks"
)

// found says which clause has to see which bugs. Others may see them too.
var found = map[string][]string{
	"a record comes back as it was created":                    {"versions are the caller's", "seconds"},
	"a record comes back as it was updated":                    {"created moves", "a task stays unfinished", "the expiry stays", "data does not shrink"},
	"an id exists once, whoever owns it":                       {"ids are the owner's", "a create replaces", "ids fold case"},
	"an update needs the version that is there":                {"versions are ignored", "older versions win"},
	"an unknown task is unknown":                               {"owners are ignored", "nothing is no error", "nothing cannot be deleted", "anybody may delete", "ids fold case"},
	"of many updates of one version one is made":               {"two may update", "versions are ignored"},
	"of many who create one id one does":                       {"two may create", "a create replaces"},
	"owners are apart, whatever their bytes":                   {"owners end at a zero byte", "owners are cut short", "lists the others'", "anybody may delete"},
	"data of all sizes":                                        {"large data is cut", "data does not shrink"},
	"what no store takes changes nothing":                      {"takes anything", "counts what it refused"},
	"records are copies":                                       {"keeps the bytes", "gives its own bytes"},
	"a deleted record is gone":                                 {"only what is done is deleted", "what was deleted expires", "ids are never free again", "nothing cannot be deleted"},
	"a list is in its order":                                   {"the newest first", "times have no sign", "by id alone", "ids are sorted without case", "created moves"},
	"a list goes on behind its cursor":                         {"lists the cursor again", "skips the others of a moment", "a cursor must be there", "limits are ignored"},
	"a list of much data comes in parts":                       {"lists much", "lists little"},
	"a count is that of the records":                           {"counts what is unfinished", "nobody is everybody", "expiry is not counted", "counts no bytes"},
	"what is not done is unfinished":                           {"all is unfinished", "what has expired is finished", "gives a hundred", "a task stays unfinished", "goes on when it is left"},
	"unfinished records can be changed while they are given":   {"gives one twice", "gives a hundred"},
	"what has expired and is done is deleted":                  {"what runs expires", "expires too late", "hides what has expired", "expiry says one more"},
	"an update moves the expiry":                               {"the expiry stays", "what runs expires"},
	"deletion keeps its limit":                                 {"deletes without limit", "expiry is not counted"},
	"times are kept to the millisecond":                        {"seconds", "the expiry stays"},
	"a context that has ended changes nothing in part":         {"a late update is half made", "a late create is half made"},
	"many may use it at once":                                  {"what runs expires", "changes at once are lost", "expiry is not counted"},
	"what was written is there after it was closed and opened": {"forgets", "forgets large data", "what was deleted comes back"},
}

// all returns the clauses with that of the stores that last.
func all() []clause {
	return append(clauses[:len(clauses):len(clauses)], clause{"what was written is there after it was closed and opened",
		func(ctx context.Context, s tasks.Store) error {
			_, err := checkLasting(ctx, s, func(s tasks.Store) tasks.Store { return s.(*faulty).reopen() })
			return err
		}})
}

func TestASoundStorePasses(t *testing.T) {
	Run(t, func(*testing.T) tasks.Store { return newFaulty("") })
	RunLasting(t, lasting())
}

// lasting returns a store for each folder that is there again when it is opened again.
func lasting() func(t *testing.T, dir string) tasks.Store {
	stores := map[string]tasks.Store{}
	return func(_ *testing.T, dir string) tasks.Store {
		if stores[dir] == nil {
			stores[dir] = newFaulty("")
		}
		return stores[dir]
	}
}

func TestEachClauseFindsWhatItIsFor(t *testing.T) {
	for _, c := range all() {
		if len(found[c.says]) == 0 {
			t.Errorf("no bug shows that the clause %q can fail", c.says)
		}
		for _, bug := range found[c.says] {
			t.Run(c.says+"/"+bug, func(t *testing.T) {
				if err := check(t.Context(), c, newFaulty(bug)); err == nil {
					t.Error("the clause does not see the bug")
				} else {
					t.Log(err)
				}
			})
		}
	}
}

// check runs a clause on a store that may well panic.
func check(ctx context.Context, c clause, s tasks.Store) error {
	return at(1, func(int) error { return c.check(ctx, s) })
}
