package apps_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/ext/apps"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// offerTools completes the handshake of a page that offers tools, and answers each request of the
// host with the function. A nil answer is not sent.
func (f *testFrame) offerTools(answer func(method string, params json.RawMessage) (resultOrError string)) {
	f.t.Helper()
	f.request("ui/initialize",
		`{"appInfo":{"name":"game","version":"3"},"appCapabilities":{"tools":{"listChanged":true}}}`)
	f.answer = func(m json.RawMessage) {
		var r struct {
			ID     json.RawMessage
			Method string
			Params json.RawMessage
		}
		if err := json.Unmarshal(m, &r); err != nil {
			f.t.Error(err)
		}
		if r.ID == nil {
			return
		}
		if a := answer(r.Method, r.Params); a != "" {
			go f.send(`{"jsonrpc":"2.0","id":%s,%s}`, r.ID, a)
		}
	}
	f.send(`{"jsonrpc":"2.0","method":"ui/notifications/initialized"}`)
}

const moveTool = `{"name":"move","inputSchema":{"type":"object"},` +
	`"outputSchema":{"type":"object","required":["at"],"properties":{"at":{"type":"integer"}}}}`

func TestHostsCallToolsOfPages(t *testing.T) {
	c := mcptest.Dial(t, newClock(t), modernInMemory, apps.Declare(nil))
	f := open(t, c, logger(t), nil)
	if _, err := f.bridge.AppTools(t.Context()); err == nil {
		t.Error("AppTools before the page is ready succeeded")
	}
	var asked []string
	f.offerTools(func(method string, params json.RawMessage) string {
		asked = append(asked, method+string(params))
		switch {
		case method == "tools/list" && string(params) == `{}`:
			return `"result":{"tools":[` + moveTool + `,{"name":"time","inputSchema":{}},` +
				`{"name":"a b","inputSchema":{}},{"name":"open","inputSchema":[]},null],"nextCursor":"2"}`
		case method == "tools/list":
			return `"result":{"tools":[{"name":"reset","inputSchema":{"type":"object"}},` + moveTool + `]}`
		case strings.Contains(string(params), `"at":1`):
			return `"result":{"content":[{"type":"text","text":"moved"}],"structuredContent":{"at":1}}`
		case strings.Contains(string(params), `"at":2`):
			return `"result":{"content":[],"structuredContent":{"at":"two"}}`
		case strings.Contains(string(params), `"at":3`):
			return `"result":{"content":[{"type":"text","text":"occupied"}],"isError":true}`
		case strings.Contains(string(params), `"at":4`):
			return `"error":{"code":-32000,"message":"boom"}`
		}
		return `"result":{"content":{}}`
	})
	tools, err := f.bridge.AppTools(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got := names(tools); got != "move reset" {
		t.Errorf("tools %q, want move and reset only", got)
	}
	if got := f.bridge.App(); got != (apps.App{Name: "game", Version: "3", Tools: true}) {
		t.Errorf("app %+v", got)
	}
	for at, want := range map[int]string{1: "moved", 2: "", 3: "occupied", 4: "", 5: ""} {
		res, err := f.bridge.CallAppTool(t.Context(), "move", json.RawMessage(fmt.Sprintf(`{"at":%d}`, at)))
		if (err == nil) != (want != "") || err == nil && res.Text() != want {
			t.Errorf("move to %d: %v, %v, want %q", at, res, err, want)
		}
	}
	for _, name := range []string{"time", "open", "other"} {
		if _, err := f.bridge.CallAppTool(t.Context(), name, nil); err == nil {
			t.Errorf("call of the tool %q, which was not listed, succeeded", name)
		}
	}
	if want := `tools/call{"arguments":{"at":1},"name":"move"}`; !slices.Contains(asked, want) {
		t.Errorf("requests %q, want %s", asked, want)
	}
}

func names(tools []*mcp.Tool) string {
	var all []string
	for _, t := range tools {
		all = append(all, t.Name)
	}
	return strings.Join(all, " ")
}

func TestHostilePagesOfferTools(t *testing.T) {
	var many []string
	for i := range 51 {
		many = append(many, fmt.Sprintf(`{"name":"t%d","inputSchema":{}}`, i))
	}
	for what, answer := range map[string]string{
		"too many tools":         `"result":{"tools":[` + strings.Join(many, ",") + `]}`,
		"endless pages of tools": `"result":{"tools":[{"name":"x","inputSchema":{}}],"nextCursor":"again"}`,
		"no list":                `"result":{"tools":"x"}`,
		"no result":              `"result":null`,
		"a deep schema": `"result":{"tools":[{"name":"x","inputSchema":` + strings.Repeat(`{"items":`, 100) + "1" +
			strings.Repeat("}", 100) + `}]}`,
	} {
		synctest.Test(t, func(t *testing.T) {
			c := mcptest.Dial(t, newClock(t), modernInMemory, apps.Declare(nil))
			f := open(t, c, logger(t), nil)
			requests, began := 0, time.Now()
			f.offerTools(func(string, json.RawMessage) string { requests++; return answer })
			tools, err := f.bridge.AppTools(t.Context())
			if len(tools) > 1 || requests > 8 || time.Since(began) > 0 {
				t.Errorf("%s: %d tools after %d requests and %v, %v", what, len(tools), requests, time.Since(began),
					err)
			}
			synctest.Wait()
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestCallsOfPagesEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := mcptest.Dial(t, newClock(t), modernInMemory, apps.Declare(nil))
		f := open(t, c, logger(t), nil)
		f.offerTools(func(method string, _ json.RawMessage) string {
			if method == "tools/list" {
				return `"result":{"tools":[` + moveTool + `]}`
			}
			return ""
		})
		if _, err := f.bridge.AppTools(t.Context()); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		if _, err := f.bridge.CallAppTool(t.Context(), "move", nil); err == nil || time.Since(began) != 30*time.Second {
			t.Errorf("a call without an answer ended after %v: %v, want an error after 30s", time.Since(began), err)
		}
		sent := f.got()
		wantJSON(t, "the cancellation", json.RawMessage(sent[len(sent)-1]),
			`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"host-2"}}`)
		ended := make(chan error, 1)
		go func() {
			_, err := f.bridge.CallAppTool(t.Context(), "move", nil)
			ended <- err
		}()
		synctest.Wait()
		go func() { _ = f.bridge.Teardown(t.Context(), "closed") }()
		began = time.Now()
		if err := <-ended; err == nil || time.Since(began) != 0 {
			t.Errorf("a call during Teardown: %v after %v, want an error at once", err, time.Since(began))
		}
		if _, err := f.bridge.CallAppTool(t.Context(), "move", nil); err == nil {
			t.Error("a call after Teardown succeeded")
		}
		id := f.got()[len(f.got())-1]
		id = id[strings.Index(id, "host-"):]
		f.send(`{"jsonrpc":"2.0","id":%q,"result":{}}`, id[:strings.Index(id, `"`)])
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
}

// A page that changes its tools without pause wakes the host once.
func TestChangesOfToolsAreToldOnce(t *testing.T) {
	c := mcptest.Dial(t, newClock(t), modernInMemory, apps.Declare(nil))
	changes := 0
	f := open(t, c, logger(t), &apps.BridgeOptions{
		AllowTool: allow, NotifiesTools: true, AppToolsChanged: func() { changes++ },
	})
	change := func() { f.send(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`) }
	change()
	f.offerTools(func(string, json.RawMessage) string { return `"result":{"tools":[]}` })
	for want := range 3 {
		if changes != want {
			t.Errorf("AppToolsChanged was called %d times, want %d", changes, want)
		}
		change()
		change()
		if _, err := f.bridge.AppTools(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.bridge.ToolsChanged(t.Context()); err != nil {
		t.Fatal(err)
	}
	got := f.got()
	wantJSON(t, "the notification of the host", json.RawMessage(got[len(got)-1]),
		`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
}

// Requirement: UI-04
func TestPagesListTheirTools(t *testing.T) {
	c := mcptest.Dial(t, newClock(t), modernInMemory, apps.Declare(nil))
	f := open(t, c, logger(t), &apps.BridgeOptions{AllowTool: allow})
	f.handshake()
	raw, code := f.request("tools/list", `{}`)
	var res struct{ Tools []*mcp.Tool }
	if err := json.Unmarshal(raw, &res); err != nil || code != 0 || names(res.Tools) != "plain refresh time" {
		t.Errorf("tools/list: %s, error %d, want plain, refresh and time", raw, code)
	}
	f = open(t, c, logger(t), nil)
	f.handshake()
	if _, code := f.request("tools/list", `{}`); code != mcp.CodeMethodNotFound {
		t.Errorf("tools/list without AllowTool: error %d", code)
	}
}

func TestPagesAskToBeRemoved(t *testing.T) {
	c := mcptest.Dial(t, newClock(t), modernInMemory, apps.Declare(nil))
	asked := 0
	f := open(t, c, logger(t), &apps.BridgeOptions{RequestTeardown: func() { asked++ }})
	for _, want := range []int{0, 1} {
		f.send(`{"jsonrpc":"2.0","method":"ui/notifications/request-teardown","params":{}}`)
		if asked != want {
			t.Errorf("RequestTeardown was called %d times, want %d", asked, want)
		}
		f.handshake()
	}
}

func TestCapabilitiesOfHosts(t *testing.T) {
	c := mcptest.Dial(t, newClock(t), modernInMemory, apps.Declare(nil))
	sample := func(context.Context, *mcp.CreateMessageParams) (*mcp.CreateMessageResult, error) { return nil, nil }
	for want, opts := range map[string]*apps.BridgeOptions{
		`{"logging":{}}`: {},
		`{"logging":{},"openLinks":{},"downloadFile":{},"message":{"text":{}},"updateModelContext":{"text":{},` +
			`"image":{},"audio":{},"resource":{},"resourceLink":{},"structuredContent":{}},` +
			`"serverTools":{"listChanged":true},"serverResources":{},"sampling":{"tools":{}}}`: {
			AllowTool: allow, NotifiesTools: true, AllowRead: func(context.Context, string) error { return nil },
			OpenLink: func(context.Context, string) error { return nil }, Sample: sample, SampleTools: true,
			Message:            func(context.Context, string) error { return nil },
			DownloadFile:       func(context.Context, []apps.Download) error { return nil },
			UpdateModelContext: func(context.Context, apps.ModelContext) error { return nil },
		},
		`{"logging":{},"sampling":{}}`: {Sample: sample},
	} {
		f := open(t, c, logger(t), opts)
		raw, _ := f.request("ui/initialize", `{"appCapabilities":{}}`)
		var res struct{ HostCapabilities map[string]any }
		if err := json.Unmarshal(raw, &res); err != nil {
			t.Fatal(err)
		}
		delete(res.HostCapabilities, "sandbox")
		wantJSON(t, "capabilities", res.HostCapabilities, want)
	}
}
