package legacy_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/patchbay-mcp/patchbay/internal/legacy"
	"github.com/patchbay-mcp/patchbay/jsonrpc"
)

// sendServerRequest sends one request to a client with the given Answer function, and returns the
// responses.
func sendServerRequest(t *testing.T, version, capabilities, method, params string,
	answer func(params string) (string, *jsonrpc.Error)) (lines []string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		cfg := clientConfig(version)
		cfg.Capabilities = json.RawMessage(capabilities)
		cfg.Answer = func(_ context.Context, got string, params json.RawMessage) (json.RawMessage, *jsonrpc.Error) {
			if got != method {
				t.Errorf("Answer was called for %s, want %s", got, method)
			}
			result, err := answer(string(params))
			return json.RawMessage(result), err
		}
		s := &fakeServer{}
		c := open(t, cfg, s)
		defer c.Close()
		if params != "" {
			params = `,"params":` + params
		}
		c.Receive(message(`{"jsonrpc":"2.0","id":"q","method":"` + method + `"` + params + `}`))
		synctest.Wait()
		lines = s.take()
	})
	return lines
}

// Requirement: ROOT-05
func TestServerRequestsInEachRevision(t *testing.T) {
	const (
		sample    = `{"role":"assistant","content":[{"type":"text","text":"a","_meta":{"k":1},"annotations":{"lastModified":"x","priority":1}}],"model":"m"}`
		sampled   = `{"role":"assistant","content":{"type":"text","text":"a","annotations":{"priority":1}},"model":"m"}`
		sampledC  = `{"role":"assistant","content":{"type":"text","text":"a","_meta":{"k":1},"annotations":{"lastModified":"x","priority":1}},"model":"m"}`
		several   = `{"role":"assistant","content":[{"type":"text","text":"a"},{"type":"text","text":"\"b"}],"model":"m","stopReason":"endTurn"}`
		joined    = `{"role":"assistant","content":{"type":"text","text":"a\"b"},"model":"m","stopReason":"endTurn"}`
		pictures  = `{"role":"assistant","content":[{"type":"text","text":"a"},{"type":"image","data":"","mimeType":"image/png"}],"model":"m"}`
		picture   = `{"role":"assistant","content":[{"type":"image","data":"","mimeType":"image/png"}],"model":"m"}`
		pictured  = `{"role":"assistant","content":{"type":"image","data":"","mimeType":"image/png"},"model":"m"}`
		sound     = `{"role":"assistant","content":{"type":"audio","data":"","mimeType":"audio/wav"},"model":"m"}`
		toolUse   = `{"role":"assistant","content":{"type":"tool_use","id":"1","name":"t","input":{}},"model":"m"}`
		nothing   = `{"role":"assistant","content":[],"model":"m"}`
		empty     = `{"role":"assistant","content":{"type":"text","text":""},"model":"m"}`
		question  = `{"messages":[{"role":"user","content":{"type":"text","text":"?"}}],"maxTokens":5}`
		noForm    = `"error":{"code":-32603,"message":"the session's protocol revision has no form for a result with `
		roots     = `{"roots":[{"uri":"file:///a","_meta":{"k":1}}]}`
		accept    = `{"resultType":"complete","action":"accept","content":{"a":1}}`
		form      = `"message":"m","requestedSchema":{"type":"object","properties":{}}`
		acceptOld = `"id":"q","result":{"action":"accept","content":{"a":1}}`
	)
	for _, tc := range []struct {
		versions               string
		method, params, wanted string // the server's request, and what Answer gets
		answer, want           string
	}{
		{"A B C D", "roots/list", ``, ``, `{"roots":[]}`, `"id":"q","result":{"roots":[]}`},
		{"A B C D", "roots/list", `{"_meta":{"progressToken":1}}`, `{}`, `{"roots":[]}`, `"id":"q","result":{"roots":[]}`},
		{"A B", "roots/list", ``, ``, roots, `"id":"q","result":{"roots":[{"uri":"file:///a"}]}`},
		{"C D", "roots/list", ``, ``, roots, `"id":"q","result":` + roots},
		{"A B", "sampling/createMessage", question, question, sample, `"id":"q","result":` + sampled},
		{"C", "sampling/createMessage", question, question, sample, `"id":"q","result":` + sampledC},
		{"D", "sampling/createMessage", question, question, sample, `"id":"q","result":` + sample},
		{"A B C", "sampling/createMessage", question, question, several, `"id":"q","result":` + joined}, // T-44
		{"D", "sampling/createMessage", question, question, several, `"id":"q","result":` + several},
		{"A B C", "sampling/createMessage", question, question, pictures, `"id":"q",` + noForm + `several blocks`},
		{"A B C", "sampling/createMessage", question, question, picture, `"id":"q","result":` + pictured},
		{"A B C", "sampling/createMessage", question, question, nothing, `"id":"q","result":` + empty},
		{"A", "sampling/createMessage", question, question, sound, `"id":"q",` + noForm + `audio`},
		{"B C D", "sampling/createMessage", question, question, sound, `"id":"q","result":` + sound},
		{"A B C", "sampling/createMessage", question, question, toolUse, `"id":"q",` + noForm + `a use of tools`},
		{"D", "sampling/createMessage", question, question, toolUse, `"id":"q","result":` + toolUse},
		{"C D", "elicitation/create", `{` + form + `}`, `{"mode":"form",` + form + `}`, accept, acceptOld}, // ELI-05
		{"C", "elicitation/create", `{"mode":"form","task":{"ttl":1},"_meta":{"progressToken":1,"io.modelcontextprotocol/related-task":{"taskId":"t"},"k":1},` + form + `}`,
			`{"mode":"form","_meta":{"k":1},` + form + `}`, `{"action":"decline"}`, `"id":"q","result":{"action":"decline"}`},
		{"D", "elicitation/create", `{"mode":"form","task":{"ttl":1},"_meta":{"progressToken":1,"io.modelcontextprotocol/related-task":{"taskId":"t"},"k":1},` + form + `}`,
			`{"mode":"form","_meta":{"k":1},` + form + `}`, `{"action":"decline"}`,
			`"id":"q","result":{"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"t"}},"action":"decline"}`}, // TASKD-13
		{"D", "sampling/createMessage", `{"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"t"}},"messages":[],"maxTokens":5}`, `{"messages":[],"maxTokens":5}`,
			`{"_meta":{"k":1,"io.modelcontextprotocol/related-task":{}},` + sample[1:], `"id":"q","result":{"_meta":{"k":1,"io.modelcontextprotocol/related-task":{"taskId":"t"}},` + sample[1:]},
		{"D", "roots/list", `{"_meta":{"io.modelcontextprotocol/related-task":"t"}}`, `{}`, `{"roots":[]}`, `"id":"q","result":{"roots":[]}`},
		{"D", "elicitation/create", `{"mode":"url","message":"m","url":"https://a.example/","elicitationId":"e"}`, `{"mode":"url","message":"m","url":"https://a.example/","elicitationId":"e"}`,
			`{"action":"accept"}`, `"id":"q","result":{"action":"accept"}`},
		{"A B C D", "roots/list", ``, ``, `[]`, `"id":"q","error":{"code":-32603,"message":"internal error"`},
		{"A B C D", "roots/list", ``, ``, ``, `"id":"q","error":{"code":-32603,"message":"internal error"`},
	} {
		for letter := range strings.FieldsSeq(tc.versions) {
			version := sessionVersions[letter[0]-'A']
			got := sendServerRequest(t, version, allClientCapabilities, tc.method, tc.params, func(params string) (string, *jsonrpc.Error) {
				if params != tc.wanted {
					t.Errorf("%s %s: Answer got params %s, want %s", version, tc.method, params, tc.wanted)
				}
				return tc.answer, nil
			})
			if len(got) != 1 || !strings.HasPrefix(got[0], tc.want) {
				t.Errorf("%s %s: sent %q, want %q", version, tc.method, got, tc.want)
			}
		}
	}
}

