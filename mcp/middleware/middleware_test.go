package middleware_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/jsonrpc"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcp/middleware"
	"github.com/patchbay-mcp/patchbay/mcptest"
	"github.com/patchbay-mcp/patchbay/mcptest/testhome"
)

func TestMain(m *testing.M) { os.Exit(testhome.Main(m, mcptest.Main)) }

type object = map[string]any

func newServer(m ...mcp.Middleware) *mcp.Server {
	s := mcp.NewServer("test", "1", &mcp.ServerOptions{Middleware: m})
	for _, name := range []string{"a", "b"} {
		mcp.AddTool(s, &mcp.Tool{Name: name}, func(context.Context, struct{}) (string, error) { return name, nil })
	}
	return s
}

// run calls test for every transport and revision, each with a server of its own.
func run(t *testing.T, make func() *mcp.Server, opts *mcptest.Options, test func(t *testing.T, c *mcptest.Client)) {
	for _, on := range mcptest.Combinations() {
		mcptest.RunOn(t, make(), []mcptest.Combination{on}, opts, test)
	}
}

// wantBusy tests for a refusal that says when to try again.
func wantBusy(t *testing.T, what string, err *mcp.Error) {
	t.Helper()
	if err == nil || err.Code != mcp.CodeBusy || !strings.HasPrefix(string(err.Data), `{"retryAfterMs":`) {
		t.Errorf("%s: got %v, want code %d with retryAfterMs", what, err, mcp.CodeBusy)
	}
}

// Requirement: TOOL-25
func TestCallsAreRateLimited(t *testing.T) {
	limited := func() *mcp.Server {
		return newServer(middleware.RateLimit(&middleware.RateLimitOptions{
			ToolCalls: middleware.Rate{PerSecond: 1, Burst: 3},
			Tools:     map[string]middleware.Rate{"b": {PerSecond: 0.1}},
		}))
	}
	run(t, limited, nil, func(t *testing.T, c *mcptest.Client) {
		c.Call("tools/call", object{"name": "b"})
		_, err := c.Try("tools/call", object{"name": "b"})
		wantBusy(t, "second call of b", err)
		c.Call("tools/call", object{"name": "a"})
		c.Call("tools/call", object{"name": "a"})
		_, err = c.Try("tools/call", object{"name": "a"})
		wantBusy(t, "fourth call", err)
		time.Sleep(time.Second)
		c.Call("tools/call", object{"name": "a"})
		for range 10 {
			c.Call("tools/list", nil)
		}
	})
}

// Requirement: TOOL-25
func TestCallersHaveTheirOwnLimits(t *testing.T) {
	s := newServer(middleware.RateLimit(&middleware.RateLimitOptions{ToolCalls: middleware.Rate{PerSecond: 0.001}}))
	call := func(subject string) error {
		m := mcptest.Modern
		params := `{"name":"a","_meta":{"io.modelcontextprotocol/protocolVersion":"` + m + `",` +
			`"io.modelcontextprotocol/clientCapabilities":{}}}`
		req := request(t, params)
		req.Principal = &mcp.Principal{Subject: subject}
		_, err := s.ServeMCP(t.Context(), req)
		return err
	}
	if err := call("known"); err != nil {
		t.Fatal(err)
	}
	for n := range 30_000 { // more callers than have room
		if err := call(fmt.Sprint(n)); err != nil {
			t.Fatalf("first call of caller %d: %v", n, err)
		}
		if n%5_000 == 0 && call("known") == nil {
			t.Fatalf("after %d callers, a further call of a caller: no error, want one", n)
		}
	}
}

// Requirement: TOOL-25
func TestAnonymousCallersDoNotEvictTheLimitsOfOthers(t *testing.T) {
	n := 0
	s := newServer(middleware.RateLimit(&middleware.RateLimitOptions{ToolCalls: middleware.Rate{PerSecond: 1e-3},
		Caller: func(_ context.Context, req *mcp.Request) string {
			if n++; req.Principal != nil {
				n = 0
			}
			return req.Principal.Key() + fmt.Sprint(n)
		}}))
	call := func(p *mcp.Principal) error {
		req := request(t, `{"name":"a","_meta":{"io.modelcontextprotocol/protocolVersion":"`+mcptest.Modern+`",`+
			`"io.modelcontextprotocol/clientCapabilities":{}}}`)
		req.Principal = p
		_, err := s.ServeMCP(t.Context(), req)
		return err
	}
	if err := call(&mcp.Principal{Subject: "x"}); err != nil {
		t.Fatal(err)
	}
	for range 30_000 {
		if err := call(nil); err != nil {
			t.Fatalf("first call of an anonymous caller: %v", err)
		}
	}
	if call(&mcp.Principal{Subject: "x"}) == nil {
		t.Error("second call of a principal: no error, want one")
	}
}

