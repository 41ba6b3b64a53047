package oauthfetch

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/url"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/patchbay-mcp/patchbay/visible"
)

// ErrURLRefused is wrapped by the error of every request that the rules of a [Fetcher] forbid.
var ErrURLRefused = errors.New("URL refused")

func refuse(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrURLRefused, fmt.Sprintf(format, args...))
}

// An Error is a document that could not be fetched or an endpoint that could not be called.
type Error struct {
	URL    string // scheme, host and path; the rest may be secret
	Status int    // of the HTTP response, such as 404; 0 if there was none
	Err    error  // the reason; nil if it is the status
}

// Error names the URL and the reason.
func (e *Error) Error() string {
	switch {
	case e.Err == nil:
		return fmt.Sprintf("oauth: fetch %s: HTTP %d %s", e.URL, e.Status, http.StatusText(e.Status))
	case e.Status == 0 || e.Status == http.StatusOK:
		return fmt.Sprintf("oauth: fetch %s: %v", e.URL, e.Err)
	}
	return fmt.Sprintf("oauth: fetch %s: HTTP %d: %v", e.URL, e.Status, e.Err)
}

// Unwrap returns Err.
func (e *Error) Unwrap() error { return e.Err }

// IsInvalid reports whether there is a document that cannot be used. It is not a method, since the
// type has an exported alias.
func IsInvalid(e *Error) bool { return e.Err != nil && e.Status == http.StatusOK }

// IsNotJSON reports whether the document is of another media type than JSON. Single-page
// applications, and proxies that serve every path, answer with status 200 and a web page. Spec: RFC
// 8414, section 3.2; RFC 9728, section 3.2.
func IsNotJSON(e *Error) bool { return errors.Is(e.Err, errNotJSON) }

// IsMissing reports whether there is no document or it may not be read: a server that requires a
// token for every path also requires it for a path that does not exist.
func IsMissing(e *Error) bool {
	return e.Err == nil && e.Status/100 == 4 && e.Status != http.StatusRequestTimeout &&
		e.Status != http.StatusTooManyRequests
}

// withoutPeerText returns an error of an exchange without text that the peer chose: it could
// repeat secrets.
func withoutPeerText(err error) error {
	for _, known := range []error{
		ErrURLRefused, errTooLarge, context.Canceled, context.DeadlineExceeded,
		io.EOF, io.ErrUnexpectedEOF, http.ErrSchemeMismatch,
	} {
		if errors.Is(err, known) {
			return err
		}
	}
	var network net.Error
	var certificate *tls.CertificateVerificationError
	var alert tls.AlertError
	switch {
	case errors.As(err, new(x509.HostnameError)): // its text lists the names in the certificate
		return &cleanError{"the certificate is not valid for the host", err}
	case errors.As(err, &network), errors.As(err, &certificate), errors.As(err, &alert):
		return &cleanError{CleanText(err.Error(), MaxErrorText), err}
	}
	return errors.New("malformed HTTP response")
}

// A cleanError replaces the text of an error, which must not be logged.
type cleanError struct {
	text string
	err  error
}

func (e *cleanError) Error() string { return e.text }

func (e *cleanError) Unwrap() error { return e.err }

// MaxErrorCode and MaxErrorText bound, in bytes, how much text of a server an error repeats.
const MaxErrorCode, MaxErrorText = 64, 256

// CleanText returns the printable characters of a text, in at most max bytes. The result can be
// shown to users and logged.
func CleanText(text string, max int) string {
	var b strings.Builder
	for _, r := range text {
		if utf8.RuneLen(r) > max-b.Len() {
			break
		}
		if unicode.IsPrint(r) && !visible.Hidden(r) && r != utf8.RuneError {
			b.WriteRune(r)
		}
	}
	return strings.TrimSpace(b.String())
}

// CleanTextWithout is CleanText that returns "not shown" if the text, before it is cut, contains
// any of the secrets.
func CleanTextWithout(text string, max int, secrets []string) string {
	const minSecret = 4 // anything shorter is not a secret and occurs in every text
	whole := CleanText(text, math.MaxInt)
	for _, secret := range secrets {
		if len(secret) >= minSecret && (strings.Contains(text, secret) || strings.Contains(whole, secret)) {
			return "not shown"
		}
	}
	return CleanText(text, max)
}

// ShownURL returns scheme, host and path of a URL, for errors and logs: the rest may be secret.
func ShownURL(u *url.URL) string {
	if u == nil {
		return "a URL"
	}
	const max = 200 // of a path, for errors that people read
	text := (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path, RawPath: u.RawPath}).String()
	if len(text) > max {
		text = text[:max] + "…"
	}
	return text
}
