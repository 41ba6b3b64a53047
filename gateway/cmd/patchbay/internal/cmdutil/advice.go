// Package cmdutil contains the [Factory] of commands, builders of commands, help and completion.
package cmdutil

import (
	"context"
	"crypto/x509"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/exit"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/login"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/target"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/term"
	"github.com/patchbay-mcp/patchbay/mcphttp"
	"github.com/patchbay-mcp/patchbay/oauth"
	"github.com/patchbay-mcp/patchbay/oauth/oauthclient"
)

const (

	// trialTimeout bounds the check whether a server supports login.
	trialTimeout = 10 * time.Second
)

const (
	// HeaderHint is shown when a server requires a token and does not support login.
	HeaderHint = "Pass a token with --header 'Authorization: Bearer TOKEN'."
)

// advice contains the text that is shown with an authorization error.
type advice struct {
	Message string // replaces the message of the error, unless empty
	Login   string // the command that logs in, if that may help
	Hint    string // shown if login is empty
}

// Advise returns the advice for an error, of authorization or of a certificate. It is empty for
// others.
func Advise(ctx context.Context, f *Factory, code int, err error) advice {
	t := f.Client.Current.Load()
	var untrusted x509.UnknownAuthorityError
	if errors.As(err, &untrusted) {
		return advice{Hint: "If an authority of your organization has signed the certificate, pass that authority's " +
			"with --cacert FILE."}
	}
	if t == nil || t.URL == "" || code != exit.Auth && !errors.Is(err, oauthclient.ErrLoginTimeout) {
		return advice{}
	}
	var refused *oauthclient.AuthorizeError
	var said *oauthclient.LoginError
	var status *mcphttp.StatusError
	isRefused := errors.As(err, &refused)
	noToken := advice{Hint: HeaderHint}
	if errors.As(err, &status) && status.StatusCode == http.StatusUnauthorized {
		noToken.Message = "the server requires an access token"
	}
	switch {
	case t.Header.Get("Authorization") != "":
		return headerAdvice(t, err)
	case t.Auth == nil && !f.Login.InProgress:
		return noToken
	case login.IsMachineClient():
		return advice{}
	case isRefused && refused.Status == http.StatusForbidden:
		return stepUpAdvice(ctx, f, t, refused)
	case isRefused && isLoginUseless(ctx, f, t, refused):
		return advice{Message: refused.Endpoint +
			" requires a token, and does not support login (no OAuth metadata)", Hint: HeaderHint}
	case f.Login.InProgress && errors.As(err, &said) && said.Code == "invalid_scope":
		return advice{Hint: "To drop the earlier scopes, log out first: patchbay auth logout " +
			t.Argument(f.Flags.Config)}
	case !isRefused && noToken.Message != "":
		return noToken // a login does not help
	}
	return advice{Login: LoginCommandLine(f, t, nil)}
}

// headerAdvice is the advice if the user passes an Authorization header.
func headerAdvice(t *target.Target, err error) advice {
	var status *mcphttp.StatusError
	if !errors.As(err, &status) {
		return advice{}
	}
	what := "your credentials"
	scheme, _, _ := strings.Cut(t.Header.Get("Authorization"), " ")
	if strings.EqualFold(scheme, "Bearer") || strings.EqualFold(scheme, "DPoP") {
		what = "your token"
	}
	var reason string
	var scopes []string
	for _, c := range oauth.ParseChallenges(status.Header) {
		if c.Params["error"] == "insufficient_scope" {
			scopes = strings.Fields(c.Params["scope"])
		}
		if text := c.Params["error_description"]; text != "" {
			reason = ": " + term.Shorten(term.CleanLine(text), exit.MaxReason)
		}
	}
	switch {
	case status.StatusCode == http.StatusUnauthorized:
		return advice{Message: "the server rejected " + what + reason}
	case len(scopes) == 1:
		return advice{Message: what + " lacks the scope " + term.Shorten(term.CleanLine(scopes[0]), exit.MaxReason)}
	case len(scopes) > 1:
		return advice{Message: what + " lacks some of the scopes " +
			term.Shorten(term.CleanLine(strings.Join(scopes, " ")), exit.MaxReason)}
	}
	return advice{Message: "the server does not allow this request with " + what + reason}
}

