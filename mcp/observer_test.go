package mcp_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/jsonrpc"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcp/driver"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// A recordingObserver records what it receives, and checks that each beginning has one end.
type recordingObserver struct {
	t     testing.TB
	begin func(ctx context.Context, req *mcp.Request) // may be nil

	mu       sync.Mutex // guards the fields below
	open     map[context.Context]*mcp.Request
	seen     []string // method, target and outcome of each request that has ended
	began    int      // sessions
	sessions int      // open ones
}

type observedKey struct{}

func (o *recordingObserver) Begin(ctx context.Context, req *mcp.Request) context.Context {
	if o.begin != nil {
		o.begin(ctx, req)
	}
	ctx = context.WithValue(ctx, observedKey{}, req)
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.open == nil {
		o.open = map[context.Context]*mcp.Request{}
	}
	o.open[ctx] = req
	return ctx
}

func (o *recordingObserver) End(ctx context.Context, req *mcp.Request, out mcp.Outcome) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.open[ctx] != req {
		o.t.Errorf("End of %s: its context is not that of a request which has begun and not ended", req.Method)
	}
	delete(o.open, ctx)
	text := strings.TrimSpace(req.Method + " " + out.Target)
	switch {
	case out.ToolError:
		text += ": tool error"
	case out.InputRequired:
		text += ": input required"
	case out.Err != nil:
		text += ": error"
	}
	o.seen = append(o.seen, text)
}

func (o *recordingObserver) SessionBegan(context.Context, driver.Via) (ended func(cause error)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.began++
	o.sessions++
	var once sync.Once
	return func(error) {
		first := false
		once.Do(func() { first = true })
		o.mu.Lock()
		defer o.mu.Unlock()
		o.sessions--
		if !first {
			o.t.Error("a session has ended twice")
		}
	}
}

// A session begins at each process that serves a request of it.
const atSeveralProcesses = -1

// observedSessions returns the number of sessions that the server of a client observes.
func observedSessions(on mcptest.Combination) int {
	switch {
	case on.Modern():
		return 0
	case on.Transport == mcptest.Replicas:
		return atSeveralProcesses
	}
	return 1
}

// check fails the test if a request or session has not ended, and returns what has.
func (o *recordingObserver) check(sessions int) []string {
	o.t.Helper()
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, req := range o.open {
		o.t.Errorf("%s has begun and not ended", req.Method)
	}
	if o.began != sessions && (sessions != atSeveralProcesses || o.began == 0) || o.sessions != 0 {
		o.t.Errorf("%d sessions have begun, %d are open, want %d and none", o.began, o.sessions, sessions)
	}
	return o.seen
}

// observedServer has a tool for each outcome.
func observedServer(t *testing.T, o mcp.Observer, middleware ...mcp.Middleware) *mcp.Server {
	s := newServer(t, &mcp.ServerOptions{Observer: o, Middleware: middleware})
	addTool(s, "fine", func(ctx context.Context) (string, error) {
		if ctx.Value(observedKey{}) == nil {
			t.Error("the context of the handler is not that of Begin")
		}
		return "fine", nil
	})
	addTool(s, "fail", func(context.Context) (string, error) { return "", errors.New("out of paper") })
	addTool(s, "refuse", func(context.Context) (string, error) { return "", mcp.Errorf(-31000, "closed") })
	addTool(s, "panic", func(context.Context) (string, error) { panic("secret") })
	addTool(s, "exit", func(context.Context) (string, error) { runtime.Goexit(); return "", nil })
	addTool(s, "wait", func(ctx context.Context) (string, error) {
		<-ctx.Done()
		return "", context.Cause(ctx)
	})
	addTool(s, "think", func(ctx context.Context) (string, error) {
		res, err := mcp.Sample(ctx, "thought", &mcp.CreateMessageParams{MaxTokens: 5,
			Messages: []mcp.SamplingMessage{samplingMessage(mcp.RoleUser, mcp.Text("Think."))}})
		if err != nil {
			return "", err
		}
		return res.Text(), nil
	})
	return s
}