func TestErrorsOfAnswerAreSent(t *testing.T) {
	got := sendServerRequest(t, "2025-11-25", allClientCapabilities, "sampling/createMessage", `{}`, func(string) (string, *jsonrpc.Error) {
		return "", &jsonrpc.Error{Code: -1, Message: "the user refused"}
	})
	if want := []string{`"id":"q","error":{"code":-1,"message":"the user refused"}`}; !slices.Equal(got, want) { // SAMP-09
		t.Errorf("got %q", got)
	}
	got = sendServerRequest(t, "2025-11-25", allClientCapabilities, "sampling/createMessage", `{}`, func(string) (string, *jsonrpc.Error) {
		return "", &jsonrpc.Error{Code: -32021, Message: "x", Data: json.RawMessage(`{"requiredCapabilities":{"sampling":{}}}`)}
	})
	if len(got) != 1 || !strings.HasPrefix(got[0], `"id":"q","error":{"code":-32600,`) { // RPC-26
		t.Errorf("got %q", got)
	}
}

// Requirement: RPC-31, ELI-26, SAMP-05, ROOT-05
func TestUndeclaredRequestsAreRejected(t *testing.T) {
	for _, tc := range []struct {
		version, capabilities, method, params string
		code                                  int
	}{
		{"2025-11-25", `{}`, "sampling/createMessage", `{}`, -32601},
		{"2025-11-25", `{}`, "elicitation/create", `{}`, -32601},
		{"2025-11-25", `{}`, "roots/list", `{}`, -32601}, // ROOT-05
		{"2025-11-25", allClientCapabilities, "tools/list", `{}`, -32601},
		{"2025-11-25", allClientCapabilities, "tasks/get", `{}`, -32601},
		{"2025-11-25", allClientCapabilities, "com.example/x", `{}`, -32601},
		{"2025-03-26", allClientCapabilities, "elicitation/create", `{}`, -32601}, // not in this revision
		{"2025-11-25", allClientCapabilities, "sampling/createMessage", `[]`, -32602},
		{"2025-11-25", allClientCapabilities, "sampling/createMessage", ``, -32602},
		{"2025-11-25", allClientCapabilities, "elicitation/create", ``, -32602},
		{"2025-11-25", allClientCapabilities, "roots/list", `[]`, -32602},
		{"2025-11-25", `{"elicitation":{}}`, "elicitation/create", `{"mode":"url"}`, -32602},
		{"2025-11-25", `{"elicitation":{"url":{}}}`, "elicitation/create", `{}`, -32602},
		{"2025-11-25", `{"elicitation":{"url":{}}}`, "elicitation/create", `{"mode":"form"}`, -32602},
		{"2025-11-25", allClientCapabilities, "elicitation/create", `{"mode":"voice"}`, -32602},
		{"2025-11-25", allClientCapabilities, "elicitation/create", `{"mode":null}`, -32602},
		{"2025-06-18", allClientCapabilities, "elicitation/create", `{"mode":"url"}`, -32602},
		{"2025-11-25", `{"sampling":{}}`, "sampling/createMessage", `{"tools":[]}`, -32602},
		{"2025-11-25", `{"sampling":{}}`, "sampling/createMessage", `{"toolChoice":{}}`, -32602},
		{"2025-06-18", allClientCapabilities, "sampling/createMessage", `{"tools":[{}]}`, -32602},
	} {
		got := sendServerRequest(t, tc.version, tc.capabilities, tc.method, tc.params, func(string) (string, *jsonrpc.Error) {
			t.Errorf("%+v: Answer was called", tc)
			return "{}", nil
		})
		if want := fmt.Sprintf(`"id":"q","error":{"code":%d,`, tc.code); len(got) != 1 || !strings.HasPrefix(got[0], want) {
			t.Errorf("%+v: sent %q, want %s", tc, got, want)
		}
	}
}

