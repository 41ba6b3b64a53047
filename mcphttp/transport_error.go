package mcphttp

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	jsonv2 "github.com/go-json-experiment/json"

	"github.com/patchbay-mcp/patchbay/internal/sse"
	"github.com/patchbay-mcp/patchbay/jsonrpc"
	"github.com/patchbay-mcp/patchbay/mcp"
)

const (
	// maxDiagnosis is how much of a body is read that explains a failure: enough for any reasonable
	// JSON-RPC error.
	maxDiagnosis = 64 << 10
	// diagnosisTime is how long that may take.
	diagnosisTime = 5 * time.Second
	// maxQuoted is how much of such a body an error contains.
	maxQuoted = 1 << 10
)

// A StatusError is an HTTP response without a message of the protocol: a failure of a proxy, or of
// a server that does not speak MCP. Every response with status 401 or 403 is a StatusError too, and
// wraps the [*mcp.Error] of its body if the body contains such an error. Everything in it except
// StatusCode comes from the server and must not be trusted.
type StatusError struct {
	StatusCode int    // such as 404
	Status     string // such as "404 Not Found"
	// Header contains the headers that say how to proceed: WWW-Authenticate, Retry-After, Allow,
	// Location and Content-Type.
	Header http.Header
	// Body is the beginning of the body, at most 1 KiB, as a quoted Go string; empty for an empty
	// body.
	Body string

	reason  string     // why a response with status 2xx contains no message
	rpcErr  *mcp.Error // in the body; may be nil
	noToken bool       // the request had no Authorization header
}

// Error returns the status, the reason in the body or else its beginning, and the missing part if
// the status is 401 or 403: an access token or scopes.
func (e *StatusError) Error() string {
	text := "HTTP " + strconv.Itoa(e.StatusCode)
	if name := http.StatusText(e.StatusCode); name != "" {
		text += " " + name
	}
	if e.reason != "" {
		text += ", " + e.reason
	}
	if reason := e.reasonInBody(); reason != "" {
		text += ": " + reason
	}
	_, after, _ := strings.Cut(e.Header.Get("WWW-Authenticate"), `scope="`)
	scopes, _, _ := strings.Cut(after[:min(len(after), maxQuoted)], `"`)
	switch {
	case e.StatusCode == http.StatusUnauthorized && e.noToken:
		text += "; the request had no Authorization header: the server requires an access token or a login"
	case e.StatusCode == http.StatusUnauthorized:
		text += "; the server does not accept the token in the Authorization header"
	case e.StatusCode/100 == 3 && e.Header["Location"] != nil:
		to := e.Header.Get("Location")
		text += fmt.Sprintf("; the server redirects to %q, which is not followed: connect to that URL if you trust it",
			to[:min(len(to), maxQuoted)])
	case e.StatusCode == http.StatusForbidden && !containsAll(text, strings.Fields(scopes)):
		text += fmt.Sprintf("; needed scopes: %q", scopes)
	}
	return text
}

func containsAll(text string, words []string) bool {
	return !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(text, word) })
}

// reasonInBody returns the quoted message of a JSON-RPC error or the description of an OAuth error,
// or else the beginning of the body.
func (e *StatusError) reasonInBody() string {
	var oauth struct {
		Description string `json:"error_description"`
	}
	text := ""
	if e.rpcErr != nil {
		text = e.rpcErr.Message
	} else if body, err := strconv.Unquote(e.Body); err == nil && jsonv2.Unmarshal([]byte(body), &oauth) == nil {
		text = oauth.Description
	}
	if text == "" {
		return e.Body
	}
	return strconv.Quote(text[:min(len(text), maxQuoted)])
}

// Unwrap returns the [*mcp.Error] in the body, or nil.
func (e *StatusError) Unwrap() error {
	if e.rpcErr == nil {
		return nil
	}
	return e.rpcErr
}

// HTTPStatus returns StatusCode, for callers that look for the method with [errors.As].
func (e *StatusError) HTTPStatus() int { return e.StatusCode }

func newStatusError(res *http.Response, body []byte, reason string) *StatusError {
	e := &StatusError{StatusCode: res.StatusCode, Status: res.Status, Header: http.Header{}, reason: reason}
	e.noToken = res.Request != nil && res.Request.Header.Get("Authorization") == ""
	for _, name := range []string{"Www-Authenticate", "Retry-After", "Allow", "Location", "Content-Type"} {
		if values := res.Header[name]; len(values) > 0 {
			e.Header[name] = slices.Clone(values)
		}
	}
	if len(body) > 0 {
		e.Body = strconv.Quote(string(body[:min(len(body), maxQuoted)]))
	}
	return e
}

