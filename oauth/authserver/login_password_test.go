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
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/oauth/authserver"
)

// passwordHash returns a hash of alice's password with the minimum number of rounds. It is computed
// once, because it takes long.
var passwordHash = sync.OnceValues(func() (string, error) {
	salt := []byte("sixteen bytes of")
	key, err := pbkdf2.Key(sha512.New, "correct horse", salt, 100_000, 32)
	encode := base64.RawStdEncoding.EncodeToString
	return "pbkdf2-sha512$100000$" + encode(salt) + "$" + encode(key), err
})

func withPasswords(t *testing.T) func(*authserver.Options) {
	t.Helper()
	hash, err := passwordHash()
	if err != nil {
		t.Fatal(err)
	}
	return func(o *authserver.Options) {
		users := []authserver.PasswordUser{{Name: "alice", Hash: hash}}
		login, err := authserver.NewPasswordLogin(&authserver.PasswordOptions{Users: users})
		if err != nil {
			t.Fatal(err)
		}
		o.Login = login
	}
}

// passwordForm consents and returns the hidden fields of the login page.
func (b *browser) passwordForm() url.Values {
	b.w.t.Helper()
	_, form := b.consentPage(authorizeQuery())
	res := b.get(b.decide(form, "allow").Header.Get("Location"))
	if res.StatusCode != http.StatusOK || !strings.Contains(res.body, `name="password"`) ||
		!strings.Contains(res.body, form.Get("csrf")) {
		b.w.t.Fatalf("login page: %s %s, want 200 with a password field", res.Status, res.body)
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

func TestPasswordLoginNeedsTheRightPassword(t *testing.T) {
	w := newEnv(t, withPasswords(t))
	b := w.browser()
	form := b.passwordForm()
	for _, wrong := range [][2]string{
		{"alice", "incorrect horse"}, {"bob", "correct horse"}, {"Alice", "correct horse"}, {"alice", ""}, {"", ""},
		{"alice", strings.Repeat("x", 2000)},
	} {
		res := b.submitPassword(form, wrong[0], wrong[1])
		if res.StatusCode != http.StatusUnauthorized || !strings.Contains(res.body, "User name or password is wrong.") {
			t.Errorf("%q: %s, want 401 and the form again", wrong, res.Status)
		}
		if wrong[1] != "" && strings.Contains(res.body, wrong[1]) {
			t.Errorf("%q: the page contains the password", wrong)
		}
	}
	answer := b.redirectQuery(b.submitPassword(form, "alice", "correct horse"))
	got := w.tokensOf(w.post("/token", exchangeForm(answer.Get("code"))))
	if token, err := w.verify(got.Access); err != nil || token.Subject != "alice" {
		t.Errorf("token is %+v, %v, want subject alice", token, err)
	}
	if res := b.submitPassword(form, "alice", "correct horse"); res.StatusCode != http.StatusBadRequest {
		t.Errorf("second login with the form: %s, want 400", res.Status)
	}
}

func TestPasswordLoginNeedsItsBrowserAndCSRFToken(t *testing.T) {
	w := newEnv(t, withPasswords(t))
	b := w.browser()
	form := b.passwordForm()
	if res := w.browser().submitPassword(form, "alice", "correct horse"); res.StatusCode != http.StatusBadRequest {
		t.Errorf("from another browser: %s, want 400", res.Status)
	}
	bad := maps.Clone(form)
	bad.Set("csrf", "x")
	if res := b.submitPassword(bad, "alice", "correct horse"); res.StatusCode != http.StatusForbidden {
		t.Errorf("with a wrong CSRF token: %s, want 403", res.Status)
	}
	form.Set("decision", "deny")
	if answer := b.redirectQuery(b.submit("/login", form)); answer.Get("error") != "access_denied" {
		t.Errorf("canceled: %v, want access_denied", answer)
	}
}

func TestPasswordAttemptsAreLimited(t *testing.T) {
	change := withPasswords(t)
	synctest.Test(t, func(t *testing.T) {
		w := newInProcessEnv(t, change)
		b := w.browser()
		form := b.passwordForm()
		var all sync.WaitGroup
		var mu sync.Mutex
		count := map[int]int{}
		for range 12 { // concurrently: an attempt counts before its result is known
			all.Go(func() {
				res := b.submitPassword(form, "alice", "wrong")
				mu.Lock()
				defer mu.Unlock()
				count[res.StatusCode]++
			})
		}
		all.Wait()
		if count[http.StatusUnauthorized] != 5 || count[http.StatusTooManyRequests] != 7 {
			t.Errorf("statuses of 12 attempts are %v, want 5 of 401 and 7 of 429", count)
		}
		if res := b.submitPassword(form, "alice", "correct horse"); res.StatusCode != http.StatusTooManyRequests ||
			res.Header.Get("Retry-After") == "" {
			t.Errorf("right password after that: %s, Retry-After %q, want 429 and a time", res.Status,
				res.Header.Get("Retry-After"))
		}
		time.Sleep(2 * time.Minute)
		if answer := b.redirectQuery(b.submitPassword(form, "alice", "correct horse")); answer.Get("code") == "" {
			t.Errorf("right password two minutes later: %v, want a code", answer)
		}
		// Successful logins are not counted.
		for range 6 {
			b := w.browser()
			answer := b.redirectQuery(b.submitPassword(b.passwordForm(), "alice", "correct horse"))
			if answer.Get("code") == "" {
				t.Fatalf("right password: %v, want a code", answer)
			}
		}
	})
}

// Wrong passwords from many addresses lock a user out, except from addresses of earlier logins.
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
			t.Fatalf("login from home: status %d, want 303", got)
		}
		guesses := 0
		for n := range 30 { // from one /48
			for authserver.AllowPasswordAttempt(w.server, fmt.Sprintf("[2001:db8:0:%x::1]:1", n), "alice") {
				guesses++
			}
		}
		if guesses != 20 {
			t.Errorf("one network has %d attempts for one user, want 20", guesses)
		}
		if got := logIn(away); got != http.StatusSeeOther {
			t.Errorf("login from a new address after the attempts of one network: status %d, want 303", got)
		}
		for n := range 30 {
			for authserver.AllowPasswordAttempt(w.server, fmt.Sprintf("198.51.100.%d:1", n), "alice") {
				guesses++
			}
		}
		if guesses < 100 || guesses > 105 {
			t.Errorf("many networks have %d attempts for one user, want 100 to 105", guesses)
		}
		if got := logIn("203.0.113.1:1"); got != http.StatusTooManyRequests {
			t.Errorf("login from a new address after that: status %d, want 429", got)
		}
		for _, address := range []string{home, away} {
			if got := logIn(address); got != http.StatusSeeOther {
				t.Errorf("login from %s after that: status %d, want 303", address, got)
			}
		}
		// A known address has no additional attempts.
		wrong := 0
		for authserver.AllowPasswordAttempt(w.server, home, "alice") {
			wrong++
		}
		if wrong != 5 {
			t.Errorf("from home there are %d attempts, want 5", wrong)
		}
	})
}

