package mcp_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/jsonrpc"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// A dialogue answers messages as a server would, by their methods: with a result, or an error if it is an object with
// code; "" is silence, "exit" ends the stream.
type dialogue map[string]string

// converse serves a dialogue, and gives the transport to it and what it heard.
func converse(t *testing.T, s dialogue) (mcp.Transport, func() []string) {
	client, server := mcp.Pipe()
	var mu sync.Mutex
	var heard []string
	var done sync.WaitGroup
	done.Go(func() {
		for {
			m, err := server.Read(context.Background())
			if err != nil {
				return
			}
			mu.Lock()
			heard = append(heard, m.Method)
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
				_ = server.Write(context.Background(), jsonrpc.NewErrorResponse(m.ID, &e))
			default:
				_ = server.Write(context.Background(), jsonrpc.NewResponse(m.ID, json.RawMessage(answer)))
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
		return append([]string(nil), heard...)
	}
}

const (
	discovered  = `{"resultType":"complete","supportedVersions":["2026-07-28","2025-11-25"],"capabilities":{"tools":{}},"ttlMs":0,"cacheScope":"private"}`
	initialized = `{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"old","version":"1"}}`
)

func TestVER10_TheProbeFindsTheEra(t *testing.T) {
	for _, test := range []struct {
		name            string
		discover, init  string
		revision, heard string
		takes           time.Duration
		refused         error
	}{
		{"VER-10 a description", discovered, "", "2026-07-28", "server/discover", 0, nil},
		{"VER-12 method not found", `{"code":-32601,"message":"?"}`, initialized, "2025-06-18", "server/discover initialize notifications/initialized", 0, nil},
		{"VER-13 invalid params", `{"code":-32602,"message":"?"}`, initialized, "2025-06-18", "server/discover initialize notifications/initialized", 0, nil},
		{"VER-13 a code of its own", `{"code":-32000,"message":"?"}`, initialized, "2025-06-18", "server/discover initialize notifications/initialized", 0, nil},
		{"VER-13 silence", "", initialized, "2025-06-18", "server/discover initialize notifications/initialized", 10 * time.Second, nil},
		{"a result of something else", `{"hello":1}`, initialized, "2025-06-18", "server/discover initialize notifications/initialized", 0, nil},
		{"VER-11 not this version but others", `{"code":-32022,"message":"?","data":{"supported":["2025-06-18"],"requested":"2026-07-28"}}`, initialized,
			"2025-06-18", "server/discover initialize notifications/initialized", 0, nil},
		{"VER-11 not this version and none of ours", `{"code":-32022,"message":"?","data":{"supported":["2031-01-01"]}}`, initialized, "", "server/discover", 0, mcp.ErrNoCommonRevision},
		{"VER-06 a description without us", `{"supportedVersions":["2031-01-01"],"capabilities":{}}`, initialized, "", "server/discover", 0, mcp.ErrNoCommonRevision},
		{"VER-06 a description with old versions", `{"supportedVersions":["2025-06-18"],"capabilities":{}}`, initialized, "2025-06-18", "server/discover initialize notifications/initialized", 0, nil},
		{"LIFE-10 a version of the future", `{"code":-32601,"message":"?"}`, strings.Replace(initialized, "2025-06-18", "2031-01-01", 1), "", "server/discover initialize", 0, mcp.ErrNoCommonRevision},
		{"neither", `{"code":-32601,"message":"?"}`, `{"code":-32601,"message":"no"}`, "", "server/discover initialize", 0, &mcp.Error{Code: -32601}},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				transport, heard := converse(t, dialogue{"server/discover": test.discover, "initialize": test.init})
				began := time.Now()
				c, err := mcp.Connect(t.Context(), transport, &mcp.ClientOptions{Logger: quiet()})
				took := time.Since(began)
				synctest.Wait()
				if got := strings.Join(heard(), " "); got != test.heard {
					t.Errorf("the server heard %q, want %q", got, test.heard)
				}
				if took != test.takes {
					t.Errorf("it took %v, want %v", took, test.takes)
				}
				if test.revision == "" {
					if !errors.Is(err, test.refused) {
						t.Errorf("got %v, want %v", err, test.refused)
					}
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				defer c.Close()
				if c.Revision() != test.revision {
					t.Errorf("revision %s, want %s", c.Revision(), test.revision)
				}
			})
		})
	}
}

