package mcphttp_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/sse"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcphttp"
)

// maxSteps limits a script, so that one that fails can be understood.
const maxSteps = 60

// A script is a sequence of operations of several clients on one server. The bytes of the fuzzer
// are the operations and their operands; all bytes are valid.
type script struct {
	*fixture
	bytes   []byte
	server  *mcp.Server
	tool    *mcp.Registration[mcp.Tool]
	proceed chan struct{}
	hostile []hostileMessage
	clients []*scriptClient
	work    sync.WaitGroup // exchanges
}

// A scriptClient is a client that records its requests and their responses. Each is another principal.
type scriptClient struct {
	s       *script
	mark    string // in every message of the client; no other client must receive it
	kind    string // revision
	headers []string
	id      string // of the session
	stream  context.CancelFunc

	mu                sync.Mutex // guards the fields below
	gone              bool
	sent              map[string]int // requests by id
	unansweredAllowed map[string]int // requests that may have no response: cancelled, or disconnected without an event
	answered          map[string]int
	questions         []string    // ids of the server's requests
	exchanges         []*exchange // open ones
	broken            []*exchange // ones that can resume
}

// An exchange is a POST, or a GET that resumes one.
type exchange struct {
	ids      []string // of the requests; empty for a standalone stream
	last     string   // id of the last event
	answered bool
	cancel   context.CancelFunc
}

// FuzzHTTPServer runs valid and invalid operations of several clients of all revisions. Every request
// with a readable id has exactly one response, unless it was cancelled or its stream cannot resume. No
// message of one client reaches another. Nothing panics, and the synctest bubble shows that nothing
// blocks or keeps running.
func FuzzHTTPServer(f *testing.F) {
	for _, seed := range []string{
		"\x00\x04\x01\x00\x00\x00",                                                     // a modern client calls echo
		"\x00\x00\x01\x00\x00\x02\x06\x00\x00\x00",                                     // a session receives a question and responds
		"\x00\x00\x01\x00\x00\x03\x07\x00\x00\x01\x00\x01\x01\x07\x00\x00\x0c\x00\x00", // notifications, disconnected, resumed
		"\x00\x00\x01\x00\x00\x04\x0c\x00\x00\x08\x0c\x00\x00",                         // a client that polls
		"\x00\x00\x00\x01\x01\x00\x00\x02\x06\x01\x00\x00\x0d\x01\x00\x0d\x00\x01",     // responses on the wrong session, sessions of others
		"\x00\x03\x01\x00\x00\x00\x01\x00\x01\x01\x05\x00\x01\x0b\x0a\x07\x00\x00",     // HTTP+SSE
		"\x00\x04\x01\x00\x00\x07\x0a\x0b\x07\x00\x00\x01\x00\x02\x01\x07\x00\x00",     // a subscription, changes, disconnected
		"\x00\x00\x0e\x00\x0e\x00\x0a\x0b\x0f\x00\x01\x00\x00\x00",                     // a standalone stream, a second one, DELETE
		"\x00\x02\x04\x00\x00\x00\x01\x01\x02\x02\x08\x08",                             // a batch
		"\x00\x00\x09\x00\x00\x01\x09\x00\x00\x20\x00\x04\x09\x01\x00\x40\x01\x00\x00\x00",
	} {
		f.Add([]byte(seed))
	}
	hostile := hostileMessages(f)
	f.Fuzz(func(t *testing.T, input []byte) {
		var log lockedLog
		synctest.Test(t, func(t *testing.T) {
			logger := slog.New(slog.NewTextHandler(&log, nil))
			s := &script{bytes: input, hostile: hostile, proceed: make(chan struct{})}
			s.server = mcp.NewServer("s", "1", &mcp.ServerOptions{Logger: logger})
			s.addTools()
			s.fixture = start(t, s.server, &mcphttp.Options{Logger: logger})
			s.run()
		})
		for line := range strings.Lines(log.String()) {
			if strings.Contains(line, "panic") && !strings.Contains(line, "secret") {
				t.Errorf("logged %s", line)
			}
		}
	})
}

