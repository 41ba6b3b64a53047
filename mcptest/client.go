package mcptest

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"sync"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/jsonrpc"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// timeout limits every wait of a client by default. A test that reaches it hangs.
const timeout = 30 * time.Second

// maxRounds limits how often a request may ask for input.
const maxRounds = 20

// A Client is a client of a single revision, over a single transport. Its methods fail the test if
// the server breaks the protocol. They are safe for concurrent use, but methods that end the test
// must be called from the test's goroutine.
type Client struct {
	Combination
	// Options are the options given to Connect, with defaults filled in. Options for single
	// requests may be changed between requests.
	Options Options

	t        testing.TB
	handler  mcp.Handler
	handlers *tracker
	bubble   bool            // within a synctest bubble
	ctx      context.Context // of all messages that the client sends
	conn     conn
	schema   *Schema // may be nil

	mu            sync.Mutex // guards the fields below
	nextID        int64
	pending       map[jsonrpc.ID]*Pending
	subscriptions map[jsonrpc.ID]*subscription
	notifications []*jsonrpc.Message
	arrived       chan struct{} // closed and replaced when a notification arrives
	wire          []string      // the transcript
}

// Options configures a [Client]. The zero value is a client with all capabilities.
type Options struct {
	// Capabilities are the client's capabilities. Default: all capabilities of the revision.
	Capabilities map[string]any
	// Answer returns the result of a request of the server: elicitation/create,
	// sampling/createMessage, roots/list. An error refuses it: in a session, a [*jsonrpc.Error] is
	// sent unchanged; in the modern era, the client does not retry the request. It is called by the
	// receiving goroutine. Default: accept with an empty form, a text of the model, a root.
	Answer func(method string, params json.RawMessage) (any, error)
	// LogLevel is the minimum level of log messages that the client requests. Default: none.
	LogLevel string
	// Principal is the authenticated caller. Default: none.
	Principal *mcp.Principal
	// Extension describes what extensions add to the modern era. Default: no extensions.
	Extension Extension
	// RealTime makes [Run] run outside a synctest bubble, for handlers that share channels with
	// goroutines outside of it, such as the goroutines of a connection pool.
	RealTime bool
	// Timeout is how long the client waits for a response, for notifications and for a shutdown of
	// the server, before the test fails. In a bubble it is fake time. Default: 30 seconds.
	Timeout time.Duration
}

// An Extension describes messages of extensions. Only the general form of such messages is
// validated.
type Extension struct {
	// ResultTypes are additional values of resultType, such as "task".
	ResultTypes []string
	// Topics maps the methods of additional notifications to the member of a subscription's filter
	// that requests them, such as "notifications/tasks" to "taskIds". An empty member is for
	// notifications that belong to another request, such as "notifications/events/event".
	Topics map[string]string
}

// A conn carries messages to the server. Messages of the server go to Client.receive.
type conn interface {
	send(ctx context.Context, m *jsonrpc.Message) error
	// abandon cancels a request without a message. It returns false if the transport cannot do
	// that.
	abandon(id jsonrpc.ID) bool
	// listen opens the stream for notifications, if the transport uses a separate stream.
	listen()
	// shutdown shuts down the server gracefully.
	shutdown()
	close()
}

// Connect returns a client that is connected to h, with an open session in the session era. It is
// closed when the test ends. opts may be nil. Tests with [Run] do not need it.
func Connect(t testing.TB, h mcp.Handler, on Combination, opts *Options) *Client {
	t.Helper()
	return connect(t, h, on, opts, newTracker(t))
}

// connect is [Connect] with a tracker of the handlers.
func connect(t testing.TB, h mcp.Handler, on Combination, opts *Options, handlers *tracker) *Client {
	t.Helper()
	c := &Client{
		Combination: on, t: t, handler: h, handlers: handlers,
		pending: map[jsonrpc.ID]*Pending{}, subscriptions: map[jsonrpc.ID]*subscription{}, arrived: make(chan struct{}),
	}
	if opts != nil {
		c.Options = *opts
	}
	if c.Options.Capabilities == nil {
		c.Options.Capabilities = everything(on)
	}
	c.Options.Timeout = cmp.Or(c.Options.Timeout, timeout)
	if c.Options.Answer == nil {
		c.Options.Answer = consent
	}
	c.schema = openSchema(t, on.Revision)
	var cancel context.CancelFunc
	c.ctx, cancel = context.WithCancel(context.Background())
	c.conn = newConn(c)
	t.Cleanup(func() {
		c.conn.close()
		cancel()
	})
	if !c.Modern() {
		c.initialize()
	}
	return c
}

// Another returns another client of the same handler, transport and revision. opts may be nil.
func (c *Client) Another(opts *Options) *Client {
	c.t.Helper()
	another := connect(c.t, c.handler, c.Combination, opts, c.handlers)
	another.bubble = c.bubble
	return another
}

// everything returns all client capabilities of a revision.
func everything(on Combination) map[string]any {
	type object = map[string]any
	all := object{"sampling": object{}, "roots": object{}}
	if on.Since("2025-06-18") {
		all["elicitation"] = object{}
	}
	if on.Since("2025-11-25") {
		all["elicitation"] = object{"form": object{}, "url": object{}}
		all["sampling"] = object{"tools": object{}, "context": object{}}
	}
	return all
}

