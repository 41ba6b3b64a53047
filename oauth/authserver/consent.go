package authserver

import (
	"crypto/subtle"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/oauthwire"
)

// serveConsent serves the consent page and its form. Before the user consented, no request is
// sent to an identity provider, and the Login is not called. Spec: security best practices,
// Confused Deputy Problem; RFC 9700, section 4.
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

// clientOf returns the client of an interaction, after the checks of the authorization request.
func (s *Server) clientOf(r *http.Request, in *interaction) (*client, error) {
	c, err := s.client(r.Context(), in.Client)
	if errors.Is(err, errNoClient) {
		return nil, refuse(codeInvalidClient, "the registration of the app has ended")
	}
	if err != nil {
		return nil, err
	}
	res := s.resource(in.Resource)
	if !matchRedirect(c.RedirectURIs, in.Redirect) || !c.mayUse(grantCode) || res == nil || !c.mayAccess(res) {
		return nil, refuse(codeInvalidRequest, "the registration of the app has changed since it sent you here")
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
		// The client must still be as the page showed it.
		if _, err := s.clientOf(r, in); err != nil {
			s.refuseAuthorize(w, r, err)
			return
		}
		if err := s.storeConsent(r.Context(), in); err != nil {
			s.refuseInteraction(w, r, err)
			return
		}
		s.audit(r.Context(), in.auditEvent(AuditConsent))
		redirectTo(w, s.pageURL(pathLogin, in.ID))
	case decisionDeny:
		s.deny(w, r, in)
	default:
		s.refuseForm(w, r)
	}
}

// isOwnForm reports whether a POST comes from a page of the interaction, by its CSRF token.
func (s *Server) isOwnForm(r *http.Request, in *interaction) bool {
	// Old browsers do not send the header. The token is sufficient.
	if site := r.Header.Get("Sec-Fetch-Site"); site != "" && site != "same-origin" && site != "none" {
		return false
	}
	return subtle.ConstantTimeCompare([]byte(formValue(r, paramCSRF)), []byte(in.CSRF)) == 1
}

func (s *Server) refuseForm(w http.ResponseWriter, r *http.Request) {
	s.showError(w, r, pageError{Status: http.StatusForbidden, Title: "This form cannot be accepted",
		Detail: "It was not sent from its own page, or it is incomplete. Go back to the app and start again."})
}

// refuseInteraction shows why a page belongs to no interaction. The page does not reveal whether
// the interaction ended or belongs to another browser.
func (s *Server) refuseInteraction(w http.ResponseWriter, r *http.Request, err error) {
	if !errors.Is(err, errNoInteraction) && !errors.Is(err, errOtherBrowser) {
		s.showFailure(w, r, err)
		return
	}
	s.log.InfoContext(r.Context(), "authorization server: page requested without a valid interaction", "path",
		r.URL.Path, "reason", err)
	s.showError(w, r, pageError{Status: http.StatusBadRequest, Title: "Page no longer valid",
		Detail: "It was already used, it was opened more than 10 minutes ago, or it belongs to another browser. " +
			"Go back to the app and start again. If you did not start anything, close this page: " +
			"someone may have sent you a link to it."})
}

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

func (s *Server) fail(w http.ResponseWriter, r *http.Request, id, code, description string) {
	in, err := s.endInteraction(r.Context(), id)
	if err != nil {
		s.refuseInteraction(w, r, err)
		return
	}
	s.audit(r.Context(), in.auditEvent(AuditLogin).refused(oauthwire.PlainText(description)))
	s.respondError(w, r, in, code, description)
}

// deny ends an interaction at the consent page. Usually it is not in the store yet.
func (s *Server) deny(w http.ResponseWriter, r *http.Request, in *interaction) {
	s.audit(r.Context(), in.auditEvent(AuditConsent).refused(textDenied))
	if in.Consented { // in another tab
		if _, err := s.endInteraction(r.Context(), in.ID); err != nil {
			s.refuseInteraction(w, r, err)
			return
		}
	}
	s.respondError(w, r, in, codeAccessDenied, textDenied)
}

