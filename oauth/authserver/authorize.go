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
	methodS256 = "S256"
	// challengeLength is that of the SHA-256 of a verifier in base64url.
	challengeLength = 43
	// maxState bounds what a client wants to have back. Some keep a signed token in it.
	maxState = 4 << 10
)

// An authorizeError is an error which the client is told by way of the browser.
type authorizeError struct {
	client   *client
	redirect string
	state    string
	hasState bool
	err      *oauthError
}

func (e *authorizeError) Error() string { return e.err.Error() }

// serveAuthorize takes the request of a client, sent by way of a browser, and begins an interaction.
//
// Spec: OAuth 2.1, section 4.1.1; RFC 7636, section 4.3; RFC 8707, section 2.1.
func (s *Server) serveAuthorize(w http.ResponseWriter, r *http.Request) {
	in, err := s.readAuthorize(r)
	if err == nil {
		in.ID, in.CSRF, in.Expires = randomID(), randomToken(), time.Now().Add(interactionTime)
		if !s.limits.allowRequest(w, r, limitLogins) {
			s.refuseBusy(w, r, true)
			return
		}
		s.bindBrowser(w, in)
		err = s.beginInteraction(r.Context(), in)
	}
	if err != nil {
		s.refuseAuthorize(w, r, err)
		return
	}
	redirectTo(w, s.pageURL(pathConsent, in.ID))
}

// pageURL returns the address of a page of an interaction.
func (s *Server) pageURL(path, id string) string {
	return s.o.Issuer + path + "?" + url.Values{paramInteraction: {id}}.Encode()
}

// redirectTo sends a browser to an address, which is asked for with GET whatever the request was.
func redirectTo(w http.ResponseWriter, address string) {
	w.Header().Set("Location", address)
	w.WriteHeader(http.StatusSeeOther)
}

// refuseAuthorize tells the client, or the user when there is nobody else to be told.
//
// Spec: OAuth 2.1, section 4.1.2.1; RFC 9700, section 4.11.2.
func (s *Server) refuseAuthorize(w http.ResponseWriter, r *http.Request, err error) {
	var told *authorizeError
	var refused *oauthError
	switch {
	case errors.As(err, &told):
		location := s.answerURL(told.redirect, told.state, told.hasState,
			url.Values{"error": {told.err.code}, "error_description": {told.err.text}})
		if told.client.Origin == originOperator || isLoopbackRedirect(told.redirect) {
			redirectTo(w, location)
			return
		}
		// Nobody has looked at this client yet: a link of ours must not send people wherever it likes.
		s.showError(w, r, pageError{Status: http.StatusBadRequest, Title: "The app asked for something that is not possible",
			Detail: "The request of the app cannot be answered: " + told.err.text + ".", Back: location})
	case errors.As(err, &refused) && refused.status == http.StatusServiceUnavailable:
		s.showError(w, r, pageError{Status: refused.status, Title: "This does not work for now",
			Detail: "The reason is this: " + refused.text + ". Wait a moment, then go back to the app and try again."})
	case errors.As(err, &refused):
		s.showError(w, r, pageError{Status: http.StatusBadRequest, Title: "The app's request is not valid",
			Detail: "You were sent here by an app, with a request that cannot be trusted: " + refused.text +
				". Go back to the app and try again; if it does not help, the app has to be mended."})
	default:
		s.showFailure(w, r, err)
	}
}

func (s *Server) showFailure(w http.ResponseWriter, r *http.Request, err error) {
	e := s.failure(r, err)
	s.showError(w, r, pageError{Status: e.status, Title: "Something went wrong here",
		Detail: "The server cannot answer for now. Wait a moment, then go back to the app and try again."})
}

// answerURL returns the redirect URI with an answer to an authorization request in it.
//
// Spec: RFC 9207, section 2.
func (s *Server) answerURL(redirect, state string, hasState bool, answer url.Values) string {
	if hasState {
		answer.Set("state", state)
	}
	answer.Set("iss", s.o.Issuer)
	return withQuery(redirect, answer)
}

