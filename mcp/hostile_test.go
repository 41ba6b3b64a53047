package mcp_test

import (
	"bufio"
	"context"
	stdjson "encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/jsonrpc"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcp/driver"
)

// A hostileMessage is an invalid message in testdata/hostile.txt.
type hostileMessage struct {
	name, id, text string
	code           int
	silent         bool // has no response on a stream
}

// hostileMessages returns the messages in testdata/hostile.txt.
func hostileMessages(t testing.TB) (all []hostileMessage) {
	t.Helper()
	file, err := os.ReadFile("testdata/hostile.txt")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(file)) {
		line = strings.TrimSuffix(line, "\n")
		if line == "" || line[0] == '#' {
			continue
		}
		fields := strings.Split(line, "\t")
		if len(fields) != 4 {
			t.Fatalf("hostile.txt: %q", line)
		}
		m := hostileMessage{name: fields[0], id: strings.TrimPrefix(fields[2], "-"), silent: fields[1][0] == '('}
		if m.text, err = strconv.Unquote(fields[3]); err != nil {
			t.Fatalf("hostile.txt: %s: %v", fields[3], err)
		}
		if m.code, err = strconv.Atoi(strings.Trim(fields[1], "()")); err != nil {
			t.Fatalf("hostile.txt: %q: %v", line, err)
		}
		all = append(all, m)
	}
	return all
}

// initializeParams are the params of an initialize request.
const initializeParams = `{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"c","version":"1"}}`

// clientHistories are messages of clients before a test.
var clientHistories = map[string]func(c *byteClient){
	"before anything": func(*byteClient) {},
	"after a call":    func(c *byteClient) { c.good() },
	"2024-11-05":      func(c *byteClient) { c.open("2024-11-05") },
	"2025-03-26":      func(c *byteClient) { c.open("2025-03-26") },
	"2025-06-18":      func(c *byteClient) { c.open("2025-06-18") },
	"2025-11-25":      func(c *byteClient) { c.open("2025-11-25") },
}

// onClientHistories is onBytes after each of clientHistories.
func onClientHistories(t *testing.T, test func(t *testing.T, s *target, c *byteClient)) {
	t.Helper()
	for name, begin := range clientHistories {
		t.Run(name, func(t *testing.T) {
			onByteStreams(t, plainTarget, func(t *testing.T, s *target, c *byteClient) {
				begin(c)
				test(t, s, c)
			})
		})
	}
}

// Requirement: RPC-01, RPC-02, RPC-03, RPC-12, RPC-19, RPC-32
func TestInvalidMessagesAreAnswered(t *testing.T) {
	messages := hostileMessages(t)
	onClientHistories(t, func(t *testing.T, _ *target, c *byteClient) {
		for _, m := range messages {
			c.write(m.text)
			if !m.silent {
				got := c.next()
				if string(got.ID) != m.id || got.code() != m.code || got.Method != "" {
					t.Errorf("%s: got %s, want id %q and code %d", m.name, got.text, m.id, m.code)
				}
				if e := got.Error; e != nil && (e.Message == "" || len(e.Message) > 200 ||
					strings.Contains(e.Message, "\n")) {
					t.Errorf("%s: got error message %q, want one concise sentence", m.name, e.Message)
				}
			}
			c.good() // fails if there was another response
		}
		c.silent()
	})
}

