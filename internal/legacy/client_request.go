package legacy

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/internal/peer"
	"github.com/patchbay-mcp/patchbay/internal/wire"
	"github.com/patchbay-mcp/patchbay/jsonrpc"
)

// acceptRequest responds to a ping and starts to serve any other request. Spec:
// basic/utilities/ping#behavior-requirements
func (c *Client) acceptRequest(of context.Context, m *jsonrpc.Message) {
	if m.Method == wire.MethodPing {
		c.enqueueReply(&jsonrpc.Message{ID: m.ID, Result: emptyResult})
		return
	}
	size := int64(len(m.Params))
	if c.requestBytes.Add(size) > maxServerRequestBytes {
		c.requestBytes.Add(-size)
		c.enqueueReply(&jsonrpc.Message{ID: m.ID, Error: wire.Busy("too many requests in progress")})
		return
	}
	ctx := peer.WithArrival(c.ctx, peer.Arrival{Of: of, Number: c.requests.Add(1)})
	call, err := c.calls.Begin(ctx, m.ID)
	if err != nil {
		c.requestBytes.Add(-size)
		c.enqueueReply(&jsonrpc.Message{ID: m.ID, Error: err})
		return
	}
	begun := c.start(func() {
		defer c.requestBytes.Add(-size)
		if task := c.serveRequest(call, m); task != nil {
			c.runTask(task, m)
		}
	})
	if !begun {
		call.End()
		c.requestBytes.Add(-size)
	}
}

// serveRequest serves a request of the server and sends the response. The request counts against
// the limits until the response is sent, so that a server that does not read cannot exhaust memory.
// If the request became a task, serveRequest returns the task for runTask.
func (c *Client) serveRequest(call *peer.Call, m *jsonrpc.Message) *clientTask {
	defer call.End()
	result, task, err := c.respond(call.Context(), m)
	switch {
	case call.Over(): // it was cancelled
		if task != nil {
			c.tasks.drop(task)
		}
		return nil
	case !c.isOpen(): // no connection to send to
	case err != nil:
		c.send(&jsonrpc.Message{ID: m.ID, Error: err})
	default:
		c.send(&jsonrpc.Message{ID: m.ID, Result: result})
	}
	return task
}

// respond returns the result of a request, or the task that was created for it. A request that
// arrives before the session is open waits until it is, since the revision decides what is allowed.
func (c *Client) respond(ctx context.Context, m *jsonrpc.Message) (json.RawMessage, *clientTask, *jsonrpc.Error) {
	select {
	case <-c.opened:
	case <-ctx.Done():
		return nil, nil, errInternal
	}
	if isTaskMethod(m.Method) && c.supportsTasks("") {
		result, err := c.serveTask(ctx, m.Method, m.Params)
		return result, nil, err
	}
	if refusal := c.checkRequest(m.Method, m.Params); refusal != nil {
		return nil, nil, refusal
	}
	related := c.relatedTaskOf(m.Params)
	ctx = peer.WithTask(ctx, jsonscan.GetString(related, "taskId"))
	task, err := c.newTask(ctx, m)
	if err != nil {
		return nil, nil, err
	}
	var result json.RawMessage
	if task != nil {
		result = append(appendMember([]byte{'{'}, []byte("task"), c.tasks.describe(task)), '}')
	} else if result, err = c.inputResponse(ctx, m.Method, m.Params); err != nil {
		return nil, nil, err
	}
	return withRelatedTask(result, related), task, nil
}

// inputResponse calls [ClientConfig.Answer] and projects the answer.
func (c *Client) inputResponse(ctx context.Context, method string, params []byte) (json.RawMessage, *jsonrpc.Error) {
	answer, err := c.cfg.Answer(ctx, method, modernInputRequest(method, params))
	if err != nil {
		return nil, projectError(c.rev, method, err)
	}
	if jsonscan.Kind(answer) != '{' {
		c.log.ErrorContext(ctx, "mcp: the result for the server is not an object", "method", method)
		return nil, errInternal
	}
	return projectResponse(c.rev, method, answer)
}

