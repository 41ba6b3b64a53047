package mcp

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	jsonv2 "github.com/go-json-experiment/json"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/internal/wire"
)

// A Server offers tools, resources and prompts to clients of every revision. It is a [Handler]: run it on a stream with
// [Server.Run], or mount it on HTTP with package mcphttp.
//
// What it offers is registered with [AddTool], [AddResource], [AddResourceTemplate], [AddFS] and [AddPrompt], and may
// change while clients are connected. A Server is safe for concurrent use. It keeps no state of a client between two
// requests.
type Server struct {
	opts    ServerOptions
	log     *slog.Logger
	frame   []byte                // the members that every result's `_meta` carries
	handler atomic.Pointer[stack] // the middleware around the dispatch
	serving atomic.Int64

	tools     featureSet[Tool, toolEntry]
	prompts   featureSet[Prompt, promptEntry]
	resources featureSet[Resource, resourceEntry]
	templates featureSet[ResourceTemplate, templateEntry]
	changes   broadcaster
	sealer    *sealer

	mu         sync.Mutex // guards the fields below, and is held to change the maps that are read without it
	middleware []Middleware
	extensions map[string]any
	methods    atomic.Pointer[map[string]Handler]
	topics     atomic.Pointer[map[string]Topic] // by member of the filter
	completes  atomic.Bool                      // some argument can be completed
}

// ServerOptions configures a [Server]. The zero value is right for most servers.
type ServerOptions struct {
	// Title, Description, WebsiteURL and Icons describe the server to people.
	Title       string
	Description string
	WebsiteURL  string
	Icons       []Icon
	// Instructions tell the model of the client how to use the server as a whole.
	Instructions string
	// Logger takes what goes wrong inside: panics, failures that clients only see as "internal error". Default:
	// slog.Default().
	Logger *slog.Logger
	// Middleware wraps every request, the first one outermost.
	Middleware []Middleware
	// Visible says whether the caller of ctx may see and use a feature; see [RequestFrom] for who that is. It is asked
	// when features are listed and again when one is used, so what it hides cannot be reached by guessing. It must be
	// quick and safe for concurrent use. Default: everything is visible to everyone.
	Visible func(ctx context.Context, f Feature) bool
	// PageSize is the number of items in one answer to a list request. Default: 1000.
	PageSize int
	// Cache says how long clients may keep lists and the server's description. Default: not at all.
	Cache Cache
	// ProgressRate is the number of progress notifications per second that one call may send on average, above a first
	// burst of 1000; what exceeds it is merged into the next. Default: 100.
	ProgressRate int
	// MaxInFlight is the number of requests that the server works on at once, over all its connections; further ones are
	// refused with [CodeBusy]. Subscriptions, detached calls and what waits for the result of a task do not count: whoever
	// carries them bounds them. Default: 10,000.
	MaxInFlight int
	// StateKeys are the secrets that seal request state and cursors, each at least 32 bytes: the first one seals, all
	// of them open, so that keys can be rotated. Servers that stand in for each other share them. Default: one random
	// key, which dies with the server.
	StateKeys [][]byte
	// StateTTL is how long a client may take to answer a question. Default: 1 hour.
	StateTTL time.Duration
	// StateStore keeps request state that is too large to travel with the client. Default: none; such a state is an
	// error.
	StateStore StateStore
	// Experimental is put into the capabilities as it is.
	Experimental map[string]any
}

