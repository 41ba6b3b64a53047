package mcp_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/jsonrpc"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// A responseTable has the response to each method: a result, or an error if it is an object that
// starts with code.
// "" is no response, "exit" closes the stream.
type responseTable map[string]string

// serveResponses returns a transport to a server with the responses, and a function that returns
// the methods of the
// messages so far.
func serveResponses(t *testing.T, s responseTable) (mcp.Transport, func() []string) {
	client, server := mcp.Pipe()
	var mu sync.Mutex
	var received []string
	var done sync.WaitGroup
	done.Go(func() {
		for {
			m, err := server.Read(context.Background())
			if err != nil {
				return
			}
			mu.Lock()
			received = append(received, m.Method)
			mu.Unlock()
			answer := s[m.Method]
			switch {
			case answer == "exit":
				server.Close()
				return
			case answer == "" || m.ID.IsZero():
			case strings.HasPrefix(answer, `{"code"`):
				var e jsonrpc.Error
				if err := json.Unmarshal([]byte(answer), &e); err != nil {
					t.Error(err)
				}
				_ = server.Write(context.Background(), &jsonrpc.Message{ID: m.ID, Error: &e})
			default:
				_ = server.Write(context.Background(), &jsonrpc.Message{ID: m.ID, Result: json.RawMessage(answer)})
			}
		}
	})
	t.Cleanup(func() {
		server.Close()
		done.Wait()
	})
	return mcp.NewConnTransport(client), func() []string {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(received)
	}
}

const (
	discovered = `{"resultType":"complete","supportedVersions":["2026-07-28","2025-11-25"],` +
		`"capabilities":{"tools":{}},"ttlMs":0,"cacheScope":"private"}`
	initialized = `{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},` +
		`"serverInfo":{"name":"old","version":"1"}}`
)

// Requirement: VER-10
func TestProbeFindsTheRevision(t *testing.T) {
	for _, test := range []struct {
		name              string
		discover, init    string
		revision, methods string
		takes             time.Duration
		err               error
	}{
		{"discovered", discovered, "", "2026-07-28", "server/discover", 0, nil}, // Requirement: VER-10
		{"method not found", `{"code":-32601,"message":"?"}`, initialized, "2025-06-18", // Requirement: VER-12
			"server/discover initialize notifications/initialized", 0, nil},
		{"invalid params", `{"code":-32602,"message":"?"}`, initialized, "2025-06-18", // Requirement: VER-13
			"server/discover initialize notifications/initialized", 0, nil},
		{"another code", `{"code":-32000,"message":"?"}`, initialized, "2025-06-18", // Requirement: VER-13
			"server/discover initialize notifications/initialized", 0, nil},
		// Requirement: VER-13
		{"no response", "", initialized, "2025-06-18", "server/discover initialize notifications/initialized",
			10 * time.Second, nil},
		{"another result", `{"hello":1}`, initialized, "2025-06-18",
			"server/discover initialize notifications/initialized", 0, nil},
		{"other versions", // Requirement: VER-11
			`{"code":-32022,"message":"?","data":{"supported":["2025-06-18"],"requested":"2026-07-28"}}`, initialized,
			"2025-06-18", "server/discover initialize notifications/initialized", 0, nil},
		// Requirement: VER-11
		{"unknown versions", `{"code":-32022,"message":"?","data":{"supported":["2031-01-01"]}}`, initialized,
			"", "server/discover", 0, mcp.ErrNoCommonRevision},
		// Requirement: VER-06
		{"discovered unknown versions", `{"supportedVersions":["2031-01-01"],"capabilities":{}}`, initialized,
			"", "server/discover", 0, mcp.ErrNoCommonRevision},
		// Requirement: VER-06
		{"discovered old versions", `{"supportedVersions":["2025-06-18"],"capabilities":{}}`, initialized,
			"2025-06-18", "server/discover initialize notifications/initialized", 0, nil},
		{"unknown version of initialize", `{"code":-32601,"message":"?"}`, // Requirement: LIFE-10
			strings.Replace(initialized, "2025-06-18", "2031-01-01", 1), "",
			"server/discover initialize", 0, mcp.ErrNoCommonRevision},
		{"busy", `{"code":429,"message":"server is shutting down"}`, initialized, "", "server/discover", 0,
			&mcp.Error{Code: mcp.CodeBusy}},
		{"neither method", `{"code":-32601,"message":"?"}`, `{"code":-32601,"message":"no"}`, "",
			"server/discover initialize", 0, &mcp.Error{Code: -32601}},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				responses := responseTable{"server/discover": test.discover, "initialize": test.init}
				transport, received := serveResponses(t, responses)
				began := time.Now()
				c, err := mcp.Connect(t.Context(), transport, &mcp.ClientOptions{Logger: discardLogger()})
				took := time.Since(began)
				synctest.Wait()
				if got := strings.Join(received(), " "); got != test.methods {
					t.Errorf("got messages %q, want %q", got, test.methods)
				}
				if took != test.takes {
					t.Errorf("Connect took %v, want %v", took, test.takes)
				}
				if test.revision == "" {
					if !errors.Is(err, test.err) {
						t.Errorf("got %v, want %v", err, test.err)
					}
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				defer c.Close()
				if c.Revision() != test.revision {
					t.Errorf("got revision %s, want %s", c.Revision(), test.revision)
				}
			})
		})
	}
}

