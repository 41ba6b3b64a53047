package dev

import (
	"maps"
	"slices"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/internal/wire"
	"github.com/patchbay-mcp/patchbay/jsonrpc"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// start starts the server, after it has ended the process that runs. reason is shown.
func (p *proxy) start(reason string) {
	if p.isStarting {
		p.again = reason
		return
	}
	if p.generation > 0 {
		p.logf("restart: %s", reason)
	}
	p.generation++
	p.isStarting, p.answered, p.state = true, false, starting
	old := p.conn
	p.conn = nil
	if p.server != nil {
		close(p.server.messages)
		p.server = nil
	}
	p.cancelAsked()
	p.failBegan("the server was restarted; the request may have run")
	generation := p.generation
	p.work.Go(func() {
		if old != nil {
			_ = old.Close() // whatever it says, the next one starts
		}
		conn, err := p.opts.Start()
		if !p.send(event{generation: generation, isStart: true, conn: conn, err: err}) && conn != nil {
			_ = conn.Close()
		}
	})
}

// started notes that a process has started, or why not.
func (p *proxy) started(conn mcp.Conn, err error) {
	p.isStarting, p.conn = false, conn
	if p.again != "" {
		reason := p.again
		p.again = ""
		p.start(reason)
		return
	}
	if err != nil {
		p.stop(stopped, err)
		return
	}
	p.server = p.newQueue(conn)
	p.goRead(conn, p.generation)
	if p.initialized == nil {
		p.ready()
		return
	}
	p.replay(p.initialize)
}

// replay repeats a request of the client to a new process.
func (p *proxy) replay(m *jsonrpc.Message) {
	id := p.newID()
	p.replays[id] = m.Method
	p.server.put(jsonrpc.NewRequest(id, m.Method, m.Params))
}

// ready forwards what has waited for the process.
func (p *proxy) ready() {
	p.state = ready
	again := slices.SortedFunc(maps.Values(p.began), func(a, b *pending) int { return a.since.Compare(b.since) })
	for _, b := range again {
		p.server.put(b.request)
	}
	held := p.held
	p.held = nil
	for _, m := range held {
		p.forward(m)
	}
	if p.generation > 1 {
		p.announce(again)
	}
}

// exited notes that the process has ended by itself.
func (p *proxy) exited(err error) {
	next := stopped
	if p.answered {
		next = crashed
	}
	p.stop(next, err)
}

// stop fails the requests that the server had.
func (p *proxy) stop(next state, err error) {
	p.state, p.why = next, err.Error()
	clear(p.replays)
	wait := "waiting for a change"
	if next == crashed {
		wait = "it starts again with the next request, or with a change"
	}
	p.logf("server stopped: %s; %s", p.why, wait)
	p.cancelAsked()
	p.failBegan("the server has stopped: " + p.why)
	if next == crashed {
		return
	}
	held := p.held
	p.held = nil
	for _, m := range held {
		p.route(m)
	}
}

// failBegan answers the requests of the client that the server had, except those that are repeated
// to the next process.
func (p *proxy) failBegan(why string) {
	for id, b := range p.began {
		if !isRepeated(b.request.Method) {
			p.refuse(id, why)
			delete(p.began, id)
		}
	}
}

// isRepeated reports whether a request that a process has not answered is sent to the next one: the
// first ones of a client, and open subscriptions.
func isRepeated(method string) bool {
	return slices.Contains([]string{wire.MethodInitialize, wire.MethodDiscover, wire.MethodSubscriptionsListen}, method)
}

func (p *proxy) refuse(id jsonrpc.ID, why string) {
	p.logf("← refused: %s", why)
	p.client.put(jsonrpc.NewErrorResponse(id, &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: why}))
}

// cancelAsked cancels the requests of the server that the client has not answered.
func (p *proxy) cancelAsked() {
	for id := range p.asked {
		params := append([]byte(`{"reason":"the server was restarted","requestId":`), id.String()...)
		p.client.put(jsonrpc.NewNotification(wire.NotificationCancelled, append(params, '}')))
	}
	clear(p.asked)
}

// fromServer forwards a message of the server.
func (p *proxy) fromServer(m *jsonrpc.Message) {
	p.answered = true
	switch m.Kind() {
	case jsonrpc.Request:
		p.logf("← %s", summary(m))
		forwarded := *m
		forwarded.ID = p.newID()
		p.asked[forwarded.ID] = m.ID
		p.client.put(&forwarded)
	case jsonrpc.Notification:
		p.notified(m)
	case jsonrpc.Response:
		if method, ok := p.replays[m.ID]; ok {
			delete(p.replays, m.ID)
			p.replayed(method, m)
			return
		}
		b := p.began[m.ID]
		if b == nil {
			if m.ID.IsZero() {
				p.client.put(m)
			}
			return // of a request that was cancelled
		}
		delete(p.began, m.ID)
		p.logResponse(b, m)
		if slices.Contains([]string{wire.MethodInitialize, wire.MethodDiscover}, b.request.Method) && m.Error == nil {
			m.Result = p.withListChanged(m.Result)
		}
		p.client.put(m)
	}
}

// notified forwards a notification of the server.
func (p *proxy) notified(m *jsonrpc.Message) {
	switch m.Method {
	case wire.NotificationCancelled:
		raw, _ := jsonscan.Get(m.Params, "requestId")
		for id, own := range p.asked {
			if own.String() == string(raw) {
				delete(p.asked, id)
				forwarded := *m
				forwarded.Params = jsonscan.WithMember(m.Params, "requestId", []byte(id.String()))
				p.client.put(&forwarded)
				return
			}
		}
		return
	case wire.NotificationSubscriptionsAcknowledged:
		if p.isRepeatedAcknowledgment(m) {
			return
		}
	}
	p.logf("← %s", summary(m))
	p.client.put(m)
}

// isRepeatedAcknowledgment reports whether the client has the acknowledgment of the subscription from
// an earlier process.
func (p *proxy) isRepeatedAcknowledgment(m *jsonrpc.Message) bool {
	meta, _ := jsonscan.Get(m.Params, "_meta")
	raw, _ := jsonscan.Get(meta, wire.MetaSubscriptionID)
	for id, b := range p.began {
		if id.String() == string(raw) {
			was := b.acknowledged
			b.acknowledged = true
			return was
		}
	}
	return false
}

// replayed handles the response to a repeated request.
func (p *proxy) replayed(method string, m *jsonrpc.Message) {
	switch {
	case m.Error != nil:
		p.logf("← %s failed after the restart: %s", method, m.Error.Message)
	case method == wire.MethodInitialize:
		p.compare(m.Result)
		p.server.put(p.initialized)
		if p.level != nil {
			p.replay(p.level)
		}
		for _, r := range p.resources {
			p.replay(r)
		}
	}
	if method == wire.MethodInitialize {
		p.ready()
	}
}
