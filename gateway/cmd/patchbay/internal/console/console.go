// Package console serves a web console of a gateway: pages for developers and operators, rendered
// on the server, with live updates over one stream of events.
//
// The browser never reaches the admin API. A page calls it in Go, with [Options.Admin], and renders
// the response. Everything that a server or client wrote is hostile: the components of pages
// escape it, and package page escapes hidden characters in each page.
//
// Each screen is a package below this package, on the framework of package page, whose
// documentation tells how a screen is added. This package contains the listener, the login, the
// checks of each request, the stream of events, the files for browsers, and the list of the
// screens.
package console

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/capture"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/access"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/apps"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/audit"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/calls"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/doctorpage"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/explore"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/inbox"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/keys"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/limits"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/logs"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/metrics"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/overview"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/page"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/pins"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/policy"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/question"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/serverpage"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/settings"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/tasks"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/traffic"
	"github.com/patchbay-mcp/patchbay/gateway/internal/netx"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// DefaultAddr contains a fixed port, so that the cookies and bookmarks of a browser stay valid.
const DefaultAddr = "127.0.0.1:6280"

// DefaultViewAddr is the address of the listener for the pages of apps.
const DefaultViewAddr = "127.0.0.1:6281"

// Options configures a [Console].
type Options struct {
	// Admin returns a client of the admin API, whose records name p; see
	// [gateway.Gateway.AdminClient]. Required.
	Admin func(p *mcp.Principal) *http.Client
	// Addr is the host:port to listen on. Default: DefaultAddr, or a free port if it is in use, where
	// the URL for the local user contains a random host name; see docs/adr/0035-random-host.md.
	Addr string
	// Hosts are the names that the header Host may contain, besides localhost and loopback
	// addresses.
	Hosts []string
	// Home is the path of the first page, with its query. Default: "/", also for a path without a
	// screen.
	Home string
	// Version is the version of the program.
	Version string
	// Connect returns a connection to a server as the principal p, which must use the names of the
	// server. Default: an error.
	Connect func(ctx context.Context, server string, p *mcp.Principal) (mcp.Transport, error)
	// Opens reports whether the principal p may use a server, and must agree with Connect. Default: every
	// principal may use all servers.
	Opens func(p *mcp.Principal, server string) bool
	// Dial returns a new connection to a server, for runs in a revision that a person selects in
	// Explore. Default: a person cannot select a revision.
	Dial func(ctx context.Context, server string, p *mcp.Principal) (mcp.Transport, error)
	// Target returns how other programs reach a server, for the commands that pages offer to copy.
	// It must contain no secrets. Default: a server of the configuration, by its name.
	Target func(server string) *explore.Target
	// Viewer lets operators see the lists of other persons in Explore. Default: they see only their own.
	Viewer *explore.Viewer
	// Checks is the path of the file for calls that are saved in Explore. Default: calls cannot be
	// saved.
	Checks string
	// Mask replaces secrets in a text; required with Checks.
	Mask func(text string) string
	// Examine checks the connection to a server for the screen Doctor. Default: the console has no
	// screen Doctor.
	Examine doctorpage.Examine
	// Capture contains the traffic of the host. Default: the page with the traffic lists the calls
	// that events report, without their messages.
	Capture *capture.Ring
	// Gateway adds the screens Policy and Audit, which need the admin API of a gateway with a
	// configuration. Default: the screens exist if the admin API returns a policy when the
	// console begins.
	Gateway bool
	// ViewAddr is the host:port of a second listener, for the pages of apps. It must be a loopback
	// address, unless ViewOrigin is the URL of a proxy. Default: DefaultViewAddr, or a free port if it
	// is in use and ViewOrigin is empty.
	ViewAddr string
	// ViewOrigin is the origin at which browsers reach the second listener, such as
	// https://views.example. Its host must not be a host of the console. Default: none for a
	// console with Authenticate, which therefore shows no apps; otherwise localhost or 127.0.0.1,
	// whichever the browser does not use for the console.
	ViewOrigin string
	// Questions are the questions of servers that belong to no request, which operators answer in
	// the Inbox. Another console must not use the same desk. Default: an empty desk.
	Questions *question.Desk
	// Logs contains the log lines of servers and of this program, which must contain no secrets.
	// Another console must not use the book. Default: the console has no screen Logs.
	Logs *logs.Book
	// Authenticate returns the principal of a request and its role. An error or an empty role
	// refuses the request. It is called for each request. It is required unless Addr is a loopback
	// address. Default: the browser logs in with the one-time token of [Console.URL], as the local
	// user.
	Authenticate func(r *http.Request) (*mcp.Principal, page.Role, error)
	// Access lets other people than the local user log in, also from other machines: at its URL.
	// Default: nobody else.
	Access *access.Access
	// Logger logs problems. Default: slog.Default().
	Logger *slog.Logger
}

