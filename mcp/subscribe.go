package mcp

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"runtime"
	"slices"
	"sync"
	"time"

	jsonv2 "github.com/go-json-experiment/json"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/internal/wire"
	"github.com/patchbay-mcp/patchbay/jsonrpc"
)

// coalesceDelay is the time between the first change of a list and its notification: registering a
// hundred tools results in a single notification.
const coalesceDelay = 10 * time.Millisecond

// The lists whose changes a server notifies of. Resources and templates share a notification.
const (
	listOfTools = iota
	listOfPrompts
	listOfResources
)

// listMethods are the notifications of changed lists, in the order in which they are sent.
var listMethods = [...]string{listOfTools: wire.NotificationToolsListChanged,
	listOfPrompts: wire.NotificationPromptsListChanged, listOfResources: wire.NotificationResourcesListChanged}

// A listChange is a set of lists that changed, with a bit for each of listMethods.
type listChange uint8

// list returns the list that an event reports as changed.
func (k EventKind) list() listChange { return 1 << (k - EventToolsChanged) }

// A subscriptions distributes changes to subscriptions. It never waits for a subscription: it records
// the change and wakes the sender.
type subscriptions struct {
	mu      sync.Mutex // guards the fields below
	subs    map[*subscription]struct{}
	changed listChange // lists that changed since the last flush

	relays []*func(method, uri string) // to other processes; replaced, not changed
	origin string                      // random, from the first relay on
}

// changedHere reports the change of a list to the subscriptions and to other processes.
func (b *subscriptions) changedHere(list int) {
	b.listChanged(1 << list)
	b.pass(listMethods[list], "")
}

// pass passes a change on to other processes.
func (b *subscriptions) pass(method, uri string) {
	b.mu.Lock()
	relays := b.relays
	b.mu.Unlock()
	for _, send := range relays {
		(*send)(method, uri)
	}
}

// announce reports a change in another process to the subscriptions.
func (b *subscriptions) announce(method, uri string) {
	switch i := slices.Index(listMethods[:], method); {
	case i >= 0:
		b.listChanged(1 << i)
	case method == wire.NotificationResourcesUpdated:
		b.resourceUpdated(uri)
	default:
		b.missed()
	}
}

// missed reports a change of everything to each subscription.
func (b *subscriptions) missed() {
	for _, s := range b.all() {
		s.record(s.lists)
		for uri := range s.uris {
			s.record(0, uri)
		}
		s.wake()
	}
}

// Relay implements [driver.Server].
func (d *serverDriver) Relay(
	send func(method, uri string),
) (announce func(method, uri string), origin string, stop func()) {
	s := serverOf(d.handler)
	if s == nil {
		return nil, "", nil
	}
	origin, stop = s.changes.relay(send)
	return s.changes.announce, origin, stop
}

// relay passes changes to send until stop is called.
func (b *subscriptions) relay(send func(method, uri string)) (origin string, stop func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.origin = cmp.Or(b.origin, rand.Text())
	b.relays = append(slices.Clip(b.relays), &send)
	return b.origin, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		isOwn := func(relay *func(method, uri string)) bool { return relay == &send }
		b.relays = slices.DeleteFunc(slices.Clone(b.relays), isOwn)
	}
}

// listChanged reports a change of a list to the subscriptions after coalesceDelay.
func (b *subscriptions) listChanged(c listChange) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.subs) == 0 {
		return
	}
	if b.changed == 0 {
		time.AfterFunc(coalesceDelay, b.flush)
	}
	b.changed |= c
}

func (b *subscriptions) flush() {
	b.mu.Lock()
	changed := b.changed
	b.changed = 0
	b.mu.Unlock()
	markAll(b.matching(func(s *subscription) bool { return s.lists&changed != 0 }), changed)
}

func (b *subscriptions) resourceUpdated(uri string) {
	markAll(b.matching(func(s *subscription) bool { return s.wants(uri) }), 0, uri)
}

// markAll marks subscriptions. After each batch, it lets the marked subscriptions send: otherwise the
// first client would wait, on a single core, until the last subscription is marked.
func markAll(subs []*subscription, changed listChange, uris ...string) {
	const batch = 32
	for i, s := range subs {
		if i%batch == batch-1 {
			runtime.Gosched()
		}
		s.mark(changed, uris...)
	}
}

// matching returns the subscriptions that match.
func (b *subscriptions) matching(match func(*subscription) bool) (subs []*subscription) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for s := range b.subs {
		if match(s) {
			subs = append(subs, s)
		}
	}
	return subs
}

// ResourceUpdated notifies the subscribers of a resource that it changed. Several changes before a
// client is notified result in a single notification.
//
// Spec: server/resources, Subscriptions.
func (s *Server) ResourceUpdated(uri string) {
	s.changes.resourceUpdated(uri)
	s.changes.pass(wire.NotificationResourcesUpdated, uri)
}

