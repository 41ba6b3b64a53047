package apps_test

import (
	"context"
	"encoding/json"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/patchbay-mcp/patchbay/ext/apps"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

func TestNotificationsAreQueuedUntilPageIsReady(t *testing.T) {
	c := mcptest.Dial(t, newClock(t), modernInMemory, apps.Declare(nil))
	f := open(t, c, logger(t), nil)
	ctx, b := t.Context(), f.bridge
	result := &mcp.CallToolResult{Content: []mcp.ContentBlock{mcp.Text("noon")}, Meta: mcp.Meta{"a": 1}}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Error(err)
		}
	}
	if b.ToolResult(ctx, result) == nil {
		t.Error("ToolResult before ToolInput succeeded")
	}
	must(b.ToolInputPartial(ctx, json.RawMessage(`{"zo":1}`)))
	must(b.ToolInput(ctx, json.RawMessage(`{"zone":"UTC"}`)))
	must(b.ToolResult(ctx, result))
	must(b.ContextChanged(ctx, &apps.Context{Theme: "light"}))
	if b.ToolInput(ctx, nil) == nil || b.ToolResult(ctx, result) == nil || b.ToolCancelled(ctx, "") == nil {
		t.Error("a second notification succeeded")
	}
	f.send(`{"jsonrpc":"2.0","method":"ui/notifications/initialized"}`)
	if got := f.got(); len(got) != 0 {
		t.Fatalf("a page before initialization got %q", got)
	}
	f.handshake()
	f.send(`{"jsonrpc":"2.0","method":"ui/notifications/initialized"}`)
	wantJSON(t, "notifications", "["+strings.Join(f.got(), ",")+"]", asJSON(t, "["+strings.Join([]string{
		`{"jsonrpc":"2.0","method":"ui/notifications/tool-input","params":{"arguments":{"zone":"UTC"}}}`,
		`{"jsonrpc":"2.0","method":"ui/notifications/tool-result","params":{"_meta":{"a":1},"content":[{"type":"text","text":"noon"}]}}`,
		`{"jsonrpc":"2.0","method":"ui/notifications/host-context-changed","params":{"theme":"light"}}`,
	}, ",")+"]"))
}

func TestTeardownWaitsForThePage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := mcptest.Dial(t, newClock(t), modernInMemory, apps.Declare(nil))
		f := open(t, c, logger(t), &apps.BridgeOptions{AllowTool: allow})
		f.handshake()
		ended := make(chan error, 1)
		go func() { ended <- f.bridge.Teardown(t.Context(), "closed") }()
		synctest.Wait()
		wantJSON(t, "teardown", json.RawMessage(f.got()[0]), `{"jsonrpc":"2.0","id":"host-1","method":"ui/resource-teardown","params":{"reason":"closed"}}`)
		f.send(`{"jsonrpc":"2.0","id":"host-2","result":{}}`)
		synctest.Wait()
		if len(ended) > 0 {
			t.Error("a response to another request ended the teardown")
		}
		f.send(`{"jsonrpc":"2.0","id":"host-1","result":{}}`)
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if _, code := f.request("tools/call", `{"name":"time","arguments":{"zone":"UTC"}}`); code == 0 {
			t.Error("tools/call after Teardown succeeded")
		}
		if f.bridge.ToolInput(t.Context(), nil) == nil {
			t.Error("ToolInput after Teardown succeeded")
		}
		f = open(t, c, logger(t), nil)
		if err := f.bridge.Teardown(t.Context(), ""); err != nil || len(f.got()) > 0 {
			t.Errorf("Teardown before the page is ready: %v, %q", err, f.got())
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
}

// The page may be torn down while a consent dialog is open.
func TestRequestsAreRefusedAfterTeardown(t *testing.T) {
	for what, request := range map[string][2]string{
		"a tool":     {"tools/call", `{"name":"time","arguments":{"zone":"UTC"}}`},
		"a resource": {"resources/read", `{"uri":"` + clockURI + `"}`},
		"a link":     {"ui/open-link", `{"url":"https://example.com/"}`},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				asked, yes := make(chan context.Context, 1), make(chan struct{})
				consent := func(ctx context.Context) error {
					asked <- ctx
					<-yes // ignores its context
					return nil
				}
				ran := 0
				s := newClock(t)
				s.Use(func(next mcp.Handler) mcp.Handler {
					return mcp.HandlerFunc(func(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
						if req.Method == request[0] {
							ran++
						}
						return next.ServeMCP(ctx, req)
					})
				})
				c := mcptest.Dial(t, s, modernInMemory, apps.Declare(nil))
				f := open(t, c, logger(t), &apps.BridgeOptions{
					AllowTool: func(ctx context.Context, _ *mcp.Tool, _ json.RawMessage) error { return consent(ctx) },
					AllowRead: func(ctx context.Context, _ string) error { return consent(ctx) },
					OpenLink:  func(ctx context.Context, _ string) error { return consent(ctx) },
				})
				f.request("ui/initialize", `{"appCapabilities":{}}`)
				before, code := ran, 0
				var result json.RawMessage
				var requests sync.WaitGroup
				requests.Go(func() { result, code = f.request(request[0], request[1]) })
				ctx := <-asked
				if err := f.bridge.Teardown(t.Context(), "closed"); err != nil {
					t.Error(err)
				}
				if ctx.Err() == nil {
					t.Error("the context of the dialog did not end")
				}
				close(yes)
				requests.Wait()
				if ran != before || code == 0 {
					t.Errorf("the server got %d requests, the page the response %s; want no request and an error", ran-before, result)
				}
				if err := c.Close(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

func TestTeardownCancelsRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newClock(t)
		var ended error
		mcp.AddTool(s, &mcp.Tool{Name: "slow"}, func(ctx context.Context, _ struct{}) (string, error) {
			<-ctx.Done()
			ended = ctx.Err()
			return "", ended
		})
		c := mcptest.Dial(t, s, modernInMemory, apps.Declare(nil))
		f := open(t, c, logger(t), &apps.BridgeOptions{AllowTool: allow})
		f.request("ui/initialize", `{"appCapabilities":{}}`)
		var requests sync.WaitGroup
		requests.Go(func() {
			if got, code := f.request("tools/call", `{"name":"slow"}`); code == 0 {
				t.Errorf("the page got the result %s, want an error", got)
			}
		})
		synctest.Wait()
		if err := f.bridge.Teardown(t.Context(), "closed"); err != nil {
			t.Error(err)
		}
		requests.Wait()
		synctest.Wait()
		if ended == nil {
			t.Error("the context of the tool did not end")
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
}

func TestDocumentIsSentToSandboxProxyOnce(t *testing.T) {
	c := mcptest.Dial(t, newClock(t), modernInMemory, apps.Declare(nil))
	f := open(t, c, logger(t), nil)
	for range 3 {
		f.send(`{"jsonrpc":"2.0","method":"ui/notifications/sandbox-proxy-ready","params":{}}`)
	}
	if len(f.got()) != 1 {
		t.Fatalf("the document was sent %d times, want once", len(f.got()))
	}
	html, _ := json.Marshal(clockHTML)
	wantJSON(t, "the document", json.RawMessage(f.got()[0]), `{"jsonrpc":"2.0","method":"ui/notifications/sandbox-resource-ready","params":{"html":`+string(html)+`,
		"sandbox":"allow-scripts allow-forms","csp":{"connectDomains":["https://api.example.com","wss://live.example.com"],"resourceDomains":["https://*.cdn.example.com"]},
		"permissions":{"geolocation":{},"clipboardWrite":{}}}}`)
}