// NewServer returns a server that offers nothing yet. Name and version are its identity in every answer. It panics if
// they or the options cannot work. The options may be nil.
func NewServer(name, version string, opts *ServerOptions) *Server {
	s := &Server{}
	if opts != nil {
		s.opts = *opts
	}
	s.fillDefaults()
	if err := s.validate(name); err != nil {
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
	s.sealer = newSealer(s.opts.StateKeys)
	s.middleware = slices.Clone(s.opts.Middleware)
	s.wrap()
	s.tools.init("tool", func() { s.changes.listChanged(toolsChanged) })
	s.prompts.init("prompt", func() { s.changes.listChanged(promptsChanged) })
	s.resources.init("resource", func() { s.changes.listChanged(resourcesChanged) })
	s.templates.init("resource template", func() { s.changes.listChanged(resourcesChanged) })
	s.methods.Store(&map[string]Handler{})
	s.topics.Store(&map[string]Topic{})
	return s
}

// A stack is middleware around what a server does.
type stack struct {
	Handler
	isPlain bool // there is no middleware
}

// wrap puts the middleware around what the server does. The caller holds s.mu, or has the server to itself.
func (s *Server) wrap() {
	h := stack{dispatcher{s}, len(s.middleware) == 0}
	if !h.isPlain {
		h.Handler = chain(HandlerFunc(func(ctx context.Context, req *Request) (Result, error) {
			return contain(ctx, s.log, req, dispatcher{s}) // middleware sees a panic as an error
		}), s.middleware)
	}
	s.handler.Store(&h)
}

// Use puts m around what the server does, within all middleware that it has already. It is for extensions, which are
// installed before the server serves: requests in progress do not pass m. It panics if m is nil.
func (s *Server) Use(m Middleware) {
	if m == nil {
		panic("mcp: Use: the middleware is nil")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.middleware = append(s.middleware, m)
	s.wrap()
}

func (s *Server) fillDefaults() {
	if s.opts.Logger == nil {
		s.opts.Logger = slog.Default()
	}
	if s.opts.PageSize == 0 {
		s.opts.PageSize = 1000
	}
	if s.opts.ProgressRate == 0 {
		s.opts.ProgressRate = 100
	}
	if s.opts.MaxInFlight == 0 {
		s.opts.MaxInFlight = 10_000
	}
	if s.opts.StateTTL == 0 {
		s.opts.StateTTL = time.Hour
	}
}

func (s *Server) validate(name string) error {
	switch {
	case name == "":
		return fmt.Errorf("the name is empty")
	case s.opts.PageSize < 0:
		return fmt.Errorf("PageSize is %d, want a positive number", s.opts.PageSize)
	case s.opts.ProgressRate < 0:
		return fmt.Errorf("ProgressRate is %d, want a positive number", s.opts.ProgressRate)
	case s.opts.MaxInFlight < 0:
		return fmt.Errorf("MaxInFlight is %d, want a positive number", s.opts.MaxInFlight)
	}
	for i, k := range s.opts.StateKeys {
		if len(k) < minStateKey {
			return fmt.Errorf("StateKeys[%d] has %d bytes, want at least %d", i, len(k), minStateKey)
		}
	}
	if s.opts.Experimental != nil {
		if _, err := jsonv2.Marshal(s.opts.Experimental); err != nil {
			return fmt.Errorf("Experimental: %w", err)
		}
	}
	return s.opts.Cache.validate()
}

// ServeMCP answers one request of any client, through the server's middleware.
func (s *Server) ServeMCP(ctx context.Context, req *Request) (Result, error) {
	if req.Method != wire.MethodSubscriptionsListen && req.Method != wire.MethodTasksResult && req.detached == nil {
		defer s.serving.Add(-1)
		if s.serving.Add(1) > int64(s.opts.MaxInFlight) {
			return nil, errBusy
		}
	}
	req.server = s
	c := newCall(ctx, s, req)
	h := s.handler.Load()
	res, err := contain(c, s.log, req, h.Handler)
	if !req.outlivesHandler() {
		c.progress.finish(c)
	}
	switch {
	case err == nil:
		return res, nil
	case asError(err) != nil:
		return nil, err // as it is: what is around the protocol error may be for the transport
	}
	return nil, publicError(c, s.log, req, err)
}

// errBusy asks the client to come back.
var errBusy = &Error{Code: CodeBusy, Message: "server is busy", Data: json.RawMessage(`{"retryAfterMs":1000}`)}

// HandleMethod makes h answer requests of a method that the core protocol does not define, for extensions. Those of tasks,
// which one revision has in its core, are an extension's. It panics if the protocol defines the method or it has a
// handler already.
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
	methods := make(map[string]Handler, len(old)+1)
	for k, v := range old {
		methods[k] = v
	}
	methods[method] = h
	s.methods.Store(&methods)
}

// AddExtension declares support for an extension, by its id (such as "com.example/search") and its settings, which
// encode to a JSON object; nil means none. It panics if the id has no prefix, or the settings are no object.
//
// Spec: basic (2026-07-28), Extensions.
func (s *Server) AddExtension(id string, settings any) {
	if !wire.ValidExtensionID(id) {
		panic(fmt.Sprintf("mcp: extension id %q: want a reverse DNS prefix, a slash and a name", id))
	}
	if settings == nil {
		settings = struct{}{}
	}
	encoded, err := jsonv2.Marshal(settings, deterministic)
	if err != nil || jsonscan.Kind(encoded) != '{' {
		panic(fmt.Sprintf("mcp: extension %q: its settings are no JSON object: %v", id, err))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	extensions := map[string]any{}
	for k, v := range s.extensions {
		extensions[k] = v
	}
	extensions[id] = json.RawMessage(encoded)
	s.extensions = extensions
}

// HeaderParams returns the arguments of a tool that HTTP clients repeat in headers. It returns nil for a tool that the
// caller of req must not see.
func (s *Server) HeaderParams(ctx context.Context, req *Request, tool string) (params []HeaderParam) {
	e, ok := s.tools.lookup(tool)
	if !ok || len(e.extra.headerParams) == 0 {
		return nil
	}
	c := &call{Context: ctx, server: s, req: req}
	var err error // of a panic in Visible, which the call itself will report
	defer recovered(c, s.log, req.Method, &err)
	if s.visible(c, toolFeature(e.value)) {
		params = e.extra.headerParams
	}
	return params
}

// A Feature is one thing that a server offers, as [ServerOptions.Visible] sees it. Exactly one field is set.
type Feature struct {
	Tool     *Tool
	Prompt   *Prompt
	Resource *Resource
	Template *ResourceTemplate
}

func toolFeature(t *Tool) Feature { return Feature{Tool: t} }

func (s *Server) visible(ctx context.Context, f Feature) bool {
	return s.opts.Visible == nil || s.opts.Visible(ctx, f)
}
