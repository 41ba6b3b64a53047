package oauthclient_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/oauth/oauthclient"
)

var errDiskFull = errors.New("no space left on device")

// A writeFailingStore does not write when it is sick: it says so after change has been called, or before.
type writeFailingStore struct {
	oauthclient.Store
	failAfterChange, failBeforeChange atomic.Bool
}

func newWriteFailingStore() *writeFailingStore {
	return &writeFailingStore{Store: oauthclient.NewMemoryStore()}
}

func (s *writeFailingStore) Update(ctx context.Context, key string, change func([]byte) ([]byte, error)) error {
	if s.failBeforeChange.Load() {
		return errDiskFull
	}
	return s.Store.Update(ctx, key, func(old []byte) ([]byte, error) {
		fresh, err := change(old)
		if err == nil && s.failAfterChange.Load() && string(fresh) != string(old) {
			return nil, errDiskFull
		}
		return fresh, err
	})
}

// watchReuse counts renewals with a refresh token that the authorization server has replaced.
func (s *fakeServer) watchReuse() (reuses func() int) {
	var n int
	s.set(func(s *fakeServer) {
		s.respond = func(form url.Values) (int, string) {
			if form.Get("grant_type") == "refresh_token" && s.grants[form.Get("refresh_token")] == nil {
				n++
			}
			return 0, ""
		}
	})
	return func() int {
		s.mu.Lock()
		defer s.mu.Unlock()
		return n
	}
}

// TestLoginSurvivesStoreFailure has a store that takes nothing, so that there is only what the
// Transport remembers.
func TestLoginSurvivesStoreFailure(t *testing.T) {
	for name, fall := range map[string]func(s *writeFailingStore){
		"after change":  func(s *writeFailingStore) { s.failAfterChange.Store(true) },
		"before change": func(s *writeFailingStore) { s.failBeforeChange.Store(true) },
	} {
		t.Run(name, func(t *testing.T) {
			withEnv(t, func(t *testing.T, w *testEnv) {
				store := newWriteFailingStore()
				tr := w.transport(&oauthclient.TransportOptions{Store: store, Client: oauthclient.Identity{ID: "mine", Issuer: clientIssuer}})
				w.as.clients["mine"] = ""
				fall(store)
				w.mustPost(tr)
				store.failBeforeChange.Store(false) // or the token could not be renewed
				store.failAfterChange.Store(true)
				reuses := w.as.watchReuse()
				for range 3 {
					time.Sleep(time.Hour)
					w.mustPost(tr)
				}
				if n := w.as.count("refresh_token"); w.loginCount() != 1 || n != 3 || reuses() > 0 {
					t.Errorf("%d logins, %d renewals, %d with an old token", w.loginCount(), n, reuses())
				}
				store.failAfterChange.Store(false)
				if s, err := tr.Status(t.Context()); s == nil || err != nil {
					t.Errorf("status %v %v", s, err)
				}
				w.mustPost(w.unattended(store)) // it is written, as soon as that is possible
			})
		})
	}
}

// TestUsedRefreshTokenIsNotReused fails to write what a renewal has come to, once.
func TestUsedRefreshTokenIsNotReused(t *testing.T) {
	withEnv(t, func(t *testing.T, w *testEnv) {
		store := newWriteFailingStore()
		tr := w.transport(&oauthclient.TransportOptions{Store: store})
		w.mustPost(tr)
		time.Sleep(time.Hour)
		store.failAfterChange.Store(true)
		w.mustPost(tr)
		store.failAfterChange.Store(false)
		reuses := w.as.watchReuse()
		w.as.revokeAccess() // what the store holds, too
		w.mustPost(tr)
		time.Sleep(time.Hour)
		w.mustPost(w.unattended(store))
		w.mustPost(tr)
		if w.loginCount() != 1 || reuses() > 0 {
			t.Errorf("%d logins, %d renewals with an old token", w.loginCount(), reuses())
		}
	})
}

