// Package browser opens pages in the browser of the person at the machine.
package browser

import (
	"context"
	"errors"
	"net/url"
	"os/exec"
	"runtime"
	"strings"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/netx"
)

// Check returns the URL of a page that somebody else wants opened, in the form in which it is opened and shown, if it may
// be: it is https, or http on this machine, and shows plainly where it leads.
//
// Spec: basic/security_best_practices, Authorization URLs.
func Check(page string) (*url.URL, error) {
	u, err := url.Parse(page)
	switch {
	case err != nil:
		return nil, errors.New("it cannot be parsed")
	case u.Hostname() == "" || u.Opaque != "":
		return nil, errors.New("it has no host")
	case u.User != nil:
		return nil, errors.New("it holds credentials")
	case u.Scheme != "https" && (u.Scheme != "http" || !netx.IsLoopback(u.Hostname())):
		return nil, errors.New("it is neither https nor http on this machine")
	case strings.ContainsFunc(u.Host, func(r rune) bool { return r <= ' ' || r > '~' }):
		return nil, errors.New("its host has letters beyond ASCII, which can pass for others")
	}
	return u, nil
}

// patience is how long the program that opens pages may take to fail. One that is still there has become the browser
// itself.
const patience = 3 * time.Second

// Open opens a page that Check has given, and returns when it is known to be open, or ctx ends. No shell sees the URL.
func Open(ctx context.Context, page *url.URL) error {
	name, args := command(runtime.GOOS, page.String())
	cmd := exec.Command(name, args...) //nolint:noctx // the browser stays when this program ends
	if err := cmd.Start(); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }() // it ends with the browser, or with this program
	timer := time.NewTimer(patience)
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

// command returns the program that opens pages, with its arguments.
func command(system, page string) (name string, args []string) {
	switch system {
	case "darwin":
		return "open", []string{page}
	case "windows":
		return "rundll32", []string{"url.dll,FileProtocolHandler", page}
	}
	return "xdg-open", []string{page}
}