// A Console is a web console. It is safe for concurrent use.
type Console struct {
	opts      Options
	site      *page.Site
	listeners []net.Listener // for the same port
	name      string         // the random host name; empty for none
	views     []net.Listener // of the pages of apps; nil without apps
	viewer    *apps.Viewer
	screens   []*page.Screen
	paths     map[string][]*page.Route
	keys      []*page.Route // the screens of the navigation, in its order
	assets    *assets
	logins    *logins
	streams   chan struct{} // a token for each stream
}

// Limits of the listener.
const (
	headerTimeout = 10 * time.Second
	idleTimeout   = 2 * time.Minute
	// writeTimeout bounds a request that is not a stream. Restarting a server may take 150 seconds.
	writeTimeout = 3 * time.Minute
	// shutdownTimeout bounds the end of the requests in progress.
	shutdownTimeout = 3 * time.Second
	// maxHeader limits the headers of a request, which contain the URL with the state of a screen.
	maxHeader = 64 << 10
	// maxBody limits the body of a request: a form with the arguments of a call.
	maxBody = 4 << 20
)

// New listens, and returns a Console. The caller must call Serve, which closes the listener. New
// returns an error for an address that other machines reach, unless Authenticate or the URL of
// Access is set.
func New(o *Options) (*Console, error) {
	c := &Console{opts: *o, paths: map[string][]*page.Route{}, streams: make(chan struct{}, maxStreams)}
	c.opts.Logger = cmp.Or(c.opts.Logger, slog.Default())
	c.opts.ViewOrigin = strings.TrimRight(c.opts.ViewOrigin, "/")
	if at, isDefault := strings.CutSuffix(c.opts.ViewOrigin, ":443"); isDefault && strings.HasPrefix(at, "https:") {
		c.opts.ViewOrigin = at // as in the header Host of browsers
	}
	if c.opts.Questions == nil {
		c.opts.Questions = &question.Desk{}
	}
	c.site = page.NewSite(c.opts.Admin, c.opts.Logger)
	c.site.Opens = c.opts.Opens
	var err error
	if c.assets, err = readAssets(); err != nil {
		return nil, err
	}
	c.site.AssetURL, c.site.AssetsDigest = c.assets.url, c.assets.digest
	c.site.HasPath = func(path string) bool { return c.paths[path] != nil }
	c.screens = c.newScreens()
	for _, s := range c.screens {
		if err := c.register(s); err != nil {
			return nil, err
		}
	}
	if path, _, _ := strings.Cut(c.opts.Home, "?"); c.paths[path] == nil {
		c.opts.Home = "/"
	}
	isNamed := c.opts.Addr == "" && c.opts.Access == nil && c.opts.Authenticate == nil && resolvesNames()
	if c.listeners, err = listenAll(c.opts.Addr, DefaultAddr, isRemote(&c.opts), isNamed); err != nil {
		return nil, err
	}
	if isNamed {
		c.name = strings.ToLower(rand.Text()) + "." + hostByName
		c.opts.Hosts = append(slices.Clone(c.opts.Hosts), c.name)
	}
	if c.viewer != nil {
		if c.views, err = listenViews(&c.opts, c.Base()); err != nil {
			c.closeListeners()
			return nil, fmt.Errorf("pages of apps: %w", err)
		}
	}
	c.logins = newLogins(c.listeners[0].Addr(), publicURL(c.opts.Access))
	return c, nil
}

