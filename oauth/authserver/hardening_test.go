package authserver_test

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/oauth/authserver"
)

// A writeCounter counts the calls that can write.
type writeCounter struct {
	authserver.Store
	writes atomic.Int32
}

func (s *writeCounter) Put(ctx context.Context, kind, key string, value []byte, expires time.Time) error {
	s.writes.Add(1)
	return s.Store.Put(ctx, kind, key, value, expires)
}

func (s *writeCounter) Update(ctx context.Context, kind, key string,
	change func([]byte) ([]byte, time.Time, error)) error {
	s.writes.Add(1)
	return s.Store.Update(ctx, kind, key, change)
}

func TestUnknownCodesWriteNothing(t *testing.T) {
	store := &writeCounter{Store: authserver.NewMemoryStore()}
	w := newInProcessEnv(t, func(o *authserver.Options) { o.Store = store })
	store.writes.Store(0)
	w.post("/token", exchangeForm("unknown")).wantError(t, http.StatusBadRequest, "invalid_grant")
	w.post("/token", refreshForm("unknown")).wantError(t, http.StatusBadRequest, "invalid_grant")
	if n := store.writes.Load(); n != 0 {
		t.Errorf("guesses of a code and a refresh token: %d writes, want 0", n)
	}
}

func TestAccessTokensEndWithTheirClient(t *testing.T) {
	store := authserver.NewMemoryStore()
	o := options("https://as.example")
	o.Store = store
	w := &env{t, newServer(t, o), o.Issuer, nil}
	w = w.from("192.0.2.1")
	id := w.registerPublic(publicURI)
	registered := w.tokensOf(w.post("/token", exchangeForm(w.code("client_id", id), "client_id", id))).Access
	configured := w.login().Access
	w.wantValid(registered, "while the client is registered")
	w.wantValid(configured, "while the client is configured")
	if _, err := store.GetAndDelete(t.Context(), "client", id); err != nil {
		t.Fatal(err)
	}
	w.wantInvalid(registered, "when the registration was removed")
	o.Clients = o.Clients[1:] // without the public client
	w.server = newServer(t, o)
	w.wantInvalid(configured, "when the client was removed from Options.Clients")
}

// A body fails the test if it is read.
type unreadBody struct{ t *testing.T }

func (b unreadBody) Read([]byte) (int, error) {
	b.t.Error("the body was read")
	return 0, io.EOF
}

func TestNoBodyIsReadWithAWrongAuthorizationHeader(t *testing.T) {
	w := newInProcessEnv(t, nil)
	for _, path := range []string{"/token", "/revoke", "/introspect"} {
		for name, header := range map[string][]string{
			"wrong secret":   {"Basic " + basic(secretID, "wrong")},
			"unknown client": {"Basic " + basic("unknown", secret)},
			"other scheme":   {"Bearer x"},
			"two headers":    {"Basic " + basic(secretID, secret), "Basic " + basic(secretID, secret)},
		} {
			req := w.request(http.MethodPost, path, "", "Content-Type", "application/x-www-form-urlencoded")
			req.Body, req.ContentLength = io.NopCloser(unreadBody{t}), 1000
			req.Header["Authorization"] = header
			res := w.send(&http.Client{Transport: w.base}, req)
			if res.StatusCode != http.StatusUnauthorized && len(header) == 1 || res.StatusCode < 400 {
				t.Errorf("%s, %s: %s, want a refusal", path, name, res.Status)
			}
		}
	}
}

// The first click of a double-click can close a window that covers the page. The page has no
// scripts, so a style prevents that the second click reaches a button.
func TestConsentButtonsIgnoreTheSecondClickOfADoubleClick(t *testing.T) {
	w := newInProcessEnv(t, nil)
	page, _ := w.browser().consentPage(authorizeQuery())
	for _, part := range []string{
		`<div class="actions guarded">`, `<span class="guard" aria-hidden="true"></span>`,
		`main:hover .guard { visibility: hidden; transition: visibility 0s .8s; }`,
	} {
		if !strings.Contains(page.body, part) {
			t.Errorf("the consent page lacks %s", part)
		}
	}
}

func TestLoginShowsAResourceOfAnotherHost(t *testing.T) {
	for _, c := range []struct {
		resource string
		shown    bool
	}{{resource, true}, {"https://as.example/mcp", false}} {
		w := newInProcessEnv(t, func(o *authserver.Options) {
			o.Resources[0].URL, o.Login, o.Clients[3].Introspects = c.resource, newPasswordLogin(t), nil
		})
		b := w.browser()
		_, form := b.consentPage(authorizeQuery("resource", c.resource))
		page := b.get(b.decide(form, "allow").Header.Get("Location"))
		if got := strings.Contains(page.body, c.resource); got != c.shown || page.StatusCode != http.StatusOK {
			t.Errorf("%s: %s, the login page has its URL: %v, want %v", c.resource, page.Status, got, c.shown)
		}
	}
}

func newPasswordLogin(t *testing.T) authserver.Login {
	t.Helper()
	hash, err := passwordHash()
	if err != nil {
		t.Fatal(err)
	}
	login, err := authserver.NewPasswordLogin(&authserver.PasswordOptions{
		Users: []authserver.PasswordUser{{Name: "alice", Hash: hash}}})
	if err != nil {
		t.Fatal(err)
	}
	return login
}

// A fileStore claims to be in a file.
type fileStore struct {
	authserver.Store
	path string
}

func (s fileStore) Path() string { return s.path }

func TestSealKeysBesideTheStoreAreReported(t *testing.T) {
	data, secrets := t.TempDir(), t.TempDir()
	load := func(dir string) []authserver.SealKey {
		keys, err := authserver.LoadSealKeys(filepath.Join(dir, "keys"))
		if err != nil {
			t.Fatal(err)
		}
		return keys
	}
	load(data) // creates the file; the second call reads it
	inFile := func() authserver.Store {
		return fileStore{authserver.NewMemoryStore(), filepath.Join(data, "auth.db")}
	}
	for name, c := range map[string]struct {
		store authserver.Store
		keys  []authserver.SealKey
		warns bool
	}{
		"same directory":    {inFile(), load(data), true},
		"another directory": {inFile(), load(secrets), false},
		"key in the store":  {inFile(), nil, true},
		"store in memory":   {authserver.NewMemoryStore(), nil, false},
	} {
		var log bytes.Buffer
		o := options("https://as.example")
		o.Store, o.SealKeys, o.Logger = c.store, c.keys, slog.New(slog.NewTextHandler(&log, nil))
		newServer(t, o)
		if got := strings.Contains(log.String(), "level=WARN"); got != c.warns {
			t.Errorf("%s: log is %q, want a warning: %v", name, log.String(), c.warns)
		}
		if strings.Count(log.String(), "\n") > 1 {
			t.Errorf("%s: log is %q, want one line", name, log.String())
		}
	}
}

func basic(id, secret string) string {
	req := http.Request{Header: http.Header{}}
	req.SetBasicAuth(url.QueryEscape(id), url.QueryEscape(secret))
	return strings.TrimPrefix(req.Header.Get("Authorization"), "Basic ")
}