// checkRequest returns an error for a request that the client does not support. Spec:
// basic/lifecycle#operation; client/elicitation#error-handling (2025-11-25)
func (c *Client) checkRequest(method string, params []byte) *jsonrpc.Error {
	capability := ""
	switch method {
	case wire.MethodRootsList:
		capability = "roots"
	case wire.MethodSamplingCreateMessage:
		capability = "sampling"
	case wire.MethodElicitationCreate:
		capability = "elicitation"
	}
	_, known := c.rev.Method(method)
	switch {
	case capability == "" || !known:
		return methodNotFound("method not found")
	case !hasCapability(c.declared, capability) || c.cfg.Answer == nil:
		return methodNotFound("this client did not declare the capability " + capability)
	case params != nil && jsonscan.Kind(params) != '{', params == nil && capability != "roots":
		return invalidParams("params: want an object")
	case capability == "elicitation":
		return c.checkElicitation(params)
	case capability == "sampling":
		return c.checkSamplingTools(params)
	}
	return nil
}

func (c *Client) checkElicitation(params []byte) *jsonrpc.Error {
	declared, _ := jsonscan.Get(c.declared, "elicitation")
	mode, has := jsonscan.Get(params, "mode")
	switch {
	case (!has || jsonscan.IsString(mode, "form")) && asksForm(declared):
		return nil
	case jsonscan.IsString(mode, "url") && c.rev.Has(wire.ElicitationURL) && hasCapability(declared, "url"):
		return nil
	}
	return invalidParams("params.mode: this client did not declare this mode of elicitation")
}

func (c *Client) checkSamplingTools(params []byte) *jsonrpc.Error {
	if hasCapability(c.declared, "sampling", "tools") {
		return nil
	}
	for _, member := range []string{"tools", "toolChoice"} {
		if value, ok := jsonscan.Get(params, member); ok && jsonscan.Kind(value) != 'n' {
			return invalidParams("params.%s: this client did not declare the capability sampling.tools", member)
		}
	}
	return nil
}

// modernInputRequest turns the params of a session's request into the params of an input request.
// It adds the elicitation mode if it is missing. Spec: basic/patterns/mrtr#inputrequest
// (2026-07-28)
func modernInputRequest(method string, params []byte) json.RawMessage {
	if params == nil {
		return nil
	}
	dst := append(make([]byte, 0, len(params)+len(`"mode":"form",`)), '{')
	if _, has := jsonscan.Get(params, "mode"); !has && method == wire.MethodElicitationCreate {
		dst = append(dst, `"mode":"form",`...)
	}
	for key, value := range jsonscan.Members(params) {
		switch string(key) {
		case "task":
			continue
		case "_meta":
			if value = inputRequestMeta(value); value == nil {
				continue
			}
		}
		dst = append(appendMember(dst, key, value), ',')
	}
	return closeWith(dst, '}')
}

// inputRequestMeta returns a `_meta` without the members that belong to a message, or nil if
// no member remains.
func inputRequestMeta(meta []byte) []byte {
	dst := appendOthers([]byte{'{'}, meta, wire.MetaProgressToken, wire.MetaRelatedTask)
	if len(dst) == len("{") {
		return nil
	}
	return closeWith(dst, '}')
}

// responseProjections are the projections of the client's results, by method.
var responseProjections = perRevision[map[string]*projection]{make: func(rev wire.Revision) map[string]*projection {
	answers := map[string]*projection{}
	for method, fields := range map[string][]field{
		wire.MethodElicitationCreate: nil,
		wire.MethodRootsList:         {{key: "roots", shape: &shape{fields: []field{dataMeta}}}},
		wire.MethodSamplingCreateMessage: {{key: "content", shape: &shape{
			fields: append([]field{dataMeta, annotations}, toolOutput...),
		}}},
	} {
		answers[method] = project(rev, &shape{fields: append(fields[:len(fields):len(fields)], resultFields...)})
	}
	return answers
}}

// projectResponse turns the response to an input request into a result for a server of rev. Spec:
// schema ClientResult
func projectResponse(rev wire.Revision, method string, answer json.RawMessage) (json.RawMessage, *jsonrpc.Error) {
	if method == wire.MethodSamplingCreateMessage {
		var err *jsonrpc.Error
		if answer, err = projectSamplingResult(rev, answer); err != nil {
			return nil, err
		}
	}
	return responseProjections.get(rev)[method].apply(answer), nil
}

