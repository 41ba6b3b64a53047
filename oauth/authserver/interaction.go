package authserver

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"
)

const (
	interactionTime = 10 * time.Minute // from the authorization request to the end of the login
	// maxInteractions is the maximum number of interactions in the store. Anyone can consent to
	// one; usually that many take 15 MB.
	maxInteractions = 20_000
	// maxInteraction is the maximum size of a new interaction in bytes: all of them together take
	// at most 200 MB. The longest client ID, redirect URI and state fit.
	maxInteraction = 10 << 10
	// The sealed form is in base64, with a few bytes more.
	maxSealedInteraction = maxInteraction*4/3 + 512
	maxLoginData         = 16 << 10 // bytes that a Login stores with an interaction

	kindInteraction = "interaction"
	sealedRequest   = "authorization request" // the purpose to which the sealed form of an interaction is bound

	// Parameters of pages. In a callback, state contains the interaction before its first dot.
	paramInteraction = "interaction"
	paramCSRF        = "csrf"
	paramDecision    = "decision"

	decisionAllow = "allow"
	decisionDeny  = "deny"
)

// A Login authenticates users, with a form of its own or at an identity provider.
//
// The Login method is called for all requests to [LoginRequest.URL] and the URLs below it, after
// the user consented. The request comes from the browser in which the user consented, and a POST
// contains the CSRF token of the interaction. The method writes the response: a page, a redirect,
// or the result with [LoginRequest.Finish] or [LoginRequest.Fail]. It must be safe for concurrent
// use.
type Login interface {
	Login(w http.ResponseWriter, r *http.Request, l *LoginRequest)
}

// LoginFunc is a function that is a [Login].
type LoginFunc func(w http.ResponseWriter, r *http.Request, l *LoginRequest)

// Login calls f.
func (f LoginFunc) Login(w http.ResponseWriter, r *http.Request, l *LoginRequest) { f(w, r, l) }

// A ProviderLogin is a [Login] at identity providers. A grant of the server then ends when the
// grant of the identity provider ends. The handle is [Subject.ProviderGrant]; CheckGrant and
// RevokeGrant are not called for subjects without a grant.
//
// Spec: basic/authorization (2025-03-26), Third-Party Authorization Flow.
type ProviderLogin interface {
	Login
	// CheckGrant returns nil if the grant of the identity provider is valid,
	// [ErrProviderGrantEnded] if it ended, and any other error if that is not known at the
	// moment. It renews the grant as needed. It is called for each verification of an access token,
	// so it should cache its result for a short time.
	CheckGrant(ctx context.Context, handle string) error
	// RevokeGrant revokes the grant at the identity provider and deletes it.
	RevokeGrant(ctx context.Context, handle string) error
}

// ErrProviderGrantEnded reports that the grant of the identity provider ended.
var ErrProviderGrantEnded = errors.New("authserver: the grant of the identity provider has ended")

// A Subject is an authenticated user.
type Subject struct {
	// ID is the sub claim of tokens, at most 255 printable characters. It is never reassigned.
	ID   string
	Name string // for display
	// Claims are added to the principal of requests, not to tokens. They must be JSON values.
	Claims map[string]any
	// Scopes are the scopes that the user may grant to clients. nil means all scopes, an empty
	// slice no scope. Tokens never contain other scopes. A change takes effect at the next login.
	Scopes []string
	// ProviderGrant is the handle of the grant of an identity provider, for [ProviderLogin].
	ProviderGrant string
}

// A LoginRequest is a request of a browser to a [Login].
type LoginRequest struct {
	// Path is the path of the request below the URL of the login: "" for the first request,
	// "callback" for URL("callback").
	Path string

	s      *Server
	in     *interaction
	client *client
}

// ID returns the ID of the interaction, which starts with the authorization request and ends with
// the response. It consists of letters, digits, - and _. It is not secret: only the user's browser
// can use it.
func (l *LoginRequest) ID() string { return l.in.ID }