// A lockedLog is a buffer that several goroutines may write to.
type lockedLog struct {
	mu sync.Mutex
	bytes.Buffer
}

func (l *lockedLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.Buffer.Write(p)
}

func (s *script) addTools() {
	type in struct {
		Text string `json:"text,omitempty"`
	}
	add := func(name string, f func(ctx context.Context, text string) (string, error)) *mcp.Registration[mcp.Tool] {
		return mcp.AddTool(s.server, &mcp.Tool{Name: name},
			func(ctx context.Context, in in) (string, error) { return f(ctx, in.Text) })
	}
	s.tool = add("echo", func(_ context.Context, text string) (string, error) { return text, nil })
	add("panic", func(context.Context, string) (string, error) { panic("secret") })
	add("survey", func(ctx context.Context, text string) (string, error) {
		answer, err := mcp.Ask[string](ctx, "question", "What, "+text+"?", nil)
		return text + answer, err
	})
	wait := func(ctx context.Context, text string) (string, error) {
		select {
		case <-s.proceed:
			return text, nil
		case <-ctx.Done():
			return "", context.Cause(ctx)
		}
	}
	notify := func(ctx context.Context, text string) { mcp.Logger(ctx).Info(text); mcp.Progress(ctx, 1, 2, text) }
	add("wait", wait)
	add("notify", func(ctx context.Context, text string) (string, error) {
		notify(ctx, text)
		text, err := wait(ctx, text)
		notify(ctx, text)
		return text, err
	})
	add("poll", func(ctx context.Context, text string) (string, error) {
		_ = mcphttp.CloseStream(ctx, time.Second)
		notify(ctx, text)
		return wait(ctx, text)
	})
	mcp.AddResource(s.server, &mcp.Resource{URI: "mem:x", Name: "x"},
		func(context.Context, string) (string, error) { return "", nil })
}

// operand consumes the next byte and returns it as a number below n.
func (s *script) operand(n int) int {
	if len(s.bytes) == 0 {
		return 0
	}
	b := s.bytes[0]
	s.bytes = s.bytes[1:]
	return int(b) % n
}

