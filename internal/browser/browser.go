// Package browser opens web pages in the user's browser.
package browser

import (
	"context"
	"errors"
	"net/url"
	"os/exec"
	"runtime"
	"strings"
	"time"
	"unicode"

	"github.com/patchbay-mcp/patchbay/internal/netx"
	"github.com/patchbay-mcp/patchbay/visible"
)

// Check returns a URL that a server wants opened, re-encoded from its parts, as it is opened and
// shown. The error says why it must not be opened: it must be https, or http on this machine, and
// its host must be recognizable.
//
// Spec: basic/security_best_practices, Authorization URLs.
func Check(page string) (*url.URL, error) {
	u, err := url.Parse(page)
	switch {
	case strings.ContainsFunc(page, isUnsafe):
		return nil, errors.New("the URL has spaces, or characters that are not visible or change how it is shown")
	case err != nil:
		return nil, errors.New("the URL cannot be parsed")
	case u.Hostname() == "" || u.Opaque != "":
		return nil, errors.New("the URL has no host")
	case u.User != nil:
		return nil, errors.New("the URL must not contain credentials")
	case u.Scheme != "https" && (u.Scheme != "http" || !netx.IsLoopback(u.Hostname()) &&
		!strings.HasSuffix(u.Hostname(), ".localhost")):
		return nil, errors.New("the URL is neither https nor http on this machine")
	case strings.Contains(u.Hostname(), "%"):
		return nil, errors.New("the host is an IPv6 address with a zone")
	case strings.ContainsFunc(u.Host, func(r rune) bool { return r <= ' ' || r > '~' }):
		return nil, errors.New("the host has letters beyond ASCII, which can look like ASCII ones")
	}
	return u, nil
}

// isUnsafe reports whether a character must be escaped in a URL, because a reader cannot see it or
// it changes the direction of the text.
func isUnsafe(r rune) bool {
	return r == unicode.ReplacementChar || unicode.IsSpace(r) || !unicode.IsGraphic(r) || visible.Hidden(r)
}

// openTimeout is how long the command that opens pages may take to fail. A command that still runs
// has become the browser itself.
const openTimeout = 3 * time.Second

// Open opens a page that Check returned. It returns when the page is open as far as is known,
// or when ctx ends. No shell sees the URL.
func Open(ctx context.Context, page *url.URL) error {
	name, args := command(runtime.GOOS, page.String())
	cmd := exec.Command(name, args...) //nolint:noctx // the browser outlives this program
	if err := cmd.Start(); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }() // ends with the browser, or with this program
	timer := time.NewTimer(openTimeout)
	defer timer.Stop()
	select {
	case err := <-ended:
		return err
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// command returns the command that opens pages on a system.
func command(system, page string) (name string, args []string) {
	switch system {
	case "darwin":
		return "open", []string{page}
	case "windows":
		return "rundll32", []string{"url.dll,FileProtocolHandler", page}
	}
	return "xdg-open", []string{page}
}