// An addressTransport is a [handlerTransport] whose requests come from another address.
type addressTransport struct {
	handler http.Handler
	address string
}

func (a addressTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	return handlerTransport{http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.RemoteAddr = a.address
		a.handler.ServeHTTP(w, r)
	}), "192.0.2.1"}.RoundTrip(req)
}

func TestPasswordUsersFromFind(t *testing.T) {
	hash, err := passwordHash()
	if err != nil {
		t.Fatal(err)
	}
	find := func(_ context.Context, name string) (*authserver.PasswordUser, error) {
		switch name {
		case "carol":
			subject := authserver.Subject{ID: "17", Name: "Carol"}
			return &authserver.PasswordUser{Name: name, Hash: hash, Subject: subject}, nil
		case "broken":
			return nil, errors.New("the database is unavailable: secret detail")
		}
		return nil, nil
	}
	login, err := authserver.NewPasswordLogin(&authserver.PasswordOptions{Find: find})
	if err != nil {
		t.Fatal(err)
	}
	w := newEnv(t, func(o *authserver.Options) { o.Login = login })
	b := w.browser()
	form := b.passwordForm()
	if res := b.submitPassword(form, "dave", "correct horse"); res.StatusCode != http.StatusUnauthorized {
		t.Errorf("unknown user: %s, want 401", res.Status)
	}
	if res := b.submitPassword(form, "broken", "correct horse"); res.StatusCode != http.StatusServiceUnavailable ||
		strings.Contains(res.body, "secret detail") {
		t.Errorf("error of Find: %s %s, want 503 without the error", res.Status, res.body)
	}
	answer := b.redirectQuery(b.submitPassword(form, "carol", "correct horse"))
	got := w.tokensOf(w.post("/token", exchangeForm(answer.Get("code"))))
	if token, err := w.verify(got.Access); err != nil || token.Subject != "17" {
		t.Errorf("token is %+v, %v, want subject 17", token, err)
	}
}

