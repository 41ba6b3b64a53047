package events

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcp/driver"
)

// maxHeartbeat is the longest time between two heartbeats. Spec: SEP-3415, Lifecycle.
const maxHeartbeat = 30 * time.Second

// Options configures a [Server]. The zero value is right for most servers.
type Options struct {
	// PageSize limits the event types in a list result. Default: 100.
	PageSize int
	// MaxEvents limits the occurrences in a poll result; a client may ask for fewer. Default: 100.
	MaxEvents int
	// MaxStreams limits the open streams of all callers, MaxStreamsPerPrincipal those of a caller.
	// Callers that are not authenticated count as a single caller. Defaults: 10,000 and 100.
	MaxStreams             int
	MaxStreamsPerPrincipal int
	// BufferEvents and BufferAge limit the emitted occurrences of an event type that are kept for
	// clients which poll or reconnect; their payloads are limited to 16 MiB, too. Defaults: 10,000
	// and 20 minutes, in which a webhook is tried for 15.
	BufferEvents int
	BufferAge    time.Duration
	// Heartbeat is the time after which a silent stream is sent a sign of life, at most 30 seconds.
	// Default: 15 seconds.
	Heartbeat time.Duration
	// Recheck is the time after which [Source].Authorize is called again for a stream. Default: 1
	// minute.
	Recheck time.Duration
	// Visible reports whether the caller of ctx may see an event type. A hidden event type does not
	// exist for the caller. The principal of a webhook contains no Claims. It must be fast and safe for
	// concurrent use. Default: all are visible.
	Visible func(ctx context.Context, e *Event) bool
	// SketchCodes sends errors with the codes of the design before SEP-3415, which several clients of
	// that time expect.
	SketchCodes bool
	// Logger receives the errors of sources. Default: slog.Default().
	Logger *slog.Logger
}

func (o *Options) fill() error {
	for name, n := range map[string]int64{
		"PageSize": int64(o.PageSize), "MaxEvents": int64(o.MaxEvents), "MaxStreams": int64(o.MaxStreams),
		"MaxStreamsPerPrincipal": int64(o.MaxStreamsPerPrincipal), "BufferEvents": int64(o.BufferEvents),
		"BufferAge": int64(o.BufferAge), "Heartbeat": int64(o.Heartbeat), "Recheck": int64(o.Recheck),
	} {
		if n < 0 {
			return fmt.Errorf("%s is %d, want a positive number", name, n)
		}
	}
	if o.Heartbeat > maxHeartbeat {
		return fmt.Errorf("Heartbeat is %v, want at most %v", o.Heartbeat, maxHeartbeat)
	}
	o.PageSize = cmp.Or(o.PageSize, 100)
	o.MaxEvents = cmp.Or(o.MaxEvents, 100)
	o.MaxStreams = cmp.Or(o.MaxStreams, 10_000)
	o.MaxStreamsPerPrincipal = cmp.Or(o.MaxStreamsPerPrincipal, 100)
	o.BufferEvents = cmp.Or(o.BufferEvents, 10_000)
	o.BufferAge = cmp.Or(o.BufferAge, 20*time.Minute)
	o.Heartbeat = cmp.Or(o.Heartbeat, maxHeartbeat/2)
	o.Recheck = cmp.Or(o.Recheck, time.Minute)
	o.Logger = cmp.Or(o.Logger, slog.Default())
	return nil
}

// A Server serves the event types of an [mcp.Server]. It is safe for concurrent use.
type Server struct {
	server *mcp.Server
	opts   Options

	mu       sync.Mutex // guards the fields below
	entries  map[string]*entry
	modes    []Mode
	streams  map[string]int // open streams by [mcp.Principal.Key]
	open     int            // all streams
	watchers map[*func(key string)]struct{}
}

