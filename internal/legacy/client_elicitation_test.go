package legacy_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/legacy"
	"github.com/patchbay-mcp/patchbay/jsonrpc"
)

const urlElicitations = `{"elicitations":[{"mode":"url","message":"m","url":"https://a.example/x","elicitationId":"v\"1"},{"mode":"url","message":"n","url":"https://b.example/","elicitationId":"v2","_meta":{"progressToken":1}}]}`

// Requirement: ELI-30
func TestRequiredElicitationsAreInputRequests(t *testing.T) {
	s := &fakeServer{serve: afterInitialize(failWith(-32042, "visit", urlElicitations))}
	c := open(t, clientConfig("2025-11-25"), s)
	got, err := c.RoundTrip(t.Context(), "tools/call", withEnvelope(`"name":"t"`, ""), nil)
	want := `{"resultType":"input_required","inputRequests":{` +
		`"v\"1":{"method":"elicitation/create","params":{"mode":"url","message":"m","url":"https://a.example/x","elicitationId":"v\"1"}},` +
		`"v2":{"method":"elicitation/create","params":{"mode":"url","message":"n","url":"https://b.example/","elicitationId":"v2"}}}}`
	if err != nil || string(got) != want {
		t.Errorf("got %s, %v", got, err)
	}
	visit := func(id string) string {
		return `{"mode":"url","message":"m","url":"https://a.example/","elicitationId":"` + id + `"}`
	}
	many := visit("0")
	for i := range 16 {
		many += "," + visit(fmt.Sprint(i+1))
	}
	for name, tc := range map[string]struct{ version, method, capabilities, data string }{
		"not declared":    {"2025-11-25", "tools/call", `{"elicitation":{}}`, urlElicitations},
		"older revision":  {"2025-06-18", "tools/call", allClientCapabilities, urlElicitations},
		"another method":  {"2025-11-25", "tools/list", allClientCapabilities, urlElicitations},
		"no elicitations": {"2025-11-25", "tools/call", allClientCapabilities, `{"elicitations":[]}`},
		"no data":         {"2025-11-25", "tools/call", allClientCapabilities, ``},
		"invalid data":    {"2025-11-25", "tools/call", allClientCapabilities, `{"elicitations":[7]}`},
		"a form":          {"2025-11-25", "tools/call", allClientCapabilities, `{"elicitations":[{"mode":"form","message":"m","elicitationId":"v"}]}`},
		"no id":           {"2025-11-25", "tools/call", allClientCapabilities, `{"elicitations":[{"mode":"url","message":"m","url":"https://a.example/"}]}`},
		"long id":         {"2025-11-25", "tools/call", allClientCapabilities, `{"elicitations":[` + visit(strings.Repeat("x", 257)) + `]}`},
		"same id":         {"2025-11-25", "tools/call", allClientCapabilities, `{"elicitations":[` + visit("a") + `,` + visit("a") + `]}`},
		"too many":        {"2025-11-25", "tools/call", allClientCapabilities, `{"elicitations":[` + many + `]}`},
	} {
		cfg := clientConfig(tc.version)
		cfg.Capabilities = json.RawMessage(tc.capabilities)
		c := open(t, cfg, &fakeServer{serve: afterInitialize(failWith(-32042, "visit", tc.data))})
		got, err := c.RoundTrip(t.Context(), tc.method, withEnvelope(`"name":"t"`, ""), nil)
		var e *jsonrpc.Error
		if got != nil || !errors.As(err, &e) || !e.Remote() || e.Code != -32042 || string(e.Data) != tc.data {
			t.Errorf("%s: %s, %v", name, got, err)
		}
	}
}

