package mcp_test

import (
	"bufio"
	"context"
	stdjson "encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/mcp"
)

// A target is a server with a feature for every request that a hostile client may send.
type target struct {
	*mcp.Server
	proceed chan struct{} // each value lets one waiting tool return
	began   chan struct{} // receives one value from each tool that waits
}

func newTarget(opts *mcp.ServerOptions) *target {
	if opts == nil {
		opts = &mcp.ServerOptions{}
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	s := &target{mcp.NewServer("target", "1", opts), make(chan struct{}), make(chan struct{}, 20_000)}
	type text struct {
		Text string `json:"text,omitempty"`
	}
	mcp.AddTool(s.Server, &mcp.Tool{Name: "echo"}, func(_ context.Context, in text) (string, error) { return in.Text, nil })
	mcp.AddTool(s.Server, &mcp.Tool{Name: "wait"}, func(ctx context.Context, _ text) (string, error) {
		s.began <- struct{}{}
		select {
		case <-s.proceed:
			return "waited", nil
		case <-ctx.Done():
			return "", context.Cause(ctx)
		}
	})
	mcp.AddTool(s.Server, &mcp.Tool{Name: "stubborn"}, func(context.Context, text) (string, error) {
		s.began <- struct{}{}
		<-s.proceed
		return "waited", nil
	})
	mcp.AddTool(s.Server, &mcp.Tool{Name: "panic"}, func(context.Context, text) (string, error) { panic("secret") })
	mcp.AddTool(s.Server, &mcp.Tool{Name: "ask"}, func(ctx context.Context, in text) (string, error) {
		answer, err := mcp.Ask[string](ctx, "question", "What?", nil)
		return in.Text + answer, err
	})
	mcp.AddTool(s.Server, &mcp.Tool{Name: "burst"}, func(ctx context.Context, _ text) (string, error) {
		for n := range burstNotes {
			mcp.Logger(ctx).Info(strconv.Itoa(n))
			if n < burstProgress {
				mcp.Progress(ctx, float64(n+1), burstProgress, "")
			}
		}
		return "burst", nil
	})
	mcp.AddTool(s.Server, &mcp.Tool{Name: "flood"}, func(ctx context.Context, _ text) (string, error) {
		line := strings.Repeat("x", 10_000)
		for range 100 << 20 / len(line) {
			if err := mcp.RequestFrom(ctx).Notify(ctx, "notifications/message", []byte(`{"level":"info","data":"`+line+`"}`)); err != nil {
				return "", err
			}
		}
		return "flooded", nil
	})
	mcp.AddResourceTemplate(s.Server, &mcp.ResourceTemplate{URITemplate: "mem:{+path}", Name: "memory"},
		func(_ context.Context, v struct {
			Path string `json:"path"`
		}) (string, error) {
			return strconv.Itoa(len(v.Path)), nil
		})
	values := make([]string, 0, 101)
	for n := range 101 {
		values = append(values, fmt.Sprintf("v%03d", n))
	}
	mcp.AddPrompt(s.Server, &mcp.Prompt{Name: "prompt", Complete: map[string]mcp.CompleteFunc{
		"arg": func(_ context.Context, typed string, _ map[string]string) ([]string, error) {
			n, err := strconv.Atoi(typed)
			return values[:min(n, len(values))], err
		}}}, func(_ context.Context, in struct {
		Arg string `json:"arg"`
	}) (string, error) {
		return in.Arg, nil
	})
	return s
}

// The tool "burst" sends this many log messages and progress notifications.
const burstNotes, burstProgress = 3000, 500

// A byteClient is a client that writes bytes rather than messages.
type byteClient struct {
	*testing.T
	io.Writer
	end    io.Closer     // of what the server reads
	lines  chan wireLine // what the server wrote; closed at its end
	stop   context.CancelFunc
	served chan error // what Serve returned
}

// A wireLine is one message of the server.
type wireLine struct {
	text   string
	ID     stdjson.RawMessage
	Method string
	Params stdjson.RawMessage
	Result stdjson.RawMessage
	Error  *struct {
		Code    int
		Message string
		Data    stdjson.RawMessage
	}
}

// code is that of the error, 0 for a result.
func (l wireLine) code() int {
	if l.Error == nil {
		return 0
	}
	return l.Error.Code
}

// A byteTransport returns the server's Conn and the client's ends of a stream.
type byteTransport func(opts *mcp.StreamConnOptions) (server mcp.Conn, w io.WriteCloser, r io.Reader)

// byteTransports are the kinds of streams: those with deadlines are read differently from those without.
var byteTransports = map[string]byteTransport{
	"pipes": func(opts *mcp.StreamConnOptions) (mcp.Conn, io.WriteCloser, io.Reader) {
		in, w := io.Pipe()
		r, out := io.Pipe()
		return mcp.NewStreamConn(in, out, opts), w, r
	},
	"socket": func(opts *mcp.StreamConnOptions) (mcp.Conn, io.WriteCloser, io.Reader) {
		client, server := net.Pipe()
		return mcp.NewStreamConn(server, server, opts), client, client
	},
}

// onByteStreams runs a test in a synctest bubble on every kind of byte stream, each with its own server.
func onByteStreams(t *testing.T, make func() *target, test func(t *testing.T, s *target, c *byteClient)) {
	t.Helper()
	for name, transport := range byteTransports {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := make()
				test(t, s, dialBytes(t, s, transport, nil, nil))
			})
		})
	}
}

