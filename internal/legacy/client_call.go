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

// levelTimeout is how long a request waits for the server to change its log level.
const levelTimeout = 10 * time.Second

// A notifier receives a notification. It must not block.
type notifier = func(ctx context.Context, method string, params json.RawMessage) error

// RoundTrip sends a request in the modern form, with its envelope in the params, and returns a
// result in the modern form. Progress goes to notify, which may be nil, in order and before
// RoundTrip returns. A subscription lasts until ctx, notify or the session ends it, and then
// returns the corresponding error.
//
// The error is that of the connection, [ErrEnded], [ErrMalformed], or a [*jsonrpc.Error]: a remote
// error is the server's response, any other error says why no message was sent.
func (c *Client) RoundTrip(ctx context.Context, method string, params json.RawMessage,
	notify notifier) (json.RawMessage, error) {
	if !c.isOpen() {
		return nil, errNotOpen
	}
	switch method {
	case wire.MethodDiscover:
		return c.discovered, nil
	case wire.MethodSubscriptionsListen:
		return nil, c.listen(ctx, params, notify)
	}
	if refusal := c.checkMethod(method); refusal != nil {
		return nil, refusal
	}
	env, invalid := wire.Open(params)
	if invalid != nil {
		return nil, invalid
	}
	if err := c.awaitElicitations(ctx, method, env.Subject(params).InputResponses); err != nil {
		return nil, err
	}
	if env.LogLevel != "" {
		c.levels.add(env.LogLevel, 1)
		defer c.levels.add(env.LogLevel, -1)
		c.setLevel(ctx)
	}
	x, invalid := c.begin(ctx, env.ProgressToken, notify)
	if invalid != nil {
		return nil, invalid
	}
	defer c.finish(x)
	return c.call(ctx, method, params)
}

func (c *Client) call(ctx context.Context, method string, params json.RawMessage) (json.RawMessage, error) {
	sent := c.sessionParams(method, params)
	response, err := c.request(ctx, method, sent)
	switch {
	case err != nil:
		return nil, err
	case method == wire.MethodLoggingSetLevel:
		c.level.Store(nil) // an envelope's level is not set any more
	}
	if response.Error != nil {
		return c.modernError(method, params, response.Error)
	}
	result, hasTask, err := modernResult(c.rev, method, response.Result)
	if hasTask && isNewTask(method, sent, response.Result) {
		return modernTask(response.Result), nil
	}
	return result, err
}

func (c *Client) request(ctx context.Context, method string, params json.RawMessage) (*jsonrpc.Message, error) {
	return c.conn.RoundTrip(ctx, &jsonrpc.Message{Method: method, Params: params})
}

// sessionParams removes the negotiated members, and members that its revision lacks, from
// the params of a request. It returns nil if no member remains.
func (c *Client) sessionParams(method string, params []byte) json.RawMessage {
	dst := append(make([]byte, 0, len(params)), '{')
	d := jsonscan.Descend(params)
	d.Into('{')
	for key, ok := d.Key(); ok; key, ok = d.Key() {
		if string(key) == "_meta" {
			dst = appendSessionMeta(dst, &d)
			continue
		}
		value := d.Value()
		switch string(key) {
		case "inputResponses", "requestState":
			if mayAskInput(method) {
				continue
			}
		case "task":
			if method == wire.MethodToolsCall && !c.makesTasks() {
				continue
			}
		case "context":
			if method == wire.MethodCompletionComplete && !c.rev.Has(wire.CompletionContext) {
				continue
			}
		}
		dst = append(appendMember(dst, key, value), ',')
	}
	if dst = closeWith(dst, '}'); len(dst) == len("{}") {
		return nil
	}
	return dst
}

// appendSessionMeta appends the `_meta` that is next in d without the envelope, as a member
// followed by a comma. It returns dst unchanged if no member remains.
func appendSessionMeta(dst []byte, d *jsonscan.Descent) []byte {
	const name = `"_meta":{`
	before := len(dst)
	dst = append(dst, name...)
	d.Into('{') // known to be an object
	for key, ok := d.Key(); ok; key, ok = d.Key() {
		if value := d.Value(); !isOneOf(key, envelopeKeys) {
			dst = append(appendMember(dst, key, value), ',')
		}
	}
	if len(dst) == before+len(name) {
		return dst[:before]
	}
	return append(closeWith(dst, '}'), ',')
}

// setLevel sets the server's log level to the lowest of the requests in progress, of which at least
// one sets a level, if it differs from the last level sent. A failure is logged and not retried,
// since the request itself matters more. Spec: server/utilities/logging#setting-log-level
func (c *Client) setLevel(ctx context.Context) {
	if !c.server.logging || c.hasLevel(c.levels.lowest()) {
		return
	}
	select {
	case c.levelLock <- struct{}{}:
		defer func() { <-c.levelLock }()
	case <-ctx.Done():
		return
	}
	level := c.levels.lowest()
	if c.hasLevel(level) {
		return
	}
	waiting, stop := context.WithTimeout(ctx, levelTimeout)
	defer stop()
	params := append(jsonscan.AppendQuote([]byte(`{"level":`), level), '}')
	response, err := c.request(waiting, wire.MethodLoggingSetLevel, params)
	switch {
	case ctx.Err() != nil:
		return // the server may or may not have received it
	case err != nil:
		c.log.DebugContext(ctx, "mcp: log level not set", "level", level, "error", err)
	case response.Error != nil:
		c.log.DebugContext(ctx, "mcp: log level not set", "level", level, "error", response.Error)
	}
	c.level.Store(&level)
}

func (c *Client) hasLevel(level string) bool {
	last := c.level.Load()
	return last != nil && *last == level
}

// A clientProgress receives the progress of a request that waits for its response.
type clientProgress struct {
	token  string
	ctx    context.Context
	notify notifier

	mu   sync.Mutex // held while notify is called; guards the field below
	done bool
}

// begin registers a request under its progress token. It returns nil for a request without a token.
// Spec: basic/utilities/progress#progress-flow
func (c *Client) begin(ctx context.Context, token []byte, notify notifier) (*clientProgress, *jsonrpc.Error) {
	if token == nil || notify == nil {
		return nil, nil
	}
	x := &clientProgress{token: tokenKey(token), ctx: ctx, notify: notify}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.progressing[x.token] != nil {
		return nil, invalidParams("params._meta.progressToken: a request with this token is in progress")
	}
	c.progressing[x.token] = x
	return x, nil
}

// finish ends the progress of a request. After it returns, notify is not called.
func (c *Client) finish(x *clientProgress) {
	if x == nil {
		return
	}
	c.mu.Lock()
	delete(c.progressing, x.token)
	c.mu.Unlock()
	x.mu.Lock()
	defer x.mu.Unlock()
	x.done = true
}

// progress passes a progress notification to its request. Late notifications belong to no request.
func (c *Client) progress(m *jsonrpc.Message) {
	token, _ := jsonscan.Get(m.Params, "progressToken")
	c.mu.Lock()
	x := c.progressing[tokenKey(token)]
	c.mu.Unlock()
	if x == nil {
		c.log.Debug("mcp: progress with an unknown token")
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.done {
		return
	}
	if err := x.notify(x.ctx, m.Method, m.Params); err != nil {
		x.done = true // the caller wants no more
	}
}

// tokenKey returns a comparable form of a progress token: 1 and "1" differ, "a" and "\u0061" do
// not.
func tokenKey(token []byte) string {
	if jsonscan.Kind(token) == '"' {
		if s, err := jsonscan.Unquote(token); err == nil {
			return "s" + s
		}
	}
	return "n" + string(token)
}
