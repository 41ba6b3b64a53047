package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"path"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/patchbay-mcp/patchbay/gateway/audit"
	"github.com/patchbay-mcp/patchbay/host"
	"github.com/patchbay-mcp/patchbay/host/event"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// AdminOptions configures [Gateway.Admin]. A path whose function is nil responds with the status
// 501.
type AdminOptions struct {
	// Version is the version of the program, and URL where it serves HTTP.
	Version, URL string
	// Events is the log of the host's events that the API serves. Default: a log of the events of
	// servers, approvals and reloads.
	Events *EventLog
	// AuditDir is the folder of the audit log; see package audit. Default: no audit log.
	AuditDir string
	// AuditVerify configures the checks of the audit log, except for Progress. Default: the
	// checkpoints in AuditDir, and the keys that the log names.
	AuditVerify audit.VerifyOptions
	// Reload reads the configuration again; see [host.Host.Reload].
	Reload func(ctx context.Context) (*host.Diff, error)
	// Stop begins to end the program, and returns at once.
	Stop func()
	// Config returns the files of the configuration, without secrets.
	Config func(ctx context.Context) ([]ConfigFile, error)
	// Settings returns the settings that are in force, without secrets. Default: none are listed.
	Settings func(ctx context.Context) ([]Setting, error)
	// ServerConfig returns the values of the configuration of a server, without secrets.
	ServerConfig func(ctx context.Context, server string) ([]ServerValue, error)
	// ConfigError returns why the files of the configuration are not in force, without secrets, and
	// "" if they are. Default: they are.
	ConfigError func() string
	// Replicas returns the processes that share a store with this process, or nil. Default: nil.
	Replicas func() *Replicas
	// SetConfig writes the user's configuration file, or reports the changes that it would make.
	SetConfig func(ctx context.Context, c *ConfigChange) (*ConfigResult, error)
	// Policy returns the member policy of the settings in force, as JSON without secrets, or nil if
	// the settings contain no policy.
	Policy func(ctx context.Context) (json.RawMessage, error)
	// Explain returns the Explainer of the policy in force, or, if rules is not nil, of a policy in
	// the form of the member policy, whose hook must not be asked. The error is a [*Problem] if the
	// policy is invalid or absent.
	Explain func(ctx context.Context, rules json.RawMessage) (Explainer, error)
	// Wire returns an iterator over the recorded exchanges that end before ctx ends. The iterator
	// yields the JSON of an exchange and the number of changes that a slow reader missed before the
	// exchange, or nil and this number.
	// Default: the gateway records no exchanges.
	Wire func(ctx context.Context) iter.Seq2[json.RawMessage, uint64]
	// CheckLogin returns an error if a login of the local user at a server, on a page of the
	// gateway, would be unused, such as for a connection that logs in as another client. Default:
	// every login is used.
	CheckLogin func(ctx context.Context, server string) error
}

// Limits of the admin API.
const (
	adminPrefix = "/admin/v1"
	// adminTimeout bounds a request. Restarting waits for the server, whose start may take 2
	// minutes.
	adminTimeout        = 30 * time.Second
	adminRestartTimeout = 150 * time.Second
	// maxAdminRequests bounds the requests in progress. Operators and scripts send few.
	maxAdminRequests = 64
	// maxAdminBody limits the body of a request. The largest request contains a configuration file.
	maxAdminBody = 4 << 20
	// maxAdminHeader limits the headers of a request. The longest path contains a working
	// directory.
	maxAdminHeader = 32 << 10
)

// An admin is the state of the handler of [Gateway.Admin].
type admin struct {
	gateway  *Gateway
	opts     *AdminOptions
	events   *EventLog
	started  time.Time
	paths    map[string][]*adminRoute // by pattern of http.ServeMux, without the method
	mux      *http.ServeMux
	slots    chan struct{} // a token for each request in progress
	readers  atomic.Int64  // of events
	attached attachments
	chain    chainCheck

	ctx    context.Context // of requests that do not end by themselves
	cancel context.CancelFunc
}

// Admin returns the handler of the admin API, whose paths begin with /admin/v1. It must serve
// connections of Unix sockets only: whoever may connect to the socket may do localGrant, so protect
// its directory. The OpenAPI document, /admin/v1/openapi.json, specifies the paths.
// [Gateway.Shutdown] ends the streams.
func (g *Gateway) Admin() http.Handler {
	g.adminOnce.Do(func() { g.admin.Store(newAdmin(g)) })
	return g.admin.Load()
}

