package target

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/secrets"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/term"
	"github.com/patchbay-mcp/patchbay/gateway/internal/netx"
)

// MissingScopes returns the scopes that the login at a target lacks, or "" without a login.
func (t *Target) MissingScopes(ctx context.Context, scopes []string) string {
	if t.Auth == nil {
		return ""
	}
	ctx, cancel := context.WithTimeout(ctx, secrets.Timeout)
	defer cancel()
	now, err := t.Auth.Status(ctx)
	if err != nil || now == nil {
		return ""
	}
	return strings.Join(Difference(scopes, now.Scopes), " ")
}

// Argument returns the target as an argument of a command line, without secrets.
func (t *Target) Argument(config string) string {
	if config != "" && t.From != "" {
		return term.ShellWord(t.Name) + " --config " + term.ShellWord(config)
	}
	return term.ShellWord(t.Masked(cmp.Or(t.Name, t.URL)))
}

// Difference returns the elements of list that are not in other.
func Difference(list, other []string) []string {
	return slices.DeleteFunc(slices.Clone(list), func(s string) bool { return slices.Contains(other, s) })
}

// MayLogIn returns an error if tokens must not be sent to a target.
func (t *Target) MayLogIn() error {
	if t.Host != nil {
		return errors.New("login is for one server: the target @host is all servers that \"patchbay servers\" lists")
	}
	if t.URL == "" {
		return errors.New("login is for URLs: the target is a command, which reads credentials from its " +
			"environment (--env)")
	}
	if t.Header.Get("Authorization") != "" {
		return errors.New("the target has an Authorization header, which takes precedence over a login")
	}
	u, err := url.Parse(t.URL)
	if err != nil || u.Scheme != "https" && !netx.IsLocalHost(u.Hostname()) {
		return fmt.Errorf("invalid target %q for a login: must be https, or http on a loopback address",
			PublicURL(t.URL))
	}
	return nil
}