// Requirement: TOOL-25
func TestRefusedCallsUseNoTokenOfTheirTool(t *testing.T) {
	limited := func() *mcp.Server {
		return newServer(middleware.RateLimit(&middleware.RateLimitOptions{
			ToolCalls: middleware.Rate{PerSecond: 1},
			Tools:     map[string]middleware.Rate{"b": {PerSecond: 1e-3}},
		}))
	}
	run(t, limited, nil, func(t *testing.T, c *mcptest.Client) {
		c.Call("tools/call", object{"name": "a"})
		_, err := c.Try("tools/call", object{"name": "b"})
		wantBusy(t, "second call of all tools", err)
		time.Sleep(time.Second)
		c.Call("tools/call", object{"name": "b"})
	})
}

// Requirement: CMP-08
func TestCompletionsAreRateLimited(t *testing.T) {
	limited := func() *mcp.Server {
		s := newServer(middleware.RateLimit(&middleware.RateLimitOptions{Completions: middleware.Rate{PerSecond: 1, Burst: 2}}))
		mcp.AddPrompt(s, &mcp.Prompt{Name: "p", Complete: map[string]mcp.CompleteFunc{
			"x": func(context.Context, string, map[string]string) ([]string, error) { return nil, nil },
		}}, func(context.Context, struct {
			X string `json:"x"`
		}) (string, error) {
			return "", nil
		})
		return s
	}
	params := object{"ref": object{"type": "ref/prompt", "name": "p"}, "argument": object{"name": "x", "value": ""}}
	run(t, limited, nil, func(t *testing.T, c *mcptest.Client) {
		c.Call("completion/complete", params)
		c.Call("completion/complete", params)
		_, err := c.Try("completion/complete", params)
		wantBusy(t, "third completion", err)
	})
}

// Requirement: LOG-09
func TestLogMessagesAreRateLimited(t *testing.T) {
	limited := func() *mcp.Server {
		s := newServer(middleware.RateLimit(&middleware.RateLimitOptions{LogMessages: middleware.Rate{PerSecond: 1, Burst: 5}}))
		mcp.AddTool(s, &mcp.Tool{Name: "log"}, func(ctx context.Context, _ struct{}) (string, error) {
			for range 100 {
				mcp.Logger(ctx).Error("x")
				mcp.Progress(ctx, 1, 1, "not limited")
			}
			return "", nil
		})
		return s
	}
	run(t, limited, &mcptest.Options{LogLevel: "debug"}, func(t *testing.T, c *mcptest.Client) {
		c.Call("tools/call", object{"name": "log", "_meta": object{"progressToken": 1}})
		if got := len(c.Notifications("notifications/message")); got != 5 {
			t.Errorf("got %d log messages, want 5", got)
		}
		if got := len(c.Notifications("notifications/progress")); got != 1 {
			t.Errorf("got %d progress notifications, want 1", got)
		}
	})
}

// Requirement: ELI-34
func TestQuestionsAreRateLimited(t *testing.T) {
	limited := func() *mcp.Server {
		s := newServer(middleware.RateLimit(&middleware.RateLimitOptions{Questions: middleware.Rate{PerSecond: 0.1, Burst: 2}}))
		mcp.AddTool(s, &mcp.Tool{Name: "ask"}, func(ctx context.Context, _ struct{}) (string, error) {
			_, err := mcp.Ask[struct{}](ctx, "q", "Go on?", nil)
			return "", err
		})
		return s
	}
	for _, on := range mcptest.Since("2025-06-18") {
		mcptest.RunOn(t, limited(), []mcptest.Combination{on}, nil, func(t *testing.T, c *mcptest.Client) {
			c.Call("tools/call", object{"name": "ask"})
			c.Call("tools/call", object{"name": "ask"})
			_, err := c.Try("tools/call", object{"name": "ask"})
			wantBusy(t, "third question", err)
		})
	}
}

