package cli

import (
	"context"
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
)

const (
	// scopeOffline asks for tokens that outlast the user's presence. We ask for it ourselves, so that it is nothing to tell.
	scopeOffline = "offline_access"
	// maxReasonShown is how much is shown of what a server says of a refusal, in characters.
	maxReasonShown = 200
	// trialTimeout bounds the search for a login that a server offers, after the command has failed for want of one.
	trialTimeout = 10 * time.Second
	// vaultTimeout bounds a look at what is stored of a login.
	vaultTimeout = 5 * time.Second

	headerHint = "--header 'Authorization: Bearer TOKEN' shows a token to the server"
)

// advice is what the user is told when a server does not let them in.
type advice struct {
	words string // in place of those of the error; empty if these are good
	login string // the command that logs in, if that can help
	hint  string // what else can
}

// advise returns advice on an error. There is none on errors that are no refusals.
func (p *program) advise(ctx context.Context, code int, err error) advice {
	t := p.current.Load()
	if t == nil || t.url == "" || code != exitAuth && !errors.Is(err, oauth.ErrLoginTimeout) {
		return advice{}
	}
	var refused *oauth.AuthorizeError
	var status *mcphttp.StatusError
	isRefused := errors.As(err, &refused)
	switch {
	case t.header.Get("Authorization") != "":
		return headerAdvice(t, err)
	case t.auth == nil && !p.loggingIn:
		return advice{hint: headerHint}
	case isMachineClient():
		return advice{}
	case isRefused && refused.Status == http.StatusForbidden:
		return p.stepUpAdvice(ctx, t, refused)
	case isRefused && p.isLoginUseless(ctx, t, refused):
		return advice{words: refused.Endpoint + " wants a token, and offers no login", hint: headerHint}
	case isRefused && p.loggingIn && isScopeUnknown(refused):
		return advice{hint: "patchbay auth logout " + t.argument(p.flags.config) + " forgets what was allowed before, so that it is not asked for again"}
	case !isRefused && errors.As(err, &status) && status.StatusCode == http.StatusUnauthorized:
		return advice{hint: headerHint} // it wants something else than a login
	}
	return advice{login: p.loginCommand(t, nil)}
}

// headerAdvice is for users who bring a token of their own.
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
	var said string
	var scopes []string
	for _, c := range oauth.ParseChallenges(status.Header) {
		if c.Params["error"] == "insufficient_scope" {
			scopes = strings.Fields(c.Params["scope"])
		}
		if text := c.Params["error_description"]; text != "" {
			said = ": it says: " + shorten(cleanLine(text), maxReasonShown)
		}
	}
	switch {
	case status.StatusCode == http.StatusUnauthorized:
		return advice{words: "the server refused " + what + said}
	case len(scopes) == 1:
		return advice{words: what + " lacks the scope " + shorten(cleanLine(scopes[0]), maxReasonShown)}
	case len(scopes) > 1:
		return advice{words: what + " lacks some of the scopes " + shorten(cleanLine(strings.Join(scopes, " ")), maxReasonShown)}
	}
	return advice{words: "the server does not allow that with " + what + said}
}

// stepUpAdvice is for users who are logged in, and not for what they want to do.
func (p *program) stepUpAdvice(ctx context.Context, t *target, refused *oauth.AuthorizeError) advice {
	var required *oauth.LoginRequiredError
	var again *oauth.StepUpError
	var scopes []string
	switch {
	case errors.As(refused.Err, &required):
		scopes = required.Scopes
	case errors.As(refused.Err, &again):
		return advice{login: p.loginCommand(t, again.Scopes)}
	default:
		if wanted := p.scopes.Load(); wanted != nil {
			scopes = *wanted
		}
	}
	a := advice{login: p.loginCommand(t, scopes)}
	if lacks := t.missingScopes(context.WithoutCancel(ctx), scopes); lacks != "" {
		a.words = "your login at " + refused.Endpoint + " lacks " + lacks
		if required == nil {
			a.words += ", and " + strings.TrimPrefix(refused.Err.Error(), "oauth: ")
		}
	}
	return a
}

// lacks returns those of some scopes that the login at a target does not have; none if there is no login.
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

// isScopeUnknown reports whether the authorization server does not know what was asked for.
func isScopeUnknown(err error) bool {
	var said *oauth.LoginError
	return errors.As(err, &said) && said.Code == "invalid_scope"
}

