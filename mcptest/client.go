package mcptest

import (
	"context"
	"encoding/json"
	"maps"
	"sync"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/jsonrpc"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// timeout is how long a client waits for anything: a test that waits longer has found a hang.
const timeout = 30 * time.Second

// maxRounds bounds the times that one request may ask for input.
const maxRounds = 20

// A Client is a client of one revision, over one transport. Its methods fail the test when the server breaks the
// protocol. They may be called from several goroutines, those that can end the test only from the test's own.
type Client struct {
	Combination
	// Options as given to Connect, with defaults filled in. What concerns single requests may be changed between them.
	Options Options

	t       testing.TB
	handler mcp.Handler
	bubble  bool            // within synctest
	ctx     context.Context // of everything that the client sends
	conn    conn
	schema  *Schema // nil when there are none

	mu            sync.Mutex // guards the fields below
	nextID        int64
	pending       map[jsonrpc.ID]*Pending
	subscriptions map[jsonrpc.ID]*subscription
	notifications []*jsonrpc.Message
	arrived       chan struct{} // closed and replaced when something arrives
	wire          []string      // the transcript
}

// Options configures a [Client]. The zero value is a client that can do everything.
type Options struct {
	// Capabilities is what the client declares. Default: everything that the revision has.
	Capabilities map[string]any
	// Answer answers what the server asks: elicitation/create, sampling/createMessage, roots/list. An error is the
	// client's refusal: a [*jsonrpc.Error] is sent as it is where the era has a place for it; in the modern era the
	// request is not sent again. It is called by the goroutine that receives. Default: accept with an empty form, a
	// text of the model, one root.
	Answer func(method string, params json.RawMessage) (any, error)
	// LogLevel is the lowest level of log messages that the client asks for. Default: it does not ask.
	LogLevel string
	// Principal is the caller that the transport has authenticated. Default: none.
	Principal *mcp.Principal
	// Extension is what extensions add to the protocol of the modern era, and its schema does not know. Default: nothing.
	Extension Extension
	// RealTime makes [Run] use no bubble of synctest, for handlers that share channels with goroutines outside of it, such
	// as those of a connection pool.
	RealTime bool
}

// An Extension says what a server may send that the core protocol does not have. Of such messages only the general form is
// checked.
type Extension struct {
	// ResultTypes are further values of resultType, such as "task".
	ResultTypes []string
	// Topics maps the methods of further notifications to the member of a subscription's filter that asks for them, such as
	// "notifications/tasks" to "taskIds".
	Topics map[string]string
}

// A conn carries messages to the server. What the server sends goes to Client.receive.
type conn interface {
	send(ctx context.Context, m *jsonrpc.Message) error
	// abandon ends a request without saying so; false if the transport has no such thing.
	abandon(id jsonrpc.ID) bool
	// listen opens the stream for changes, if it is a stream of its own.
	listen()
	// shutdown ends the server in good order.
	shutdown()
	close()
}

// Connect returns a client that is connected to h, and disconnects it when the test ends. In the session era the session
// is opened. The options may be nil. Tests with [Run] have no need of it.
func Connect(t testing.TB, h mcp.Handler, on Combination, opts *Options) *Client {
	t.Helper()
	return connect(t, h, on, opts)
}

func connect(t testing.TB, h mcp.Handler, on Combination, opts *Options) *Client {
	t.Helper()
	c := &Client{
		Combination: on, t: t, handler: h,
		pending: map[jsonrpc.ID]*Pending{}, subscriptions: map[jsonrpc.ID]*subscription{}, arrived: make(chan struct{}),
	}
	if opts != nil {
		c.Options = *opts
	}
	if c.Options.Capabilities == nil {
		c.Options.Capabilities = everything(on)
	}
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

// Another returns a further client of the same handler, transport and revision. The options may be nil.
func (c *Client) Another(opts *Options) *Client {
	c.t.Helper()
	another := connect(c.t, c.handler, c.Combination, opts)
	another.bubble = c.bubble
	return another
}

// everything declares all that a revision's clients can do.
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

func (c *Client) clientInfo() map[string]any {
	return map[string]any{"name": "mcptest", "version": "1"}
}

func (c *Client) initialize() {
	c.t.Helper()
	c.Call("initialize", map[string]any{
		"protocolVersion": c.Revision, "capabilities": c.Options.Capabilities, "clientInfo": c.clientInfo(),
	})
	c.Notify("notifications/initialized", nil)
	if c.Options.LogLevel != "" {
		c.Call("logging/setLevel", map[string]any{"level": c.Options.LogLevel})
	}
}

// Call sends a request and gives its result; an error fails the test.
func (c *Client) Call(method string, params map[string]any) json.RawMessage {
	c.t.Helper()
	res, err := c.Try(method, params)
	if err != nil {
		c.t.Fatalf("%s: %s: code %d: %s %s", c, method, err.Code, err.Message, err.Data)
	}
	return res
}

// Try sends a request and gives its result or the error that the server answered. Questions of the server are answered
// on the way.
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

// Send sends a request and does not wait.
func (c *Client) Send(method string, params map[string]any) *Pending {
	c.t.Helper()
	c.mu.Lock()
	c.nextID++
	id := jsonrpc.IntID(c.nextID)
	c.mu.Unlock()
	return c.SendAs(id, method, params)
}

// SendAs is [Client.Send] with an id of the caller's choice.
func (c *Client) SendAs(id jsonrpc.ID, method string, params map[string]any) *Pending {
	c.t.Helper()
	m := jsonrpc.NewRequest(id, method, c.params(params))
	p := &Pending{ID: id, Method: method, c: c, done: make(chan struct{})}
	c.mu.Lock()
	c.pending[id] = p
	if method == "subscriptions/listen" {
		c.subscriptions[id] = newSubscription(m.Params)
	}
	c.mu.Unlock()
	c.record("client", m)
	if err := c.conn.send(c.ctx, m); err != nil {
		c.t.Fatalf("%s: %s: %v", c, method, err)
	}
	return p
}

// Notify sends a notification. The params may be nil.
func (c *Client) Notify(method string, params map[string]any) {
	c.t.Helper()
	var raw json.RawMessage
	if params != nil {
		raw = encode(params)
	}
	m := jsonrpc.NewNotification(method, raw)
	c.record("client", m)
	if err := c.conn.send(c.ctx, m); err != nil {
		c.t.Fatalf("%s: %s: %v", c, method, err)
	}
}

// params returns the params of a request, in the modern era with the envelope.
func (c *Client) params(params map[string]any) json.RawMessage {
	if !c.Modern() {
		if params == nil {
			return nil
		}
		return encode(params)
	}
	meta := map[string]any{
		"io.modelcontextprotocol/protocolVersion":    c.Revision,
		"io.modelcontextprotocol/clientInfo":         c.clientInfo(),
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

// encode panics on what is no JSON: the test is wrong then, and this may be a goroutine that cannot end it.
func encode(v any) json.RawMessage {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return b
}

// Shutdown ends the server in good order, as if its process had been told to end. It returns when that is done.
func (c *Client) Shutdown() { c.conn.shutdown() }

// A Pending is a request that was sent.
type Pending struct {
	ID     jsonrpc.ID
	Method string

	c    *Client
	done chan struct{}

	// Set before done is closed.
	response *jsonrpc.Message // nil if there can be none any more
}

// Wait returns the response, a result or an error. That there is none fails the test.
func (p *Pending) Wait() *jsonrpc.Message {
	p.c.t.Helper()
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case <-p.done:
		if p.response == nil {
			p.c.t.Fatalf("%s: the connection ended before %s was answered", p.c, p.Method)
		}
		return p.response
	case <-timer.C:
		p.c.t.Fatalf("%s: %s was not answered within %v", p.c, p.Method, timeout)
		return nil
	}
}

// Answered reports whether the response has come.
func (p *Pending) Answered() bool {
	select {
	case <-p.done:
		return p.response != nil
	default:
		return false
	}
}

// Cancel cancels the request in the way of the transport and the revision.
func (p *Pending) Cancel(reason string) {
	p.c.t.Helper()
	if p.c.Modern() && p.c.conn.abandon(p.ID) {
		return
	}
	p.c.Notify("notifications/cancelled", map[string]any{"requestId": json.RawMessage(p.ID.String()), "reason": reason})
}
