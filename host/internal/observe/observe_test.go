package observe_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/host/internal/observe"
)

func TestCountersCountConcurrentEventsByKind(t *testing.T) {
	var c observe.Counters[string]
	if c.All() != nil {
		t.Error("counts before the first event")
	}
	var wg sync.WaitGroup
	for n := range 30 {
		wg.Go(func() { c.Add([]string{"a", "b", "b"}[n%3]) })
	}
	wg.Wait()
	if all := c.All(); len(all) != 2 || all["a"] != 10 || all["b"] != 20 {
		t.Errorf("got %v, want 10 of a and 20 of b", all)
	}
}

func TestRecentServersExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r observe.Recent
		r.Add("ann", "web")
		time.Sleep(20 * time.Minute)
		r.Add("ann", "db")
		if got := r.Servers("ann"); !slices.Equal(got, []string{"db", "web"}) {
			t.Errorf("after 20 minutes: %q", got)
		}
		time.Sleep(20 * time.Minute)
		if got := r.Servers("ann"); !slices.Equal(got, []string{"db"}) {
			t.Errorf("after 40 minutes: %q, want the message of web to be forgotten", got)
		}
		if got := r.Servers("bob"); got != nil {
			t.Errorf("another caller received %q", got)
		}
	})
}

func TestOldestCallerIsForgottenFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r observe.Recent
		for n := range 10_001 {
			r.Add(fmt.Sprint(n), "web")
			time.Sleep(time.Millisecond)
		}
		if r.Servers("0") != nil || r.Servers("1") == nil || r.Servers("10000") == nil {
			t.Error("want only the first of 10,001 callers to be forgotten")
		}
	})
}

func TestCallIDsDiffer(t *testing.T) {
	a, b := observe.NewIDs(), observe.NewIDs()
	first, second := a.Next(), a.Next()
	if first == second || first == b.Next() || !strings.HasPrefix(first, a.Prefix) {
		t.Errorf("IDs %q, %q, and the prefix %q", first, second, a.Prefix)
	}
}
