package mcp

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	jsonv2 "github.com/go-json-experiment/json"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/internal/legacy"
	"github.com/patchbay-mcp/patchbay/internal/schema"
	"github.com/patchbay-mcp/patchbay/internal/seal"
	"github.com/patchbay-mcp/patchbay/internal/wire"
	"github.com/patchbay-mcp/patchbay/mcp/driver"
)

// A Server offers tools, resources and prompts to clients of every revision. It is a [Handler]: run
// it on a stream with [Server.Run], or serve it over HTTP with package mcphttp.
//
// Features are registered with [AddTool], [AddResource], [AddResourceTemplate], [AddFS] and
// [AddPrompt], also while clients are connected. A Server is safe for concurrent use. It keeps no
// state of a client between requests.
type Server struct {
	opts    ServerOptions
	accepts []wire.Revision // oldest first; nil for all
	log     *slog.Logger
	frame   []byte                // the members of the `_meta` of every result
	handler atomic.Pointer[stack] // the middleware around the dispatch
	serving atomic.Int64

	tools     featureSet[*Tool, *toolEntry]
	prompts   featureSet[*Prompt, *promptEntry]
	resources featureSet[*Resource, *resourceEntry]
	templates featureSet[*ResourceTemplate, *templateEntry]
	changes   subscriptions
	sealer    *seal.KeyRing

	deprecations deprecations

	mu         sync.Mutex // guards the fields below; the maps behind pointers are read without it
	middleware []Middleware
	extensions map[string]any
	methods    atomic.Pointer[map[string]Handler]
	topics     atomic.Pointer[map[string]Topic] // by member of the filter
	completes  atomic.Bool                      // a feature supports completion
}

// ServerOptions configures a [Server]. The zero value is right for most servers.
type ServerOptions struct {
	// Title, Description, WebsiteURL and Icons describe the server to people.
	Title       string
	Description string
	WebsiteURL  string
	Icons       []Icon
	// Instructions tell the client's model how to use the server.
	Instructions string
	// Logger receives panics, and the errors that clients see as "internal error". Default:
	// slog.Default().
	Logger *slog.Logger
	// Middleware wraps the handling of all requests, the first middleware outermost.
	Middleware []Middleware
	// Observer receives the begin and the end of every request, outside of Middleware. If it is a
	// [driver.SessionObserver] or [driver.RefusalObserver], the transports also report sessions or
	// refusals to it. Default: none.
	Observer Observer
	// Visible reports whether the caller of ctx may see and use a feature. The caller is
	// [PrincipalFrom](ctx), or nil. Visible is called when features are listed and again when a
	// feature is used: using a hidden feature returns the same error as using an unknown feature.
	// For a feature that is listed, and whose use requires a login with more scopes, see
	// oauth.RequireScopes; as a middleware it runs first, so a feature with rules of both kinds is
	// not secret. Visible must be fast and safe for concurrent use. Default: all features are
	// visible.
	Visible func(ctx context.Context, f Feature) bool
	// PageSize limits the items in a list result. Default: 1000.
	PageSize int
	// Cache contains the cache hints of lists and of the server's description. Default: no caching.
	Cache Cache
	// MaxInFlight limits the requests in progress, over all connections; further requests are
	// refused with [CodeBusy]. Subscriptions, calls after [Request.Detach] and requests that wait
	// for the result of a task do not count: transports and extensions limit them. Default: 10,000.
	MaxInFlight int
	// StateKeys encrypt request state and the cursors of lists. Each key must contain at least 32
	// bytes. The first key encrypts, all of them decrypt; [Server.ReplaceStateKeys] rotates them.
	// Replicas of a server must share them. Default: a random key, which is lost when the server
	// ends.
	StateKeys [][]byte
	// StateTTL is how long a client may take to answer a question; in sessions it is always 10
	// minutes. Default: 1 hour.
	StateTTL time.Duration
	// StateStore stores request state that is too large to travel with the client. With a
	// [OnceStore], each request state is accepted once. Default: none; a state that is too large is
	// an error.
	StateStore StateStore
	// Complete returns suggested values for the arguments of prompts and variables of templates
	// without a [CompleteFunc]. At most 100 values are sent; Total and HasMore are sent as
	// returned, and HasMore is set if there are more values. It is called for features that the
	// caller may use; its errors are handled like the errors of a CompleteFunc. Default: no values.
	Complete func(ctx context.Context, p *CompleteParams) (*Completion, error)
	// RootsChanged is called when the client of a session announces that its roots changed; the
	// next [Roots] asks for them. [PrincipalFrom](ctx) is the caller. For a session it is called
	// once at a time, and several changes may result in a single call. Since 2026-07-28 there is no
	// notification.
	RootsChanged func(ctx context.Context)
	// Experimental is sent as the capability of this name. Its values encode to JSON objects.
	Experimental map[string]any

	// Revisions contains the protocol revisions that the server accepts, such as "2025-11-25". A
	// client of another revision negotiates an accepted revision or, if that is impossible,
	// receives [driver.CodeUnsupportedProtocolVersion]. Default: all.
	Revisions []string
	// NoLogging turns off the capability logging: [Logger] drops all records.
	NoLogging bool
	// NoListChanged turns off the notifications of changed lists, and their capabilities.
	NoListChanged bool
	// NoSubscribe turns off subscriptions to resources, and their capability.
	NoSubscribe bool
}