func plainTarget() *target { return newTarget(nil) }

// dialBytes connects a client that is closed when the test ends.
func dialBytes(t *testing.T, h mcp.Handler, transport byteTransport, so *mcp.StreamConnOptions, opts *mcp.ServeOptions) *byteClient {
	t.Helper()
	conn, w, r := transport(so)
	c := &byteClient{T: t, Writer: w, end: w, lines: make(chan wireLine, 1<<15), served: make(chan error, 1)}
	if opts == nil {
		opts = &mcp.ServeOptions{}
	}
	opts.Logger = slog.New(slog.DiscardHandler)
	var ctx context.Context
	ctx, c.stop = context.WithCancel(context.Background())
	go func() { c.served <- mcp.Serve(ctx, h, conn, opts) }()
	go c.receive(r)
	t.Cleanup(func() {
		c.stop()
		for range c.lines {
		}
		<-c.served
		c.end.Close()
	})
	return c
}

func (c *byteClient) receive(r io.Reader) {
	defer close(c.lines)
	lines := bufio.NewReader(r)
	for {
		text, err := lines.ReadString('\n')
		if err != nil {
			if !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrClosedPipe) {
				c.Errorf("read: %v", err)
			}
			return
		}
		line := wireLine{text: strings.TrimSuffix(text, "\n")}
		if err := stdjson.Unmarshal([]byte(text), &line); err != nil && !strings.HasPrefix(text, "[") {
			c.Errorf("the server wrote %q: %v", text, err)
		}
		c.lines <- line
	}
}

// write sends lines.
func (c *byteClient) write(lines ...string) {
	c.Helper()
	for _, line := range lines {
		if _, err := io.WriteString(c, line+"\n"); err != nil {
			c.Fatalf("write: %v", err)
		}
	}
}

// next returns the next message of the server. It fails if the stream ends or no message arrives.
func (c *byteClient) next() wireLine {
	c.Helper()
	timer := time.NewTimer(5 * time.Minute) // of the bubble's time
	defer timer.Stop()
	select {
	case line, ok := <-c.lines:
		if !ok {
			c.Fatal("the stream has ended, want a message")
		}
		return line
	case <-timer.C:
		c.Fatal("got no message within 5 minutes")
	}
	panic("unreachable")
}

// silent checks that the server has written nothing that the test has not read.
func (c *byteClient) silent() {
	c.Helper()
	synctest.Wait()
	select {
	case line := <-c.lines:
		c.Errorf("the server wrote %s, want nothing", line.text)
	default:
	}
}