func newAdmin(g *Gateway) *admin {
	a := &admin{gateway: g, opts: &g.opts.Admin, events: g.opts.Admin.Events, started: time.Now(),
		paths: map[string][]*adminRoute{}, mux: http.NewServeMux(), slots: make(chan struct{}, maxAdminRequests)}
	if a.events == nil {
		a.events = NewEventLog()
	}
	a.ctx, a.cancel = context.WithCancel(context.Background())
	for _, r := range adminRoutes() {
		pattern := r.pattern()
		if a.paths[pattern] == nil {
			a.mux.HandleFunc(pattern, func(w http.ResponseWriter, req *http.Request) { a.dispatch(w, req, pattern) })
		}
		a.paths[pattern] = append(a.paths[pattern], r)
	}
	a.events.follow(a.ctx, g.host)
	return a
}

// ServeHTTP serves a request.
func (a *admin) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	header := w.Header()
	header.Set("Cache-Control", "no-store")
	header.Set("X-Content-Type-Options", "nosniff")
	limitBodyTime(w)
	if p := checkAdmin(r); p != nil {
		a.fail(w, p)
		return
	}
	escaped := r.URL.EscapedPath() // names may contain slashes
	if _, pattern := a.mux.Handler(r); pattern == "" || path.Clean(escaped) != escaped {
		a.fail(w, unknownPath(r))
		return
	}
	a.mux.ServeHTTP(w, r)
}

func unknownPath(r *http.Request) *Problem {
	return problemf(http.StatusNotFound, "unknown_path", "unknown path %.200q; see %s/openapi.json", r.URL.Path,
		adminPrefix)
}

// checkAdmin rejects requests that a web page could have caused, and connections of other machines.
func checkAdmin(r *http.Request) *Problem {
	addr, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	switch {
	case addr == nil || addr.Network() != "unix":
		return problemf(http.StatusForbidden, "socket_only", "the admin API serves a Unix socket only")
	case !isLocalHost(r.Host):
		return problemf(http.StatusForbidden, "invalid_host", "invalid header Host %.100q: must be localhost", r.Host)
	case len(r.Header["Origin"]) > 0 || r.Header.Get("Sec-Fetch-Site") != "":
		return problemf(http.StatusForbidden, "invalid_origin",
			"invalid header Origin: want none, as web pages cannot use the admin API")
	}
	return nil
}

// isLocalHost reports whether a header Host names this machine. The name "patchbay" is for clients
// that need some name.
func isLocalHost(host string) bool {
	u, err := url.Parse("http://" + host)
	if err != nil || u.Host != host {
		return false
	}
	name := strings.ToLower(u.Hostname())
	ip, err := netip.ParseAddr(name)
	return name == "localhost" || name == "patchbay" || err == nil && ip.IsLoopback() && ip.Zone() == ""
}

// dispatch serves a request for a known path.
func (a *admin) dispatch(w http.ResponseWriter, req *http.Request, pattern string) {
	name, verb := pathNames(req)
	var methods []string
	for _, r := range a.paths[pattern] {
		if r.hasVerb() && r.verb != verb {
			continue
		}
		if r.method == req.Method {
			a.serve(w, &adminRequest{Request: req, admin: a, route: r, name: name})
			return
		}
		methods = append(methods, r.method)
	}
	if methods == nil {
		a.fail(w, unknownPath(req))
		return
	}
	w.Header().Set("Allow", strings.Join(methods, ", "))
	a.fail(w, problemf(http.StatusMethodNotAllowed, "method_not_allowed", "method %.20q is not allowed: want %s",
		req.Method, strings.Join(methods, " or ")))
}

// pathNames returns the variable of a path and the verb after it: fs and restart for
// servers/fs:restart. Names may contain colons, so the verb begins after the last colon, and only
// for methods with verbs.
func pathNames(r *http.Request) (name, verb string) {
	name = r.PathValue("name")
	if i := strings.LastIndexByte(name, ':'); i >= 0 && r.Method != http.MethodGet {
		return name[:i], name[i+1:]
	}
	return name, ""
}

// serve serves a request for a route.
func (a *admin) serve(w http.ResponseWriter, r *adminRequest) {
	if r.route.stream != nil {
		r.route.stream(a, w, r)
		return
	}
	select {
	case a.slots <- struct{}{}:
		defer func() { <-a.slots }()
	default:
		w.Header().Set("Retry-After", "1")
		a.fail(w, problemf(http.StatusServiceUnavailable, "busy", "more than %d requests are in progress",
			maxAdminRequests))
		return
	}
	limit := adminTimeout
	if r.route.slow {
		limit = adminRestartTimeout
	}
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(limit + adminTimeout)) // fails only in tests
	ctx, cancel := context.WithTimeout(r.Context(), limit)
	defer cancel()
	defer context.AfterFunc(a.ctx, cancel)()
	r.Request = r.WithContext(ctx)
	res, err := a.call(r)
	status := http.StatusOK
	p := problemOf(err)
	if p != nil {
		status = p.Status
	}
	caller, _ := ctx.Value(adminCallerKey{}).(*policy.Caller)
	if r.Method != http.MethodGet && !(p == nil && r.route.audited && caller == nil) {
		a.record(r, caller, status, p) // the host's own record does not name the caller
	}
	if p != nil {
		a.fail(w, p)
		return
	}
	a.respond(w, status, res)
}