// Requirement: PING-01
func TestPingIsAnsweredAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := legacy.NewClient(clientConfig("2025-06-18"))
		c.Receive(message(`{"jsonrpc":"2.0","id":1,"method":"ping"}`)) // before the connection is attached
		s := &fakeServer{done: make(chan struct{}), serve: func(_ context.Context, req *jsonrpc.Message) *jsonrpc.Message {
			if req.Method == "initialize" {
				c.Receive(message(`{"jsonrpc":"2.0","id":"b","method":"ping","params":{}}`))
				synctest.Wait()
			}
			return nil
		}}
		if _, err := c.Open(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		got := s.take()
		got = slices.DeleteFunc(got, func(l string) bool { return strings.Contains(l, `"method"`) })
		if diff := cmp.Diff([]string{`"id":1,"result":{}`, `"id":"b","result":{}`}, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		c.Close()
	})
}

func TestRequestsBeforeOpenWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := clientConfig("2025-11-25")
		cfg.Answer = func(context.Context, string, json.RawMessage) (json.RawMessage, *jsonrpc.Error) {
			return json.RawMessage(`{"roots":[]}`), nil
		}
		c := legacy.NewClient(cfg)
		c.Receive(message(`{"jsonrpc":"2.0","id":1,"method":"roots/list"}`))
		s := &fakeServer{done: make(chan struct{})}
		if _, err := c.Open(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if got := s.take(); !slices.Contains(got, `"id":1,"result":{"roots":[]}`) {
			t.Errorf("got %q", got)
		}
		c.Close()

		c = legacy.NewClient(cfg) // never opened
		c.Receive(message(`{"jsonrpc":"2.0","id":1,"method":"roots/list"}`))
		synctest.Wait()
		c.Close()
	})
}

