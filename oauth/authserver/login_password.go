package authserver

import (
	"context"
	"crypto/pbkdf2"
	"crypto/rand"
	"crypto/sha512"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

const (
	passwordScheme = "pbkdf2-sha512"
	// passwordRounds is what OWASP recommends for PBKDF2 with SHA-512. It takes some 100 ms.
	passwordRounds = 210_000
	// Fewer rounds than the least are no protection, more than the most keep the processor busy for seconds.
	minPasswordRounds = 100_000
	maxPasswordRounds = 10_000_000
	passwordSaltLen   = 16
	passwordKeyLen    = 32
	// maxPassword and maxUserName are how long these may be, in bytes: the page lets nobody type more.
	maxPassword = 1 << 10
	maxUserName = 256
	// passwordsAtOnce is how many passwords are checked at a time, so that guessing leaves a processor for the rest.
	passwordsAtOnce = 2
)

// A PasswordUser is somebody who logs in with a password.
type PasswordUser struct {
	// Name is what the user types, exactly.
	Name string
	// Hash is that of the password, from [HashPassword].
	Hash string
	// Scopes are what the user may allow clients at most: [Subject.Scopes], which is not set then. Default: every scope.
	Scopes []string
	// Subject is who the user is. Default of its ID: Name, which then must never be given to somebody else; of its Name:
	// Name.
	Subject Subject
}

// PasswordOptions configures [NewPasswordLogin]. Users or Find is needed.
type PasswordOptions struct {
	// Users are those that may log in.
	Users []PasswordUser
	// Find returns the user of a name that is not among Users, nil if there is none. Default: there are no others.
	Find func(ctx context.Context, name string) (*PasswordUser, error)
}

// NewPasswordLogin returns a [Login] by user name and password, for small installations. Attempts are limited, see
// [LimitOptions], and an unknown user takes as long as a wrong password.
func NewPasswordLogin(opts *PasswordOptions) (Login, error) {
	if opts == nil {
		opts = &PasswordOptions{}
	}
	l := &passwordLogin{users: map[string]*passwordUser{}, find: opts.Find, turn: make(chan struct{}, passwordsAtOnce)}
	for _, u := range opts.Users {
		parsed, err := parsePasswordUser(u)
		if err != nil {
			return nil, fmt.Errorf("authserver: user %q: %w", u.Name, err)
		}
		if l.users[u.Name] != nil {
			return nil, fmt.Errorf("authserver: user %q stands twice", u.Name)
		}
		l.users[u.Name] = parsed
	}
	if len(l.users) == 0 && l.find == nil {
		return nil, errors.New("authserver: PasswordOptions has neither Users nor Find: nobody could log in")
	}
	return l, nil
}

// HashPassword returns the hash of a password for [PasswordUser]: PBKDF2 with a salt of its own. A password has at most
// 1024 bytes.
func HashPassword(password string) (string, error) {
	if password == "" || len(password) > maxPassword {
		return "", fmt.Errorf("authserver: a password has 1 to %d bytes", maxPassword)
	}
	h := passwordHash{rounds: passwordRounds, salt: make([]byte, passwordSaltLen)}
	_, _ = rand.Read(h.salt) // it never fails: it ends the program instead
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
		return nil, errors.New("the hash is none of HashPassword")
	}
	rounds, err := strconv.Atoi(parts[1])
	salt, saltErr := base64.RawStdEncoding.DecodeString(parts[2])
	key, keyErr := base64.RawStdEncoding.DecodeString(parts[3])
	if err != nil || saltErr != nil || keyErr != nil || len(salt) < passwordSaltLen || len(key) != passwordKeyLen {
		return nil, errors.New("the hash is none of HashPassword")
	}
	if rounds < minPasswordRounds || rounds > maxPasswordRounds {
		return nil, fmt.Errorf("the hash has %d rounds, want %d to %d", rounds, minPasswordRounds, maxPasswordRounds)
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
		return nil, fmt.Errorf("a name has 1 to %d bytes", maxUserName)
	}
	if u.Subject.ProviderGrant != "" {
		return nil, errors.New("its Subject has an ProviderGrant, and there is none")
	}
	if u.Scopes != nil && u.Subject.Scopes != nil {
		return nil, errors.New("it has Scopes, and its Subject has them too")
	}
	if u.Scopes != nil {
		u.Subject.Scopes = slices.Clone(u.Scopes)
	}
	for _, name := range u.Subject.Scopes {
		if !isScope(name) {
			return nil, fmt.Errorf("%q is no name of a scope", name)
		}
	}
	hash, err := parsePasswordHash(u.Hash)
	if err != nil {
		return nil, err
	}
	setDefault(&u.Subject.ID, u.Name)
	setDefault(&u.Subject.Name, u.Name)
	return &passwordUser{u.Subject, hash}, nil
}

