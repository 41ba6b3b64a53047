package authserver

import (
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
)

const (
	// maxForm bounds the form of a request. An assertion of a client is the longest thing in it.
	maxForm = 64 << 10
	// maxFormFields bounds how many parameters are looked at.
	maxFormFields = 64
	// maxQuery bounds the query of an authorization request, which browsers and proxies do so at about as much.
	maxQuery = 16 << 10
	// requestTime bounds the work for one request. Nothing here takes long but fetches for clients and logins.
	requestTime = 30 * time.Second
	// bodyTime bounds the wait for a body. It is no shorter than requestTime, since a connection that cannot be read any
	// more ends its request.
	bodyTime = requestTime + time.Second
)

// An access says who may call an endpoint from a web page of another origin.
type access int

const (
	samePage access = iota // nobody: pages for people
	anyPage                // everybody: no cookie counts there
	noPage                 // nobody: for machines
)

// An endpoint is a path of the server.
type endpoint struct {
	limit   limitKind
	methods []string
	access  access
	handle  http.HandlerFunc
}

func (s *Server) route() {
	base := s.issuer.Path
	get, post := []string{http.MethodGet}, []string{http.MethodPost}
	both := []string{http.MethodGet, http.MethodPost}
	endpoints := map[string]endpoint{
		pathMetadata + base:   {limitMetadata, get, anyPage, s.serveMetadata},
		base + pathKeys:       {limitMetadata, get, anyPage, s.serveKeys},
		base + pathToken:      {limitTokens, post, anyPage, s.serveToken},
		base + pathRevoke:     {limitTokens, post, anyPage, s.serveRevoke},
		base + pathIntrospect: {limitIntrospections, post, noPage, s.serveIntrospect},
	}
	if s.o.Login != nil {
		endpoints[base+pathAuthorize] = endpoint{limitPages, both, samePage, s.serveAuthorize}
		endpoints[base+pathConsent] = endpoint{limitPages, both, samePage, s.serveConsent}
		endpoints[base+pathLogin] = endpoint{limitPages, both, samePage, s.serveLogin}
	}
	if s.metadata.RegistrationEndpoint != "" {
		endpoints[base+pathRegister] = endpoint{limitRegistrations, post, anyPage, s.serveRegister}
	}
	for _, d := range s.described {
		for _, path := range []string{d.path, pathResource} {
			endpoints[path] = endpoint{limitMetadata, get, anyPage, s.serveResource}
		}
	}
	s.routes = map[string]http.HandlerFunc{}
	for path, e := range endpoints {
		s.routes[path] = s.endpoint(e)
	}
}

// ServeHTTP serves all endpoints.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	boundBody(w, r)
	if s.isRebound(r.Host) {
		noStore(w.Header())
		http.Error(w, "this server is "+s.o.Issuer, http.StatusMisdirectedRequest)
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

// boundBody bounds how long a body may take, which no context does. Where the operator's server does so already, that
// holds; where the connection is none that can be told, as in tests, nothing does.
func boundBody(w http.ResponseWriter, r *http.Request) {
	server, _ := r.Context().Value(http.ServerContextKey).(*http.Server)
	if server == nil || server.ReadTimeout <= 0 || server.ReadTimeout > bodyTime {
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyTime))
	}
}

// isRebound reports whether a request is for another name than that of a server at a loopback address. A web page whose
// name is pointed there would share an origin with the server, and nothing but the name tells it.
func (s *Server) isRebound(host string) bool {
	standard := ":80"
	if s.issuer.Scheme == "https" {
		standard = ":443"
	}
	return isLoopback(s.issuer.Hostname()) &&
		!strings.EqualFold(strings.TrimSuffix(host, standard), strings.TrimSuffix(s.issuer.Host, standard))
}

// endpoint puts around a handler what all of them have: headers, methods, limits, a bounded body.
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
		if e.access == anyPage {
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
			if e.access == anyPage {
				h.Set("Access-Control-Allow-Methods", strings.Join(methods, ", "))
				h.Set("Access-Control-Allow-Headers", "Authorization, Content-Type, MCP-Protocol-Version")
				h.Set("Access-Control-Max-Age", "7200")
			}
			w.WriteHeader(http.StatusNoContent)
			return
		}
		if !s.limits.allowRequest(w, r, e.limit) {
			s.refuseBusy(w, r, e.access == samePage)
			return
		}
		r.Body = http.MaxBytesReader(w, r.Body, maxForm)
		e.handle(w, r.WithContext(withClientKey(r.Context(), s.limits.address(r))))
	}
}