// untilCancelled returns an Answer function that waits for its context and sends the cause.
func untilCancelled(cause chan<- error) answerer {
	return func(ctx context.Context, _ string, _ json.RawMessage) (json.RawMessage, *jsonrpc.Error) {
		<-ctx.Done()
		cause <- context.Cause(ctx)
		return json.RawMessage(`{"roots":[]}`), nil
	}
}

// Requirement: CAN-04, CAN-05
func TestServerCancelsItsRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cause := make(chan error, 1)
		cfg := clientConfig("2025-11-25")
		cfg.Answer = untilCancelled(cause)
		cfg.Cancelled = func(reason string) error { return fmt.Errorf("%w: %s", errCancelled, reason) }
		s := &fakeServer{}
		c := open(t, cfg, s)
		c.Receive(message(`{"jsonrpc":"2.0","id":1,"method":"roots/list"}`))
		synctest.Wait()
		for _, params := range []string{`{"requestId":"1"}`, `{"requestId":2}`, `{}`, `[]`, `{"requestId":null}`} { // RPC-06, CAN-05, CAN-09
			c.Receive(message(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":` + params + `}`))
		}
		synctest.Wait()
		if len(cause) > 0 {
			t.Fatal("the request was cancelled by a notification with another id")
		}
		c.Receive(message(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1,"reason":"enough"}}`))
		synctest.Wait()
		if err := <-cause; !errors.Is(err, errCancelled) || !strings.Contains(err.Error(), "enough") {
			t.Errorf("cancellation cause %v", err)
		}
		s.wants(t)
		c.Close()
	})
}

func TestRequestsEndWithTheSession(t *testing.T) {
	for name, end := range map[string]func(c *legacy.Client, s *fakeServer){
		"closed": func(c *legacy.Client, _ *fakeServer) { c.Close() },
		"lost":   func(_ *legacy.Client, s *fakeServer) { s.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cause := make(chan error, 1)
				cfg := clientConfig("2025-11-25")
				cfg.Answer = untilCancelled(cause)
				cfg.Notify = func(_ context.Context, method string, _ json.RawMessage) {
					t.Errorf("Notify got %s after the session ended", method)
				}
				s := &fakeServer{}
				c := open(t, cfg, s)
				c.Receive(message(`{"jsonrpc":"2.0","id":1,"method":"roots/list"}`))
				synctest.Wait()
				end(c, s)
				if err := <-cause; !errors.Is(err, legacy.ErrEnded) {
					t.Errorf("cancellation cause %v", err)
				}
				// A lost session ends its requests first, and then itself.
				synctest.Wait()
				c.Receive(message(`{"jsonrpc":"2.0","id":2,"method":"ping"}`)) // the response is dropped
				c.Receive(message(`{"jsonrpc":"2.0","id":3,"method":"roots/list"}`))
				c.Receive(message(`{"jsonrpc":"2.0","method":"notifications/message","params":{}}`))
				c.Close()
			})
		})
	}
}

func TestCloseIsLimitedInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		cfg := clientConfig("2025-11-25")
		cfg.Answer = func(context.Context, string, json.RawMessage) (json.RawMessage, *jsonrpc.Error) {
			<-release
			return nil, nil
		}
		c := open(t, cfg, &fakeServer{})
		c.Receive(message(`{"jsonrpc":"2.0","id":1,"method":"roots/list"}`))
		synctest.Wait()
		start := time.Now()
		c.Close()
		if took := time.Since(start); took != 2*time.Second {
			t.Errorf("Close took %v, want 2s", took)
		}
		close(release)
	})
}

func TestServerRequestsAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cause := make(chan error, 100)
		cfg := clientConfig("2025-11-25")
		cfg.Answer = untilCancelled(cause)
		s := &fakeServer{}
		c := open(t, cfg, s)
		for i := range 64 {
			c.Receive(message(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"roots/list"}`, i)))
		}
		synctest.Wait()
		s.wants(t)
		c.Receive(message(`{"jsonrpc":"2.0","id":64,"method":"roots/list"}`))
		c.Receive(message(`{"jsonrpc":"2.0","id":65,"method":"ping"}`))
		synctest.Wait()
		s.wants(t, `"id":64,"error":{"code":429,"message":"too many requests in progress","data":{"retryAfterMs":1000}}`, `"id":65,"result":{}`)
		c.Receive(message(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`))
		<-cause
		synctest.Wait()
		c.Receive(message(`{"jsonrpc":"2.0","id":66,"method":"roots/list"}`)) // below the limit again
		synctest.Wait()
		s.wants(t)
		c.Receive(message(`{"jsonrpc":"2.0","id":66,"method":"roots/list"}`)) // RPC-05
		synctest.Wait()
		s.wants(t, `"id":66,"error":{"code":-32600,"message":"a request with this id is in progress"}`)
		c.Close()
	})
}

func TestServerRequestBytesAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cause := make(chan error, 100)
		cfg := clientConfig("2025-11-25")
		cfg.Answer = untilCancelled(cause)
		s := &fakeServer{}
		c := open(t, cfg, s)
		large := json.RawMessage(`{"messages":[],"x":"` + strings.Repeat("x", 16<<20-100) + `"}`)
		for i := range 5 {
			c.Receive(&jsonrpc.Message{ID: jsonrpc.IntID(int64(i)), Method: "sampling/createMessage", Params: large})
		}
		synctest.Wait()
		s.wants(t, `"id":4,"error":{"code":429,"message":"too many requests in progress","data":{"retryAfterMs":1000}}`)
		c.Receive(message(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`))
		<-cause
		synctest.Wait()
		c.Receive(&jsonrpc.Message{ID: jsonrpc.IntID(7), Method: "sampling/createMessage", Params: large})
		synctest.Wait()
		s.wants(t)
		c.Close()
	})
}

