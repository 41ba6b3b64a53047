package upstream

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/patchbay-mcp/patchbay/host/config"
	"github.com/patchbay-mcp/patchbay/host/hosterr"
	"github.com/patchbay-mcp/patchbay/host/internal/connection"
	"github.com/patchbay-mcp/patchbay/host/internal/login"
	"github.com/patchbay-mcp/patchbay/host/internal/sandbox"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// maxSecrets limits the stored secrets of a server. A command that returns headers may return other
// secrets each time.
const maxSecrets = 256

// failures makes the errors of requests to a server. The texts of the errors must not contain
// secrets.
type failures struct {
	env     *shared
	name    string
	logins  *login.Server
	secrets atomic.Pointer[[]string] // of the expanded entries; see keepSecrets
}

// Name returns the name of the server in the configuration.
func (f *failures) Name() string { return f.name }

// Logins returns the credentials for the server.
func (f *failures) Logins() *login.Server { return f.logins }

// Errorf returns an error about the server. Callers may see its text.
func (f *failures) Errorf(code hosterr.Code, format string, args ...any) *hosterr.Error {
	return &hosterr.Error{Code: code, Server: f.name, Err: hosterr.Public{Err: fmt.Errorf(format, args...)}}
}

// Failure returns the error of a request or connection without a valid response.
func (f *failures) Failure(ctx context.Context, err error) *hosterr.Error {
	if e, ok := errors.AsType[*hosterr.Error](err); ok {
		return e
	}
	e := &hosterr.Error{Code: hosterr.CodeUnavailable, Server: f.name, Err: err}
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
	e.Err = f.masked(e.Err)
	return e
}

// keepSecrets adds to the texts that errors and the lines of standard error must not contain.
func (f *failures) keepSecrets(texts []string) {
	for {
		old := f.secrets.Load()
		var all []string
		if old != nil {
			all = slices.Clone(*old)
		}
		for _, s := range texts {
			if s != "" && !slices.Contains(all, s) {
				all = append(all, s)
			}
		}
		all = all[max(0, len(all)-maxSecrets):]
		if f.secrets.CompareAndSwap(old, &all) {
			f.env.secretsVersion.Add(1)
			return
		}
	}
}

// Mask replaces the secrets of the server in a text.
func (f *failures) Mask(text string) string {
	all := slices.Clone(f.logins.TokensOf(nil))
	if secrets := f.secrets.Load(); secrets != nil {
		all = append(all, *secrets...)
	}
	slices.SortStableFunc(all, func(a, b string) int { return len(b) - len(a) }) // a secret may contain another secret
	return maskAll(text, all)
}

// MaskTokens replaces the tokens that the server received for a caller. A nil caller means all
// callers.
func (f *failures) MaskTokens(text string, c *policy.Caller) string {
	return maskAll(text, f.logins.TokensOf(c))
}

func maskAll(text string, secrets []string) string {
	for _, secret := range secrets {
		text = strings.ReplaceAll(text, secret, "[secret]")
	}
	return text
}

// A maskedError is an error whose text contains no secrets.
type maskedError struct {
	text string
	err  error
}

// Error returns the text without secrets.
func (e *maskedError) Error() string { return e.text }

// Unwrap returns the error with its own text.
func (e *maskedError) Unwrap() error { return e.err }

// masked returns an error whose text contains no secrets of the server.
func (f *failures) masked(err error) error {
	text := err.Error()
	if masked := f.Mask(text); masked != text {
		return &maskedError{masked, err}
	}
	return err
}

// RequestError returns the error of a request: an [*hosterr.Error] if there is no valid response.
func (f *failures) RequestError(ctx context.Context, err error) error {
	switch _, failed := errors.AsType[*mcp.TransportError](err); {
	case err == nil:
		return nil
	case failed:
		return f.Failure(ctx, err)
	case ctx.Err() != nil && errors.Is(err, context.Cause(ctx)): // it was waiting to be sent
		return f.Errorf(hosterr.CodeUnavailable, "%w",
			hosterr.Public{Err: fmt.Errorf("the request was cancelled: %w", err)})
	case isResponse(err):
		return err
	}
	e := *f.Failure(ctx, err)
	e.MayHaveRun = true // the error does not say
	return &e
}

// isResponse reports whether an error comes from the server, or states already the reason for the
// caller.
func isResponse(err error) bool {
	_, remote := errors.AsType[*mcp.Error](err)
	_, own := errors.AsType[*hosterr.Error](err)
	return remote || own
}

// A timeoutError is a timeout with the setting that expired.
type timeoutError struct {
	text string
	err  error
}

// Error returns the text with the setting.
func (e *timeoutError) Error() string { return e.text }

// Unwrap returns the error of the request.
func (e *timeoutError) Unwrap() error { return e.err }

// withSetting adds the name of the setting that expired. A request that paused while its server
// waited for an answer may exceed either setting.
func withSetting(s *config.ServerSettings, failed *mcp.TransportError, took time.Duration) error {
	text := "no response within maxTimeout of " + s.MaxTimeout.String()
	if took < time.Duration(s.MaxTimeout) || s.MaxTimeout == 0 {
		text = "no response, and no progress, within timeout of " + s.Timeout.String()
	}
	named := *failed
	named.Err = hosterr.Public{Err: &timeoutError{text, failed.Err}}
	return &named
}

// startError returns the Error of an attempt to connect.
func (f *failures) startError(err error) *hosterr.Error {
	if errors.Is(err, connection.ErrNotReady) {
		return &hosterr.Error{Code: hosterr.CodeStarting, Server: f.name, Err: hosterr.Public{Err: err}}
	}
	if limits, ok := errors.AsType[*connection.LimitsError](err); ok {
		return &hosterr.Error{Code: hosterr.CodeConfigError, Server: f.name, Err: limits}
	}
	if refused, ok := errors.AsType[*sandbox.Error](err); ok {
		return &hosterr.Error{Code: hosterr.CodeConfigError, Server: f.name, Err: refused}
	}
	e := f.Failure(f.env.Context, err)
	e.MayHaveRun = false // the request was not sent
	return e
}

// withoutServer returns an error of the configuration without the name of the server, which an
// [hosterr.Error] contains, too.
func withoutServer(err error, name string) error {
	inner := errors.Unwrap(err)
	if inner != nil && strings.HasPrefix(err.Error(), fmt.Sprintf("server %.64q: ", name)) {
		return inner
	}
	return err
}