func (s *Server) refuseBusy(w http.ResponseWriter, r *http.Request, page bool) {
	if page {
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

// An oauthError is what a client is told. Its text is fixed, or holds the name of a parameter, never a value.
type oauthError struct {
	status    int // default 400
	code      string
	text      string
	challenge string        // WWW-Authenticate
	wait      time.Duration // Retry-After, if it is not 0
}

func (e *oauthError) Error() string { return e.code + ": " + e.text }

func refuse(code, text string) *oauthError { return &oauthError{code: code, text: text} }

// writeFailure answers with err if it is an OAuth error, and logs every other one.
func (s *Server) writeFailure(w http.ResponseWriter, r *http.Request, err error) {
	var e *oauthError
	if !errors.As(err, &e) {
		e = s.failure(r, err)
	}
	s.writeError(w, e)
}

// failure logs an error that is no fault of the client, and gives what the client is told. The server cannot do its work
// for now, mostly since its store does not: that is what 503 says.
func (s *Server) failure(r *http.Request, err error) *oauthError {
	if r.Context().Err() == nil {
		s.log.ErrorContext(r.Context(), "authorization server: a request failed", "path", r.URL.Path, "error", err)
	}
	return &oauthError{status: http.StatusServiceUnavailable, code: codeUnavailable, text: "the server cannot answer for now"}
}

func (s *Server) writeError(w http.ResponseWriter, e *oauthError) {
	if e.challenge != "" {
		w.Header().Set("WWW-Authenticate", e.challenge)
	}
	if e.wait > 0 {
		setRetryAfter(w, e.wait)
	}
	status := e.status
	if status == 0 {
		status = http.StatusBadRequest
	}
	writeJSON(w, status, struct {
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
	_, _ = w.Write(body) // whoever is gone needs no answer
}

// A form is the parameters of a request, each of which stands once.
type form map[string]string

// The parameters that may stand several times.
//
// Spec: RFC 8707, section 2.
var repeatable = []string{"resource"}

// get returns a parameter, empty if it is absent. An empty one is an absent one.
//
// Spec: RFC 6749, section 3.1.
func (f form) get(name string) string { return f[name] }

// postForm reads the parameters of a request to an endpoint that is not for browsers: from the body, never the query.
func postForm(r *http.Request) (form, error) {
	if r.URL.RawQuery != "" {
		return nil, refuse(codeInvalidRequest, "parameters stand in the body alone")
	}
	values, err := bodyValues(r)
	if err != nil {
		return nil, err
	}
	return single(values)
}

func bodyValues(r *http.Request) (url.Values, error) {
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || kind != "application/x-www-form-urlencoded" {
		return nil, refuse(codeInvalidRequest, "the body is no application/x-www-form-urlencoded")
	}
	if r.Header.Get("Content-Encoding") != "" {
		return nil, refuse(codeInvalidRequest, "the body is compressed")
	}
	body, err := readBody(r)
	if err != nil {
		return nil, err
	}
	values, err := url.ParseQuery(string(body))
	if err != nil {
		return nil, refuse(codeInvalidRequest, "the body cannot be read as a form")
	}
	return values, nil
}

func readBody(r *http.Request) ([]byte, error) {
	body, err := io.ReadAll(r.Body)
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return nil, &oauthError{status: http.StatusRequestEntityTooLarge, code: codeInvalidRequest, text: "the body is too large"}
	case err != nil:
		return nil, refuse(codeInvalidRequest, "the body breaks off")
	}
	return body, nil
}

// single makes sure that each parameter has one meaning.
func single(values url.Values) (form, error) {
	if len(values) > maxFormFields {
		return nil, refuse(codeInvalidRequest, "there are too many parameters")
	}
	f := form{}
	for name, all := range values {
		if !slices.Contains(repeatable, name) && len(all) > 1 {
			return nil, refuse(codeInvalidRequest, "a parameter stands twice")
		}
		if len(all) > 1 {
			return nil, refuse(codeInvalidTarget, "a token is for one resource")
		}
		if strings.ContainsFunc(all[0], isControl) {
			return nil, refuse(codeInvalidRequest, "a parameter holds a control character")
		}
		if all[0] != "" {
			f[name] = all[0]
		}
	}
	return f, nil
}

func isControl(r rune) bool { return r < ' ' || r == 0x7f || r == '�' }

// formValue returns a parameter of a page: from the query of a GET, from the body of a POST, empty unless it stands once.
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
