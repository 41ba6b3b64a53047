package mcptest

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/patchbay-mcp/patchbay/jsonrpc"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcp/driver"
)

// receive handles a message of the server. It is called on goroutines of the conn, which cannot end
// the test.
func (c *Client) receive(m *jsonrpc.Message) {
	if m.Kind() == jsonrpc.Batch {
		for _, one := range m.Batch {
			c.receive(one)
		}
		return
	}
	c.record("server", m)
	switch m.Kind() {
	case jsonrpc.Response:
		c.complete(m)
	case jsonrpc.Request:
		c.validate(m, "")
		c.answer(m)
	case jsonrpc.Notification:
		c.validate(m, "")
		c.note(m)
	default:
		c.fault("invalid message from the server: %s", jsonrpc.Append(nil, m))
	}
}

// fault fails the test without ending it.
func (c *Client) fault(format string, args ...any) {
	c.t.Errorf("%s: %s", c, fmt.Sprintf(format, args...))
}

func (c *Client) validate(m *jsonrpc.Message, method string) {
	if c.schema == nil {
		return
	}
	if c.Modern() {
		if m = c.Options.Extension.core(m); m == nil {
			return
		}
	}
	if err := c.schema.Validate(m, method); err != nil {
		c.fault("%v", err)
	}
}

// core returns the part of a message that the core protocol's schema covers, or nil.
func (e *Extension) core(m *jsonrpc.Message) *jsonrpc.Message {
	if _, own := e.Topics[m.Method]; own {
		return nil
	}
	var result struct{ ResultType string }
	decoded := m.Result != nil && json.Unmarshal(m.Result, &result) == nil
	if decoded && slices.Contains(e.ResultTypes, result.ResultType) {
		return nil
	}
	if m.Method != acknowledged || len(e.Topics) == 0 {
		return m
	}
	var params map[string]json.RawMessage
	var f filter
	if json.Unmarshal(m.Params, &params) != nil || json.Unmarshal(params["notifications"], &f) != nil {
		return m
	}
	for _, member := range e.Topics {
		delete(f, member)
	}
	params["notifications"] = encode(f)
	return &jsonrpc.Message{Method: m.Method, Params: encode(params)}
}

// complete passes a response to its request.
func (c *Client) complete(m *jsonrpc.Message) {
	c.mu.Lock()
	p := c.pending[m.ID]
	delete(c.pending, m.ID)
	delete(c.subscriptions, m.ID)
	c.mu.Unlock()
	if p == nil {
		c.fault("a response to no request: %s", jsonrpc.Append(nil, m))
		return
	}
	c.validate(m, p.Method)
	p.response = m
	close(p.done)
}

// lost ends the wait for a response that cannot arrive any more: of a request, or of all for the
// zero id.
func (c *Client) lost(id jsonrpc.ID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for pending, p := range c.pending {
		if id.IsZero() || pending == id {
			delete(c.pending, pending)
			delete(c.subscriptions, pending)
			close(p.done)
		}
	}
}

// note records a notification.
func (c *Client) note(m *jsonrpc.Message) {
	c.mu.Lock()
	err := c.checkSubscription(m)
	c.notifications = append(c.notifications, m)
	close(c.arrived)
	c.arrived = make(chan struct{})
	c.mu.Unlock()
	if err != nil {
		c.fault("%v: %s", err, jsonrpc.Append(nil, m))
	}
}

// consent is the default of Options.Answer.
func consent(method string, params json.RawMessage) (any, error) {
	type object = map[string]any
	switch method {
	case "elicitation/create":
		var asked struct{ Mode string }
		if err := json.Unmarshal(params, &asked); err != nil {
			return nil, err
		}
		if asked.Mode == "url" {
			return object{"action": "accept"}, nil
		}
		return object{"action": "accept", "content": object{}}, nil
	case "sampling/createMessage":
		return object{"role": "assistant", "model": "test", "content": object{"type": "text", "text": "sampled"}}, nil
	case "roots/list":
		return object{"roots": []any{object{"uri": "file:///work", "name": "work"}}}, nil
	}
	return nil, fmt.Errorf("no answer to %s", method)
}

// answer responds to a request of the server. Only the session era defines them. Spec: basic
// (2026-07-28), Requests.
func (c *Client) answer(m *jsonrpc.Message) {
	if c.Modern() {
		c.fault("a server sends no requests: %s", jsonrpc.Append(nil, m))
		return
	}
	response := &jsonrpc.Message{ID: m.ID, Result: json.RawMessage("{}")}
	if m.Method != "ping" {
		if result, err := c.Options.Answer(m.Method, m.Params); err != nil {
			response = &jsonrpc.Message{ID: m.ID, Error: refusal(err)}
		} else {
			response.Result = encode(result)
		}
	}
	c.record("client", response)
	if err := c.conn.send(c.ctx, response); err != nil && c.ctx.Err() == nil {
		c.fault("answer to %s: %v", m.Method, err)
	}
}

// refusal returns an error of Options.Answer as a protocol error.
func refusal(err error) *jsonrpc.Error {
	if e, ok := errors.AsType[*jsonrpc.Error](err); ok {
		return e
	}
	return &jsonrpc.Error{Code: mcp.CodeInternalError, Message: err.Error()}
}

// nextRound returns the params of the retried request for a result that asks for input. It returns
// nil if the result does not, or an error if the client refuses. Spec: basic/patterns/mrtr
// (2026-07-28), Client Requirements.
func (c *Client) nextRound(params map[string]any, result json.RawMessage) (map[string]any, *jsonrpc.Error) {
	c.t.Helper()
	var asks struct {
		ResultType    string `json:"resultType"`
		InputRequests map[string]struct {
			Method string          `json:"method"`
			Params json.RawMessage `json:"params"`
		} `json:"inputRequests"`
		RequestState *string `json:"requestState"`
	}
	if err := json.Unmarshal(result, &asks); err != nil {
		c.t.Fatalf("%s: %v: %s", c, err, result)
	}
	if asks.ResultType != driver.ResultInputRequired {
		return nil, nil
	}
	again := map[string]any{}
	maps.Copy(again, params)
	if asks.RequestState != nil {
		again["requestState"] = *asks.RequestState
	}
	responses := map[string]any{}
	for _, key := range slices.Sorted(maps.Keys(asks.InputRequests)) {
		request := asks.InputRequests[key]
		answer, err := c.Options.Answer(request.Method, request.Params)
		if err != nil {
			return nil, refusal(err)
		}
		responses[key] = answer
	}
	if len(responses) > 0 {
		again["inputResponses"] = responses
	}
	return again, nil
}

// Notifications returns the notifications that arrived, of the given methods or of all.
func (c *Client) Notifications(methods ...string) []*jsonrpc.Message {
	c.mu.Lock()
	defer c.mu.Unlock()
	var found []*jsonrpc.Message
	for _, n := range c.notifications {
		if len(methods) == 0 || slices.Contains(methods, n.Method) {
			found = append(found, n)
		}
	}
	return found
}

// Await waits until n notifications of a method arrived since the client was connected, and
// returns them.
func (c *Client) Await(n int, method string) []*jsonrpc.Message {
	c.t.Helper()
	timer := time.NewTimer(c.Options.Timeout)
	defer timer.Stop()
	for {
		c.mu.Lock()
		arrived := c.arrived
		c.mu.Unlock()
		got := c.Notifications(method)
		if len(got) >= n {
			return got
		}
		select {
		case <-arrived:
		case <-timer.C:
			c.t.Fatalf("%s: %d of %d %s within %v", c, len(got), n, method, c.Options.Timeout)
		}
	}
}