// A subscription is an open subscriptions/listen request.
type subscription struct {
	id         json.RawMessage // the id of the request, as it was sent
	lists      listChange
	listParams json.RawMessage // params of list notifications, which contain the id alone
	uris       map[string]struct{}
	topics     *topicSubscriptions // nil means an empty set
	wake       func()              // starts sending; called without the lock, must not block
	end        func()              // called once the subscription is closed, perhaps again; may be nil

	mu      sync.Mutex // guards the fields below
	changed listChange
	updated []string            // URIs, in the order of their changes
	pending map[string]struct{} // the URIs in updated, once there are maxScanned; else nil
}

// maxScanned is the number of URIs up to which a search of the list is faster than a map.
const maxScanned = 8

func newSubscription(id jsonrpc.ID, f SubscriptionFilter) *subscription {
	s := &subscription{id: json.RawMessage(id.String()), lists: f.lists()}
	s.listParams = s.params(nil)
	for _, uri := range f.ResourceSubscriptions {
		put(&s.uris, uri, struct{}{})
	}
	return s
}

func (s *subscription) wants(uri string) bool { _, ok := s.uris[uri]; return ok }

func (s *subscription) mark(changed listChange, uris ...string) {
	s.record(changed, uris...)
	s.wake()
}

// record adds changes to send, each once, so that a slow client does not use up memory.
func (s *subscription) record(changed listChange, uris ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.changed |= changed & s.lists
	for _, uri := range uris {
		if _, ok := s.pending[uri]; ok || s.pending == nil && slices.Contains(s.updated, uri) {
			continue
		}
		s.updated = append(s.updated, uri)
		switch n := len(s.updated); {
		case n > maxScanned:
			s.pending[uri] = struct{}{}
		case n == maxScanned:
			for _, uri := range s.updated {
				put(&s.pending, uri, struct{}{})
			}
		}
	}
}

// send sends the recorded changes. It records changes again that could not be sent.
func (s *subscription) send(ctx context.Context, req *Request) error {
	s.mu.Lock()
	changed, updated := s.changed, s.updated
	s.changed, s.updated, s.pending = 0, nil, nil
	s.mu.Unlock()
	for i, method := range listMethods {
		if changed&(1<<i) == 0 {
			continue
		}
		if err := req.Notify(ctx, method, s.listParams); err != nil {
			s.record(changed, updated...)
			return err
		}
		changed &^= 1 << i
	}
	for i, uri := range updated {
		member := append(make([]byte, 0, len(`"uri":"",`)+len(uri)), `"uri":`...)
		member = append(jsonscan.AppendQuote(member, uri), ',')
		if err := req.Notify(ctx, wire.NotificationResourcesUpdated, s.params(member)); err != nil {
			s.record(0, updated[i:]...)
			return err
		}
	}
	return nil
}

// params returns the members, each followed by a comma, and the subscription's id in `_meta`.
func (s *subscription) params(members []byte) json.RawMessage {
	const begin, end = `"_meta":{"` + wire.MetaSubscriptionID + `":`, `}}`
	b := make([]byte, 0, len("{")+len(members)+len(begin)+len(s.id)+len(end))
	b = append(append(b, '{'), members...)
	b = append(append(b, begin...), s.id...)
	return append(b, end...)
}

// listen serves subscriptions/listen. It returns a result only if the server ends the subscription.
func (s *Server) listen(ctx context.Context, req *Request) (Result, error) {
	if !s.tools.ever.Load() && !s.prompts.ever.Load() && !s.offersResources() && len(*s.topics.Load()) == 0 {
		return nil, methodNotFound(req.Method)
	}
	f, err := s.openFilter(ctx, req)
	if err != nil {
		return nil, err
	}
	return s.changes.open(ctx, req, newSubscription(req.ID, f), f, s.openTopics)
}

// A topicOpener opens the topics of a filter, and leaves in the filter only the members that must
// be acknowledged.
type topicOpener func(ctx context.Context, req *Request, sub *subscription, f *SubscriptionFilter,
	sender topicSender) (*topicSubscriptions, error)

// open opens a subscription and serves it, or leaves that to the caller of the handler.
func (b *subscriptions) open(
	ctx context.Context, req *Request, sub *subscription, f SubscriptionFilter, topics topicOpener,
) (Result, error) {
	if req.listen != nil && req.listen.detached {
		return b.listenDetached(ctx, req, sub, f, topics)
	}
	return b.listenPush(ctx, req, sub, f, topics)
}

