package mcp_test

import (
	"cmp"
	"context"
	stdjson "encoding/json"
	"fmt"
	"io"
	"log/slog"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/patchbay-mcp/patchbay/mcp"
)

// maxSteps limits the length of a script, so that failing inputs can be understood.
const maxSteps = 60

// A script is a sequence of operations of several clients on one server. The bytes of the fuzzer
// are operations and their
// operands; any bytes are a valid script.
type script struct {
	*testing.T
	bytes   []byte
	server  *target
	tool    *mcp.Registration[mcp.Tool]
	hostile []hostileMessage
	clients []*scriptClient
}

// A scriptClient is a client that counts its requests and the responses to them.
type scriptClient struct {
	*byteClient
	reads     io.Closer
	mark      string // in all messages of the client; other clients must not receive it
	session   string // the revision of its session, or empty
	cut       bool
	batched   bool           // has sent batches, whose responses arrive together
	sent      map[string]int // requests by id
	cancelled map[string]int // cancelled while in progress
	answered  map[string]int
	questions []string // ids of the requests of the server
	state     string   // requestState of the last InputRequiredResult
}

// FuzzServer runs valid and invalid operations of several clients with different revisions and
// streams. Each request with
// a valid id gets one response, or none if it was cancelled. Messages of one client do not reach
// another. Nothing panics.
// The synctest bubble detects goroutines that do not end.
func FuzzServer(f *testing.F) {
	for _, seed := range []string{
		// a modern client calls echo
		"\x00\x00\x01\x00\x00\x00",
		// a session answers a question
		"\x00\x04\x00\x05\x01\x00\x02\x00\x06\x00\x00",
		// two clients use the same id, one cancels
		"\x00\x00\x00\x05\x01\x00\x01\x00\x01\x01\x01\x00\x05\x00\x00\x08",
		"\x00\x02\x04\x00\x00\x00\x01\x01\x02\x02\x08\x08", // a batch
		// a subscription, changes, disconnect
		"\x00\x00\x01\x00\x06\x00\x0a\x0b\x07\x0a\x05\x00\x00\x07\x00",
		// a modern question, answers of two clients
		"\x00\x01\x01\x00\x02\x00\x01\x00\x0d\x00\x00\x03\x01\x00\x0d\x01",
		"\x00\x05\x09\x00\x00\x01\x09\x00\x00\x20\x09\x00\x00\x40\x09\x00\x00\x55\x01\x00\x00", // hostile messages
		// answers to the wrong session
		"\x00\x03\x00\x04\x01\x00\x02\x01\x01\x01\x02\x01\x06\x00\x04\x06\x01\x00\x06\x01\x01",
		// a handler that ignores its context
		"\x00\x00\x01\x00\x0c\x00\x01\x00\x0c\x00\x05\x00\x00\x01\x00\x00\x00\x08\x08\x07\x00",
		// all kinds of calls
		"\x00\x05\x01\x00\x06\x01\x0a\x0a\x01\x00\x0b\x02\x01\x00\x04\x03\x01\x00\x03\x03\x0b\x01",
	} {
		f.Add([]byte(seed))
	}
	hostile := hostileMessages(f)
	f.Fuzz(func(t *testing.T, input []byte) {
		var log logBuffer
		synctest.Test(t, func(t *testing.T) {
			s := &script{T: t, bytes: input, hostile: hostile}
			s.server = newTarget(&mcp.ServerOptions{Logger: slog.New(slog.NewTextHandler(&log, nil))})
			s.addTools()
			s.run()
		})
		for line := range strings.Lines(log.String()) {
			if strings.Contains(line, "panic") && !strings.Contains(line, "secret") {
				t.Errorf("logged %s", line)
			}
		}
	})
}

func (s *script) addTools() {
	type in struct {
		Text string `json:"text,omitempty"`
	}
	mcp.AddTool(s.server.Server, &mcp.Tool{Name: "survey"}, func(ctx context.Context, in in) (string, error) {
		answer, err := mcp.Ask[string](ctx, "question", "What, "+in.Text+"?", nil)
		return in.Text + answer, err
	})
	s.tool = mcp.AddTool(s.server.Server, &mcp.Tool{Name: "notes"}, func(ctx context.Context, in in) (string, error) {
		for n := range 3 {
			mcp.Logger(ctx).Info(in.Text, "n", n)
			mcp.Progress(ctx, float64(n+1), 3, in.Text)
		}
		return in.Text, nil
	})
}

