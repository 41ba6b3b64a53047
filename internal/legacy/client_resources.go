package legacy

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/internal/wire"
	"github.com/patchbay-mcp/patchbay/jsonrpc"
)

const (
	// maxSubscribing limits the concurrent requests of one listener, to hide latency without
	// exceeding the limits of servers.
	maxSubscribing = 8
	// unsubscribeTimeout limits how long the client unsubscribes from the resources of a listener,
	// in the background.
	unsubscribeTimeout = 10 * time.Second
)

// A resourceSubscription is the session's subscription to one resource. Several listeners may share
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

// addListeners counts one more listener of each resource.
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

// removeListeners counts one listener less, and unsubscribes from the resources that have none
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

// subscribeAll subscribes to the resources of a listener. Those that the server refuses are not
// acknowledged.
//
// Spec: server/resources#subscriptions
func (c *Client) subscribeAll(ctx context.Context, l *listener, uris []string) error {
	failures := make([]error, len(uris))
	each(uris, func(i int, uri string) {
		response, err := c.subscribe(ctx, uri)
		switch {
		case err != nil:
			failures[i] = err
		case response != nil && response.Error != nil:
			c.log.DebugContext(ctx, "mcp: resource not subscribed to", "uri", uri, "error", response.Error)
			l.forget(uri)
		}
	})
	for _, err := range failures {
		if err != nil {
			return err
		}
	}
	return nil
}

// subscribe subscribes to the resource, unless the session already has. It returns the response,
// nil for none.
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
	w.on = err != nil || response.Error == nil // without a response, it may have been received
	return response, err
}

// unsubscribe removes a listener from the resource. After the last one, it unsubscribes from the
// resource.
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

// resource returns the subscription to a resource that has a listener.
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
