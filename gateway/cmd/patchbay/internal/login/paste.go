package login

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"
	"sync"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/exit"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/target"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/term"
	"github.com/patchbay-mcp/patchbay/oauth/oauthclient"
)

const (
	// maxPaste bounds a pasted URL, in bytes: servers limit the headers of a request to 8 KiB.
	maxPaste = 8 << 10
	// MaxPastes bounds the lines that are read.
	MaxPastes = 5
	// terminalLine is the length at which terminals cut a line, in bytes.
	terminalLine = 4095
)

// Authorize sets the authorization of a target, if it can have one.
func (p *Logins) Authorize(ctx context.Context, t *target.Target) error {
	if t.Auth != nil || t.MayLogIn() != nil {
		return nil
	}
	if IsMachineClient() {
		opts, err := p.machineOptions(ctx)
		if err != nil {
			return exit.UsageError(err)
		}
		t.Auth = oauthclient.NewTransport(t.URL, opts)
		return nil
	}
	s, err := p.LoadSettings(ctx, t)
	if err != nil {
		return err
	}
	var ask oauthclient.Authorizer
	if p.IO.MayPrompt() && !t.NoLogin {
		ask = p.NewUserLogin(t, true)
	}
	t.Auth, err = p.NewAuth(ctx, t, s, ask)
	return err
}

// A userLogin is the Authorizer of a login in the browser. If that is not on this machine, the user
// pastes the URL at which it ends, the redirect URI with the response.
type userLogin struct {
	*oauthclient.Browser
	p      *Logins
	target *target.Target
	opens  bool          // the page is opened
	asks   chan struct{} // the URL is read; buffered
}

// NewUserLogin returns an Authorizer for the user. opens reports whether a browser may open.
func (p *Logins) NewUserLogin(t *target.Target, opens bool) *userLogin {
	l := &userLogin{p: p, target: t, opens: opens && !p.Headless, asks: make(chan struct{}, 1)}
	l.Browser = oauthclient.NewBrowser(&oauthclient.BrowserOptions{
		Open: func(ctx context.Context, page string) error {
			if !l.opens || !p.Ask.OpenPage(ctx, page) {
				l.asks <- struct{}{}
			}
			return nil
		},
		Logger:  p.IO.Logger(),
		Timeout: p.Timeout,
		Show:    func(r *oauthclient.LoginRequest) { p.showLoginPage(t, r, l.opens) },
	})
	return l
}

// Listen implements oauthclient.Authorizer.
func (l *userLogin) Listen(ctx context.Context, redirectURIs []string) (oauthclient.Callback, error) {
	c, err := l.Browser.Listen(ctx, redirectURIs)
	if err != nil {
		return nil, err
	}
	return &pasteCallback{c, l}, nil
}

// A pasteCallback receives the response at a loopback address or as a pasted URL, as it comes.
type pasteCallback struct {
	oauthclient.Callback
	*userLogin
}

// errPasted ends the wait for the browser.
var errPasted = errors.New("the URL was pasted")

// Authorize implements oauthclient.Callback.
func (c *pasteCallback) Authorize(ctx context.Context, login *oauthclient.LoginRequest) (url.Values, error) {
	defer c.p.Ask.PauseLimit()()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var pasted url.Values
	var failed error
	var reading sync.WaitGroup
	reading.Go(func() {
		select {
		case <-c.asks:
		case <-ctx.Done():
			return
		}
		if pasted, failed = c.read(ctx, login); pasted != nil || failed != nil {
			cancel(errPasted)
		}
	})
	response, err := c.Callback.Authorize(ctx, login)
	cancel(nil)
	reading.Wait()
	if errors.Is(err, errPasted) {
		return pasted, failed
	}
	return response, err
}

