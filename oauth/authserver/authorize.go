package authserver

import (
	"encoding/base64"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

const (
	methodS256      = "S256"
	challengeLength = 43      // of a SHA-256 hash in base64url
	maxState        = 4 << 10 // bytes; some clients put a signed token in it
)

// An authorizeError is an error that is reported to the client in a redirect.
type authorizeError struct {
	client *client
	in     *interaction
	err    *oauthError
}

func (e *authorizeError) Error() string { return e.err.Error() }

// serveAuthorize serves the authorization endpoint: it starts an interaction and redirects to the
// consent page. Spec: OAuth 2.1, section 4.1.1; RFC 7636, section 4.3; RFC 8707, section 2.1.
func (s *Server) serveAuthorize(w http.ResponseWriter, r *http.Request) {
	in, err := s.readAuthorize(r)
	var sealed string
	if err == nil {
		in.ID, in.CSRF, in.Expires = randomID(), randomToken(), time.Now().Add(interactionTime)
		if !s.limits.allowRequest(w, r, limitLogins) {
			s.refuseBusy(w, r, pageAccess)
			return
		}
		s.bindBrowser(w, in)
		sealed, err = s.sealInteraction(in)
	}
	if err != nil {
		s.refuseAuthorize(w, r, err)
		return
	}
	redirectTo(w, s.pageURL(pathConsent, sealed))
}

func (s *Server) pageURL(path, interaction string) string {
	return s.o.Issuer + path + "?" + url.Values{paramInteraction: {interaction}}.Encode()
}

// redirectTo redirects a browser to a URL, which it requests with GET in any case.
func redirectTo(w http.ResponseWriter, address string) {
	w.Header().Set("Location", address)
	w.WriteHeader(http.StatusSeeOther)
}

// refuseAuthorize reports an error of an authorization request: to the client if its redirect URI
// can be used, otherwise to the user. Spec: OAuth 2.1, section 4.1.2.1; RFC 9700, section 4.11.2.
func (s *Server) refuseAuthorize(w http.ResponseWriter, r *http.Request, err error) {
	var redirected *authorizeError
	var refused *oauthError
	switch {
	case errors.As(err, &redirected):
		location := s.responseURL(redirected.in, redirected.err.response())
		if redirected.client.Origin == originOperator || isLoopbackRedirect(redirected.in.Redirect) {
			redirectTo(w, location)
			return
		}
		// The user did not consent to this client yet: without consent, the server would be an open
		// redirector.
		s.showError(w, r, pageError{Status: http.StatusBadRequest,
			Title:  "The app sent a request that this server cannot accept",
			Detail: "The reason is: " + redirected.err.text + ".", Back: location})
	case errors.As(err, &refused) && refused.status == http.StatusServiceUnavailable:
		s.showError(w, r, pageError{Status: refused.status, Title: "Temporarily unavailable",
			Detail: "The reason is: " + refused.text + ". Wait a moment, then go back to the app and try again."})
	case errors.As(err, &refused):
		s.showError(w, r, pageError{Status: http.StatusBadRequest, Title: "The app sent an invalid request",
			Detail: "The reason is: " + refused.text +
				". Go back to the app and try again. If that does not help, report the problem to its developer."})
	default:
		s.showFailure(w, r, err)
	}
}

func (s *Server) showFailure(w http.ResponseWriter, r *http.Request, err error) {
	e := s.failure(r, err)
	s.showError(w, r, pageError{Status: e.status, Title: "Something went wrong",
		Detail: "The server cannot answer at the moment. Wait a moment, then go back to the app and try again."})
}

// Spec: RFC 9207, section 2.
func (s *Server) responseURL(in *interaction, response url.Values) string {
	if in.HasState {
		response.Set("state", in.State)
	}
	response.Set("iss", s.o.Issuer)
	separator := "?"
	if strings.Contains(in.Redirect, "?") {
		separator = "&"
	}
	return in.Redirect + separator + response.Encode()
}

// readAuthorize checks an authorization request. The error is an *oauthError as long as the
// redirect URI was not checked, and an *authorizeError afterwards.
func (s *Server) readAuthorize(r *http.Request) (*interaction, error) {
	values, err := authorizeValues(r)
	if err != nil {
		return nil, err
	}
	if len(values["client_id"]) != 1 || len(values["redirect_uri"]) > 1 {
		return nil, refuse(codeInvalidRequest, "client_id is missing or a parameter is repeated")
	}
	c, err := s.client(r.Context(), values.Get("client_id"))
	if errors.Is(err, errNoClient) {
		return nil, refuse(codeInvalidClient, "the app is not registered here; it may have to register again")
	}
	if err != nil {
		return nil, err
	}
	in := &interaction{Client: c.ID, Redirect: values.Get("redirect_uri"), InRequest: values.Has("redirect_uri")}
	if !in.InRequest && len(c.RedirectURIs) == 1 {
		in.Redirect = c.RedirectURIs[0]
	}
	if !matchRedirect(c.RedirectURIs, in.Redirect) {
		return nil, refuse(codeInvalidRequest, "redirect_uri is not registered for the app")
	}
	if len(values["state"]) == 1 && len(values["state"][0]) <= maxState {
		in.State, in.HasState = values["state"][0], true
	}
	if err := s.fillInteraction(in, c, values); err != nil {
		var refused *oauthError
		if errors.As(err, &refused) {
			return nil, &authorizeError{c, in, refused}
		}
		return nil, err
	}
	return in, nil
}

func authorizeValues(r *http.Request) (url.Values, error) {
	if r.Method == http.MethodPost {
		if r.URL.RawQuery != "" {
			return nil, refuse(codeInvalidRequest, "a POST request must not have parameters in the URL")
		}
		return bodyValues(r)
	}
	if len(r.URL.RawQuery) > maxQuery {
		return nil, refuse(codeInvalidRequest, "the request is too long")
	}
	values, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, refuse(codeInvalidRequest, "the query is malformed")
	}
	return values, nil
}