// ask sends a request and returns the next message, which must be the response.
func (c *byteClient) ask(line string) wireLine {
	c.Helper()
	c.write(line)
	return c.next()
}

// good checks that the stream still works: one call is answered once.
func (c *byteClient) good() {
	c.Helper()
	const want = `"content":[{"type":"text","text":"good"}]`
	got := c.ask(envelopedCall(`"good"`, "echo", `"text":"good"`))
	if string(got.ID) != `"good"` || !strings.Contains(got.text, want) {
		c.Errorf("valid call: got %.300s, want %s", got.text, want)
	}
}

// wantCode checks the id and error code of a response. An empty id means no id, code 0 a result.
func (c *byteClient) wantCode(got wireLine, id string, code int) {
	c.Helper()
	if string(got.ID) != id || got.code() != code {
		c.Errorf("got response %.300s, want id %q and code %d", got.text, id, code)
	}
}

const envelopeMembers = `"io.modelcontextprotocol/protocolVersion":"2026-07-28",` +
	`"io.modelcontextprotocol/clientCapabilities":{"elicitation":{}},"io.modelcontextprotocol/logLevel":"debug"`

// modernRequestLine returns a modern request. Members of params end with a comma, those of _meta begin with one.
func modernRequestLine(id, method, params, meta string) string {
	return `{"jsonrpc":"2.0","id":` + id + `,"method":"` + method + `","params":{` + params + `"_meta":{` + envelopeMembers + meta + `}}}`
}

func envelopedCall(id, tool, arguments string) string {
	return modernRequestLine(id, "tools/call", `"name":"`+tool+`","arguments":{`+arguments+`},`, "")
}

// sessionRequest returns a request of a session.
func sessionRequest(id, method, params string) string {
	return `{"jsonrpc":"2.0","id":` + id + `,"method":"` + method + `","params":` + params + `}`
}

func bareCall(id, tool, arguments string) string {
	return sessionRequest(id, "tools/call", `{"name":"`+tool+`","arguments":{`+arguments+`}}`)
}

// open opens a session of a revision.
func (c *byteClient) open(revision string) {
	c.Helper()
	got := c.ask(sessionRequest(`"open"`, "initialize", `{"protocolVersion":"`+revision+`","capabilities":{"elicitation":{}},"clientInfo":{"name":"c","version":"1"}}`))
	c.wantCode(got, `"open"`, 0)
	c.write(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
}

func TestLinesOverTheLimitAreRefused(t *testing.T) {
	line := func(id string, n int) string {
		const head, tail = `{"jsonrpc":"2.0","method":"ping","params":{"pad":"`, `"}}`
		end := `"},"id":` + id + `}`
		return head + strings.Repeat("x", n-len(head)-len(end)) + end
	}
	for _, test := range []struct {
		name string
		opts *mcp.StreamConnOptions
		max  int
	}{
		{"default", nil, 32 << 20},
		{"option", &mcp.StreamConnOptions{MaxMessage: 1000}, 1000},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := dialBytes(t, newTarget(nil), byteTransports["pipes"], test.opts, nil)
				c.wantCode(c.ask(line(`1`, test.max)), `1`, 0)
				got := c.ask(line(`2`, test.max+1))
				c.wantCode(got, "", mcp.CodeInvalidRequest)
				if got.Error == nil || !strings.Contains(got.Error.Message, strconv.Itoa(test.max)) {
					t.Errorf("got %s, want an error that states the limit %d", got.text, test.max)
				}
				c.good()
				c.silent()
			})
		})
	}
}