// Requirement: TOOL-26
func TestRequestsAreRecordedForAudits(t *testing.T) {
	var mu sync.Mutex
	var records []middleware.AuditRecord
	recorded := func() *mcp.Server {
		s := newServer(middleware.Audit(func(_ context.Context, r middleware.AuditRecord) {
			mu.Lock()
			defer mu.Unlock()
			records = append(records, r)
		}))
		mcp.AddTool(s, &mcp.Tool{Name: "slow"}, func(context.Context, struct{}) (string, error) {
			time.Sleep(time.Second)
			return "", errors.New("failed")
		})
		return s
	}
	run(t, recorded, nil, func(t *testing.T, c *mcptest.Client) {
		records = nil
		c.Call("tools/call", object{"name": "slow"})
		_, _ = c.Try("tools/call", object{"name": strings.Repeat("x", 1000)})
		mu.Lock()
		defer mu.Unlock()
		var calls []middleware.AuditRecord
		for _, r := range records {
			if r.Method == "tools/call" {
				calls = append(calls, r)
			}
		}
		if len(calls) != 2 {
			t.Fatalf("got %+v, want 2 calls", records)
		}
		if r := calls[0]; r.Target != "slow" || !r.ToolError || r.Err != nil || r.ResultType != "complete" ||
			r.Duration != time.Second || r.Client.Name == "" {
			t.Errorf("got %+v, want a tool error of slow after a second", r)
		}
		if r := calls[1]; len(r.Target) != 256 || r.Err == nil || r.ResultType != "" {
			t.Errorf("got %+v, want an error and a target of 256 bytes", r)
		}
	})
}

// Requirement: TOOL-25
func TestHiddenCharactersAreRemovedFromOutput(t *testing.T) {
	const hidden = "a\u202eb\U000E0041c\x1b[31m\u0085d\u2066\te\nf" +
		"\u200b\u2060\ufeff\u00ad\u3164\ufe01\U000E0101\ue000\u2028\ufff9 é \u05d0 👩\u200d💻"
	const visible = "abc[31md\te\nf é \u05d0 👩\u200d💻"
	sanitized := func() *mcp.Server {
		s := newServer(middleware.Sanitize(&middleware.SanitizeOptions{MaxResult: 10_000}))
		mcp.AddTool(s, &mcp.Tool{Name: "text", Description: hidden}, func(ctx context.Context, _ struct{}) (string, error) {
			mcp.Progress(ctx, 1, 1, hidden)
			return hidden, nil
		})
		mcp.AddTool(s, &mcp.Tool{Name: "structured"}, func(context.Context, struct{}) (map[string]string, error) {
			return map[string]string{"k\u202e": hidden}, nil
		})
		mcp.AddTool(s, &mcp.Tool{Name: "error"}, func(context.Context, struct{}) (string, error) {
			return "", &mcp.Error{Code: 7, Message: hidden, Data: json.RawMessage(`"\u202ex"`)}
		})
		mcp.AddTool(s, &mcp.Tool{Name: "long"}, func(context.Context, struct{}) (string, error) {
			return strings.Repeat("x", 10_000), nil
		})
		return s
	}
	want, _ := json.Marshal(visible)
	run(t, sanitized, nil, func(t *testing.T, c *mcptest.Client) {
		raw := string(c.Call("tools/call", object{"name": "text", "_meta": object{"progressToken": 1}}))
		if !strings.Contains(raw, `"text":`+string(want)) {
			t.Errorf("got %q, want the text %s", raw, want)
		}
		if c.Since("2025-03-26") {
			if note := string(c.Notifications("notifications/progress")[0].Params); !strings.Contains(note, string(want)) {
				t.Errorf("progress: got %q, want the message %s", note, want)
			}
		}
		if raw := string(c.Call("tools/list", nil)); !strings.Contains(raw, `"description":`+string(want)) {
			t.Errorf("tools/list: got %q, want the description %s", raw, want)
		}
		raw = string(c.Call("tools/call", object{"name": "structured"}))
		if strings.ContainsAny(raw, "\u202e\u2066") || strings.Contains(raw, `\u202e`) || strings.Contains(raw, "\U000E0041") {
			t.Errorf("structured content: got %q, want no hidden characters", raw)
		}
		_, err := c.Try("tools/call", object{"name": "error"})
		if err == nil || err.Code != 7 || err.Message != visible || string(err.Data) != `"x"` {
			t.Errorf("error: got %+v with data %s, want the message %q", err, err.Data, visible)
		}
		if raw := string(c.Call("tools/call", object{"name": "long"})); !strings.Contains(raw, `"isError":true`) || len(raw) > 1000 {
			t.Errorf("long result: got %.200s, want a tool error", raw)
		}
		if raw := string(c.Call("tools/call", object{"name": "a"})); !strings.Contains(raw, `"text":"a"`) {
			t.Errorf("clean result: got %s", raw)
		}
	})
}

func request(t *testing.T, params string) *mcp.Request {
	t.Helper()
	req, err := mcp.NewRequest(&jsonrpc.Message{ID: jsonrpc.IntID(1), Method: "tools/call", Params: json.RawMessage(params)})
	if err != nil {
		t.Fatal(err)
	}
	return req
}
