package capture

import (
	"bytes"
	"cmp"
	"context"
	"io"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/patchbay-mcp/patchbay/gateway/internal/rawjson"
	"github.com/patchbay-mcp/patchbay/host"
	"github.com/patchbay-mcp/patchbay/host/config"
	"github.com/patchbay-mcp/patchbay/jsonrpc"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcp/driver"
)

// maxPending limits the requests of a connection whose responses are awaited: a peer may never
// respond.
const maxPending = 10_000

// A connection relates the messages of a transport to exchanges.
type connection struct {
	ring           *Ring
	server, caller string

	observed atomic.Bool               // a transport below records the HTTP requests
	target   atomic.Pointer[publicURL] // of the last recorded request

	mu       sync.Mutex // guards the fields below
	keeps    bool       // the text of the message in progress is kept
	begun    uint64     // the exchange that the message in progress began, or 0
	now      time.Time  // when the message in progress arrived
	process  uint64     // the exchange of the process, or 0
	revision string
	exact    []byte // the text of the message that is decoded next, or nil
	sent     map[jsonrpc.ID]request
	received map[jsonrpc.ID]uint64 // the exchange of each request of the server
	open     []uint64              // the exchanges that wait for a response, the latest last
	asking   map[string]uint64     // exchanges whose question was not answered, by askingKey
}

// A request is a request to the server that waits for its response.
type request struct {
	id             uint64 // of the exchange
	method, target string
}

func (r *Ring) connection(server, caller string) *connection {
	return &connection{ring: r, server: server, caller: caller, sent: map[jsonrpc.ID]request{},
		received: map[jsonrpc.ID]uint64{}, asking: map[string]uint64{}}
}

// Connect records the messages of a transport, which must be unused, and the output of its
// process. It returns the transport, and panics as [mcp.Trace] does. caller is empty for the local
// user. A nil Ring records nothing.
func (r *Ring) Connect(t mcp.Transport, server, caller string) mcp.Transport {
	if r == nil {
		return t
	}
	return r.connection(server, caller).connect(t)
}

// connect records the messages of a transport.
func (c *connection) connect(t mcp.Transport) mcp.Transport {
	if command, ok := t.(*mcp.CommandTransport); ok {
		report := command.Started
		command.Started = func(pid int) {
			c.started(command.Path)
			if report != nil {
				report(pid)
			}
		}
		command.Line = c.line
		command.Stderr = &stderrWriter{c, command.Stderr}
	}
	return mcp.Trace(t, c.frame)
}

// Dial returns a function for [host.Options] that records the connections of another, with the HTTP
// requests of the clients that [Observe] returns for its context.
func (r *Ring) Dial(
	dial func(ctx context.Context, s *config.Server) (mcp.Transport, error),
) func(ctx context.Context, s *config.Server) (mcp.Transport, error) {
	return func(ctx context.Context, s *config.Server) (mcp.Transport, error) {
		c := r.connection(s.Name, callerName(host.CallerFrom(ctx)))
		t, err := dial(context.WithValue(ctx, connectionKey{}, c), s)
		if err != nil {
			return nil, err
		}
		return c.connect(t), nil
	}
}

// started begins the exchange of a process. Requests to an earlier process failed.
func (c *connection) started(path string) {
	id := c.ring.begin(&Exchange{Hop: Process, Server: c.server, Caller: c.caller, Method: "start", Target: path})
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ring.end(c.process, "ended")
	for _, open := range c.open {
		c.ring.end(open, StatusFailed)
	}
	c.process, c.exact, c.open = id, nil, nil
	clear(c.sent)
	clear(c.received)
}

