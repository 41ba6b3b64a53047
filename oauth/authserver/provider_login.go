package authserver

import (
	"context"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"sync"

	"golang.org/x/oauth2"
)

// An providerLogin is the Login by third parties.
type providerLogin struct {
	providers []*provider
	byID      map[string]*provider
	checks    providerChecks

	mu sync.Mutex // guards the field below
	s  *Server    // from New on
}

// attach makes the login that of a server, whose store it uses.
func (u *providerLogin) attach(s *Server) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.s != nil {
		return errors.New("the Login of NewProviderLogin serves another Server already")
	}
	u.s = s
	return nil
}

func (u *providerLogin) server() *Server {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.s
}

const pathCallback = "callback/" // below the login

// A pendingLogin is what is kept while the browser is at the third party.
type pendingLogin struct {
	Provider string `json:"provider"`
	State    string `json:"state"`
	Nonce    string `json:"nonce"`
	Verifier string `json:"verifier"`
}

// Login sends the browser to a third party, and takes it back from there. The server calls it only for the browser of an
// interaction to which its user has consented: a callback that was captured elsewhere does not come so far.
//
// Spec: security best practices, Confused Deputy Problem.
func (u *providerLogin) Login(w http.ResponseWriter, r *http.Request, l *LoginRequest) {
	if id, ok := strings.CutPrefix(l.Path, pathCallback); ok && r.Method != http.MethodPost {
		u.callback(w, r, l, u.byID[id])
		return
	}
	switch {
	case l.Path != "":
		l.s.showError(w, r, pageError{Status: http.StatusNotFound, Title: "There is no such page",
			Detail: "Go back to the app and start again."})
	case r.Method == http.MethodPost && formValue(r, paramDecision) == decisionDeny:
		l.Fail(w, r, codeAccessDenied, "the user stopped at the login")
	case r.Method == http.MethodPost && u.byID[formValue(r, "provider")] != nil:
		u.begin(w, r, l, u.byID[formValue(r, "provider")])
	case len(u.providers) == 1:
		u.begin(w, r, l, u.providers[0])
	default:
		u.choose(w, l)
	}
}

func (u *providerLogin) choose(w http.ResponseWriter, l *LoginRequest) {
	type choice struct{ ID, Name string }
	var choices []choice
	for _, p := range u.providers {
		choices = append(choices, choice{p.o.ID, p.o.Name})
	}
	l.s.pages.write(w, http.StatusOK, "choice", struct {
		pageForm
		Choices []choice
	}{l.s.pageForm("Log in", pathLogin, l.in, l.clientName()), choices}, l.s.formTargets(l.in.Redirect))
}

// begin makes the state of a login, and sends the browser away with it.
func (u *providerLogin) begin(w http.ResponseWriter, r *http.Request, l *LoginRequest, p *provider) {
	ctx := r.Context()
	ends, err := p.endpoints(ctx)
	if err != nil {
		u.failProvider(w, r, l, p, err)
		return
	}
	kept := pendingLogin{Provider: p.o.ID, State: l.ID() + "." + randomToken(), Nonce: randomToken(), Verifier: oauth2.GenerateVerifier()}
	data, err := json.Marshal(kept)
	if err == nil {
		err = l.Keep(ctx, data)
	}
	if err != nil {
		l.s.refuseInteraction(w, r, err)
		return
	}
	redirectTo(w, p.authorizationURL(ends, l.URL(pathCallback+p.o.ID), &kept))
}

// callback takes the browser back. What was kept is good for one answer, whatever that is.
func (u *providerLogin) callback(w http.ResponseWriter, r *http.Request, l *LoginRequest, p *provider) {
	data, err := l.Take(r.Context())
	if err == nil && (data == nil || p == nil) {
		err = errNoInteraction
	}
	var kept pendingLogin
	if err == nil {
		err = json.Unmarshal(data, &kept)
	}
	if err == nil && (kept.Provider != p.o.ID || subtle.ConstantTimeCompare([]byte(formValue(r, "state")), []byte(kept.State)) != 1) {
		err = errNoInteraction
	}
	if err != nil {
		l.s.refuseInteraction(w, r, err)
		return
	}
	subject, err := u.complete(r, l, p, &kept)
	if err != nil {
		u.failProvider(w, r, l, p, err)
		return
	}
	l.Finish(w, r, *subject)
}