// probeTimeout bounds the request of hasPolicy, which a gateway in the same process answers at
// once.
const probeTimeout = 5 * time.Second

// hasPolicy reports whether the admin API shows a policy, which only a gateway with a configuration
// does.
func (c *Console) hasPolicy() bool {
	ctx, cancel := context.WithTimeout(c.site.Context(), probeTimeout)
	defer cancel()
	return c.site.Call(ctx, nil, http.MethodGet, "/policy", nil, nil) == nil
}

// newScreens returns all screens. A test lists their routes with their roles.
func (c *Console) newScreens() []*page.Screen {
	var examiner *doctorpage.Doctor
	if c.opts.Examine != nil {
		examiner = doctorpage.New(c.site, c.opts.Examine)
	}
	all := []*page.Screen{
		{Routes: slices.Concat(c.assets.routes(), c.loginRoutes(), remote{c}.identityRoutes(),
			c.streamRoutes(), c.themeRoutes())},
		overview.New(c.site),
		inbox.New(c.site, c.opts.Questions),
		serverpage.New(c.site, examiner),
	}
	run := &explore.Options{Connect: c.opts.Connect, Dial: c.opts.Dial, Target: c.opts.Target,
		Version: c.opts.Version, Checks: c.opts.Checks, Mask: c.opts.Mask, Desk: c.opts.Questions,
		Viewer: c.opts.Viewer, Doctor: examiner, Capture: c.opts.Capture}
	if c.opts.Connect != nil && c.showsApps() {
		var screen *page.Screen
		screen, c.viewer, run.App = apps.New(c.site,
			&apps.Options{Connect: c.opts.Connect, Origins: c.origins, Desk: c.opts.Questions, Mask: c.opts.Mask,
				Version: c.opts.Version})
		all = append(all, screen)
	}
	all = append(all, explore.New(c.site, run))
	all = append(all, limits.New(), metrics.New(), tasks.New(c.site))
	if s := keys.New(c.site); s != nil {
		all = append(all, s)
	}
	if c.opts.Capture != nil {
		all = append(all, traffic.New(c.site, c.opts.Capture))
	} else {
		all = append(all, calls.New())
	}
	all = append(all, pins.New())
	if c.opts.Gateway || c.hasPolicy() {
		all = append(all, policy.New(c.opts.Capture), audit.New(c.site))
	}
	all = append(all, settings.New(isRemote(&c.opts)))
	if c.opts.Logs != nil {
		all = append(all, logs.New(c.site, c.opts.Logs))
	}
	if c.opts.Examine != nil {
		all = append(all, examiner.Screen())
	}
	return all
}

// listen listens at an address. If given is empty, it listens at standard, or at a free port if
// another program uses standard. Only a listener that isPublic accepts connections of other
// machines.
func listen(given, standard string, isPublic bool) (net.Listener, error) {
	addr := cmp.Or(given, standard)
	host, _, err := net.SplitHostPort(addr)
	switch {
	case err != nil:
		return nil, fmt.Errorf("invalid address %q: must be host:port, such as %s", addr, standard)
	case !isPublic && !netx.IsLocalHost(host):
		return nil, fmt.Errorf("invalid address %q: other machines reach it, and this console has no login for them: "+
			"must be a loopback address", addr)
	}
	var config net.ListenConfig
	l, err := config.Listen(context.Background(), "tcp", addr)
	if given == "" && errors.Is(err, syscall.EADDRINUSE) {
		l, err = config.Listen(context.Background(), "tcp", net.JoinHostPort(host, "0"))
	}
	return l, err
}