// ClientID returns the ID of the client that requested the authorization.
func (l *LoginRequest) ClientID() string { return l.in.Client }

// Resource returns the URL of the resource that the client requested access to.
func (l *LoginRequest) Resource() string { return l.in.Resource }

// CSRF returns the value of the form field csrf. Each form of the login must contain this field,
// and a field interaction with the value of [LoginRequest.ID].
func (l *LoginRequest) CSRF() string { return l.in.CSRF }

// URL returns the URL of a page of the login, such as the redirect URI for an identity provider. It
// does not contain the interaction: a link or form must add the parameter interaction, and the
// state for an identity provider must begin with the ID and a dot.
func (l *LoginRequest) URL(path string) string { return l.s.loginURL(path) }

// PageURL returns the URL of a page of the login with the parameter interaction, for links and
// redirects to it.
func (l *LoginRequest) PageURL(path string) string {
	return l.s.loginURL(path) + "?" + url.Values{paramInteraction: {l.in.ID}}.Encode()
}

// Keep stores data with the interaction, sealed, at most 16 KiB. It replaces earlier data.
func (l *LoginRequest) Keep(ctx context.Context, data []byte) error {
	if len(data) > maxLoginData {
		return fmt.Errorf("authserver: login data of %d bytes, want at most %d", len(data), maxLoginData)
	}
	sealed := l.s.seals.Seal(data, kindInteraction, l.in.ID)
	return interactions.update(ctx, l.s.store, l.in.ID, func(in *interaction) error {
		in.Login = sealed
		return nil
	})
}

// GetAndDelete removes the data that Keep stored and returns it, or nil if there is none. Of
// concurrent calls only a single call gets the data.
func (l *LoginRequest) GetAndDelete(ctx context.Context) ([]byte, error) {
	var sealed []byte
	err := interactions.update(ctx, l.s.store, l.in.ID, func(in *interaction) error {
		sealed, in.Login = in.Login, nil
		return nil
	})
	if err != nil || sealed == nil {
		return nil, err
	}
	data, _, err := openSealed(l.s.seals, sealed, kindInteraction, l.in.ID)
	return data, err
}

// Finish ends the login and redirects the browser to the client with an authorization code for the
// subject.
func (l *LoginRequest) Finish(w http.ResponseWriter, r *http.Request, subject Subject) {
	l.s.finish(w, r, l.in.ID, subject)
}

// Fail ends the login and redirects the browser to the client with an error. The code is
// server_error, temporarily_unavailable or access_denied; any other code becomes access_denied. The
// description is for the developer of the client.
func (l *LoginRequest) Fail(w http.ResponseWriter, r *http.Request, code, description string) {
	l.s.fail(w, r, l.in.ID, code, description)
}

// An interaction is the state between an authorization request and its response. Until the user
// consented, it is sealed in the URL and in the form of the consent page, so that requests for
// authorization store no record. After the response its record contains only ID, Expires and Ended.
type interaction struct {
	ID        string    `json:"id"`
	Browser   []byte    `json:"browser"` // SHA-256 of the cookie
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
	Key       string    `json:"key,omitempty"` // dpop_jkt
	Expires   time.Time `json:"expires"`
	Consented bool      `json:"consented,omitempty"`
	Ended     bool      `json:"ended,omitempty"`
	Login     []byte    `json:"login,omitempty"` // sealed

	sealed string // the form of this interaction in the consent page, until the user consented
}

var interactions = recordKind[interaction]{kindInteraction, errNoInteraction,
	func(in *interaction) time.Time { return in.Expires }}

var interactionIndex = recordIndex{kindInteraction, maxInteractions, interactionTime}

// cookieName returns the name of the cookie that binds an interaction to a browser. Each
// interaction uses its own cookie, so that two tabs do not interfere. Browsers accept the __Host-
// prefix only over https.
func (s *Server) cookieName(id string) string {
	name := "patchbay-" + id[:min(16, len(id))]
	if s.issuer.Scheme == "https" {
		return "__Host-" + name
	}
	return name
}