func TestJSONDepthAndKeysAreLimited(t *testing.T) {
	nested := func(depth int) string { return strings.Repeat("[", depth) + strings.Repeat("]", depth) }
	object := func(keys int) string {
		var b strings.Builder
		for n := range keys {
			fmt.Fprintf(&b, `,"k%d":0`, n)
		}
		return "{" + strings.TrimPrefix(b.String(), ",") + "}"
	}
	onByteStreams(t, plainTarget, func(t *testing.T, _ *target, c *byteClient) {
		for i, test := range []struct {
			params string
			code   int
		}{
			{`{"a":` + nested(62) + `}`, 0}, // with the message's own two levels
			{`{"a":` + nested(63) + `}`, mcp.CodeInvalidRequest},
			{`{"a":` + nested(100_000) + `}`, mcp.CodeInvalidRequest},
			{object(10_000), 0},
			{object(10_001), mcp.CodeInvalidRequest},
			{`{"a":` + object(10_001) + `}`, mcp.CodeInvalidRequest},
		} {
			id := strconv.Itoa(i)
			c.wantCode(c.ask(sessionRequest(id, "ping", test.params)), id, test.code)
			c.wantCode(c.ask(`{"jsonrpc":"2.0","method":"ping","params":`+test.params+`,"id":`+id+`}`), id, test.code)
		}
		c.good()
	})
}

func TestLengthOfRequestIDsIsLimited(t *testing.T) {
	onByteStreams(t, plainTarget, func(t *testing.T, _ *target, c *byteClient) {
		for _, id := range []string{`"` + strings.Repeat("i", 256) + `"`, strings.Repeat("9", 20), "-" + strings.Repeat("9", 20), `""`, `0`} {
			c.wantCode(c.ask(sessionRequest(id, "ping", `{}`)), id, 0)
			c.wantCode(c.ask(modernRequestLine(id, "tools/list", "", "")), id, 0)
		}
		for _, id := range []string{`"` + strings.Repeat("i", 257) + `"`, strings.Repeat("9", 21), "-" + strings.Repeat("9", 21)} {
			c.wantCode(c.ask(sessionRequest(id, "ping", `{}`)), "", mcp.CodeInvalidRequest)
			c.wantCode(c.ask(modernRequestLine(id, "tools/list", "", "")), "", mcp.CodeInvalidRequest)
		}
		c.good()
	})
}

func TestLengthOfProgressTokensIsLimited(t *testing.T) {
	onByteStreams(t, plainTarget, func(t *testing.T, _ *target, c *byteClient) {
		c.open("2025-11-25")
		for _, test := range []struct {
			token string
			code  int
		}{
			{`"` + strings.Repeat("t", 256) + `"`, 0},
			{`"` + strings.Repeat("t", 257) + `"`, mcp.CodeInvalidParams},
			{strings.Repeat("9", 20), 0},
			{strings.Repeat("9", 21), mcp.CodeInvalidParams},
			{`1.5`, mcp.CodeInvalidParams}, {`null`, 0}, {`{}`, mcp.CodeInvalidParams},
		} {
			c.wantCode(c.ask(modernRequestLine(`1`, "tools/list", "", `,"progressToken":`+test.token)), `1`, test.code)
			c.wantCode(c.ask(sessionRequest(`2`, "tools/list", `{"_meta":{"progressToken":`+test.token+`}}`)), `2`, test.code)
		}
		c.good()
	})
}

// Foreign cursors are refused. The server accepts its own cursors, however long the names in them are.
//
// Requirement: PAG-07
func TestForeignCursorsAreRefusedAndLongOwnCursorsWork(t *testing.T) {
	newLongNames := func(n int) *target {
		s := newTarget(&mcp.ServerOptions{PageSize: 1})
		for i := range 3 {
			uri := "mem:" + strconv.Itoa(i) + strings.Repeat("u", n-5)
			mcp.AddResource(s.Server, &mcp.Resource{URI: uri, Name: "long"}, func(context.Context, string) (string, error) { return "", nil })
		}
		return s
	}
	for _, n := range []int{10, 2000, 8 << 10} {
		t.Run(strconv.Itoa(n), func(t *testing.T) {
			onByteStreams(t, func() *target { return newLongNames(n) }, func(t *testing.T, _ *target, c *byteClient) {
				cursor := ""
				for page := range 3 {
					got := c.ask(modernRequestLine(`1`, "resources/list", cursor, ""))
					var list struct {
						Resources  []struct{}
						NextCursor string
					}
					stdjson.Unmarshal(got.Result, &list)
					if len(list.Resources) != 1 || (list.NextCursor == "") != (page == 2) {
						t.Fatalf("page %d: got %.300s for a cursor of %d bytes, want one resource", page, got.text, len(cursor))
					}
					cursor = `"cursor":"` + list.NextCursor + `",`
				}
			})
		})
	}
	onByteStreams(t, plainTarget, func(t *testing.T, _ *target, c *byteClient) {
		for _, cursor := range []string{`""`, `5`, `"x"`, `"` + strings.Repeat("A", 4<<10) + `"`,
			`"` + strings.Repeat("A", 1<<20) + `"`} {
			c.wantCode(c.ask(modernRequestLine(`1`, "tools/list", `"cursor":`+cursor+`,`, "")), `1`, mcp.CodeInvalidParams)
		}
		c.good()
	})
}