// Each invalid line results in one error. The server reads the next line.
func TestInvalidLinesBetweenMessages(t *testing.T) {
	onByteStreams(t, plainTarget, func(t *testing.T, _ *target, c *byteClient) {
		for _, invalid := range []string{"", " \t", "\r", "\n\n\n", "\r\n\r\n"} {
			io.WriteString(c, invalid+"\n")
			c.good()
		}
		for _, invalid := range []string{"\x00", "\x04", "\x1b[2J", strings.Repeat("\xff", 100_000),
			strings.Repeat("[", 1_000_000), strings.Repeat(`{"a":`, 500_000)} {
			c.wantCode(c.ask(invalid), "", jsonrpc.CodeParseError)
			c.good()
		}
		for i := range `{"jsonrpc":"2.0","id":1,"method":"ping"}` { // a message on two lines is two invalid messages
			line := `{"jsonrpc":"2.0","id":1,"method":"ping"}`
			if i == 0 {
				continue
			}
			c.write(line[:i] + "\n" + line[i:])
			for range 2 {
				if got := c.next(); got.code() != jsonrpc.CodeParseError && got.code() != mcp.CodeInvalidRequest {
					t.Errorf("newline at byte %d: got %s, want a parse error or invalid request", i, got.text)
				}
			}
			c.good()
		}
		c.silent()
	})
}

// paramsOf lists members of the params of each method, with their types.
var paramsOf = []struct {
	method  string
	era     string // "modern" or "session" if only one has it
	members string // the other members, which are valid
	member  string
	kind    string
}{
	{"tools/list", "", ``, "cursor", "string"},
	{"prompts/list", "", ``, "cursor", "string"},
	{"resources/list", "", ``, "cursor", "string"},
	{"resources/templates/list", "", ``, "cursor", "string"},
	{"tools/call", "", ``, "name", "string"},
	{"tools/call", "", `"name":"echo",`, "arguments", "object"},
	{"tools/call", "modern", `"name":"echo",`, "inputResponses", "object"},
	{"tools/call", "modern", `"name":"echo",`, "requestState", "string"},
	{"prompts/get", "", ``, "name", "string"},
	{"prompts/get", "", `"name":"prompt",`, "arguments", "object"},
	{"prompts/get", "", `"name":"prompt",`, "arguments.arg", "string"},
	{"prompts/get", "modern", `"name":"prompt","arguments":{"arg":""},`, "requestState", "string"},
	{"resources/read", "", ``, "uri", "string"},
	{"resources/read", "modern", `"uri":"mem:x",`, "inputResponses", "object"},
	{"completion/complete", "", `"argument":{"name":"arg","value":"1"},`, "ref", "object"},
	{"completion/complete", "", `"ref":{"type":"ref/prompt","name":"prompt"},`, "argument", "object"},
	{"completion/complete", "", `"ref":{"type":"ref/prompt","name":"prompt"},"argument":{"name":"arg","value":"1"},`,
		"context.arguments", "object"},
	{"completion/complete", "", `"ref":{"type":"ref/prompt","name":"prompt"},"argument":{"name":"arg","value":"1"},`,
		"context", "object"},
	{"completion/complete", "", `"argument":{"name":"arg","value":"1"},`, "ref.type", "string"},
	{"completion/complete", "", `"ref":{"type":"ref/prompt","name":"prompt"},`, "argument.name", "string"},
	{"subscriptions/listen", "modern", ``, "notifications", "object"},
	{"subscriptions/listen", "modern", ``, "notifications.toolsListChanged", "boolean"},
	{"subscriptions/listen", "modern", ``, "notifications.promptsListChanged", "boolean"},
	{"subscriptions/listen", "modern", ``, "notifications.resourceSubscriptions", "array"},
	{"subscriptions/listen", "modern", ``, "notifications.resourceSubscriptions", "array of text"},
	{"resources/subscribe", "session", ``, "uri", "string"},
	{"resources/unsubscribe", "session", ``, "uri", "string"},
	{"logging/setLevel", "session", ``, "level", "string"},
}

// wrongValues are values of each type.
var wrongValues = map[string][]string{
	"string":  {`"\u0000"`},
	"object":  {`{}`},
	"array":   {`[]`, `[5]`, `[null]`},
	"number":  {`5`, `-1`, `1e400`},
	"boolean": {`true`},
	"null":    {`null`},
}

// optional contains the members that a request may omit.
var optional = map[string]bool{"cursor": true, "arguments": true, "inputResponses": true, "requestState": true,
	"context": true, "context.arguments": true}

