package authserver_test

import (
	"context"
	"crypto/pbkdf2"
	"crypto/sha512"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/oauth/authserver"
)

// passwordHash returns a hash of alice's password with the fewest rounds that are taken, since it takes
// its time nevertheless.
var passwordHash = sync.OnceValues(func() (string, error) {
	salt := []byte("sixteen bytes of")
	key, err := pbkdf2.Key(sha512.New, "correct horse", salt, 100_000, 32)
	return "pbkdf2-sha512$100000$" + base64.RawStdEncoding.EncodeToString(salt) + "$" + base64.RawStdEncoding.EncodeToString(key), err
})

func withPasswords(t *testing.T) func(*authserver.Options) {
	t.Helper()
	hash, err := passwordHash()
	if err != nil {
		t.Fatal(err)
	}
	return func(o *authserver.Options) {
		login, err := authserver.NewPasswordLogin(&authserver.PasswordOptions{Users: []authserver.PasswordUser{{Name: "alice", Hash: hash}}})
		if err != nil {
			t.Fatal(err)
		}
		o.Login = login
	}
}

// passwordForm goes to the form of the login.
func (b *browser) passwordForm() url.Values {
	b.w.t.Helper()
	_, form := b.consentPage(authorizeQuery())
	res := b.get(b.decide(form, "allow").Header.Get("Location"))
	if res.StatusCode != http.StatusOK || !strings.Contains(res.body, `name="password"`) || !strings.Contains(res.body,
		form.Get("csrf")) {
		b.w.t.Fatalf("login: %s %s", res.Status, res.body)
	}
	return form
}

func (b *browser) submitPassword(form url.Values, user, password string) response {
	b.w.t.Helper()
	form = maps.Clone(form)
	form.Set("username", user)
	form.Set("password", password)
	return b.submit("/login", form)
}

func TestPasswordLogin(t *testing.T) {
	w := newEnv(t, withPasswords(t))
	b := w.browser()
	form := b.passwordForm()
	for _, wrong := range [][2]string{{"alice", "incorrect horse"}, {"bob", "correct horse"}, {"Alice",
		"correct horse"}, {"alice", ""}, {"", ""}, {"alice", strings.Repeat("x", 2000)}} {
		res := b.submitPassword(form, wrong[0], wrong[1])
		if res.StatusCode != http.StatusUnauthorized || !strings.Contains(res.body, "User name or password is wrong.") {
			t.Errorf("%q: %s", wrong, res.Status)
		}
		if wrong[1] != "" && strings.Contains(res.body, wrong[1]) {
			t.Errorf("%q: the page repeats the password", wrong)
		}
	}
	answer := b.redirectQuery(b.submitPassword(form, "alice", "correct horse"))
	got := w.tokensOf(w.post("/token", exchangeForm(answer.Get("code"))))
	if token, err := w.verify(got.Access); err != nil || token.Subject != "alice" {
		t.Errorf("token %+v, %v", token, err)
	}
	if res := b.submitPassword(form, "alice", "correct horse"); res.StatusCode != http.StatusBadRequest {
		t.Errorf("a second time: %s", res.Status)
	}
}

func TestPasswordLoginBelongsToItsBrowserAndForm(t *testing.T) {
	w := newEnv(t, withPasswords(t))
	b := w.browser()
	form := b.passwordForm()
	if res := w.browser().submitPassword(form, "alice", "correct horse"); res.StatusCode != http.StatusBadRequest {
		t.Errorf("from another browser: %s", res.Status)
	}
	bad := maps.Clone(form)
	bad.Set("csrf", "x")
	if res := b.submitPassword(bad, "alice", "correct horse"); res.StatusCode != http.StatusForbidden {
		t.Errorf("without the token of the form: %s", res.Status)
	}
	form.Set("decision", "deny")
	if answer := b.redirectQuery(b.submit("/login", form)); answer.Get("error") != "access_denied" {
		t.Errorf("cancelled: %v", answer)
	}
}

func TestR7510_PasswordsCannotBeGuessed(t *testing.T) {
	change := withPasswords(t)
	synctest.Test(t, func(t *testing.T) {
		w := newInProcessEnv(t, change)
		b := w.browser()
		form := b.passwordForm()
		var all sync.WaitGroup
		var mu sync.Mutex
		count := map[int]int{}
		for range 12 { // at once, so that none waits for what came of another
			all.Go(func() {
				res := b.submitPassword(form, "alice", "wrong")
				mu.Lock()
				defer mu.Unlock()
				count[res.StatusCode]++
			})
		}
		all.Wait()
		if count[http.StatusUnauthorized] != 5 || count[http.StatusTooManyRequests] != 7 {
			t.Errorf("12 attempts ended as %v, want 5 checked", count)
		}
		if res := b.submitPassword(form, "alice", "correct horse"); res.StatusCode != http.StatusTooManyRequests ||
			res.Header.Get("Retry-After") == "" {
			t.Errorf("the right one after that: %s, Retry-After %q", res.Status, res.Header.Get("Retry-After"))
		}
		time.Sleep(2 * time.Minute)
		if answer := b.redirectQuery(b.submitPassword(form, "alice", "correct horse")); answer.Get("code") == "" {
			t.Errorf("the right one two minutes later: %v", answer)
		}
		// Successful logins are not counted.
		for range 6 {
			b := w.browser()
			if answer := b.redirectQuery(b.submitPassword(b.passwordForm(), "alice", "correct horse")); answer.Get("code") == "" {
				t.Fatalf("a right one: %v", answer)
			}
		}
	})
}

