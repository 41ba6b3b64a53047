package cli

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/patchbay-mcp/patchbay/mcphttp"
	"github.com/patchbay-mcp/patchbay/oauth"
	"github.com/patchbay-mcp/patchbay/oauth/oauthclient"
)

const (
	// scopeOffline is the scope for a refresh token. It is always requested, and not shown.
	scopeOffline = "offline_access"
	// trialTimeout bounds the check whether a server supports login.
	trialTimeout = 10 * time.Second
	// vaultTimeout bounds reading the stored login.
	vaultTimeout = 5 * time.Second

	headerHint = "Pass a token with --header 'Authorization: Bearer TOKEN'."
)

// advice is what is shown with an authorization error.
type advice struct {
	message string // replaces the message of the error, unless empty
	login   string // the command that logs in, if that may help
	hint    string // shown if login is empty
}

// advise returns the advice for an error, of authorization or of a certificate. It is empty for others.
func advise(ctx context.Context, f *factory, code int, err error) advice {
	t := f.Client.current.Load()
	var untrusted x509.UnknownAuthorityError
	if errors.As(err, &untrusted) {
		return advice{hint: "If an authority of your organization has signed the certificate, pass that authority's " +
			"with --cacert FILE."}
	}
	if t == nil || t.url == "" || code != exitAuth && !errors.Is(err, oauthclient.ErrLoginTimeout) {
		return advice{}
	}
	var refused *oauthclient.AuthorizeError
	var said *oauthclient.LoginError
	var status *mcphttp.StatusError
	isRefused := errors.As(err, &refused)
	noToken := advice{hint: headerHint}
	if errors.As(err, &status) && status.StatusCode == http.StatusUnauthorized {
		noToken.message = "the server requires an access token"
	}
	switch {
	case t.header.Get("Authorization") != "":
		return headerAdvice(t, err)
	case t.auth == nil && !f.Login.inProgress:
		return noToken
	case isMachineClient():
		return advice{}
	case isRefused && refused.Status == http.StatusForbidden:
		return stepUpAdvice(ctx, f, t, refused)
	case isRefused && isLoginUseless(ctx, f, t, refused):
		return advice{message: refused.Endpoint +
			" requires a token, and does not support login (no OAuth metadata)", hint: headerHint}
	case f.Login.inProgress && errors.As(err, &said) && said.Code == "invalid_scope":
		return advice{hint: "To request none of the earlier scopes, log out first: patchbay auth logout " +
			t.argument(f.Flags.config)}
	case !isRefused && noToken.message != "":
		return noToken // a login does not help
	}
	return advice{login: loginCommandLine(f, t, nil)}
}

// headerAdvice is the advice if the user passes an Authorization header.
func headerAdvice(t *target, err error) advice {
	var status *mcphttp.StatusError
	if !errors.As(err, &status) {
		return advice{}
	}
	what := "your credentials"
	scheme, _, _ := strings.Cut(t.header.Get("Authorization"), " ")
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
			reason = ": " + shorten(cleanLine(text), maxReason)
		}
	}
	switch {
	case status.StatusCode == http.StatusUnauthorized:
		return advice{message: "the server rejected " + what + reason}
	case len(scopes) == 1:
		return advice{message: what + " lacks the scope " + shorten(cleanLine(scopes[0]), maxReason)}
	case len(scopes) > 1:
		return advice{message: what + " lacks some of the scopes " +
			shorten(cleanLine(strings.Join(scopes, " ")), maxReason)}
	}
	return advice{message: "the server does not allow this request with " + what + reason}
}

// stepUpAdvice is the advice if a login lacks scopes.
func stepUpAdvice(ctx context.Context, f *factory, t *target, refused *oauthclient.AuthorizeError) advice {
	var required *oauthclient.LoginRequiredError
	var again *oauthclient.StepUpError
	var scopes []string
	switch {
	case errors.As(refused.Err, &required):
		scopes = required.Scopes
	case errors.As(refused.Err, &again):
		return advice{login: loginCommandLine(f, t, again.Scopes)}
	default:
		if wanted := f.Login.scopes.Load(); wanted != nil {
			scopes = *wanted
		}
	}
	a := advice{login: loginCommandLine(f, t, scopes)}
	if missing := t.missingScopes(context.WithoutCancel(ctx), scopes); missing != "" {
		a.message = "the login at " + refused.Endpoint + " lacks the scopes " + missing
		if required == nil {
			a.message += ": " + strings.TrimPrefix(refused.Err.Error(), "oauth: ")
		}
	}
	return a
}