// run runs the script, ends all exchanges, and checks the responses.
func (s *script) run() {
	for range maxSteps {
		if len(s.bytes) == 0 {
			break
		}
		s.step()
		synctest.Wait()
	}
	close(s.proceed)
	synctest.Wait()
	for range 3 { // a resumed stream may have a question, and its response a result
		for _, c := range s.clients {
			c.resume()
			synctest.Wait()
			for c.decline() {
				synctest.Wait()
			}
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Second)
	defer cancel()
	if err := s.handler.Shutdown(ctx); err != nil {
		s.t.Errorf("Shutdown: %v", err)
	}
	s.work.Wait()
	for _, c := range s.clients {
		c.check()
	}
}

func (s *script) step() {
	op := s.operand(16)
	if op == 0 || len(s.clients) == 0 {
		s.open([]string{november2025, june2025, march2025, november2024, modern, modern}[s.operand(6)])
		return
	}
	if c := s.clients[s.operand(len(s.clients))]; !c.gone {
		s.act(c, op)
	}
}

// act runs one operation of a client that is connected.
func (s *script) act(c *scriptClient, op int) {
	switch op {
	case 1, 2, 3:
		id := s.id()
		c.request(c.body(id, s.operand(9)), id)
	case 4:
		if c.kind == march2025 {
			a, b := s.id(), s.id()
			c.request("["+c.body(a, s.operand(9))+","+c.body(b, s.operand(9))+"]", a, b)
		}
	case 5:
		id := s.id()
		c.allowUnanswered(id)
		c.notify(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":` + id + `,"reason":"` +
			c.mark + `"}}`)
	case 6:
		s.answer(c)
	case 7:
		c.disconnectOne(s.operand(8))
	case 8:
		select {
		case s.proceed <- struct{}{}:
		default: // no tool waits
		}
	case 9:
		m := s.hostile[(s.operand(256)<<8+s.operand(256))%len(s.hostile)]
		if got := c.post(m.text); got.status != 400 || got.code() != m.code {
			s.t.Errorf("%s: got %d %s, want 400 with code %d", m.name, got.status, got.body, m.code)
		}
	case 10:
		s.server.ResourceUpdated("mem:x")
	case 11:
		s.tool.Update(func(t *mcp.Tool) { t.Description += "." })
	case 12:
		c.resume()
	case 13:
		s.useForeignSession(c, s.clients[s.operand(len(s.clients))])
	case 14:
		c.listen()
	case 15:
		if c.id != "" {
			c.markGone()
			if got := s.do(http.MethodDelete, "", c.headers...); got.status != 204 {
				s.t.Errorf("DELETE: got %d %s, want 204", got.status, got.body)
			}
		}
	}
}

var scriptIDs = []string{`1`, `2`, `3`, `"1"`, `""`, `-1`}

func (s *script) id() string { return scriptIDs[s.operand(len(scriptIDs))] }

func (s *script) open(kind string) {
	principal := fmt.Sprintf("Authorization: user-%d", len(s.clients))
	c := &scriptClient{s: s, mark: fmt.Sprintf("mark-%d-", len(s.clients)), kind: kind, headers: []string{principal},
		sent: map[string]int{}, unansweredAllowed: map[string]int{}, answered: map[string]int{}}
	switch kind {
	case modern:
	case november2024:
		ctx, cancel := context.WithCancel(s.t.Context())
		sse := s.initializedSSE(ctx, principal)
		c.stream, c.headers = cancel, append(c.headers, "Query: "+sse.query)
		s.work.Go(func() { c.events(sse.Reader, &exchange{}) })
	default:
		session := s.initialize(kind, principal)
		c.id, c.headers = session.id, session.headers
	}
	s.clients = append(s.clients, c)
}

// body returns a request.
func (c *scriptClient) body(id string, kind int) string {
	meta := `"_meta":{"progressToken":"` + c.mark + `"`
	if c.kind == modern {
		meta += `,"io.modelcontextprotocol/protocolVersion":"` + modern +
			`","io.modelcontextprotocol/clientCapabilities":{"elicitation":{}},` +
			`"io.modelcontextprotocol/logLevel":"debug"`
	}
	request := func(method, params string) string {
		return `{"jsonrpc":"2.0","id":` + id + `,"method":"` + method + `","params":{` + params + meta + `}}}`
	}
	if kind < 6 {
		tool := []string{"echo", "wait", "survey", "notify", "poll", "panic"}[kind]
		return request("tools/call", `"name":"`+tool+`","arguments":{"text":"`+c.mark+`"},`)
	}
	switch {
	case kind == 6:
		return request("tools/list", "")
	case kind == 7 && c.kind == modern:
		return request("subscriptions/listen",
			`"notifications":{"toolsListChanged":true,"resourceSubscriptions":["mem:x"]},`)
	case kind == 7:
		return request("resources/subscribe", `"uri":"mem:x",`)
	}
	return request("no/such", "")
}

// all returns the headers of a request.
func (c *scriptClient) all(body string) []string {
	if c.kind != modern {
		return c.headers
	}
	var m struct {
		Method string
		Params struct{ Name string }
	}
	json.Unmarshal([]byte(body), &m)
	headers := append(slices.Clone(c.headers), "MCP-Protocol-Version: "+modern, "Mcp-Method: "+m.Method)
	if m.Params.Name != "" {
		headers = append(headers, "Mcp-Name: "+m.Params.Name)
	}
	return headers
}

func (c *scriptClient) post(body string) response {
	return c.s.do(http.MethodPost, body, c.all(body)...)
}

// notify posts a message that has no response.
func (c *scriptClient) notify(body string) {
	if got := c.post(body); got.status != 202 && c.kind != modern {
		c.s.t.Errorf("%s: got %d %s, want 202", body, got.status, got.body)
	}
}

func (c *scriptClient) allowUnanswered(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.unansweredAllowed[id]++
}

// request posts a request without waiting for its response.
func (c *scriptClient) request(body string, ids ...string) {
	c.mu.Lock()
	for _, id := range ids {
		c.sent[id]++
	}
	c.mu.Unlock()
	ctx, cancel := context.WithCancel(c.s.t.Context())
	c.run(&exchange{ids: ids, cancel: cancel}, c.s.request(ctx, http.MethodPost, body, c.all(body)...))
}

// run sends an HTTP request and receives its response on a new goroutine.
func (c *scriptClient) run(x *exchange, r *http.Request) {
	c.mu.Lock()
	c.exchanges = append(c.exchanges, x)
	c.mu.Unlock()
	c.s.work.Go(func() {
		defer x.cancel()
		resp, err := c.s.client.Do(r)
		if err == nil {
			defer resp.Body.Close()
			c.receive(x, resp)
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.exchanges = slices.DeleteFunc(c.exchanges, func(open *exchange) bool { return open == x })
		switch {
		case x.answered || c.kind == november2024:
		case x.last != "" && len(x.ids) > 0:
			c.broken = append(c.broken, x)
		default:
			for _, id := range x.ids {
				c.unansweredAllowed[id]++ // the response was written to a closed connection
			}
		}
	})
}

func (c *scriptClient) receive(x *exchange, resp *http.Response) {
	if resp.Header.Get("Content-Type") == "text/event-stream" {
		c.events(sse.NewReader(resp.Body, 1<<20), x)
		return
	}
	body, err := io.ReadAll(resp.Body)
	switch {
	case err != nil, resp.StatusCode == 202:
	case resp.StatusCode == 404 && r404(resp) || resp.StatusCode == 409:
	default:
		c.receiveMessage(x, body)
	}
}

// r404 reports whether a session or an event was not found, which is not a response to a request.
func r404(resp *http.Response) bool { return resp.Request.Header.Get("Mcp-Session-Id") != "" }

func (c *scriptClient) events(events *sse.Reader, x *exchange) {
	for {
		e, err := events.Next()
		if err != nil {
			return
		}
		if e.HasID {
			x.last = e.ID
		}
		if len(e.Data) > 0 {
			c.receiveMessage(x, e.Data)
		}
	}
}

var anyMark = regexp.MustCompile(`mark-\d+-`)

// receiveMessage records a message of the server, or a batch.
func (c *scriptClient) receiveMessage(x *exchange, text []byte) {
	for _, mark := range anyMark.FindAllString(string(text), -1) {
		if mark != c.mark {
			c.s.t.Errorf("%s received a message of %s: %s", c.mark, mark, text)
		}
	}
	type message struct {
		ID     json.RawMessage
		Method string
	}
	batch := make([]message, 1)
	if err := json.Unmarshal(text, &batch[0]); err != nil {
		if err := json.Unmarshal(text, &batch); err != nil {
			c.s.t.Errorf("%s received %q: %v", c.mark, text, err)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, m := range batch {
		switch {
		case m.Method != "" && m.ID != nil:
			if c.kind == modern || m.Method != "elicitation/create" {
				c.s.t.Errorf("%s received the request %s, want none of this kind", c.mark, text)
			}
			c.questions = append(c.questions, string(m.ID))
		case m.Method == "":
			c.answered[string(m.ID)]++
			x.answered = true
		}
	}
}

// answer responds to a message of the server, if it is a request.
func (s *script) answer(c *scriptClient) {
	if c.kind == modern {
		return
	}
	asked := s.clients[s.operand(len(s.clients))] // the client that received the question
	id := `"invented"`
	asked.mu.Lock()
	if len(asked.questions) > 0 {
		id = asked.questions[0]
		if asked == c {
			c.questions = c.questions[1:]
		}
	}
	asked.mu.Unlock()
	c.notify(`{"jsonrpc":"2.0","id":` + id + `,` + []string{
		`"result":{"action":"accept","content":{"value":"` + c.mark + `"}}`,
		`"result":{"action":"decline"}`,
		`"error":{"code":-1,"message":"no"}`,
		`"result":5`,
	}[s.operand(4)] + `}`)
}

// decline declines the remaining questions, and reports whether there were any.
func (c *scriptClient) decline() bool {
	c.mu.Lock()
	questions := c.questions
	c.questions = nil
	c.mu.Unlock()
	for _, id := range questions {
		if !c.gone {
			c.notify(`{"jsonrpc":"2.0","id":` + id + `,"result":{"action":"decline"}}`)
		}
	}
	return len(questions) > 0
}

// disconnectOne closes one of the connections. That of HTTP+SSE ends the session.
func (c *scriptClient) disconnectOne(n int) {
	if c.stream != nil && n%2 == 0 {
		c.markGone()
		c.stream()
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.exchanges) > 0 {
		c.exchanges[n%len(c.exchanges)].cancel()
	}
}

// markGone records that the client may receive no more responses.
func (c *scriptClient) markGone() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.gone = true
}

// resume resumes the broken streams.
func (c *scriptClient) resume() {
	c.mu.Lock()
	broken := c.broken
	c.broken = nil
	c.mu.Unlock()
	for _, x := range broken {
		if c.gone {
			return
		}
		ctx, cancel := context.WithCancel(c.s.t.Context())
		c.run(&exchange{ids: x.ids, last: x.last, cancel: cancel},
			c.s.request(ctx, http.MethodGet, "", append(slices.Clone(c.headers), "Last-Event-ID: "+x.last)...))
	}
}

// listen opens the standalone stream.
func (c *scriptClient) listen() {
	if c.id == "" {
		return
	}
	ctx, cancel := context.WithCancel(c.s.t.Context())
	c.run(&exchange{cancel: cancel}, c.s.request(ctx, http.MethodGet, "", c.headers...))
}

// useForeignSession sends requests for the session of another client.
func (s *script) useForeignSession(c, owner *scriptClient) {
	if c == owner || owner.kind == modern {
		return
	}
	headers := append(slices.Clone(owner.headers), c.headers[slices.IndexFunc(c.headers,
		func(h string) bool { return strings.HasPrefix(h, "Authorization") })])
	headers = slices.DeleteFunc(headers, func(h string) bool {
		return strings.HasPrefix(h, "Authorization") && h != headers[len(headers)-1]
	})
	for _, body := range []string{c.body(`1`, 0),
		`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`} {
		if c.kind == modern {
			body = strings.Replace(callBody(1, "echo"), "hi", c.mark, 1)
		}
		if got := s.do(http.MethodPost, body, headers...); got.status != 404 {
			s.t.Errorf("POST to the session of another client: got %d %s, want 404", got.status, got.body)
		}
	}
	if owner.id != "" {
		for _, method := range []string{http.MethodGet, http.MethodDelete} {
			if got := s.do(method, "", headers...); got.status != 404 {
				s.t.Errorf("%s of the session of another client: got %d %s, want 404", method, got.status, got.body)
			}
		}
	}
}

// check compares the number of responses with that of requests.
func (c *scriptClient) check() {
	for id, n := range c.answered {
		if n > c.sent[id] {
			c.s.t.Errorf("%s (%s): %d requests with the id %s have %d responses", c.mark, c.kind, c.sent[id], id, n)
		}
	}
	for id, n := range c.sent {
		if !c.gone && c.answered[id] < n-c.unansweredAllowed[id] {
			c.s.t.Errorf("%s (%s): %d requests with the id %s have %d responses, and only %d may have none", c.mark,
				c.kind, n, id, c.answered[id], c.unansweredAllowed[id])
		}
	}
}
