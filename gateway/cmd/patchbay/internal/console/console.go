// Package console serves a web console of a gateway: pages for developers and operators, rendered
// on the server, with live updates over one stream of events.
//
// The browser never reaches the admin API. A page calls it in Go, with [Options.Admin], and renders
// the response. Everything that a server or client wrote is hostile: html/template escapes it, and
// the console escapes hidden characters in each page that it writes (visible.go).
//
// # How a screen is added
//
// A screen consists of a file such as overview.go, a template such as templates/overview.html, and
// templates of its live parts in templates/part. overview.go is the example to copy:
//
//  1. Add a function that returns routes, and call it in [Console.routes]. A route must name its path
//     and the role that it requires; a path has no variables, because the query of the URL contains
//     the state of a screen, as in /explore?server=fs&tool=read_file.
//
//  2. A screen is a route with a View. View returns the name of the template, its data, and the
//     fragments of the page. The template must contain each fragment, as an element with the ID of
//     the fragment, by executing the same template with the same data:
//
//     view:     Fragments: []Fragment{{ID: "summary", Part: "summary", Data: d.Status}}
//     template: {{template "part/summary" .Status}}
//     part:     <section id="summary">…</section>
//
//  3. The stream of a page calls View again after each change, at most ten times a second, and sends
//     the fragments whose HTML changed. Call [Console.Changed] after a change that the admin API
//     reports no event about. A list whose items come and go has a fragment for each item: set In to
//     the ID of the list, and Place to where a new item belongs. Set Version to skip rendering.
//
//  4. An action is a route with an Act: a form with method="post" and the path of the route. form.js
//     sends a form with the attribute data-live, and places the fragments of the [Outcome]. Without
//     scripts the browser goes to its Location.
//
//  5. Errors of View and Act become an error page or message. [request.get] and [request.post] return
//     a *gateway.Problem, whose code and detail the page shows.
//
// Templates may use the functions of page.go: asset, has, link, ago and bytes. A template must not
// contain a script, an inline style, an event attribute or a literal URL of another site; TestConsoleAssets
// checks it. Elements with data-row are selected with j and k; data-primary marks their link. An element
// with data-filter is focused with /.
package console

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/capture"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/doctor"
	"github.com/patchbay-mcp/patchbay/gateway/internal/netx"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// DefaultAddr contains a fixed port, so that the cookies and bookmarks of a browser stay valid.
const DefaultAddr = "127.0.0.1:6280"

// Options configures a [Console].
type Options struct {
	// Admin returns a client of the admin API, whose records name p; see [gateway.Gateway.AdminClient].
	// Required.
	Admin func(p *mcp.Principal) *http.Client
	// Addr is the host:port to listen on. Default: DefaultAddr, or a free port if it is in use.
	Addr string
	// Hosts are the names that the header Host may contain, besides localhost and loopback addresses.
	Hosts []string
	// Home is the path of the first page, with its query. Default: "/", also for a path without a screen.
	Home string
	// Version is the version of the program.
	Version string
	// Connect returns a connection to a server as the principal p, with the names that the server uses.
	// Default: an error.
	Connect func(ctx context.Context, server string, p *mcp.Principal) (mcp.Transport, error)
	// Target returns how other programs reach a server, for the commands that pages offer to copy.
	// Default: a server of the configuration, by its name.
	Target func(server string) *Target
	// Examine checks the connection to a server, as [doctor.Run] does. Default: there is no such screen.
	Examine func(ctx context.Context, server string, o *doctor.Options) (*doctor.Report, error)
	// Capture contains the traffic of the host. Default: there is no page with the traffic.
	Capture *capture.Ring
	// Authenticate returns the principal of a request and its role. An error or an empty role refuses
	// the request. It is called for each request. It is required unless Addr is a loopback address.
	// Default: the browser logs in with the one-time token of [Console.URL], as the local user.
	Authenticate func(r *http.Request) (*mcp.Principal, Role, error)
	// Logger logs problems. Default: slog.Default().
	Logger *slog.Logger
}

// A Role limits the actions of a person in the console.
type Role string

// Roles. An operator may do everything that a viewer may do.
const (
	RoleViewer   Role = "viewer"   // reads
	RoleOperator Role = "operator" // also runs, decides, restarts, approves and edits
	// roleAnyone is the role of paths without data, which are served before the login.
	roleAnyone Role = "anyone"
)

// grants reports whether a role may use a path that requires another role.
func (r Role) grants(required Role) bool {
	return required == roleAnyone || r == RoleOperator || r == RoleViewer && required == RoleViewer
}

