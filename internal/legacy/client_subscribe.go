package legacy

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/internal/wire"
	"github.com/patchbay-mcp/patchbay/jsonrpc"
)

const (
	// maxUpdated limits the changed sub-resources that wait to be reported. Further changes are
	// reported as a change of the resource that is subscribed to.
	maxUpdated = 1000
	// maxAncestors limits how many path segments up the subscribed resource is searched.
	maxAncestors = 32
)

// listen serves subscriptions/listen from the notifications that the server pushes. It acknowledges
// that the server declared, and sends changes until ctx or the session ends, or notify fails. Spec:
// basic/patterns/subscriptions (2026-07-28)
func (c *Client) listen(ctx context.Context, params []byte, notify notifier) error {
	l, invalid := c.newListener(params)
	if invalid != nil {
		return invalid
	}
	if notify == nil {
		return invalidParams("%s: no function for notifications", wire.MethodSubscriptionsListen)
	}
	c.mu.Lock()
	c.listeners[l] = struct{}{} // before the acknowledgement, so that no change is missed
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		delete(c.listeners, l)
		c.mu.Unlock()
	}()
	asked := l.subscribedTo()
	c.addListeners(asked)
	defer c.removeListeners(asked)
	if err := c.subscribeAll(ctx, l, asked); err != nil {
		return err
	}
	if err := notify(ctx, wire.NotificationSubscriptionsAcknowledged, l.acknowledgement()); err != nil {
		return err
	}
	return c.sendChanges(ctx, l, notify)
}

func (c *Client) sendChanges(ctx context.Context, l *listener, notify notifier) error {
	for {
		select {
		case <-l.woken:
			if err := l.send(ctx, notify); err != nil {
				return err
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-c.ctx.Done():
			if err := l.send(ctx, notify); err != nil {
				return err
			}
			return ErrEnded
		}
	}
}

// newListener returns a listener for the part of the filter that the server supports.
func (c *Client) newListener(params []byte) (*listener, *jsonrpc.Error) {
	filter, _ := jsonscan.Get(params, "notifications")
	if jsonscan.Kind(filter) != '{' {
		return nil, invalidParams("params.notifications: want an object that names what to listen to")
	}
	if c.server.notifying() == (capabilitySet{}) {
		return nil, methodNotFound("this server sends no change notifications")
	}
	l := &listener{woken: make(chan struct{}, 1), uris: map[string]bool{},
		changed: map[string]bool{}, seen: map[string]bool{}}
	l.lists.tools = c.server.tools && wants(filter, "toolsListChanged")
	l.lists.prompts = c.server.prompts && wants(filter, "promptsListChanged")
	l.lists.resources = c.server.resources && wants(filter, "resourcesListChanged")
	uris, _ := jsonscan.Get(filter, "resourceSubscriptions")
	for raw := range jsonscan.Elements(uris) {
		uri, err := jsonscan.Unquote(raw)
		switch {
		case err != nil:
			return nil, invalidParams("params.notifications.resourceSubscriptions: want an array of strings")
		case len(uri) > maxSubscribedURI:
			return nil, invalidParams("params.notifications.resourceSubscriptions: want URIs of at most %d bytes",
				maxSubscribedURI)
		}
		if c.server.subscribe {
			l.uris[uri] = true
		}
	}
	if len(l.uris) > maxSubscribed {
		return nil, invalidParams("params.notifications.resourceSubscriptions: want at most %d URIs", maxSubscribed)
	}
	c.mu.Lock()
	c.listens++
	l.id = `"listen-` + strconv.Itoa(c.listens) + `"`
	c.mu.Unlock()
	return l, nil
}

// notifying returns the capabilities that concern notifications of changes.
func (o capabilitySet) notifying() capabilitySet {
	o.logging = false
	return o
}

func wants(filter []byte, member string) bool {
	value, _ := jsonscan.Get(filter, member)
	return jsonscan.Kind(value) == 't'
}

// A listener is an open subscription.
type listener struct {
	id    string        // of the subscription; JSON
	lists capabilitySet // whose changes are reported
	woken chan struct{} // holds a token when there are changes

	mu      sync.Mutex      // guards the fields below
	uris    map[string]bool // subscribed resources
	changed map[string]bool // changed lists, by notification
	updated []string        // changed resources, in order
	seen    map[string]bool // the same as a set
	missed  bool            // there may be more changes
}

func (l *listener) subscribedTo() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Collect(maps.Keys(l.uris))
}

