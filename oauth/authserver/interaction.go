package authserver

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"time"
)

const (
	// interactionTime is how long a user may take from the first page to the end of the login.
	interactionTime = 10 * time.Minute
	// maxInteractions bounds those that have begun and not ended, which anybody can begin: as a rule they take 15 MB.
	maxInteractions = 20_000
	// maxInteraction bounds what one of them is kept as when it begins, in bytes, so that all of them take 200 MB at the
	// very most. The longest id of a client, redirect URI and state together fit.
	maxInteraction = 10 << 10
	// maxLoginData bounds what a Login keeps with an interaction.
	maxLoginData = 16 << 10

	kindInteraction = "interaction"

	// The parameters of the pages. The interaction is also found by the part of state that stands before its first dot,
	// which is how a third party brings it back.
	paramInteraction = "interaction"
	paramCSRF        = "csrf"
	paramDecision    = "decision"

	decisionAllow = "allow"
	decisionDeny  = "deny"
)

// A Login finds out who sits at a browser: by a form of its own, or by sending the browser to a third party.
//
// Its method is called for every request to the URL [LoginRequest.URL] gives and to those below it, by a browser whose
// user has consented to what the client wants, and never without the cookie of that very browser. A POST has shown the
// CSRF token of the interaction. The method writes the response: a page, a redirect, or the end by [LoginRequest.Finish]
// or [LoginRequest.Fail]. It is called by many goroutines at once.
type Login interface {
	Login(w http.ResponseWriter, r *http.Request, l *LoginRequest)
}

// LoginFunc is a function that is a [Login].
type LoginFunc func(w http.ResponseWriter, r *http.Request, l *LoginRequest)

// Login calls f.
func (f LoginFunc) Login(w http.ResponseWriter, r *http.Request, l *LoginRequest) { f(w, r, l) }

// A ProviderLogin is a [Login] whose users come from third parties, and whose grants last as long as what the third party
// gave. The handle is that of [Subject.ProviderGrant]; for subjects without one no method is called.
//
// Spec: basic/authorization (2025-03-26), Third-Party Authorization Flow.
type ProviderLogin interface {
	Login
	// CheckGrant returns nil while what the third party gave is valid, renewing it as needed, [ErrProviderGrantEnded] when
	// the third party has ended it, and any other error when that cannot be found out for now. It is called for every
	// access token that is checked, so it remembers what it found for a short time.
	CheckGrant(ctx context.Context, handle string) error
	// RevokeGrant returns back what the third party gave, and forgets it.
	RevokeGrant(ctx context.Context, handle string) error
}

// ErrProviderGrantEnded is the error of [ProviderLogin.CheckGrant] for what the third party has ended.
var ErrProviderGrantEnded = errors.New("authserver: the third party has ended its grant")

// A Subject is who sits at the browser.
type Subject struct {
	// ID is the same for the same user for ever, and of no other one: the sub of the tokens. At most 255 printable
	// characters.
	ID string
	// Name is for people, such as the user's name or address.
	Name string
	// Claims go into the principal that handlers see, not into the token. They must be fit for JSON.
	Claims map[string]any
	// Scopes are what the user may allow clients at most, whatever these ask for: nil is every scope, an empty slice none.
	// What is beyond is in no token. What changes here holds from the next login on.
	Scopes []string
	// ProviderGrant is the handle of what a third party gave, for a [ProviderLogin]; empty if there is none.
	ProviderGrant string
}

// A LoginRequest is one request of a browser on its way through a [Login].
type LoginRequest struct {
	// Path is what the path of the request has below the URL of the login: empty at first, "callback" for URL("callback").
	Path string

	s      *Server
	in     *interaction
	client *client
}

// ID identifies the interaction, from the request of the client to the answer. Who knows it can do nothing with it but
// in the user's browser. It holds letters, digits, - and _ alone.
func (l *LoginRequest) ID() string { return l.in.ID }