// Requirement: MRTR-12
func TestForeignAndLongRequestStatesAreRefused(t *testing.T) {
	onByteStreams(t, plainTarget, func(t *testing.T, _ *target, c *byteClient) {
		call := func(state string) wireLine {
			return c.ask(modernRequestLine(`1`, "tools/call", `"name":"ask","requestState":`+state+`,"inputResponses":{"question":{"action":"accept","content":{"value":"a"}}},`, ""))
		}
		asked := c.ask(envelopedCall(`1`, "ask", ""))
		var p struct{ RequestState string }
		stdjson.Unmarshal(asked.Result, &p)
		if got := call(`"` + p.RequestState + `"`); !strings.Contains(got.text, `"text":"a"`) {
			t.Errorf("valid state: got %s, want the answer \"a\"", got.text)
		}
		for _, state := range []string{`""`, `5`, `"x"`, `"` + p.RequestState + `A"`,
			`"` + strings.Repeat("A", 64<<10) + `"`, `"` + strings.Repeat("A", 64<<10+1) + `"`} {
			c.wantCode(call(state), `1`, mcp.CodeInvalidParams)
		}
		c.good()
	})
}

func TestCallsInFlightOfAStreamAreLimited(t *testing.T) {
	for _, test := range []struct {
		name string
		opts *mcp.ServeOptions
		max  int
	}{
		{"default", nil, 256},
		{"option", &mcp.ServeOptions{MaxInFlight: 3}, 3},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newTarget(nil)
				c := dialBytes(t, s, byteTransports["pipes"], nil, test.opts)
				c.open("2025-06-18")
				for n := range test.max { // modern and session calls count together
					if n%2 == 0 {
						c.write(envelopedCall(strconv.Itoa(n), "stubborn", ""))
					} else {
						c.write(bareCall(strconv.Itoa(n), "stubborn", ""))
					}
				}
				c.silent()
				if got := len(s.began); got != test.max {
					t.Errorf("got %d running calls, want %d", got, test.max)
				}
				busy := func() {
					t.Helper()
					for _, request := range []string{envelopedCall(`"more"`, "echo", ""), bareCall(`"more"`, "echo", "")} {
						got := c.ask(request)
						c.wantCode(got, `"more"`, mcp.CodeBusy)
						if got.Error == nil || string(got.Error.Data) != `{"retryAfterMs":1000}` {
							t.Errorf("got %s, want retryAfterMs 1000", got.text)
						}
					}
				}
				busy()
				c.wantCode(c.ask(sessionRequest(`"ping"`, "ping", `{}`)), `"ping"`, 0)
				c.write(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":0}}`)
				busy() // a call that was cancelled counts until its handler returns
				s.proceed <- struct{}{}
				synctest.Wait()
				for len(c.lines) > 0 { // the response of the released call, unless that is the cancelled one
					c.next()
				}
				c.good()
				for range test.max - 1 {
					s.proceed <- struct{}{}
				}
			})
		})
	}
}

