package authserver

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/netx"
)

const (
	maxForm       = 64 << 10 // bytes of a request body; a client assertion is the longest part
	maxFormFields = 64
	maxQuery      = 16 << 10         // bytes, similar to the limits of browsers and proxies
	requestTime   = 30 * time.Second // only fetches for clients and logins take long
	// bodyTime is the time limit for reading a body. It is not shorter than requestTime, because a
	// read deadline that passes ends the whole request.
	bodyTime = requestTime + time.Second
)

// An access is the CORS policy of an endpoint.
type access int

const (
	pageAccess access = iota // no other origin: pages for users
	anyOrigin                // all origins: the endpoint uses no cookies
	noOrigin                 // no other origin: an endpoint for servers
)

type endpoint struct {
	limit   limitKind
	extra   limitKind // see limitByAddress; 0 if there is none
	methods []string
	access  access
	handle  http.HandlerFunc
}

func (s *Server) route() {
	base := s.issuer.Path
	get, post := []string{http.MethodGet}, []string{http.MethodPost}
	both := []string{http.MethodGet, http.MethodPost}
	endpoints := map[string]endpoint{
		pathMetadata + base: {limitMetadata, 0, get, anyOrigin, s.serveMetadata},
		base + pathKeys:     {limitMetadata, 0, get, anyOrigin, s.serveKeys},
		base + pathToken:    {limitTokens, limitExtraTokens, post, anyOrigin, serveJSON(s, http.StatusOK, s.token)},
		base + pathRevoke:   {limitTokens, limitExtraTokens, post, anyOrigin, s.serveRevoke},
		base + pathIntrospect: {limitIntrospections, limitExtraIntrospections, post, noOrigin,
			serveJSON(s, http.StatusOK, s.introspect)},
	}
	if s.o.Login != nil {
		endpoints[base+pathAuthorize] = endpoint{limitPages, 0, both, pageAccess, s.serveAuthorize}
		endpoints[base+pathConsent] = endpoint{limitPages, 0, both, pageAccess, s.serveConsent}
		endpoints[base+pathLogin] = endpoint{limitPages, 0, both, pageAccess, s.serveLogin}
	}
	if s.metadata.RegistrationEndpoint != "" {
		endpoints[base+pathRegister] = endpoint{limitRegistrations, limitExtraRegistrations, post, anyOrigin,
			serveJSON(s, http.StatusCreated, s.register)}
	}
	for _, d := range s.resourceDocuments {
		for _, path := range []string{d.path, pathResource} {
			endpoints[path] = endpoint{limitMetadata, 0, get, anyOrigin, s.serveResource}
		}
	}
	s.routes = map[string]http.HandlerFunc{}
	for path, e := range endpoints {
		s.routes[path] = s.endpoint(e)
	}
}

// ServeHTTP serves all endpoints.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	limitBodyTime(w, r)
	if s.isRebound(r.Host) {
		noStore(w.Header())
		http.Error(w, "this server has the issuer "+s.o.Issuer, http.StatusMisdirectedRequest)
		return
	}
	path := r.URL.Path
	if strings.HasPrefix(path, s.issuer.Path+pathLogin+"/") {
		path = s.issuer.Path + pathLogin
	}
	serve := s.routes[path]
	if serve == nil {
		noStore(w.Header())
		http.NotFound(w, r)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), requestTime)
	defer cancel()
	serve(w, r.WithContext(ctx))
}

// limitBodyTime sets a read deadline, unless the http.Server sets a shorter deadline. Connections
// without deadlines, as in tests, are not limited.
func limitBodyTime(w http.ResponseWriter, r *http.Request) {
	server, _ := r.Context().Value(http.ServerContextKey).(*http.Server)
	if server == nil || server.ReadTimeout <= 0 || server.ReadTimeout > bodyTime {
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyTime))
	}
}

// isRebound reports whether a request to a server at a loopback address names the host of
// another site: DNS rebinding would give that site's pages the same origin as this server.
func (s *Server) isRebound(host string) bool {
	standard := ":80"
	if s.issuer.Scheme == "https" {
		standard = ":443"
	}
	return netx.IsLoopback(s.issuer.Hostname()) &&
		!strings.EqualFold(strings.TrimSuffix(host, standard), strings.TrimSuffix(s.issuer.Host, standard))
}

