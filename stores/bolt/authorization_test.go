package bolt_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/oauth"
	"github.com/patchbay-mcp/patchbay/oauth/authserver"
	"github.com/patchbay-mcp/patchbay/oauth/authserver/storetest"
	"github.com/patchbay-mcp/patchbay/stores/bolt"
)

func TestAuthorizationStore(t *testing.T) {
	storetest.RunLasting(t, func(dir string) (authserver.Store, error) {
		return bolt.OpenAuthorization(filepath.Join(dir, "auth.db"), nil)
	})
}

func openAuthorization(t testing.TB, path string) *bolt.AuthorizationStore {
	t.Helper()
	s, err := bolt.OpenAuthorization(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// After a restart an authorization server has the same keys, accepts its earlier tokens, and
// refuses those that were revoked.
func TestAuthorizationServerKeepsItsStateAcrossRestarts(t *testing.T) {
	const issuer, resource, client = "https://as.example", "https://mcp.example/mcp", "machine"
	path := filepath.Join(t.TempDir(), "auth.db")
	secret, hash := authserver.NewClientSecret()
	token, keys := "", ""
	for run := range 3 {
		store, err := bolt.OpenAuthorization(path, nil)
		if err != nil {
			t.Fatal(err)
		}
		server, err := authserver.New(&authserver.Options{
			Issuer: issuer, Store: store, Resources: []authserver.Resource{{URL: resource}},
			Clients: []authserver.Client{{ID: client, SecretHash: hash}},
		})
		if err != nil {
			t.Fatal(err)
		}
		send := func(method, path string, form url.Values) string {
			t.Helper()
			r := httptest.NewRequestWithContext(t.Context(), method, issuer+path, strings.NewReader(form.Encode()))
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			r.SetBasicAuth(client, secret)
			w := httptest.NewRecorder()
			if server.ServeHTTP(w, r); w.Code != http.StatusOK {
				t.Fatalf("run %d: %s %s: %d %s", run, method, path, w.Code, w.Body)
			}
			return w.Body.String()
		}
		published := send(http.MethodGet, "/jwks", nil)
		if run == 0 {
			var response struct {
				Token string `json:"access_token"`
			}
			body := send(http.MethodPost, "/token", url.Values{"grant_type": {"client_credentials"}})
			if err := json.Unmarshal([]byte(body), &response); err != nil {
				t.Fatal(err)
			}
			keys, token = published, response.Token
		}
		if published != keys {
			t.Errorf("run %d: keys are %s, want %s", run, published, keys)
		}
		_, err = server.Verifier(resource).Verify(t.Context(), token)
		if revoked := run == 2; revoked != errors.Is(err, oauth.ErrInvalidToken) || !revoked && err != nil {
			t.Errorf("run %d: verify: %v", run, err)
		}
		if run == 1 {
			send(http.MethodPost, "/revoke", url.Values{"token": {token}})
		}
		if err := store.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestExpiredRecordsAreRemoved(t *testing.T) {
	s := openAuthorization(t, filepath.Join(t.TempDir(), "auth.db"))
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
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
		time.Sleep(2 * time.Minute)
		put("grant", "new", time.Time{})
		if n := bolt.AuthorizationRecords(s); n != 3 {
			t.Errorf("the file has %d records after the sweep, want 3", n)
		}
		for _, key := range []string{"lasts", "new"} {
			if v, err := s.Get(ctx, "grant", key); string(v) != "v" || err != nil {
				t.Errorf("grant %s is %q, %v; want %q", key, v, err, "v")
			}
		}
	})
}

func TestSweepsRemoveMoreRecordsThanAreWritten(t *testing.T) {
	s := openAuthorization(t, filepath.Join(t.TempDir(), "auth.db"))
	synctest.Test(t, func(t *testing.T) {
		for minute := range 4 {
			for i := range 2 * bolt.SweepBatch {
				if err := s.Put(t.Context(), "grant", fmt.Sprint(minute, i), []byte("v"),
					time.Now().Add(time.Second)); err != nil {
					t.Fatal(err)
				}
			}
			time.Sleep(61 * time.Second)
			for key := range 3 { // the third sweep finds no expired record
				if err := s.Put(t.Context(), "client", strconv.Itoa(key), []byte("v"), time.Time{}); err != nil {
					t.Fatal(err)
				}
			}
			if n := bolt.AuthorizationRecords(s); n != 3 {
				t.Errorf("minute %d: the file has %d records, want 3", minute, n)
			}
		}
	})
}

// A refused update must not undo the sweep that came before it.
func TestRefusedUpdateKeepsTheSweep(t *testing.T) {
	s := openAuthorization(t, filepath.Join(t.TempDir(), "auth.db"))
	synctest.Test(t, func(t *testing.T) {
		for i := range 100 {
			if err := s.Put(t.Context(), "grant", strconv.Itoa(i), []byte("v"),
				time.Now().Add(time.Second)); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(2 * time.Minute)
		refused := errors.New("refused")
		err := s.Update(t.Context(), "grant", "a", func([]byte) ([]byte, time.Time, error) {
			return nil, time.Time{}, refused
		})
		if err != refused {
			t.Errorf("Update returned %v, want the error of the change", err)
		}
		if n := bolt.AuthorizationRecords(s); n != 0 {
			t.Errorf("the file has %d records, want 0", n)
		}
	})
}

// Each write removes a batch of expired records.
func TestWritesSweepInBatches(t *testing.T) {
	s := openAuthorization(t, filepath.Join(t.TempDir(), "auth.db"))
	synctest.Test(t, func(t *testing.T) {
		const many = 2*bolt.SweepBatch + 10
		for i := range many {
			if err := s.Put(t.Context(), "interaction", strconv.Itoa(i), []byte("v"),
				time.Now().Add(time.Minute)); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(2 * time.Minute)
		calls := 0
		for n := many; n > 1; calls++ {
			before, err := n, s.Put(t.Context(), "grant", "a", nil, time.Time{})
			if n = bolt.AuthorizationRecords(s); err != nil || n >= before {
				t.Fatalf("call %d left %d of %d records, %v", calls+1, n, before, err)
			}
		}
		if calls > 3 {
			t.Errorf("it took %d calls, want at most 3", calls)
		}
	})
}

func TestClosedAuthorizationStoreReturnsErrClosed(t *testing.T) {
	s := openAuthorization(t, filepath.Join(t.TempDir(), "auth.db"))
	if err := errors.Join(s.Close(), s.Close()); err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	_, get := s.Get(ctx, "grant", "a")
	_, getAndDelete := s.GetAndDelete(ctx, "grant", "a")
	for name, err := range map[string]error{
		"Get": get, "GetAndDelete": getAndDelete, "Put": s.Put(ctx, "grant", "a", nil, time.Time{}),
		"Update": s.Update(ctx, "grant", "a", func([]byte) ([]byte, time.Time, error) { return nil, time.Time{}, nil }),
	} {
		if !errors.Is(err, bolt.ErrClosed) || !errors.Is(err, authserver.ErrStoreClosed) {
			t.Errorf("%s returned %v, want ErrClosed and ErrStoreClosed", name, err)
		}
	}
}

func TestConcurrentAuthorizationChangesShareCommits(t *testing.T) {
	s := openAuthorization(t, filepath.Join(t.TempDir(), "auth.db"))
	const n = 100
	// The first change also removes expired records, and others wait for that.
	if err := s.Put(t.Context(), "grant", "first", []byte("v"), time.Time{}); err != nil {
		t.Fatal(err)
	}
	before := bolt.AuthorizationCommits(s)
	release := bolt.AuthorizationTogether(t, s, n) // else a change could end before the next one begins
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			err := s.Update(t.Context(), "grant", strconv.Itoa(i), func([]byte) ([]byte, time.Time, error) {
				if i%2 == 1 {
					return nil, time.Time{}, errors.New("refused")
				}
				return []byte("v"), time.Time{}, nil
			})
			if (err != nil) != (i%2 == 1) {
				t.Errorf("update %d: got error %v, want an error only for odd numbers", i, err)
			}
		})
	}
	release()
	all.Wait()
	if commits := bolt.AuthorizationCommits(s) - before; commits > n/4 {
		t.Errorf("%d concurrent updates took %d commits, want at most %d", n, commits, n/4)
	}
	if got := bolt.AuthorizationRecords(s); got != n/2+1 {
		t.Errorf("the file has %d records, want %d", got, n/2+1)
	}
}

// writeGrantsUntilKilled writes numbered records, and prints each number once the store has
// confirmed the record.
func writeGrantsUntilKilled(path string) {
	s, err := bolt.OpenAuthorization(path, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, value := context.Background(), strings.Repeat("x", 3000)
	for n := 0; ; n++ {
		key := strconv.Itoa(n)
		if err := s.Put(ctx, "grant", key, []byte(key+value), time.Now().Add(time.Hour)); err != nil {
			fmt.Println(err)
			return
		}
		if n%3 == 2 {
			if _, err := s.GetAndDelete(ctx, "grant", strconv.Itoa(n-1)); err != nil {
				fmt.Println(err)
				return
			}
		}
		fmt.Println(n)
	}
}

func TestConfirmedGrantsSurviveKill(t *testing.T) {
	path := filepath.Join(t.TempDir(), "auth.db")
	for round := range 5 {
		child, lines := startChild(t, grantWriterVariable, path)
		confirmed := -1
		for lines.Scan() {
			n, err := strconv.Atoi(lines.Text())
			if err != nil {
				t.Fatalf("the writer printed %q", lines.Text())
			}
			if confirmed = n; n == 20+round*7 {
				_ = child.Process.Kill() // SIGKILL, at any point of its next write
			}
		}
		_ = child.Wait()
		checkGrants(t, openAuthorization(t, path), confirmed)
	}
}

// checkGrants checks that the store has all confirmed records, complete, and none of the removed
// ones.
func checkGrants(t *testing.T, s *bolt.AuthorizationStore, confirmed int) {
	t.Helper()
	if n := bolt.AuthorizationRecords(s); n < 0 {
		t.Errorf("after %d records: the index or the counts of the file do not match its records (%d)", confirmed, n)
	}
	value := strings.Repeat("x", 3000)
	for n := range confirmed + 1 {
		key, want := strconv.Itoa(n), ""
		// Of each three records, the second is removed after the third was written.
		if removed := n%3 == 1 && n+1 <= confirmed; !removed {
			want = key + value
		}
		got, err := s.Get(t.Context(), "grant", key)
		switch {
		case err != nil:
			t.Errorf("record %d of %d: %v", n, confirmed, err)
		case n == confirmed && n%3 == 1: // it may have been removed already
		case string(got) != want:
			t.Errorf("record %d of %d has %d bytes, want %d", n, confirmed, len(got), len(want))
		}
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}
