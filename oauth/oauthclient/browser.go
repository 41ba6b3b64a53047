package oauthclient

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/browser"
	"github.com/patchbay-mcp/patchbay/internal/oauthfetch"
)

// defaultLoginTimeout allows for finding a password and a second factor.
const defaultLoginTimeout = 5 * time.Minute

// BrowserOptions configures a [Browser]. The zero value is right for programs in a terminal.
type BrowserOptions struct {
	// Open opens a page in the user's browser. If it fails, the user can still open the page that
	// Show opened. It returns when ctx ends. Default: the system's command.
	Open func(ctx context.Context, page string) error
	// Show shows the address of a page, for users whose browser does not open by itself. Default: a
	// line on standard error.
	Show func(login *LoginRequest)
	// Timeout limits the time until the user logged in. Default: 5 minutes.
	Timeout time.Duration
	// Logger receives warnings when the browser does not open. Default: slog.Default().
	Logger *slog.Logger
}

// A Browser is the [Authorizer] of programs on the user's machine. It opens the login page in the
// browser and receives the response with an HTTP server on a loopback address, which runs during
// the login. It is safe for concurrent use.
//
// Spec: RFC 8252, sections 7.3 and 8.3.
type Browser struct {
	open    func(ctx context.Context, page string) error
	show    func(login *LoginRequest)
	timeout time.Duration
	log     *slog.Logger
}

// NewBrowser returns a Browser. opts may be nil.
func NewBrowser(opts *BrowserOptions) *Browser {
	o := *cmp.Or(opts, new(BrowserOptions))
	b := &Browser{open: o.Open, show: o.Show, timeout: o.Timeout, log: cmp.Or(o.Logger, slog.Default())}
	if b.open == nil {
		b.open = OpenBrowser
	}
	if b.show == nil {
		b.show = func(login *LoginRequest) {
			fmt.Fprintf(os.Stderr, "To log in to %s, open\n%s\n",
				oauthfetch.CleanText(login.Server, oauthfetch.MaxURL), login.URL)
		}
	}
	if b.timeout <= 0 {
		b.timeout = defaultLoginTimeout
	}
	return b
}

// OpenBrowser opens a page in the user's browser if [CheckPage] accepts it. No shell sees the URL.
// OpenBrowser returns when the page is open as far as is known, or when ctx ends.
func OpenBrowser(ctx context.Context, page string) error {
	u, err := CheckPage(page)
	if err != nil {
		return err
	}
	return browser.Open(ctx, u)
}

// CheckPage returns the URL of a page that a server wants opened, as it may be shown to the user
// and opened. The error says why it must not be opened: a page must be https, or http on this
// machine, and its host must be recognizable.
//
// Spec: basic/security_best_practices, Authorization URLs.
func CheckPage(page string) (*url.URL, error) { return browser.Check(page) }

// Listen starts the server for the response, at the first redirect URI with a loopback host whose
// port is free.
func (b *Browser) Listen(ctx context.Context, redirectURIs []string) (Callback, error) {
	return listenCallback(ctx, b, redirectURIs)
}

func (b *Browser) authorize(ctx context.Context, login *LoginRequest, responses <-chan url.Values) (url.Values, error) {
	if _, err := browser.Check(login.URL); err != nil {
		return nil, fmt.Errorf("oauth: invalid login page: %w", err)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, b.timeout, ErrLoginTimeout)
	defer cancel()
	b.show(login)
	opened := make(chan struct{})
	go func() { // ends with open, which returns when ctx ends
		defer close(opened)
		if err := b.open(ctx, login.URL); err != nil && ctx.Err() == nil {
			b.log.Warn("oauth: the browser could not be opened", "error", withoutPage(err))
		}
	}()
	defer func() { cancel(); <-opened }()
	select {
	case response := <-responses:
		return response, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// withoutPage returns an error without the URL of the page, which contains the state of the login.
func withoutPage(err error) error {
	if bad, ok := err.(*url.Error); ok {
		return bad.Err
	}
	return err
}