// Requirement: RPC-32
func TestParamsOfOtherTypesAreInvalid(t *testing.T) {
	onByteStreams(t, plainTarget, func(t *testing.T, _ *target, c *byteClient) {
		c.open("2025-11-25")
		n := 0
		check := func(what string, request func(id string) string) {
			t.Helper()
			n++
			got := c.ask(request(strconv.Itoa(n)))
			if string(got.ID) != strconv.Itoa(n) || got.code() != mcp.CodeInvalidParams {
				t.Errorf("%s: got %s, want code -32602", what, got.text)
			}
		}
		for _, p := range paramsOf {
			for kind, values := range wrongValues {
				if kind == p.kind || kind == "null" && optional[p.member] { // null means absent
					continue
				}
				for _, value := range values {
					if value == "[]" && p.kind == "array of text" {
						continue
					}
					outer, inner, nested := strings.Cut(p.member, ".")
					if nested {
						value = `{"` + inner + `":` + value + `}`
					}
					params := p.members + `"` + outer + `":` + value
					if p.era != "session" {
						check(p.method+" "+params, func(id string) string {
							return modernRequestLine(id, p.method, params+",", "")
						})
					}
					if p.era != "modern" {
						check(p.method+" "+params, func(id string) string { return sessionRequest(id, p.method, `{`+params+`}`) })
					}
				}
			}
			if p.era != "modern" {
				check(p.method+" with an array", func(id string) string { return sessionRequest(id, p.method, `[]`) })
				check(p.method+" with _meta 5", func(id string) string { return sessionRequest(id, p.method, `{"_meta":5}`) })
			}
		}
		c.good()
		c.silent()
	})
}

// Requirement: META-10, META-17, META-18
func TestEnvelopesAreValidated(t *testing.T) {
	const version = `"io.modelcontextprotocol/protocolVersion":`
	const capabilities = `"io.modelcontextprotocol/clientCapabilities":`
	onClientHistories(t, func(t *testing.T, _ *target, c *byteClient) {
		for _, meta := range []string{
			version + `5,` + capabilities + `{}`,
			version + `"` + strings.Repeat("2", 1000) + `",` + capabilities + `{}`,
			version + `"2026-07-28"`,
			version + `"2026-07-28",` + capabilities + `[]`,
			version + `"2026-07-28",` + capabilities + `null`,
			version + `"2026-07-28",` + capabilities + `{},"io.modelcontextprotocol/clientInfo":"me"`,
			version + `"2026-07-28",` + capabilities + `{},"io.modelcontextprotocol/logLevel":"loud"`,
			version + `"2026-07-28",` + capabilities + `{},"io.modelcontextprotocol/logLevel":5`,
			version + `"2026-07-28",` + capabilities + `{},"progressToken":[]`,
		} {
			c.wantCode(c.ask(sessionRequest(`1`, "tools/list", `{"_meta":{`+meta+`}}`)), `1`, mcp.CodeInvalidParams)
		}
		for _, v := range []string{"", "2027-01-01", "2025-11-25", "2026-07-28 ", "2026-07-28\\u0000",
			"../../etc/passwd"} {
			got := c.ask(sessionRequest(`1`, "tools/list", `{"_meta":{`+version+`"`+v+`",`+capabilities+`{}}}`))
			c.wantCode(got, `1`, driver.CodeUnsupportedProtocolVersion)
			if want := `"supported":["2026-07-28"`; !strings.Contains(got.text, want) {
				t.Errorf("version %q: got %s, want %s", v, got.text, want)
			}
		}
		c.good()
		c.silent()
	})
}

