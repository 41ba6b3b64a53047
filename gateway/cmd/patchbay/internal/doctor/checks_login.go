package doctor

import (
	"context"
	"errors"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/target"
	"github.com/patchbay-mcp/patchbay/oauth/oauthclient"
)

// shownParameters are the parameters of a login page whose values are not secret.
var shownParameters = []string{"client_id", "code_challenge_method", "redirect_uri", "resource", "response_type",
	"scope"}

// A loginRun is a login in progress. As its Authorizer, it reports the first page and response.
type loginRun struct {
	oauthclient.Authorizer
	oauthclient.Callback // set by Listen
	page                 chan *oauthclient.LoginRequest
	response             chan url.Values // nil for a failure
	done                 chan struct{}   // closed at the end, after err is set
	err                  error
}

// Listen implements oauthclient.Authorizer.
func (l *loginRun) Listen(ctx context.Context, redirectURIs []string) (oauthclient.Callback, error) {
	var err error
	l.Callback, err = l.Authorizer.Listen(ctx, redirectURIs)
	return l, err
}

// Authorize implements oauthclient.Callback.
func (l *loginRun) Authorize(ctx context.Context, r *oauthclient.LoginRequest) (url.Values, error) {
	select {
	case l.page <- r:
		values, err := l.Callback.Authorize(ctx, r)
		l.response <- values
		return values, err
	default: // a further page
		return l.Callback.Authorize(ctx, r)
	}
}

// register begins a login if the user asked for it, and waits for the registration of the client.
func (w *web) register(ctx context.Context, c *Check) {
	if !w.Login {
		c.skip("a login begins only on request")
		if c.NeedsLogin = !w.canLogIn; w.canLogIn {
			c.skip("the stored login is used")
		}
		return
	}
	settings, err := w.Dialer.Login.LoadSettings(ctx, w.target)
	l := &loginRun{page: make(chan *oauthclient.LoginRequest, 1), response: make(chan url.Values, 1),
		done: make(chan struct{})}
	var auth *oauthclient.Transport
	if err == nil {
		w.secrets.add(settings.ClientSecret)
		l.Authorizer = w.Dialer.Login.NewUserLogin(w.target, true)
		if w.Open != nil {
			l.Authorizer = oauthclient.NewBrowser(&oauthclient.BrowserOptions{Open: w.Open,
				Show: func(*oauthclient.LoginRequest) {}, Logger: w.Dialer.IO.Logger()})
		}
		auth, err = w.Dialer.Login.NewAuth(ctx, w.target, settings, l)
	}
	if err != nil {
		c.see("%v", err)
		c.end(Fail, "see patchbay help auth login")
		return
	}
	w.login, w.target.Auth = l, auth
	go func() { // ends with the login, which ctx ends; checks waits
		defer close(l.done)
		l.err = auth.Login(ctx)
	}()
	select {
	case r := <-l.page:
		l.page <- r // for authorize
		c.see("client_id %s", parameters(r.URL).Get("client_id"))
		return
	case <-l.done:
	}
	c.see("%v", l.err)
	refused, isRefused := errors.AsType[*oauthclient.RegistrationError](l.err)
	switch {
	case isRefused && refused.Code == "invalid_redirect_uri":
		c.end(Fail, "let the authorization server accept redirect URIs such as http://127.0.0.1:1/callback")
	case isRefused:
		c.end(Fail, "register a client at the authorization server, and pass it with patchbay auth login --client-id")
	default:
		c.end(Fail, "see patchbay help auth login")
	}
}

func parameters(address string) url.Values {
	u, err := url.Parse(address)
	if err != nil {
		return nil
	}
	return u.Query()
}

// authorize waits for the response of the login page.
func (w *web) authorize(_ context.Context, c *Check) {
	l := w.login
	if l == nil {
		c.skip("no login began")
		return
	}
	r := <-l.page
	page, _, _ := strings.Cut(r.URL, "?")
	c.see("page %s", target.PublicURL(page))
	for _, name := range shownParameters {
		c.see("%s=%s", name, parameters(r.URL).Get(name))
	}
	response := <-l.response
	if response == nil {
		<-l.done
		c.see("%v", l.err)
		c.end(Fail, "log in within the time limit, and allow the access")
		return
	}
	c.see("response with %s", strings.Join(slices.Sorted(maps.Keys(response)), ", "))
	if code := response.Get("error"); code != "" {
		c.see("error %s: %s", code, response.Get("error_description"))
		c.end(Fail, "allow the access, or look at the log of the authorization server")
	}
}

// token waits for the end of the login.
func (w *web) token(ctx context.Context, c *Check) {
	if w.login == nil {
		c.skip("no login began")
		return
	}
	<-w.login.done
	err := w.login.err
	var tokens *oauthclient.TokenSet
	if err == nil {
		tokens, err = w.target.Auth.Token(ctx)
	}
	if err != nil || tokens == nil {
		c.see("%v", err)
		c.end(Fail, "look at the log of the authorization server")
		return
	}
	w.secrets.add(tokens.AccessToken, tokens.RefreshToken)
	w.canLogIn = true
	c.see("token type %s, issuer %s, audience %s, expires %s", tokens.TokenType, tokens.Issuer, tokens.Resource,
		tokens.Expires.UTC().Format(time.DateTime))
	c.see("scopes granted %q, asked %q", strings.Join(tokens.Scopes, " "), strings.Join(tokens.Requested, " "))
	if missing := target.Difference(tokens.Requested, tokens.Scopes); len(missing) > 0 {
		c.end(Warn, "requests that need the scopes %q fail: they were not granted", strings.Join(missing, " "))
	}
}