// observedRequests are requests and what the observers of the server and the client receive.
var observedRequests = []struct {
	name           string
	run            func(ctx context.Context, t *testing.T, c *mcp.Client)
	server, client []string
}{
	{"result", call1("fine"), []string{"tools/call fine"}, []string{"tools/call fine"}},
	{"tool error", call1("fail"), []string{"tools/call fail: tool error"}, []string{"tools/call fail: tool error"}},
	{"protocol error", call1("refuse"), []string{"tools/call refuse: error"}, []string{"tools/call: error"}},
	{"unknown tool", call1("unknown"), []string{"tools/call: error"}, []string{"tools/call: error"}},
	{"unknown method", func(ctx context.Context, _ *testing.T, c *mcp.Client) { _, _ = c.Do(ctx, "example/unknown", nil) },
		[]string{"example/unknown: error"}, []string{"example/unknown: error"}},
	{"panic", call1("panic"), []string{"tools/call panic: error"}, []string{"tools/call: error"}},
	{"cancelled", func(ctx context.Context, t *testing.T, c *mcp.Client) {
		ctx, cancel := context.WithCancel(ctx)
		time.AfterFunc(time.Second, cancel)
		call1("wait")(ctx, t, c)
		synctest.Wait()
	}, []string{"tools/call wait: error"}, []string{"tools/call: error"}},
	{"timeout", func(ctx context.Context, t *testing.T, c *mcp.Client) {
		call1("wait")(mcp.WithCallOptions(ctx, mcp.CallOptions{Timeout: time.Second}), t, c)
		synctest.Wait()
	}, []string{"tools/call wait: error"}, []string{"tools/call: error"}},
	{"question", call1("think"), []string{"tools/call think: input required", "tools/call think"}, nil},
	{"lost connection", func(ctx context.Context, t *testing.T, c *mcp.Client) {
		time.AfterFunc(time.Second, func() { _ = c.Close() })
		call1("wait")(ctx, t, c)
		synctest.Wait()
	}, []string{"tools/call wait: error"}, []string{"tools/call: error"}},
}

// call1 returns a function that calls a tool.
func call1(tool string) func(ctx context.Context, t *testing.T, c *mcp.Client) {
	return func(ctx context.Context, _ *testing.T, c *mcp.Client) { _, _ = c.CallTool(ctx, tool, nil) }
}

func TestObserverReceivesEachRequestOnce(t *testing.T) {
	for _, test := range observedRequests {
		t.Run(test.name, func(t *testing.T) {
			for _, on := range mcptest.Combinations() {
				t.Run(on.String(), func(t *testing.T) {
					server, client := &recordingObserver{t: t}, &recordingObserver{t: t}
					synctest.Test(t, func(t *testing.T) {
						c := mcptest.Dial(t, observedServer(t, server), on, &mcp.ClientOptions{Observer: client, Sample: answer42})
						test.run(t.Context(), t, c)
					})
					checkObserved(t, on, server, client, test.server, test.client)
				})
			}
		})
	}
}

func answer42(context.Context, *mcp.CreateMessageParams) (*mcp.CreateMessageResult, error) {
	return &mcp.CreateMessageResult{Role: mcp.RoleAssistant, Model: "m", Content: []mcp.ContentBlock{mcp.Text("42")}}, nil
}

func checkObserved(t *testing.T, on mcptest.Combination, server, client *recordingObserver, served, sent []string) {
	t.Helper()
	sessions := 1
	if on.Modern() {
		sessions = 0
	}
	if got := server.check(observedSessions(on)); !slices.Equal(got, append([]string{"server/discover"}, served...)) {
		t.Errorf("the server has seen %q, want server/discover and %q", got, served)
	}
	if sent == nil { // a question
		if sent = []string{"sampling/createMessage", "tools/call think"}; on.Modern() {
			sent = slices.Insert(sent, 0, "tools/call think: input required")
		}
	}
	if got := client.check(sessions); !slices.Equal(got, sent) {
		t.Errorf("the client has seen %q, want %q", got, sent)
	}
}

