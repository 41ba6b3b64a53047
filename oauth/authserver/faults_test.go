package authserver_test

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/oauth/authserver"
)

// A faultyStore returns the errors of its fault function.
type faultyStore struct {
	authserver.Store
	mu    sync.Mutex
	fault func(ctx context.Context, op, kind string) error
}

var errDisk = errors.New("the disk is full")

func newFaultyStore() *faultyStore { return &faultyStore{Store: authserver.NewMemoryStore()} }

func (s *faultyStore) set(fault func(ctx context.Context, op, kind string) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fault = fault
}

// failOnce makes the n-th call of an operation on a kind fail.
func (s *faultyStore) failOnce(n int32, op, kind string) {
	var calls atomic.Int32
	s.set(func(_ context.Context, o, k string) error {
		if o == op && k == kind && calls.Add(1) == n {
			return errDisk
		}
		return nil
	})
}

func (s *faultyStore) check(ctx context.Context, op, kind string) error {
	s.mu.Lock()
	fault := s.fault
	s.mu.Unlock()
	if fault == nil {
		return nil
	}
	return fault(ctx, op, kind)
}

func (s *faultyStore) Get(ctx context.Context, kind, key string) ([]byte, error) {
	if err := s.check(ctx, "get", kind); err != nil {
		return nil, err
	}
	return s.Store.Get(ctx, kind, key)
}

func (s *faultyStore) GetAndDelete(ctx context.Context, kind, key string) ([]byte, error) {
	if err := s.check(ctx, "take", kind); err != nil {
		return nil, err
	}
	return s.Store.GetAndDelete(ctx, kind, key)
}

func (s *faultyStore) Update(ctx context.Context, kind, key string,
	change func([]byte) ([]byte, time.Time, error),
) error {
	if err := s.check(ctx, "update", kind); err != nil {
		return err
	}
	return s.Store.Update(ctx, kind, key, change)
}

func TestFailedRevocationCanBeRepeated(t *testing.T) {
	for _, kind := range []string{"grant", "refresh"} {
		store := newFaultyStore()
		w := newEnv(t, func(o *authserver.Options) { o.Store = store })
		got := w.login()
		store.failOnce(1, "take", kind)
		form := url.Values{"token": {got.Refresh}, "client_id": {publicID}}
		if res := w.post("/revoke", form); res.StatusCode != http.StatusServiceUnavailable {
			t.Errorf("%s cannot be deleted: revocation: %s, want 503", kind, res.Status)
		}
		if res := w.post("/revoke", form); res.StatusCode != http.StatusOK {
			t.Errorf("%s: second revocation: %s, want 200", kind, res.Status)
		}
		w.wantInvalid(got.Access, "after the second revocation")
		w.post("/token", refreshForm(got.Refresh)).wantError(t, http.StatusBadRequest, "invalid_grant")
	}
}

func TestReuseIsDetectedAfterAStoreFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFaultyStore()
		w := newInProcessEnv(t, func(o *authserver.Options) { o.Store = store })
		stolen := w.login()
		next := w.tokensOf(w.post("/token", refreshForm(stolen.Refresh)))
		time.Sleep(11 * time.Second)
		store.failOnce(1, "take", "grant")
		if res := w.post("/token", refreshForm(stolen.Refresh)); res.StatusCode != http.StatusServiceUnavailable {
			t.Errorf("while the store fails: %s %s, want 503", res.Status, res.body)
		}
		w.post("/token", refreshForm(stolen.Refresh)).wantError(t, http.StatusBadRequest, "invalid_grant")
		w.wantInvalid(next.Access, "after reuse of a refresh token")
	})
}

func TestFailuresDoNotUseUpTheRefreshToken(t *testing.T) {
	for _, at := range [][2]string{{"get", "refresh"}, {"get", "grant"}, {"update", "grant"}, {"update", "refresh"}} {
		synctest.Test(t, func(t *testing.T) {
			store := newFaultyStore()
			w := newInProcessEnv(t, func(o *authserver.Options) { o.Store = store })
			got := w.login()
			store.failOnce(1, at[0], at[1])
			if res := w.post("/token", refreshForm(got.Refresh)); res.StatusCode != http.StatusServiceUnavailable {
				t.Errorf("%v fails: %s, want 503", at, res.Status)
			}
			time.Sleep(time.Minute)
			w.tokensOf(w.post("/token", refreshForm(got.Refresh)))
		})
	}
}

// Only one request at a time reads the store.
func TestCachedSigningKeysAreUsedWhileTheStoreDoesNotRespond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFaultyStore()
		w := newInProcessEnv(t, func(o *authserver.Options) { o.Store = store })
		got := w.login()
		var reads atomic.Int32
		store.set(func(ctx context.Context, _, kind string) error {
			if kind != "signing-keys" {
				return nil
			}
			reads.Add(1)
			<-ctx.Done()
			return ctx.Err()
		})
		time.Sleep(time.Minute)
		var all sync.WaitGroup
		all.Go(func() { w.wantValid(got.Access, "for the request that reads the store") })
		synctest.Wait()
		start := time.Now()
		for range 20 {
			w.wantValid(got.Access, "while the store does not respond")
		}
		if waited := time.Since(start); waited > 0 {
			t.Errorf("the other requests waited for %v, want 0", waited)
		}
		all.Wait()
		w.wantValid(got.Access, "right after the store has failed")
		if n := reads.Load(); n != 1 || time.Since(start) > 10*time.Second {
			t.Errorf("the store was read %d times in %v, want once within 10s", n, time.Since(start))
		}
		time.Sleep(10 * time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		start = time.Now()
		if _, err := w.server.Verifier(resource).Verify(ctx, got.Access); time.Since(start) > 200*time.Millisecond {
			t.Errorf("with a timeout of 200ms verify took %v: %v", time.Since(start), err)
		}
		if n := reads.Load(); n != 2 {
			t.Errorf("the store was read %d times, want 2", n)
		}
		time.Sleep(10 * time.Second) // the read continues until its own timeout
	})
}

// Another server rotates the keys while this one is idle.
func TestIdleServerReloadsKeysBeforeVerifying(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := authserver.NewMemoryStore()
		change := func(o *authserver.Options) { o.Store, o.Lifetimes.Key = store, 24*time.Hour }
		idle, busy := newInProcessEnv(t, change), newInProcessEnv(t, change)
		for range 30 {
			time.Sleep(time.Hour)
			busy.login()
		}
		got := busy.login()
		var all sync.WaitGroup
		for range 10 {
			all.Go(func() { idle.wantValid(got.Access, "at the server that was idle") })
		}
		all.Wait()
	})
}
