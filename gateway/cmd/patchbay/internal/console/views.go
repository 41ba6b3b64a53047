package console

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"runtime"
	"strings"
	"syscall"

	"github.com/patchbay-mcp/patchbay/gateway/internal/netx"
)

// The hosts of a console on this machine. Cookies ignore ports, and browsers put all ports of a
// host into one process, so the pages of apps use the host that the console does not use: Chromium
// then runs a frame in a process of its own. The name localhost is chosen over another loopback
// address such as 127.0.0.2, which macOS does not have.
const (
	hostByName    = "localhost"
	hostByAddress = "127.0.0.1"
)

// showsApps reports whether the console has a second origin. A console that other machines open, or
// that is behind TLS, has no second origin by itself.
func (c *Console) showsApps() bool { return !isRemote(&c.opts) || c.opts.ViewOrigin != "" }

// listenViews listens for the pages of apps of a console at a URL. A proxy at ViewOrigin knows the
// port, so no other port is used.
func listenViews(o *Options, base string) (all []net.Listener, err error) {
	origin, addr := o.ViewOrigin, o.ViewAddr
	switch {
	case origin != "" && !netx.IsOrigin(origin):
		return nil, fmt.Errorf("invalid origin %q: must be an https URL without a path", origin)
	case origin != "" && (netx.SameHost(origin, base) || netx.SameHost(origin, publicURL(o.Access))):
		return nil, fmt.Errorf("invalid origin %q: must have another host than the console", origin)
	case origin != "":
		addr = cmp.Or(addr, DefaultViewAddr)
	}
	u, err := url.Parse(origin)
	isPublic := err == nil && u.Host != "" && !netx.IsLocalHost(u.Hostname())
	return listenAll(addr, DefaultViewAddr, isPublic, !isPublic)
}

// maxPorts bounds the search for a port that is free at both addresses: the second port is rarely taken.
const maxPorts = 10

// resolvesNames reports whether browsers find the names below localhost. All browsers of the other
// systems know them; Safari asks the resolver.
func resolvesNames() bool {
	if runtime.GOOS != "darwin" {
		return true
	}
	ctx, cancel := context.WithTimeout(context.Background(), probeTimeout)
	defer cancel()
	_, err := net.DefaultResolver.LookupHost(ctx, "patchbay."+hostByName)
	return err == nil
}

// listenAll listens as listen does, also at ::1 if isNamed. It then uses another port if a program has
// the default port at one of the addresses.
func listenAll(given, standard string, isPublic, isNamed bool) (all []net.Listener, err error) {
	if !isNamed {
		l, err := listen(given, standard, isPublic)
		return []net.Listener{l}, err
	}
	all, err = listenNamed(given, standard)
	for n := 0; given == "" && errors.Is(err, syscall.EADDRINUSE) && n < maxPorts; n++ {
		all, err = listenNamed(net.JoinHostPort(hostByAddress, "0"), standard)
	}
	return all, err
}

// listenNamed listens at an address and at ::1: browsers may connect to the name localhost there, where
// a program of another user must not take the place of the console or of an app.
func listenNamed(given, standard string) (all []net.Listener, err error) {
	l, err := listen(given, standard, false)
	if err != nil {
		return nil, err
	}
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	var config net.ListenConfig
	other, err := config.Listen(context.Background(), "tcp", net.JoinHostPort("::1", port))
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, errors.Join(fmt.Errorf("another program listens at [::1]:%s: %w", port, err), l.Close())
	case err != nil: // without IPv6
		return []net.Listener{l}, nil
	}
	return []net.Listener{l, other}, nil
}

// origins returns the origin of the console, as the browser of a request sees it, and the origin of
// the pages of apps, which is empty if it would not be another host.
func (c *Console) origins(r *http.Request) (console, view string) {
	name := hostByName
	at, err := url.Parse("http://" + r.Host)
	switch {
	case err != nil:
		return "", ""
	case c.opts.ViewOrigin != "":
		scheme := "http"
		if c.logins.isTLS(r) || c.opts.Authenticate != nil {
			scheme = "https"
		}
		if console = scheme + "://" + r.Host; netx.SameHost(console, c.opts.ViewOrigin) {
			return "", ""
		}
		return console, c.opts.ViewOrigin
	case strings.EqualFold(at.Hostname(), hostByName):
		name = hostByAddress
	}
	_, port, err := net.SplitHostPort(c.views[0].Addr().String())
	if err != nil {
		return "", ""
	}
	return "http://" + r.Host, "http://" + net.JoinHostPort(name, port)
}

// serveView serves the page of an app, at the host of such pages only.
func (c *Console) serveView(w http.ResponseWriter, r *http.Request) {
	at, err := url.Parse("http://" + r.Host)
	isOwn := err == nil && netx.IsLocalHost(at.Hostname())
	if c.opts.ViewOrigin != "" {
		u, err := url.Parse(c.opts.ViewOrigin)
		isOwn = err == nil && strings.EqualFold(u.Host, r.Host)
	}
	if !isOwn {
		http.Error(w, "invalid header Host: pages of apps are not served here", http.StatusForbidden)
		return
	}
	c.viewer.ServeHTTP(w, r)
}
