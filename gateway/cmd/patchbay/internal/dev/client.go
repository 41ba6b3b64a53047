package dev

import (
	"fmt"
	"slices"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/internal/wire"
	"github.com/patchbay-mcp/patchbay/jsonrpc"
)

// fromClient forwards a message of the client.
func (p *proxy) fromClient(m *jsonrpc.Message) {
	switch m.Kind() {
	case jsonrpc.Request:
		p.logf("→ %s", summary(m))
		p.note(m)
		p.route(m)
	case jsonrpc.Response:
		id, ok := p.asked[m.ID]
		if !ok || p.state != ready {
			return // the request was one of an earlier process
		}
		delete(p.asked, m.ID)
		answer := *m
		answer.ID = id
		p.server.put(&answer)
	case jsonrpc.Notification:
		p.logf("→ %s", summary(m))
		switch m.Method {
		case wire.NotificationInitialized:
			p.initialized = m
		case wire.NotificationCancelled:
			p.cancel(m)
		}
		p.route(m)
	}
}

// cancel forgets a request that the client has cancelled.
func (p *proxy) cancel(m *jsonrpc.Message) {
	raw, _ := jsonscan.Get(m.Params, "requestId")
	isCancelled := func(id jsonrpc.ID) bool { return id.String() == string(raw) }
	p.held = slices.DeleteFunc(p.held, func(h *jsonrpc.Message) bool { return !h.ID.IsZero() && isCancelled(h.ID) })
	for id := range p.began {
		if isCancelled(id) {
			delete(p.began, id)
		}
	}
}

// note keeps what a new process has to be told.
func (p *proxy) note(m *jsonrpc.Message) {
	sameURI := func(other *jsonrpc.Message) bool {
		return member(other.Params, "uri") == member(m.Params, "uri")
	}
	switch m.Method {
	case wire.MethodInitialize:
		p.initialize, p.initialized, p.level, p.resources = m, nil, nil, nil
	case wire.MethodLoggingSetLevel:
		p.level = m
	case wire.MethodResourcesSubscribe:
		if !slices.ContainsFunc(p.resources, sameURI) && len(p.resources) < maxNoted {
			p.resources = append(p.resources, m)
		}
	case wire.MethodResourcesUnsubscribe:
		p.resources = slices.DeleteFunc(p.resources, sameURI)
	}
}

// route forwards a message, keeps it until the server is ready, or refuses it.
func (p *proxy) route(m *jsonrpc.Message) {
	isRequest := m.Kind() == jsonrpc.Request
	switch {
	case p.state == ready:
		p.forward(m)
	case p.state == stopped && isRequest && !isRepeated(m.Method):
		p.refuse(m.ID, "the server does not run: "+p.why)
	case p.state == stopped && !isRequest:
	case len(p.held) >= maxHeld:
		if isRequest {
			p.refuse(m.ID, fmt.Sprintf("more than %d messages wait for the server to start", maxHeld))
		}
	default:
		p.held = append(p.held, m)
		if p.state == crashed && isRequest {
			p.start(summary(m))
		}
	}
}

// forward sends a message to the server.
func (p *proxy) forward(m *jsonrpc.Message) {
	if m.Kind() == jsonrpc.Request {
		p.began[m.ID] = &pending{request: m, since: time.Now()}
	}
	p.server.put(m)
}

// lists are the capabilities with lists, and the notifications of their changes.
var lists = []struct{ capability, flag, notification string }{
	{"tools", "toolsListChanged", wire.NotificationToolsListChanged},
	{"prompts", "promptsListChanged", wire.NotificationPromptsListChanged},
	{"resources", "resourcesListChanged", wire.NotificationResourcesListChanged},
}

// withListChanged returns the result of initialize or server/discover in which every list may
// change: with a new process it may.
func (p *proxy) withListChanged(result []byte) []byte {
	capabilities, _ := jsonscan.Get(result, "capabilities")
	if jsonscan.Kind(capabilities) != '{' {
		return result
	}
	for _, l := range lists {
		if value, ok := jsonscan.Get(capabilities, l.capability); ok && jsonscan.Kind(value) == '{' {
			value = jsonscan.WithMember(value, "listChanged", []byte("true"))
			capabilities = jsonscan.WithMember(capabilities, l.capability, value)
		}
	}
	p.declared = capabilities
	return jsonscan.WithMember(result, "capabilities", capabilities)
}

// compare logs capabilities that the client does not know: it was told those of the first process.
func (p *proxy) compare(result []byte) {
	capabilities, _ := jsonscan.Get(result, "capabilities")
	for key := range jsonscan.Members(capabilities) {
		if _, known := jsonscan.Get(p.declared, string(key)); !known {
			p.logf("the server now declares %s: connect the client again to use it", key)
		}
	}
}

// announce sends the notifications by which the client learns that everything may have changed.
// again are the requests that were repeated, some of which are subscriptions.
func (p *proxy) announce(again []*pending) {
	if p.initialized != nil {
		for _, l := range lists {
			if _, ok := jsonscan.Get(p.declared, l.capability); ok {
				p.client.put(jsonrpc.NewNotification(l.notification, nil))
			}
		}
		for _, r := range p.resources {
			uri, _ := jsonscan.Get(r.Params, "uri")
			params := fmt.Appendf(nil, `{"uri":%s}`, uri)
			p.client.put(jsonrpc.NewNotification(wire.NotificationResourcesUpdated, params))
		}
	}
	for _, b := range again {
		if b.request.Method == wire.MethodSubscriptionsListen {
			p.announceTo(b.request)
		}
	}
}

// announceTo sends the notifications of one subscription. Spec: subscriptions/listen (2026-07-28).
func (p *proxy) announceTo(listen *jsonrpc.Message) {
	filter, _ := jsonscan.Get(listen.Params, "notifications")
	meta := fmt.Sprintf(`"_meta":{%q:%s}`, wire.MetaSubscriptionID, listen.ID)
	for _, l := range lists {
		if flag, _ := jsonscan.Get(filter, l.flag); jsonscan.Kind(flag) == 't' {
			p.client.put(jsonrpc.NewNotification(l.notification, []byte("{"+meta+"}")))
		}
	}
	uris, _ := jsonscan.Get(filter, "resourceSubscriptions")
	for uri := range jsonscan.Elements(uris) {
		p.client.put(jsonrpc.NewNotification(wire.NotificationResourcesUpdated,
			fmt.Appendf(nil, `{%s,"uri":%s}`, meta, uri)))
	}
}

// summary returns a request or notification for the log.
func summary(m *jsonrpc.Message) string {
	text := m.Method
	for _, key := range []string{"name", "uri"} {
		if value := member(m.Params, key); value != "" {
			return text + " " + value
		}
	}
	return text
}

func (p *proxy) logResponse(b *pending, m *jsonrpc.Message) {
	took := time.Since(b.since).Round(100 * time.Microsecond)
	failed, _ := jsonscan.Get(m.Result, "isError")
	switch {
	case m.Error != nil:
		p.logf("← %s error %d: %s (%v)", summary(b.request), m.Error.Code, m.Error.Message, took)
	case jsonscan.Kind(failed) == 't':
		p.logf("← %s failed (%v)", summary(b.request), took)
	default:
		p.logf("← %s %d bytes (%v)", summary(b.request), len(m.Result), took)
	}
}

// member returns a member of an object if it is a string, else "".
func member(object []byte, key string) string {
	raw, _ := jsonscan.Get(object, key)
	text, _ := jsonscan.Unquote(raw)
	return text
}