// NewServer returns a server without features. Name and version identify it in every result. The
// options may be nil. NewServer panics if an argument is invalid.
func NewServer(name, version string, opts *ServerOptions) *Server {
	s := &Server{}
	if opts != nil {
		s.opts = *opts
	}
	s.opts.fillDefaults()
	err := s.opts.validate(name)
	if err == nil {
		s.accepts, err = s.opts.revisions()
	}
	if err != nil {
		panic("mcp: NewServer: " + err.Error())
	}
	info := Implementation{
		Name: name, Version: version, Title: s.opts.Title, Description: s.opts.Description,
		WebsiteURL: s.opts.WebsiteURL, Icons: s.opts.Icons,
	}
	encoded, err := jsonv2.Marshal(info, deterministic)
	if err != nil {
		panic("mcp: NewServer: " + err.Error())
	}
	s.frame = append([]byte(`"`+wire.MetaServerInfo+`":`), encoded...)
	s.log = s.opts.Logger
	s.sealer = newStateKeyRing(s.opts.StateKeys)
	s.middleware = slices.Clone(s.opts.Middleware)
	s.wrap()
	changed := func(list int) func() { return func() { s.changes.changedHere(list) } }
	s.tools.init("tool", toolFeature, changed(listOfTools))
	s.prompts.init("prompt", promptFeature, changed(listOfPrompts))
	s.resources.init("resource", resourceFeature, changed(listOfResources))
	s.templates.init("resource template", templateFeature, changed(listOfResources))
	s.methods.Store(&map[string]Handler{})
	s.topics.Store(&map[string]Topic{})
	s.completes.Store(s.opts.Complete != nil)
	return s
}

// A stack is the dispatcher wrapped in middleware.
type stack struct {
	Handler
	isPlain bool // there is no middleware
}

// wrap rebuilds the stack. The caller holds s.mu, or the server is not shared yet.
func (s *Server) wrap() {
	h := stack{dispatcher{s}, len(s.middleware) == 0}
	if !h.isPlain {
		h.Handler = chain(HandlerFunc(func(ctx context.Context, req *Request) (Result, error) {
			return contain(ctx, s.log, req, dispatcher{s}) // middleware receives a panic as an error
		}), s.middleware)
	}
	s.handler.Store(&h)
}