func (s *Server) bindBrowser(w http.ResponseWriter, in *interaction) {
	value := randomToken()
	in.Browser = sumOf(value)
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
	errNoInteraction = errors.New("unknown or expired interaction")
	errEnded         = fmt.Errorf("%w: it has ended", errNoInteraction)
	errOtherBrowser  = errors.New("the interaction belongs to another browser")
)

// interactionOf returns the interaction of a request from the browser that it is bound to.
func (s *Server) interactionOf(r *http.Request) (*interaction, error) {
	text := formValue(r, paramInteraction)
	if text == "" {
		text, _, _ = strings.Cut(formValue(r, "state"), ".")
	}
	in, err := s.openInteraction(r.Context(), text)
	if err != nil {
		return nil, err
	}
	// Another site of the same domain may have set a second cookie of this name. A cookie must
	// match.
	for _, c := range r.CookiesNamed(s.cookieName(in.ID)) {
		if subtle.ConstantTimeCompare(sumOf(c.Value), in.Browser) == 1 {
			return in, nil
		}
	}
	return nil, errOtherBrowser
}

// openInteraction returns the interaction with an ID or a sealed form. If the user consented,
// both mean the record in the store.
func (s *Server) openInteraction(ctx context.Context, text string) (*interaction, error) {
	if len(text) == tokenLength(idBytes) {
		return s.storedInteraction(ctx, text)
	}
	if len(text) > maxSealedInteraction {
		return nil, errNoInteraction
	}
	value, _, err := s.seals.OpenText(text, sealedRequest)
	if err != nil {
		return nil, errNoInteraction
	}
	requested, err := interactions.decode(value, nil)
	if err != nil {
		return nil, err
	}
	stored, err := s.storedInteraction(ctx, requested.ID)
	if errors.Is(err, errNoInteraction) && !errors.Is(err, errEnded) {
		requested.sealed = text
		return requested, nil
	}
	return stored, err
}

func (s *Server) storedInteraction(ctx context.Context, id string) (*interaction, error) {
	in, err := interactions.get(ctx, s.store, id)
	if err == nil && in.Ended {
		return nil, errEnded
	}
	return in, err
}

// sealInteraction returns the sealed form of a new interaction.
func (s *Server) sealInteraction(in *interaction) (string, error) {
	value, err := encodeRecord(in)
	if err != nil {
		return "", err
	}
	if len(value) > maxInteraction {
		return "", refuse(codeInvalidRequest, "the request is too long")
	}
	return s.seals.SealText(value, sealedRequest), nil
}

// storeConsent stores an interaction to whose request the user consented.
func (s *Server) storeConsent(ctx context.Context, in *interaction) error {
	consented := *in
	consented.Consented = true
	value, err := encodeRecord(&consented)
	if err != nil {
		return err
	}
	isNew := false
	err = s.store.Update(ctx, kindInteraction, in.ID, func(old []byte) ([]byte, time.Time, error) {
		if isNew = old == nil; isNew {
			return value, in.Expires, nil
		}
		stored, err := interactions.decode(old, nil)
		if err == nil && stored.Ended {
			err = errEnded
		}
		return old, in.Expires, err
	})
	if err != nil || !isNew {
		return err
	}
	return interactionIndex.add(ctx, s.store, clientNetwork(ctx), in.ID)
}

// endInteraction ends an interaction and returns it. Of concurrent calls only a single call gets
// it. The record stays until it expires, so that the sealed form cannot begin the interaction
// again.
func (s *Server) endInteraction(ctx context.Context, id string) (*interaction, error) {
	var ended interaction
	err := interactions.update(ctx, s.store, id, func(in *interaction) error {
		if in.Ended {
			return errEnded
		}
		ended = *in
		*in = interaction{ID: in.ID, Expires: in.Expires, Ended: true}
		return nil
	})
	return &ended, err
}