// read reads lines until the URL of the response. It returns nil at the end of input or ctx.
func (c *pasteCallback) read(ctx context.Context, login *oauthclient.LoginRequest) (url.Values, error) {
	p := c.p
	select {
	case p.Ask.Lock <- struct{}{}:
		defer func() { <-p.Ask.Lock }()
	case <-ctx.Done():
		return nil, nil
	}
	p.IO.Err.Printf("If the browser is on another machine, it cannot show the last page: " +
		"paste the URL of that page here.")
	var wrong error
	for range MaxPastes {
		if p.IO.Interactive {
			p.IO.Err.Prompt("URL: ")
		}
		line, err := p.IO.In.ReadLine(ctx)
		switch {
		case err != nil && p.IO.Interactive:
			p.IO.Err.Printf("")
			return nil, nil
		case errors.Is(err, io.EOF) && wrong != nil:
			return nil, &exit.Error{Code: exit.Auth, Err: fmt.Errorf("the login did not end: %w", wrong)}
		case ctx.Err() != nil, errors.Is(err, io.EOF):
			return nil, nil
		case err != nil:
			return nil, exit.UsageError(err)
		}
		values, err := parsePaste(line, c.RedirectURI(), login)
		if err == nil {
			return values, nil
		}
		if p.IO.Interactive && len(line) >= terminalLine {
			err = fmt.Errorf("%w; terminals cut lines of more than %d bytes: pass the URL on standard input, with "+
				"--no-browser", err, terminalLine)
		}
		p.IO.Err.Printf("  %s", term.CleanLine(err.Error()))
		wrong = err
	}
	err := fmt.Errorf("the login did not end: no line of %d was its last URL: %w", MaxPastes, wrong)
	return nil, &exit.Error{Code: exit.Auth, Err: err}
}

// parsePaste returns the response in a pasted URL: the redirect URI with a query of this login. The
// error does not contain the query, which may have a code.
func parsePaste(line, redirectURI string, login *oauthclient.LoginRequest) (url.Values, error) {
	line = strings.TrimSpace(line)
	if len(line) > maxPaste {
		return nil, fmt.Errorf("invalid URL: must have at most %d bytes, got %d", maxPaste, len(line))
	}
	line, _, _ = strings.Cut(line, "#")
	address, query, hasQuery := strings.Cut(line, "?")
	page, _, _ := strings.Cut(login.URL, "?")
	switch {
	case address == page && address != redirectURI:
		return nil, errors.New("this is the login page: paste the URL that the browser shows after the login")
	case address != redirectURI || !hasQuery:
		return nil, fmt.Errorf("invalid URL %q: must begin with %s?", term.Shorten(address, 100), redirectURI)
	}
	values, err := url.ParseQuery(query)
	if err != nil {
		return nil, errors.New("invalid URL: its query cannot be parsed")
	}
	for _, name := range []string{"state", "iss", "code", "error"} {
		if len(values[name]) > 1 {
			return nil, fmt.Errorf("invalid URL: %s appears twice", name)
		}
	}
	switch {
	case login.State == "" || subtle.ConstantTimeCompare([]byte(values.Get("state")), []byte(login.State)) != 1:
		return nil, errors.New("invalid URL: its state is not that of this login; use the page that was shown last")
	case values.Has("iss") && values.Get("iss") != login.Issuer:
		return nil, fmt.Errorf("invalid URL: its iss %q must be %s", term.Shorten(values.Get("iss"), 100), login.Issuer)
	case values.Get("code") == "" && values.Get("error") == "":
		return nil, errors.New("invalid URL: has neither a code nor an error; copy all of it")
	}
	return values, nil
}

// IsHeadless reports whether the user cannot see a browser of this machine: without a display, or
// in an SSH session. getenv returns environment variables.
func IsHeadless(system string, getenv func(name string) string) bool {
	for _, name := range []string{"DISPLAY", "WAYLAND_DISPLAY", "BROWSER"} {
		if getenv(name) != "" {
			return false // also forwarded by SSH, or by an editor
		}
	}
	isRemote := getenv("SSH_CONNECTION") != "" || getenv("SSH_TTY") != ""
	switch system {
	case "windows", "darwin":
		return isRemote
	}
	return isRemote || getenv("WSL_DISTRO_NAME") == "" // WSL opens pages in Windows
}