// fillInteraction checks the parameters whose errors are reported to the client.
func (s *Server) fillInteraction(in *interaction, c *client, values url.Values) error {
	f, err := singleValues(values)
	if err != nil {
		return err
	}
	switch {
	case len(values.Get("state")) > maxState:
		return refuse(codeInvalidRequest, "state is too long")
	case f["response_type"] == "":
		return refuse(codeInvalidRequest, "response_type is missing")
	case f["response_type"] != "code":
		return refuse(codeUnsupportedResponse, "response_type must be code")
	case f["response_mode"] != "" && f["response_mode"] != "query":
		return refuse(codeInvalidRequest, "response_mode must be query")
	case f["request"] != "":
		return refuse("request_not_supported", "request is not supported")
	case f["request_uri"] != "":
		return refuse("request_uri_not_supported", "request_uri is not supported")
	case !c.mayUse(grantCode):
		return refuse(codeUnauthorizedClient, "the client is not registered for authorization_code")
	}
	if err := checkChallenge(f); err != nil {
		return err
	}
	// Spec: RFC 9449, section 10. A thumbprint is as long as a challenge.
	if key := f["dpop_jkt"]; key != "" && (len(key) != challengeLength || !isPrintable(key)) {
		return refuse(codeInvalidRequest, "dpop_jkt must be a SHA-256 thumbprint in base64url")
	}
	// The server always asks the user.
	if slices.Contains(strings.Fields(f["prompt"]), "none") {
		return refuse(codeInteractionRequired, "prompt=none is not supported")
	}
	res, err := s.resourceFor(c, f["resource"])
	if err != nil {
		return err
	}
	scopes, err := scopesFor(c, res, f["scope"])
	if err != nil {
		return err
	}
	in.Resource, in.Scopes, in.Challenge = res.URL, scopes, f["code_challenge"]
	in.Asked, in.Key = !onlyOffline(f["scope"]), f["dpop_jkt"]
	return nil
}

// checkChallenge requires PKCE with S256. Without code_challenge_method a request means plain.
// Spec: RFC 7636, sections 4.3 and 4.4.1.
func checkChallenge(f form) error {
	challenge := f["code_challenge"]
	raw, err := base64.RawURLEncoding.Strict().DecodeString(challenge)
	switch {
	case challenge == "":
		return refuse(codeInvalidRequest, "code_challenge is missing")
	case f["code_challenge_method"] != methodS256:
		return refuse(codeInvalidRequest, "code_challenge_method must be S256")
	case err != nil || len(challenge) != challengeLength || len(raw) != tokenBytes:
		return refuse(codeInvalidRequest, "code_challenge must be a SHA-256 hash in base64url")
	}
	return nil
}