// Wrong passwords from many addresses lock a user out, but not from where she has logged in before.
func TestKnownAddressIsNotLockedOut(t *testing.T) {
	change := withPasswords(t)
	synctest.Test(t, func(t *testing.T) {
		w := newInProcessEnv(t, change)
		const home, away = "192.0.2.9:1", "192.0.2.10:1"
		logIn := func(address string) int {
			b := w.browser()
			b.client.Transport = addressTransport{w.server, address}
			res := b.submitPassword(b.passwordForm(), "alice", "correct horse")
			return res.StatusCode
		}
		if got := logIn(home); got != http.StatusSeeOther {
			t.Fatalf("at home: %d", got)
		}
		guesses := 0
		for n := range 30 { // one network of a customer is not enough
			for authserver.AllowPasswordAttempt(w.server, fmt.Sprintf("[2001:db8:0:%x::1]:1", n), "alice") {
				guesses++
			}
		}
		if guesses != 20 {
			t.Errorf("a network has %d guesses for one user, want 20", guesses)
		}
		if got := logIn(away); got != http.StatusSeeOther {
			t.Errorf("after the guesses of one network, away from home: %d", got)
		}
		for n := range 30 {
			for authserver.AllowPasswordAttempt(w.server, fmt.Sprintf("198.51.100.%d:1", n), "alice") {
				guesses++
			}
		}
		if guesses < 100 || guesses > 105 {
			t.Errorf("many networks have %d guesses for one user, want some 100", guesses)
		}
		if got := logIn("203.0.113.1:1"); got != http.StatusTooManyRequests {
			t.Errorf("then where she has never been: %d", got)
		}
		for _, address := range []string{home, away} {
			if got := logIn(address); got != http.StatusSeeOther {
				t.Errorf("then from %s: %d", address, got)
			}
		}
		// Another address gets no additional guesses.
		wrong := 0
		for authserver.AllowPasswordAttempt(w.server, home, "alice") {
			wrong++
		}
		if wrong != 5 {
			t.Errorf("from home there are %d guesses, want 5", wrong)
		}
	})
}

// at is [handlerTransport] from another address.
type addressTransport struct {
	handler http.Handler
	address string
}

func (a addressTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	return handlerTransport{http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.RemoteAddr = a.address
		a.handler.ServeHTTP(w, r)
	})}.RoundTrip(req)
}

func TestUsersFromFind(t *testing.T) {
	hash, err := passwordHash()
	if err != nil {
		t.Fatal(err)
	}
	login, err := authserver.NewPasswordLogin(&authserver.PasswordOptions{Find: func(_ context.Context,
		name string) (*authserver.PasswordUser, error) {
		switch name {
		case "carol":
			return &authserver.PasswordUser{Name: name, Hash: hash, Subject: authserver.Subject{ID: "17",
				Name: "Carol"}}, nil
		case "broken":
			return nil, errors.New("the database is away: secret detail")
		}
		return nil, nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	w := newEnv(t, func(o *authserver.Options) { o.Login = login })
	b := w.browser()
	form := b.passwordForm()
	if res := b.submitPassword(form, "dave", "correct horse"); res.StatusCode != http.StatusUnauthorized {
		t.Errorf("nobody: %s", res.Status)
	}
	if res := b.submitPassword(form, "broken", "correct horse"); res.StatusCode != http.StatusServiceUnavailable ||
		strings.Contains(res.body, "secret detail") {
		t.Errorf("a failure: %s %s", res.Status, res.body)
	}
	answer := b.redirectQuery(b.submitPassword(form, "carol", "correct horse"))
	got := w.tokensOf(w.post("/token", exchangeForm(answer.Get("code"))))
	if token, err := w.verify(got.Access); err != nil || token.Subject != "17" {
		t.Errorf("token %+v, %v", token, err)
	}
}

func TestInvalidPasswordUsers(t *testing.T) {
	hash, err := passwordHash()
	if err != nil {
		t.Fatal(err)
	}
	one, _ := authserver.HashPassword("correct horse")
	two, _ := authserver.HashPassword("correct horse")
	if one == two || strings.Contains(one, "horse") {
		t.Errorf("two hashes of one password are %s and %s", one, two)
	}
	if _, err := authserver.NewPasswordLogin(&authserver.PasswordOptions{Users: []authserver.PasswordUser{{Name: "a",
		Hash: one}}}); err != nil {
		t.Errorf("a hash of ours: %v", err)
	}
	for name, users := range map[string][]authserver.PasswordUser{
		"none":       nil,
		"no name":    {{Hash: hash}},
		"no hash":    {{Name: "a"}},
		"a password": {{Name: "a", Hash: "correct horse"}},
		"few rounds": {{Name: "a", Hash: strings.Replace(hash, "$100000$", "$1000$", 1)}},
		"many":       {{Name: "a", Hash: strings.Replace(hash, "$100000$", "$999999999$", 1)}},
		"short key":  {{Name: "a", Hash: hash[:len(hash)-4]}},
		"twice":      {{Name: "a", Hash: hash}, {Name: "a", Hash: hash}},
	} {
		if _, err := authserver.NewPasswordLogin(&authserver.PasswordOptions{Users: users}); err == nil ||
			strings.Contains(err.Error(), "horse") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := authserver.HashPassword(""); err == nil {
		t.Error("an empty password is hashed")
	}
}
