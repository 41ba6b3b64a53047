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

// levelTimeout is how long a server may take to change its log level. It does not hold up the request for longer.
const levelTimeout = 10 * time.Second

// A notifier takes a notification. It does not block.
type notifier = func(ctx context.Context, method string, params json.RawMessage) error

// RoundTrip sends a request in the modern form, with its envelope in the params, and gives a result in the modern form.
// Progress goes to notify, which may be nil and must not block, in order and before RoundTrip returns. A subscription lasts
// until ctx, notify or the session ends it, and then gives the error that says which.
//
// The error is that of the link, a [*jsonrpc.Error] that is remote if it is the server's answer and otherwise says why
// nothing was sent, [ErrEnded], or is [ErrMalformed].
func (c *Client) RoundTrip(ctx context.Context, method string, params json.RawMessage, notify notifier) (json.RawMessage, error) {
	return c.RoundTripOpened(ctx, method, params, nil, notify)
}

// RoundTripOpened is RoundTrip for params whose envelope has been opened; nil if it has not.
func (c *Client) RoundTripOpened(ctx context.Context, method string, params json.RawMessage, env *wire.Envelope, notify notifier) (json.RawMessage, error) {
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
	if env == nil {
		opened, invalid := wire.Open(params)
		if invalid != nil {
			return nil, invalid
		}
		env = &opened
	}
	if err := c.awaitElicitations(ctx, method, env.Subject(params).InputResponses); err != nil {
		return nil, err
	}
	c.setLevel(ctx, env.LogLevel)
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
		c.level.Store(nil) // it is no longer the one that an envelope asked for
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
	return c.conn.RoundTrip(ctx, jsonrpc.NewRequest(jsonrpc.ID{}, method, params))
}

// sessionParams takes out of the params of a request what the session knows already or its revision has not. Params that
// had nothing else in them are left out.
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

// appendSessionMeta appends the `_meta` ahead of a request without the envelope, as a member with a comma behind, or
// nothing if nothing is left.
func appendSessionMeta(dst []byte, d *jsonscan.Descent) []byte {
	const name = `"_meta":{`
	before := len(dst)
	dst = append(dst, name...)
	d.Into('{') // it was opened
	for key, ok := d.Key(); ok; key, ok = d.Key() {
		value := d.Value()
		switch string(key) {
		case wire.MetaProtocolVersion, wire.MetaClientInfo, wire.MetaClientCapabilities, wire.MetaLogLevel:
		default:
			dst = append(appendMember(dst, key, value), ',')
		}
	}
	if len(dst) == before+len(name) {
		return dst[:before]
	}
	return append(closeWith(dst, '}'), ',')
}

// setLevel tells the server which log messages are wanted, if that is not what it was told last. A server that does not
// do as it is told is not told again: the request matters more than its log.
//
// Spec: server/utilities/logging#setting-log-level
func (c *Client) setLevel(ctx context.Context, level string) {
	if level == "" || !c.server.logging || c.hasLevel(level) {
		return
	}
	select {
	case c.levelLock <- struct{}{}:
		defer func() { <-c.levelLock }()
	case <-ctx.Done():
		return
	}
	if c.hasLevel(level) {
		return
	}
	waiting, stop := context.WithTimeout(ctx, levelTimeout)
	defer stop()
	params := append(jsonscan.AppendQuote([]byte(`{"level":`), level), '}')
	response, err := c.request(waiting, wire.MethodLoggingSetLevel, params)
	switch {
	case ctx.Err() != nil:
		return // whether the server has heard it is unknown
	case err != nil:
		c.log.DebugContext(ctx, "mcp: log level not set", "level", level, "error", err)
	case response.Error != nil:
		c.log.DebugContext(ctx, "mcp: log level not set", "level", level, "error", response.Error)
	}
	c.level.Store(&level)
}

func (c *Client) hasLevel(level string) bool {
	told := c.level.Load()
	return told != nil && *told == level
}

// A clientProgress is a request that waits for its response and wants to hear of its progress.
type clientProgress struct {
	token  string
	ctx    context.Context
	notify notifier

	mu   sync.Mutex // held while notify is called; guards the field below
	done bool
}

// begin enters a request under its progress token. Nil is a request that wants no progress.
//
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

// finish ends the progress of a request: once it returns, none is told.
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

// progressed hands progress to the request that it belongs to. Late progress belongs to none.
func (c *Client) progress(m *jsonrpc.Message) {
	token, _ := jsonscan.Get(m.Params, "progressToken")
	c.mu.Lock()
	x := c.progressing[tokenKey(token)]
	c.mu.Unlock()
	if x == nil {
		c.log.Debug("mcp: progress of no request")
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.done {
		return
	}
	if err := x.notify(x.ctx, m.Method, m.Params); err != nil {
		x.done = true // whoever waits wants to hear no more of it
	}
}

// tokenKey makes progress tokens comparable: 1 and "1" differ, "a" and "\u0061" do not.
func tokenKey(token []byte) string {
	if jsonscan.Kind(token) == '"' {
		if s, err := jsonscan.Unquote(token); err == nil {
			return "s" + s
		}
	}
	return "n" + string(token)
}