// Serve serves the console until ctx ends, and closes the listener. It returns nil unless the
// listener fails.
func (c *Console) Serve(ctx context.Context) error {
	defer context.AfterFunc(ctx, c.site.Cancel)()
	defer c.site.End()
	c.site.Background(c.follow)
	for _, s := range c.screens {
		if s.Follow != nil {
			c.site.Background(s.Follow)
		}
	}
	main := c.server(c)
	servers := []*http.Server{main}
	failed := make(chan error, len(c.listeners)+len(c.views)) // a result for each listener
	for _, l := range c.listeners {
		c.site.Background(func(context.Context) { failed <- main.Serve(l) }) // ends with the server
	}
	if len(c.views) > 0 {
		servers = append(servers, c.server(http.HandlerFunc(c.serveView)))
	}
	for _, l := range c.views {
		c.site.Background(func(context.Context) { failed <- servers[1].Serve(l) }) // ends with the server
	}
	var err error
	select {
	case err = <-failed:
	case <-c.site.Context().Done():
	}
	c.site.Cancel() // ends the streams
	end, cancel := context.WithTimeout(context.Background(), shutdownTimeout)
	defer cancel()
	for _, server := range servers {
		_ = server.Shutdown(end) // Close ends the connections that remain
		_ = server.Close()
	}
	if err != nil && !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve the console: %w", err)
	}
	return nil
}

// server returns a server with the limits of this package.
func (c *Console) server(h http.Handler) *http.Server {
	return &http.Server{
		Handler: h, ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeader,
		BaseContext: func(net.Listener) context.Context { return c.site.Context() }, ConnContext: withOtherUser,
		ErrorLog: slog.NewLogLogger(c.opts.Logger.Handler(), slog.LevelDebug),
	}
}

// URL returns the URL of the console. With the login of the local user it contains a fresh token,
// which is valid for two minutes and one login.
func (c *Console) URL() string {
	base := c.Base()
	if c.opts.Authenticate != nil {
		return base + "/"
	}
	return base + loginPath + "#t=" + c.logins.newToken()
}

// Base returns the URL for this machine without a path and a token. It contains a random host name,
// for which the console listens at both addresses of localhost, or else the address and not the name
// localhost: browsers may try the address ::1 first, at which a program of another user could receive
// the token.
func (c *Console) Base() string {
	addr := c.listeners[0].Addr().String()
	if _, port, err := net.SplitHostPort(addr); err == nil && c.name != "" {
		return "http://" + net.JoinHostPort(c.name, port)
	}
	if host, port, err := net.SplitHostPort(addr); err == nil && (host == "::" || host == "0.0.0.0") {
		addr = net.JoinHostPort("127.0.0.1", port)
	} else if err == nil && !netx.IsLocalHost(host) {
		return publicURL(c.opts.Access) // the only name by which other machines reach the console
	}
	return "http://" + addr
}

func (c *Console) closeListeners() {
	for _, l := range slices.Concat(c.listeners, c.views) {
		_ = l.Close()
	}
}

// Changed tells the streams to render their fragments again.
func (c *Console) Changed() { c.site.Changed() }

// register adds a screen. It refuses a route without a role, and two routes with the same path and
// method.
func (c *Console) register(s *page.Screen) error {
	for _, r := range s.Routes {
		switch {
		case r.Role != page.RoleViewer && r.Role != page.RoleOperator && r.Role != page.RoleAnyone:
			return fmt.Errorf("console: path %s has the invalid role %q: must be viewer or operator", r.Path, r.Role)
		case !strings.HasPrefix(r.Path, "/") || (r.View == nil) == (r.Act == nil) && r.Serve == nil:
			return fmt.Errorf("console: invalid route %s: must have a path and either a View or an Act", r.Path)
		case slices.ContainsFunc(c.paths[r.Path], func(o *page.Route) bool { return o.Method() == r.Method() }):
			return fmt.Errorf("console: two routes for %s %s", r.Method(), r.Path)
		}
		c.paths[r.Path] = append(c.paths[r.Path], r)
		if r.Key != "" {
			c.keys = append(c.keys, r)
		}
	}
	slices.SortStableFunc(c.keys, func(a, b *page.Route) int { return a.Order - b.Order })
	return nil
}