// acknowledgement returns the params of the first notification.
func (l *listener) acknowledgement() json.RawMessage {
	params := filter(l.lists, l.subscribedTo())
	return l.params(append(params[1:len(params)-1], ','))
}

// params returns the params of a notification: the members, each followed by a comma, and the
// subscription's id.
func (l *listener) params(members []byte) json.RawMessage {
	dst := append([]byte{'{'}, members...)
	return append(append(append(dst, `"_meta":{"`+wire.MetaSubscriptionID+`":`...), l.id...), `}}`...)
}

func (l *listener) listChanged(method string) {
	if method == wire.NotificationToolsListChanged && !l.lists.tools ||
		method == wire.NotificationPromptsListChanged && !l.lists.prompts ||
		method == wire.NotificationResourcesListChanged && !l.lists.resources {
		return
	}
	l.mu.Lock()
	l.changed[method] = true
	l.mu.Unlock()
	l.wake()
}

// resourceUpdated records that a resource changed, if it or a resource above it is subscribed
// to. It records each resource once, so that repeated notifications use no memory. Spec: schema
// ResourceUpdatedNotification: it may be a sub-resource of the resource that was subscribed to.
func (l *listener) resourceUpdated(uri string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	above, ok := SubscribedAncestor(l.uris, uri)
	if !ok {
		return
	}
	if len(l.updated) >= maxUpdated {
		uri = above
	}
	if l.seen[uri] {
		return
	}
	l.seen[uri] = true
	l.updated = append(l.updated, uri)
	l.wake()
}

// SubscribedAncestor returns the URI of a subscription that covers a resource: its own or the
// nearest resource above it.
func SubscribedAncestor[V any](subscribed map[string]V, uri string) (string, bool) {
	if len(uri) > maxSubscribedURI || len(subscribed) == 0 {
		return "", false
	}
	if _, ok := subscribed[uri]; ok {
		return uri, true
	}
	for range maxAncestors {
		i := strings.LastIndexAny(uri, "/?#")
		if i < 0 {
			break
		}
		if _, ok := subscribed[uri[:i+1]]; ok {
			return uri[:i+1], true
		}
		uri = uri[:i]
		if _, ok := subscribed[uri]; ok {
			return uri, true
		}
	}
	return "", false
}

func (l *listener) wake() {
	select {
	case l.woken <- struct{}{}:
	default:
	}
}

// changeNotifications are the notifications of lists, in the order in which they are sent.
var changeNotifications = []string{
	wire.NotificationToolsListChanged, wire.NotificationPromptsListChanged, wire.NotificationResourcesListChanged,
}

// send sends the changes since the last time.
func (l *listener) send(ctx context.Context, notify notifier) error {
	l.mu.Lock()
	changed, updated, missed := l.changed, l.updated, l.missed
	l.changed, l.updated, l.seen, l.missed = map[string]bool{}, nil, map[string]bool{}, false
	l.mu.Unlock()
	if missed { // as for a new subscription
		if err := notify(ctx, wire.NotificationSubscriptionsAcknowledged, l.acknowledgement()); err != nil {
			return err
		}
	}
	for _, method := range changeNotifications {
		if changed[method] {
			if err := notify(ctx, method, l.params(nil)); err != nil {
				return err
			}
		}
	}
	for _, uri := range updated {
		member := append(jsonscan.AppendQuote([]byte(`"uri":`), uri), ',')
		if err := notify(ctx, wire.NotificationResourcesUpdated, l.params(member)); err != nil {
			return err
		}
	}
	return nil
}

// changesMissed marks all listeners: notifications of the server may be lost.
func (c *Client) changesMissed() {
	c.eachListener(func(l *listener) {
		l.mu.Lock()
		l.missed = true
		l.mu.Unlock()
		l.wake()
	})
}