// endpoint wraps a handler with headers, allowed methods, rate limit and body limit.
func (s *Server) endpoint(e endpoint) http.HandlerFunc {
	methods := append(slices.Clone(e.methods), http.MethodOptions)
	if slices.Contains(methods, http.MethodGet) {
		methods = append(methods, http.MethodHead)
	}
	return func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		noStore(h)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		if e.access == anyOrigin {
			h.Set("Access-Control-Allow-Origin", "*")
			h.Set("Access-Control-Expose-Headers", "WWW-Authenticate, Retry-After")
		}
		if !slices.Contains(methods, r.Method) {
			h.Set("Allow", strings.Join(methods, ", "))
			http.Error(w, "method not allowed", http.StatusMethodNotAllowed)
			return
		}
		if r.Method == http.MethodOptions {
			h.Set("Allow", strings.Join(methods, ", "))
			if e.access == anyOrigin {
				h.Set("Access-Control-Allow-Methods", strings.Join(methods, ", "))
				h.Set("Access-Control-Allow-Headers", "Authorization, Content-Type, DPoP, MCP-Protocol-Version")
				h.Set("Access-Control-Max-Age", "7200")
			}
			w.WriteHeader(http.StatusNoContent)
			return
		}
		s.limits.proxy.check(r, s.limits, s.log)
		limit, ok := s.limits.limitByAddress(r, e.limit, e.extra)
		if !ok {
			setRetryAfter(w, limit.wait)
			s.refuseBusy(w, r, e.access)
			return
		}
		r.Body = http.MaxBytesReader(w, r.Body, maxForm)
		ctx := context.WithValue(r.Context(), addressLimitKey{}, limit)
		e.handle(w, r.WithContext(withClientKey(ctx, s.limits.address(r))))
	}
}

func (s *Server) refuseBusy(w http.ResponseWriter, r *http.Request, a access) {
	if a == pageAccess {
		s.showError(w, r, pageError{Status: http.StatusTooManyRequests, Title: "Too many requests",
			Detail: "There were too many requests from your network. Wait a moment, then go back and try again."})
		return
	}
	s.writeError(w, &oauthError{status: http.StatusTooManyRequests, code: codeSlowDown, text: "too many requests"})
}

func noStore(h http.Header) {
	h.Set("Cache-Control", "no-store")
	h.Set("Pragma", "no-cache")
}

// The codes of OAuth errors.
//
// Spec: RFC 6749, sections 4.1.2.1 and 5.2; RFC 7591, section 3.2.2; RFC 8707, section 2.
const (
	codeInvalidRequest      = "invalid_request"
	codeInvalidClient       = "invalid_client"
	codeInvalidGrant        = "invalid_grant"
	codeInvalidScope        = "invalid_scope"
	codeInvalidTarget       = "invalid_target"
	codeInvalidToken        = "invalid_token"
	codeInvalidMetadata     = "invalid_client_metadata"
	codeInvalidRedirect     = "invalid_redirect_uri"
	codeUnauthorizedClient  = "unauthorized_client"
	codeUnsupportedGrant    = "unsupported_grant_type"
	codeUnsupportedResponse = "unsupported_response_type"
	codeAccessDenied        = "access_denied"
	codeServerError         = "server_error"
	codeUnavailable         = "temporarily_unavailable"
	codeInteractionRequired = "interaction_required"
	codeSlowDown            = "slow_down"
)

// An oauthError is an error response. Its text is fixed or contains the name of a parameter, never
// a value from the client.
type oauthError struct {
	status    int // default 400
	code      string
	text      string
	challenge string        // WWW-Authenticate
	wait      time.Duration // Retry-After, if it is not 0
}

func (e *oauthError) Error() string { return e.code + ": " + e.text }

func (e *oauthError) response() url.Values {
	return url.Values{"error": {e.code}, "error_description": {e.text}}
}

func refuse(code, text string) *oauthError { return &oauthError{code: code, text: text} }

func unavailable(text string) *oauthError {
	return &oauthError{status: http.StatusServiceUnavailable, code: codeUnavailable, text: text}
}