// Requirement: ELI-28, ELI-29
func TestElicitationsAreAwaited(t *testing.T) {
	retry := func(answer string) json.RawMessage {
		return withEnvelope(`"name":"t","inputResponses":{"v\"1":`+answer+`,"v2":{"action":"accept"}}`, "")
	}
	const accepted = `{"action":"accept"}`
	done := func(id string) *jsonrpc.Message {
		return message(`{"jsonrpc":"2.0","method":"notifications/elicitation/complete","params":{"elicitationId":"` + id + `"}}`)
	}
	for name, tc := range map[string]struct {
		answer  string
		receive func(c *legacy.Client)
		end     func(c *legacy.Client, cancel context.CancelCauseFunc)
		within  time.Duration
		want    string // part of the error
	}{
		"both done":              {accepted, func(c *legacy.Client) { c.Receive(done(`v\"1`)); c.Receive(done("v2")); c.Receive(done("v2")) }, nil, 0, ""},
		"one done":               {accepted, func(c *legacy.Client) { c.Receive(done("v2")); c.Receive(done("unknown")) }, nil, 30 * time.Second, ""},
		"without a notification": {accepted, func(c *legacy.Client) {}, nil, 30 * time.Second, ""}, // which is optional
		"done later": {accepted, func(c *legacy.Client) {
			time.AfterFunc(3*time.Second, func() { c.Receive(done(`v\"1`)) })
			time.AfterFunc(5*time.Second, func() { c.Receive(done("v2")) })
		}, nil, 5 * time.Second, ""},
		"declined":  {`{"action":"decline"}`, func(c *legacy.Client) {}, nil, 0, "did not accept"},
		"no action": {`7`, func(c *legacy.Client) {}, nil, 0, "did not accept"},
		"request cancelled": {accepted, func(c *legacy.Client) {}, func(c *legacy.Client, cancel context.CancelCauseFunc) {
			time.AfterFunc(time.Second, func() { cancel(errCancelled) })
		}, time.Second, "cancelled"},
		"session ended": {accepted, func(c *legacy.Client) {}, func(c *legacy.Client, cancel context.CancelCauseFunc) {
			time.AfterFunc(time.Second, func() { c.Close() })
		}, time.Second, "ended"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				refused := false
				s := &fakeServer{serve: afterInitialize(func(ctx context.Context, req *jsonrpc.Message) *jsonrpc.Message {
					if refused {
						return respondWith(`{"content":[]}`)(ctx, req)
					}
					refused = true
					return failWith(-32042, "visit", urlElicitations)(ctx, req)
				})}
				c := open(t, clientConfig("2025-11-25"), s)
				defer c.Close()
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				if _, err := c.RoundTrip(ctx, "tools/call", withEnvelope(`"name":"t"`, ""), nil); err != nil {
					t.Fatal(err)
				}
				s.take()
				start := time.Now()
				tc.receive(c)
				if tc.end != nil {
					tc.end(c, cancel)
				}
				got, err := c.RoundTrip(ctx, "tools/call", retry(tc.answer), nil)
				if took := time.Since(start); took != tc.within {
					t.Errorf("RoundTrip took %v, want %v", took, tc.within)
				}
				if tc.want != "" {
					if err == nil || !strings.Contains(err.Error(), tc.want) {
						t.Errorf("got %s, %v", got, err)
					}
					s.wants(t)
					return
				}
				if err != nil || string(got) != `{"resultType":"complete","content":[]}` {
					t.Errorf("got %s, %v", got, err)
				}
				s.wants(t, `"method":"tools/call","params":{"name":"t"}`)
			})
		})
	}
}

func TestTrackedElicitationsAreLimited(t *testing.T) {
	n := 0
	c := open(t, clientConfig("2025-11-25"), &fakeServer{serve: afterInitialize(func(ctx context.Context, req *jsonrpc.Message) *jsonrpc.Message {
		n++
		return failWith(-32042, "visit", fmt.Sprintf(`{"elicitations":[{"mode":"url","message":"m","url":"https://a.example/","elicitationId":"v%d"}]}`, n))(ctx, req)
	})})
	for range 10_000 {
		if _, err := c.RoundTrip(t.Context(), "tools/call", withEnvelope(`"name":"t"`, ""), nil); err != nil {
			t.Fatal(err)
		}
	}
	if kept := c.TrackedElicitations(); kept != 256 {
		t.Errorf("%d elicitations are tracked, want 256", kept)
	}
}