// stepUpAdvice is the advice if a login lacks scopes.
func stepUpAdvice(ctx context.Context, f *Factory, t *target.Target, refused *oauthclient.AuthorizeError) advice {
	var required *oauthclient.LoginRequiredError
	var again *oauthclient.StepUpError
	var scopes []string
	switch {
	case errors.As(refused.Err, &required):
		scopes = required.Scopes
	case errors.As(refused.Err, &again):
		return advice{Login: LoginCommandLine(f, t, again.Scopes)}
	default:
		if wanted := f.Login.Scopes.Load(); wanted != nil {
			scopes = *wanted
		}
	}
	a := advice{Login: LoginCommandLine(f, t, scopes)}
	if missing := t.MissingScopes(context.WithoutCancel(ctx), scopes); missing != "" {
		a.Message = "the login at " + refused.Endpoint + " lacks the scopes " + missing
		if required == nil {
			a.Message += ": " + strings.TrimPrefix(refused.Err.Error(), "oauth: ")
		}
	}
	return a
}

// isLoginUseless reports whether the server does not support login. It sends requests.
func isLoginUseless(ctx context.Context, f *Factory, t *target.Target, refused *oauthclient.AuthorizeError) bool {
	var said *oauthclient.LoginError
	isAnswer := errors.As(refused.Err, &said) || errors.Is(refused.Err, oauthclient.ErrLoginTimeout)
	return (t.Contacted || f.Login.InProgress) && !isAnswer && !offersLogin(ctx, f, t)
}

// errOffered ends the trial of offersLogin at the login page.
var errOffered = errors.New("the server supports login")

// offersLogin reports whether a server supports login. It tries a login up to the page that would
// be opened, but must not register, store or show anything. It reports true if it cannot find out.
func offersLogin(ctx context.Context, f *Factory, t *target.Target) bool {
	ctx, cancel := context.WithTimeout(ctx, trialTimeout)
	defer cancel()
	silent := slog.New(slog.DiscardHandler)
	var page, issuer string
	trial := oauthclient.NewTransport(t.URL, &oauthclient.TransportOptions{
		Base:    f.Client.Net.RoundTripper(),
		Fetcher: f.Client.Net.NewFetcher(silent, nil),
		Logger:  silent,
		// With a client id, which is not sent, no client is registered.
		Client: oauthclient.Identity{ID: "patchbay", InsecureAnyIssuer: true},
		Authorizer: oauthclient.NewAuthorizer("http://127.0.0.1/callback",
			func(_ context.Context, l *oauthclient.LoginRequest) (url.Values, error) {
				page, issuer = l.URL, l.Issuer
				return nil, errOffered
			}),
	})
	defer trial.CloseIdleConnections()
	err := trial.Login(ctx)
	switch {
	case errors.Is(err, oauth.ErrNoMetadata):
		return false
	case !errors.Is(err, errOffered):
		return true
	}
	return !isGuessed(t.URL, page, issuer) || pageExists(ctx, f, page)
}

// isGuessed reports whether a login page may be the default for servers without metadata
// (2025-03-26).
func isGuessed(server, page, issuer string) bool {
	u, err := url.Parse(server)
	if err != nil {
		return false
	}
	origin := u.Scheme + "://" + u.Host
	return issuer == origin && strings.HasPrefix(page, origin+"/authorize?")
}

// pageExists reports whether a login page exists, by a request without parameters.
func pageExists(ctx context.Context, f *Factory, page string) bool {
	address, _, _ := strings.Cut(page, "?")
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return true
	}
	transport := f.Client.Net.NewBase()
	transport.DisableKeepAlives = true
	res, err := transport.RoundTrip(req)
	if err != nil {
		return true
	}
	_ = res.Body.Close()
	return !slices.Contains([]int{http.StatusUnauthorized, http.StatusNotFound, http.StatusGone}, res.StatusCode)
}

// LoginCommandLine returns the command that logs in to a target with some scopes, or "" if it
// cannot.
func LoginCommandLine(f *Factory, t *target.Target, scopes []string) string {
	if f.Login.InProgress || t.MayLogIn() != nil || login.IsMachineClient() {
		return ""
	}
	command := "patchbay auth login " + t.Argument(f.Flags.Config)
	for _, scope := range scopes {
		command += " --scope " + term.ShellWord(scope)
	}
	return command
}