func TestCallsInFlightOfAServerAreLimited(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	for _, test := range []struct {
		name string
		opts *mcp.ServerOptions
		max  int
	}{
		{"default", nil, 10_000},
		{"option", &mcp.ServerOptions{MaxInFlight: 3}, 3},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newTarget(test.opts)
				var clients []*byteClient
				for n := range test.max {
					if n%250 == 0 {
						clients = append(clients, dialBytes(t, s, byteTransports["pipes"], nil, nil))
					}
					clients[len(clients)-1].write(envelopedCall(strconv.Itoa(n), "wait", ""))
				}
				c := clients[0]
				c.silent()
				got := c.ask(envelopedCall(`"more"`, "echo", ""))
				c.wantCode(got, `"more"`, mcp.CodeBusy)
				if got.Error == nil || string(got.Error.Data) != `{"retryAfterMs":1000}` {
					t.Errorf("got %s, want retryAfterMs 1000", got.text)
				}
				s.proceed <- struct{}{}
				synctest.Wait()
				for len(c.lines) > 0 {
					c.next()
				}
				c.good()
			})
		})
	}
}

// Subscriptions stay open for days and do nothing: they have limits of their own.
func TestSubscriptionsDoNotCountAsCallsInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := dialBytes(t, newTarget(&mcp.ServerOptions{MaxInFlight: 1}), byteTransports["pipes"], nil, nil)
		for n := range 3 {
			got := c.ask(modernRequestLine(strconv.Itoa(n), "subscriptions/listen", `"notifications":{"toolsListChanged":true},`, ""))
			if got.Method != "notifications/subscriptions/acknowledged" {
				t.Errorf("subscription %d: got %s, want an acknowledgement", n, got.text)
			}
		}
		c.good()
	})
}

// Requirement: CMP-03
func TestCompletionReturnsAtMost100Values(t *testing.T) {
	onByteStreams(t, plainTarget, func(t *testing.T, _ *target, c *byteClient) {
		complete := func(value string) wireLine {
			return c.ask(modernRequestLine(`1`, "completion/complete", `"ref":{"type":"ref/prompt","name":"prompt"},"argument":{"name":"arg","value":"`+value+`"},`, ""))
		}
		for _, test := range []struct {
			has, shown int
			more       bool
		}{{99, 99, false}, {100, 100, false}, {101, 100, true}} {
			var got struct {
				Completion struct {
					Values  []string
					Total   int
					HasMore bool
				}
			}
			stdjson.Unmarshal(complete(strconv.Itoa(test.has)).Result, &got)
			if c := got.Completion; len(c.Values) != test.shown || c.Total != test.has || c.HasMore != test.more {
				t.Errorf("%d values: got %d, total %d, hasMore %v; want %d, hasMore %v", test.has, len(c.Values), c.Total, c.HasMore, test.shown, test.more)
			}
		}
		c.wantCode(complete(strings.Repeat("0", 8<<10-1)+"1"), `1`, 0)
		c.wantCode(complete(strings.Repeat("0", 8<<10)+"1"), `1`, mcp.CodeInvalidParams)
		c.good()
	})
}

