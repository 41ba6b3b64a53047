package legacy

import (
	"context"
	"encoding/json"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/internal/wire"
	"github.com/patchbay-mcp/patchbay/jsonrpc"
)

// A server of 2025-11-25 may refuse a request until the user completed some URL elicitations,
// and notify the client when that is done. In the modern era, this is a result that asks for input.
// The input response only says that the user agreed, so the retried request first waits for the
// notification.

const (
	// maxElicitations limits the elicitations that a request may require. A user sees each of
	// them.
	maxElicitations = 16
	// maxTracked limits the elicitations whose completion is awaited.
	maxTracked = 256
	// maxElicitationID limits the id of an elicitation, in bytes.
	maxElicitationID = 256
	// elicitationTimeout is how long a retried request waits for the completion of its
	// elicitations, which servers need not announce. After it, the request is sent, and the user
	// may be asked again.
	elicitationTimeout = 30 * time.Second
)

// elicitationsRequired returns the input_required result for the data of an error, or nil if there
// is none. The keys of its input requests are the ids of the elicitations. Spec:
// client/elicitation#url-elicitation-required-error (2025-11-25); basic/patterns/mrtr (2026-07-28)
func (c *Client) elicitationsRequired(method string, data []byte) json.RawMessage {
	m, _ := wire.Latest().Method(method)
	if !m.MayAskInput || !c.rev.HasCode(wire.CodeURLElicitationRequired) ||
		!hasCapability(c.declared, "elicitation", "url") {
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

// elicitationIDOf returns the id of a valid URL elicitation, or "".
func elicitationIDOf(params []byte) string {
	if jsonscan.Kind(params) != '{' || jsonscan.GetString(params, "mode") != "url" ||
		jsonscan.GetString(params, "url") == "" || jsonscan.GetString(params, "message") == "" {
		return ""
	}
	id := jsonscan.GetString(params, "elicitationId")
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

// elicitationCompleted ends the wait for an elicitation, if an elicitation with the id is in
// progress. Spec: client/elicitation#completion-notifications-for-url-mode-elicitation (2025-11-25)
func (c *Client) elicitationCompleted(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if done := c.elicitations[id]; done != nil {
		close(done)
		delete(c.elicitations, id)
	}
}

// awaitElicitations waits for the completion of the elicitations to which a request carries input
// responses, within elicitationTimeout. It returns context.Cause(ctx), or an error if the user did
// not agree to an elicitation.
func (c *Client) awaitElicitations(ctx context.Context, method string, answers []byte) error {
	m, _ := wire.Latest().Method(method)
	if !m.MayAskInput {
		return nil
	}
	var waiting []chan struct{}
	for id, answer := range jsonscan.Members(answers) {
		if action, _ := jsonscan.Get(answer, "action"); !jsonscan.IsString(action, "accept") {
			return &jsonrpc.Error{Code: wire.CodeURLElicitationRequired,
				Message: "the request requires an elicitation that the user did not accept"}
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
	timer := time.NewTimer(elicitationTimeout)
	defer timer.Stop()
	for _, done := range waiting {
		select {
		case <-done:
		case <-timer.C:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-c.ctx.Done():
			return ErrEnded
		}
	}
	return nil
}