// register adds a subscription, and only then acknowledges it, so that no later change is missed.
func (b *subscriptions) register(
	ctx context.Context, req *Request, sub *subscription, f SubscriptionFilter, topics topicOpener, sender topicSender,
) (err error) {
	if sub.topics, err = topics(ctx, req, sub, &f, sender); err != nil {
		return err
	}
	b.mu.Lock()
	put(&b.subs, sub, struct{}{})
	b.mu.Unlock()
	return sub.acknowledge(ctx, req, f)
}

// closeUnless is deferred around register. It closes a subscription that was not opened, also after
// a panic.
func (b *subscriptions) closeUnless(opened *bool, sub *subscription) {
	if !*opened {
		b.close(sub)
	}
}

func (b *subscriptions) close(sub *subscription) {
	b.mu.Lock()
	delete(b.subs, sub)
	b.mu.Unlock()
	sub.topics.close()
	if sub.end != nil {
		sub.end()
	}
}

func (s *subscription) acknowledge(ctx context.Context, req *Request, f SubscriptionFilter) error {
	agreed, err := jsonv2.Marshal(f, deterministic)
	if err != nil {
		return err
	}
	member := append(append([]byte(`"notifications":`), agreed...), ',')
	return req.Notify(ctx, wire.NotificationSubscriptionsAcknowledged, s.params(member))
}