// isInVain reports whether no login will help, since the server offers none. It asks the server.
func (p *program) isLoginUseless(ctx context.Context, t *target, refused *oauth.AuthorizeError) bool {
	var said *oauth.LoginError
	isAnswer := errors.As(refused.Err, &said) || errors.Is(refused.Err, oauth.ErrLoginTimeout)
	return (t.contacted || p.loggingIn) && !isAnswer && !p.offersLogin(ctx, t)
}

// errOffered ends a login that is gone through only to see whether there is one.
var errOffered = errors.New("the server offers a login")

// offersLogin reports whether a server offers a login, as far as can be found out: it goes through one up to the page that
// would be opened. Nothing is registered, stored or shown.
func (p *program) offersLogin(ctx context.Context, t *target) bool {
	ctx, cancel := context.WithTimeout(ctx, trialTimeout)
	defer cancel()
	silent := slog.New(slog.DiscardHandler)
	var page, issuer string
	trial := oauth.NewTransport(t.url, &oauth.TransportOptions{
		Fetcher: oauth.NewFetcher(&oauth.FetcherOptions{Proxy: http.ProxyFromEnvironment, Logger: silent}),
		Logger:  silent,
		// With an id, which is sent nowhere, nothing is registered.
		Client: oauth.ClientOptions{ID: "patchbay", InsecureAnyIssuer: true},
		Authorizer: oauth.NewAuthorizer("http://127.0.0.1/callback", func(_ context.Context, l *oauth.LoginRequest) (url.Values, error) {
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
		return true // for all that is known
	}
	return !isGuessed(t.url, page, issuer) || pageExists(ctx, page)
}

// isGuessed reports whether a login page may be no more than where revision 2025-03-26 has it, without metadata.
func isGuessed(server, page, issuer string) bool {
	u, err := url.Parse(server)
	if err != nil {
		return false
	}
	origin := u.Scheme + "://" + u.Host
	return issuer == origin && strings.HasPrefix(page, origin+"/authorize?")
}

// isThere reports whether there is a page. It is asked for without the parameters of a login, which begins none.
func pageExists(ctx context.Context, page string) bool {
	address, _, _ := strings.Cut(page, "?")
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return true
	}
	transport := &http.Transport{Proxy: http.ProxyFromEnvironment, DisableKeepAlives: true}
	res, err := transport.RoundTrip(req)
	if err != nil {
		return true
	}
	_ = res.Body.Close()
	return !slices.Contains([]int{http.StatusUnauthorized, http.StatusNotFound, http.StatusGone}, res.StatusCode)
}

// loginCommand returns the command that logs in to a target, asking for some scopes; empty if it cannot.
func (p *program) loginCommand(t *target, scopes []string) string {
	if p.loggingIn || t.mayLogIn() != nil || isMachineClient() {
		return ""
	}
	command := "patchbay auth login " + t.argument(p.flags.config)
	for _, scope := range scopes {
		command += " --scope " + shellWord(scope)
	}
	return command
}

// words returns a target as it is named on a command line.
func (t *target) argument(config string) string {
	if config != "" && t.from != "" {
		return shellWord(t.name) + " --config " + shellWord(config)
	}
	return shellWord(t.name)
}

// scopesOf returns the scopes that the page of a login asks for.
func scopesOf(page string) []string {
	u, err := url.Parse(page)
	if err != nil {
		return nil
	}
	return difference(strings.Fields(u.Query().Get("scope")), []string{scopeOffline})
}

// without returns what is in one list and not in another.
func difference(list, other []string) (rest []string) {
	for _, s := range list {
		if !slices.Contains(other, s) {
			rest = append(rest, s)
		}
	}
	return rest
}

// shellWord returns a word as a shell reads it. What would move a cursor or mislead a reader, and what a line on a screen would
// lose, stands in it as the number of each byte.
func shellWord(word string) string {
	if quoted := "'" + word + "'"; cleanLine(quoted) != quoted {
		return escapedWord(word)
	}
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_./:@%+=,", r)
	}
	if word != "" && !strings.ContainsFunc(word, func(r rune) bool { return !plain(r) }) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// escapedWord returns a word in the quotes of bash, ksh and zsh that take escapes.
func escapedWord(word string) string {
	var b strings.Builder
	b.WriteString("$'")
	for i := range len(word) {
		switch c := word[i]; {
		case c == '\'' || c == '\\':
			b.WriteByte('\\')
			b.WriteByte(c)
		case c <= ' ' || c >= 0x7F:
			fmt.Fprintf(&b, `\%03o`, c)
		default:
			b.WriteByte(c)
		}
	}
	b.WriteByte('\'')
	return b.String()
}