// unserved are the statuses by which a server or proxy reports that it has not started the request,
// as redirects do. 500, 502 and 504 are not among them, nor is 503 in general: proxies send them
// when the connection behind them breaks in the middle of a request. Spec: RFC 9110, section 15.
var unserved = []int{
	http.StatusBadRequest, http.StatusUnauthorized, http.StatusPaymentRequired, http.StatusForbidden,
	http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusNotAcceptable, http.StatusProxyAuthRequired,
	http.StatusGone, http.StatusLengthRequired, http.StatusPreconditionFailed, http.StatusRequestEntityTooLarge,
	http.StatusRequestURITooLong, http.StatusUnsupportedMediaType, http.StatusExpectationFailed,
	http.StatusMisdirectedRequest, http.StatusUpgradeRequired, http.StatusPreconditionRequired,
	http.StatusTooManyRequests, http.StatusRequestHeaderFieldsTooLarge,
}

// mayHaveRun reports whether a request with this status may have run. A 503 with Retry-After comes
// from a server that refused the request.
func (e *StatusError) mayHaveRun() bool {
	switch {
	case e.StatusCode/100 == 3 || slices.Contains(unserved, e.StatusCode):
		return false
	case e.StatusCode == http.StatusServiceUnavailable:
		return e.Header["Retry-After"] == nil
	}
	return true
}

// isTransient reports whether the same request may succeed a little later.
func (e *StatusError) isTransient() bool {
	return e.StatusCode/100 == 5 || e.StatusCode == http.StatusTooManyRequests ||
		e.StatusCode == http.StatusConflict || e.StatusCode == http.StatusRequestTimeout
}

// isUnavailable reports whether the status is about the server and not about a session: a limit,
// or a load balancer that reaches no server.
func (e *StatusError) isUnavailable() bool {
	switch e.StatusCode {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusGatewayTimeout:
		return true
	case http.StatusServiceUnavailable: // some servers also send it for an unknown session
		return !e.mayHaveRun() || strings.HasPrefix(e.Header.Get("Content-Type"), "text/html")
	}
	return false
}

// isAnyStatus reports whether err is an HTTP response without a JSON-RPC message.
func isAnyStatus(err error) bool {
	_, ok := errors.AsType[*StatusError](err)
	return ok
}

// wasNotSent reports whether a request certainly did not reach the server: there was no connection.
func wasNotSent(err error) bool {
	var op *net.OpError
	var dns *net.DNSError
	var certificate *tls.CertificateVerificationError
	var record tls.RecordHeaderError
	return errors.As(err, &op) && (op.Op == "dial" || op.Op == "proxyconnect") ||
		errors.As(err, &dns) || errors.As(err, &certificate) || errors.As(err, &record)
}

// isUnauthorized reports whether err has status 401 or 403: of the response, or of the http.Client
// that failed to authorize a request, which has then not run.
func isUnauthorized(err error) bool {
	var status interface{ HTTPStatus() int }
	return errors.As(err, &status) &&
		(status.HTTPStatus() == http.StatusUnauthorized || status.HTTPStatus() == http.StatusForbidden)
}

// An authorizationError is the failure of an http.Client to authorize a request. Its status is 401
// even if the server asked for more scopes with 403, so that callers can distinguish it from a
// 403 that the server sent for another reason.
type authorizationError struct{ err error }

func (e *authorizationError) Error() string   { return e.err.Error() }
func (e *authorizationError) Unwrap() error   { return e.err }
func (e *authorizationError) HTTPStatus() int { return http.StatusUnauthorized }

// noServer returns the error of a server that supports neither Streamable HTTP nor HTTP+SSE. The
// URL in it contains no query, which may be secret.
func (t *Transport) noServer(err, sseErr error) error {
	var post, get *StatusError
	if !errors.As(err, &post) || !errors.As(sseErr, &get) || post.StatusCode != get.StatusCode {
		return fmt.Errorf("%w; and over HTTP+SSE: %w", err, sseErr)
	}
	if post.StatusCode == http.StatusBadRequest {
		return err // the path may be right
	}
	endpoint := url.URL{Scheme: t.target.Scheme, Host: t.target.Host, Path: t.target.Path}
	return fmt.Errorf("no MCP server at %s, check the path, which is often /mcp: %w", &endpoint, err)
}

// withoutURL removes the URL from an error of net/http: its query may be secret.
func withoutURL(err error) error {
	if with, ok := errors.AsType[*url.Error](err); ok {
		return with.Err
	}
	return err
}

// A breakError reports a connection that broke before the response. Neither transport nor session
// ended, so it does not wrap mcp.ErrClosed.
type breakError struct{ err error }

func (e *breakError) Error() string {
	return "the connection broke before the response: " + e.err.Error()
}
func (e *breakError) Unwrap() error { return e.err }

// lost returns the error for callers of a failure to read a response.
func lost(err error) error {
	switch {
	case errors.Is(err, sse.ErrEventTooLarge), errors.Is(err, errTooLarge):
		return ErrTooLarge
	case errors.Is(err, io.EOF):
		return &breakError{io.ErrUnexpectedEOF}
	}
	return &breakError{err}
}

// checkAnswer returns an error for a response that replaces a refused response; see
// refusedResponse.
func checkAnswer(m *jsonrpc.Message) error {
	if m.Error != nil && !m.Error.Remote() {
		return errors.New("invalid response: " + m.Error.Message)
	}
	return nil
}
