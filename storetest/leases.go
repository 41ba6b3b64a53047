package storetest

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/replica"
)

// shortLease ends during a test.
const shortLease = 50 * time.Millisecond

// RunLeases tests that a store conforms to [replica.LeaseStore]. open returns two clients of a new
// store.
func RunLeases(t *testing.T, open func(t *testing.T) (a, b replica.LeaseStore)) {
	run(t, open, map[string]func(t *testing.T, a, b replica.LeaseStore){
		"a lease has a single holder":              leasesHolder,
		"of concurrent processes one gets a lease": leasesConcurrent,
		"a lease ends by time":                     leasesTime,
		"a lease ends by its token":                leasesEnd,
		"canceled context of Grant, Find and End":  leasesCanceled,
	})
}

func grant(t *testing.T, s replica.LeaseStore, name, value string, ttl time.Duration) replica.Holder {
	t.Helper()
	h, err := s.Grant(t.Context(), name, value, ttl)
	must(t, err)
	if h.Token == 0 || h.Left <= 0 && ttl > shortLease {
		t.Errorf("%.20q: got token %d, %v left", name, h.Token, h.Left)
	}
	return h
}

func wantHolder(t *testing.T, s replica.LeaseStore, name, value string, token uint64) {
	t.Helper()
	h, err := s.Find(t.Context(), name)
	if err != nil || h.Value != value || h.Token != token {
		t.Errorf("%.20q: got %.20q with token %d, %v; want %.20q with %d", name, h.Value, h.Token, err, value, token)
	}
}

func leasesHolder(t *testing.T, a, b replica.LeaseStore) {
	for _, name := range []string{"a", "A", "}{a}", strings.Repeat("n", 1<<10)} {
		wantHolder(t, b, name, "", 0)
		value := "a\x00\xff" + strings.Repeat("v", 4<<10-3)
		first := grant(t, a, name, value, time.Hour)
		if h := grant(t, b, name, "b", time.Hour); h.Value != value || h.Token != first.Token ||
			h.Left < time.Hour-patience || h.Left > time.Hour {
			t.Errorf("another process got a lease: %+v", h)
		}
		if h := grant(t, a, name, value, 2*time.Hour); h.Token != first.Token || h.Left <= time.Hour {
			t.Errorf("renewed: got token %d, %v left; want %d", h.Token, h.Left, first.Token)
		}
		wantHolder(t, b, name, value, first.Token)
	}
}

func leasesConcurrent(t *testing.T, a, b replica.LeaseStore) {
	var wait sync.WaitGroup
	holders := make([]replica.Holder, 20)
	for n := range holders {
		wait.Go(func() {
			holders[n], _ = []replica.LeaseStore{a, b}[n%2].Grant(t.Context(), "l", string(rune('a'+n)), time.Hour)
		})
	}
	wait.Wait()
	for _, h := range holders {
		if h.Token != holders[0].Token || h.Value != holders[0].Value {
			t.Errorf("got holders %+v and %+v", h, holders[0])
		}
	}
}

func leasesTime(t *testing.T, a, b replica.LeaseStore) {
	first := grant(t, a, "l", "a", shortLease)
	var second replica.Holder
	until(t, "the end of the lease", func() bool {
		second = grant(t, b, "l", "b", time.Hour)
		return second.Value == "b"
	})
	if second.Token <= first.Token {
		t.Errorf("got token %d after %d", second.Token, first.Token)
	}
	must(t, a.End(t.Context(), "l", first.Token))
	wantHolder(t, a, "l", "b", second.Token)
	grant(t, a, "again", "a", shortLease)
	until(t, "the end of the lease", func() bool {
		h, err := b.Find(t.Context(), "again")
		must(t, err)
		return h == replica.Holder{}
	})
}

func leasesEnd(t *testing.T, a, b replica.LeaseStore) {
	must(t, a.End(t.Context(), "l", 1))
	first := grant(t, a, "l", "a", time.Hour)
	must(t, b.End(t.Context(), "l", first.Token-1))
	wantHolder(t, b, "l", "a", first.Token)
	must(t, a.End(t.Context(), "l", first.Token))
	wantHolder(t, b, "l", "", 0)
	if h := grant(t, a, "l", "a", time.Hour); h.Token <= first.Token {
		t.Errorf("got token %d after %d", h.Token, first.Token)
	}
}

func leasesCanceled(t *testing.T, a, b replica.LeaseStore) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := a.Grant(ctx, "l", "a", time.Hour); !errors.Is(err, context.Canceled) {
		t.Errorf("Grant: got %v", err)
	}
	if _, err := a.Find(ctx, "l"); !errors.Is(err, context.Canceled) {
		t.Errorf("Find: got %v", err)
	}
	if err := a.End(ctx, "l", 1); !errors.Is(err, context.Canceled) {
		t.Errorf("End: got %v", err)
	}
	wantHolder(t, b, "l", "", 0)
}
