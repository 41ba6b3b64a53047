package mcp

import (
	"context"
	"encoding/json"
	"slices"
	"sync"
	"time"

	jsonv2 "github.com/go-json-experiment/json"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/internal/uritemplate"
	"github.com/patchbay-mcp/patchbay/internal/wire"
	"github.com/patchbay-mcp/patchbay/jsonrpc"
)

// coalesceDelay is how long a list may go on changing before clients are told once: registering a hundred tools is one
// change to a client.
const coalesceDelay = 10 * time.Millisecond

// A ListenResult ends a subscription that the server closes in good order.
//
// Spec: basic/patterns/subscriptions (2026-07-28), Ending a Subscription.
type ListenResult struct {
	Meta Meta `json:"-"`
}

// ResultType is "complete".
func (*ListenResult) ResultType() string { return ResultComplete }

// ResultMeta is r.Meta, which names the subscription.
func (r *ListenResult) ResultMeta() Meta { return r.Meta }

// A listChange is a kind of list that changed; kinds combine as bits.
type listChange uint8

const (
	toolsChanged listChange = 1 << iota
	promptsChanged
	resourcesChanged
)

// listNotifications are the notifications of each kind of change, in the order they are sent.
var listNotifications = []struct {
	change listChange
	method string
}{
	{toolsChanged, wire.NotificationToolsListChanged},
	{promptsChanged, wire.NotificationPromptsListChanged},
	{resourcesChanged, wire.NotificationResourcesListChanged},
}

// A hub tells subscriptions of changes. Telling one never waits for it: it marks what changed and wakes whoever writes.
type hub struct {
	mu      sync.Mutex // guards the fields below
	subs    map[*subscription]struct{}
	changed listChange // lists that changed and were not told of yet
}

// listChanged tells of a changed list, after a moment in which it may change further.
func (h *hub) listChanged(c listChange) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.subs) == 0 {
		return
	}
	if h.changed == 0 {
		time.AfterFunc(coalesceDelay, h.flush)
	}
	h.changed |= c
}

func (h *hub) flush() {
	h.mu.Lock()
	changed := h.changed
	h.changed = 0
	subs := h.subscribed(func(s *subscription) bool { return s.lists&changed != 0 })
	h.mu.Unlock()
	for _, s := range subs {
		s.mark(changed)
	}
}

// updated tells of a changed resource.
func (h *hub) updated(uri string) {
	h.mu.Lock()
	subs := h.subscribed(func(s *subscription) bool { return s.wants(uri) })
	h.mu.Unlock()
	for _, s := range subs {
		s.mark(0, uri)
	}
}

// subscribed returns the subscriptions that match. The caller holds h.mu.
func (h *hub) subscribed(match func(*subscription) bool) []*subscription {
	var subs []*subscription
	for s := range h.subs {
		if match(s) {
			subs = append(subs, s)
		}
	}
	return subs
}

func (h *hub) add(s *subscription) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.subs == nil {
		h.subs = map[*subscription]struct{}{}
	}
	h.subs[s] = struct{}{}
}

func (h *hub) remove(s *subscription) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.subs, s)
}

// ResourceUpdated tells the clients that subscribed to a resource that it has changed. Changes of one resource that a
// client has not been told of yet are told once.
//
// Spec: server/resources, Subscriptions.
func (s *Server) ResourceUpdated(uri string) { s.hub.updated(uri) }

// A subscription is one open subscriptions/listen.
type subscription struct {
	id         json.RawMessage // of the listen request, as it was sent
	lists      listChange
	listParams json.RawMessage // of notifications of lists, which say nothing but the id
	uris       map[string]struct{}
	wake       func() // called without the lock when there is something to send; must not block

	mu      sync.Mutex // guards the fields below
	changed listChange
	updated []string            // in the order they changed
	noted   map[string]struct{} // the same, each once
}

func newSubscription(id jsonrpc.ID, f Filter) *subscription {
	s := &subscription{id: json.RawMessage(id.String()), lists: f.lists()}
	s.listParams = s.params(nil)
	for _, uri := range f.ResourceSubscriptions {
		put(&s.uris, uri, struct{}{})
	}
	return s
}

func (s *subscription) wants(uri string) bool { _, ok := s.uris[uri]; return ok }

// mark notes what changed, and wakes whoever sends it.
func (s *subscription) mark(changed listChange, uris ...string) {
	s.note(changed, uris...)
	s.wake()
}