// Requirement: RPC-14, RPC-31, PING-04
func TestUnknownMethodsAreNotFound(t *testing.T) {
	methods := []string{"x", "tools/callx", "TOOLS/LIST", "tools/list ", "tools/list\\u0000", "rpc.discover",
		"__proto__", "../tools/list",
		"sampling/createMessage", "roots/list", "elicitation/create", "notifications/initialized",
		"notifications/cancelled", "tasks/get",
		"%s%n", strings.Repeat("m", 10_000)}
	onByteStreams(t, plainTarget, func(t *testing.T, _ *target, c *byteClient) {
		c.open("2025-11-25")
		for _, method := range methods {
			for _, request := range []string{modernRequestLine(`1`, method, "", ""), sessionRequest(`1`, method, `{}`)} {
				got := c.ask(request)
				if c.wantCode(got, `1`, mcp.CodeMethodNotFound); len(got.text) > 1000 {
					t.Errorf("%.40s: got a response of %d bytes, want at most 1000", method, len(got.text))
				}
			}
			c.write(`{"jsonrpc":"2.0","method":"` + method + `"}`) // as a notification it is ignored
		}
		for _, method := range []string{"ping", "logging/setLevel", "resources/subscribe", "initialize"} {
			c.wantCode(c.ask(modernRequestLine(`1`, method, "", "")), `1`, mcp.CodeMethodNotFound)
		}
		for _, method := range []string{"server/discover", "subscriptions/listen"} {
			c.wantCode(c.ask(sessionRequest(`1`, method, `{}`)), `1`, mcp.CodeMethodNotFound)
		}
		c.good()
		c.silent()
	})
}