// The server responds to server/discover after the client has initialized a session.
//
// Requirement: STDIO-21
func TestLateProbeResponseIsIgnored(t *testing.T) {
	withRawConnection(t, &mcp.ClientOptions{ProbeTimeout: 2 * time.Second}, func(s *rawServer) {
		probe, _ := s.next()
		time.Sleep(5 * time.Second)
		id, method := s.next()
		if method != "initialize" {
			t.Errorf("got %s, want initialize", method)
		}
		s.send(`{"jsonrpc":"2.0","id":%s,"result":%s}`, probe, discovered)
		s.send(`{"jsonrpc":"2.0","id":%s,"result":%s}`, id, initialized)
		s.next()
		id, _ = s.next()
		s.send(noContent, id)
	}, func(t *testing.T, c *mcp.Client) {
		if c.Revision() != "2025-06-18" {
			t.Errorf("got revision %s, want 2025-06-18", c.Revision())
		}
		if _, err := c.CallTool(t.Context(), "x", nil); err != nil {
			t.Error(err)
		}
	})
}

// The context of Connect ends while the client waits for the result of initialize.
//
// Requirement: CAN-02
func TestInitializeIsNotCancelled(t *testing.T) {
	for _, revision := range []string{"2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"} {
		synctest.Test(t, func(t *testing.T) {
			transport, received := serveResponses(t, responseTable{})
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_, err := mcp.Connect(ctx, transport, &mcp.ClientOptions{Revision: revision, Logger: discardLogger()})
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s: got %v, want the end of the context", revision, err)
			}
			synctest.Wait()
			if got := strings.Join(received(), " "); got != "initialize" {
				t.Errorf("%s: got messages %q, want initialize only", revision, got)
			}
		})
	}
}

func TestRequiredRevisionIsTheOnlyOneTried(t *testing.T) {
	for _, test := range []struct{ revision, discover, init, methods string }{
		{"2026-07-28", `{"code":-32601,"message":"?"}`, initialized, "server/discover"},
		{"2025-03-26", discovered, initialized, "initialize"},
		{"2025-06-18", discovered, initialized, "initialize notifications/initialized"},
		{"1999-01-01", discovered, initialized, ""},
	} {
		synctest.Test(t, func(t *testing.T) {
			responses := responseTable{"server/discover": test.discover, "initialize": test.init}
			transport, received := serveResponses(t, responses)
			c, err := mcp.Connect(t.Context(), transport, &mcp.ClientOptions{Revision: test.revision, Logger: discardLogger()})
			synctest.Wait()
			if got := strings.Join(received(), " "); got != test.methods {
				t.Errorf("%s: got messages %q, want %q", test.revision, got, test.methods)
			}
			if test.revision != "2025-06-18" {
				if err == nil {
					t.Errorf("%s: Connect returned no error", test.revision)
				}
				return
			}
			if err != nil || c.Revision() != test.revision {
				t.Fatalf("%s: %v", test.revision, err)
			}
			c.Close()
		})
	}
}