// operand removes the next byte and returns it as a number below n.
func (s *script) operand(n int) int {
	if len(s.bytes) == 0 {
		return 0
	}
	b := s.bytes[0]
	s.bytes = s.bytes[1:]
	return int(b) % n
}

// run runs the script, and then closes all clients.
func (s *script) run() {
	for range maxSteps {
		if len(s.bytes) == 0 {
			break
		}
		s.step()
		s.wait()
	}
	close(s.server.proceed)
	s.wait()
	for _, c := range s.clients {
		c.stop()
		s.wait()
		c.check()
	}
}

// wait waits until all goroutines are blocked, so that a script is deterministic.
func (s *script) wait() {
	synctest.Wait()
	for _, c := range s.clients {
		for len(c.lines) > 0 {
			c.receiveLine(<-c.lines)
		}
	}
}

func (s *script) step() {
	op := s.operand(12)
	if op == 0 || len(s.clients) == 0 {
		s.open()
		return
	}
	if c := s.clients[s.operand(len(s.clients))]; !c.cut {
		s.act(c, op)
	}
}

// act runs one operation of a client.
func (s *script) act(c *scriptClient, op int) {
	switch op {
	case 1, 2, 3:
		c.write(s.request(c, false))
	case 4:
		if c.session == "2025-03-26" {
			c.batched = true
			c.write("[" + s.request(c, true) + "," + s.request(c, true) + "," + s.request(c, true) + "]")
		}
	case 5:
		id := s.id()
		if c.batched || c.sent[id] > c.answered[id]+c.cancelled[id] {
			c.cancelled[id]++
		}
		c.write(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":` + id + `,"reason":"` +
			c.mark + `"}}`)
	case 6:
		s.answer(c)
	case 7:
		c.cut = true
		c.reads.Close()
		c.end.Close()
	case 8:
		select {
		case s.server.proceed <- struct{}{}:
		default: // no tool waits
		}
	case 9:
		m := s.hostile[(s.operand(256)<<8+s.operand(256))%len(s.hostile)]
		if !m.silent {
			c.sent[m.id]++
		}
		c.write(m.text)
	case 10:
		s.server.ResourceUpdated("mem:x")
	case 11:
		s.tool.Update(func(t *mcp.Tool) { t.Description += "." })
	}
}

func (s *script) open() {
	kind := []string{"", "2025-03-26", "2024-11-05", "2025-06-18", "2025-11-25", ""}[s.operand(6)]
	transport := byteTransports[[]string{"pipes", "socket"}[s.operand(2)]]
	c := &scriptClient{mark: fmt.Sprintf("mark-%d-", len(s.clients)), sent: map[string]int{},
		cancelled: map[string]int{}, answered: map[string]int{}}
	c.byteClient = dialBytes(s.T, s.server, func(opts *mcp.StreamConnOptions) (mcp.Conn, io.WriteCloser, io.Reader) {
		conn, w, r := transport(opts)
		c.reads = r.(io.Closer)
		return conn, w, r
	}, nil, nil)
	s.clients = append(s.clients, c)
	if kind != "" {
		c.session = kind
		c.open(kind)
	}
}

var scriptIDs = []string{`1`, `2`, `3`, `"1"`, `""`, `-1`}

func (s *script) id() string { return scriptIDs[s.operand(len(scriptIDs))] }

// request returns a request of the client, which may be part of a batch.
func (s *script) request(c *scriptClient, batch bool) string {
	id, kind := s.id(), s.operand(14)
	c.sent[id]++
	request := func(method, params string) string {
		if c.session != "" {
			return sessionRequest(id, method, `{`+params+`"_meta":{"progressToken":"`+c.mark+`"}}`)
		}
		return modernRequestLine(id, method, params, `,"progressToken":"`+c.mark+`"`)
	}
	call := func(tool, more string) string {
		return request("tools/call", `"name":"`+tool+`","arguments":{"text":"`+c.mark+`"},`+more)
	}
	switch kind {
	case 0:
		return call("echo", "")
	case 1:
		return call("wait", "")
	case 2:
		return call("survey", "")
	case 3:
		return call("notes", "")
	case 4:
		return call("panic", "")
	case 5:
		return request("tools/list", "")
	case 6:
		if c.session != "" {
			return request("resources/subscribe", `"uri":"mem:x",`)
		}
		return request("subscriptions/listen",
			`"notifications":{"toolsListChanged":true,"resourceSubscriptions":["mem:x"]},`)
	case 7:
		return request("no/such", "")
	case 8:
		return request("tools/call", `"name":5,`)
	case 9:
		return request("resources/read", `"uri":"mem:`+c.mark+`",`)
	case 10:
		return request("completion/complete",
			`"ref":{"type":"ref/prompt","name":"prompt"},"argument":{"name":"arg","value":"5"},`)
	case 11:
		// Without a response to the request with the same id that it ends, see
		// TestSecondInitializeReplacesTheSession. A batch does not end a session.
		if c.session != "" && !batch && c.sent[id]-1 > c.answered[id]+c.cancelled[id] {
			c.cancelled[id]++
		}
		// Of the same revision: only 2025-03-26 has batches, and the script counts their responses.
		return request("initialize", `"protocolVersion":"`+cmp.Or(c.session, "2025-06-18")+
			`","capabilities":{},"clientInfo":{"name":"c","version":"1"},`)
	case 12:
		return call("stubborn", "")
	}
	state := s.clients[s.operand(len(s.clients))].state // of this client or another one
	return call("survey", `"requestState":"`+state+`",`+
		`"inputResponses":{"question":{"action":"accept","content":{"value":"`+c.mark+`"}}},`)
}

// answer sends a response to a request of the server, or to an id that does not exist.
func (s *script) answer(c *scriptClient) {
	id := `"unknown"`
	asked := s.clients[s.operand(len(s.clients))] // this client or another one
	if len(asked.questions) > 0 {
		id = asked.questions[0]
		if asked == c {
			c.questions = c.questions[1:]
		}
	}
	c.write(`{"jsonrpc":"2.0","id":` + id + `,` + []string{
		`"result":{"action":"accept","content":{"value":"` + c.mark + `"}}`,
		`"result":{"action":"decline"}`,
		`"error":{"code":-1,"message":"no"}`,
		`"result":5`,
		`"result":{"action":"accept","content":{"value":{}}}`,
		`"error":{"code":-1,"message":"no","data":[]}`,
	}[s.operand(6)] + `}`)
}

var anyMark = regexp.MustCompile(`mark-\d+-`)

// receiveLine handles a message of the server, or a batch.
func (c *scriptClient) receiveLine(line wireLine) {
	for _, mark := range anyMark.FindAllString(line.text, -1) {
		if mark != c.mark {
			c.Errorf("%s received a message of %s: %s", c.mark, mark, line.text)
		}
	}
	if strings.HasPrefix(line.text, "[") {
		var batch []wireLine
		if err := stdjson.Unmarshal([]byte(line.text), &batch); err != nil {
			c.Errorf("%v: %s", err, line.text)
		}
		for _, one := range batch {
			c.receiveMessage(one)
		}
		return
	}
	c.receiveMessage(line)
}

func (c *scriptClient) receiveMessage(m wireLine) {
	switch {
	case m.Method != "" && m.ID != nil:
		if c.session == "" || m.Method != "elicitation/create" {
			c.Errorf("%s: got request %s, want elicitation in sessions only", c.mark, m.text)
		}
		c.questions = append(c.questions, string(m.ID))
	case m.Method != "":
	default:
		c.answered[string(m.ID)]++
		var result struct{ RequestState string }
		if stdjson.Unmarshal(m.Result, &result) == nil && result.RequestState != "" {
			c.state = result.RequestState
		}
	}
}

// check compares the number of responses with that of requests.
func (c *scriptClient) check() {
	delete(c.answered, `"open"`)
	for id, n := range c.answered {
		if most := c.sent[id]; n > most || n > most-c.cancelled[id] && !c.batched {
			c.Errorf("%s: id %s: got %d responses, want at most %d of %d requests", c.mark, id, n,
				most-c.cancelled[id], most)
		}
	}
	for id, n := range c.sent {
		if !c.cut && c.answered[id] < n-c.cancelled[id] {
			c.Errorf("%s: id %s: got %d responses, want %d of %d requests", c.mark, id, c.answered[id],
				n-c.cancelled[id], n)
		}
	}
}