// The server ignores responses, cancellations and notifications that belong to no request.
//
// Requirement: RPC-14, CAN-05, CAN-09
func TestUnknownResponsesAndNotificationsAreIgnored(t *testing.T) {
	onClientHistories(t, func(t *testing.T, _ *target, c *byteClient) {
		for _, id := range []string{`1`, `"x"`, `-5`, `""`, `99999999999999999999`} {
			c.write(`{"jsonrpc":"2.0","id":`+id+`,"result":{"action":"accept"}}`,
				`{"jsonrpc":"2.0","id":`+id+`,"result":null}`,
				`{"jsonrpc":"2.0","id":`+id+`,"error":{"code":-32000,"message":"no"}}`,
				`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":`+id+`}}`)
		}
		c.write(`{"jsonrpc":"2.0","error":{"code":-32000,"message":"no"}}`,
			`{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"no"}}`)
		for _, params := range []string{`{}`, `[]`, `{"requestId":null}`, `{"requestId":1.5}`, `{"requestId":{}}`,
			`{"requestId":"` + strings.Repeat("r", 10_000) + `"}`,
			`{"requestId":1,"reason":5}`, `{"requestId":1,"reason":"` + strings.Repeat("r", 100_000) + `"}`} {
			c.write(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":` + params + `}`)
		}
		for _, method := range []string{"notifications/progress", "notifications/initialized",
			"notifications/roots/list_changed", "notifications/message", "tools/list", "initialize"} {
			c.write(`{"jsonrpc":"2.0","method":"`+method+`"}`,
				`{"jsonrpc":"2.0","method":"`+method+`","params":{"progressToken":[],"progress":"x"}}`)
		}
		c.good()
		c.silent()
	})
}

// Requirement: RPC-15, RPC-16, RPC-18
func TestBatchesOnlyIn20250326(t *testing.T) {
	batch := `[` + sessionRequest(`1`, "ping", `{}`) + `]`
	onClientHistories(t, func(t *testing.T, _ *target, c *byteClient) {
		c.wantCode(c.ask(`[]`), "", mcp.CodeInvalidRequest)
		c.wantCode(c.ask(`[`), "", jsonrpc.CodeParseError)
		c.wantCode(c.ask(`[`+sessionRequest(`1`, "ping", `{}`)+`,`), "", jsonrpc.CodeParseError)
		c.good()
		if strings.Contains(c.Name(), "2025-03-26") {
			got := c.ask(`[5,` + sessionRequest(`1`, "ping", `{}`) +
				`,{"jsonrpc":"2.0","id":2,"method":1},[],{"jsonrpc":"2.0","id":3,"result":{}}]`)
			for _, want := range []string{`"id":1,"result":{}`, `"id":2,"error":{"code":-32600`} {
				if strings.Count(got.text, `"jsonrpc"`) != 4 || !strings.Contains(got.text, want) {
					t.Errorf("got %s, want four responses, one of them %s", got.text, want)
				}
			}
		} else {
			c.wantCode(c.ask(batch), "", mcp.CodeInvalidRequest)
			c.wantCode(c.ask(`[`+modernRequestLine(`1`, "tools/list", "", "")+`]`), "", mcp.CodeInvalidRequest)
		}
		c.good()
		c.silent()
	})
}

func TestErrorOfAPanicHasNoDetails(t *testing.T) {
	onByteStreams(t, plainTarget, func(t *testing.T, _ *target, c *byteClient) {
		c.open("2025-11-25")
		for _, request := range []string{envelopedCall(`1`, "panic", ""), bareCall(`1`, "panic", "")} {
			got := c.ask(request)
			if c.wantCode(got, `1`, mcp.CodeInternalError); strings.Contains(got.text, "secret") ||
				strings.Contains(got.text, "goroutine") {
				t.Errorf("got %s, want no text of the panic", got.text)
			}
			c.good()
		}
	})
}

// Requirement: RPC-05, RPC-06
func TestDuplicateIDInFlightIsRejected(t *testing.T) {
	onByteStreams(t, plainTarget, func(t *testing.T, s *target, c *byteClient) {
		c.open("2025-11-25")
		c.write(envelopedCall(`7`, "wait", ""))
		<-s.began
		for _, request := range []string{envelopedCall(`7`, "echo", ""), bareCall(`7`, "echo", "")} {
			c.wantCode(c.ask(request), `7`, mcp.CodeInvalidRequest)
		}
		c.wantCode(c.ask(bareCall(`"7"`, "echo", "")), `"7"`, 0) // the string is another id
		s.proceed <- struct{}{}
		c.wantCode(c.next(), `7`, 0)
		c.wantCode(c.ask(bareCall(`7`, "echo", "")), `7`, 0)
	})
}

func TestManyPingsAreAnsweredInOrder(t *testing.T) {
	const pings = 10_000
	onByteStreams(t, plainTarget, func(t *testing.T, _ *target, c *byteClient) {
		c.open("2025-11-25")
		go func() {
			for n := range pings {
				io.WriteString(c, sessionRequest(strconv.Itoa(n), "ping", `{}`)+"\n")
			}
		}()
		for n := range pings {
			c.wantCode(c.next(), strconv.Itoa(n), 0)
		}
		c.good()
		c.silent()
	})
}

// The server stops reading from a client that does not read, so that its memory is limited.
func TestPingsOfAClientThatDoesNotReadAreLimited(t *testing.T) {
	for name, transport := range byteTransports {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := newNonReadingClient(t, newTarget(nil), transport)
				before := heapInUse()
				sent := 0
				go func() {
					for {
						params := `{"pad":"` + strings.Repeat("x", 20_000) + `"}`
						if _, err := io.WriteString(d.w, sessionRequest(strconv.Itoa(sent), "ping", params)+"\n"); err != nil {
							return
						}
						sent++
					}
				}()
				synctest.Wait()
				if sent > 1000 {
					t.Errorf("%d pings were read and not answered, want at most 1000", sent)
				}
				if grown := heapInUse() - before; grown > 8<<20 {
					t.Errorf("the heap has grown by %d bytes, want at most 8 MiB", grown)
				}
				d.disconnect()
			})
		})
	}
}

// A nonReadingClient writes to the server, and does not read.
type nonReadingClient struct {
	*testing.T
	w      io.WriteCloser
	r      io.Reader
	served chan error
}

