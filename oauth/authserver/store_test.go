package authserver_test

import (
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/oauth/authserver"
	"github.com/patchbay-mcp/patchbay/oauth/authserver/storetest"
)

func TestMemoryStore(t *testing.T) {
	storetest.Run(t, func(string) (authserver.Store, error) { return authserver.NewMemoryStore(), nil })
}

func TestMemoryStoreRemovesExpiredRecords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, ctx := authserver.NewMemoryStore(), t.Context()
		put := func(kind, key string, expires time.Time) {
			t.Helper()
			if err := s.Put(ctx, kind, key, []byte("v"), expires); err != nil {
				t.Fatal(err)
			}
		}
		for i := range 50 {
			put("code", strconv.Itoa(i), time.Now().Add(time.Minute))
		}
		put("grant", "lasts", time.Now().Add(time.Hour))
		put("code", "7", time.Now().Add(time.Hour)) // its first expiry no longer counts
		time.Sleep(time.Minute - 1)
		if n, _ := s.Count(ctx, "code"); n != 50 {
			t.Errorf("%d codes just before they expire, want 50", n)
		}
		time.Sleep(1)
		if n, _ := s.Count(ctx, "code"); n != 1 {
			t.Errorf("%d codes when they have expired, want 1", n)
		}
		time.Sleep(time.Minute)
		put("grant", "new", time.Time{})
		if n := authserver.MemoryRecords(s); n != 3 {
			t.Errorf("%d records after the sweep, want 3", n)
		}
	})
}

// A caller that waits for the count to fall calls nothing but Count.
func TestMemoryStoreCountSweeps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := authserver.NewMemoryStore()
		for i := range 1000 {
			if err := s.Put(t.Context(), "interaction", strconv.Itoa(i), []byte("v"),
				time.Now().Add(time.Minute)); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(2 * time.Minute)
		if n, err := s.Count(t.Context(), "interaction"); n != 0 || err != nil {
			t.Errorf("Count = %d, %v; want 0", n, err)
		}
	})
}
