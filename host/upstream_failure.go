package host

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/patchbay-mcp/patchbay/host/hosterr"
	"github.com/patchbay-mcp/patchbay/host/internal/connection"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// failure returns the Error of a request or connection that has no valid response.
func (u *Upstream) failure(ctx context.Context, err error) *hosterr.Error {
	if e, ok := errors.AsType[*hosterr.Error](err); ok {
		return e
	}
	e := &hosterr.Error{Code: hosterr.CodeUnavailable, Server: u.name, Err: err}
	if failed, ok := errors.AsType[*mcp.TransportError](err); ok {
		e.MayHaveRun, e.Err = failed.MayHaveRun, failed.Err
	}
	cause := context.Cause(ctx)
	switch {
	case connection.IsUnauthorized(err):
		e.Code = hosterr.CodeAuthRequired
	case errors.Is(err, mcp.ErrInvalidResult):
		e.Code = hosterr.CodeInvalidResult
	case errors.Is(err, mcp.ErrTimeout), errors.Is(err, context.DeadlineExceeded), errors.Is(cause, mcp.ErrTimeout):
		e.Code = hosterr.CodeTimeout
	}
	e.Err = u.masked(e.Err)
	return e
}

// keepSecrets adds to the texts that errors and the lines of standard error must not contain.
func (u *Upstream) keepSecrets(texts []string) {
	defer u.host.forgetSecrets()
	u.secretsMu.Lock()
	defer u.secretsMu.Unlock()
	all := slices.Clone(u.secrets)
	for _, s := range texts {
		if s != "" && !slices.Contains(all, s) {
			all = append(all, s)
		}
	}
	all = all[max(0, len(all)-maxSecrets):]
	u.secrets = all
}

// mask replaces the secrets of the server in a text.
func (u *Upstream) mask(text string) string {
	u.secretsMu.Lock()
	all := slices.Clone(u.secrets)
	u.secretsMu.Unlock()
	all = append(all, u.logins.TokensOf(nil)...)
	slices.SortStableFunc(all, func(a, b string) int { return len(b) - len(a) }) // one may contain another
	for _, s := range all {
		text = strings.ReplaceAll(text, s, "[secret]")
	}
	return text
}

// A maskedError is an error whose text has no secrets.
type maskedError struct {
	text string
	err  error
}

func (e *maskedError) Error() string { return e.text }

// Unwrap returns the error with its own text.
func (e *maskedError) Unwrap() error { return e.err }

// masked returns an error whose text has no secrets of the server.
func (u *Upstream) masked(err error) error {
	text := err.Error()
	if masked := u.mask(text); masked != text {
		return &maskedError{masked, err}
	}
	return err
}
