package legacy

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/internal/peer"
	"github.com/patchbay-mcp/patchbay/internal/wire"
	"github.com/patchbay-mcp/patchbay/jsonrpc"
)

// Limits of the resources that a session subscribes to. They are kept until it ends.
const (
	maxSubscribed = 1000
	// maxSubscribedURI limits a URI, in bytes. Web servers accept no longer URIs either.
	maxSubscribedURI = 8 << 10
	// maxSubscribedBytes limits all URIs of a session together.
	maxSubscribedBytes = 256 << 10
)

// subscriptionID is the id of the session's only subscription. No peer sees it.
var subscriptionID = jsonrpc.StringID("session")

// Attach sets the stream for messages that belong to no request: changes of lists and resources. It
// replaces the stream before; nil detaches it. Changes are written from the goroutine on which the
// core reports them, and only once the client sent notifications/initialized. Changes during the
// time without a stream are lost. The error says why no change will be sent; the stream stays
// attached.
func (s *Session) Attach(out Stream) error {
	s.mu.Lock()
	s.changes = out
	initialized := s.initialized
	s.mu.Unlock()
	if !initialized {
		return nil
	}
	return s.RefreshSubscription()
}

// RefreshSubscription opens or closes the subscription as the session needs it now, and logs its error.
func (s *Session) RefreshSubscription() error {
	s.subMu.Lock()
	defer s.subMu.Unlock()
	has, _ := s.awaitServer(&s.ctx)
	err := s.updateSubscription(has)
	if err != nil {
		s.cfg.logger().WarnContext(&s.ctx, "mcp: subscription not opened", "error", err)
	}
	return err
}

// updateSubscription opens the subscription that is needed now and only then closes the previous
// subscription, so that no change between the two is missed. It keeps an equal subscription, so
// that no change is sent twice, and keeps the previous subscription if it fails. The caller must
// hold s.subMu.
func (s *Session) updateSubscription(has capabilitySet) error {
	s.mu.Lock()
	wanted := s.changes != nil && s.initialized && s.ctx.Err() == nil
	s.mu.Unlock()
	var stop func()
	if wanted && (has.tools || has.prompts || has.resources || len(s.uris) > 0) {
		subscribe := &request{subscriptionID, wire.MethodSubscriptionsListen, filter(has, s.uris)}
		listen, invalid := s.modernRequest(subscribe, nil)
		if invalid != nil {
			return invalid
		}
		listen.Envelope.Checked = &s.checked
		if l := s.listening; l != nil && l.to == has && slices.Equal(l.uris, s.uris) {
			return nil
		}
		var err error
		if stop, err = s.cfg.Core.Listen(&s.ctx, listen, s.sendChange); err != nil {
			return err
		}
	}
	if s.listening != nil {
		s.listening.stop()
		s.listening = nil
	}
	if stop != nil {
		s.listening = &listening{stop, has, s.uris}
	}
	return nil
}

// filter returns the params of a subscription. Spec: basic/patterns/subscriptions (2026-07-28)
func filter(has capabilitySet, uris []string) []byte {
	b := []byte(`{"notifications":{`)
	for _, list := range []struct {
		wanted bool
		member string
	}{
		{has.tools, `"toolsListChanged":true,`},
		{has.prompts, `"promptsListChanged":true,`},
		{has.resources, `"resourcesListChanged":true,`},
	} {
		if list.wanted {
			b = append(b, list.member...)
		}
	}
	if len(uris) > 0 {
		b = append(b, `"resourceSubscriptions":[`...)
		for _, uri := range uris {
			b = append(jsonscan.AppendQuote(b, uri), ',')
		}
		b = closeWith(b, ']')
	}
	return append(closeWith(b, '}'), '}')
}

func (s *Session) sendChange(ctx context.Context, method string, params json.RawMessage) error {
	s.mu.Lock()
	out := s.changes
	s.mu.Unlock()
	m := s.cfg.projectChange(s.rev, method, params)
	if m == nil || out == nil {
		return nil
	}
	return out(ctx, m)
}

// ReportAll notifies the attached stream of a change of each list and resource that it is notified of, as
// after lost notifications.
func (s *Session) ReportAll() {
	s.subMu.Lock()
	defer s.subMu.Unlock()
	l := s.listening
	if l == nil {
		return
	}
	for i, has := range []bool{l.to.tools, l.to.prompts, l.to.resources} {
		if has {
			_ = s.sendChange(&s.ctx, changeNotifications[i], nil) // fails only if the stream ends
		}
	}
	for _, uri := range l.uris {
		_ = s.sendChange(&s.ctx, wire.NotificationResourcesUpdated, uriParams(uri))
	}
}

// maxCachedChange limits the params of a cached change, in bytes: it may stay cached indefinitely.
const maxCachedChange = 16 << 10

// A projectedChange is the last change that was sent to sessions of a revision. Most changes go
// to many sessions in sequence, which share the message.
type projectedChange struct {
	method    string
	params    json.RawMessage
	projected *jsonrpc.Message // nil if the revision defines no such notification
}