// Requirement: RES-16
func TestLengthOfURIsIsLimited(t *testing.T) {
	uri := func(n int) string { return "mem:" + strings.Repeat("u", n-4) }
	const most = 8 << 10
	onByteStreams(t, plainTarget, func(t *testing.T, _ *target, c *byteClient) {
		c.open("2025-06-18")
		for _, test := range []struct{ n, code int }{{most, 0}, {most + 1, mcp.CodeInvalidParams}, {1 << 20, mcp.CodeInvalidParams}} {
			c.wantCode(c.ask(modernRequestLine(`1`, "resources/read", `"uri":"`+uri(test.n)+`",`, "")), `1`, test.code)
			c.wantCode(c.ask(sessionRequest(`2`, "resources/read", `{"uri":"`+uri(test.n)+`"}`)), `2`, test.code)
			c.wantCode(c.ask(sessionRequest(`3`, "resources/subscribe", `{"uri":"`+uri(test.n)+`"}`)), `3`, test.code)
		}
		listen := func(n int) string {
			got := c.ask(modernRequestLine(`4`, "subscriptions/listen", `"notifications":{"resourceSubscriptions":["`+uri(n)+`"]},`, ""))
			c.write(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":4}}`)
			synctest.Wait()
			return got.text
		}
		if got := listen(most); !strings.Contains(got, uri(most)) {
			t.Errorf("got acknowledgement %.300s, want it to contain the URI", got)
		}
		if got := listen(most + 1); strings.Contains(got, "mem:") {
			t.Errorf("got acknowledgement %.300s, want no URI", got)
		}
		c.good()
	})
}

func TestSubscribedURIsOfASubscriptionAreLimited(t *testing.T) {
	uris := func(n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, `,"mem:%d"`, i)
		}
		return "[" + b.String()[1:] + "]"
	}
	onByteStreams(t, plainTarget, func(t *testing.T, s *target, c *byteClient) {
		listen := func(id string, n int) wireLine {
			return c.ask(modernRequestLine(id, "subscriptions/listen", `"notifications":{"resourceSubscriptions":`+uris(n)+`},`, ""))
		}
		if got := listen(`1`, 1000); got.Method != "notifications/subscriptions/acknowledged" {
			t.Errorf("1,000 URIs: got %.300s, want an acknowledgement", got.text)
		}
		c.wantCode(listen(`2`, 1001), `2`, mcp.CodeInvalidParams)
		c.good()
	})
}

// A session subscribes to one URI at a time and may stay open for long, so its URIs are also limited by size.
func TestSubscribedURIsOfASessionAreLimited(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	for _, test := range []struct {
		name, pad string
		most      int
	}{
		{"by number", "", 1000},
		{"by size", strings.Repeat("u", 8<<10-len("mem:0000")), 32}, // 256 KiB
	} {
		t.Run(test.name, func(t *testing.T) {
			uri := func(n int) string { return fmt.Sprintf("mem:%04d%s", n, test.pad) }
			resources := func() *target {
				s := newTarget(nil)
				for n := range test.most + 1 {
					mcp.AddResource(s.Server, &mcp.Resource{URI: uri(n), Name: "r"}, func(context.Context, string) (string, error) { return "", nil })
				}
				return s
			}
			onByteStreams(t, resources, func(t *testing.T, _ *target, c *byteClient) {
				c.open("2025-06-18")
				change := func(method string, n, code int) {
					t.Helper()
					c.wantCode(c.ask(sessionRequest(`1`, "resources/"+method, `{"uri":"`+uri(n)+`"}`)), `1`, code)
				}
				for n := range test.most {
					change("subscribe", n, 0)
				}
				change("subscribe", test.most, mcp.CodeInvalidRequest)
				change("subscribe", 1, 0) // subscribed already
				change("unsubscribe", 1, 0)
				change("subscribe", test.most, 0)
				c.good()
			})
		})
	}
}

func TestSizeOfClientCapabilitiesIsLimited(t *testing.T) {
	declare := func(capabilities int) string {
		const around = len(`{"experimental":{"x":{"y":""}}}`)
		return sessionRequest(`1`, "initialize", `{"protocolVersion":"2025-06-18","clientInfo":{"name":"c","version":"1"},"capabilities":{"experimental":{"x":{"y":"`+
			strings.Repeat("y", capabilities-around)+`"}}}}`)
	}
	for _, test := range []struct{ n, code int }{{16 << 10, 0}, {16<<10 + 1, mcp.CodeInvalidParams}} {
		onByteStreams(t, plainTarget, func(t *testing.T, _ *target, c *byteClient) {
			c.wantCode(c.ask(declare(test.n)), `1`, test.code)
			c.good()
		})
	}
}