// An providerError is an answer of a third party which says that there is no login.
type providerError struct{ code string }

func (e *providerError) Error() string { return "the third party answered " + e.code }

// complete turns the answer of a third party into a subject, and keeps what it gave.
func (u *providerLogin) complete(r *http.Request, l *LoginRequest, p *provider, kept *pendingLogin) (*Subject, error) {
	ctx := r.Context()
	ends, err := p.endpoints(ctx)
	if err != nil {
		return nil, err
	}
	if err := p.checkIssuer(ends, r.URL.Query()["iss"]); err != nil {
		return nil, err
	}
	if code := formValue(r, "error"); code != "" {
		return nil, &providerError{plainText(code)}
	}
	code := formValue(r, "code")
	if code == "" {
		return nil, errors.New("the third party's answer has no code")
	}
	// From here on there is something at the third party which must not be left lying there.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), providerTimeout)
	defer cancel()
	token, err := p.exchange(ctx, ends, l.URL(pathCallback+p.o.ID), code, kept.Verifier)
	if err != nil {
		return nil, err
	}
	rec := &providerGrant{Provider: p.o.ID, Client: l.ClientID(), Resource: l.Resource()}
	rec.set(token)
	subject, err := u.identify(ctx, p, ends, rec, token, kept.Nonce)
	if err == nil {
		rec.Subject = subject.ID
		subject.ProviderGrant, err = u.keep(ctx, rec)
	}
	if err != nil {
		if revokeErr := p.revoke(ctx, ends, rec); revokeErr != nil {
			l.s.log.WarnContext(ctx, "authorization server: the third party's grant cannot be revoked", "provider", p.o.ID, "error", revokeErr)
		}
		return nil, err
	}
	return subject, nil
}

// identify finds out who came back.
func (u *providerLogin) identify(ctx context.Context, p *provider, ends *endpoints, rec *providerGrant, token *oauth2.Token, nonce string) (*Subject, error) {
	user := &ProviderUser{AccessToken: token.AccessToken, Client: p.http}
	if ends.verifier != nil {
		id, err := p.verifyIDToken(ctx, ends, token, nonce)
		if err != nil {
			return nil, err
		}
		rec.Sub, user.ID = id.Subject, id.Subject
		if err := id.Claims(&user.Claims); err != nil {
			return nil, errors.New("the claims of the ID token cannot be read")
		}
		if err := u.lookUp(ctx, p, ends, user); err != nil {
			return nil, err
		}
	}
	subject, err := p.o.Subject(ctx, user)
	if err != nil {
		return nil, err
	}
	return &subject, u.server().checkSubject(&subject)
}

// lookUp asks for more about who came back. A name is not worth a login: where the provider refuses to tell it, the user
// comes in without, but not while it does not answer, since the claims may be what decides who comes in.
func (u *providerLogin) lookUp(ctx context.Context, p *provider, ends *endpoints, user *ProviderUser) error {
	err := p.addUserinfo(ctx, ends, user)
	if err == nil || errors.Is(err, errOtherUserinfo) || isTemporary(err) {
		return err
	}
	u.server().log.WarnContext(ctx, "authorization server: a third party tells nothing about a user", "provider", p.o.ID, "error", err)
	return nil
}

// failProvider tells the client that there was no login, and the log why.
func (u *providerLogin) failProvider(w http.ResponseWriter, r *http.Request, l *LoginRequest, p *provider, err error) {
	l.s.log.WarnContext(r.Context(), "authorization server: a login at a third party failed", "provider", p.o.ID, "error", err)
	var said *providerError
	switch {
	case errors.Is(err, ErrUserRefused):
		l.Fail(w, r, codeAccessDenied, "the user may not come in")
	case errors.As(err, &said) && (said.code == codeUnavailable || said.code == codeServerError):
		l.Fail(w, r, codeUnavailable, "the third party cannot log in anybody for now")
	case errors.As(err, &said):
		l.Fail(w, r, codeAccessDenied, "the third party did not log in the user")
	case isTemporary(err):
		l.Fail(w, r, codeUnavailable, "the third party does not answer")
	default:
		l.Fail(w, r, codeServerError, "the answer of the third party cannot be trusted")
	}
}
