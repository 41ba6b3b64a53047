package oauth

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
)

// A FetchError is a document that could not be had, or an endpoint that could not be called.
type FetchError struct {
	URL    string // scheme, host and path; the rest may hold secrets
	Status int    // of HTTP, such as 404; 0 if there was no response
	Err    error  // why, if it is not the status
}

// Error says what was asked for and what came.
func (e *FetchError) Error() string {
	switch {
	case e.Err == nil:
		return fmt.Sprintf("oauth: fetch %s: HTTP %d %s", e.URL, e.Status, http.StatusText(e.Status))
	case e.Status == 0 || e.Status == http.StatusOK:
		return fmt.Sprintf("oauth: fetch %s: %v", e.URL, e.Err)
	}
	return fmt.Sprintf("oauth: fetch %s: HTTP %d: %v", e.URL, e.Status, e.Err)
}

// Unwrap returns Err.
func (e *FetchError) Unwrap() error { return e.Err }

// withoutPeerText returns an error of an exchange, or one in its place if it could quote what the peer sent, which may be
// anything that the peer was told.
func withoutPeerText(err error) error {
	for _, known := range []error{
		ErrURLRefused, errTooLarge, context.Canceled, context.DeadlineExceeded, io.EOF, io.ErrUnexpectedEOF, http.ErrSchemeMismatch,
	} {
		if errors.Is(err, known) {
			return err
		}
	}
	var network net.Error
	var certificate *tls.CertificateVerificationError
	var alert tls.AlertError
	var foreign x509.HostnameError // it lists the names that the peer gives itself
	switch {
	case errors.As(err, &foreign):
		return &cleanError{"the certificate is not one of the host", err}
	case errors.As(err, &network), errors.As(err, &certificate), errors.As(err, &alert):
		return &cleanError{cleanText(err.Error(), maxErrorText), err}
	}
	return errors.New("the response is no HTTP that can be read")
}

// A cleanError is an error whose own text is not for logs.
type cleanError struct {
	text string
	err  error
}

// Error returns the text that is.
func (e *cleanError) Error() string { return e.text }

// Unwrap returns the error.
func (e *cleanError) Unwrap() error { return e.err }