// projectChange returns a notification as projectNotification does, from the cache if it is the
// last change again. The caller must not change the message.
func (c *Config) projectChange(rev wire.Revision, method string, params json.RawMessage) *jsonrpc.Message {
	last := c.changes[rev].Load()
	if last != nil && last.method == method && bytes.Equal(last.params, params) {
		return last.projected
	}
	if len(params) > maxCachedChange {
		return projectNotification(rev, &jsonrpc.Message{Method: method, Params: params})
	}
	params = bytes.Clone(params) // they belong to the handler
	projected := projectNotification(rev, &jsonrpc.Message{Method: method, Params: params})
	c.changes[rev].Store(&projectedChange{method, params, projected})
	return projected
}

// subscribe adds a resource to the subscription. Spec: server/resources#subscriptions
func (s *Session) subscribe(ctx context.Context, params []byte) (json.RawMessage, *jsonrpc.Error) {
	return s.changeURIs(ctx, params, func(uri string) ([]string, *jsonrpc.Error) {
		switch {
		case slices.Contains(s.uris, uri):
			return s.uris, nil
		case len(uri) > maxSubscribedURI:
			return nil, invalidParams("params.uri: want at most %d bytes", maxSubscribedURI)
		case len(s.uris) == maxSubscribed, uriBytes(s.uris)+len(uri) > maxSubscribedBytes:
			return nil, errTooManySubscribed
		}
		return append(slices.Clip(s.uris), uri), nil
	})
}

var errTooManySubscribed = invalidRequest("too many resources are subscribed to")

func uriBytes(uris []string) (n int) {
	for _, uri := range uris {
		n += len(uri)
	}
	return n
}

// reserve calls [Config.Reserve] for the session.
func (s *Session) reserve(n int) bool {
	return n == 0 || s.cfg.Reserve == nil || s.cfg.Reserve(&s.ctx, n)
}

// unsubscribe removes a resource from the subscription. It is not an error if it is not there.
func (s *Session) unsubscribe(ctx context.Context, params []byte) (json.RawMessage, *jsonrpc.Error) {
	return s.changeURIs(ctx, params, func(uri string) ([]string, *jsonrpc.Error) {
		s.checked.Forget(uri)
		return slices.DeleteFunc(slices.Clone(s.uris), func(u string) bool { return u == uri }), nil
	})
}

// changeURIs replaces the resources of the subscription with the resources that changed returns,
// all or none.
func (s *Session) changeURIs(ctx context.Context, params []byte,
	changed func(uri string) ([]string, *jsonrpc.Error)) (json.RawMessage, *jsonrpc.Error) {
	has, err := s.awaitServer(ctx)
	if err != nil {
		return nil, errInternal
	}
	if !has.subscribe {
		return nil, methodNotFound("this server has no subscriptions to resources")
	}
	if jsonscan.Kind(params) != '{' {
		return nil, invalidParams("params: want an object")
	}
	raw, _ := jsonscan.Get(params, "uri")
	uri, err := jsonscan.Unquote(raw)
	if err != nil || uri == "" {
		return nil, invalidParams("params.uri: want a string")
	}
	s.subMu.Lock()
	defer s.subMu.Unlock()
	before := s.uris
	after, refusal := changed(uri)
	if refusal != nil {
		return nil, refusal
	}
	more := uriBytes(after) - uriBytes(before)
	switch {
	case len(after) == len(before):
		return emptyResult, nil
	case s.ctx.Err() != nil || more > 0 && !s.reserve(more):
		return nil, errTooManySubscribed // or the session ended, and no call releases them
	}
	s.uris = after
	if err := s.updateSubscription(has); err != nil {
		s.uris = before
		if more > 0 {
			s.reserve(-more)
		}
		s.checked.Forget(uri)
		failure := s.failure(ctx, "resource not subscribed to", err)
		return nil, projectError(s.rev, wire.MethodResourcesSubscribe, failure)
	}
	if more < 0 {
		s.reserve(more)
	}
	return emptyResult, nil
}

// Subscribe implements [Core.Listen] for a core that serves a subscription until its context ends.
// It calls serve on a goroutine that start starts. The first notification shows that the
// subscription is registered. If serve returns before it, the error is that of the response.
func Subscribe(ctx context.Context, notify Notify, start func(func()),
	serve func(context.Context, Notify) *jsonrpc.Message) (stop func(), err error) {
	serving, cancel := context.WithCancelCause(ctx)
	opened, ended := make(chan struct{}), make(chan *jsonrpc.Message, 1)
	open := sync.OnceFunc(func() { close(opened) })
	start(func() {
		ended <- serve(serving, func(ctx context.Context, method string, params json.RawMessage) error {
			open()
			return notify(ctx, method, params)
		})
	})
	stop = func() { cancel(peer.ErrClosed) }
	select {
	case <-opened:
		return stop, nil
	case response := <-ended:
		err = errors.New("the subscription ended before its acknowledgement")
		if response.Error != nil {
			err = response.Error
		}
	case <-ctx.Done():
	}
	stop()
	if ctx.Err() != nil {
		return stop, nil // the session ended, and no notification is sent
	}
	return nil, err
}