func TestManyMessagesDoNotBlockOrUseMemory(t *testing.T) {
	for name, text := range map[string]string{
		"pings":         `{"jsonrpc":"2.0","id":"%d","method":"ping"}`,
		"requests":      `{"jsonrpc":"2.0","id":"%d","method":"roots/list","params":{"_meta":{"x":"0123456789012345678901234567890123456789"}}}`,
		"unknown":       `{"jsonrpc":"2.0","id":"%d","method":"x"}`,
		"cancellations": `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"%d"}}`,
		"updates":       `{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"x:/%d"}}`,
		"progress":      `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"%d","progress":1}}`,
		"completions":   `{"jsonrpc":"2.0","method":"notifications/elicitation/complete","params":{"elicitationId":"%d"}}`,
	} {
		t.Run(name, func(t *testing.T) {
			release := make(chan struct{})
			cfg := clientConfig("2025-11-25")
			cfg.Answer = func(ctx context.Context, _ string, _ json.RawMessage) (json.RawMessage, *jsonrpc.Error) {
				<-ctx.Done()
				return nil, nil
			}
			c := open(t, cfg, &fakeServer{send: func(ctx context.Context, m *jsonrpc.Message) error {
				if m.Method != "" {
					return nil
				}
				select { // a server that does not read
				case <-release:
				case <-ctx.Done():
				}
				return ctx.Err()
			}})
			defer close(release)
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			blocked := make(chan struct{})
			var listening atomic.Bool
			go func() { // a handler that does not return
				_, _ = c.RoundTrip(ctx, "subscriptions/listen", withEnvelope(`"notifications":{"resourceSubscriptions":["x:/"]}`, ""),
					func(ctx context.Context, _ string, _ json.RawMessage) error {
						if listening.CompareAndSwap(false, true) {
							close(blocked)
						}
						<-ctx.Done()
						return ctx.Err()
					})
			}()
			<-blocked
			goroutines := runtime.NumGoroutine()
			before := heap()
			for i := range 20_000 {
				c.Receive(message(fmt.Sprintf(text, i)))
			}
			if growth := heap() - before; growth > 2<<20 {
				t.Errorf("the heap grew by %d bytes, want at most %d", growth, 2<<20)
			}
			if more := runtime.NumGoroutine() - goroutines; more > 64 {
				t.Errorf("%d more goroutines, want at most 64", more)
			}
		})
	}
}