// Use adds a middleware inside the existing middleware. It is for extensions, which are installed
// before the server serves: requests in progress do not pass m. Use panics if m is nil.
func (s *Server) Use(m Middleware) {
	if m == nil {
		panic("mcp: Use: middleware is nil")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.middleware = append(s.middleware, m)
	s.wrap()
}

func (o *ServerOptions) fillDefaults() {
	o.Logger = cmp.Or(o.Logger, slog.Default())
	o.PageSize = cmp.Or(o.PageSize, 1000)
	o.MaxInFlight = cmp.Or(o.MaxInFlight, 10_000)
	o.StateTTL = cmp.Or(o.StateTTL, time.Hour)
}

func (o *ServerOptions) validate(name string) error {
	switch {
	case name == "":
		return fmt.Errorf("the name is empty")
	case o.PageSize < 0:
		return fmt.Errorf("PageSize is %d, want a positive number", o.PageSize)
	case o.MaxInFlight < 0:
		return fmt.Errorf("MaxInFlight is %d, want a positive number", o.MaxInFlight)
	}
	for i, k := range o.StateKeys {
		if len(k) < minStateKey {
			return fmt.Errorf("StateKeys[%d] has %d bytes, want at least %d", i, len(k), minStateKey)
		}
	}
	if err := checkObjects(o.Experimental); err != nil {
		return fmt.Errorf("Experimental: %w", err)
	}
	return o.Cache.validate()
}

// revisions returns Revisions, the oldest first, or nil for all.
func (o *ServerOptions) revisions() (accepted []wire.Revision, err error) {
	for _, version := range o.Revisions {
		r, known := wire.ParseRevision(version)
		if !known {
			return nil, fmt.Errorf("Revisions has %q, want some of %v", version, wire.Revisions())
		}
		if !slices.Contains(accepted, r) {
			accepted = append(accepted, r)
		}
	}
	slices.Sort(accepted)
	return accepted, nil
}

// checkObjects returns an error if a capability does not encode to a JSON object.
func checkObjects(capabilities map[string]any) error {
	for name, value := range capabilities {
		if _, err := encodeObject(value); err != nil {
			return fmt.Errorf("%q: %w", name, err)
		}
	}
	return nil
}

func encodeObject(v any) (json.RawMessage, error) {
	raw, err := schema.Encode(v)
	if err == nil && jsonscan.Kind(raw) != '{' {
		err = fmt.Errorf("it encodes to %.20q, must encode to a JSON object", raw)
	}
	return raw, err
}

// configure sets the options of sessions from the server that h is or wraps.
func configure(cfg *legacy.Config, h Handler) {
	for {
		if s := serverOf(h); s != nil {
			cfg.Revisions, cfg.RootsChanged = s.accepts, s.opts.RootsChanged
			return
		}
		outer, ok := h.(interface{ Unwrap() Handler })
		if !ok {
			return
		}
		h = outer.Unwrap()
	}
}

// ServeMCP serves a request through the server's middleware.
func (s *Server) ServeMCP(ctx context.Context, req *Request) (Result, error) {
	o := s.opts.Observer
	if o == nil {
		return s.serve(ctx, req)
	}
	req.server = s
	return observe(ctx, o, (*unobserved)(s), req, knownTarget)
}

// An unobserved serves requests without the Observer of the server.
type unobserved Server

func (s *unobserved) ServeMCP(ctx context.Context, req *Request) (Result, error) {
	return (*Server)(s).serve(ctx, req)
}

func (s *Server) serve(ctx context.Context, req *Request) (Result, error) {
	if s.accepts != nil && !slices.Contains(s.accepts, req.env.Revision) {
		return nil, wire.UnsupportedVersion(req.env.VersionText, s.accepts)
	}
	if !wire.Lasts(req.Method) && req.Method != wire.MethodTasksResult && req.detached == nil {
		defer s.serving.Add(-1)
		if s.serving.Add(1) > int64(s.opts.MaxInFlight) {
			return nil, errBusy
		}
	}
	req.server = s
	c := newCall(ctx, s, req)
	h := s.handler.Load()
	if !h.isPlain && req.listen != nil && !req.listen.detached {
		req.listen = nil // middleware sees a subscription as a single call
	}
	res, err := contain(c, s.log, req, h.Handler)
	if !req.outlivesHandler() {
		c.progress.finish(c)
	}
	switch {
	case err == nil:
		return res, nil
	case asError(err) != nil:
		return nil, err // with the errors that wrap it, which the transport may inspect
	}
	return nil, publicError(c, s.log, req, err)
}

var errBusy = wire.Busy("server is busy")

// HandleMethod registers the handler of a method that an extension defines, such as a method of
// tasks, which belong to the core of 2025-11-25. It panics for other methods of the core, and for a
// method that is registered already.
func (s *Server) HandleMethod(method string, h Handler) {
	s.mu.Lock()
	defer s.mu.Unlock()
	old := *s.methods.Load()
	if _, taken := old[method]; taken || coreMethod(method) {
		panic(fmt.Sprintf("mcp: method %q has a handler already", method))
	}
	if h == nil {
		panic(fmt.Sprintf("mcp: the handler of method %q is nil", method))
	}
	methods := maps.Clone(old)
	methods[method] = h
	s.methods.Store(&methods)
}

// AddExtension declares support for an extension, by its id (such as "com.example/search") and its
// settings, which must encode to a JSON object; nil means an empty object. AddExtension panics if
// the id lacks a prefix or the settings do not encode to an object.
//
// Spec: basic (2026-07-28), Extensions.
func (s *Server) AddExtension(id string, settings any) {
	if !wire.ValidExtensionID(id) {
		panic(fmt.Sprintf("mcp: extension id %q: want a reverse DNS prefix, a slash and a name", id))
	}
	if settings == nil {
		settings = struct{}{}
	}
	encoded, err := encodeObject(settings)
	if err != nil {
		panic(fmt.Sprintf("mcp: extension %q: invalid settings: %v", id, err))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.extensions = maps.Clone(s.extensions) // capabilities returns the old map
	put(&s.extensions, id, any(encoded))
}

// HeaderParams returns the arguments of a tool that HTTP clients repeat in headers. It returns nil
// for a tool that the caller of req must not see.
func (s *Server) HeaderParams(ctx context.Context, req *Request, tool string) (params []driver.HeaderParam) {
	e, ok := s.tools.lookup(tool)
	if !ok || len(e.extra.headerParams) == 0 {
		return nil
	}
	c := &call{Context: ctx, server: s, req: req}
	var err error // of a panic in Visible, which the call itself will report
	defer recovered(c, s.log, req.Method, &err)
	if s.Visible(c, toolFeature(e.value)) {
		params = e.extra.headerParams
	}
	return params
}

// A Feature is a feature of a server, as [ServerOptions.Visible] sees it. Exactly one field is set.
type Feature struct {
	Tool     *Tool
	Prompt   *Prompt
	Resource *Resource
	Template *ResourceTemplate
}

func toolFeature(t *Tool) Feature                 { return Feature{Tool: t} }
func promptFeature(p *Prompt) Feature             { return Feature{Prompt: p} }
func resourceFeature(r *Resource) Feature         { return Feature{Resource: r} }
func templateFeature(t *ResourceTemplate) Feature { return Feature{Template: t} }

// Visible reports whether the caller of ctx may see and use a feature; see [ServerOptions.Visible].
// Extensions call it before they reveal the feature. It is safe for concurrent use.
func (s *Server) Visible(ctx context.Context, f Feature) bool {
	return s.opts.Visible == nil || s.opts.Visible(ctx, f)
}

// ServerStats contains figures of a [Server] at a moment.
type ServerStats struct {
	Tools, Prompts, Resources, Templates int // registered, whether or not a caller may see them
	InFlight                             int // requests in progress, without subscriptions
	Subscriptions                        int // open subscriptions, including sessions that are notified of changes
}

// Stats returns the figures of the server, for metrics. It is safe for concurrent use, and fast.
func (s *Server) Stats() ServerStats {
	st := ServerStats{
		Tools: len(s.tools.list()), Prompts: len(s.prompts.list()), Resources: len(s.resources.list()),
		Templates: len(s.templates.list()), InFlight: int(s.serving.Load()),
	}
	s.changes.mu.Lock()
	defer s.changes.mu.Unlock()
	st.Subscriptions = len(s.changes.subs)
	return st
}
