package legacy

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/internal/wire"
	"github.com/patchbay-mcp/patchbay/jsonrpc"
)

// Bounds of the resources that one session subscribes to: they are kept as long as it lives.
const (
	maxSubscribed = 1000
	// maxSubscribedURI bounds one URI, in bytes. Web servers take no longer ones either.
	maxSubscribedURI = 8 << 10
	// maxSubscribedBytes bounds all URIs together.
	maxSubscribedBytes = 256 << 10
)

// subscriptionID is the id of the session's one subscription. It is never seen outside.
var subscriptionID = jsonrpc.StringID("session")

// Attach returns the session a place for messages that belong to no request: changed lists and resources. It takes the
// place of the one before; nil is none. Changes come on whichever goroutine the core tells them from, and only once the
// client has said that it is initialized. Without a place the session listens to no changes, and they are not told later.
func (s *Session) Attach(out Stream) {
	s.mu.Lock()
	s.changes = out
	initialized := s.initialized
	s.mu.Unlock()
	if initialized {
		s.refreshSubscription()
	}
}

// resume makes the subscription fit what is wanted of it now: none if the session has ended.
func (s *Session) refreshSubscription() {
	s.subMu.Lock()
	defer s.subMu.Unlock()
	has, _ := s.awaitServer(s.ctx)
	if err := s.updateSubscription(has); err != nil {
		s.cfg.logger().WarnContext(s.ctx, "mcp: changes cannot be listened to", "error", err)
	}
}

// relisten opens a subscription to what is wanted now and only then ends the one before: a change between the two must not
// be missed. One to the same stays, so that no change is told twice. If it fails, the one before stays. The caller holds
// s.changing.
func (s *Session) updateSubscription(has capabilitySet) error {
	s.mu.Lock()
	wanted := s.changes != nil && s.initialized && s.ctx.Err() == nil
	s.mu.Unlock()
	var stop func()
	if wanted && (has.tools || has.prompts || has.resources || len(s.uris) > 0) {
		params, invalid := s.modernParams(filter(has, s.uris), nil)
		if invalid != nil {
			return invalid
		}
		if s.stopListening != nil && s.listened == has && slices.Equal(s.listenedURIs, s.uris) {
			return nil
		}
		var err error
		if stop, err = s.cfg.Core.Listen(s.ctx, jsonrpc.NewRequest(subscriptionID, wire.MethodSubscriptionsListen, params), s.sendChange); err != nil {
			return err
		}
	}
	if s.stopListening != nil {
		s.stopListening()
	}
	s.stopListening, s.listened, s.listenedURIs = stop, has, s.uris
	return nil
}

// filter returns the params of a subscription.
//
// Spec: basic/patterns/subscriptions (2026-07-28)
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

// push tells of a change.
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

// maxCachedChange bounds the params of a change that is remembered, in bytes: there is no telling how long.
const maxCachedChange = 16 << 10

// A projectedChange is the last change that sessions of one revision were told of. Most changes are told to many of them,
// one after the other, and all get the same message.
type projectedChange struct {
	method    string
	params    json.RawMessage
	projected *jsonrpc.Message // nil if the revision has no such notification
}

// projectChange is projectNotification, once for a change that is told to many. The message that it gives is not to be
// changed.
func (c *Config) projectChange(rev wire.Revision, method string, params json.RawMessage) *jsonrpc.Message {
	last := c.changes[rev].Load()
	if last != nil && last.method == method && bytes.Equal(last.params, params) {
		return last.projected
	}
	if len(params) > maxCachedChange {
		return projectNotification(rev, jsonrpc.NewNotification(method, params))
	}
	params = bytes.Clone(params) // they are the handler's
	projected := projectNotification(rev, jsonrpc.NewNotification(method, params))
	c.changes[rev].Store(&projectedChange{method, params, projected})
	return projected
}

// subscribe adds a resource to the subscription.
//
// Spec: server/resources#subscriptions
func (s *Session) subscribe(ctx context.Context, params []byte) (json.RawMessage, *jsonrpc.Error) {
	return s.changeURIs(ctx, params, func(uri string) ([]string, *jsonrpc.Error) {
		bytes := len(uri)
		for _, u := range s.uris {
			bytes += len(u)
		}
		switch {
		case slices.Contains(s.uris, uri):
			return s.uris, nil
		case len(uri) > maxSubscribedURI:
			return nil, invalidParams("params.uri: at most %d bytes are taken", maxSubscribedURI)
		case len(s.uris) == maxSubscribed, bytes > maxSubscribedBytes:
			return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidRequest, Message: "too many resources are subscribed to"}
		}
		return append(slices.Clip(s.uris), uri), nil
	})
}

// unsubscribe takes a resource out of the subscription. One that is not in it is no mistake.
func (s *Session) unsubscribe(ctx context.Context, params []byte) (json.RawMessage, *jsonrpc.Error) {
	return s.changeURIs(ctx, params, func(uri string) ([]string, *jsonrpc.Error) {
		return slices.DeleteFunc(slices.Clone(s.uris), func(u string) bool { return u == uri }), nil
	})
}

// changeURIs replaces the resources of the subscription by what changed makes of them, all or nothing.
func (s *Session) changeURIs(ctx context.Context, params []byte, changed func(uri string) ([]string, *jsonrpc.Error)) (json.RawMessage, *jsonrpc.Error) {
	has, err := s.awaitServer(ctx)
	if err != nil {
		return nil, errInternal
	}
	if !has.subscribe {
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound, Message: "this server has no subscriptions to resources"}
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
	if len(after) == len(before) {
		return emptyResult, nil
	}
	s.uris = after
	if err := s.updateSubscription(has); err != nil {
		s.uris = before
		return nil, projectError(s.rev, wire.MethodResourcesSubscribe, s.failure(ctx, "resource not subscribed to", err))
	}
	return emptyResult, nil
}