// TestUnsavedValueIsReplacedByAnotherProcess prefers what somebody else has put into the store
// meanwhile.
func TestUnsavedValueIsReplacedByAnotherProcess(t *testing.T) {
	for name, act := range map[string]func(tr *oauthclient.Transport, ctx context.Context) error{
		"a login": (*oauthclient.Transport).Login, "a logout": (*oauthclient.Transport).Logout,
	} {
		t.Run(name, func(t *testing.T) {
			withEnv(t, func(t *testing.T, w *testEnv) {
				store := newWriteFailingStore()
				tr := w.transport(&oauthclient.TransportOptions{Store: store})
				w.mustPost(tr)
				time.Sleep(time.Hour)
				store.failAfterChange.Store(true)
				w.mustPost(tr)
				store.failAfterChange.Store(false)
				if err := act(w.transport(&oauthclient.TransportOptions{Store: store}), t.Context()); err != nil {
					t.Fatal(err)
				}
				want, _ := w.unattended(store).Token(t.Context()) // nil after a logout
				for _, one := range []*oauthclient.Transport{tr, w.unattended(store)} {
					if _, err := one.Status(t.Context()); err != nil { // it looks into the store
						t.Error(err)
					}
					got, err := one.Token(t.Context())
					if (got == nil) != (want == nil) || got != nil && got.AccessToken != want.AccessToken {
						t.Errorf("it has what the other one has replaced: %v, %v", got, err)
					}
				}
			})
		})
	}
}

// TestLogoutWithFailingStore drops and revokes the tokens nevertheless.
func TestLogoutWithFailingStore(t *testing.T) {
	for name, fall := range map[string]func(s *writeFailingStore){
		"after change":  func(s *writeFailingStore) { s.failAfterChange.Store(true) },
		"before change": func(s *writeFailingStore) { s.failBeforeChange.Store(true) },
	} {
		t.Run(name, func(t *testing.T) {
			withEnv(t, func(t *testing.T, w *testEnv) {
				store := newWriteFailingStore()
				w.mustPost(w.transport(&oauthclient.TransportOptions{Store: store}))
				tr := w.unattended(store)
				w.mustPost(tr)
				w.Page(clientIssuer+"/revoke", func(http.ResponseWriter, *http.Request) { w.as.set(func(s *fakeServer) { s.counts["revoke"]++ }) })
				fall(store)
				if err := tr.Logout(t.Context()); !errors.Is(err, errDiskFull) {
					t.Errorf("Logout: got error %v", err)
				}
				used := len(w.rs.used)
				if _, _, err := post(tr, t.Context()); !errors.Is(err, oauthclient.ErrLoginRequired) || len(w.rs.used) != used {
					t.Errorf("a request after: %v", err)
				}
				if s, err := tr.Status(t.Context()); s != nil || err != nil {
					t.Errorf("status after: %v %v", s, err)
				}
				if n := w.as.count("revoke"); n != 2 {
					t.Errorf("%d revocations", n)
				}
			})
		})
	}
}

func TestLogoutWithUnreadableStore(t *testing.T) {
	withEnv(t, func(t *testing.T, w *testEnv) {
		store := &failingStore{oauthclient.NewMemoryStore(), nil, nil}
		tr := w.transport(&oauthclient.TransportOptions{Store: store})
		w.mustPost(tr)
		store.load = errDiskFull
		if err := tr.Logout(t.Context()); !errors.Is(err, errDiskFull) {
			t.Errorf("Logout: got error %v", err)
		}
		if n := w.as.count("revoke refresh_token"); n != 1 {
			t.Errorf("%d revocations", n)
		}
		store.load = nil
		if s, err := tr.Status(t.Context()); s != nil || err != nil {
			t.Errorf("status after: %v %v", s, err)
		}
	})
}

// A singleWriterStore has a single writer, as a file has. The test may look into it.
type singleWriterStore struct {
	writer sync.Mutex

	mu     sync.Mutex // guards the field below
	values map[string][]byte
}

