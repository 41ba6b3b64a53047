package legacy

import (
	"context"
	"encoding/json"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/internal/wire"
	"github.com/patchbay-mcp/patchbay/jsonrpc"
)

// A server of the last revision with sessions may errorResponse a request until the user has visited some pages, and say with a
// notification that this has been done. In the modern era the same is a result that asks for input. The answer to it only
// says that the user agreed to go there, so the request that brings it waits for the notification.

const (
	// maxElicitations is the number of pages that one request may need. Each is put to a person.
	maxElicitations = 16
	// maxTracked is the number of visits whose end is waited for.
	maxTracked = 256
	// maxElicitationID bounds what names a visit, in bytes.
	maxElicitationID = 256
	// elicitationTimeout is how long the end of the visits is waited for: servers need not tell it. Then the request is sent,
	// and the user may be asked again.
	elicitationTimeout = 30 * time.Second
)

// visitsRequired returns the result that asks for what an error's data demands, or nil if this cannot be asked. The keys of
// its input requests are the ids of the visits.
//
// Spec: client/elicitation#url-elicitation-required-error (2025-11-25); basic/patterns/mrtr (2026-07-28)
func (c *Client) elicitationsRequired(method string, data []byte) json.RawMessage {
	m, _ := wire.Latest().Method(method)
	if !m.MayAskInput || !c.rev.HasCode(wire.CodeURLElicitationRequired) || !hasCapability(c.declared, "elicitation", "url") {
		return nil
	}
	elicitations, _ := jsonscan.Get(data, "elicitations")
	var ids []string
	seen := map[string]bool{}
	dst := []byte(`{"resultType":"input_required","inputRequests":{`)
	for params := range jsonscan.Elements(elicitations) {
		id := elicitationIDOf(params)
		if id == "" || seen[id] || len(ids) == maxElicitations {
			return nil
		}
		seen[id] = true
		ids = append(ids, id)
		dst = append(jsonscan.AppendQuote(dst, id), `:{"method":"`+wire.MethodElicitationCreate+`","params":`...)
		dst = append(append(dst, modernInputRequest(wire.MethodElicitationCreate, params)...), `},`...)
	}
	if ids == nil {
		return nil
	}
	c.trackElicitations(ids)
	return append(closeWith(dst, '}'), '}')
}

// elicitationIDOf returns the id of an elicitation that is a visit, or "".
func elicitationIDOf(params []byte) string {
	if jsonscan.Kind(params) != '{' || text(params, "mode") != "url" || text(params, "url") == "" || text(params, "message") == "" {
		return ""
	}
	id := text(params, "elicitationId")
	if len(id) > maxElicitationID {
		return ""
	}
	return id
}

func (c *Client) trackElicitations(ids []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, id := range ids {
		if c.elicitations[id] != nil {
			continue
		}
		for old, done := range c.elicitations {
			if len(c.elicitations) < maxTracked {
				break
			}
			close(done)
			delete(c.elicitations, old)
		}
		c.elicitations[id] = make(chan struct{})
	}
}

// visited takes note of the end of a visit. One that nobody knows of is none.
//
// Spec: client/elicitation#completion-notifications-for-url-mode-elicitation (2025-11-25)
func (c *Client) elicitationCompleted(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if done := c.elicitations[id]; done != nil {
		close(done)
		delete(c.elicitations, id)
	}
}

// awaitVisits waits, within limits, for the end of the visits that a request brings the user's answer to. Its error is
// context.Cause(ctx), or says that the user does not go there.
func (c *Client) awaitElicitations(ctx context.Context, method string, answers []byte) error {
	m, _ := wire.Latest().Method(method)
	if !m.MayAskInput {
		return nil
	}
	var waiting []chan struct{}
	for id, answer := range jsonscan.Members(answers) {
		if action, _ := jsonscan.Get(answer, "action"); !isString(action, "accept") {
			return &jsonrpc.Error{Code: wire.CodeURLElicitationRequired, Message: "the request needs a visit to a page, to which the user did not agree"}
		}
		c.mu.Lock()
		if done := c.elicitations[string(id)]; done != nil {
			waiting = append(waiting, done)
		}
		c.mu.Unlock()
	}
	if waiting == nil {
		return nil
	}
	patience := time.NewTimer(elicitationTimeout)
	defer patience.Stop()
	for _, done := range waiting {
		select {
		case <-done:
		case <-patience.C:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-c.ctx.Done():
			return ErrEnded
		}
	}
	return nil
}