// ClientID returns the id of the client that wants a token.
func (l *LoginRequest) ClientID() string { return l.in.Client }

// clientName returns what the client is called, by itself or by the operator.
func (l *LoginRequest) clientName() string { return l.client.Name }

// Resource returns the URL of the resource that the token is for.
func (l *LoginRequest) Resource() string { return l.in.Resource }

// CSRF returns the value of the form field csrf, which every form of the login has to hold, together with the field
// interaction, whose value is that of [LoginRequest.ID].
func (l *LoginRequest) CSRF() string { return l.in.CSRF }

// URL returns the address of a page of the login, such as that which a third party sends the browser back to. It does not
// name the interaction: a link or form adds the parameter interaction, and a third party gets a state that begins with
// the ID and a dot.
func (l *LoginRequest) URL(path string) string { return l.s.loginURL(path) }

// PageURL returns the address of a page of the login for links and redirects of our own: with the interaction.
func (l *LoginRequest) PageURL(path string) string {
	return l.s.loginURL(path) + "?" + url.Values{paramInteraction: {l.in.ID}}.Encode()
}

// Keep keeps data with the interaction, at most 16 KiB, in place of what was kept before. It is sealed.
func (l *LoginRequest) Keep(ctx context.Context, data []byte) error {
	if len(data) > maxLoginData {
		return errors.New("authserver: a login keeps too much")
	}
	sealed := l.s.seals.Seal(data, kindInteraction, l.in.ID)
	return l.s.changeInteraction(ctx, l.in.ID, func(in *interaction) error {
		in.Login = sealed
		return nil
	})
}

// Take returns what was kept, nil if there is nothing, and forgets it: of many who take only one gets it.
func (l *LoginRequest) Take(ctx context.Context) ([]byte, error) {
	var sealed []byte
	err := l.s.changeInteraction(ctx, l.in.ID, func(in *interaction) error {
		sealed, in.Login = in.Login, nil
		return nil
	})
	if err != nil || sealed == nil {
		return nil, err
	}
	data, _, err := openSealed(l.s.seals, sealed, kindInteraction, l.in.ID)
	return data, err
}

// Finish ends the login: the browser goes back to the client with a code for the subject.
func (l *LoginRequest) Finish(w http.ResponseWriter, r *http.Request, subject Subject) {
	l.s.finish(w, r, l.in.ID, subject)
}

// Fail ends the login without a subject: the browser goes back to the client with an error, which is access_denied if
// the code is none of an authorization response. The description is for the developer of the client.
func (l *LoginRequest) Fail(w http.ResponseWriter, r *http.Request, code, description string) {
	l.s.fail(w, r, l.in.ID, code, description)
}

// An interaction is the time between the request of a client and the answer to it.
type interaction struct {
	ID        string    `json:"id"`
	Browser   []byte    `json:"browser"` // SHA-256 of the value of the cookie
	CSRF      string    `json:"csrf"`
	Client    string    `json:"client"`
	Redirect  string    `json:"redirect"`
	InRequest bool      `json:"in_request,omitempty"` // whether the request named the redirect URI
	Resource  string    `json:"resource"`
	Scopes    []string  `json:"scopes,omitempty"`
	Asked     bool      `json:"asked,omitempty"` // whether the request named scopes
	State     string    `json:"state,omitempty"`
	HasState  bool      `json:"has_state,omitempty"`
	Challenge string    `json:"challenge"`
	Expires   time.Time `json:"expires"`
	Consented bool      `json:"consented,omitempty"`
	Login     []byte    `json:"login,omitempty"` // sealed
}

// cookieName returns the name of the cookie which binds an interaction to a browser. Each interaction has its own, so that
// two tabs do not end each other. Browsers take the prefix over https alone.
func (s *Server) cookieName(id string) string {
	name := "patchbay-" + id[:min(16, len(id))]
	if s.issuer.Scheme == "https" {
		return "__Host-" + name
	}
	return name
}