func newNonReadingClient(t *testing.T, h mcp.Handler, transport byteTransport) *nonReadingClient {
	conn, w, r := transport(nil)
	d := &nonReadingClient{T: t, w: w, r: r, served: make(chan error, 1)}
	go func() {
		d.served <- mcp.Serve(t.Context(), h, conn, &mcp.ServeOptions{Logger: slog.New(slog.DiscardHandler)})
	}()
	return d
}

// disconnect closes the connection and waits until Serve returns.
func (d *nonReadingClient) disconnect() {
	d.Helper()
	d.r.(io.Closer).Close()
	d.w.Close()
	if err := <-d.served; err != nil && !errors.Is(err, mcp.ErrDisconnected) {
		d.Errorf("Serve: got %v, want ErrDisconnected or nil", err)
	}
}

// heapInUse returns the bytes in use. Two collections empty sync.Pools.
func heapInUse() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func TestUnreadMessagesUseLimitedMemoryAndDelayNoOtherClient(t *testing.T) {
	const budget = 16 << 20
	for name, transport := range byteTransports {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newTarget(nil)
				other := dialBytes(t, s, transport, nil, nil)
				other.good()
				before := heapInUse()
				d := newNonReadingClient(t, s, transport)
				for n := range 10 {
					io.WriteString(d.w, envelopedCall(strconv.Itoa(n), "flood", "")+"\n")
				}
				io.WriteString(d.w, sessionRequest(`"i"`, "initialize", initializeParams)+"\n"+
					bareCall(`"s"`, "flood", "")+"\n")
				synctest.Wait()
				grown := heapInUse() - before
				t.Logf("the heap has grown by %d KiB", grown>>10)
				if grown > budget {
					t.Errorf("the heap has grown by %d bytes, want at most %d", grown, budget)
				}
				begin := time.Now()
				for range 100 {
					other.good()
				}
				if waited := time.Since(begin); waited != 0 {
					t.Errorf("another client waited for %v, want no time", waited)
				}
				d.disconnect()
			})
		})
	}
}

// Many changes that a client has not read become one notification. ResourceUpdated does not block.
func TestUnreadChangesAreMerged(t *testing.T) {
	for name, transport := range byteTransports {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newTarget(nil)
				d := newNonReadingClient(t, s, transport)
				filter := `"notifications":{"resourceSubscriptions":["mem:x"]},`
				for _, line := range []string{
					sessionRequest(`1`, "initialize", initializeParams),
					`{"jsonrpc":"2.0","method":"notifications/initialized"}`,
					sessionRequest(`2`, "resources/subscribe", `{"uri":"mem:x"}`),
					modernRequestLine(`3`, "subscriptions/listen", filter, ""),
				} {
					io.WriteString(d.w, line+"\n")
				}
				synctest.Wait()
				before, begin := heapInUse(), time.Now()
				for range 100_000 {
					s.ResourceUpdated("mem:x")
				}
				synctest.Wait()
				if grown := heapInUse() - before; grown > 1<<20 || time.Since(begin) != 0 {
					t.Errorf("100,000 changes took %d bytes and %v, want at most 1 MiB and no time", grown,
						time.Since(begin))
				}
				updates := 0
				go func() {
					lines := bufio.NewScanner(d.r)
					for lines.Scan() {
						if strings.Contains(lines.Text(), "resources/updated") {
							updates++
						}
					}
				}()
				synctest.Wait()
				if updates < 2 || updates > 6 {
					t.Errorf("got %d notifications, want 1 to 3 per subscription", updates)
				}
				d.disconnect()
			})
		})
	}
}