// Requirement: STDIO-17
func TestCallMayHaveRunWhenTheServerEnds(t *testing.T) {
	for _, responses := range []responseTable{
		{"server/discover": discovered, "tools/call": "exit"},
		{"server/discover": `{"code":-32601,"message":"?"}`, "initialize": initialized, "tools/call": "exit"},
	} {
		synctest.Test(t, func(t *testing.T) {
			transport, _ := serveResponses(t, responses)
			c, err := mcp.Connect(t.Context(), transport, &mcp.ClientOptions{Logger: discardLogger()})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			_, err = c.CallTool(t.Context(), "x", nil)
			var failed *mcp.TransportError
			if !errors.As(err, &failed) || !failed.MayHaveRun || !errors.Is(err, mcp.ErrDisconnected) {
				t.Errorf("call in progress: got %v, want ErrDisconnected with MayHaveRun", err)
			}
			_, err = c.CallTool(t.Context(), "x", nil)
			if !errors.As(err, &failed) || failed.MayHaveRun || !errors.Is(err, mcp.ErrClosed) {
				t.Errorf("next call: got %v, want ErrClosed without MayHaveRun", err)
			}
		})
	}
}

// newScriptedClient returns a client in memory. serve returns the result of each request but
// server/discover.
func newScriptedClient(
	t *testing.T, opts *mcp.ClientOptions, serve func(ctx context.Context, req *mcp.Request) (string, error),
) *mcp.Client {
	t.Helper()
	h := mcp.HandlerFunc(func(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
		if req.Method == "server/discover" {
			return mcp.RawResult(discovered), nil
		}
		text, err := serve(ctx, req)
		return mcp.RawResult(text), err
	})
	full := mcp.ClientOptions{Logger: discardLogger()}
	if opts != nil {
		full = *opts
		full.Logger = discardLogger()
	}
	c, err := mcp.Connect(t.Context(), mcp.InMemory(h), &full)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// memberOf returns the JSON of a member of params, or "".
func memberOf(t *testing.T, params json.RawMessage, key string) string {
	var object map[string]json.RawMessage
	if err := json.Unmarshal(params, &object); err != nil {
		t.Error(err)
	}
	return string(object[key])
}

// Requirement: MRTR-08, ELI-09
func TestStateIsEchoedAndDefaultsAreFilledIn(t *testing.T) {
	const state = `"\u0041/+=\n é ` + "\u2028" + `"`
	var got []string
	opts := &mcp.ClientOptions{Elicit: func(context.Context, *mcp.ElicitRequestParams) (*mcp.ElicitResult, error) {
		return &mcp.ElicitResult{Action: mcp.ElicitAccept, Content: json.RawMessage(`{}`)}, nil
	}}
	c := newScriptedClient(t, opts, func(_ context.Context, req *mcp.Request) (string, error) {
		got = append(got, memberOf(t, req.Params, "requestState")+
			memberOf(t, req.Params, "inputResponses")+memberOf(t, req.Params, "arguments"))
		form := `{"method":"elicitation/create","params":{"message":"m",` +
			`"requestedSchema":{"type":"object","properties":{"n":{"type":"integer","default":7}}}}}`
		switch len(got) {
		case 1:
			return `{"resultType":"input_required","inputRequests":{"k":` + form + `},"requestState":` + state +
				`}`, nil
		case 2:
			return `{"resultType":"input_required","inputRequests":{"l":` + form + `}}`, nil
		}
		return `{"resultType":"complete","content":[]}`, nil
	})
	if _, err := c.CallTool(t.Context(), "x", map[string]int{"a": 1}); err != nil {
		t.Fatal(err)
	}
	answer := func(key string) string { return `{"` + key + `":{"action":"accept","content":{"n":7}}}` }
	want := []string{`{"a":1}`, state + answer("k") + `{"a":1}`, answer("l") + `{"a":1}`}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

// The first round of the call has run, so the error must not say that it is safe to repeat the call.
func TestCallThatFailsInALaterRoundMayHaveRun(t *testing.T) {
	for name, refusal := range map[string]error{
		"busy":     mcp.Errorf(mcp.CodeBusy, "server is shutting down"),
		"not sent": &mcp.TransportError{Method: "tools/call", Err: io.EOF},
	} {
		rounds := 0
		refuse := func(next mcp.Handler) mcp.Handler {
			return mcp.HandlerFunc(func(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
				if rounds++; rounds == 2 {
					return nil, refusal
				}
				return next.ServeMCP(ctx, req)
			})
		}
		c := newScriptedClient(t, &mcp.ClientOptions{Middleware: []mcp.Middleware{refuse}},
			func(context.Context, *mcp.Request) (string, error) {
				return `{"resultType":"input_required","requestState":"again"}`, nil
			})
		_, err := c.CallTool(t.Context(), "x", nil)
		failed, ok := errors.AsType[*mcp.TransportError](err)
		if !ok || !failed.MayHaveRun || !errors.Is(err, refusal) && !errors.Is(err, io.EOF) {
			t.Errorf("%s: got %v, want a TransportError with MayHaveRun that wraps it", name, err)
		}
		rounds = 1 // the first round of the next call is refused: nothing has run
		_, err = c.CallTool(t.Context(), "x", nil)
		if failed, ok := errors.AsType[*mcp.TransportError](err); ok && failed.MayHaveRun || err == nil {
			t.Errorf("%s: got %v in the first round, want an error that says that the call has not run", name, err)
		}
	}
}

// Requirement: MRTR-16, SAMP-15
func TestRoundsAndTimeAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rounds := 0
		c := newScriptedClient(t, nil, func(context.Context, *mcp.Request) (string, error) {
			rounds++
			return `{"resultType":"input_required","requestState":"again"}`, nil
		})
		_, err := c.CallTool(t.Context(), "x", nil)
		if err == nil || rounds != 17 || !strings.Contains(err.Error(), "requests input for the 17th time") {
			t.Errorf("got error %v after %d rounds, want one after 17", err, rounds)
		}
		c = newScriptedClient(t, &mcp.ClientOptions{Elicit: func(ctx context.Context,
			_ *mcp.ElicitRequestParams) (*mcp.ElicitResult, error) {
			<-ctx.Done()
			return nil, context.Cause(ctx)
		}}, func(context.Context, *mcp.Request) (string, error) {
			return `{"resultType":"input_required","inputRequests":{"k":{"method":"elicitation/create",` +
				`"params":{"message":"m","requestedSchema":{"type":"object"}}}}}`, nil
		})
		began := time.Now()
		if _, err := c.CallTool(t.Context(), "x", nil); !errors.Is(err, mcp.ErrTimeout) ||
			time.Since(began) != 10*time.Minute {
			t.Errorf("got error %v after %v, want ErrTimeout after 10m", err, time.Since(began))
		}
	})
}