// listenDetached registers a subscription that is notified on the goroutines of the changes.
func (b *subscriptions) listenDetached(
	ctx context.Context, req *Request, sub *subscription, f SubscriptionFilter, topics topicOpener,
) (Result, error) {
	opened := false
	defer b.closeUnless(&opened, sub) // when sending is unlocked, so that sub.end may wait for the sender
	var sending sync.Mutex            // keeps notifications in order, the acknowledgement first
	sub.wake = func() {
		sending.Lock()
		defer sending.Unlock()
		_ = sub.send(ctx, req) // the owner of a closed stream calls stop
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
	sender := topicSender{(*topicSubscriptions).sendInBackground, notify}
	if err := b.register(ctx, req, sub, f, topics, sender); err != nil {
		return nil, err
	}
	opened = true
	req.listen.stop = func() { b.close(sub) }
	return EmptyResult{}, nil
}

// Listen registers a subscriptions/listen request, which passes the server's middleware, and
// returns; see [driver.Listener]. The context must outlive the subscription.
func (s *Server) Listen(ctx context.Context, req *Request) (stop func(), err error) {
	return listenWith(ctx, s, req)
}

// listenWith opens a detached subscription with a handler of a subscriptions/listen request.
func listenWith(ctx context.Context, h Handler, req *Request) (stop func(), err error) {
	l := listenCall{detached: true}
	req.listen = &l
	if _, err := h.ServeMCP(ctx, req); err != nil {
		return nil, err
	}
	if l.stop == nil {
		return nil, Errorf(CodeInvalidRequest, "middleware has answered %s", req.Method)
	}
	return l.stop, nil
}

const (
	// maxSubscribedURIs limits the resources of a subscription, which are kept while it is open.
	maxSubscribedURIs = 1000
	// maxListen limits the params of a subscription, in bytes. They are kept while it is open, and
	// there may be thousands of subscriptions.
	maxListen = 320 << 10
	// maxMatching limits the time in which the URIs of a subscription are matched with templates:
	// the sum of their bytes, times the variables of each template that begins like the URI. It
	// takes about a tenth of a second.
	maxMatching = 1 << 20
)

// A SubscriptionFilter selects the changes of which a subscription is notified.
//
// Spec: basic/patterns/subscriptions (2026-07-28).
type SubscriptionFilter struct {
	ToolsListChanged      bool     `json:"toolsListChanged,omitzero"`
	PromptsListChanged    bool     `json:"promptsListChanged,omitzero"`
	ResourcesListChanged  bool     `json:"resourcesListChanged,omitzero"`
	ResourceSubscriptions []string `json:"resourceSubscriptions,omitempty"` // URIs
	// Topics are further members of the JSON object, defined by extensions: see [Server.AddTopic].
	Topics map[string]json.RawMessage `json:",embed"`
}

// filterMembers is a SubscriptionFilter without methods.
type filterMembers SubscriptionFilter

// MarshalJSON encodes the filter as an object that includes the members of Topics.
func (f SubscriptionFilter) MarshalJSON() ([]byte, error) {
	return jsonv2.Marshal(filterMembers(f), deterministic)
}

// UnmarshalJSON decodes a filter. Members that the core protocol does not define go to Topics.
func (f *SubscriptionFilter) UnmarshalJSON(data []byte) error {
	return jsonv2.Unmarshal(data, (*filterMembers)(f))
}

// coreFilter are the members of a filter that the core protocol defines.
var coreFilter = [...]string{"toolsListChanged", "promptsListChanged", "resourcesListChanged", "resourceSubscriptions"}

func isCoreFilter(member string) bool {
	return member == "_meta" || slices.Contains(coreFilter[:], member)
}

func (f SubscriptionFilter) lists() (c listChange) {
	for i, wanted := range [...]bool{listOfTools: f.ToolsListChanged, listOfPrompts: f.PromptsListChanged,
		listOfResources: f.ResourcesListChanged} {
		if wanted {
			c |= 1 << i
		}
	}
	return c
}

// openFilter returns the part of the requested filter that the server supports and acknowledges.
func (s *Server) openFilter(ctx context.Context, req *Request) (f SubscriptionFilter, err error) {
	if f, err = parseFilter(req); err != nil {
		return f, err
	}
	caps := s.capabilities()
	f.ToolsListChanged = f.ToolsListChanged && caps.Tools != nil && caps.Tools.ListChanged
	f.PromptsListChanged = f.PromptsListChanged && caps.Prompts != nil && caps.Prompts.ListChanged
	f.ResourcesListChanged = f.ResourcesListChanged && caps.Resources != nil && caps.Resources.ListChanged
	subscribes := caps.Resources != nil && caps.Resources.Subscribe
	work := maxMatching
	f.ResourceSubscriptions = slices.DeleteFunc(f.ResourceSubscriptions, func(uri string) bool {
		if len(uri) > maxURI || !subscribes {
			return true
		}
		return !req.env.Checked.Agreed(uri, func() bool {
			_, found := s.findResource(ctx, uri, &work)
			return found
		})
	})
	if work < 0 {
		return f, Errorf(CodeInvalidParams,
			"invalid params.notifications.resourceSubscriptions: too many long URIs: open several subscriptions")
	}
	return f, nil
}

// parseFilter returns the requested filter.
func parseFilter(req *Request) (f SubscriptionFilter, err error) {
	if req.Notify == nil {
		return f, Errorf(CodeInvalidRequest, "%s needs a stream for notifications", req.Method)
	}
	if len(req.Params) > maxListen {
		return f, Errorf(CodeInvalidParams, "params are %d bytes long, want at most %d", len(req.Params), maxListen)
	}
	raw, ok := jsonscan.GetNonNull(req.Params, "notifications")
	if !ok || jsonscan.Kind(raw) != '{' {
		return f, Errorf(CodeInvalidParams, "invalid params.notifications: must be an object")
	}
	if err := jsonv2.Unmarshal(raw, &f); err != nil || hasNull(raw) {
		return f, Errorf(CodeInvalidParams, "invalid params.notifications: "+
			"members must be booleans, and resourceSubscriptions an array of strings")
	}
	if len(f.ResourceSubscriptions) > maxSubscribedURIs {
		return f, Errorf(CodeInvalidParams,
			"invalid params.notifications.resourceSubscriptions: %d URIs, want at most %d",
			len(f.ResourceSubscriptions), maxSubscribedURIs)
	}
	return f, nil
}

// hasNull reports whether a member or a URI is null, which the decoder accepts, but not MCP.
func hasNull(filter json.RawMessage) bool {
	for _, member := range coreFilter {
		if value, _ := jsonscan.Get(filter, member); jsonscan.Kind(value) == 'n' {
			return true
		}
	}
	uris, _ := jsonscan.Get(filter, "resourceSubscriptions")
	for uri := range jsonscan.Elements(uris) {
		if jsonscan.Kind(uri) == 'n' {
			return true
		}
	}
	return false
}

// An EventKind is the kind of an [Event].
type EventKind uint8

// Kinds of events.
const (
	// EventListening: the server acknowledged the subscription. Event.Filter contains the changes
	// that it notifies of, which may be fewer than requested.
	EventListening EventKind = iota + 1
	// EventChangesMissed: changes may be missing, because the subscription was interrupted or the
	// loop was too slow. Fetch the relevant data again. Event.Filter contains the changes that the
	// server notifies of from now on. The event follows all queued events.
	EventChangesMissed
	EventToolsChanged     // the list of tools changed
	EventPromptsChanged   // the list of prompts changed
	EventResourcesChanged // the list of resources or of resource templates changed
	EventResourceUpdated  // the resource URI changed
	// EventTopic: a notification of an extension, Method with Params. The params come from the
	// server and are not validated.
	EventTopic
)

// String returns the name of the kind in lower case.
func (k EventKind) String() string {
	names := [...]string{"unknown", "listening", "resync",
		"tools changed", "prompts changed", "resources changed", "resource updated", "topic"}
	if int(k) >= len(names) {
		return names[0]
	}
	return names[k]
}

// An Event is a change at the server, or of the subscription itself.
type Event struct {
	Kind   EventKind
	URI    string              // of EventResourceUpdated
	Filter *SubscriptionFilter // of EventListening and EventChangesMissed; for EventTopic see [Broadcaster.Send]
	Method string              // of EventTopic
	Params json.RawMessage     // of EventTopic: a JSON object, `_meta` included
}