func TestUnreadReplyDelaysTheNextForALimitedTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first := true
		s := &fakeServer{send: func(ctx context.Context, m *jsonrpc.Message) error {
			if m.Method == "" && first {
				first = false
				<-ctx.Done()
				return ctx.Err()
			}
			return nil
		}}
		c := open(t, clientConfig("2025-11-25"), s)
		c.Receive(message(`{"jsonrpc":"2.0","id":1,"method":"ping"}`))
		c.Receive(message(`{"jsonrpc":"2.0","id":2,"method":"ping"}`))
		<-time.After(30 * time.Second)
		synctest.Wait()
		s.wants(t, `"id":2,"result":{}`)
		c.Close()
	})
}

// Requirement: RPC-15
func TestBatchesOfServers(t *testing.T) {
	batch := message(`[
		{"jsonrpc":"2.0","id":1,"method":"ping"},
		{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":1}},
		{"jsonrpc":"1.0","id":2,"method":"ping"},
		{"jsonrpc":"1.0","method":"ping"},
		{"jsonrpc":"2.0","id":3,"result":{}},
		{"jsonrpc":"2.0","id":4,"method":"x"}]`)
	for _, version := range sessionVersions {
		synctest.Test(t, func(t *testing.T) {
			cfg := clientConfig(version)
			logged := 0
			cfg.Notify = func(context.Context, string, json.RawMessage) { logged++ }
			s := &fakeServer{}
			c := open(t, cfg, s)
			c.Receive(batch)
			synctest.Wait()
			got := s.take()
			slices.Sort(got)
			want := []string{
				`"id":1,"result":{}`,
				`"id":2,"error":{"code":-32600,"message":"invalid request: \"jsonrpc\" is not \"2.0\""}`,
				`"id":4,"error":{"code":-32601,"message":"method not found"}`,
			}
			if version != "2025-03-26" { // RPC-18
				want = nil
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", version, diff)
			}
			if (logged == 1) != (version == "2025-03-26") {
				t.Errorf("%s: Notify was called %d times", version, logged)
			}
			c.Close()
		})
	}
}

func TestOtherNotificationsArePassedOn(t *testing.T) {
	cfg := clientConfig("2025-11-25")
	var got []string
	cfg.Notify = func(_ context.Context, method string, params json.RawMessage) {
		got = append(got, method+string(params))
	}
	c := open(t, cfg, &fakeServer{})
	for _, m := range []string{
		`"method":"notifications/message","params":{"level":"info","data":1}`,
		`"method":"com.example/x"`,
		`"method":"com.example/y","params":[1]`,
		`"method":"notifications/elicitation/complete","params":{"elicitationId":"e"}`,
		`"method":"notifications/tools/list_changed"`, // there is no subscription
		`"method":"notifications/progress","params":{"progressToken":1,"progress":1}`,
		`"method":"notifications/cancelled","params":{"requestId":1}`,
	} {
		c.Receive(message(`{"jsonrpc":"2.0",` + m + `}`))
	}
	want := []string{`notifications/message{"level":"info","data":1}`, `com.example/x{}`, `com.example/y{}`, `notifications/elicitation/complete{"elicitationId":"e"}`}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	c = open(t, clientConfig("2025-11-25"), &fakeServer{}) // without a Notify function
	c.Receive(message(`{"jsonrpc":"2.0","method":"notifications/message","params":{}}`))
}
