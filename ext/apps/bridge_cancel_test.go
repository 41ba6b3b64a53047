package apps_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/patchbay-mcp/patchbay/ext/apps"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// cancelID returns a notification that cancels the request with an id in JSON.
func cancelID(id string) string {
	return `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":` + id + `,"reason":"closed"}}`
}

// Requirement: UI-04
func TestPagesCancelToolCalls(t *testing.T) {
	running, ended := make(chan struct{}), make(chan struct{})
	s := newClock(t)
	mcp.AddTool(s, &mcp.Tool{Name: "slow"}, func(ctx context.Context, _ struct{}) (string, error) {
		running <- struct{}{}
		<-ctx.Done()
		ended <- struct{}{}
		return "", ctx.Err()
	})
	runOn(t, mcptest.Combinations(), s, apps.Declare(nil), func(t *testing.T, c *mcp.Client) {
		f := open(t, c, logger(t), &apps.BridgeOptions{AllowTool: allow})
		f.handshake()
		for _, id := range []string{`4`, `"four"`} {
			answered := make(chan json.RawMessage, 1)
			go func() {
				answered <- f.send(`{"jsonrpc":"2.0","id":%s,"method":"tools/call","params":{"name":"slow"}}`, id)
			}()
			<-running
			for _, other := range []string{`5`, `"4"`, `null`, `{}`} {
				f.send("%s", cancelID(other))
			}
			f.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{}}`)
			select {
			case a := <-answered:
				t.Fatalf("the cancellation of another request ended the call: %s", a)
			default:
			}
			f.send("%s", cancelID(id))
			<-ended
			if a := <-answered; a != nil {
				t.Errorf("the cancelled call got the response %s", a)
			}
			f.send("%s", cancelID(id)) // too late
		}
		if a, code := f.request("tools/call", `{"name":"plain","arguments":{"zone":"UTC"}}`); code != 0 {
			t.Errorf("a call after cancelled calls: %s, error %d", a, code)
		}
	})
}

// A page that cancels while the host asks the user withdraws the question. A later consent has no
// effect.
func TestPagesCancelQuestions(t *testing.T) {
	c := mcptest.Dial(t, newClock(t), modernInMemory, apps.Declare(nil))
	asked := make(chan struct{})
	wait := func(ctx context.Context) error {
		asked <- struct{}{}
		<-ctx.Done()
		return nil
	}
	f := open(t, c, logger(t), &apps.BridgeOptions{
		AllowTool: func(ctx context.Context, _ *mcp.Tool, _ json.RawMessage) error { return wait(ctx) },
		AllowRead: func(ctx context.Context, _ string) error { return wait(ctx) },
		OpenLink:  func(ctx context.Context, _ string) error { return wait(ctx) },
		Sample: func(ctx context.Context, _ *mcp.CreateMessageParams) (*mcp.CreateMessageResult, error) {
			return &mcp.CreateMessageResult{}, wait(ctx)
		},
	})
	f.handshake()
	for range 2 { // no request is left
		for method, params := range map[string]string{
			"tools/call": `{"name":"time","arguments":{"zone":"UTC"}}`, "resources/read": `{"uri":"ui://clock/face"}`,
			"ui/open-link":           `{"url":"https://example.com/"}`,
			"sampling/createMessage": `{` + conversation + `,"maxTokens":9}`,
		} {
			answered := make(chan json.RawMessage, 1)
			go func() {
				answered <- f.bridge.Handle(t.Context(), json.RawMessage(fmt.Sprintf(
					`{"jsonrpc":"2.0","id":4,"method":%q,"params":%s}`, method, params)))
			}()
			<-asked
			f.send("%s", cancelID(`4`))
			if a := <-answered; a != nil {
				t.Errorf("%s: the cancelled request got the response %s", method, a)
			}
		}
	}
}