// lineTransports returns byteTransports and an adapter of mcp.Pipe.
func lineTransports() map[string]byteTransport {
	all := map[string]byteTransport{"in memory": func(*mcp.StreamConnOptions) (mcp.Conn, io.WriteCloser, io.Reader) {
		client, server := mcp.Pipe()
		r, out := io.Pipe()
		go func() {
			for {
				m, err := client.Read(context.Background())
				if err != nil {
					out.CloseWithError(io.EOF)
					return
				}
				out.Write(append(jsonrpc.Append(nil, m), '\n'))
			}
		}()
		return server, messageWriter{client}, r
	}}
	for name, transport := range byteTransports {
		all[name] = transport
	}
	return all
}

// A messageWriter decodes lines and writes them as messages.
type messageWriter struct{ mcp.Conn }

func (w messageWriter) Write(p []byte) (int, error) {
	for line := range strings.Lines(string(p)) {
		m, err := jsonrpc.Decode([]byte(line))
		if err != nil {
			return 0, err
		}
		if err := w.Conn.Write(context.Background(), m); err != nil {
			return 0, err
		}
	}
	return len(p), nil
}

// Requirement: PROG-03
func TestNotificationsOfABurstArriveInOrder(t *testing.T) {
	for name, transport := range lineTransports() {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := dialBytes(t, newTarget(nil), transport, nil, nil)
				c.open("2025-11-25")
				c.wantCode(c.ask(sessionRequest(`0`, "logging/setLevel", `{"level":"debug"}`)), `0`, 0)
				c.write(modernRequestLine(`1`, "tools/call", `"name":"burst",`, `,"progressToken":"p"`))
				c.wholeBurst(`1`, `"p"`)
				c.write(sessionRequest(`2`, "tools/call", `{"name":"burst","_meta":{"progressToken":5}}`))
				c.wholeBurst(`2`, `5`)
				c.good()
			})
		})
	}
}

// wholeBurst receives all messages of the tool "burst" and checks their order.
func (c *byteClient) wholeBurst(id, token string) {
	c.Helper()
	notes, progress := 0, 0
	for {
		m := c.next()
		var p struct {
			Data          string
			ProgressToken stdjson.RawMessage
			Progress      int
		}
		stdjson.Unmarshal(m.Params, &p)
		switch m.Method {
		case "notifications/message":
			if p.Data != strconv.Itoa(notes) {
				c.Fatalf("got log message %s, want %d", p.Data, notes)
			}
			notes++
		case "notifications/progress":
			if progress++; p.Progress != progress || string(p.ProgressToken) != token {
				c.Fatalf("got %s, want progress %d of token %s", m.text, progress, token)
			}
		default:
			c.wantCode(m, id, 0)
			if notes != burstNotes || progress != burstProgress {
				c.Errorf("got %d log messages and %d of progress before the result, want %d and %d",
					notes, progress, burstNotes, burstProgress)
			}
			return
		}
	}
}

// The stream may end within a message. Serve returns no error.
func TestStreamMayEndWithinAMessage(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	requests := []string{
		envelopedCall(`1`, "echo", `"text":"a"`),
		sessionRequest(`1`, "initialize", initializeParams),
	}
	for _, request := range requests {
		for cut := range len(request) + 2 {
			t.Run(fmt.Sprintf("%.60s/%d", request, cut), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					c := dialBytes(t, newTarget(nil), byteTransports["pipes"], nil, nil)
					io.WriteString(c, (request + "\n")[:cut])
					c.end.Close()
					var answers []wireLine
					for line := range c.lines {
						answers = append(answers, line)
					}
					switch whole := cut >= len(request); {
					case cut == 0 && len(answers) != 0, cut > 0 && len(answers) != 1:
						t.Errorf("got %d responses, want 1, or none for no bytes", len(answers))
					case whole && answers[0].code() != 0, cut > 0 && !whole &&
						answers[0].code() != jsonrpc.CodeParseError:
						t.Errorf("got %s, want a parse error unless the message is complete", answers[0].text)
					}
					if err := <-c.served; err != nil {
						t.Errorf("Serve: %v", err)
					}
					c.served <- nil // for the end of the test
				})
			})
		}
	}
}