// call calls the handler of a route. A panic of the handler fails this request and is logged. It
// must not end the process, which serves other callers.
func (a *admin) call(r *adminRequest) (res any, err error) {
	defer func() {
		if v := recover(); v != nil {
			res, err = nil, a.panicked(r.Request, v)
		}
	}()
	return r.route.serve(r)
}

// panicked logs a panic of a handler, and returns the response.
func (a *admin) panicked(r *http.Request, v any) *Problem {
	a.gateway.opts.Logger.Error("gateway: panic in a request of the admin API", "method", r.Method,
		"path", cut(r.URL.Path, maxEventText), "panic", a.gateway.host.Operator().Mask(fmt.Sprint(v)),
		"stack", string(debug.Stack()))
	return problemf(http.StatusInternalServerError, "internal",
		"the request failed because of a fault in the gateway: see the log of the gateway")
}

// record records a request that may have changed the state of the gateway.
func (a *admin) record(r *adminRequest, caller *policy.Caller, status int, p *Problem) {
	detail := map[string]any{"request": r.Method + " " + cut(r.URL.Path, maxEventText), "status": status}
	maps.Copy(detail, r.detail)
	if p != nil {
		detail["code"] = p.Code
	}
	record := &event.Record{Event: event.Admin, Action: policy.Action{Caller: caller}, Detail: mustMarshal(detail)}
	if strings.HasPrefix(r.route.path, "/servers/") {
		record.Server = cut(r.name, maxEventText)
	}
	_ = a.gateway.host.Operator().Record(record) // the Recorder reports its failures
}

// An adminRequest is a request for a route.
type adminRequest struct {
	*http.Request
	admin *admin
	route *adminRoute
	name  string // the variable of the path

	detail map[string]any // further members of the audit record, without secrets
}

func (r *adminRequest) host() *host.Host { return r.admin.gateway.host }

// principal returns the principal of [Gateway.AdminClient], or nil for the local user.
func (r *adminRequest) principal() *mcp.Principal {
	if caller, ok := r.Context().Value(adminCallerKey{}).(*policy.Caller); ok {
		return caller.Principal
	}
	return nil
}

// upstream returns the server that the path names.
func (r *adminRequest) upstream() (*host.Upstream, error) {
	var names []string
	for _, u := range r.host().Upstreams() {
		if u.Name() == r.name {
			return u, nil
		}
		names = append(names, u.Name())
	}
	return nil, problemf(http.StatusNotFound, "unknown_server", "unknown server %.100q: must be one of %.1000s", r.name,
		strings.Join(names, ", "))
}

// ServeAdmin serves [Gateway.Admin] on the listener of a Unix socket until ctx or
// [Gateway.Shutdown] ends it, and closes the listener. It returns nil unless the listener fails.
func (g *Gateway) ServeAdmin(ctx context.Context, l net.Listener) error {
	if l.Addr().Network() != "unix" {
		_ = l.Close() // it was not used
		return fmt.Errorf("gateway: invalid listener at %s: the admin API needs a Unix socket", l.Addr())
	}
	g.Admin()
	a := g.admin.Load()
	server := &http.Server{
		Handler: a, ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxAdminHeader,
		ErrorLog: slog.NewLogLogger(g.opts.Logger.Handler(), slog.LevelWarn),
	}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(l) }() // ends with the server
	var err error
	select {
	case err = <-failed:
	case <-ctx.Done():
	case <-a.ctx.Done():
	}
	a.cancel()
	end, cancel := context.WithTimeout(context.Background(), shutdownTimeout)
	defer cancel()
	_ = server.Shutdown(end)
	_ = server.Close()
	a.attached.wait(end)
	if err != nil && !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("gateway: serve the admin API: %w", err)
	}
	return nil
}

// attachments counts the clients that are attached. It is safe for concurrent use.
type attachments struct {
	mu   sync.Mutex // guards the fields below
	n    int
	none chan struct{} // closed when n is 0 again; nil while it is
}

func (c *attachments) add(most int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n >= most {
		return false
	}
	if c.n++; c.none == nil {
		c.none = make(chan struct{})
	}
	return true
}

func (c *attachments) done() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n--; c.n == 0 {
		close(c.none)
		c.none = nil
	}
}

func (c *attachments) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n
}

func (c *attachments) wait(ctx context.Context) {
	c.mu.Lock()
	none := c.none
	c.mu.Unlock()
	if none == nil {
		return
	}
	select {
	case <-none:
	case <-ctx.Done():
	}
}
