package authserver

import (
	"crypto/subtle"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// serveConsent shows the page that asks the user, and takes the answer. Until the answer is yes nothing is sent to a third
// party, and no Login is called.
//
// Spec: security best practices, Confused Deputy Problem; RFC 9700, section 4.
func (s *Server) serveConsent(w http.ResponseWriter, r *http.Request) {
	in, err := s.interactionOf(r)
	if err != nil {
		s.refuseInteraction(w, r, err)
		return
	}
	if r.Method == http.MethodPost {
		s.decide(w, r, in)
		return
	}
	c, err := s.clientOf(r, in)
	if err != nil {
		s.refuseAuthorize(w, r, err)
		return
	}
	s.showConsent(w, r, in, c, s.resource(in.Resource))
}

// clientOf returns the client of an interaction, if everything that was checked at its beginning still holds.
func (s *Server) clientOf(r *http.Request, in *interaction) (*client, error) {
	c, err := s.client(r.Context(), in.Client)
	if errors.Is(err, errNoClient) {
		return nil, refuse(codeInvalidClient, "the app is not known here any more")
	}
	if err != nil {
		return nil, err
	}
	res := s.resource(in.Resource)
	if !matchRedirect(c.RedirectURIs, in.Redirect) || !c.mayUse(grantCode) || res == nil || !c.mayReach(res) {
		return nil, refuse(codeInvalidRequest, "what the app may do has changed since it sent you here")
	}
	return c, nil
}

func (s *Server) decide(w http.ResponseWriter, r *http.Request, in *interaction) {
	if !s.isOwnForm(r, in) {
		s.refuseForm(w, r)
		return
	}
	switch formValue(r, paramDecision) {
	case decisionAllow:
		// What the page said about the client must be what is so.
		if _, err := s.clientOf(r, in); err != nil {
			s.refuseAuthorize(w, r, err)
			return
		}
		err := s.changeInteraction(r.Context(), in.ID, func(in *interaction) error {
			in.Consented = true
			return nil
		})
		if err != nil {
			s.refuseInteraction(w, r, err)
			return
		}
		redirectTo(w, s.pageURL(pathLogin, in.ID))
	case decisionDeny:
		s.fail(w, r, in.ID, codeAccessDenied, "the user did not consent")
	default:
		s.refuseForm(w, r)
	}
}

// isOwnForm reports whether a POST comes from a page of the interaction.
func (s *Server) isOwnForm(r *http.Request, in *interaction) bool {
	// Old browsers do not send the header; the token is enough.
	if site := r.Header.Get("Sec-Fetch-Site"); site != "" && site != "same-origin" && site != "none" {
		return false
	}
	return subtle.ConstantTimeCompare([]byte(formValue(r, paramCSRF)), []byte(in.CSRF)) == 1
}

func (s *Server) refuseForm(w http.ResponseWriter, r *http.Request) {
	s.showError(w, r, pageError{Status: http.StatusForbidden, Title: "This form cannot be taken",
		Detail: "It was not sent from the page that it belongs to, or is incomplete. Go back to the app and start again."})
}

// refuseInteraction tells the user why there is nothing to go on with. Whether the interaction has ended or is another
// browser's makes no difference to whoever asks.
func (s *Server) refuseInteraction(w http.ResponseWriter, r *http.Request, err error) {
	if !errors.Is(err, errNoInteraction) && !errors.Is(err, errOtherBrowser) {
		s.showFailure(w, r, err)
		return
	}
	s.log.InfoContext(r.Context(), "authorization server: a page was asked for without its interaction", "path", r.URL.Path, "reason", err)
	s.showError(w, r, pageError{Status: http.StatusBadRequest, Title: "This page is no longer valid",
		Detail: "It was used already, has waited for more than 10 minutes, or was opened in another browser than the one " +
			"it was meant for. Go back to the app and start again. If you did not start anything, close this page: " +
			"somebody may have sent you a link to it."})
}

// serveLogin hands a request over to the Login, if the browser's user has consented.
func (s *Server) serveLogin(w http.ResponseWriter, r *http.Request) {
	in, err := s.interactionOf(r)
	if err == nil && !in.Consented {
		err = errNoInteraction
	}
	if err != nil {
		s.refuseInteraction(w, r, err)
		return
	}
	if r.Method == http.MethodPost && !s.isOwnForm(r, in) {
		s.refuseForm(w, r)
		return
	}
	c, err := s.clientOf(r, in)
	if err != nil {
		s.refuseAuthorize(w, r, err)
		return
	}
	path := strings.Trim(strings.TrimPrefix(r.URL.Path, s.issuer.Path+pathLogin), "/")
	s.o.Login.Login(w, r, &LoginRequest{Path: path, s: s, in: in, client: c})
}

// fail ends an interaction with an error.
func (s *Server) fail(w http.ResponseWriter, r *http.Request, id, code, description string) {
	in, err := s.takeInteraction(r.Context(), id)
	if err != nil {
		s.refuseInteraction(w, r, err)
		return
	}
	s.releaseBrowser(w, id)
	if _, err := s.clientOf(r, in); err != nil {
		s.refuseAuthorize(w, r, err)
		return
	}
	if code != codeServerError && code != codeUnavailable {
		code = codeAccessDenied
	}
	s.answer(w, in, url.Values{"error": {code}, "error_description": {plainText(description)}})
}

// answer sends the browser back to the client.
func (s *Server) answer(w http.ResponseWriter, in *interaction, answer url.Values) {
	redirectTo(w, s.answerURL(in.Redirect, in.State, in.HasState, answer))
}

// maxDescription bounds the text of an error, in bytes.
const maxDescription = 300

// plainText leaves of a text what may stand in a description.
//
// Spec: RFC 6749, section 4.1.2.1.
func plainText(text string) string {
	text = strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' || r == '"' || r == '\\' {
			return -1
		}
		return r
	}, text)
	return text[:min(len(text), maxDescription)]
}