var clientInfo = map[string]any{"name": "mcptest", "version": "1"}

func (c *Client) initialize() {
	c.t.Helper()
	c.Call("initialize", map[string]any{
		"protocolVersion": c.Revision, "capabilities": c.Options.Capabilities, "clientInfo": clientInfo,
	})
	c.Notify("notifications/initialized", nil)
	if c.Options.LogLevel != "" {
		c.Call("logging/setLevel", map[string]any{"level": c.Options.LogLevel})
	}
}

// Call sends a request and returns its result. It fails the test for an error.
func (c *Client) Call(method string, params map[string]any) json.RawMessage {
	c.t.Helper()
	res, err := c.Try(method, params)
	if err != nil {
		c.t.Fatalf("%s: %s: code %d: %s %s", c, method, err.Code, err.Message, err.Data)
	}
	return res
}

// Try sends a request and returns its result, or the error that the server returned. It responds to
// input requests and retries the request.
func (c *Client) Try(method string, params map[string]any) (json.RawMessage, *jsonrpc.Error) {
	c.t.Helper()
	for range maxRounds {
		m := c.Send(method, params).Wait()
		if m.Error != nil {
			return nil, m.Error
		}
		again, refusal := c.nextRound(params, m.Result)
		if again == nil {
			return m.Result, refusal
		}
		params = again
	}
	c.t.Fatalf("%s: %s asks for input for the %dth time", c, method, maxRounds)
	return nil, nil
}

// Send sends a request without waiting for the response.
func (c *Client) Send(method string, params map[string]any) *Pending {
	c.t.Helper()
	c.mu.Lock()
	c.nextID++
	id := jsonrpc.IntID(c.nextID)
	c.mu.Unlock()
	return c.SendAs(id, method, params)
}

// SendAs is [Client.Send] with a given id.
func (c *Client) SendAs(id jsonrpc.ID, method string, params map[string]any) *Pending {
	c.t.Helper()
	m := &jsonrpc.Message{ID: id, Method: method, Params: c.params(params)}
	p := &Pending{ID: id, Method: method, c: c, done: make(chan struct{})}
	c.mu.Lock()
	c.pending[id] = p
	if method == "subscriptions/listen" {
		c.subscriptions[id] = newSubscription(m.Params)
	}
	c.mu.Unlock()
	c.send(m)
	return p
}

// Notify sends a notification. params may be nil.
func (c *Client) Notify(method string, params map[string]any) {
	c.t.Helper()
	var raw json.RawMessage
	if params != nil {
		raw = encode(params)
	}
	c.send(&jsonrpc.Message{Method: method, Params: raw})
}

// send sends and records a request or notification.
func (c *Client) send(m *jsonrpc.Message) {
	c.t.Helper()
	c.record("client", m)
	if err := c.conn.send(c.ctx, m); err != nil {
		c.t.Fatalf("%s: %s: %v", c, m.Method, err)
	}
}

// params returns the params of a request, with the envelope in the modern era.
func (c *Client) params(params map[string]any) json.RawMessage {
	if !c.Modern() {
		if params == nil {
			return nil
		}
		return encode(params)
	}
	meta := map[string]any{
		"io.modelcontextprotocol/protocolVersion":    c.Revision,
		"io.modelcontextprotocol/clientInfo":         clientInfo,
		"io.modelcontextprotocol/clientCapabilities": c.Options.Capabilities,
	}
	if c.Options.LogLevel != "" {
		meta["io.modelcontextprotocol/logLevel"] = c.Options.LogLevel
	}
	if own, ok := params["_meta"].(map[string]any); ok {
		maps.Copy(meta, own)
	}
	with := map[string]any{}
	maps.Copy(with, params)
	with["_meta"] = meta
	return encode(with)
}

// encode panics if v cannot be encoded: the calling goroutine may not be able to end the test.
func encode(v any) json.RawMessage {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return b
}

// Shutdown shuts down the server gracefully, and returns when that is done.
func (c *Client) Shutdown() { c.conn.shutdown() }

// A Pending is a request without a response so far.
type Pending struct {
	ID     jsonrpc.ID
	Method string

	c    *Client
	done chan struct{}

	// Set before done is closed.
	response *jsonrpc.Message // nil if the connection ended
}

// Wait returns the response, a result or an error. It fails the test if no response arrives.
func (p *Pending) Wait() *jsonrpc.Message {
	p.c.t.Helper()
	timer := time.NewTimer(p.c.Options.Timeout)
	defer timer.Stop()
	select {
	case <-p.done:
		if p.response == nil {
			p.c.t.Fatalf("%s: the connection ended before %s was answered", p.c, p.Method)
		}
		return p.response
	case <-timer.C:
		p.c.t.Fatalf("%s: %s was not answered within %v", p.c, p.Method, p.c.Options.Timeout)
		return nil
	}
}

// Answered reports whether the response arrived.
func (p *Pending) Answered() bool {
	select {
	case <-p.done:
		return p.response != nil
	default:
		return false
	}
}

// Cancel cancels the request as the transport and the revision define it.
func (p *Pending) Cancel(reason string) {
	p.c.t.Helper()
	if p.c.Modern() && p.c.conn.abandon(p.ID) {
		return
	}
	p.c.Notify("notifications/cancelled", map[string]any{"requestId": json.RawMessage(p.ID.String()), "reason": reason})
}