// line takes a line of a process, before it is decoded. Without a reader, a line that begins like a
// message counts as a message.
func (c *connection) line(sent bool, text []byte) {
	if sent {
		return // frame encodes the same text
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.exact = nil
	isMessage := rawjson.Kind(text) == '{' || rawjson.Kind(text) == '['
	if isMessage && c.ring.Keeps() {
		_, err := jsonrpc.Decode(bytes.Clone(text))
		if isMessage = err == nil; isMessage {
			c.exact = bytes.Clone(text)
		}
	}
	if !isMessage {
		c.ring.add(c.process, Frame{Kind: Stdout}, text, nil)
		c.ring.logs(c.server, Stdout, "", text)
	}
}

// A stderrWriter records the lines of standard error.
type stderrWriter struct {
	connection *connection
	next       io.Writer // may be nil
}

func (w *stderrWriter) Write(line []byte) (int, error) {
	w.connection.mu.Lock()
	id := w.connection.process
	w.connection.mu.Unlock()
	text := bytes.TrimSuffix(line, []byte{'\n'})
	w.connection.ring.add(id, Frame{Kind: Stderr}, text, nil)
	w.connection.ring.logs(w.connection.server, Stderr, "", text)
	if w.next != nil {
		return w.next.Write(line)
	}
	return len(line), nil
}

// frame takes a frame of mcp.Trace.
func (c *connection) frame(f mcp.Frame) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if f.Message == nil {
		if !c.observed.Load() {
			c.withoutMessage(&f)
		}
		return
	}
	m := f.Message
	c.keeps, c.begun, c.now = c.ring.Keeps(), 0, time.Now()
	id := c.exchangeOf(f.Sent, m)
	isCounted := c.keeps || id == c.begun // by the ring or by begin
	if c.keeps {
		if f.Method != "" && !c.observed.Load() { // otherwise the exchange of the HTTP request contains the header
			c.header(id, &f)
		}
		secret := c.secrets(f.Sent, m)
		c.ring.write(id, Frame{Kind: Message, Sent: f.Sent, Time: c.now}, secret, func(to []byte) []byte {
			if c.exact != nil && !f.Sent {
				return append(to, c.exact...)
			}
			return jsonrpc.Append(to, m)
		})
	}
	if !f.Sent {
		c.exact = nil
	}
	if m.Method == driver.NotificationMessage && !f.Sent {
		c.logMessage(m.Params)
	}
	if status := c.settle(id, f.Sent, m); status != "" || !isCounted {
		c.ring.update(id, func(x *slot) { c.apply(x, m, isCounted, status) })
	}
}

// apply changes an exchange after a message. The status is empty if the message does not change it.
func (c *connection) apply(x *slot, m *jsonrpc.Message, isCounted bool, status string) {
	if !isCounted {
		x.count(len(m.Params) + len(m.Result))
	}
	switch status {
	case "":
	case StatusQuestion:
		x.Status, x.FirstByte = status, cmp.Or(x.FirstByte, x.since(c.now))
	default:
		if x.Revision != c.revision { // which the response to initialize names
			a := *x.about
			a.Revision, x.about = c.revision, &a
		}
		x.end(status, c.now)
	}
}

// logMessage passes a log message of the server on. Spec: server/utilities/logging.
func (c *connection) logMessage(params []byte) {
	text, _ := rawjson.Get(params, "data")
	if plain, err := rawjson.Unquote(text); err == nil {
		text = []byte(plain)
	}
	if logger := rawjson.GetString(params, "logger"); logger != "" {
		text = append([]byte(logger+": "), text...)
	}
	c.ring.logs(c.server, Message, rawjson.GetString(params, "level"), text)
}

// withoutMessage takes an HTTP request or response without a message, such as the request for the
// stream of a session. Nothing relates a response to its request, so each is an exchange.
func (c *connection) withoutMessage(f *mcp.Frame) {
	id := c.ring.begin(&Exchange{Hop: HTTP, Revision: c.revision, Server: c.server, Caller: c.caller,
		Method: f.Method, Target: "without a message"})
	c.header(id, f)
	status := StatusOK
	if !f.Sent {
		status = httpStatus(f.Status)
	}
	c.ring.end(id, status)
}

// header records the HTTP header of a frame.
func (c *connection) header(id uint64, f *mcp.Frame) {
	first := f.Method
	if !f.Sent {
		first = httpStatus(f.Status)
	}
	c.ring.write(id, Frame{Kind: Header, Sent: f.Sent}, nil, func(to []byte) []byte {
		return appendHeader(to, first, f.Header)
	})
}

// exchangeOf returns the exchange that a message belongs to, which it begins for a request.
func (c *connection) exchangeOf(sent bool, m *jsonrpc.Message) uint64 {
	kind := m.Kind()
	switch {
	case kind == jsonrpc.Response && sent:
		return c.received[m.ID]
	case kind == jsonrpc.Response:
		return c.sent[m.ID].id
	}
	p := partsOf(m.Params)
	if kind == jsonrpc.Request && sent {
		return c.request(m, &p)
	}
	if m.Method == driver.NotificationCancelled {
		raw, _ := rawjson.Get(m.Params, "requestId")
		var of jsonrpc.ID
		if of.UnmarshalJSON(raw) == nil && c.sent[of].id != 0 {
			return c.sent[of].id
		}
	}
	id := c.latest()
	if id == 0 {
		id = c.begin(m, &p)
	}
	if kind == jsonrpc.Request {
		c.ring.update(id, func(x *slot) { x.Rounds++ })
		if len(c.received) < maxPending {
			c.received[m.ID] = id
		}
	}
	return id
}