func TestBatchSizeIsLimited(t *testing.T) {
	batch := func(n int) string {
		return "[" + strings.TrimSuffix(strings.Repeat(sessionRequest(`1`, "ping", `{}`)+",", n), ",") + "]"
	}
	onByteStreams(t, plainTarget, func(t *testing.T, _ *target, c *byteClient) {
		c.open("2025-03-26")
		if got := c.ask(batch(100)); strings.Count(got.text, `"result":{}`) != 100 {
			t.Errorf("batch of 100 pings: got %.300s, want 100 results", got.text)
		}
		c.wantCode(c.ask(batch(101)), "", mcp.CodeInvalidRequest)
		c.good()
	})
}

// At most 64 requests to a client are pending at once, because most of them wait for one user.
func TestPendingRequestsToAClientAreLimited(t *testing.T) {
	onByteStreams(t, plainTarget, func(t *testing.T, _ *target, c *byteClient) {
		c.open("2025-06-18")
		questions := make([]wireLine, 64)
		for n := range questions {
			c.write(bareCall(strconv.Itoa(n), "ask", fmt.Sprintf(`"text":"%d "`, n)))
			questions[n] = c.next()
			if questions[n].Method != "elicitation/create" {
				t.Fatalf("call %d: got %s, want elicitation/create", n, questions[n].text)
			}
		}
		c.wantCode(c.ask(bareCall(`64`, "ask", "")), `64`, mcp.CodeInvalidRequest)
		for n, q := range questions {
			got := c.ask(`{"jsonrpc":"2.0","id":` + string(q.ID) + `,"result":{"action":"accept","content":{"value":"a"}}}`)
			if c.wantCode(got, strconv.Itoa(n), 0); !strings.Contains(got.text, fmt.Sprintf(`"%d a"`, n)) {
				t.Errorf("call %d: got %s, want the text \"%d a\"", n, got.text, n)
			}
		}
		c.good()
	})
}

// The steps of a validation are limited, whatever the arguments are. Without a limit the call would not return; the
// time allows for the race detector on a busy machine.
//
// Requirement: SCH-15
func TestValidationStepsAreLimited(t *testing.T) {
	s := newTarget(nil)
	schema := `{"type":"object","properties":{"a":{"$ref":"#/$defs/n"}},"$defs":{"n":{"anyOf":[` +
		`{"type":"object","properties":{"a":{"$ref":"#/$defs/n"}},"required":["a","b"]},` +
		`{"type":"object","properties":{"a":{"$ref":"#/$defs/n"}},"required":["a","c"]},{"type":"string"}]}}}`
	mcp.AddTool(s.Server, &mcp.Tool{Name: "deep", InputSchema: stdjson.RawMessage(schema)},
		func(context.Context, map[string]any) (string, error) { return "called", nil })
	c := dialBytes(t, s, byteTransports["pipes"], nil, nil)
	nested := strings.Repeat(`"a":{`, 50) + strings.Repeat("}", 50)
	begin := time.Now()
	if got := c.ask(envelopedCall(`1`, "deep", nested)); !strings.Contains(got.text, `"isError":true`) {
		t.Errorf("got %.300s, want a result with isError", got.text)
	}
	if took := time.Since(begin); took > time.Minute {
		t.Errorf("the call took %v, want at most a minute", took)
	}
	c.good()
}

func TestShutdownDrainIsLimited(t *testing.T) {
	for _, test := range []struct {
		name string
		tool string
		opts *mcp.ServeOptions
		took time.Duration
	}{
		{"a call that ends with its context", "wait", nil, 3 * time.Second},
		{"a call that ignores its context", "stubborn", nil, 3500 * time.Millisecond},
		{"option", "wait", &mcp.ServeOptions{Drain: time.Second}, time.Second},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newTarget(nil)
				c := dialBytes(t, s, byteTransports["pipes"], nil, test.opts)
				c.write(envelopedCall(`1`, test.tool, ""))
				<-s.began
				begin := time.Now()
				c.end.Close()
				if test.tool == "wait" {
					c.wantCode(c.next(), `1`, mcp.CodeInternalError)
				}
				if _, more := <-c.lines; more || time.Since(begin) != test.took {
					t.Errorf("the stream ended after %v, want %v", time.Since(begin), test.took)
				}
				close(s.proceed)
			})
		})
	}
}