// A Console is a web console. It is safe for concurrent use.
type Console struct {
	opts     Options
	listener net.Listener
	paths    map[string][]*route
	screens  []*route // in the order of the navigation
	pages    *pages
	assets   *assets
	logins   *logins
	overview *overview
	doctors  *doctors
	explorer *explorer
	streams  chan struct{} // a token for each stream

	ctx     context.Context // ends with Serve
	cancel  context.CancelFunc
	running sync.WaitGroup // goroutines of background

	mu      sync.Mutex    // guards the fields below
	ended   bool          // background starts nothing any more
	changed chan struct{} // closed by Changed
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
// returns an error for an address that other machines reach, unless Authenticate is set.
func New(o *Options) (*Console, error) {
	c := &Console{opts: *o, changed: make(chan struct{}), streams: make(chan struct{}, maxStreams)}
	if c.opts.Logger == nil {
		c.opts.Logger = slog.Default()
	}
	if c.opts.Connect == nil {
		c.opts.Connect = func(context.Context, string, *mcp.Principal) (mcp.Transport, error) {
			return nil, errors.New("this console does not connect to servers")
		}
	}
	c.overview, c.doctors = newOverview(c), &doctors{console: c}
	c.explorer = newExplorer(c)
	var err error
	if c.assets, err = readAssets(); err != nil {
		return nil, err
	}
	if err := c.register(c.routes()); err != nil {
		return nil, err
	}
	if path, _, _ := strings.Cut(c.opts.Home, "?"); c.paths[path] == nil {
		c.opts.Home = "/"
	}
	if c.pages, err = parsePages(c); err != nil {
		return nil, err
	}
	if c.listener, err = listen(&c.opts); err != nil {
		return nil, err
	}
	c.logins = newLogins(c.listener.Addr())
	c.ctx, c.cancel = context.WithCancel(context.Background())
	return c, nil
}

// routes returns all routes. A test lists them with their roles.
func (c *Console) routes() []*route {
	return slices.Concat(c.assets.routes(), c.overviewRoutes(), c.exploreRoutes(), c.trafficRoutes(), c.doctorRoutes(),
		c.loginRoutes(), c.streamRoutes(), c.themeRoutes())
}

// listen listens at the address of the options.
func listen(o *Options) (net.Listener, error) {
	addr := o.Addr
	if addr == "" {
		addr = DefaultAddr
	}
	host, _, err := net.SplitHostPort(addr)
	switch {
	case err != nil:
		return nil, fmt.Errorf("invalid address %q: must be host:port, such as %s", addr, DefaultAddr)
	case o.Authenticate == nil && !netx.IsLocalHost(host):
		return nil, fmt.Errorf("invalid address %q: other machines reach it, and this console has no login for them: "+
			"must be a loopback address", addr)
	}
	var config net.ListenConfig
	l, err := config.Listen(context.Background(), "tcp", addr)
	if o.Addr == "" && errors.Is(err, syscall.EADDRINUSE) {
		l, err = config.Listen(context.Background(), "tcp", net.JoinHostPort(host, "0"))
	}
	return l, err
}

// Serve serves the console until ctx ends, and closes the listener. It returns nil unless the
// listener fails.
func (c *Console) Serve(ctx context.Context) error {
	defer context.AfterFunc(ctx, c.cancel)()
	defer c.end()
	c.background(c.follow)
	c.background(func(context.Context) { traffic{c}.follow() })
	server := &http.Server{
		Handler: c, ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeader,
		BaseContext: func(net.Listener) context.Context { return c.ctx },
		ErrorLog:    slog.NewLogLogger(c.opts.Logger.Handler(), slog.LevelDebug),
	}
	failed := make(chan error, 1)
	c.background(func(context.Context) { failed <- server.Serve(c.listener) }) // ends with the server
	var err error
	select {
	case err = <-failed:
	case <-c.ctx.Done():
	}
	c.cancel() // ends the streams
	end, cancel := context.WithTimeout(context.Background(), shutdownTimeout)
	defer cancel()
	_ = server.Shutdown(end) // Close ends what is left
	_ = server.Close()
	if err != nil && !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve the console: %w", err)
	}
	return nil
}

// background calls run in a goroutine, for which the end of Serve waits. The context ends with Serve.
func (c *Console) background(run func(ctx context.Context)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.ended {
		c.running.Go(func() { run(c.ctx) })
	}
}

// end ends the goroutines of background.
func (c *Console) end() {
	c.cancel()
	c.mu.Lock()
	c.ended = true
	c.mu.Unlock()
	c.running.Wait()
}

// URL returns the URL of the console. With the login of the local user it contains a fresh token,
// which is valid for two minutes and one login.
func (c *Console) URL() string {
	base := c.base()
	if c.opts.Authenticate != nil {
		return base + "/"
	}
	return base + loginPath + "#t=" + c.logins.newToken()
}

// base returns the URL without a path. It contains the address and not the name localhost: browsers
// may try the address ::1 first, at which a program of another user could receive the token.
func (c *Console) base() string {
	addr := c.listener.Addr().String()
	if host, port, err := net.SplitHostPort(addr); err == nil && (host == "::" || host == "0.0.0.0") {
		addr = net.JoinHostPort("127.0.0.1", port)
	}
	return "http://" + addr
}

// Changed tells the streams to render their fragments again.
func (c *Console) Changed() {
	c.mu.Lock()
	defer c.mu.Unlock()
	close(c.changed)
	c.changed = make(chan struct{})
}

// wait returns a channel that the next Changed closes.
func (c *Console) wait() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.changed
}

// register adds routes. It refuses a route without a role, and two routes with the same path and method.
func (c *Console) register(all []*route) error {
	c.paths = map[string][]*route{}
	for _, r := range all {
		switch {
		case r.Role != RoleViewer && r.Role != RoleOperator && r.Role != roleAnyone:
			return fmt.Errorf("console: path %s has the invalid role %q: must be viewer or operator", r.Path, r.Role)
		case !strings.HasPrefix(r.Path, "/") || (r.View == nil) == (r.Act == nil) && r.serve == nil:
			return fmt.Errorf("console: invalid route %s: must have a path and either a View or an Act", r.Path)
		case slices.ContainsFunc(c.paths[r.Path], func(o *route) bool { return o.method() == r.method() }):
			return fmt.Errorf("console: two routes for %s %s", r.method(), r.Path)
		}
		c.paths[r.Path] = append(c.paths[r.Path], r)
		if r.Key != "" {
			c.screens = append(c.screens, r)
		}
	}
	slices.SortStableFunc(c.screens, func(a, b *route) int { return a.Order - b.Order })
	return nil
}