func TestAPinnedRevisionIsTheOnlyOne(t *testing.T) {
	for _, test := range []struct{ pin, discover, init, heard string }{
		{"2026-07-28", `{"code":-32601,"message":"?"}`, initialized, "server/discover"},
		{"2025-03-26", discovered, initialized, "initialize"},
		{"2025-06-18", discovered, initialized, "initialize notifications/initialized"},
		{"1999-01-01", discovered, initialized, ""},
	} {
		synctest.Test(t, func(t *testing.T) {
			transport, heard := converse(t, dialogue{"server/discover": test.discover, "initialize": test.init})
			c, err := mcp.Connect(t.Context(), transport, &mcp.ClientOptions{Revision: test.pin, Logger: quiet()})
			synctest.Wait()
			if got := strings.Join(heard(), " "); got != test.heard {
				t.Errorf("%s: the server heard %q, want %q", test.pin, got, test.heard)
			}
			if test.pin != "2025-06-18" {
				if err == nil {
					t.Errorf("%s: connected", test.pin)
				}
				return
			}
			if err != nil || c.Revision() != test.pin {
				t.Fatalf("%s: %v", test.pin, err)
			}
			c.Close()
		})
	}
}

func TestSTDIO17_AServerThatEndsIsReportedAndTheCallMayHaveRun(t *testing.T) {
	for _, era := range []dialogue{
		{"server/discover": discovered, "tools/call": "exit"},
		{"server/discover": `{"code":-32601,"message":"?"}`, "initialize": initialized, "tools/call": "exit"},
	} {
		synctest.Test(t, func(t *testing.T) {
			transport, _ := converse(t, era)
			c, err := mcp.Connect(t.Context(), transport, &mcp.ClientOptions{Logger: quiet()})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			_, err = c.CallTool(t.Context(), "x", nil)
			var failed *mcp.TransportError
			if !errors.As(err, &failed) || !failed.MayHaveRun || !errors.Is(err, mcp.ErrDisconnected) {
				t.Errorf("the call: %v", err)
			}
			_, err = c.CallTool(t.Context(), "x", nil)
			if !errors.As(err, &failed) || failed.MayHaveRun || !errors.Is(err, mcp.ErrClosed) {
				t.Errorf("the next call: %v", err)
			}
		})
	}
}