// A handler that ends its goroutine takes that of a stream or of an HTTP request with it, and in
// memory that of the caller.
func TestObserverReceivesEndOfEndedGoroutine(t *testing.T) {
	for _, on := range mcptest.Combinations() {
		t.Run(on.String(), func(t *testing.T) {
			server, client := &recordingObserver{t: t}, &recordingObserver{t: t}
			synctest.Test(t, func(t *testing.T) {
				c := mcptest.Dial(t, observedServer(t, server), on, &mcp.ClientOptions{Observer: client})
				var calling sync.WaitGroup
				calling.Go(func() {
					ctx := mcp.WithCallOptions(t.Context(), mcp.CallOptions{Timeout: time.Second})
					_, _ = c.CallTool(ctx, "exit", nil)
				})
				calling.Wait()
			})
			checkObserved(t, on, server, client, []string{"tools/call exit: error"}, []string{"tools/call: error"})
		})
	}
}

func TestObserverReceivesSubscriptionAtItsEnd(t *testing.T) {
	pass := func(next mcp.Handler) mcp.Handler { return next }
	for name, middleware := range map[string][]mcp.Middleware{"plain": nil, "middleware": {pass}} {
		for _, on := range mcptest.Combinations() {
			t.Run(name+"/"+on.String(), func(t *testing.T) {
				server, client := &recordingObserver{t: t}, &recordingObserver{t: t}
				synctest.Test(t, func(t *testing.T) {
					s := observedServer(t, server, middleware...)
					c := mcptest.Dial(t, s, on, &mcp.ClientOptions{Observer: client})
					ctx, cancel := context.WithCancel(t.Context())
					time.AfterFunc(time.Minute, func() { addValueTool(s, "new", 1) })
					for _, err := range c.Listen(ctx, mcp.SubscriptionFilter{ToolsListChanged: true}) {
						if err != nil {
							t.Error(err)
						}
						if on.Modern() && len(server.seen) > 1 {
							t.Errorf("the subscription has ended before its end: %q", server.seen)
						}
						break
					}
					cancel()
					synctest.Wait()
				})
				var want []string
				if on.Modern() {
					want = []string{"subscriptions/listen"}
				}
				if name == "middleware" && on.Modern() {
					want = []string{"subscriptions/listen: error"} // the middleware sees the cancellation
				}
				if got := server.check(observedSessions(on)); !slices.Equal(got[1:], want) {
					t.Errorf("the server has seen %q, want %q", got, want)
				}
				client.check(map[bool]int{false: 1}[on.Modern()])
			})
		}
	}
}

// An Observer leaves the faster paths of servers without middleware as they are.
func TestObserverCostsNothing(t *testing.T) {
	if s := observedServer(t, &recordingObserver{t: t}); !mcp.IsPlain(s) {
		t.Error("with an Observer, results are copied and subscriptions keep the stack of their handlers")
	}
	list := func(o mcp.Observer) (allocations float64, body []byte) {
		s := newServer(t, &mcp.ServerOptions{Observer: o})
		for i := range 50 {
			addValueTool(s, fmt.Sprintf("tool-%d", i), i)
		}
		msg := &jsonrpc.Message{ID: jsonrpc.IntID(1), Method: "tools/list", Params: []byte(`{"_meta":{` +
			`"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}`)}

		dst := make([]byte, 0, 1<<20)
		allocations = testing.AllocsPerRun(100, func() {
			req, err := mcp.NewRequest(msg)
			if err != nil {
				t.Fatal(err)
			}
			out, fault := mcp.AppendResponse(dst, t.Context(), s, req)
			if fault != nil {
				t.Fatal(fault)
			}
			body = out
		})
		return allocations, body
	}
	without, want := list(nil)
	with, got := list(idleObserver{})
	if !bytes.Equal(got, want) {
		t.Errorf("tools/list with an Observer: got %.200s, want %.200s", got, want)
	}
	if with > without {
		t.Errorf("tools/list allocates %v times with an Observer, %v times without one", with, without)
	}
}

type idleObserver struct{}

func (idleObserver) Begin(ctx context.Context, _ *mcp.Request) context.Context { return ctx }
func (idleObserver) End(context.Context, *mcp.Request, mcp.Outcome)            {}