// note keeps what changed until it is sent. What is noted already is not noted again, so a slow reader costs no memory.
func (s *subscription) note(changed listChange, uris ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.changed |= changed & s.lists
	for _, uri := range uris {
		if _, noted := s.noted[uri]; noted {
			continue
		}
		if s.noted == nil {
			s.noted = map[string]struct{}{}
		}
		s.noted[uri] = struct{}{}
		s.updated = append(s.updated, uri)
	}
}

func (s *subscription) take() (listChange, []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	changed, updated := s.changed, s.updated
	s.changed, s.updated, s.noted = 0, nil, nil
	return changed, updated
}

// send writes what has changed since the last time. What could not be written stays noted.
func (s *subscription) send(ctx context.Context, req *Request) error {
	changed, updated := s.take()
	for _, n := range listNotifications {
		if changed&n.change == 0 {
			continue
		}
		if err := req.Notify(ctx, n.method, s.listParams); err != nil {
			s.note(changed, updated...)
			return err
		}
		changed &^= n.change
	}
	for i, uri := range updated {
		member := append(jsonscan.AppendQuote([]byte(`"uri":`), uri), ',')
		if err := req.Notify(ctx, wire.NotificationResourcesUpdated, s.params(member)); err != nil {
			s.note(0, updated[i:]...)
			return err
		}
	}
	return nil
}

// params returns the params of a notification: further members, each with a comma behind, and the subscription's id.
func (s *subscription) params(members []byte) json.RawMessage {
	const begin, end = `"_meta":{"` + wire.MetaSubscriptionID + `":`, `}}`
	b := make([]byte, 0, len("{")+len(members)+len(begin)+len(s.id)+len(end))
	b = append(append(b, '{'), members...)
	b = append(append(b, begin...), s.id...)
	return append(b, end...)
}

// listen serves subscriptions/listen: it acknowledges, tells of changes until the client ends it, and gives a result
// only when it is the server that ends it.
func (s *Server) listen(ctx context.Context, req *Request) (Result, error) {
	if !s.tools.ever.Load() && !s.prompts.ever.Load() && !s.offersResources() && len(*s.topics.Load()) == 0 {
		return nil, methodNotFound(req.Method)
	}
	if req.Notify == nil {
		return nil, Errorf(CodeInvalidRequest, "%s needs a stream to answer on", req.Method)
	}
	f, err := s.openFilter(ctx, req)
	if err != nil {
		return nil, err
	}
	sub := newSubscription(req.ID, f)
	if req.apart != nil && req.apart.detached {
		return s.listenDetached(ctx, req, sub, f)
	}
	return s.listenAttached(ctx, req, sub, f)
}

// acknowledge writes the first message of the subscription.
func (s *subscription) acknowledge(ctx context.Context, req *Request, f Filter) error {
	agreed, err := jsonv2.Marshal(f, deterministic)
	if err != nil {
		return err
	}
	member := append(append([]byte(`"notifications":`), agreed...), ',')
	return req.Notify(ctx, wire.NotificationSubscriptionsAcknowledged, s.params(member))
}

// listenDetached tells of changes from the goroutines that make them.
func (s *Server) listenDetached(ctx context.Context, req *Request, sub *subscription, f Filter) (Result, error) {
	var sending sync.Mutex // one at a time, so that an earlier change is told first, and the acknowledgement before all
	sub.wake = func() {
		sending.Lock()
		defer sending.Unlock()
		_ = sub.send(ctx, req) // a stream that is gone is stopped by its owner
	}
	sending.Lock()
	defer sending.Unlock()
	notify := func(ctx context.Context, method string, params json.RawMessage) error {
		sending.Lock()
		defer sending.Unlock()
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return req.Notify(ctx, method, params)
	}
	topics, err := s.openTopics(ctx, req, sub, &f, topicWay{(*subscribedTopics).sendApart, notify})
	if err != nil {
		return nil, err
	}
	s.hub.add(sub)
	end := func() {
		s.hub.remove(sub)
		topics.close()
	}
	if err := sub.acknowledge(ctx, req, f); err != nil {
		end()
		return nil, err
	}
	req.apart.stop = end
	return &ListenResult{}, nil
}

// Listen registers a subscriptions/listen request through the server's middleware and returns; see [Listener]. The
// context must outlive the subscription.
func (s *Server) Listen(ctx context.Context, req *Request) (stop func(), err error) {
	a := apart{detached: true}
	req.apart = &a
	if _, err := s.ServeMCP(ctx, req); err != nil {
		return nil, err
	}
	if a.stop == nil {
		return nil, Errorf(CodeInvalidRequest, "%s was answered by a middleware", req.Method)
	}
	return a.stop, nil
}