func (c *Client) eachListener(f func(*listener)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for l := range c.listeners {
		f(l)
	}
}

const (
	// maxSubscribing limits the concurrent requests of a listener, to hide latency without
	// exceeding the limits of servers.
	maxSubscribing = 8
	// unsubscribeTimeout limits how long the client unsubscribes from the resources of a listener,
	// in the background.
	unsubscribeTimeout = 10 * time.Second
)

// A resourceSubscription is the session's subscription to a resource. Several listeners may share
// it.
type resourceSubscription struct {
	listeners int           // guarded by the client's mu
	turn      chan struct{} // a lock for the field below; holds a token while locked
	on        bool          // the server may know of the subscription
}

func (w *resourceSubscription) lock(ctx context.Context) error {
	select {
	case w.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (w *resourceSubscription) unlock() { <-w.turn }

// addListeners counts a further listener of each resource.
func (c *Client) addListeners(uris []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, uri := range uris {
		w := c.resources[uri]
		if w == nil {
			w = &resourceSubscription{turn: make(chan struct{}, 1)}
			c.resources[uri] = w
		}
		w.listeners++
	}
}

// removeListeners counts a listener less, and unsubscribes from the resources without a listener
// left.
func (c *Client) removeListeners(uris []string) {
	if len(uris) == 0 {
		return
	}
	c.start(func() {
		ctx, cancel := context.WithTimeout(c.ctx, unsubscribeTimeout)
		defer cancel()
		each(uris, func(_ int, uri string) { c.unsubscribe(ctx, uri) })
	})
}

// subscribeAll subscribes to the resources of a listener. Resources that the server refuses are not
// acknowledged. Spec: server/resources#subscriptions
func (c *Client) subscribeAll(ctx context.Context, l *listener, uris []string) error {
	failures := make([]error, len(uris))
	each(uris, func(i int, uri string) {
		response, err := c.subscribe(ctx, uri)
		switch {
		case err != nil:
			failures[i] = err
		case response != nil && response.Error != nil:
			c.log.DebugContext(ctx, "mcp: resource not subscribed to", "uri", uri, "error", response.Error)
			l.mu.Lock()
			delete(l.uris, uri)
			l.mu.Unlock()
		}
	})
	return cmp.Or(failures...)
}

// subscribe subscribes to the resource, unless the session already did. It returns the response,
// or nil.
func (c *Client) subscribe(ctx context.Context, uri string) (*jsonrpc.Message, error) {
	w := c.resource(uri)
	if err := w.lock(ctx); err != nil {
		return nil, err
	}
	defer w.unlock()
	if w.on {
		return nil, nil
	}
	response, err := c.request(ctx, wire.MethodResourcesSubscribe, uriParams(uri))
	w.on = err != nil || response.Error == nil // without a response, the server may be subscribed
	return response, err
}

// unsubscribe removes a listener from the resource. After the last listener, it unsubscribes from
// the resource.
func (c *Client) unsubscribe(ctx context.Context, uri string) {
	w := c.resource(uri)
	if w.lock(ctx) == nil {
		defer w.unlock()
		c.mu.Lock()
		last := w.listeners == 1
		c.mu.Unlock()
		if last && w.on {
			w.on = false
			_, _ = c.request(ctx, wire.MethodResourcesUnsubscribe, uriParams(uri)) // further updates are ignored
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if w.listeners--; w.listeners == 0 {
		delete(c.resources, uri)
	}
}

// resource returns the subscription to a resource with a listener.
func (c *Client) resource(uri string) *resourceSubscription {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.resources[uri]
}

func uriParams(uri string) json.RawMessage {
	return append(jsonscan.AppendQuote([]byte(`{"uri":`), uri), '}')
}

// each calls f for every URI, for up to maxSubscribing at once, and waits.
func each(uris []string, f func(i int, uri string)) {
	slots := make(chan struct{}, maxSubscribing)
	var wg sync.WaitGroup
	for i, uri := range uris {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			f(i, uri)
		})
	}
	wg.Wait()
}
