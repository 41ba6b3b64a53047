package cli

import (
	"errors"
	"net/netip"
	"net/url"
	"os/exec"
	"runtime"
	"strings"
	"time"
)

// checkPage gives the URL that a server wants opened, in the form in which it is opened and shown, if it may be.
func checkPage(page string) (*url.URL, error) {
	u, err := url.Parse(page)
	switch {
	case err != nil:
		return nil, errors.New("it cannot be parsed")
	case u.Hostname() == "":
		return nil, errors.New("it has no host")
	case u.User != nil:
		return nil, errors.New("it holds credentials")
	case u.Scheme != "https" && (u.Scheme != "http" || !loopback(u.Hostname())):
		return nil, errors.New("it is neither https nor http on this machine")
	case strings.ContainsFunc(u.Host, func(r rune) bool { return r <= ' ' || r > '~' }):
		return nil, errors.New("its host has letters beyond ASCII, which can pass for others")
	}
	return u, nil
}

func loopback(host string) bool {
	if strings.EqualFold(host, "localhost") {
		return true
	}
	addr, err := netip.ParseAddr(host)
	return err == nil && addr.IsLoopback()
}

// browserPatience is how long the program that opens pages may take to fail. One that is still there has become the
// browser itself.
const browserPatience = 3 * time.Second

// openPage opens a page in the user's browser. No shell sees the URL.
func openPage(page string) error {
	name, args := "xdg-open", []string{page}
	switch runtime.GOOS {
	case "darwin":
		name = "open"
	case "windows":
		name, args = "rundll32", []string{"url.dll,FileProtocolHandler", page}
	}
	cmd := exec.Command(name, args...) //nolint:noctx // the browser stays when this program ends
	if err := cmd.Start(); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }() // it ends with the browser, or with this program
	timer := time.NewTimer(browserPatience)
	defer timer.Stop()
	select {
	case err := <-ended:
		return err
	case <-timer.C:
		return nil
	}
}