// Bounds of what one subscription asks for.
const (
	// maxSubscribedURIs bounds the resources of one subscription: each is kept for as long as it is open.
	maxSubscribedURIs = 1000
	// maxListen bounds the params of a subscription, in bytes: they are kept for as long as it is open, and there may be
	// thousands.
	maxListen = 320 << 10
	// maxURI bounds a resource URI.
	maxURI = uritemplate.MaxLength
)

// A Filter says which changes a subscription wants to hear of.
//
// Spec: basic/patterns/subscriptions (2026-07-28).
type Filter struct {
	ToolsListChanged      bool     `json:"toolsListChanged,omitzero"`
	PromptsListChanged    bool     `json:"promptsListChanged,omitzero"`
	ResourcesListChanged  bool     `json:"resourcesListChanged,omitzero"`
	ResourceSubscriptions []string `json:"resourceSubscriptions,omitempty"` // URIs
	// Topics are further members of the JSON object, which extensions define: see [Server.AddTopic].
	Topics map[string]json.RawMessage `json:",embed"`
}

// plainFilter is a Filter without methods.
type plainFilter Filter

// MarshalJSON returns one object, Topics among the others.
func (f Filter) MarshalJSON() ([]byte, error) { return jsonv2.Marshal(plainFilter(f), deterministic) }

// UnmarshalJSON reads one object; Topics are all members that the core protocol does not have.
func (f *Filter) UnmarshalJSON(data []byte) error { return jsonv2.Unmarshal(data, (*plainFilter)(f)) }

// coreFilter reports whether a member of a filter is the core protocol's.
func coreFilter(member string) bool {
	switch member {
	case "toolsListChanged", "promptsListChanged", "resourcesListChanged", "resourceSubscriptions", "_meta":
		return true
	}
	return false
}

func (f Filter) lists() (c listChange) {
	if f.ToolsListChanged {
		c |= toolsChanged
	}
	if f.PromptsListChanged {
		c |= promptsChanged
	}
	if f.ResourcesListChanged {
		c |= resourcesChanged
	}
	return c
}

// openFilter reads what the client wants to hear of, and leaves what the server can tell it: that is the
// acknowledgement.
func (s *Server) openFilter(ctx context.Context, req *Request) (f Filter, err error) {
	if len(req.Params) > maxListen {
		return f, Errorf(CodeInvalidParams, "params: %d bytes, at most %d are taken", len(req.Params), maxListen)
	}
	raw, ok := jsonscan.Get(req.Params, "notifications")
	if !ok || jsonscan.Kind(raw) != '{' {
		return f, Errorf(CodeInvalidParams, "params.notifications: want an object that names what to listen to")
	}
	if err := jsonv2.Unmarshal(raw, &f); err != nil || holdsNull(raw) {
		return f, Errorf(CodeInvalidParams, "params.notifications: want booleans, and an array of strings for resourceSubscriptions")
	}
	if len(f.ResourceSubscriptions) > maxSubscribedURIs {
		return f, Errorf(CodeInvalidParams, "params.notifications.resourceSubscriptions: %d URIs, at most %d are taken",
			len(f.ResourceSubscriptions), maxSubscribedURIs)
	}
	f.ToolsListChanged = f.ToolsListChanged && s.tools.ever.Load()
	f.PromptsListChanged = f.PromptsListChanged && s.prompts.ever.Load()
	f.ResourcesListChanged = f.ResourcesListChanged && s.offersResources()
	f.ResourceSubscriptions = slices.DeleteFunc(f.ResourceSubscriptions, func(uri string) bool {
		return len(uri) > maxURI || !s.offersResources() || !s.readable(ctx, uri)
	})
	return f, nil
}

// holdsNull reports whether a filter has null for a member or a URI. Decoding takes it for the zero value; the protocol
// knows no such thing.
func holdsNull(filter json.RawMessage) bool {
	for key, value := range jsonscan.Members(filter) {
		switch string(key) {
		case "toolsListChanged", "promptsListChanged", "resourcesListChanged":
			if jsonscan.Kind(value) == 'n' {
				return true
			}
		case "resourceSubscriptions":
			if jsonscan.Kind(value) == 'n' {
				return true
			}
			for uri := range jsonscan.Elements(value) {
				if jsonscan.Kind(uri) == 'n' {
					return true
				}
			}
		}
	}
	return false
}