const textDenied = "the user denied the request"

func (s *Server) respondError(w http.ResponseWriter, r *http.Request, in *interaction, code, description string) {
	s.releaseBrowser(w, in.ID)
	if _, err := s.clientOf(r, in); err != nil {
		s.refuseAuthorize(w, r, err)
		return
	}
	if code != codeServerError && code != codeUnavailable {
		code = codeAccessDenied
	}
	s.respond(w, in, url.Values{"error": {code}, "error_description": {oauthwire.PlainText(description)}})
}

func (s *Server) respond(w http.ResponseWriter, in *interaction, response url.Values) {
	redirectTo(w, s.responseURL(in, response))
}

// maxSubject is the maximum length of a subject in bytes. Spec: OpenID Connect Core 1.0, section 2,
// of sub.
const maxSubject = 255

func (s *Server) checkSubject(u *Subject) error {
	if u.ID == "" || len(u.ID) > maxSubject || strings.ContainsFunc(u.ID, isControl) {
		return fmt.Errorf("invalid Subject.ID %.64q: must have 1 to %d printable characters", u.ID, maxSubject)
	}
	// Spec: RFC 9068, section 5.
	if s.known[u.ID] != nil {
		return fmt.Errorf("invalid Subject.ID %.64q: it is the ID of a client", u.ID)
	}
	return nil
}

func (s *Server) finish(w http.ResponseWriter, r *http.Request, id string, subject Subject) {
	in, err := s.endInteraction(r.Context(), id)
	if err != nil {
		s.revokeProviderGrant(r.Context(), subject.ProviderGrant)
		s.refuseInteraction(w, r, err)
		return
	}
	s.releaseBrowser(w, id)
	code, err := s.grantCode(r, in, subject)
	event := in.auditEvent(AuditLogin)
	event.Subject = subject.ID
	if err != nil {
		event = event.refused(refusalReason(err))
	}
	s.audit(r.Context(), event)
	if err == nil {
		s.respond(w, in, url.Values{"code": {code}})
		return
	}
	s.revokeProviderGrant(r.Context(), subject.ProviderGrant)
	var refused *oauthError
	switch {
	case errors.Is(err, errNotAllowed):
		s.log.InfoContext(r.Context(), "authorization server: the user may not grant any of the requested scopes",
			"client", in.Client, "subject", subject.ID)
		s.respond(w, in, errNotAllowed.response())
	case errors.As(err, &refused):
		s.refuseAuthorize(w, r, err)
	default:
		s.respond(w, in, s.failure(r, err).response())
	}
}

func (s *Server) grantCode(r *http.Request, in *interaction, subject Subject) (string, error) {
	c, err := s.clientOf(r, in)
	if err != nil {
		return "", err
	}
	if err := s.checkSubject(&subject); err != nil {
		return "", err
	}
	scopes, err := in.scopesAllowedBy(&subject)
	if err != nil {
		return "", err
	}
	now := time.Now()
	g := &grant{
		ID: randomID(), Consent: in.ID, Client: c.ID, Subject: subject.ID, Name: subject.Name, Claims: subject.Claims,
		ProviderGrant: subject.ProviderGrant, Resource: in.Resource, Scopes: scopes, Issued: now,
		Until: now.Add(s.o.Lifetimes.Refresh), Expires: now.Add(codeTime + exchangeTime),
	}
	if err := grants.put(r.Context(), s.store, g.ID, g); err != nil {
		return "", err
	}
	code := randomToken()
	return code, codes.put(r.Context(), s.store, hashKey(code), &codeRecord{
		Grant: g.ID, Client: c.ID, Redirect: in.Redirect, InRequest: in.InRequest, Challenge: in.Challenge, Key: in.Key,
		Expires: now.Add(codeTime),
	})
}
