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

// maxSteps keeps a script short enough to be understood once a fuzzer has found something.
const maxSteps = 60

// A script is what several clients do to one server: the bytes of a fuzzer, read as operations and their operands.
// Whatever the bytes are, they are a script.
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

// A scriptClient is a client with what it may expect. Each is a principal of its own.
type scriptClient struct {
	s       *script
	mark    string // in all that the client says, and in nothing that others hear
	kind    string // its revision
	headers []string
	id      string // of the session
	stream  context.CancelFunc

	mu                sync.Mutex // guards the fields below
	gone              bool
	sent              map[string]int // requests by id
	unansweredAllowed map[string]int // those that need not be answered: cancelled, or cut where nothing brings them back
	answered          map[string]int
	questions         []string    // ids of what the server has asked
	exchanges         []*exchange // that are open
	broken            []*exchange // that can be taken up again
}

// An exchange is a POST, or a GET that takes one up again.
type exchange struct {
	ids      []string // of the requests; none for a stream that belongs to none
	last     string   // the last event
	answered bool
	cancel   context.CancelFunc
}

// FuzzHTTPServer lets several clients of all eras do over HTTP what clients do and what they should not. Every request
// whose id can be read is answered exactly once, unless it was cancelled or nothing could bring the answer; nothing of
// one client reaches another; nothing panics, and nothing hangs or is left behind: the bubble would see it.
func FuzzHTTPServer(f *testing.F) {
	for _, seed := range []string{
		"\x00\x04\x01\x00\x00\x00",                                                     // a modern client calls echo
		"\x00\x00\x01\x00\x00\x02\x06\x00\x00\x00",                                     // a session is asked and answers
		"\x00\x00\x01\x00\x00\x03\x07\x00\x00\x01\x00\x01\x01\x07\x00\x00\x0c\x00\x00", // notes, cut, resumed
		"\x00\x00\x01\x00\x00\x04\x0c\x00\x00\x08\x0c\x00\x00",                         // a client that polls
		"\x00\x00\x00\x01\x01\x00\x00\x02\x06\x01\x00\x00\x0d\x01\x00\x0d\x00\x01",     // answers to the wrong session, foreign sessions
		"\x00\x03\x01\x00\x00\x00\x01\x00\x01\x01\x05\x00\x01\x0b\x0a\x07\x00\x00",     // HTTP+SSE
		"\x00\x04\x01\x00\x00\x07\x0a\x0b\x07\x00\x00\x01\x00\x02\x01\x07\x00\x00",     // a subscription, changes, cut
		"\x00\x00\x0e\x00\x0e\x00\x0a\x0b\x0f\x00\x01\x00\x00\x00",                     // a stream of changes, a second one, the end
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

// A lockedLog takes a log of several goroutines.
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
		return mcp.AddTool(s.server, &mcp.Tool{Name: name}, func(ctx context.Context, in in) (string,
			error) {
			return f(ctx, in.Text)
		})
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
	note := func(ctx context.Context, text string) { mcp.Logger(ctx).Info(text); mcp.Progress(ctx, 1, 2, text) }
	add("wait", wait)
	add("notes", func(ctx context.Context, text string) (string, error) {
		note(ctx, text)
		text, err := wait(ctx, text)
		note(ctx, text)
		return text, err
	})
	add("poll", func(ctx context.Context, text string) (string, error) {
		_ = mcphttp.CloseStream(ctx, time.Second)
		note(ctx, text)
		return wait(ctx, text)
	})
	mcp.AddResource(s.server, &mcp.Resource{URI: "mem:x", Name: "x"},
		func(context.Context, string) (string, error) { return "", nil })
}

// operand takes the next byte, as a number below n.
func (s *script) operand(n int) int {
	if len(s.bytes) == 0 {
		return 0
	}
	b := s.bytes[0]
	s.bytes = s.bytes[1:]
	return int(b) % n
}

// run runs the script, brings everything to its end, and compares.
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
	for range 3 { // a stream that is taken up may bring a question, and its answer the result
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

// act is one operation of a client that is there.
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
		default: // nobody waits
		}
	case 9:
		m := s.hostile[(s.operand(256)<<8+s.operand(256))%len(s.hostile)]
		if got := c.post(m.text); got.status != 400 || got.code() != m.code {
			s.t.Errorf("%s: got %d %s", m.name, got.status, got.body)
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
				s.t.Errorf("DELETE: got %d %s", got.status, got.body)
			}
		}
	}
}

var scriptIDs = []string{`1`, `2`, `3`, `"1"`, `""`, `-1`}

func (s *script) id() string { return scriptIDs[s.operand(len(scriptIDs))] }