// scripted serves results by method to a client in memory.
func scripted(t *testing.T, opts *mcp.ClientOptions, serve func(ctx context.Context, req *mcp.Request) (string, error)) *mcp.Client {
	t.Helper()
	h := mcp.HandlerFunc(func(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
		if req.Method == "server/discover" {
			return mcp.RawResult(discovered), nil
		}
		text, err := serve(ctx, req)
		return mcp.RawResult(text), err
	})
	full := mcp.ClientOptions{Logger: quiet()}
	if opts != nil {
		full = *opts
		full.Logger = quiet()
	}
	c, err := mcp.Connect(t.Context(), mcp.InMemory(h), &full)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func member(t *testing.T, params json.RawMessage, key string) string {
	var object map[string]json.RawMessage
	if err := json.Unmarshal(params, &object); err != nil {
		t.Error(err)
	}
	return string(object[key])
}

func TestMRTR08_TheStateIsEchoedToTheByte(t *testing.T) {
	const state = `"\u0041/+=\n é ` + "\u2028" + `"`
	var got []string
	opts := &mcp.ClientOptions{Elicit: func(context.Context, *mcp.ElicitRequestParams) (*mcp.ElicitResult, error) {
		return &mcp.ElicitResult{Action: mcp.ElicitAccept, Content: json.RawMessage(`{}`)}, nil
	}}
	c := scripted(t, opts, func(_ context.Context, req *mcp.Request) (string, error) {
		got = append(got, member(t, req.Params, "requestState")+member(t, req.Params, "inputResponses")+member(t, req.Params, "arguments"))
		form := `{"method":"elicitation/create","params":{"message":"m","requestedSchema":{"type":"object","properties":{"n":{"type":"integer","default":7}}}}}`
		switch len(got) {
		case 1:
			return `{"resultType":"input_required","inputRequests":{"k":` + form + `},"requestState":` + state + `}`, nil
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

func TestMRTR16_RoundsAndTimeAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rounds := 0
		c := scripted(t, nil, func(context.Context, *mcp.Request) (string, error) {
			rounds++
			return `{"resultType":"input_required","requestState":"again"}`, nil
		})
		_, err := c.CallTool(t.Context(), "x", nil)
		if err == nil || rounds != 17 || !strings.Contains(err.Error(), "requests input for the 17th time") {
			t.Errorf("%d rounds, %v", rounds, err)
		}
		c = scripted(t, &mcp.ClientOptions{Elicit: func(ctx context.Context, _ *mcp.ElicitRequestParams) (*mcp.ElicitResult, error) {
			<-ctx.Done()
			return nil, context.Cause(ctx)
		}}, func(context.Context, *mcp.Request) (string, error) {
			return `{"resultType":"input_required","inputRequests":{"k":{"method":"elicitation/create","params":{"message":"m","requestedSchema":{"type":"object"}}}}}`, nil
		})
		began := time.Now()
		if _, err := c.CallTool(t.Context(), "x", nil); !errors.Is(err, mcp.ErrTimeout) || time.Since(began) != 10*time.Minute {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
	})
}

// Results that break the protocol are errors that say that the call has run.
func TestResultsOfHostileServers(t *testing.T) {
	deep := strings.Repeat(`{"a":`, 70) + "1" + strings.Repeat("}", 70)
	for _, test := range []struct{ name, result, says string }{
		{"an unknown result type", `{"resultType":"maybe"}`, `unknown resultType "maybe"`},
		{"input that asks nothing", `{"resultType":"input_required"}`, "without inputRequests and requestState"},
		{"input requests in an array", `{"resultType":"input_required","inputRequests":[]}`, "must be an object"},
		{"a state that is a number", `{"resultType":"input_required","requestState":5}`, "must be a string"},
		{"a long state", `{"resultType":"input_required","requestState":"` + strings.Repeat("x", 65<<10) + `"}`, "more than"},
		{"many input requests", `{"resultType":"input_required","inputRequests":{` + many(65, `"%d":{"method":"roots/list"}`) + `}}`, "more than 64"},
		{"an input request without a method", `{"resultType":"input_required","inputRequests":{"k":{}}}`, "method is missing"},
		{"an input request that was not declared", `{"resultType":"input_required","inputRequests":{"k":{"method":"sampling/createMessage"}}}`, "method not found"},
		{"content that is an object", `{"content":{}}`, "must be an array"},
		{"content without a type", `{"content":[{}]}`, "no type"},
		{"content of an unknown type", `{"content":[{"type":"smell"}]}`, "unknown content type"},
		{"bad base64", `{"content":[{"type":"image","data":"%%","mimeType":"x/y"}]}`, "image content"},
		{"isError as a string", `{"content":[],"isError":"yes"}`, "isError"},
		{"_meta as an array", `{"content":[],"_meta":[]}`, "_meta"},
		{"depth", deep, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			opts := &mcp.ClientOptions{Roots: func(context.Context) ([]mcp.Root, error) { return nil, nil }}
			c := scripted(t, opts, func(context.Context, *mcp.Request) (string, error) { return test.result, nil })
			r, err := c.CallTool(t.Context(), "x", nil)
			if err == nil || !strings.Contains(err.Error(), test.says) {
				t.Errorf("got %+v, %v, want %q", r, err, test.says)
			}
		})
	}
}

func many(n int, format string) string {
	parts := make([]string, n)
	for i := range parts {
		parts[i] = strings.ReplaceAll(format, "%d", fmt.Sprint(i))
	}
	return strings.Join(parts, ",")
}

func TestR7_2_ListsAreBounded(t *testing.T) {
	tool := `{"name":"t%d","inputSchema":{"type":"object"}}`
	for _, test := range []struct {
		name  string
		page  func(n int) string
		items int
		says  string
	}{
		{"a cursor twice", func(int) string { return `{"tools":[],"nextCursor":"a"}` }, 0, "the same as that of an earlier page"},
		{"endless pages", func(n int) string { return fmt.Sprintf(`{"tools":[],"nextCursor":"%d"}`, n) }, 0, "more than 1000 pages"},
		{"10,000 items", func(n int) string { return fmt.Sprintf(`{"tools":[%s]}`, many(10_000, tool)) }, 10_000, ""},
		{"10,001 items", func(n int) string { return fmt.Sprintf(`{"tools":[%s]}`, many(10_001, tool)) }, 10_000, "more than 10000 items"},
		{"PAG-05 an empty cursor", func(n int) string {
			if n == 0 {
				return `{"tools":[` + strings.ReplaceAll(tool, "%d", "0") + `],"nextCursor":""}`
			}
			return `{"tools":[` + strings.ReplaceAll(tool, "%d", "1") + `]}`
		}, 2, ""},
		{"a cursor of 4 KiB", func(n int) string {
			return fmt.Sprintf(`{"tools":[],"nextCursor":"%s"}`, strings.Repeat("c", 4097))
		}, 0, "must be a string of at most"},
		{"no list", func(int) string { return `{}` }, 0, `missing array "tools"`},
		{"broken items are left out", func(int) string {
			return `{"tools":[5,{"name":""},{"name":"x"},{"name":"big","inputSchema":{"a":"` + strings.Repeat("x", 256<<10) + `"}},` +
				`{"name":"wide","inputSchema":{"enum":[` + many(10_001, "%d") + `]}},` + strings.ReplaceAll(tool, "%d", "1") + `]}`
		}, 1, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			n := 0
			c := scripted(t, nil, func(context.Context, *mcp.Request) (string, error) {
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
			if items != test.items || (failed == nil) != (test.says == "") || failed != nil && !strings.Contains(failed.Error(), test.says) {
				t.Errorf("%d items, %v; want %d, %q", items, failed, test.items, test.says)
			}
		})
	}
}

func TestCACHE06_CACHE07_AnswersAreUsedAgainWhileTheyAreFresh(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := map[string]int{}
		ttl := `60000`
		c := scripted(t, nil, func(_ context.Context, req *mcp.Request) (string, error) {
			asked[req.Method+member(t, req.Params, "uri")]++
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
		wantAsked := func(what string, list, one, two int) {
			t.Helper()
			got := fmt.Sprint(asked["tools/list"], asked[`resources/read"a:1"`], asked[`resources/read"a:2"`])
			if want := fmt.Sprint(list, one, two); got != want {
				t.Errorf("%s: asked %s times, want %s", what, got, want)
			}
		}
		list(t.Context())
		read("a:1")
		list(t.Context())
		read("a:1")
		read("a:2") // CACHE-04
		wantAsked("fresh", 1, 1, 1)
		list(mcp.WithCallOptions(t.Context(), mcp.CallOptions{NoCache: true}))
		wantAsked("NoCache", 2, 1, 1)
		time.Sleep(time.Minute)
		list(t.Context())
		read("a:1")
		wantAsked("stale", 3, 2, 1)
		for _, ttl = range []string{`0`, `-5`, `"1000"`, `null`, `1e-9`, `1e400`} { // CACHE-06
			clear(asked)
			time.Sleep(time.Hour)
			list(t.Context())
			list(t.Context())
			if ttl != `1e400` && asked["tools/list"] != 2 {
				t.Errorf("ttlMs %s: asked %d times", ttl, asked["tools/list"])
			}
		}
	})
}

func TestTOOL14_AResultThatBreaksItsSchemaIsAnError(t *testing.T) {
	result := ""
	c := scripted(t, nil, func(_ context.Context, req *mcp.Request) (string, error) {
		if req.Method == "tools/list" {
			return `{"tools":[{"name":"t","inputSchema":{"type":"object"},"outputSchema":{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}},` +
				`{"name":"odd","inputSchema":{"type":"object"},"outputSchema":{"$ref":"https://example.com/evil.json"}}]}`, nil
		}
		return result, nil
	})
	for range c.Tools(t.Context()) {
	}
	for text, good := range map[string]bool{
		`{"content":[],"structuredContent":{"n":1}}`:   true,
		`{"content":[],"structuredContent":{"n":"1"}}`: false,
		`{"content":[],"structuredContent":null}`:      false,
		`{"content":[]}`: false,
		`{"content":[{"type":"text","text":"it failed"}],"isError":true}`: true,
	} {
		result = text
		_, err := c.CallTool(t.Context(), "t", nil)
		if (err == nil) != good || err != nil && !errors.Is(err, mcp.ErrInvalidResult) {
			t.Errorf("%s: %v", text, err)
		}
		if _, err := c.CallTool(t.Context(), "odd", nil); err != nil {
			t.Errorf("a schema that cannot be had: %v", err)
		}
	}
}

// Functions of the caller's that panic fail the request and nothing else.
func TestPanicsOfHandlersAreContained(t *testing.T) {
	opts := &mcp.ClientOptions{
		Elicit: func(context.Context, *mcp.ElicitRequestParams) (*mcp.ElicitResult, error) { panic("ouch") },
		Log:    func(context.Context, *mcp.LoggingMessage) { panic("ouch") },
	}
	onClients(t, calculator(t), opts, func(t *testing.T, _ mcptest.Combination, c *mcp.Client) {
		if r, err := c.CallTool(t.Context(), "ask", nil); err == nil && !r.IsError {
			t.Errorf("got %+v", r)
		}
		ctx := mcp.WithCallOptions(t.Context(), mcp.CallOptions{Progress: func(mcp.ProgressUpdate) { panic("ouch") }})
		if _, err := c.CallTool(ctx, "steps", nil); err != nil {
			t.Errorf("got %v", err)
		}
	})
}