// Requirement: RPC-22, RPC-23
func TestInvalidResultsAreErrors(t *testing.T) {
	deep := strings.Repeat(`{"a":`, 70) + "1" + strings.Repeat("}", 70)
	for _, test := range []struct{ name, result, says string }{
		// Requirement: RPC-22
		{"an unknown result type", `{"resultType":"maybe","content":[]}`, `unknown resultType "maybe"`},
		// Requirement: RPC-22
		{"a result type of another type", `{"resultType":5,"content":[]}`, "resultType"},
		// Requirement: RPC-23
		{"a result type of an extension", `{"resultType":"task","taskId":"1"}`, `unknown resultType "task"`},
		{"neither input requests nor state", `{"resultType":"input_required"}`,
			"without inputRequests and requestState"},
		{"input requests as an array", `{"resultType":"input_required","inputRequests":[]}`, "must be an object"},
		{"a number as state", `{"resultType":"input_required","requestState":5}`, "must be a string"},
		{"a too long state", `{"resultType":"input_required","requestState":"` + strings.Repeat("x", 65<<10) + `"}`,
			"more than"},
		{"too many input requests", `{"resultType":"input_required","inputRequests":{` +
			repeatNumbered(65, `"%d":{"method":"roots/list"}`) + `}}`, "more than 64"},
		{"an input request without a method", `{"resultType":"input_required","inputRequests":{"k":{}}}`,
			"method is missing"},
		{"an undeclared input request",
			`{"resultType":"input_required","inputRequests":{"k":{"method":"sampling/createMessage"}}}`,
			"method not found"},
		{"content as an object", `{"content":{}}`, "must be an array"},
		{"content without a type", `{"content":[{}]}`, "no type"},
		{"content of an unknown type", `{"content":[{"type":"smell"}]}`, "unknown content type"},
		{"bad base64", `{"content":[{"type":"image","data":"%%","mimeType":"x/y"}]}`, "image content"},
		{"isError as a string", `{"content":[],"isError":"yes"}`, "isError"},
		{"_meta as an array", `{"content":[],"_meta":[]}`, "_meta"},
		{"too deep", deep, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			opts := &mcp.ClientOptions{Roots: func(context.Context) ([]mcp.Root, error) { return nil, nil }}
			c := newScriptedClient(t, opts, func(context.Context, *mcp.Request) (string, error) {
				return test.result, nil
			})
			r, err := c.CallTool(t.Context(), "x", nil)
			if err == nil || !strings.Contains(err.Error(), test.says) {
				t.Errorf("got %+v, %v, want an error with %q", r, err, test.says)
			}
		})
	}
}