func TestInvalidPasswordUsersAreErrors(t *testing.T) {
	hash, err := passwordHash()
	if err != nil {
		t.Fatal(err)
	}
	one, _ := authserver.HashPassword("correct horse")
	two, _ := authserver.HashPassword("correct horse")
	if one == two || strings.Contains(one, "horse") {
		t.Errorf("two hashes of one password are %s and %s, want different ones", one, two)
	}
	valid := []authserver.PasswordUser{{Name: "a", Hash: one}}
	if _, err := authserver.NewPasswordLogin(&authserver.PasswordOptions{Users: valid}); err != nil {
		t.Errorf("with a hash of HashPassword: %v", err)
	}
	for name, users := range map[string][]authserver.PasswordUser{
		"no users":    nil,
		"no name":     {{Hash: hash}},
		"no hash":     {{Name: "a"}},
		"a password":  {{Name: "a", Hash: "correct horse"}},
		"few rounds":  {{Name: "a", Hash: strings.Replace(hash, "$100000$", "$1000$", 1)}},
		"many rounds": {{Name: "a", Hash: strings.Replace(hash, "$100000$", "$999999999$", 1)}},
		"short key":   {{Name: "a", Hash: hash[:len(hash)-4]}},
		"user twice":  {{Name: "a", Hash: hash}, {Name: "a", Hash: hash}},
	} {
		if _, err := authserver.NewPasswordLogin(&authserver.PasswordOptions{Users: users}); err == nil ||
			strings.Contains(err.Error(), "horse") {
			t.Errorf("%s: got %v, want an error without the password", name, err)
		}
	}
	if _, err := authserver.HashPassword(""); err == nil {
		t.Error("HashPassword of an empty password returned no error")
	}
}

// Guesses from many addresses neither delay a user at the address of an earlier login nor wait in a
// queue without a limit.
func TestPasswordGuessesDoNotDelayLoginsFromKnownAddresses(t *testing.T) {
	change := withPasswords(t)
	synctest.Test(t, func(t *testing.T) {
		var login authserver.Login
		w := newInProcessEnv(t, func(o *authserver.Options) {
			change(o)
			login = o.Login
		})
		home := w.from("192.0.2.1").browser()
		home.submitPassword(home.passwordForm(), "alice", "correct horse")
		form := home.passwordForm()
		checks, release := authserver.HoldPasswordGuesses(login)
		if most := max(1, runtime.GOMAXPROCS(0)-1); checks > most {
			t.Errorf("%d guesses are checked at the same time, want at most %d: one processor stays free", checks, most)
		}
		defer release()
		const attempts = 150
		ctx, giveUp := context.WithCancel(t.Context()) // to check the passwords of all guesses takes long
		var statuses [600]atomic.Int32
		var flood sync.WaitGroup
		for i := range attempts {
			b := w.from(fmt.Sprintf("198.51.100.%d", i)).browser()
			guess := b.passwordForm()
			guess.Set("username", fmt.Sprint("mallory", i)) // one name would reach the limit for a user
			guess.Set("password", "guess")
			r := w.request(http.MethodPost, "/login", guess.Encode(), "Content-Type", "application/x-www-form-urlencoded")
			flood.Go(func() { statuses[w.send(b.client, r.WithContext(ctx)).StatusCode].Add(1) })
		}
		synctest.Wait()
		busy := statuses[http.StatusServiceUnavailable].Load()
		if busy < attempts/3 || busy == attempts {
			t.Errorf("%d of %d guesses were refused as busy, want at least %d, and that others wait", busy, attempts, attempts/3)
		}
		if code := home.redirectQuery(home.submitPassword(form, "alice", "correct horse")).Get("code"); code == "" {
			t.Error("the login from a known address has no code")
		}
		if got := statuses[http.StatusServiceUnavailable].Load(); got != busy {
			t.Errorf("%d guesses ended before the login, want none", got-busy)
		}
		giveUp()
		flood.Wait()
		if got := statuses[http.StatusServiceUnavailable].Load(); got != attempts {
			t.Errorf("%d of %d guesses were not checked, want all", got, attempts)
		}
	})
}