func (s *script) open(kind string) {
	who := fmt.Sprintf("Authorization: user-%d", len(s.clients))
	c := &scriptClient{s: s, mark: fmt.Sprintf("mark-%d-", len(s.clients)), kind: kind, headers: []string{who},
		sent: map[string]int{}, unansweredAllowed: map[string]int{}, answered: map[string]int{}}
	switch kind {
	case modern:
	case november2024:
		ctx, cancel := context.WithCancel(s.t.Context())
		sse := s.initializedSSE(ctx, who)
		c.stream, c.headers = cancel, append(c.headers, "Query: "+sse.query)
		s.work.Go(func() { c.events(sse.Reader, &exchange{}) })
	default:
		session := s.initialize(kind, who)
		c.id, c.headers = session.id, session.headers
	}
	s.clients = append(s.clients, c)
}

// body returns a request.
func (c *scriptClient) body(id string, kind int) string {
	meta := `"_meta":{"progressToken":"` + c.mark + `"`
	if c.kind == modern {
		meta += `,"io.modelcontextprotocol/protocolVersion":"` + modern +
			`","io.modelcontextprotocol/clientCapabilities":{"elicitation":{}},"io.modelcontextprotocol/logLevel":"debug"`
	}
	request := func(method, params string) string {
		return `{"jsonrpc":"2.0","id":` + id + `,"method":"` + method + `","params":{` + params + meta + `}}}`
	}
	if kind < 6 {
		tool := []string{"echo", "wait", "survey", "notes", "poll", "panic"}[kind]
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

// all returns the headers that a request needs.
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

// tell posts what is not answered.
func (c *scriptClient) notify(body string) {
	if got := c.post(body); got.status != 202 && c.kind != modern {
		c.s.t.Errorf("%s: got %d %s", body, got.status, got.body)
	}
}

func (c *scriptClient) allowUnanswered(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.unansweredAllowed[id]++
}

// request posts a request, and goes on while it is answered.
func (c *scriptClient) request(body string, ids ...string) {
	c.mu.Lock()
	for _, id := range ids {
		c.sent[id]++
	}
	c.mu.Unlock()
	ctx, cancel := context.WithCancel(c.s.t.Context())
	c.run(&exchange{ids: ids, cancel: cancel}, c.s.request(ctx, http.MethodPost, body, c.all(body)...))
}

// run makes an HTTP request and receives what comes of it.
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
				c.unansweredAllowed[id]++ // the answer went to a connection that is gone
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

// hear takes a message of the server, or a batch.
func (c *scriptClient) receiveMessage(x *exchange, text []byte) {
	for _, mark := range anyMark.FindAllString(string(text), -1) {
		if mark != c.mark {
			c.s.t.Errorf("%s hears of %s: %s", c.mark, mark, text)
		}
	}
	type message struct {
		ID     json.RawMessage
		Method string
	}
	batch := make([]message, 1)
	if err := json.Unmarshal(text, &batch[0]); err != nil {
		if err := json.Unmarshal(text, &batch); err != nil {
			c.s.t.Errorf("%s hears %q: %v", c.mark, text, err)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, m := range batch {
		switch {
		case m.Method != "" && m.ID != nil:
			if c.kind == modern || m.Method != "elicitation/create" {
				c.s.t.Errorf("%s is asked %s", c.mark, text)
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
	asked := s.clients[s.operand(len(s.clients))] // the client itself, or someone else, whose question this is
	id := `"made-up"`
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

// decline answers what is still asked, and reports whether there was anything.
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

// cutOne closes one of the connections. That of HTTP+SSE is the session.
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

// leave notes that nothing is owed to the client any more.
func (c *scriptClient) markGone() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.gone = true
}

// takeUp asks for the rest of the streams that broke.
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

// listen opens the stream for changes.
func (c *scriptClient) listen() {
	if c.id == "" {
		return
	}
	ctx, cancel := context.WithCancel(c.s.t.Context())
	c.run(&exchange{cancel: cancel}, c.s.request(ctx, http.MethodGet, "", c.headers...))
}

// trespass uses the session of someone else.
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
			s.t.Errorf("POST to the session of someone else: got %d %s", got.status, got.body)
		}
	}
	if owner.id != "" {
		for _, method := range []string{http.MethodGet, http.MethodDelete} {
			if got := s.do(method, "", headers...); got.status != 404 {
				s.t.Errorf("%s of the session of someone else: got %d %s", method, got.status, got.body)
			}
		}
	}
}

// check compares the answers with the requests, at the end.
func (c *scriptClient) check() {
	for id, n := range c.answered {
		if n > c.sent[id] {
			c.s.t.Errorf("%s (%s): %d requests with the id %s were answered %d times", c.mark, c.kind, c.sent[id], id,
				n)
		}
	}
	for id, n := range c.sent {
		if !c.gone && c.answered[id] < n-c.unansweredAllowed[id] {
			c.s.t.Errorf("%s (%s): %d requests with the id %s were answered %d times, and %d need not be", c.mark,
				c.kind, n, id, c.answered[id], c.unansweredAllowed[id])
		}
	}
}
