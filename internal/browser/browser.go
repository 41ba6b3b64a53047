// Package browser opens pages in the user's browser.
package browser

import (
	"context"
	"errors"
	"net/netip"
	"net/url"
	"os/exec"
	"runtime"
	"strings"
	"time"
)

// Check parses the URL of a page that a server asks to open, and returns it in the form in which it
// is shown and opened. It must be https, or http on this machine, and must not disguise its host.
//
// Spec: basic/security_best_practices, Authorization URLs.
func Check(page string) (*url.URL, error) {
	u, err := url.Parse(page)
	switch {
	case err != nil:
		return nil, errors.New("invalid URL")
	case u.Hostname() == "" || u.Opaque != "":
		return nil, errors.New("missing host")
	case u.User != nil:
		return nil, errors.New("credentials are not allowed")
	case u.Scheme != "https" && (u.Scheme != "http" || !isLoopback(u.Hostname())):
		return nil, errors.New("must be https, or http on this machine")
	case strings.ContainsFunc(u.Host, func(r rune) bool { return r <= ' ' || r > '~' }):
		return nil, errors.New("the host has letters beyond ASCII, which can look like others")
	}
	return u, nil
}

func isLoopback(host string) bool {
	if strings.EqualFold(host, "localhost") {
		return true
	}
	addr, err := netip.ParseAddr(host)
	return err == nil && addr.IsLoopback()
}

// openTimeout is how long the program that opens pages may take to fail. If it still runs, it is
// the browser itself.
const openTimeout = 3 * time.Second

// Open opens a URL that Check has returned. It returns when the page is open or ctx ends. The URL
// is not passed to a shell.
func Open(ctx context.Context, page *url.URL) error {
	name, args := command(runtime.GOOS, page.String())
	cmd := exec.Command(name, args...) //nolint:noctx // the browser stays when this program ends
	if err := cmd.Start(); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }() // it ends with the browser, or with this program
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

// command returns the program that opens a page, and its arguments.
func command(system, page string) (name string, args []string) {
	switch system {
	case "darwin":
		return "open", []string{page}
	case "windows":
		return "rundll32", []string{"url.dll,FileProtocolHandler", page}
	}
	return "xdg-open", []string{page}
}
