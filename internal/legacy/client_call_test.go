package legacy_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/patchbay-mcp/patchbay/internal/legacy"
	"github.com/patchbay-mcp/patchbay/internal/wire"
	"github.com/patchbay-mcp/patchbay/jsonrpc"
)

func TestRequestsAreSentWithoutEnvelope(t *testing.T) {
	s := &fakeServer{}
	c := open(t, clientConfig("2025-06-18"), s)
	for _, tc := range []struct{ method, params, want string }{
		{"tools/list", string(withEnvelope("", "")), `"method":"tools/list"`},
		{"tools/list", ``, `"method":"tools/list"`},
		{"tools/list", string(withEnvelope(`"cursor":""`, "")), `"method":"tools/list","params":{"cursor":""}`}, // T-48
		{"tools/call", string(withEnvelope(`"name":"t","requestState":"s","arguments":{"a":1.0,"_meta":{"x":1},"requestState":1}`, `"progressToken":7,"traceparent":"00-1-2-03","com.example/k":[1]`)),
			`"method":"tools/call","params":{"name":"t","arguments":{"a":1.0,"_meta":{"x":1},"requestState":1},"_meta":{"progressToken":7,"traceparent":"00-1-2-03","com.example/k":[1]}}`},
		{"com.example/x", string(withEnvelope(`"requestState":"mine"`, "")), `"method":"com.example/x","params":{"requestState":"mine"}`},
		{"ping", string(withEnvelope("", "")), `"method":"ping"`},
	} {
		got, err := c.RoundTrip(t.Context(), tc.method, json.RawMessage(tc.params), nil)
		if err != nil || !strings.Contains(string(got), `"resultType":"complete"`) {
			t.Errorf("%s: %s, %v", tc.method, got, err)
		}
		s.wants(t, tc.want)
	}
	for _, params := range []string{`[]`, `{"_meta":[]}`, `{"_meta":{"progressToken":1.5}}`} {
		_, err := c.RoundTrip(t.Context(), "tools/list", json.RawMessage(params), nil)
		var e *jsonrpc.Error
		if !errors.As(err, &e) || e.Code != wire.CodeInvalidParams || e.Remote() {
			t.Errorf("%s: %v", params, err)
		}
		s.wants(t)
	}
}

// Requirement: CMP-05
func TestCompletionContextNeedsItsRevision(t *testing.T) {
	for _, version := range sessionVersions {
		s := &fakeServer{}
		c := open(t, clientConfig(version), s)
		_, err := c.RoundTrip(t.Context(), "completion/complete", withEnvelope(`"ref":{"type":"ref/prompt","name":"p"},"context":{"arguments":{"a":"b"}}`, ""), nil)
		if err != nil {
			t.Errorf("%s: %v", version, err)
		}
		want := `"method":"completion/complete","params":{"ref":{"type":"ref/prompt","name":"p"}`
		if version >= "2025-06-18" {
			want += `,"context":{"arguments":{"a":"b"}}`
		}
		s.wants(t, want+`}`)
	}
}

