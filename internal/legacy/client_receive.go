package legacy

import (
	"context"
	"errors"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/internal/peer"
	"github.com/patchbay-mcp/patchbay/internal/wire"
	"github.com/patchbay-mcp/patchbay/jsonrpc"
)

// Receive handles a message of the server that no request awaits: a request, a notification, or a
// batch of them. It does not block, and retains the message. A nil message means that notifications
// may have been lost: subscriptions are acknowledged again. It may be called before [Client.Open];
// after the session has ended, it does nothing.
func (c *Client) Receive(m *jsonrpc.Message) {
	switch {
	case c.ctx.Err() != nil:
		return
	case m == nil:
		c.changesMissed()
		return
	}
	switch m.Kind() {
	case jsonrpc.Request:
		c.acceptRequest(m)
	case jsonrpc.Notification:
		c.acceptNotification(m)
	case jsonrpc.Batch:
		c.acceptBatch(m.Batch)
	case jsonrpc.Response:
		c.log.Debug("mcp: response to an unknown request", "id", m.ID)
	default:
		c.replyToMalformed(m)
	}
}

// acceptBatch accepts each message of a batch. The responses are sent one by one.
//
// Spec: basic#batching (2025-03-26)
func (c *Client) acceptBatch(batch []*jsonrpc.Message) {
	if !c.Revision().Has(wire.Batches) {
		c.log.Warn("mcp: batch dropped: the protocol revision has no batches", "messages", len(batch))
		return
	}
	for _, m := range batch {
		c.Receive(m)
	}
}

// replyToMalformed responds to a message that could not be decoded, if it was a request.
func (c *Client) replyToMalformed(m *jsonrpc.Message) {
	if m.Refused == nil {
		return
	}
	c.log.Debug("mcp: malformed message of the server", "error", m.Refused)
	if response := m.Refused.Response(); response != nil && !response.ID.IsZero() {
		c.enqueueReply(response)
	}
}

func (c *Client) acceptNotification(m *jsonrpc.Message) {
	if jsonscan.Kind(m.Params) != '{' {
		m = jsonrpc.NewNotification(m.Method, emptyResult)
	}
	switch m.Method {
	case wire.NotificationCancelled:
		if id, reason, ok := peer.ParseCancelled(m.Params); ok {
			c.calls.Cancel(id, c.cancelled(reason))
		}
	case wire.NotificationProgress:
		c.progress(m)
	case wire.NotificationToolsListChanged, wire.NotificationPromptsListChanged, wire.NotificationResourcesListChanged:
		c.listChanged(m.Method)
	case wire.NotificationResourcesUpdated:
		c.resourceUpdated(text(m.Params, "uri"))
	case wire.NotificationElicitationComplete:
		c.elicitationCompleted(text(m.Params, "elicitationId"))
		c.notify(m)
	default:
		c.notify(m)
	}
}

func (c *Client) notify(m *jsonrpc.Message) {
	if c.cfg.Notify != nil {
		c.cfg.Notify(c.ctx, m.Method, m.Params)
	}
}

func (c *Client) cancelled(reason string) error {
	if c.cfg.Cancelled == nil {
		return errors.New("cancelled by the server: " + reason)
	}
	return c.cfg.Cancelled(reason)
}

// enqueueReply queues a reply, or drops it if the queue is full because the server does not read.
func (c *Client) enqueueReply(reply *jsonrpc.Message) {
	select {
	case c.replies <- reply:
	default:
		c.droppedReplies.Add(1)
	}
}

// sendReplies sends queued replies until the session ends.
func (c *Client) sendReplies() {
	for {
		select {
		case m := <-c.replies:
			c.send(m)
		case <-c.ctx.Done():
			return
		}
		if n := c.droppedReplies.Swap(0); n > 0 {
			c.log.Warn("mcp: replies dropped: the server does not read them", "replies", n)
		}
	}
}

func (c *Client) send(m *jsonrpc.Message) {
	c.mu.Lock()
	conn := c.conn // Open may still be running
	c.mu.Unlock()
	ctx, cancel := context.WithTimeout(c.ctx, sendTimeout)
	defer cancel()
	if err := conn.Send(ctx, m); err != nil && c.ctx.Err() == nil {
		c.log.Debug("mcp: reply to the server not delivered", "id", m.ID, "error", err)
	}
}