func newSingleWriterStore() *singleWriterStore {
	return &singleWriterStore{values: map[string][]byte{}}
}

func (s *singleWriterStore) Load(_ context.Context, key string) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.values[key], nil
}

func (s *singleWriterStore) Update(ctx context.Context, key string, change func([]byte) ([]byte, error)) error {
	if !s.writer.TryLock() {
		return errors.New("an Update within another one, or beside it")
	}
	defer s.writer.Unlock()
	old, _ := s.Load(ctx, key)
	value, err := change(old)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.values[key] = value; value == nil {
		delete(s.values, key)
	}
	return nil
}

// rewrite changes the values under keys of a kind.
func (s *singleWriterStore) rewrite(kind string, change func(old []byte) []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, old := range s.values {
		if strings.HasPrefix(key, kind+" ") {
			s.values[key] = change(old)
		}
	}
}

// TestUpdatesAreNotNested has the authorization server forget the client, so that tokens and client
// are dropped.
func TestUpdatesAreNotNested(t *testing.T) {
	withEnv(t, func(t *testing.T, w *testEnv) {
		store := newSingleWriterStore()
		tr := w.transport(&oauthclient.TransportOptions{Store: store})
		w.mustPost(tr)
		w.as.revokeAccess()
		w.as.set(func(s *fakeServer) { clear(s.clients) })
		w.mustPost(tr)
		if n := w.as.count("register"); n != 2 || w.loginCount() != 2 {
			t.Errorf("%d registrations, %d logins", n, w.loginCount())
		}
		if s, err := w.unattended(store).Status(t.Context()); s == nil || err != nil {
			t.Errorf("status %v %v", s, err)
		}
	})
}

// TestUnreadableStoreIsReplaced has values of somebody else in the store.
func TestUnreadableStoreIsReplaced(t *testing.T) {
	for _, kind := range []string{"server", "tokens", "client"} {
		t.Run(kind, func(t *testing.T) {
			withEnv(t, func(t *testing.T, w *testEnv) {
				store := newSingleWriterStore()
				w.mustPost(w.transport(&oauthclient.TransportOptions{Store: store}))
				garbage := func([]byte) []byte { return []byte("{") }
				store.rewrite(kind, garbage)
				tr := w.transport(&oauthclient.TransportOptions{Store: store})
				if _, _, err := post(tr, t.Context()); (err == nil) != (kind == "client") {
					t.Errorf("a request: %v", err)
				}
				if err := tr.Login(t.Context()); err != nil {
					t.Errorf("Login: got error %v", err)
				}
				w.mustPost(w.unattended(store))
				store.rewrite(kind, garbage)
				tr = w.transport(&oauthclient.TransportOptions{Store: store})
				if err := tr.Logout(t.Context()); err != nil {
					t.Errorf("Logout: got error %v", err)
				}
				if s, err := w.unattended(store).Status(t.Context()); s != nil || err != nil {
					t.Errorf("status after: %v %v", s, err)
				}
			})
		})
	}
}

// TestStoredServerRecordWithoutMetadata has a record that does not say where tokens are renewed.
func TestStoredServerRecordWithoutMetadata(t *testing.T) {
	withEnv(t, func(t *testing.T, w *testEnv) {
		store := newSingleWriterStore()
		w.mustPost(w.transport(&oauthclient.TransportOptions{Store: store}))
		store.rewrite("server", func(old []byte) []byte {
			var record map[string]any
			if err := json.Unmarshal(old, &record); err != nil || record["server"] == nil {
				t.Errorf("the record is %s", old)
			}
			delete(record, "server")
			text, _ := json.Marshal(record)
			return text
		})
		w.as.revokeAccess()
		w.mustPost(w.transport(&oauthclient.TransportOptions{Store: store}))
		if w.loginCount() != 2 {
			t.Errorf("%d logins", w.loginCount())
		}
	})
}