func (s *Server) bindBrowser(w http.ResponseWriter, in *interaction) {
	value := randomToken()
	sum := sha256.Sum256([]byte(value))
	in.Browser = sum[:]
	http.SetCookie(w, s.cookie(in.ID, value, int(interactionTime/time.Second)))
}

func (s *Server) releaseBrowser(w http.ResponseWriter, id string) {
	http.SetCookie(w, s.cookie(id, "", -1))
}

func (s *Server) cookie(id, value string, age int) *http.Cookie {
	return &http.Cookie{
		Name: s.cookieName(id), Value: value, Path: "/", MaxAge: age,
		Secure: s.issuer.Scheme == "https", HttpOnly: true, SameSite: http.SameSiteLaxMode,
	}
}

var (
	errNoInteraction = errors.New("no such interaction")
	errOtherBrowser  = errors.New("the interaction is of another browser")
)

// interactionOf returns the interaction of a request, if it comes from the browser that began it.
func (s *Server) interactionOf(r *http.Request) (*interaction, error) {
	id := formValue(r, paramInteraction)
	if id == "" {
		id, _, _ = strings.Cut(formValue(r, "state"), ".")
	}
	if len(id) != tokenLength(idBytes) {
		return nil, errNoInteraction
	}
	in, err := s.loadInteraction(r.Context(), id)
	if err != nil {
		return nil, err
	}
	// Of two cookies of one name, either may be planted by a neighbour of the host; the right one counts.
	for _, c := range r.CookiesNamed(s.cookieName(id)) {
		sum := sha256.Sum256([]byte(c.Value))
		if subtle.ConstantTimeCompare(sum[:], in.Browser) == 1 {
			return in, nil
		}
	}
	return nil, errOtherBrowser
}

func (s *Server) loadInteraction(ctx context.Context, id string) (*interaction, error) {
	value, err := s.store.Get(ctx, kindInteraction, id)
	if err != nil {
		return nil, err
	}
	return parseInteraction(value)
}

func parseInteraction(value []byte) (*interaction, error) {
	if value == nil {
		return nil, errNoInteraction
	}
	in := new(interaction)
	if err := json.Unmarshal(value, in); err != nil {
		return nil, err
	}
	if !time.Now().Before(in.Expires) {
		return nil, errNoInteraction
	}
	return in, nil
}

var errTooManyInteractions = &oauthError{status: http.StatusServiceUnavailable, code: codeUnavailable, text: "too many logins have begun"}

func (s *Server) beginInteraction(ctx context.Context, in *interaction) error {
	n, err := s.store.Count(ctx, kindInteraction)
	if err != nil {
		return err
	}
	if n >= maxInteractions {
		return errTooManyInteractions
	}
	value, err := in.encode()
	if err != nil {
		return err
	}
	if len(value) > maxInteraction {
		return refuse(codeInvalidRequest, "the request is too long")
	}
	return s.store.Put(ctx, kindInteraction, in.ID, value, in.Expires)
}

// encode returns what is stored. It leaves < and & as they are: escaped, a state of strangers would take six times its room.
func (in *interaction) encode() ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(in)
	return b.Bytes(), err
}

func (s *Server) changeInteraction(ctx context.Context, id string, change func(*interaction) error) error {
	return s.store.Update(ctx, kindInteraction, id, func(old []byte) ([]byte, time.Time, error) {
		in, err := parseInteraction(old)
		if err != nil {
			return nil, time.Time{}, err
		}
		if err := change(in); err != nil {
			return nil, time.Time{}, err
		}
		value, err := in.encode()
		return value, in.Expires, err
	})
}

// takeInteraction ends an interaction: only one gets it.
func (s *Server) takeInteraction(ctx context.Context, id string) (*interaction, error) {
	value, err := s.store.Take(ctx, kindInteraction, id)
	if err != nil {
		return nil, err
	}
	return parseInteraction(value)
}