// Requirement: LIFE-12, LIFE-13, LIFE-25, RPC-31
func TestOnlyDeclaredMethodsAreSent(t *testing.T) {
	for _, tc := range []struct{ version, capabilities, method, wantError string }{
		{"2025-06-18", `{}`, "tools/list", "does not offer tools"},
		{"2025-06-18", `{"tools":{}}`, "tools/call", ""},
		{"2025-06-18", `{"tools":{}}`, "prompts/list", "does not offer prompts"},
		{"2025-06-18", `{"tools":{}}`, "prompts/get", "does not offer prompts"},
		{"2024-11-05", `{"prompts":{}}`, "resources/read", "does not offer resources"},
		{"2025-03-26", `{"resources":{}}`, "resources/templates/list", ""},
		{"2025-03-26", `{"tools":null}`, "tools/list", "does not offer tools"},
		{"2024-11-05", `{}`, "completion/complete", ""}, // LIFE-25
		{"2025-03-26", `{"prompts":{}}`, "completion/complete", "does not offer completions"},
		{"2025-11-25", `{"completions":{}}`, "completion/complete", ""},
		{"2025-11-25", `{}`, "logging/setLevel", "does not offer logging"},
		{"2025-11-25", `{}`, "com.example/x", ""},                                                           // a method of an extension
		{"2025-06-18", `{"tasks":{"list":{}}}`, "tasks/get", "2025-06-18 of this session has no tasks/get"}, // T-17
		{"2025-11-25", allServerCapabilities, "tasks/get", "does not offer tasks, which"},
		{"2025-11-25", `{"tasks":{}}`, "tasks/get", ""},
		{"2025-11-25", `{"tasks":{}}`, "tasks/result", ""},
		{"2025-11-25", `{"tasks":{}}`, "tasks/list", "does not offer tasks.list, which"},
		{"2025-11-25", `{"tasks":{"list":{}}}`, "tasks/cancel", "does not offer tasks.cancel, which"},
		{"2025-11-25", `{"tasks":{"list":{}}}`, "tasks/list", ""},
		{"2025-11-25", `{"tasks":{"cancel":{}}}`, "tasks/cancel", ""},
		{"2025-11-25", allServerCapabilities, "initialize", "has no initialize"},
		{"2025-11-25", allServerCapabilities, "roots/list", "has no roots/list"},
		{"2024-11-05", allServerCapabilities, "elicitation/create", "has no elicitation/create"},
		{"2025-11-25", allServerCapabilities, "notifications/cancelled", "has no notifications/cancelled"},
	} {
		s := &fakeServer{capabilities: tc.capabilities}
		c := open(t, clientConfig(tc.version), s)
		_, err := c.RoundTrip(t.Context(), tc.method, withEnvelope(`"uri":"x:y"`, ""), nil)
		var e *jsonrpc.Error
		switch {
		case tc.wantError == "" && (err != nil || len(s.take()) != 1):
			t.Errorf("%+v: %v", tc, err)
		case tc.wantError != "" && (!errors.As(err, &e) || e.Code != wire.CodeMethodNotFound || e.Remote() || !strings.Contains(e.Message, tc.wantError) || s.take() != nil):
			t.Errorf("%+v: %v", tc, err)
		}
	}
}

func TestModernResults(t *testing.T) {
	for _, tc := range []struct{ method, result, want string }{
		{"tools/list", `{"tools":[{"name":"t","inputSchema":{"type":"object"},"execution":{"taskSupport":"optional"}}],"nextCursor":""}`,
			`{"resultType":"complete","ttlMs":0,"cacheScope":"private","tools":[{"name":"t","inputSchema":{"type":"object"},"execution":{"taskSupport":"optional"}}],"nextCursor":""}`},
		{"tools/call", `{"content":[{"type":"text","text":"x"}],"_meta":{"a":1},"isError":false}`,
			`{"resultType":"complete","content":[{"type":"text","text":"x"}],"_meta":{"a":1},"isError":false}`},
		{"resources/read", `{"contents":[],"ttlMs":60000,"cacheScope":"public"}`, `{"resultType":"complete","ttlMs":0,"cacheScope":"private","contents":[]}`},
		{"tools/call", `{"resultType":"input_required","inputRequests":{"a":{}},"requestState":"s","content":[]}`, `{"resultType":"complete","content":[]}`},
		{"com.example/x", `{"ttlMs":7,"requestState":"mine"}`, `{"resultType":"complete","ttlMs":7,"requestState":"mine"}`},
		{"ping", `{}`, `{"resultType":"complete"}`},
	} {
		c := open(t, clientConfig("2025-11-25"), &fakeServer{serve: afterInitialize(respondWith(tc.result))})
		got, err := c.RoundTrip(t.Context(), tc.method, withEnvelope(`"uri":"x:y","name":"t"`, ""), nil)
		if err != nil || string(got) != tc.want {
			t.Errorf("%s\ngot  %s, %v\nwant %s", tc.result, got, err, tc.want)
		}
	}
	for _, result := range []string{`null`, `[]`, `"x"`, `true`} {
		c := open(t, clientConfig("2025-11-25"), &fakeServer{serve: afterInitialize(respondWith(result))})
		if got, err := c.RoundTrip(t.Context(), "tools/list", nil, nil); got != nil || !errors.Is(err, legacy.ErrMalformed) {
			t.Errorf("%s: %s, %v", result, got, err)
		}
	}
}

// Requirement: RPC-25
func TestMissingResourcesHaveTheModernCode(t *testing.T) {
	for _, tc := range []struct {
		method, data, wantData string
		code, want             int
	}{
		{"resources/read", ``, `{"uri":"x:y"}`, -32002, -32602},
		{"resources/read", `{"uri":"x:z"}`, `{"uri":"x:z"}`, -32002, -32602},
		{"resources/read", `"gone"`, `{"uri":"x:y"}`, -32002, -32602},
		{"tools/call", ``, ``, -32002, -32002},
		{"resources/read", `{"a":1}`, `{"a":1}`, -32603, -32603},
	} {
		c := open(t, clientConfig("2025-06-18"), &fakeServer{serve: afterInitialize(failWith(tc.code, "no", tc.data))})
		_, err := c.RoundTrip(t.Context(), tc.method, withEnvelope(`"uri":"x:y"`, ""), nil)
		var e *jsonrpc.Error
		if !errors.As(err, &e) || !e.Remote() || e.Code != tc.want || string(e.Data) != tc.wantData || e.Message != "no" {
			t.Errorf("%+v: %v %s", tc, err, e.Data)
		}
	}
}

