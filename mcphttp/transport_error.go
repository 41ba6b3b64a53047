package mcphttp

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/internal/sse"
	"github.com/patchbay-mcp/patchbay/jsonrpc"
	"github.com/patchbay-mcp/patchbay/mcp"
)

const (
	// maxDiagnosis is how much is read of a body that explains a failure: enough for any JSON-RPC error that people or
	// programs read.
	maxDiagnosis = 64 << 10
	// diagnosisTime is how long that may take. The status has been there all the time.
	diagnosisTime = 5 * time.Second
	// maxQuoted is how much of such a body an error repeats.
	maxQuoted = 1 << 10
)

// A StatusError is an HTTP response that holds no message of the protocol: a failure of what is in front of the server,
// or of a server that speaks something else. It is also every response that wants to know who asks, or refuses whoever
// asked, 401 and 403: the [*mcp.Error] that such a response may hold is within it. Everything in it but StatusCode is the
// peer's text.
type StatusError struct {
	StatusCode int    // such as 404
	Status     string // such as "404 Not Found"
	// Header holds those of the headers that say what to do: WWW-Authenticate, Retry-After, Allow, Location and
	// Content-Type.
	Header http.Header
	// Body is the beginning of the body, at most 1 KiB of it, as a quoted Go string; empty if there is none.
	Body string

	reason string     // why a response that promised an answer is none
	rpcErr *mcp.Error // in the body
}

// Error says what the status is and how the body begins.
func (e *StatusError) Error() string {
	text := "HTTP " + strconv.Itoa(e.StatusCode)
	if name := http.StatusText(e.StatusCode); name != "" {
		text += " " + name
	}
	if e.reason != "" {
		text += ", " + e.reason
	}
	switch {
	case e.rpcErr != nil:
		message := e.rpcErr.Error()
		text += ": " + strconv.Quote(message[:min(len(message), maxQuoted)])
	case e.Body != "":
		text += ": " + e.Body
	}
	return text
}

// Unwrap returns the error that the server put into the body, an [*mcp.Error], or nil.
func (e *StatusError) Unwrap() error {
	if e.rpcErr == nil {
		return nil
	}
	return e.rpcErr
}

// HTTPStatus returns StatusCode, for callers that look for the method with [errors.As].
func (e *StatusError) HTTPStatus() int { return e.StatusCode }

// statusHeaders are those of StatusError.Header.
var statusHeaders = []string{"Www-Authenticate", "Retry-After", "Allow", "Location", "Content-Type"}

func newStatusError(res *http.Response, body []byte, reason string) *StatusError {
	e := &StatusError{StatusCode: res.StatusCode, Status: res.Status, Header: http.Header{}, reason: reason}
	for _, name := range statusHeaders {
		if values := res.Header[name]; len(values) > 0 {
			e.Header[name] = slices.Clone(values)
		}
	}
	if len(body) > 0 {
		e.Body = strconv.Quote(string(body[:min(len(body), maxQuoted)]))
	}
	return e
}

// isUnauthorized reports whether the server wants to know who asks, or does not serve whoever asked.
func (e *StatusError) isUnauthorized() bool {
	return e.StatusCode == http.StatusUnauthorized || e.StatusCode == http.StatusForbidden
}

// unserved are statuses by which a server, or what stands in front of it, says that it has not begun with a request. A
// redirect says so too. Not 500, 502 and 504, nor 503 as such: proxies send these when the connection behind them broke
// in the middle of something.
//
// Spec: RFC 9110, section 15.
var unserved = []int{
	http.StatusBadRequest, http.StatusUnauthorized, http.StatusPaymentRequired, http.StatusForbidden, http.StatusNotFound,
	http.StatusMethodNotAllowed, http.StatusNotAcceptable, http.StatusProxyAuthRequired, http.StatusGone,
	http.StatusLengthRequired, http.StatusPreconditionFailed, http.StatusRequestEntityTooLarge, http.StatusRequestURITooLong,
	http.StatusUnsupportedMediaType, http.StatusExpectationFailed, http.StatusMisdirectedRequest,
	http.StatusUpgradeRequired, http.StatusPreconditionRequired, http.StatusTooManyRequests,
	http.StatusRequestHeaderFieldsTooLarge,
}

// mayHaveRun reports whether a request with this outcome may have been carried out. A 503 that asks to come back later
// comes from a server that has turned the request away.
func (e *StatusError) mayHaveRun() bool {
	switch {
	case e.StatusCode/100 == 3 || slices.Contains(unserved, e.StatusCode):
		return false
	case e.StatusCode == http.StatusServiceUnavailable:
		return e.Header["Retry-After"] == nil
	}
	return true
}

// passes reports whether the same request may well succeed a little later.
func (e *StatusError) isTransient() bool {
	return e.StatusCode/100 == 5 || e.StatusCode == http.StatusTooManyRequests ||
		e.StatusCode == http.StatusConflict || e.StatusCode == http.StatusRequestTimeout
}

// wasNotSent reports whether the sending of a request failed before the server could have had the whole of it, for
// certain: there was no connection to it.
func wasNotSent(err error) bool {
	var op *net.OpError
	var dns *net.DNSError
	var certificate *tls.CertificateVerificationError
	var record tls.RecordHeaderError
	return errors.As(err, &op) && (op.Op == "dial" || op.Op == "proxyconnect") ||
		errors.As(err, &dns) || errors.As(err, &certificate) || errors.As(err, &record)
}

// isUnauthorized reports whether the http.Client says that the server refuses whoever asks: its Transport has not come by
// what the server wants. The request has not run.
func isUnauthorized(err error) bool {
	var status interface{ HTTPStatus() int }
	return errors.As(err, &status) && (status.HTTPStatus() == http.StatusUnauthorized || status.HTTPStatus() == http.StatusForbidden)
}

// withoutURL takes the address off an error of net/http: its query may be secret.
func withoutURL(err error) error {
	var with *url.Error
	if errors.As(err, &with) {
		return with.Err
	}
	return err
}

// A breakError is the end of a connection before the answer. It ends neither transport nor session, so it is not
// mcp.ErrClosed.
type breakError struct{ err error }

func (e *breakError) Error() string {
	return "the connection broke before the answer: " + e.err.Error()
}
func (e *breakError) Unwrap() error { return e.err }

// isBroken reports whether err is the end of a connection.
func isBroken(err error) bool {
	var broken *breakError
	return errors.As(err, &broken)
}

// lost says of a failure to read an answer what it means to callers.
func lost(err error) error {
	switch {
	case errors.Is(err, sse.ErrEventTooLarge), errors.Is(err, errTooLarge):
		return ErrTooLarge
	case errors.Is(err, io.EOF):
		return &breakError{io.ErrUnexpectedEOF}
	}
	return &breakError{err}
}

var errNoObject = errors.New("the result is no JSON object")

// checkAnswer tells an answer of the server from one that stands for an answer which is refused. Its words are ours.
func checkAnswer(m *jsonrpc.Message) error {
	if m.Error != nil && !m.Error.Remote() {
		return errors.New("the answer is refused: " + m.Error.Message)
	}
	return nil
}

// checkResult says what is wrong with a response that is no error.
func checkResult(m *jsonrpc.Message) error {
	if m.Error == nil && jsonscan.Kind(m.Result) != '{' {
		return errNoObject
	}
	return nil
}
