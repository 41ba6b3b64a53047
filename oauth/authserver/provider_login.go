package authserver

import (
	"context"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"sync/atomic"

	"golang.org/x/oauth2"

	"github.com/patchbay-mcp/patchbay/internal/oauthwire"
	"github.com/patchbay-mcp/patchbay/oauth/oidcclient"
)

type providerLogin struct {
	providers []*provider
	byID      map[string]*provider
	checks    providerChecks

	attached atomic.Pointer[Server] // nil before New
}

func (u *providerLogin) attach(s *Server) error {
	if !u.attached.CompareAndSwap(nil, s) {
		return errors.New("the ProviderLogin already belongs to another Server")
	}
	return nil
}

func (u *providerLogin) server() *Server { return u.attached.Load() }

const pathCallback = "callback/" // below the login

// A pendingLogin is the state while the browser is at the identity provider.
type pendingLogin struct {
	Provider string `json:"provider"`
	oidcclient.Request
}

// Login redirects the browser to an identity provider and serves the callback. The server calls it
// only for the browser in which the user has consented, so a captured callback is refused before.
//
// Spec: security best practices, Confused Deputy Problem.
func (u *providerLogin) Login(w http.ResponseWriter, r *http.Request, l *LoginRequest) {
	if id, ok := strings.CutPrefix(l.Path, pathCallback); ok && r.Method != http.MethodPost {
		u.callback(w, r, l, u.byID[id])
		return
	}
	switch {
	case l.Path != "":
		l.s.showError(w, r, pageError{Status: http.StatusNotFound, Title: "Page not found",
			Detail: "Go back to the app and start again."})
	case r.Method == http.MethodPost && formValue(r, paramDecision) == decisionDeny:
		l.Fail(w, r, codeAccessDenied, "the user canceled the login")
	case r.Method == http.MethodPost && u.byID[formValue(r, "provider")] != nil:
		u.begin(w, r, l, u.byID[formValue(r, "provider")])
	case len(u.providers) == 1:
		u.begin(w, r, l, u.providers[0])
	default:
		u.choose(w, l)
	}
}

func (u *providerLogin) choose(w http.ResponseWriter, l *LoginRequest) {
	form := &choiceForm{pageForm: l.s.pageForm("Log in", pathLogin, l.in, l.client.Name)}
	for _, p := range u.providers {
		form.Choices = append(form.Choices, choice{p.o.ID, p.o.Name})
	}
	writePage(w, http.StatusOK, form.pageHead, form.html(), l.s.formTargets(l.in.Redirect))
}

func (u *providerLogin) begin(w http.ResponseWriter, r *http.Request, l *LoginRequest, p *provider) {
	ctx := r.Context()
	ends, err := p.Endpoints(ctx)
	if err != nil {
		u.failProvider(w, r, l, p, err)
		return
	}
	kept := pendingLogin{p.o.ID, oidcclient.NewRequest(l.ID())}
	data, err := json.Marshal(kept)
	if err == nil {
		err = l.Keep(ctx, data)
	}
	if err != nil {
		l.s.refuseInteraction(w, r, err)
		return
	}
	redirectTo(w, p.AuthorizationURL(ends, l.URL(pathCallback+p.o.ID), &kept.Request))
}