func TestProgressGoesToItsRequest(t *testing.T) {
	for token, other := range map[string]string{`7`: `"7"`, `"7"`: `7`, `"a\u0062"`: `"a"`} { // 7 and "7" are different tokens
		var c *legacy.Client
		s := &fakeServer{serve: afterInitialize(func(_ context.Context, req *jsonrpc.Message) *jsonrpc.Message {
			for i, token := range []string{token, `"other"`, `8`, other, token, `null`, `[]`, token} {
				c.Receive(message(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":%d}}`, token, i)))
			}
			c.Receive(message(`{"jsonrpc":"2.0","method":"notifications/progress"}`))
			return nil
		})}
		c = open(t, clientConfig("2025-06-18"), s)
		var got []string
		notify := func(_ context.Context, method string, params json.RawMessage) error {
			got = append(got, method+member(params, "progress"))
			return nil
		}
		sent := strings.ReplaceAll(token, `\u0062`, "b")
		if _, err := c.RoundTrip(t.Context(), "tools/list", withEnvelope("", `"progressToken":`+sent), notify); err != nil {
			t.Fatal(err)
		}
		c.Receive(message(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":` + token + `,"progress":9}}`)) // late
		const p = "notifications/progress"
		if diff := cmp.Diff([]string{p + "0", p + "4", p + "7"}, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", token, diff)
		}
		if _, err := c.RoundTrip(t.Context(), "tools/list", withEnvelope("", `"progressToken":`+sent), nil); err != nil {
			t.Errorf("without a notify function: %v", err)
		}
	}
}

func TestProgressEndsWhenNotifyFails(t *testing.T) {
	var c *legacy.Client
	c = open(t, clientConfig("2025-06-18"), &fakeServer{serve: afterInitialize(func(context.Context, *jsonrpc.Message) *jsonrpc.Message {
		for range 3 {
			c.Receive(message(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":1}}`))
		}
		return nil
	})})
	calls := 0
	_, err := c.RoundTrip(t.Context(), "tools/list", withEnvelope("", `"progressToken":1`), func(context.Context, string, json.RawMessage) error {
		calls++
		return errCancelled
	})
	if err != nil || calls != 1 {
		t.Errorf("notify was called %d times, error %v; want 1 call, no error", calls, err)
	}
}

// Requirement: PROG-01
func TestTokensAreUnique(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		c := open(t, clientConfig("2025-06-18"), &fakeServer{serve: afterInitialize(func(context.Context, *jsonrpc.Message) *jsonrpc.Message {
			<-release
			return nil
		})})
		notify := func(context.Context, string, json.RawMessage) error { return nil }
		call := func() error {
			_, err := c.RoundTrip(t.Context(), "tools/list", withEnvelope("", `"progressToken":1`), notify)
			return err
		}
		first := make(chan error)
		go func() { first <- call() }()
		synctest.Wait()
		var e *jsonrpc.Error
		if err := call(); !errors.As(err, &e) || e.Code != wire.CodeInvalidParams || e.Remote() {
			t.Errorf("a second request with a token in use: error %v, want a local -32602", err)
		}
		close(release)
		if err := <-first; err != nil {
			t.Error(err)
		}
		if err := call(); err != nil {
			t.Errorf("a request with the token of a finished request: %v", err)
		}
		c.Close()
	})
}

func TestContextCauseIsReturned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := open(t, clientConfig("2025-06-18"), &fakeServer{serve: afterInitialize(func(ctx context.Context, _ *jsonrpc.Message) *jsonrpc.Message {
			<-ctx.Done()
			return nil
		})})
		for _, method := range []string{"tools/list", "subscriptions/listen"} {
			ctx, cancel := context.WithCancelCause(t.Context())
			done := make(chan error)
			go func() {
				_, err := c.RoundTrip(ctx, method, withEnvelope(`"notifications":{"resourceSubscriptions":["x:y"]}`, `"progressToken":1`),
					func(context.Context, string, json.RawMessage) error { return nil })
				done <- err
			}()
			synctest.Wait()
			cancel(errCancelled)
			if err := <-done; err != errCancelled {
				t.Errorf("%s: %v", method, err)
			}
		}
		c.Close()
	})
}