// projectSamplingResult projects a sampling result onto rev, which may allow only a single content
// block. Spec: schema CreateMessageResult
func projectSamplingResult(rev wire.Revision, answer []byte) (json.RawMessage, *jsonrpc.Error) {
	content, _ := jsonscan.Get(answer, "content")
	for block := range objects(content) {
		typ, _ := jsonscan.Get(block, "type")
		switch {
		case jsonscan.IsString(typ, "audio") && !rev.Has(wire.AudioContent):
			return nil, errNotExpressible("audio")
		case jsonscan.IsString(typ, "tool_use") && !rev.Has(wire.SamplingTools):
			return nil, errNotExpressible("a use of tools")
		}
	}
	if rev.Has(wire.SamplingContentArrays) || jsonscan.Kind(content) != '[' {
		return answer, nil
	}
	single, err := singleBlock(content)
	if err != nil {
		return nil, err
	}
	return appendMessage(make([]byte, 0, len(answer)), answer, single), nil
}

// singleBlock returns a single content block for several, if they are all text.
func singleBlock(content []byte) ([]byte, *jsonrpc.Error) {
	var blocks [][]byte
	var all []byte
	for block := range objects(content) {
		blocks = append(blocks, block)
		all = append(all, jsonscan.GetString(block, "text")...)
	}
	if len(blocks) == 1 {
		return blocks[0], nil
	}
	for _, block := range blocks {
		if typ, _ := jsonscan.Get(block, "type"); !jsonscan.IsString(typ, "text") {
			return nil, errNotExpressible("several blocks of content")
		}
	}
	return append(jsonscan.AppendQuote([]byte(`{"type":"text","text":`), string(all)), '}'), nil
}

// errNotExpressible returns the error for a result that the server's revision cannot express.
func errNotExpressible(what string) *jsonrpc.Error {
	return &jsonrpc.Error{Code: wire.CodeInternalError,
		Message: "the session's protocol revision has no form for a result with " + what}
}

// Receive handles a message of the server that no request awaits: a request, a notification, or a
// batch of them. It does not block, and retains the message. A nil message means that notifications
// may be lost: subscriptions are acknowledged again. It may be called before [Client.Open];
// after the session ended, it is without effect.
func (c *Client) Receive(m *jsonrpc.Message) {
	var none context.Context
	c.ReceiveOn(none, m)
}

// ReceiveOn is Receive for a message on the stream of a request with the context of; nil for
// none. [ClientConfig.Answer] and Notify find it with [peer.ArrivalFrom].
func (c *Client) ReceiveOn(of context.Context, m *jsonrpc.Message) {
	switch {
	case c.ctx.Err() != nil:
		return
	case m == nil:
		c.changesMissed()
		return
	}
	switch m.Kind() {
	case jsonrpc.Request:
		c.acceptRequest(of, m)
	case jsonrpc.Notification:
		c.acceptNotification(of, m)
	case jsonrpc.Batch:
		c.acceptBatch(of, m.Batch)
	case jsonrpc.Response:
		c.log.Debug("mcp: response to an unknown request", "id", m.ID)
	default:
		c.replyToMalformed(m)
	}
}

// acceptBatch accepts each message of a batch. The responses are sent individually. Spec:
// basic#batching (2025-03-26)
func (c *Client) acceptBatch(of context.Context, batch []*jsonrpc.Message) {
	if !c.Revision().Has(wire.Batches) {
		c.log.Warn("mcp: batch dropped: the protocol revision has no batches", "messages", len(batch))
		return
	}
	for _, m := range batch {
		c.ReceiveOn(of, m)
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

func (c *Client) acceptNotification(of context.Context, m *jsonrpc.Message) {
	if jsonscan.Kind(m.Params) != '{' {
		m = &jsonrpc.Message{Method: m.Method, Params: emptyResult}
	}
	switch m.Method {
	case wire.NotificationCancelled:
		if id, reason, ok := peer.ParseCancelled(m.Params); ok {
			c.calls.Cancel(id, c.cancelled(reason))
		}
	case wire.NotificationProgress:
		c.progress(m)
	case wire.NotificationToolsListChanged, wire.NotificationPromptsListChanged, wire.NotificationResourcesListChanged:
		c.eachListener(func(l *listener) { l.listChanged(m.Method) })
	case wire.NotificationResourcesUpdated:
		uri := jsonscan.GetString(m.Params, "uri")
		c.eachListener(func(l *listener) { l.resourceUpdated(uri) })
	case wire.NotificationElicitationComplete:
		c.elicitationCompleted(jsonscan.GetString(m.Params, "elicitationId"))
		fallthrough
	default:
		if c.cfg.Notify != nil {
			c.cfg.Notify(peer.WithArrival(c.ctx, peer.Arrival{Of: of}), m.Method, m.Params)
		}
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
