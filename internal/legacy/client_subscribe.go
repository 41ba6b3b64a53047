package legacy

import (
	"context"
	"encoding/json"
	"strconv"
	"strings"
	"sync"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/internal/wire"
	"github.com/patchbay-mcp/patchbay/jsonrpc"
)

const (
	// maxUpdated is the number of resources below those subscribed to whose changes wait to be told. Of more, only the
	// resource above is told.
	maxUpdated = 1000
	// maxAncestors bounds how far up the resource is looked for that a changed one is below.
	maxAncestors = 32
)

// listen serves subscriptions/listen out of what the server pushes: it acknowledges what the server declared, and tells of
// changes until ctx or the session ends or notify fails.
//
// Spec: basic/patterns/subscriptions (2026-07-28)
func (c *Client) listen(ctx context.Context, params []byte, notify notifier) error {
	l, invalid := c.newListener(params)
	if invalid != nil {
		return invalid
	}
	if notify == nil {
		return invalidParams("%s needs someone to tell", wire.MethodSubscriptionsListen)
	}
	c.mu.Lock()
	c.listeners[l] = struct{}{} // before the acknowledgement: a change right after it must not be missed
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

// tell tells of changes until something ends it.
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

// newListener reads what is wanted, and leaves what the server can tell.
func (c *Client) newListener(params []byte) (*listener, *jsonrpc.Error) {
	filter, _ := jsonscan.Get(params, "notifications")
	if jsonscan.Kind(filter) != '{' {
		return nil, invalidParams("params.notifications: want an object that names what to listen to")
	}
	if c.server.notifying() == (capabilitySet{}) {
		return nil, methodNotFound("this server tells of no changes")
	}
	l := &listener{woken: make(chan struct{}, 1), uris: map[string]bool{}, changed: map[string]bool{}, seen: map[string]bool{}}
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
			return nil, invalidParams("params.notifications.resourceSubscriptions: at most %d bytes are taken of a URI", maxSubscribedURI)
		}
		if c.server.subscribe {
			l.uris[uri] = true
		}
	}
	if len(l.uris) > maxSubscribed {
		return nil, invalidParams("params.notifications.resourceSubscriptions: at most %d URIs are taken", maxSubscribed)
	}
	c.mu.Lock()
	c.listens++
	l.id = `"listen-` + strconv.Itoa(c.listens) + `"`
	c.mu.Unlock()
	return l, nil
}

// tells returns the capabilitySet that are changes to be told.
func (o capabilitySet) notifying() capabilitySet {
	o.logging = false
	return o
}

func wants(filter []byte, member string) bool {
	value, _ := jsonscan.Get(filter, member)
	return jsonscan.Kind(value) == 't'
}

// A listener is one open subscription.
type listener struct {
	id    string        // of the subscription, as JSON
	lists capabilitySet // whose changes are wanted
	woken chan struct{} // holds a token when there is something to tell

	mu      sync.Mutex      // guards the fields below
	uris    map[string]bool // that are subscribed to
	changed map[string]bool // lists that have changed, by notification
	updated []string        // resources that have, in the order that they did
	seen    map[string]bool // the same, each once
	missed  bool            // it is not known what else has changed
}

func (l *listener) subscribedTo() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	uris := make([]string, 0, len(l.uris))
	for uri := range l.uris {
		uris = append(uris, uri)
	}
	return uris
}

// forget takes a resource out that the server does not let subscribe to.
func (l *listener) forget(uri string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.uris, uri)
}

// acknowledgement returns the params of the first notification.
func (l *listener) acknowledgement() json.RawMessage {
	params := filter(l.lists, l.subscribedTo())
	return l.params(append(params[1:len(params)-1], ','))
}

// params returns the params of a notification: further members, each with a comma behind, and the subscription's id.
func (l *listener) params(members []byte) json.RawMessage {
	dst := append([]byte{'{'}, members...)
	return append(append(append(dst, `"_meta":{"`+wire.MetaSubscriptionID+`":`...), l.id...), `}}`...)
}

// listChanged notes that a list has changed.
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

// resourceUpdated notes that a resource has changed, if it is subscribed to or below one that is. What is noted already is not noted
// again, so a server that tells much fills no memory.
//
// Spec: schema ResourceUpdatedNotification: it may be a sub-resource of the one that was subscribed to.
func (l *listener) resourceUpdated(uri string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	above, ok := l.subscribedAncestor(uri)
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

// above returns the resource that is subscribed to: the one of that URI, or the nearest that it is below. The caller holds
// l.mu.
func (l *listener) subscribedAncestor(uri string) (string, bool) {
	if len(uri) > maxSubscribedURI || len(l.uris) == 0 {
		return "", false
	}
	if l.uris[uri] {
		return uri, true
	}
	for range maxAncestors {
		i := strings.LastIndexAny(uri, "/?#")
		if i < 0 {
			break
		}
		if l.uris[uri[:i+1]] {
			return uri[:i+1], true
		}
		if uri = uri[:i]; l.uris[uri] {
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

// changeNotifications are told in this order.
var changeNotifications = []string{
	wire.NotificationToolsListChanged, wire.NotificationPromptsListChanged, wire.NotificationResourcesListChanged,
}

// send tells what has changed since the last time.
func (l *listener) send(ctx context.Context, notify notifier) error {
	l.mu.Lock()
	changed, updated := l.changed, l.updated
	l.changed, l.updated, l.seen = map[string]bool{}, nil, map[string]bool{}
	missed := l.missed
	l.missed = false
	l.mu.Unlock()
	if missed { // as if the subscription had begun anew
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

// missed says that the server may have told of changes that did not arrive.
func (c *Client) changesMissed() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for l := range c.listeners {
		l.mu.Lock()
		l.missed = true
		l.mu.Unlock()
		l.wake()
	}
}

func (c *Client) listChanged(method string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for l := range c.listeners {
		l.listChanged(method)
	}
}

func (c *Client) resourceUpdated(uri string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for l := range c.listeners {
		l.resourceUpdated(uri)
	}
}
