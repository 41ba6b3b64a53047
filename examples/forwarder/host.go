package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcp/driver"
)

// headerTimeout limits how long a client may take to send the header of an HTTP request.
const headerTimeout = 10 * time.Second

// A server is a connection to one of the servers of a host.
type server struct {
	name    string
	client  *mcp.Client
	forward driver.Forwarder[*mcp.Request, mcp.Result]
}

// A host serves the tools, prompts and resources of its servers. The name of a tool or prompt begins
// with the name of its server and a dot. The URI of a resource is unchanged.
type host struct {
	log     *log.Logger
	driver  driver.Server[*mcp.Request, mcp.Result, mcp.Observer]
	changes *mcp.Broadcaster

	mu      sync.Mutex // guards the fields below
	servers map[string]*server
	calls   map[string]int // that have ended, by tool
}

func newHost(l *log.Logger) *host {
	h := &host{log: l, servers: map[string]*server{}, calls: map[string]int{}}
	h.driver = mcp.Driver(unobserved{h})
	h.changes = mcp.NewBroadcaster(h.agree)
	return h
}

// Add connects to a server and adds it.
func (h *host) Add(ctx context.Context, name string, t mcp.Transport) error {
	c, err := mcp.Connect(ctx, t, &mcp.ClientOptions{ForwardInput: true})
	if err != nil {
		return err
	}
	s := &server{name: name, client: c, forward: mcp.Forward(c)}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.servers[name] != nil {
		_ = c.Close()
		return fmt.Errorf("server %q exists already", name)
	}
	h.servers[name] = s
	h.changes.Send(mcp.Event{Kind: mcp.EventToolsChanged})
	return nil
}

// Remove disconnects from a server. Its requests in progress fail.
func (h *host) Remove(name string) error {
	h.mu.Lock()
	s := h.servers[name]
	delete(h.servers, name)
	h.mu.Unlock()
	if s == nil {
		return fmt.Errorf("no server %q", name)
	}
	h.changes.Send(mcp.Event{Kind: mcp.EventToolsChanged})
	return s.client.Close()
}

// Close disconnects from all servers.
func (h *host) Close() (err error) {
	for _, s := range h.all() {
		err = errors.Join(err, h.Remove(s.name))
	}
	return err
}

// Usage returns the number of requests that occupy a server.
func (h *host) Usage(name string) driver.ForwardUsage {
	if s := h.server(name); s != nil {
		return s.forward.Usage()
	}
	return driver.ForwardUsage{}
}

// Leave ends the requests that wait for the answer of a client. The host calls it when a session ends.
func (h *host) Leave(caller string) {
	for _, s := range h.all() {
		s.forward.Abandon(caller)
	}
}

// all returns the servers, ordered by name.
func (h *host) all() []*server {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.SortedFunc(maps.Values(h.servers), func(a, b *server) int { return strings.Compare(a.name, b.name) })
}

func (h *host) server(name string) *server {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.servers[name]
}

// Observer returns the observer of the requests of clients. The HTTP transport reports sessions to it.
func (h *host) Observer() mcp.Observer { return observer{h} }

// UsesBroadcaster lets idle subscriptions continue without a goroutine.
func (h *host) UsesBroadcaster() mcp.Handler { return h }

// Listen opens a subscription, for transports.
func (h *host) Listen(ctx context.Context, req *mcp.Request) (stop func(), err error) {
	return h.changes.Listen(ctx, req)
}

// ServeMCP serves a request and reports it to the observer.
func (h *host) ServeMCP(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
	return h.driver.Observe(ctx, req, h.target)
}

// target returns the name of the tool or prompt of a request. Names of clients are not used as labels,
// so it is empty if the request failed.
func (h *host) target(req *mcp.Request, err error) string {
	if err != nil {
		return ""
	}
	return text(req, "name")
}

// unobserved is the host without its observer.
type unobserved struct{ *host }

// ServeMCP serves a request.
func (u unobserved) ServeMCP(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
	h := u.host
	switch req.Method {
	case driver.MethodDiscover:
		list := &mcp.ListCapability{ListChanged: true}
		return &mcp.DiscoverResult{SupportedVersions: driver.Revisions(), Capabilities: mcp.ServerCapabilities{
			Tools: list, Prompts: list, Resources: &mcp.ResourceCapability{}}}, nil
	case driver.MethodSubscriptionsListen:
		return h.changes.ServeMCP(ctx, req)
	case driver.MethodToolsList:
		return h.tools(ctx)
	case driver.MethodPromptsList:
		return h.prompts(ctx)
	case driver.MethodResourcesList:
		return h.resources(ctx)
	case driver.MethodToolsCall, driver.MethodPromptsGet:
		name, rest, _ := strings.Cut(text(req, "name"), ".")
		if s := h.server(name); s != nil {
			return h.send(ctx, req, s, rest)
		}
		return nil, mcp.Errorf(mcp.CodeInvalidParams, "unknown name %q", text(req, "name"))
	case driver.MethodResourcesRead:
		return h.read(ctx, req)
	}
	return nil, mcp.Errorf(mcp.CodeMethodNotFound, "method not found: %s", req.Method)
}