// missingScopes returns the scopes that the login at a target lacks, or "" without a login.
func (t *target) missingScopes(ctx context.Context, scopes []string) string {
	if t.auth == nil {
		return ""
	}
	ctx, cancel := context.WithTimeout(ctx, vaultTimeout)
	defer cancel()
	now, err := t.auth.Status(ctx)
	if err != nil || now == nil {
		return ""
	}
	return strings.Join(difference(scopes, now.Scopes), " ")
}

// isLoginUseless reports whether the server does not support login. It sends requests.
func isLoginUseless(ctx context.Context, f *factory, t *target, refused *oauthclient.AuthorizeError) bool {
	var said *oauthclient.LoginError
	isAnswer := errors.As(refused.Err, &said) || errors.Is(refused.Err, oauthclient.ErrLoginTimeout)
	return (t.contacted || f.Login.inProgress) && !isAnswer && !offersLogin(ctx, f, t)
}

// errOffered ends the trial of offersLogin at the login page.
var errOffered = errors.New("the server supports login")

// offersLogin reports whether a server supports login. It tries one, up to the page that would be
// opened. Nothing is registered, stored or shown. It reports true if it cannot find out.
func offersLogin(ctx context.Context, f *factory, t *target) bool {
	ctx, cancel := context.WithTimeout(ctx, trialTimeout)
	defer cancel()
	silent := slog.New(slog.DiscardHandler)
	var page, issuer string
	trial := oauthclient.NewTransport(t.url, &oauthclient.TransportOptions{
		Base:    f.Net.roundTripper(),
		Fetcher: f.Net.newFetcher(silent),
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
	return !isGuessed(t.url, page, issuer) || pageExists(ctx, f, page)
}

// isGuessed reports whether a login page may be the default for servers without metadata (2025-03-26).
func isGuessed(server, page, issuer string) bool {
	u, err := url.Parse(server)
	if err != nil {
		return false
	}
	origin := u.Scheme + "://" + u.Host
	return issuer == origin && strings.HasPrefix(page, origin+"/authorize?")
}

// pageExists reports whether a login page exists, by a request without parameters.
func pageExists(ctx context.Context, f *factory, page string) bool {
	address, _, _ := strings.Cut(page, "?")
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return true
	}
	transport := f.Net.newBase()
	transport.DisableKeepAlives = true
	res, err := transport.RoundTrip(req)
	if err != nil {
		return true
	}
	_ = res.Body.Close()
	return !slices.Contains([]int{http.StatusUnauthorized, http.StatusNotFound, http.StatusGone}, res.StatusCode)
}

// loginCommandLine returns the command that logs in to a target with some scopes, or "" if it cannot.
func loginCommandLine(f *factory, t *target, scopes []string) string {
	if f.Login.inProgress || t.mayLogIn() != nil || isMachineClient() {
		return ""
	}
	command := "patchbay auth login " + t.argument(f.Flags.config)
	for _, scope := range scopes {
		command += " --scope " + shellWord(scope)
	}
	return command
}

// argument returns the target as an argument of a command line.
func (t *target) argument(config string) string {
	if config != "" && t.from != "" {
		return shellWord(t.name) + " --config " + shellWord(config)
	}
	return shellWord(t.name)
}

func scopesOf(page string) []string {
	u, err := url.Parse(page)
	if err != nil {
		return nil
	}
	return difference(strings.Fields(u.Query().Get("scope")), []string{scopeOffline})
}

// difference returns the elements of list that are not in other.
func difference(list, other []string) []string {
	return slices.DeleteFunc(slices.Clone(list), func(s string) bool { return slices.Contains(other, s) })
}

// shellWord quotes a word for a shell, with octal escapes for bytes that would act on a terminal.
func shellWord(word string) string {
	if quoted := "'" + word + "'"; cleanLine(quoted) != quoted {
		return escapedWord(word)
	}
	const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./:@%+=,"
	if word != "" && strings.Trim(word, plain) == "" {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// escapedWord quotes a word with $'…', which bash, ksh and zsh read.
func escapedWord(word string) string {
	var b strings.Builder
	b.WriteString("$'")
	for i := range len(word) {
		switch c := word[i]; {
		case c == '\'' || c == '\\':
			b.WriteString(`\` + string(c))
		case c <= ' ' || c >= 0x7F:
			fmt.Fprintf(&b, `\%03o`, c)
		default:
			b.WriteByte(c)
		}
	}
	b.WriteByte('\'')
	return b.String()
}
