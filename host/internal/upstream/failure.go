package upstream

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/patchbay-mcp/patchbay/host/hosterr"
	"github.com/patchbay-mcp/patchbay/host/internal/connection"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// maxSecrets limits the secrets that are kept of one server. A command that returns headers may return
// other secrets each time.
const maxSecrets = 256

// failure returns the Error of a request or connection that has no valid response.
func (u *Server) failure(ctx context.Context, err error) *hosterr.Error {
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
func (u *Server) keepSecrets(texts []string) {
	for {
		old := u.secrets.Load()
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
		if u.secrets.CompareAndSwap(old, &all) {
			u.servers.secretsVersion.Add(1)
			return
		}
	}
}

// Mask replaces the secrets of the server in a text.
func (u *Server) Mask(text string) string {
	all := slices.Clone(u.logins.TokensOf(nil))
	if secrets := u.secrets.Load(); secrets != nil {
		all = append(all, *secrets...)
	}
	slices.SortStableFunc(all, func(a, b string) int { return len(b) - len(a) }) // one may contain another
	return maskAll(text, all)
}

// MaskTokens replaces the tokens that the server has received for a caller, or for all callers if the
// caller is nil.
func (u *Server) MaskTokens(text string, c *policy.Caller) string {
	return maskAll(text, u.logins.TokensOf(c))
}

// A secretSet contains the secrets of all servers, the longest first: one may contain another.
type secretSet struct {
	version uint64 // of Servers.secretsVersion
	texts   []string
}

// Mask replaces the secrets of all servers in a text.
func (s *Servers) Mask(text string) string {
	version := s.secretsVersion.Load()
	if set := s.secrets.Load(); set != nil && set.version == version {
		return maskAll(text, set.texts)
	}
	var all []string
	for _, u := range s.All() {
		if secrets := u.secrets.Load(); secrets != nil {
			all = append(all, *secrets...)
		}
	}
	slices.SortFunc(all, func(a, b string) int { return cmp.Or(len(b)-len(a), strings.Compare(a, b)) })
	all = slices.Compact(all)
	s.secrets.Store(&secretSet{version, all})
	return maskAll(text, all)
}

func maskAll(text string, secrets []string) string {
	for _, secret := range secrets {
		text = strings.ReplaceAll(text, secret, "[secret]")
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
func (u *Server) masked(err error) error {
	text := err.Error()
	if masked := u.Mask(text); masked != text {
		return &maskedError{masked, err}
	}
	return err
}
