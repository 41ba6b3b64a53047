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

// A writeFailingStore fails its updates, after change has been called or before.
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

// watchReuse returns a function that returns the number of renewals with a replaced refresh token.
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

// If the store cannot be written, the Transport uses the tokens in its memory.
func TestLoginSurvivesStoreFailure(t *testing.T) {
	for name, fail := range map[string]func(s *writeFailingStore){
		"after change":  func(s *writeFailingStore) { s.failAfterChange.Store(true) },
		"before change": func(s *writeFailingStore) { s.failBeforeChange.Store(true) },
	} {
		t.Run(name, func(t *testing.T) {
			withEnv(t, func(t *testing.T, w *testEnv) {
				store := newWriteFailingStore()
				tr := w.transport(&oauthclient.TransportOptions{Store: store, Client: oauthclient.Identity{ID: "mine", Issuer: clientIssuer}})
				w.as.clients["mine"] = ""
				fail(store)
				w.mustPost(tr)
				store.failBeforeChange.Store(false) // so that renewal can lock the store
				store.failAfterChange.Store(true)
				reuses := w.as.watchReuse()
				for range 3 {
					time.Sleep(time.Hour)
					w.mustPost(tr)
				}
				if n := w.as.count("refresh_token"); w.loginCount() != 1 || n != 3 || reuses() > 0 {
					t.Errorf("got %d logins, %d renewals, %d of them with an old token; want 1, 3, 0", w.loginCount(), n, reuses())
				}
				store.failAfterChange.Store(false)
				if s, err := tr.Status(t.Context()); s == nil || err != nil {
					t.Errorf("got status %v, error %v; want tokens", s, err)
				}
				w.mustPost(w.unattended(store)) // the tokens have been written to the recovered store
			})
		})
	}
}

// The result of one renewal could not be stored.
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
		w.as.revokeAccess() // also the tokens in the store
		w.mustPost(tr)
		time.Sleep(time.Hour)
		w.mustPost(w.unattended(store))
		w.mustPost(tr)
		if w.loginCount() != 1 || reuses() > 0 {
			t.Errorf("got %d logins, %d renewals with an old token; want 1 and 0", w.loginCount(), reuses())
		}
	})
}

// A newer value in the store replaces one that could not be saved.
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
					if _, err := one.Status(t.Context()); err != nil { // reads the store
						t.Error(err)
					}
					got, err := one.Token(t.Context())
					if (got == nil) != (want == nil) || got != nil && got.AccessToken != want.AccessToken {
						t.Errorf("got token %v, error %v; want that of the store", got, err)
					}
				}
			})
		})
	}
}

// Logout discards and revokes the tokens also if the store cannot be written.
func TestLogoutWithFailingStore(t *testing.T) {
	for name, fail := range map[string]func(s *writeFailingStore){
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
				fail(store)
				if err := tr.Logout(t.Context()); !errors.Is(err, errDiskFull) {
					t.Errorf("Logout: got error %v", err)
				}
				used := len(w.rs.used)
				if _, _, err := post(tr, t.Context()); !errors.Is(err, oauthclient.ErrLoginRequired) || len(w.rs.used) != used {
					t.Errorf("request after Logout: got error %v, want ErrLoginRequired", err)
				}
				if s, err := tr.Status(t.Context()); s != nil || err != nil {
					t.Errorf("after Logout: got status %v, error %v; want no tokens", s, err)
				}
				if n := w.as.count("revoke"); n != 2 {
					t.Errorf("got %d revocations, want both tokens revoked", n)
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
			t.Errorf("got %d revocations, want both tokens revoked", n)
		}
		store.load = nil
		if s, err := tr.Status(t.Context()); s != nil || err != nil {
			t.Errorf("after Logout: got status %v, error %v; want no tokens", s, err)
		}
	})
}

// A singleWriterStore fails nested and concurrent updates.
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
		return errors.New("nested or concurrent Update")
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

// rewrite changes the values whose keys begin with a kind.
func (s *singleWriterStore) rewrite(kind string, change func(old []byte) []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, old := range s.values {
		if strings.HasPrefix(key, kind+" ") {
			s.values[key] = change(old)
		}
	}
}

// The authorization server has deleted the client, so that tokens and registration are replaced.
func TestUpdatesAreNotNested(t *testing.T) {
	withEnv(t, func(t *testing.T, w *testEnv) {
		store := newSingleWriterStore()
		tr := w.transport(&oauthclient.TransportOptions{Store: store})
		w.mustPost(tr)
		w.as.revokeAccess()
		w.as.set(func(s *fakeServer) { clear(s.clients) })
		w.mustPost(tr)
		if n := w.as.count("register"); n != 2 || w.loginCount() != 2 {
			t.Errorf("got %d registrations and %d logins, want 2 and 2", n, w.loginCount())
		}
		if s, err := w.unattended(store).Status(t.Context()); s == nil || err != nil {
			t.Errorf("got status %v, error %v; want tokens", s, err)
		}
	})
}

func TestInvalidStoredValuesAreReplaced(t *testing.T) {
	for _, kind := range []string{"server", "tokens", "client"} {
		t.Run(kind, func(t *testing.T) {
			withEnv(t, func(t *testing.T, w *testEnv) {
				store := newSingleWriterStore()
				w.mustPost(w.transport(&oauthclient.TransportOptions{Store: store}))
				invalid := func([]byte) []byte { return []byte("{") }
				store.rewrite(kind, invalid)
				tr := w.transport(&oauthclient.TransportOptions{Store: store})
				if _, _, err := post(tr, t.Context()); (err == nil) != (kind == "client") {
					t.Errorf("request: got error %v, want success %t", err, kind != "client")
				}
				if err := tr.Login(t.Context()); err != nil {
					t.Errorf("Login: got error %v", err)
				}
				w.mustPost(w.unattended(store))
				store.rewrite(kind, invalid)
				tr = w.transport(&oauthclient.TransportOptions{Store: store})
				if err := tr.Logout(t.Context()); err != nil {
					t.Errorf("Logout: got error %v", err)
				}
				if s, err := w.unattended(store).Status(t.Context()); s != nil || err != nil {
					t.Errorf("after Logout: got status %v, error %v; want no tokens", s, err)
				}
			})
		})
	}
}

// Without metadata in the stored record, the client discovers it again.
func TestStoredServerRecordWithoutMetadata(t *testing.T) {
	withEnv(t, func(t *testing.T, w *testEnv) {
		store := newSingleWriterStore()
		w.mustPost(w.transport(&oauthclient.TransportOptions{Store: store}))
		store.rewrite("server", func(old []byte) []byte {
			var record map[string]any
			if err := json.Unmarshal(old, &record); err != nil || record["server"] == nil {
				t.Errorf("got record %s, want one with server metadata", old)
			}
			delete(record, "server")
			text, _ := json.Marshal(record)
			return text
		})
		w.as.revokeAccess()
		w.mustPost(w.transport(&oauthclient.TransportOptions{Store: store}))
		if w.loginCount() != 2 {
			t.Errorf("got %d logins, want 2", w.loginCount())
		}
	})
}