// repeatNumbered returns n formatted items, separated by commas. %d is the number of the item.
func repeatNumbered(n int, format string) string {
	parts := make([]string, n)
	for i := range parts {
		parts[i] = strings.ReplaceAll(format, "%d", fmt.Sprint(i))
	}
	return strings.Join(parts, ",")
}

func TestListsOfServersAreLimited(t *testing.T) {
	tool := `{"name":"t%d","inputSchema":{"type":"object"}}`
	for _, test := range []struct {
		name  string
		page  func(n int) string
		items int
		says  string
	}{
		{"a repeated cursor", func(int) string { return `{"tools":[],"nextCursor":"a"}` }, 0, ""},
		{"endless pages", func(n int) string { return fmt.Sprintf(`{"tools":[],"nextCursor":"%d"}`, n) }, 0,
			"more than 1000 pages"},
		{"10,000 items", func(n int) string { return fmt.Sprintf(`{"tools":[%s]}`, repeatNumbered(10_000, tool)) },
			10_000, ""},
		{"10,001 items", func(n int) string { return fmt.Sprintf(`{"tools":[%s]}`, repeatNumbered(10_001, tool)) },
			10_000, "more than 10000 items"},
		{"an empty cursor", func(n int) string { // Requirement: PAG-05
			if n == 0 {
				return `{"tools":[` + strings.ReplaceAll(tool, "%d", "0") + `],"nextCursor":""}`
			}
			return `{"tools":[` + strings.ReplaceAll(tool, "%d", "1") + `]}`
		}, 2, ""},
		{"a cursor of 4 KiB", func(n int) string {
			return fmt.Sprintf(`{"tools":[],"nextCursor":"%s"}`, strings.Repeat("c", 4097))
		}, 0, "must be a string of at most"},
		{"no list", func(int) string { return `{}` }, 0, `missing array "tools"`},
		{"invalid items are skipped", func(int) string {
			return `{"tools":[5,{"name":""},{"name":"x"},{"name":"big","inputSchema":{"a":"` +
				strings.Repeat("x", 256<<10) + `"}},` +
				`{"name":"wide","inputSchema":{"enum":[` + repeatNumbered(10_001, "%d") + `]}},` +
				strings.ReplaceAll(tool, "%d", "1") + `]}`
		}, 1, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			n := 0
			c := newScriptedClient(t, nil, func(context.Context, *mcp.Request) (string, error) {
				defer func() { n++ }()
				return test.page(n), nil
			})
			items := 0
			var failed error
			for _, err := range c.Tools(t.Context()) {
				if failed = err; err == nil {
					items++
				}
			}
			if items != test.items || (failed == nil) != (test.says == "") ||
				failed != nil && !strings.Contains(failed.Error(), test.says) {
				t.Errorf("got %d items, error %v; want %d, %q", items, failed, test.items, test.says)
			}
		})
	}
}