// readAuthorize checks an authorization request. Its error is an *oauthError until the redirect URI is proven, and an
// *authorizeError after.
func (s *Server) readAuthorize(r *http.Request) (*interaction, error) {
	values, err := authorizeValues(r)
	if err != nil {
		return nil, err
	}
	if len(values["client_id"]) != 1 || len(values["redirect_uri"]) > 1 {
		return nil, refuse(codeInvalidRequest, "client_id is missing, or a parameter stands twice")
	}
	c, err := s.client(r.Context(), values.Get("client_id"))
	if errors.Is(err, errNoClient) {
		return nil, refuse(codeInvalidClient, "the app is not known here; it may have to register again")
	}
	if err != nil {
		return nil, err
	}
	in := &interaction{Client: c.ID, Redirect: values.Get("redirect_uri"), InRequest: values.Has("redirect_uri")}
	if !in.InRequest && len(c.RedirectURIs) == 1 {
		in.Redirect = c.RedirectURIs[0]
	}
	if !matchRedirect(c.RedirectURIs, in.Redirect) {
		return nil, refuse(codeInvalidRequest, "the address to return to is not one of those of the app")
	}
	if len(values["state"]) == 1 && len(values["state"][0]) <= maxState {
		in.State, in.HasState = values["state"][0], true
	}
	if err := s.fillInteraction(in, c, values); err != nil {
		var refused *oauthError
		if errors.As(err, &refused) {
			return nil, &authorizeError{client: c, redirect: in.Redirect, state: in.State, hasState: in.HasState, err: refused}
		}
		return nil, err
	}
	return in, nil
}

func authorizeValues(r *http.Request) (url.Values, error) {
	if r.Method == http.MethodPost {
		if r.URL.RawQuery != "" {
			return nil, refuse(codeInvalidRequest, "a form with parameters in the address is ambiguous")
		}
		return bodyValues(r)
	}
	if len(r.URL.RawQuery) > maxQuery {
		return nil, refuse(codeInvalidRequest, "the request is too long")
	}
	values, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, refuse(codeInvalidRequest, "the request cannot be read")
	}
	return values, nil
}

// fillInteraction checks everything that can be told to the client.
func (s *Server) fillInteraction(in *interaction, c *client, values url.Values) error {
	f, err := single(values)
	if err != nil {
		return err
	}
	switch {
	case len(values.Get("state")) > maxState:
		return refuse(codeInvalidRequest, "state is too long")
	case f.get("response_type") == "":
		return refuse(codeInvalidRequest, "response_type is missing")
	case f.get("response_type") != "code":
		return refuse(codeUnsupportedResponse, "response_type is not code")
	case f.get("response_mode") != "" && f.get("response_mode") != "query":
		return refuse(codeInvalidRequest, "response_mode is not query")
	case f.get("request") != "":
		return refuse("request_not_supported", "the parameter request is not supported")
	case f.get("request_uri") != "":
		return refuse("request_uri_not_supported", "the parameter request_uri is not supported")
	case !c.mayUse(grantCode):
		return refuse(codeUnauthorizedClient, "the client is not registered for authorization_code")
	}
	if err := checkChallenge(f); err != nil {
		return err
	}
	// The user is asked in any case.
	if slices.Contains(strings.Fields(f.get("prompt")), "none") {
		return refuse(codeInteractionRequired, "the user has to be asked")
	}
	res, err := s.resourceFor(c, f.get("resource"))
	if err != nil {
		return err
	}
	scopes, err := scopesFor(c, res, f.get("scope"))
	if err != nil {
		return err
	}
	in.Resource, in.Scopes, in.Challenge = res.URL, scopes, f.get("code_challenge")
	in.Asked = !onlyOffline(f.get("scope"))
	return nil
}

// checkChallenge demands PKCE with S256. A request without a method means plain.
//
// Spec: RFC 7636, sections 4.3 and 4.4.1.
func checkChallenge(f form) error {
	challenge := f.get("code_challenge")
	raw, err := base64.RawURLEncoding.Strict().DecodeString(challenge)
	switch {
	case challenge == "":
		return refuse(codeInvalidRequest, "code_challenge is missing")
	case f.get("code_challenge_method") != methodS256:
		return refuse(codeInvalidRequest, "code_challenge_method is not S256")
	case err != nil || len(challenge) != challengeLength || len(raw) != tokenBytes:
		return refuse(codeInvalidRequest, "code_challenge is not the SHA-256 of a verifier")
	}
	return nil
}