func serveJSON[T any](s *Server, status int, f func(*http.Request) (*T, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		response, err := f(r)
		if err != nil {
			s.writeFailure(w, r, err)
			return
		}
		writeJSON(w, status, response)
	}
}

// writeFailure writes an *oauthError. It logs any other error and writes temporarily_unavailable.
func (s *Server) writeFailure(w http.ResponseWriter, r *http.Request, err error) {
	var e *oauthError
	if !errors.As(err, &e) {
		e = s.failure(r, err)
	}
	s.writeError(w, e)
}

// failure logs an internal error and returns 503: the usual cause is a store that fails for a
// moment.
func (s *Server) failure(r *http.Request, err error) *oauthError {
	if r.Context().Err() == nil {
		s.log.ErrorContext(r.Context(), "authorization server: request failed", "path", r.URL.Path, "error", err)
	}
	return unavailable("the server cannot answer now")
}

func (s *Server) writeError(w http.ResponseWriter, e *oauthError) {
	if e.challenge != "" {
		w.Header().Set("WWW-Authenticate", e.challenge)
	}
	if e.wait > 0 {
		setRetryAfter(w, e.wait)
	}
	writeJSON(w, cmp.Or(e.status, http.StatusBadRequest), struct {
		Code string `json:"error"`
		Text string `json:"error_description,omitempty"`
	}{e.code, e.text})
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	body, err := json.Marshal(v)
	if err != nil {
		http.Error(w, "", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(body) // the error is that of a closed connection
}

// A form contains the parameters of a request that are not empty. No parameter may be repeated.
type form map[string]string

// postForm returns the parameters of a request, which must be in the body.
func postForm(r *http.Request) (form, error) {
	if r.URL.RawQuery != "" {
		return nil, refuse(codeInvalidRequest, "parameters must be in the body")
	}
	values, err := bodyValues(r)
	if err != nil {
		return nil, err
	}
	return singleValues(values)
}

func bodyValues(r *http.Request) (url.Values, error) {
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || kind != "application/x-www-form-urlencoded" {
		return nil, refuse(codeInvalidRequest, "the Content-Type must be application/x-www-form-urlencoded")
	}
	if r.Header.Get("Content-Encoding") != "" {
		return nil, refuse(codeInvalidRequest, "compressed bodies are not supported")
	}
	body, err := readBody(r)
	if err != nil {
		return nil, err
	}
	values, err := url.ParseQuery(string(body))
	if err != nil {
		return nil, refuse(codeInvalidRequest, "the body is malformed")
	}
	return values, nil
}

func readBody(r *http.Request) ([]byte, error) {
	body, err := io.ReadAll(r.Body)
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return nil, &oauthError{status: http.StatusRequestEntityTooLarge, code: codeInvalidRequest,
			text: "the body is too large"}
	case err != nil:
		return nil, refuse(codeInvalidRequest, "the body is incomplete")
	}
	return body, nil
}

func singleValues(values url.Values) (form, error) {
	if len(values) > maxFormFields {
		return nil, refuse(codeInvalidRequest, "too many parameters")
	}
	f := form{}
	for name, all := range values {
		switch {
		case len(all) > 1 && name == "resource": // Spec: RFC 8707, section 2
			return nil, refuse(codeInvalidTarget, "only one resource is supported")
		case len(all) > 1:
			return nil, refuse(codeInvalidRequest, "a parameter is repeated")
		case strings.ContainsFunc(all[0], isControl):
			return nil, refuse(codeInvalidRequest, "a parameter has a control character")
		case all[0] != "": // Spec: RFC 6749, section 3.1
			f[name] = all[0]
		}
	}
	return f, nil
}

func isControl(r rune) bool { return r < ' ' || r == 0x7f || r == '�' }

// formValue returns a parameter of a page: from the body of a POST, otherwise from the query. It
// returns "" if the parameter is missing or repeated.
func formValue(r *http.Request, name string) string {
	values := r.URL.Query()
	if r.Method == http.MethodPost {
		if err := r.ParseForm(); err != nil {
			return ""
		}
		values = r.PostForm
	}
	if len(values[name]) != 1 {
		return ""
	}
	return values[name][0]
}