func TestSetMetaArrivesAtServer(t *testing.T) {
	const trace = `"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"`
	set := func(_ context.Context, req *mcp.Request) {
		req.SetMeta("traceparent", []byte(trace))
		req.SetMeta("example.com/n", []byte(`[1]`))
		req.SetMeta("example.com/n", []byte(`{"a":[2]}`))
	}
	for _, on := range mcptest.Combinations() {
		t.Run(on.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newServer(t, nil)
				addTool(s, "get", func(ctx context.Context) (string, error) {
					req := mcp.RequestFrom(ctx)
					n, _ := req.Meta("example.com/n")
					own, _ := req.Meta("example.com/own")
					parent, _ := req.Meta("traceparent")
					return fmt.Sprintf("%s %s %s", parent, n, own), nil
				})
				c := mcptest.Dial(t, s, on, &mcp.ClientOptions{Observer: &recordingObserver{t: t, begin: set}})
				ctx := mcp.WithCallOptions(t.Context(), mcp.CallOptions{Meta: mcp.Meta{"example.com/own": 3}})
				got, err := mcp.CallTool[string](ctx, c, "get", nil)
				if want := trace + ` {"a":[2]} 3`; err != nil || got != want {
					t.Errorf("the server has received %q, %v, want %q", got, err, want)
				}
			})
		})
	}
}

func TestSetMetaRefusesInvalidMembers(t *testing.T) {
	for key, value := range map[string]string{
		"progressToken": `1`, "io.modelcontextprotocol/protocolVersion": `"x"`, "not a key": `1`, "example.com/x": `{`,
		"example.com/y": ``,
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("SetMeta(%q, %s) does not panic", key, value)
				}
			}()
			new(mcp.Request).SetMeta(key, []byte(value))
		}()
	}
}

func TestViaSaysHowRequestsArrive(t *testing.T) {
	for _, on := range mcptest.Combinations() {
		t.Run(on.String(), func(t *testing.T) {
			var server, client driver.Via
			keep := func(v *driver.Via) *recordingObserver {
				return &recordingObserver{t: t, begin: func(_ context.Context, req *mcp.Request) {
					if req.Method == "tools/call" {
						*v = req.Via()
					}
				}}
			}
			synctest.Test(t, func(t *testing.T) {
				c := mcptest.Dial(t, observedServer(t, keep(&server)), on, &mcp.ClientOptions{Observer: keep(&client)})
				call1("fine")(t.Context(), t, c)
			})
			wantServer, wantClient := driver.Via{Network: "pipe"}, driver.Via{Network: "pipe", Sent: true}
			if on.OverHTTP() {
				wantServer = driver.Via{Network: "tcp", Protocol: "http", ProtocolVersion: "1.1", Peer: server.Peer, Session: server.Session}
				wantClient = driver.Via{Network: "tcp", Protocol: "http", Sent: true, Peer: "server.test"}
				if server.Peer == "" || (len(server.Session) == 16) == on.Modern() {
					t.Errorf("the server has received by %+v", server)
				}
			}
			if server != wantServer || client != wantClient {
				t.Errorf("the server has received by %+v, the client has sent by %+v", server, client)
			}
		})
	}
}

func TestObserverReceivesEndsAtShutdown(t *testing.T) {
	for _, on := range mcptest.Combinations() {
		t.Run(on.String(), func(t *testing.T) {
			server := &recordingObserver{t: t}
			synctest.Test(t, func(t *testing.T) {
				c := mcptest.Connect(t, observedServer(t, server), on, nil)
				c.Send("tools/call", object{"name": "wait"})
				c.Listen(mcp.SubscriptionFilter{ToolsListChanged: true})
				synctest.Wait()
				c.Shutdown()
				synctest.Wait()
			})
			got := server.check(observedSessions(on))
			slices.Sort(got)
			want := []string{"server/discover", "tools/call wait: error"}
			if on.Modern() {
				want = []string{"subscriptions/listen", "tools/call wait: error"}
			}
			if !slices.Equal(got, want) {
				t.Errorf("the server has seen %q, want %q", got, want)
			}
		})
	}
}
