package authserver

import (
	"cmp"
	"context"
	"crypto/pbkdf2"
	"crypto/rand"
	"crypto/sha512"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

const (
	passwordScheme = "pbkdf2-sha512"
	passwordRounds = 210_000 // recommended by OWASP for PBKDF2 with SHA-512; about 100 ms
	// Fewer rounds than the minimum are too weak, more than the maximum take seconds.
	minPasswordRounds = 100_000
	maxPasswordRounds = 10_000_000
	passwordSaltLen   = 16
	passwordKeyLen    = 32
	// Maximum lengths in bytes, as in the login page.
	maxPassword = 1 << 10
	maxUserName = 256
	// maxPasswordChecks limits concurrent checks. There are fewer if that would take all
	// processors.
	maxPasswordChecks = 2
	// maxPasswordQueue limits the attempts that wait for a check, for about 6 seconds. A longer
	// queue would only delay their refusal.
	maxPasswordQueue = 64
)

// A PasswordUser is a user of [NewPasswordLogin].
type PasswordUser struct {
	// Name is the user name, compared exactly.
	Name string
	// Hash is the hash of the password, from [HashPassword].
	Hash string
	// Scopes are the scopes that the user may grant. They set Subject.Scopes, which must then be
	// nil. Default: all scopes.
	Scopes []string
	// Subject is the subject of the user. The default of its ID and its Name is Name. A name that
	// is used as an ID must never be reassigned to another user.
	Subject Subject
}

// PasswordOptions configures [NewPasswordLogin]. Users or Find is required.
type PasswordOptions struct {
	// Users are the users.
	Users []PasswordUser
	// Find returns a user that is not in Users, or nil. It must be safe for
	// concurrent use. It may be nil.
	Find func(ctx context.Context, name string) (*PasswordUser, error)
}

// NewPasswordLogin returns a [Login] with user name and password. Failed attempts are limited, see
// [LimitOptions]. The check of an unknown user takes as long as that of a wrong password.
func NewPasswordLogin(opts *PasswordOptions) (Login, error) {
	if opts == nil {
		opts = &PasswordOptions{}
	}
	l := &passwordLogin{users: map[string]*passwordUser{}, find: opts.Find}
	checks := max(1, min(maxPasswordChecks, runtime.GOMAXPROCS(0)-1))
	l.known.slots, l.guesses.slots = make(chan struct{}, checks), make(chan struct{}, checks)
	for _, u := range opts.Users {
		parsed, err := parsePasswordUser(u)
		if err != nil {
			return nil, fmt.Errorf("authserver: user %q: %w", u.Name, err)
		}
		if l.users[u.Name] != nil {
			return nil, fmt.Errorf("authserver: duplicate user %q", u.Name)
		}
		l.users[u.Name] = parsed
	}
	if len(l.users) == 0 && l.find == nil {
		return nil, errors.New("authserver: PasswordOptions needs Users or Find")
	}
	return l, nil
}

// HashPassword returns the salted hash of a password for [PasswordUser], with PBKDF2. A password
// contains at most 1024 bytes.
func HashPassword(password string) (string, error) {
	if password == "" || len(password) > maxPassword {
		return "", fmt.Errorf("authserver: invalid password of %d bytes: must have 1 to %d", len(password), maxPassword)
	}
	h := passwordHash{rounds: passwordRounds, salt: make([]byte, passwordSaltLen)}
	_, _ = rand.Read(h.salt) // never fails
	key, err := h.derive(password)
	if err != nil {
		return "", fmt.Errorf("authserver: hash password: %w", err)
	}
	return strings.Join([]string{passwordScheme, strconv.Itoa(h.rounds), encode64(h.salt), encode64(key)}, "$"), nil
}

func encode64(b []byte) string { return base64.RawStdEncoding.EncodeToString(b) }

type passwordHash struct {
	rounds    int
	salt, key []byte
}

func parsePasswordHash(text string) (*passwordHash, error) {
	parts := strings.Split(text, "$")
	if len(parts) != 4 || parts[0] != passwordScheme {
		return nil, errors.New("invalid hash: must come from HashPassword")
	}
	rounds, err := strconv.Atoi(parts[1])
	salt, saltErr := base64.RawStdEncoding.DecodeString(parts[2])
	key, keyErr := base64.RawStdEncoding.DecodeString(parts[3])
	if err != nil || saltErr != nil || keyErr != nil || len(salt) < passwordSaltLen || len(key) != passwordKeyLen {
		return nil, errors.New("invalid hash: must come from HashPassword")
	}
	if rounds < minPasswordRounds || rounds > maxPasswordRounds {
		return nil, fmt.Errorf("invalid hash with %d rounds: must have %d to %d", rounds, minPasswordRounds,
			maxPasswordRounds)
	}
	return &passwordHash{rounds, salt, key}, nil
}

func (h *passwordHash) derive(password string) ([]byte, error) {
	return pbkdf2.Key(sha512.New, password, h.salt, h.rounds, passwordKeyLen)
}

type passwordUser struct {
	subject Subject
	hash    *passwordHash
}

func parsePasswordUser(u PasswordUser) (*passwordUser, error) {
	if u.Name == "" || len(u.Name) > maxUserName {
		return nil, fmt.Errorf("invalid name of %d bytes: must have 1 to %d", len(u.Name), maxUserName)
	}
	if u.Subject.ProviderGrant != "" {
		return nil, errors.New("Subject.ProviderGrant must be empty")
	}
	if u.Scopes != nil && u.Subject.Scopes != nil {
		return nil, errors.New("Scopes and Subject.Scopes must not both be set")
	}
	if u.Scopes != nil {
		u.Subject.Scopes = slices.Clone(u.Scopes)
	}
	for _, name := range u.Subject.Scopes {
		if !isScope(name) {
			return nil, fmt.Errorf("invalid scope name %q", name)
		}
	}
	hash, err := parsePasswordHash(u.Hash)
	if err != nil {
		return nil, err
	}
	u.Subject.ID = cmp.Or(u.Subject.ID, u.Name)
	u.Subject.Name = cmp.Or(u.Subject.Name, u.Name)
	return &passwordUser{u.Subject, hash}, nil
}

type passwordLogin struct {
	users map[string]*passwordUser
	find  func(context.Context, string) (*PasswordUser, error)
	// Attempts from an address at which the user logged in before do not wait for the others,
	// most of which are guesses in an attack.
	known, guesses passwordQueue
}

// A passwordQueue bounds the attempts that are checked concurrently, and the attempts that wait.
type passwordQueue struct {
	slots chan struct{} // semaphore
	total atomic.Int32  // attempts that wait or are being checked
}

var errPasswordQueue = errors.New("too many passwords wait to be checked")

// enter waits for a slot. The caller calls leave when it returns nil.
func (q *passwordQueue) enter(ctx context.Context) error {
	if int(q.total.Add(1)) > cap(q.slots)+maxPasswordQueue {
		q.total.Add(-1)
		return errPasswordQueue
	}
	select {
	case q.slots <- struct{}{}:
		return nil
	case <-ctx.Done():
		q.total.Add(-1)
		return context.Cause(ctx)
	}
}

func (q *passwordQueue) leave() {
	<-q.slots
	q.total.Add(-1)
}

// Login serves the login page and its form.
func (p *passwordLogin) Login(w http.ResponseWriter, r *http.Request, l *LoginRequest) {
	if r.Method != http.MethodPost {
		p.show(w, l, http.StatusOK, "", "")
		return
	}
	if formValue(r, paramDecision) == decisionDeny {
		l.Fail(w, r, codeAccessDenied, "the user canceled the login")
		return
	}
	name, password := formValue(r, "username"), formValue(r, "password")
	if name == "" || password == "" || len(name) > maxUserName || len(password) > maxPassword {
		p.show(w, l, http.StatusUnauthorized, shownName(name), "User name or password is wrong.")
		return
	}
	giveBack, ok := l.s.limits.takePassword(w, r, name)
	if !ok {
		p.show(w, l, http.StatusTooManyRequests, shownName(name),
			"There were too many attempts. Wait a few minutes, then try again.")
		return
	}
	queue := &p.guesses
	if l.s.limits.knownAddress(r, name).isKnown() {
		queue = &p.known
	}
	subject, err := p.check(r.Context(), queue, name, password)
	switch {
	case err != nil:
		giveBack()
		if errors.Is(err, errPasswordQueue) {
			setRetryAfter(w, time.Second)
		} else {
			l.s.log.ErrorContext(r.Context(), "authorization server: password check failed", "error", err)
		}
		p.show(w, l, http.StatusServiceUnavailable, shownName(name),
			"Logging in is not possible at the moment. Try again later.")
	case subject == nil:
		l.s.log.InfoContext(r.Context(), "authorization server: wrong user name or password", "address",
			l.s.limits.address(r))
		p.show(w, l, http.StatusUnauthorized, shownName(name), "User name or password is wrong.")
	default:
		giveBack()
		l.s.limits.knownAddress(r, name).remember()
		l.Finish(w, r, *subject)
	}
}

func (p *passwordLogin) show(w http.ResponseWriter, l *LoginRequest, status int, user, failure string) {
	form := &passwordForm{l.s.pageForm("Log in", pathLogin, l.in, l.client.Name), user, failure}
	writePage(w, status, form.pageHead, form.html(), l.s.formTargets(l.in.Redirect))
}

// check returns nil if the user is unknown or the password is wrong.
func (p *passwordLogin) check(ctx context.Context, q *passwordQueue, name, password string) (*Subject, error) {
	user := p.users[name]
	if user == nil && p.find != nil {
		found, err := p.find(ctx, name)
		if err != nil {
			return nil, err
		}
		if found != nil {
			if user, err = parsePasswordUser(*found); err != nil {
				return nil, err
			}
		}
	}
	hash := p.decoy()
	if user != nil {
		hash = user.hash
	}
	if err := q.enter(ctx); err != nil {
		return nil, err
	}
	defer q.leave()
	key, err := hash.derive(password)
	if err != nil {
		return nil, err
	}
	if subtle.ConstantTimeCompare(key, hash.key) != 1 || user == nil {
		return nil, nil //nolint:nilnil // a wrong password is a result, not an error
	}
	return &user.subject, nil
}

// decoy returns a hash for unknown users, whose check takes as long as the check of a real hash.
func (p *passwordLogin) decoy() *passwordHash {
	h := &passwordHash{salt: make([]byte, passwordSaltLen), key: make([]byte, passwordKeyLen)}
	for _, u := range p.users {
		h.rounds = max(h.rounds, u.hash.rounds)
	}
	h.rounds = cmp.Or(h.rounds, passwordRounds)
	return h
}

// takePassword counts a password attempt against the address, against the user and address
// together, and against the user from all addresses, so that many addresses help an attacker
// little. Someone who shares the user's address can lock the user out there. Someone with many
// addresses can lock the user out too, except at the addresses of earlier logins, whose attempts
// are counted apart. If the attempt was not a wrong guess, giveBack reverts the count. If there are
// no attempts left, takePassword sets Retry-After and returns false.
func (l *limits) takePassword(w http.ResponseWriter, r *http.Request, name string) (giveBack func(), ok bool) {
	user := hashKey(name)
	byUser := l.cost(limitUser, user)
	if known := l.knownAddress(r, name); known.isKnown() {
		byUser = known
	}
	costs := append(l.costsByAddress(r, limitPasswords, ""), l.costsByAddress(r, limitUserAddress, " "+user)...)
	costs = append(costs, byUser)
	if wait, ok := reserveAll(costs); !ok {
		setRetryAfter(w, wait)
		return nil, false
	}
	return func() { refund(costs) }, true
}

// knownAddress returns the cost of an attempt from an address that the user logged in from.
func (l *limits) knownAddress(r *http.Request, name string) cost {
	return l.cost(limitUserKnownAddress, l.address(r)+" "+hashKey(name))
}