// send forwards a request to a server, on behalf of the client that has sent it: only that client can
// answer questions of the server.
func (h *host) send(ctx context.Context, req *mcp.Request, s *server, subject string) (mcp.Result, error) {
	o := &driver.ForwardOptions{Principal: req.Principal.Key(), Subject: subject}
	if id := driver.SessionID(ctx); id != "" {
		o.Caller = o.Principal + "\n" + id
	}
	res, err := s.forward.ForwardAs(ctx, req, o)
	var failed *mcp.TransportError
	if errors.As(err, &failed) { // the reason is for the operator, not for the client
		h.log.Printf("%s: %v", s.name, err)
		return nil, mcp.Errorf(mcp.CodeInternalError, "server %q did not respond", s.name)
	}
	return res, err
}

// read reads a resource from the first server that lists its URI.
func (h *host) read(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
	uri := text(req, "uri")
	for _, s := range h.all() {
		for r, err := range s.client.Resources(ctx) {
			if err != nil {
				break // reported by resources/list
			}
			if r.URI == uri {
				return h.send(ctx, req, s, uri)
			}
		}
	}
	return nil, mcp.NotFound(uri)
}

func (h *host) tools(ctx context.Context) (mcp.Result, error) {
	res := &mcp.ListToolsResult{Tools: []*mcp.Tool{}}
	for _, s := range h.all() {
		for tool, err := range s.client.Tools(ctx) {
			if err != nil {
				return nil, err
			}
			named := *tool
			named.Name = s.name + "." + tool.Name
			res.Tools = append(res.Tools, &named)
		}
	}
	return res, nil
}

func (h *host) prompts(ctx context.Context) (mcp.Result, error) {
	res := &mcp.ListPromptsResult{Prompts: []*mcp.Prompt{}}
	for _, s := range h.all() {
		if s.client.Capabilities().Prompts == nil {
			continue
		}
		for prompt, err := range s.client.Prompts(ctx) {
			if err != nil {
				return nil, err
			}
			named := *prompt
			named.Name = s.name + "." + prompt.Name
			res.Prompts = append(res.Prompts, &named)
		}
	}
	return res, nil
}

func (h *host) resources(ctx context.Context) (mcp.Result, error) {
	res := &mcp.ListResourcesResult{Resources: []*mcp.Resource{}}
	for _, s := range h.all() {
		if s.client.Capabilities().Resources == nil {
			continue
		}
		for r, err := range s.client.Resources(ctx) {
			if err != nil {
				return nil, err
			}
			res.Resources = append(res.Resources, r)
		}
	}
	return res, nil
}

// agree narrows a subscription to the changes that the host announces.
func (h *host) agree(_ context.Context, _ *mcp.Request, f *mcp.SubscriptionFilter) (end func(), err error) {
	f.PromptsListChanged, f.ResourcesListChanged, f.ResourceSubscriptions = false, false, nil
	return func() {}, nil
}

// An observer counts calls, and ends the questions of a session with the session.
type observer struct{ host *host }

// Begin implements [mcp.Observer].
func (o observer) Begin(ctx context.Context, _ *mcp.Request) context.Context { return ctx }

// End implements [mcp.Observer].
func (o observer) End(_ context.Context, req *mcp.Request, end mcp.Outcome) {
	if req.Method != driver.MethodToolsCall || end.InputRequired {
		return
	}
	o.host.mu.Lock()
	defer o.host.mu.Unlock()
	o.host.calls[end.Target]++
}

// SessionBegan implements [driver.SessionObserver].
func (o observer) SessionBegan(ctx context.Context, _ driver.Via) (ended func(cause error)) {
	caller := mcp.PrincipalFrom(ctx).Key() + "\n" + driver.SessionID(ctx)
	return func(error) { o.host.Leave(caller) }
}

// text returns a string of the params, or "".
func text(req *mcp.Request, key string) (s string) {
	raw, _ := req.Param(key)
	_ = json.Unmarshal(raw, &s) // stays empty: an invalid name belongs to no server
	return s
}