// secrets returns the names of secret members of a message. The schemas in lists and questions are
// not hidden: their members have the same names.
func (c *connection) secrets(sent bool, m *jsonrpc.Message) names {
	method := m.Method
	if m.Kind() == jsonrpc.Response && !sent {
		method = c.sent[m.ID].method
	}
	isQuestion := !sent && (m.Method != "" || statusOf(method, m.Result, m.Error) == StatusQuestion)
	if isQuestion {
		c.ring.mask.learn(c.server, append(m.Params[:len(m.Params):len(m.Params)], m.Result...)) // one of them is empty
		return nil
	}
	if method != driver.MethodToolsCall && !sent {
		return nil
	}
	return c.ring.mask.of(c.server)
}

// request returns the exchange of a request to the server, which may continue an exchange with
// answers.
func (c *connection) request(m *jsonrpc.Message, p *parts) uint64 {
	r := request{method: m.Method, target: p.target}
	if len(c.asking) > 0 {
		key := askingKey(&r, m.Params)
		if r.id = c.asking[key]; r.id != 0 {
			delete(c.asking, key)
			c.ring.update(r.id, func(x *slot) { x.Rounds, x.Status = x.Rounds+1, "" })
		}
	}
	if r.id == 0 {
		r.id = c.begin(m, p)
	}
	if len(c.sent) < maxPending {
		c.sent[m.ID] = r
		c.open = append(c.open, r.id)
	}
	return r.id
}

// askingKey identifies a request that continues after a question: by the state of a result or of
// params, or else by method and target.
func askingKey(r *request, object []byte) string {
	if raw, ok := rawjson.Get(object, "requestState"); ok {
		return string(raw)
	}
	return r.method + " " + r.target
}

// begin begins an exchange with the server.
func (c *connection) begin(m *jsonrpc.Message, p *parts) uint64 {
	if c.revision == "" {
		c.revision = bounded(rawjson.GetString(p.meta, "io.modelcontextprotocol/protocolVersion"), maxText)
	}
	x := Exchange{Hop: Upstream, Revision: c.revision, Server: c.server, Caller: c.caller, Method: m.Method,
		Target: p.target, Trace: traceOf(p.meta), Queued: c.now, Sent: 1,
		Cause: c.ring.causes.take(c.server, m.Method, p)}
	if !c.keeps {
		x.Frames, x.Bytes = 1, int64(len(m.Params))
	}
	c.begun = c.ring.begin(&x)
	return c.begun
}

// latest returns the latest exchange that waits for a response, or 0.
func (c *connection) latest() uint64 {
	if len(c.open) == 0 {
		return 0
	}
	return c.open[len(c.open)-1]
}

// settle returns the status of an exchange after a message, or "" if the message does not change it.
func (c *connection) settle(id uint64, sent bool, m *jsonrpc.Message) (status string) {
	kind, at := m.Kind(), slices.Index(c.open, id)
	waits, isCancelled := at >= 0, sent && m.Method == driver.NotificationCancelled
	if waits && (isCancelled || kind == jsonrpc.Response && !sent) {
		c.open = slices.Delete(c.open, at, at+1)
	}
	switch {
	case kind == jsonrpc.Response && sent:
		delete(c.received, m.ID)
		if !waits { // the request of the server is an exchange of its own
			return statusOf("", m.Result, m.Error)
		}
	case kind == jsonrpc.Response:
		if r, ok := c.sent[m.ID]; ok {
			delete(c.sent, m.ID)
			return c.respond(&r, m)
		}
	case kind == jsonrpc.Notification && isCancelled:
		return StatusCancelled
	case kind == jsonrpc.Notification && !waits:
		return StatusOK
	}
	return ""
}

// respond returns the status of an exchange after the response of the server.
func (c *connection) respond(r *request, m *jsonrpc.Message) (status string) {
	status = statusOf(r.method, m.Result, m.Error)
	switch {
	case status == StatusQuestion && len(c.asking) < maxPending:
		c.asking[askingKey(r, m.Result)] = r.id
	case r.method == driver.MethodInitialize:
		c.revision = bounded(rawjson.GetString(m.Result, "protocolVersion"), maxText)
	case r.method == driver.MethodToolsList:
		c.ring.mask.learn(c.server, m.Result)
	}
	return status
}

// parts are members of the params of a request.
type parts struct {
	target          string // the item that the params name
	meta, arguments []byte
}

func partsOf(params []byte) (p parts) {
	for key, value := range rawjson.Members(params) {
		switch string(key) {
		case "name", "uri", "taskId":
			p.target, _ = rawjson.Unquote(value)
		case "_meta":
			p.meta = value
		case "arguments":
			p.arguments = value
		}
	}
	return p
}

// traceOf returns the trace id in the trace context of a `_meta`.
func traceOf(meta []byte) string {
	if !bytes.Contains(meta, []byte("traceparent")) && !hasEscape(meta) {
		return ""
	}
	_, rest, _ := strings.Cut(rawjson.GetString(meta, "traceparent"), "-")
	id, _, _ := strings.Cut(rest, "-")
	return bounded(id, maxText)
}