// maxSubject bounds the id of a user.
//
// Spec: OpenID Connect Core 1.0, section 2, of sub.
const maxSubject = 255

func (s *Server) checkSubject(u *Subject) error {
	if u.ID == "" || len(u.ID) > maxSubject || strings.ContainsFunc(u.ID, isControl) {
		return errors.New("the login gave a subject without an ID, or with one that is too long or not printable")
	}
	// Spec: RFC 9068, section 5.
	if s.known[u.ID] != nil {
		return errors.New("the login gave a subject with the id of a client, which acts for itself under that name")
	}
	return nil
}

// finish ends an interaction with a code for the subject.
func (s *Server) finish(w http.ResponseWriter, r *http.Request, id string, subject Subject) {
	in, err := s.takeInteraction(r.Context(), id)
	if err == nil && !in.Consented {
		err = errNoInteraction
	}
	if err != nil {
		s.revokeProviderGrant(r.Context(), subject.ProviderGrant)
		s.refuseInteraction(w, r, err)
		return
	}
	s.releaseBrowser(w, id)
	code, err := s.grantCode(r, in, subject)
	if err == nil {
		s.answer(w, in, url.Values{"code": {code}})
		return
	}
	s.revokeProviderGrant(r.Context(), subject.ProviderGrant)
	if errors.Is(err, errNotAllowed) {
		s.log.InfoContext(r.Context(), "authorization server: a user may allow nothing of what a client wants",
			"client", in.Client, "subject", subject.ID)
		s.answer(w, in, url.Values{"error": {errNotAllowed.code}, "error_description": {errNotAllowed.text}})
		return
	}
	var refused *oauthError
	if errors.As(err, &refused) {
		s.refuseAuthorize(w, r, err)
		return
	}
	e := s.failure(r, err)
	s.answer(w, in, url.Values{"error": {e.code}, "error_description": {e.text}})
}

// grantCode makes the grant, and the code that stands for it.
func (s *Server) grantCode(r *http.Request, in *interaction, subject Subject) (string, error) {
	c, err := s.clientOf(r, in)
	if err != nil {
		return "", err
	}
	if err := s.checkSubject(&subject); err != nil {
		return "", err
	}
	scopes, err := in.allowedBy(&subject)
	if err != nil {
		return "", err
	}
	now := time.Now()
	g := &grant{
		ID: randomID(), Consent: in.ID, Client: c.ID, Subject: subject.ID, Name: subject.Name, Claims: subject.Claims,
		ProviderGrant: subject.ProviderGrant, Resource: in.Resource, Scopes: scopes, Issued: now,
		Until: now.Add(s.o.Lifetimes.Refresh), Expires: now.Add(codeTime + exchangeTime),
	}
	if err := s.putGrant(r.Context(), g); err != nil {
		return "", err
	}
	return s.putCode(r.Context(), &codeRecord{
		Grant: g.ID, Client: c.ID, Redirect: in.Redirect, InRequest: in.InRequest, Challenge: in.Challenge, Expires: now.Add(codeTime),
	})
}