// callback serves the redirect from the identity provider. The stored state can be used once.
func (u *providerLogin) callback(w http.ResponseWriter, r *http.Request, l *LoginRequest, p *provider) {
	data, err := l.GetAndDelete(r.Context())
	if err == nil && (data == nil || p == nil) {
		err = errNoInteraction
	}
	var kept pendingLogin
	if err == nil {
		err = json.Unmarshal(data, &kept)
	}
	if err == nil && (kept.Provider != p.o.ID || subtle.ConstantTimeCompare([]byte(formValue(r, "state")),
		[]byte(kept.State)) != 1) {
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

type providerError struct{ code string }

func (e *providerError) Error() string { return "the identity provider returned " + e.code }

func (u *providerLogin) complete(r *http.Request, l *LoginRequest, p *provider, kept *pendingLogin) (*Subject, error) {
	ctx := r.Context()
	ends, err := p.Endpoints(ctx)
	if err != nil {
		return nil, err
	}
	if err := p.CheckIssuer(ends, r.URL.Query()["iss"]); err != nil {
		return nil, err
	}
	if code := formValue(r, "error"); code != "" {
		return nil, &providerError{oauthwire.PlainText(code)}
	}
	code := formValue(r, "code")
	if code == "" {
		return nil, errors.New("the response of the identity provider has no code")
	}
	// From here on the identity provider holds a grant, which must be stored or revoked.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), providerTimeout)
	defer cancel()
	token, err := p.Exchange(ctx, ends, l.URL(pathCallback+p.o.ID), code, kept.Verifier)
	if err != nil {
		return nil, err
	}
	rec := &providerGrant{Provider: p.o.ID, Client: l.ClientID(), Resource: l.Resource()}
	rec.set(token)
	subject, err := u.identify(ctx, p, ends, rec, token, kept.Nonce)
	if err == nil {
		rec.Subject = subject.ID
		subject.ProviderGrant, err = u.create(ctx, rec)
	}
	if err != nil {
		if revokeErr := p.revoke(ctx, ends, rec); revokeErr != nil {
			l.s.log.WarnContext(ctx, "authorization server: revoking the grant of the identity provider failed",
				"provider", p.o.ID, "error", revokeErr)
		}
		return nil, err
	}
	return subject, nil
}

func (u *providerLogin) identify(ctx context.Context, p *provider, ends *oidcclient.Endpoints, rec *providerGrant,
	token *oauth2.Token, nonce string) (*Subject, error) {
	user := &ProviderUser{AccessToken: token.AccessToken, Client: p.HTTP}
	if ends.Verifier != nil {
		id, err := p.VerifyIDToken(ctx, ends, token, nonce)
		if err != nil {
			return nil, err
		}
		rec.Sub, user.ID = id.Subject, id.Subject
		if err := id.Claims(&user.Claims); err != nil {
			return nil, errors.New("malformed claims in the ID token")
		}
		if err := u.addClaims(ctx, p, ends, user); err != nil {
			return nil, err
		}
	}
	subject, err := p.o.Subject(ctx, user)
	if err != nil {
		return nil, err
	}
	return &subject, u.server().checkSubject(&subject)
}

// addClaims adds claims from the userinfo endpoint. If the provider refuses to return them, the
// login continues without them. If the provider does not answer, the login fails, because Subject
// may decide by the claims.
func (u *providerLogin) addClaims(ctx context.Context, p *provider, ends *oidcclient.Endpoints,
	user *ProviderUser) error {
	err := p.addUserinfo(ctx, ends, user)
	if err == nil || errors.Is(err, errOtherUserinfo) || oidcclient.IsTemporary(err) {
		return err
	}
	u.server().log.WarnContext(ctx, "authorization server: userinfo request refused", "provider", p.o.ID, "error", err)
	return nil
}

func (u *providerLogin) failProvider(w http.ResponseWriter, r *http.Request, l *LoginRequest, p *provider, err error) {
	l.s.log.WarnContext(r.Context(), "authorization server: login at an identity provider failed", "provider", p.o.ID,
		"error", err)
	var response *providerError
	switch {
	case errors.Is(err, ErrUserRefused):
		l.Fail(w, r, codeAccessDenied, "the user may not log in")
	case errors.As(err, &response) && (response.code == codeUnavailable || response.code == codeServerError):
		l.Fail(w, r, codeUnavailable, "the identity provider is temporarily unavailable")
	case errors.As(err, &response):
		l.Fail(w, r, codeAccessDenied, "the identity provider refused the login")
	case oidcclient.IsTemporary(err):
		l.Fail(w, r, codeUnavailable, "the identity provider does not answer")
	default:
		l.Fail(w, r, codeServerError, "the response of the identity provider is not valid")
	}
}