// Requirement: CACHE-04, CACHE-06, CACHE-07
func TestResultsAreCachedForTheirTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		requests := map[string]int{}
		ttl := `60000`
		c := newScriptedClient(t, nil, func(_ context.Context, req *mcp.Request) (string, error) {
			requests[req.Method+memberOf(t, req.Params, "uri")]++
			return `{"tools":[],"contents":[],"ttlMs":` + ttl + `,"cacheScope":"private"}`, nil
		})
		list := func(ctx context.Context) {
			for _, err := range c.Tools(ctx) {
				t.Error(err)
			}
		}
		read := func(uri string) {
			if _, err := c.ReadResource(t.Context(), uri); err != nil {
				t.Error(err)
			}
		}
		wantRequests := func(what string, list, one, two int) {
			t.Helper()
			got := fmt.Sprint(requests["tools/list"], requests[`resources/read"a:1"`], requests[`resources/read"a:2"`])
			if want := fmt.Sprint(list, one, two); got != want {
				t.Errorf("%s: got %s requests, want %s", what, got, want)
			}
		}
		list(t.Context())
		read("a:1")
		list(t.Context())
		read("a:1")
		read("a:2")
		wantRequests("fresh", 1, 1, 1)
		list(mcp.WithCallOptions(t.Context(), mcp.CallOptions{NoCache: true}))
		wantRequests("NoCache", 2, 1, 1)
		time.Sleep(time.Minute)
		list(t.Context())
		read("a:1")
		wantRequests("stale", 3, 2, 1)
		for _, ttl = range []string{`0`, `-5`, `"1000"`, `null`, `1e-9`, `1e400`} {
			clear(requests)
			time.Sleep(time.Hour)
			list(t.Context())
			list(t.Context())
			if ttl != `1e400` && requests["tools/list"] != 2 {
				t.Errorf("ttlMs %s: got %d requests, want 2", ttl, requests["tools/list"])
			}
		}
	})
}

// Requirement: TOOL-14
func TestResultMustMatchItsSchema(t *testing.T) {
	result := ""
	c := newScriptedClient(t, nil, func(_ context.Context, req *mcp.Request) (string, error) {
		if req.Method == "tools/list" {
			return `{"tools":[{"name":"t","inputSchema":{"type":"object"},"outputSchema":` +
				`{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}},` +
				`{"name":"odd","inputSchema":{"type":"object"},` +
				`"outputSchema":{"$ref":"https://example.com/evil.json"}}]}`, nil
		}
		return result, nil
	})
	for range c.Tools(t.Context()) {
	}
	for text, valid := range map[string]bool{
		`{"content":[],"structuredContent":{"n":1}}`:   true,
		`{"content":[],"structuredContent":{"n":"1"}}`: false,
		`{"content":[],"structuredContent":null}`:      false,
		`{"content":[]}`: false,
		`{"content":[{"type":"text","text":"it failed"}],"isError":true}`: true,
	} {
		result = text
		_, err := c.CallTool(t.Context(), "t", nil)
		if (err == nil) != valid || err != nil && !errors.Is(err, mcp.ErrInvalidResult) {
			t.Errorf("%s: got error %v, want valid %v", text, err, valid)
		}
		if _, err := c.CallTool(t.Context(), "odd", nil); err != nil {
			t.Errorf("remote schema: got error %v, want no validation", err)
		}
	}
}

func TestPanicsOfClientHandlersFailOnlyTheirRequest(t *testing.T) {
	opts := &mcp.ClientOptions{
		Elicit: func(context.Context, *mcp.ElicitRequestParams) (*mcp.ElicitResult, error) { panic("failed") },
		Log:    func(context.Context, *mcp.LoggingMessage) { panic("failed") },
	}
	onClients(t, calculator(t), opts, func(t *testing.T, _ mcptest.Combination, c *mcp.Client) {
		if r, err := c.CallTool(t.Context(), "ask", nil); err == nil && !r.IsError {
			t.Errorf("Elicit: got %+v, want an error", r)
		}
		ctx := mcp.WithCallOptions(t.Context(), mcp.CallOptions{Progress: func(mcp.ProgressUpdate) { panic("failed") }})
		if _, err := c.CallTool(ctx, "steps", nil); err != nil {
			t.Errorf("Progress and Log: got %v, want no error", err)
		}
	})
}