// NewServer returns a Server that is installed on s, which then declares the extension to clients of
// revision 2026-07-28 and later. The options may be nil. NewServer panics if the options are invalid,
// or if s is extended by an event server already.
func NewServer(s *mcp.Server, opts *Options) *Server {
	e := &Server{server: s, entries: map[string]*entry{}, modes: []Mode{ModePoll, ModePush},
		streams: map[string]int{}, watchers: map[*func(string)]struct{}{}}
	if opts != nil {
		e.opts = *opts
	}
	if err := e.opts.fill(); err != nil {
		panic("events: NewServer: " + err.Error())
	}
	e.Handle(methodList, e.list)
	e.Handle(methodPoll, e.poll)
	e.Handle(methodStream, e.stream)
	s.AddTopic(topicListChanged, mcp.Topic{Method: notificationListChanged, Open: e.watch,
		Params: func(context.Context, *mcp.Request, string) (json.RawMessage, error) {
			return json.RawMessage("{}"), nil
		}})
	s.Use(e.declare)
	return e
}

// Offer adds a delivery mode that another package implements, such as [ModeWebhook]. Event types
// without [Event].Delivery then list it.
func (s *Server) Offer(m Mode) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.Contains(s.modes, m) {
		s.modes = append(slices.Clip(s.modes), m)
		s.listChanged()
	}
}

// Handle registers the handler of a method of the extension. Clients of older revisions receive the
// error -32601. It panics if the method has a handler already.
func (s *Server) Handle(method string, serve func(context.Context, *mcp.Request) (mcp.Result, error)) {
	s.server.HandleMethod(method, mcp.HandlerFunc(func(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
		if driver.HasSessions(req.Revision()) {
			return nil, mcp.Errorf(mcp.CodeMethodNotFound, "%s needs revision 2026-07-28 or later", method)
		}
		res, err := serve(ctx, req)
		if e := asError(err); e != nil {
			return nil, s.public(e)
		}
		return res, err
	}))
}

// public returns the error as it is sent.
func (s *Server) public(e *mcp.Error) *mcp.Error {
	if s.opts.SketchCodes {
		return toSketch(e)
	}
	return e
}

// declare is middleware that adds the extension to the server's capabilities: under its identifier,
// and at the top level for clients of the design before SEP-3415.
func (s *Server) declare(next mcp.Handler) mcp.Handler {
	settings := map[string]bool{"listChanged": true}
	return mcp.HandlerFunc(func(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
		res, err := next.ServeMCP(ctx, req)
		found, ok := res.(*mcp.DiscoverResult)
		if err != nil || !ok || driver.HasSessions(req.Revision()) {
			return res, err
		}
		out := *found
		out.Capabilities.Extensions = maps.Clone(found.Capabilities.Extensions)
		out.Capabilities.Other = maps.Clone(found.Capabilities.Other)
		if out.Capabilities.Extensions == nil {
			out.Capabilities.Extensions = map[string]any{}
		}
		if out.Capabilities.Other == nil {
			out.Capabilities.Other = map[string]json.RawMessage{}
		}
		out.Capabilities.Extensions[ID] = settings
		out.Capabilities.Other[capabilityMember] = json.RawMessage(`{"listChanged":true}`)
		return &out, nil
	})
}

// watch opens a subscription to changes of the list. Spec: SEP-3415, Dynamic event types.
func (s *Server) watch(_ context.Context, _ *mcp.Request, member json.RawMessage, changed func(string)) (
	acknowledged any, stop func(), err error) {
	if string(member) != "true" {
		return nil, nil, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watchers[&changed] = struct{}{}
	return true, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.watchers, &changed)
	}, nil
}

// listChanged notifies the subscribers of the list. The caller must hold s.mu.
func (s *Server) listChanged() {
	for changed := range s.watchers {
		(*changed)(topicListChanged)
	}
}

// acquire counts a stream of a caller until release is called.
func (s *Server) acquire(principal string) (release func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.streams[principal] >= s.opts.MaxStreamsPerPrincipal:
		return nil, Exhausted("streams", s.opts.MaxStreamsPerPrincipal)
	case s.open >= s.opts.MaxStreams:
		return nil, Exhausted("streams of all callers", s.opts.MaxStreams)
	}
	s.streams[principal]++
	s.open++
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.open--
		if s.streams[principal]--; s.streams[principal] == 0 {
			delete(s.streams, principal)
		}
	}, nil
}