type passwordLogin struct {
	users map[string]*passwordUser
	find  func(context.Context, string) (*PasswordUser, error)
	turn  chan struct{} // holds a token for each password that is being checked
}

// Login shows the form, and takes what was typed into it.
func (p *passwordLogin) Login(w http.ResponseWriter, r *http.Request, l *LoginRequest) {
	if r.Method != http.MethodPost {
		p.show(w, l, http.StatusOK, "", "")
		return
	}
	if formValue(r, paramDecision) == decisionDeny {
		l.Fail(w, r, codeAccessDenied, "the user stopped at the login")
		return
	}
	name, password := formValue(r, "username"), formValue(r, "password")
	if name == "" || password == "" || len(name) > maxUserName || len(password) > maxPassword {
		p.show(w, l, http.StatusUnauthorized, shownName(name), "User name or password is wrong.")
		return
	}
	giveBack, ok := l.s.limits.takePassword(w, r, name)
	if !ok {
		p.show(w, l, http.StatusTooManyRequests, shownName(name), "There were too many attempts. Wait a few minutes, then try again.")
		return
	}
	subject, err := p.check(r.Context(), name, password)
	switch {
	case err != nil:
		giveBack()
		l.s.log.ErrorContext(r.Context(), "authorization server: a password cannot be checked", "error", err)
		p.show(w, l, http.StatusServiceUnavailable, shownName(name), "Logging in does not work for now. Try again later.")
	case subject == nil:
		l.s.log.InfoContext(r.Context(), "authorization server: a login failed", "address", l.s.limits.address(r))
		p.show(w, l, http.StatusUnauthorized, shownName(name), "User name or password is wrong.")
	default:
		giveBack()
		l.s.limits.rememberAddress(r, name)
		l.Finish(w, r, *subject)
	}
}

func (p *passwordLogin) show(w http.ResponseWriter, l *LoginRequest, status int, user, failure string) {
	s := l.s
	s.pages.write(w, status, "password", struct {
		pageForm
		User    string
		Failure string
	}{s.pageForm("Log in", pathLogin, l.in, l.clientName()), user, failure}, s.formTargets(l.in.Redirect))
}

// check returns the subject of a user, nil if there is no such user or the password is another.
func (p *passwordLogin) check(ctx context.Context, name, password string) (*Subject, error) {
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
	select {
	case p.turn <- struct{}{}:
		defer func() { <-p.turn }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	key, err := hash.derive(password)
	if err != nil {
		return nil, err
	}
	if subtle.ConstantTimeCompare(key, hash.key) != 1 || user == nil {
		return nil, nil //nolint:nilnil // nobody is an answer, and no error
	}
	return &user.subject, nil
}

// decoy returns a hash that takes as long as those of real users.
func (p *passwordLogin) decoy() *passwordHash {
	h := &passwordHash{salt: make([]byte, passwordSaltLen), key: make([]byte, passwordKeyLen)}
	for _, u := range p.users {
		h.rounds = max(h.rounds, u.hash.rounds)
	}
	setDefault(&h.rounds, passwordRounds)
	return h
}

// takePassword counts a password attempt against the address, against the user and address together, and against the user
// from all addresses, so that many addresses help an attacker little. Someone who shares the user's address can lock the user
// out there. Someone with many addresses can lock the user out too, except at the addresses of earlier logins, whose attempts
// are counted apart. If the attempt was not a wrong guess, giveBack reverts the count. If there are no attempts left,
// takePassword sets Retry-After and returns false.
func (l *limits) takePassword(w http.ResponseWriter, r *http.Request, name string) (giveBack func(), ok bool) {
	user := hashKey(name)
	byUser := l.cost(limitUser, user)
	if known := l.knownAddress(r, name); known.isKnown() {
		byUser = known
	}
	costs := append(l.costsByAddress(r, limitPasswords, ""), l.costsByAddress(r, limitUserAddress, " "+user)...)
	costs = append(costs, byUser)
	if wait, ok := takeAll(costs); !ok {
		setRetryAfter(w, wait)
		return nil, false
	}
	return func() { refund(costs) }, true
}

// rememberAddress records where a user has logged in from.
func (l *limits) rememberAddress(r *http.Request, name string) { l.knownAddress(r, name).remember() }

// knownAddress returns the cost of an attempt from an address that the user has logged in from.
func (l *limits) knownAddress(r *http.Request, name string) cost {
	return l.cost(limitUserKnownAddress, l.address(r)+" "+hashKey(name))
}
